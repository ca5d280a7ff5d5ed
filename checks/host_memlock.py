"""Locked memory."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._limits import of_the_machine, raise_limit
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
EXPECTED = f"unlimited, or at least {size(ADVISED_BYTES)}"


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
        container with ``--ulimit memlock=-1``. The nodes of netdoctor's own lab have the limit of the machine
        that carries them, which is told as a warning about that machine.
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
        if of_the_machine(hosts, softs, node):
            yield _of_the_machine(node, soft, hard)
            continue
        say = fail if soft < LEAST_BYTES else warn
        within = hard is None or hard >= ADVISED_BYTES
        yield say(
            node,
            f"sessions may lock {size(soft)} of memory (ulimit -l: {soft // 1024})",
            observed=_text(soft, hard),
            expected=EXPECTED,
            expected_from=ExpectedFrom.CONSTANT,
            evidence=_evidence(node, soft),
            cause=CauseHint(
                key="memlock-low",
                title="{nodes} let{s} sessions lock too little memory for RDMA",
                culprits=(node,),
                fixes=_raise(node, hosts[node], hard, within),
            ),
        )


def _of_the_machine(node: str, soft: int, hard: int | None) -> Finding:
    return warn(
        node,
        f"sessions may lock {size(soft)} of memory (ulimit -l: {soft // 1024}), the limit of the machine"
        " that carries the lab",
        observed=_text(soft, hard),
        expected=EXPECTED,
        expected_from=ExpectedFrom.CONSTANT,
        evidence=_evidence(node, soft),
        cause=CauseHint(
            key="memlock-of-lab-machine",
            title="The machine that carries the lab lets {nodes} lock too little memory for RDMA",
            culprits=(node,),
            fixes=(
                Fix(
                    text="nothing on the nodes; the lab's HCAs are pretended and lock nothing. A lab that is"
                    " started with a higher limit (ulimit -l unlimited) has that one",
                ),
            ),
        ),
    )


def _text(soft: int, hard: int | None) -> str:
    return f"soft {size(soft)}, hard {'unlimited' if hard is None else size(hard)}"


def _evidence(node: str, soft: int) -> tuple[Evidence, ...]:
    return (Evidence(kind="command", where=node, what="ulimit -l", output=str(soft // 1024)),)


def _raise(node: str, host: HostFacts, hard: int | None, within: bool) -> tuple[Fix, ...]:
    value = str(hard // 1024) if within and hard is not None else "unlimited"
    fixes = raise_limit(node, host, "memlock", value, "LimitMEMLOCK=infinity", "memlock=-1", unit_bytes=1024)
    if not within:
        return fixes
    in_job = Fix(
        text="in the job script, where the hard limit allows it (logins stay as they are)",
        commands=(Command(run_on="job", shell="ulimit -l $(ulimit -H -l)"),),
        effect="next launch",
        persistent=False,
    )
    return (in_job, *fixes) if host.container else (fixes[0], in_job)
