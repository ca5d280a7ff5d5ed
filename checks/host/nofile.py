"""Open files."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.job import most_ranks, only_gloo
from netdoctor.checks._shared.limits import files_of_nccl, is_machine_limit, raise_limit
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, LimitFacts, Node, Session
from netdoctor.facts.software import Job
from netdoctor.model import Cause, Finding, seen

# 1024 is what every kernel starts with (INR_OPEN_CUR, include/uapi/linux/fs.h): less was set by somebody, and
# a rank with its sockets, shared-memory segments and data loaders does not fit. 4096 is the kernel's own hard
# limit (INR_OPEN_MAX); 65536 is what NCCL's larger jobs want (more than 32 Ki seen with 144 ranks).
LEAST = 1024
ADVISED = 4096
LARGE = 65536
# Of a gloo rank that hosts the store, with torch 2.13: 19, 2 for each rank, and 1 more for each group.
OF_A_RANK, OF_A_PEER = 40, 4


LOW = Cause("nofile-low", "{nodes} let{s} sessions open too few files")


@check(source="https://docs.pytorch.org/docs/stable/multiprocessing.html#file-descriptor-file-descriptor")
def host_nofile(
    limits: Mapping[str, LimitFacts],
    hosts: Mapping[str, HostFacts],
    gpus: Mapping[str, GpuFacts] | None,
    listed: Mapping[str, Node],
    job: Job,
    sessions: Mapping[str, Session] | None = None,
) -> Iterator[Finding]:
    """Sessions may open as many files as a rank needs.

    Looks at:
        RLIMIT_NOFILE of the login session, or of Ray's workers or Slurm's tasks, soft and hard.

    Matters because:
        Sockets to every peer, shared-memory segments and data-loader workers all need file descriptors.
        "Too many open files" comes hours into a run, or at the start with many ranks. The number needed
        follows from the ranks (``slots=``, else one per GPU, without GPUs one per CPU). With NCCL it is
        64 per rank; for a gloo job (no node has a GPU, or ``--backend gloo``) 40, and 4 per rank. So the
        default of 1024 is enough for small jobs. A limit below 1024 is too low for data loaders as well:
        that is a failure, or a warning if gloo needs no more.

    Fix:
        Raise the soft limit in the job script if the hard limit allows it, else the limit itself.
    """
    gloo = only_gloo(job, [(gpus or {}).get(node) for node in limits])
    small = OF_A_RANK + OF_A_PEER * most_ranks(listed, hosts) if gloo else ADVISED
    needed = small if gloo else files_of_nccl(limits, gpus or {}, listed) or ADVISED
    softs = {node: one.nofile_soft for node, one in limits.items()}
    for node, one in limits.items():
        soft, hard = one.nofile_soft, one.nofile_hard
        if soft is None or soft >= ADVISED or LEAST <= soft >= needed:
            continue
        # What every kernel starts with is no fault of the lab, and less was set by somebody.
        if soft >= LEAST and is_machine_limit(hosts, softs, node):
            continue
        in_script = f"ulimit -n {min(LARGE, hard or LARGE)}" if hard is None or hard >= ADVISED else ""
        keeps = "infinity" if hard is None else str(hard) if hard >= LARGE else ""
        session = (sessions or {}).get(node)
        spared = small <= soft
        whom = "; enough for so few gloo ranks, not for NCCL or data loaders with workers" if spared else ""
        say = LOW.fail if soft < LEAST and not spared else LOW.warn
        yield say(
            f"sessions may open {soft} files (ulimit -n){whom}",
            at=node,
            observed=f"soft {soft}, hard {'unlimited' if hard is None else hard}",
            expected=f"at least {ADVISED}; {LARGE} for large jobs",
            seen=seen("ulimit -n", str(soft), "command"),
            fixes=raise_limit(hosts[node], "nofile", str(LARGE), in_script, session, LARGE, keeps=keeps),
        )
