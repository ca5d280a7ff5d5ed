"""Limits of Slurm's steps beside those of the session that starts the job."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.limits import MEMLOCK_ADVISED_BYTES, MEMLOCK_LEAST_BYTES, slurmd_limit
from netdoctor.checks._shared.text import size
from netdoctor.facts.host import LimitFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import Job
from netdoctor.model import CONFIG, Cause, Finding, Fix, in_job, seen

NOFILE_ADVISED = 65536
UNITS = {"memlock": "infinity", "nofile": "1048576"}
LOWER = Cause("slurm-limits", "Slurm steps on {nodes} have lower limits than the session here")


@check(
    explains=["host.memlock", "host.nofile"], via="slurm", source="https://slurm.schedmd.com/faq.html#memlock"
)
def slurm_limits(limits: LimitFacts, job: Job, rdma: RdmaFacts | None) -> Iterator[Finding]:
    """A step may lock as much memory, and open as many files, as the session that submits the job.

    Looks at:
        RLIMIT_MEMLOCK and RLIMIT_NOFILE of a task that slurmd started, compared with the session in which
        netdoctor runs. A limit of the step that is enough for any job is never a fault.

    Matters because:
        What works in a login on the node fails in the job: slurmd gives its own hard limits to all steps.
        If a step may lock little memory, NCCL ends with "ibv_reg_mr failed with error Cannot allocate
        memory".

    Fix:
        Raise LimitMEMLOCK or LimitNOFILE of slurmd.service on the node. If the step's hard limit is high
        enough, PropagateResourceLimits in slurm.conf, or ``srun --propagate``, passes the session's limit
        on.
    """
    here = job.session_limits
    step = {
        "memlock": (limits.memlock_soft_bytes, limits.memlock_hard_bytes, MEMLOCK_ADVISED_BYTES),
        "nofile": (limits.nofile_soft, limits.nofile_hard, NOFILE_ADVISED),
    }
    for item, (soft, hard, advised) in step.items():
        if item not in here or soft is None or soft >= min(here[item] or advised, advised):
            continue
        name = f"RLIMIT_{item.upper()}"
        show = size if item == "memlock" else str
        session = "unlimited" if (limit := here[item]) is None else show(limit)
        stops = item == "memlock" and soft < MEMLOCK_LEAST_BYTES and rdma is not None and bool(rdma.hcas)
        yield (LOWER.fail if stops else LOWER.warn)(
            f"{name} of a step is {show(soft)}, of the session here {session}",
            observed=f"soft {show(soft)}, hard {'unlimited' if hard is None else show(hard)}",
            expected=CONFIG(f"the session's: {session}"),
            seen=seen(f"srun sh -c 'ulimit -{'l' if item == 'memlock' else 'n'}'", show(soft), "command"),
            fixes=_fixes(item, within=hard is None or (limit is not None and hard >= limit)),
        )


def _fixes(item: str, *, within: bool) -> list[Fix]:
    name = item.upper()
    propagate = in_job(f"pass the session's limit on: sbatch or srun --propagate={name}")
    service = slurmd_limit(
        "raise it for slurmd, which passes it to all steps", item, f"Limit{name}={UNITS[item]}"
    )
    return [propagate, service] if within else [service]
