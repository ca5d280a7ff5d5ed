"""Locked memory."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._limits import is_the_machines, raise_limit
from netdoctor.checks._words import GIB, MIB, size
from netdoctor.facts.host import HostFacts, LimitFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    unknown,
    warn,
)

# Fleet preflights ask for 16 GiB (awsome-distributed-training, gpu-cluster-healthcheck) or 32 GiB (Primus),
# or unlimited. The kernel's own default is 64 KiB, 8 MiB since 5.16 (include/uapi/linux/resource.h): with
# either the first ibv_reg_mr of an NCCL buffer (4 MiB per channel and peer) ends in "Cannot allocate memory".
ADVISED_BYTES = 16 * GIB
LEAST_BYTES = 64 * MIB


@check(source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def host_memlock(
    limits: Mapping[str, LimitFacts], hosts: Mapping[str, HostFacts], rdma: Mapping[str, RdmaFacts] | None
) -> Iterator[Finding]:
    """Sessions may lock as much memory as RDMA needs.

    Looks at:
        RLIMIT_MEMLOCK of the login session, on nodes that have an RDMA device.

    Matters because:
        RDMA pins every buffer it sends from. With a low limit NCCL ends with "Call to ibv_reg_mr failed with
        error Cannot allocate memory", or "Call to ibv_create_cq failed".

    Fix:
        Set memlock to unlimited for login sessions and for the service that starts the job, or start the
        container with ``--ulimit memlock=-1``.
    """
    softs = {node: one.memlock_soft_bytes for node, one in limits.items()}
    for node, one in limits.items():
        soft, hard = one.memlock_soft_bytes, one.memlock_hard_bytes
        devices = (rdma or {}).get(node)
        if devices is not None and not devices.hcas:
            yield skip("no RDMA device: locked memory is not used", node)
            continue
        if soft is None or soft >= ADVISED_BYTES:
            continue
        if devices is None:
            yield unknown(node, f"at most {size(soft)} may be locked; RDMA devices could not be read")
            continue
        machine = is_the_machines(hosts, softs, node)
        say = fail if soft < LEAST_BYTES and not machine else warn
        within = hard is None or hard >= ADVISED_BYTES
        note = " (lab node: the limit of the machine that carries the lab)" if machine else ""
        yield say(
            node,
            f"sessions may lock {size(soft)} of memory{note}",
            observed=f"soft {size(soft)}, hard {'unlimited' if hard is None else size(hard)}",
            expected=f"unlimited, or at least {size(ADVISED_BYTES)}",
            expected_from=ExpectedFrom.CONSTANT,
            evidence=(Evidence(kind="command", where=node, what="ulimit -l", output=str(soft // 1024)),),
            cause=CauseHint(
                key="memlock-low",
                title="{nodes} let{s} sessions lock too little memory for RDMA",
                culprits=(node,),
                fixes=_soft() if within else _hard(node, hosts[node]),
            ),
        )


def _soft() -> tuple[Fix, ...]:
    return (
        Fix(
            text="raise the soft limit in the job script; the hard limit allows it",
            commands=(Command(run_on="job", shell="ulimit -l $(ulimit -H -l)"),),
            effect="next launch",
            persistent=False,
        ),
    )


def _hard(node: str, host: HostFacts) -> tuple[Fix, ...]:
    return raise_limit(node, host, "memlock", "unlimited", "LimitMEMLOCK=infinity", "memlock=-1")
