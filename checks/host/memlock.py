"""Locked memory."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.limits import MEMLOCK_ADVISED_BYTES as ADVISED_BYTES
from netdoctor.checks._shared.limits import MEMLOCK_LEAST_BYTES as LEAST_BYTES
from netdoctor.checks._shared.limits import is_machine_limit, raise_limit
from netdoctor.checks._shared.text import size
from netdoctor.facts.host import HostFacts, LimitFacts, Session
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Cause, Finding, seen, skip, unknown

LOW = Cause("memlock-low", "{nodes} let{s} sessions lock too little memory for RDMA")


@check(source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def host_memlock(
    limits: Mapping[str, LimitFacts],
    hosts: Mapping[str, HostFacts],
    rdma: Mapping[str, RdmaFacts] | None,
    sessions: Mapping[str, Session] | None = None,
) -> Iterator[Finding]:
    """Sessions may lock as much memory as RDMA needs.

    Looks at:
        RLIMIT_MEMLOCK of the login session, or of Ray's workers or Slurm's tasks, on nodes with an RDMA
        device.

    Matters because:
        RDMA locks every buffer that it uses in memory. With a low limit NCCL ends with "Call to
        ibv_reg_mr failed with error Cannot allocate memory", or "Call to ibv_create_cq failed".

    Fix:
        Set memlock to unlimited for login sessions and for the service that starts the job, or start the
        container with ``--ulimit memlock=-1``. The check does not apply to netdoctor's own lab: its nodes
        have this machine's limit, and their HCAs lock nothing.
    """
    softs = {node: one.memlock_soft_bytes for node, one in limits.items()}
    for node, one in limits.items():
        soft, devices = one.memlock_soft_bytes, (rdma or {}).get(node)
        if devices is not None and not devices.hcas:
            yield skip("no RDMA device: locked memory is not used", node)
        elif soft is None or soft >= ADVISED_BYTES:
            continue
        elif devices is None:
            yield unknown(node, f"at most {size(soft)} may be locked; RDMA devices could not be read")
        elif is_machine_limit(hosts, softs, node):
            yield skip(f"shares one machine and has its {size(soft)}; simulated HCAs lock nothing", node)
        else:
            yield _low(node, hosts[node], soft, one.memlock_hard_bytes, (sessions or {}).get(node))


def _low(node: str, host: HostFacts, soft: int, hard: int | None, session: Session | None) -> Finding:
    within = hard is None or hard >= ADVISED_BYTES
    value = str(hard // 1024) if within and hard is not None else "unlimited"
    in_script = "ulimit -l $(ulimit -H -l)" if within else ""
    return (LOW.fail if soft < LEAST_BYTES else LOW.warn)(
        f"sessions may lock {size(soft)} of memory (ulimit -l: {soft // 1024})",
        at=node,
        observed=f"soft {size(soft)}, hard {'unlimited' if hard is None else size(hard)}",
        expected=f"unlimited, or at least {size(ADVISED_BYTES)}",
        seen=seen("ulimit -l", str(soft // 1024), "command"),
        fixes=raise_limit(host, "memlock", value, in_script, session),
    )
