"""Size of /dev/shm."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.host import HostFacts, LimitFacts, Node
from netdoctor.model import CauseHint, Command, Evidence, ExpectedFrom, Finding, Fix, fail, warn

MIB = 1024 * 1024
# NCCL's SHM transport and DataLoader workers live here; container engines give 64 MB unless asked.
# Below 64 MiB + one segment init fails with ENOSPC; 1 GiB is the usual advice (docker --shm-size=1g).
LEAST_BYTES = 128 * MIB
ADVISED_BYTES = 1024 * MIB


@check(
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
)
def host_shm(node: Node, host: HostFacts, limits: LimitFacts) -> Iterator[Finding]:
    """/dev/shm is large enough for NCCL and data loaders.

    Looks at:
        Size and free space of the file system at /dev/shm (statvfs), and whether it can be written.

    Matters because:
        NCCL's shared-memory transport and PyTorch's DataLoader workers put segments there. Containers get
        64 MB by default; NCCL then ends with "No space left on device" or, in releases 2.16 to 2.18, SIGBUS.

    Fix:
        On a machine remount it larger; in a container start it with ``--shm-size`` or ``--ipc=host``.
    """
    shm = limits.shm
    evidence = (Evidence(kind="file", where=node.id, what="statvfs /dev/shm", output=_size(shm.free_bytes)),)
    if shm.error or not shm.writable:
        yield fail(
            node.id,
            f"/dev/shm cannot be used: {shm.error or 'not writable'}",
            expected="a writable tmpfs",
            expected_from=ExpectedFrom.CONSTANT,
            evidence=evidence,
            cause=CauseHint(
                key="shm-unusable",
                title="/dev/shm cannot be used on {nodes}",
                culprits=(node.id,),
                fixes=(_fix(node.id, host),),
            ),
        )
        return
    if shm.free_bytes >= ADVISED_BYTES:
        return
    finding = fail if shm.free_bytes < LEAST_BYTES else warn
    yield finding(
        node.id,
        f"/dev/shm has {_size(shm.free_bytes)} free of {_size(shm.total_bytes)}",
        observed=_size(shm.free_bytes),
        expected=f"at least {_size(ADVISED_BYTES)}",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=evidence,
        cause=CauseHint(
            key="shm-small",
            title="/dev/shm is too small on {nodes}",
            culprits=(node.id,),
            fixes=(_fix(node.id, host),),
        ),
    )


def _fix(node: str, host: HostFacts) -> Fix:
    if host.container:
        return Fix(
            text=f"start the {host.container} container with a larger shared memory, or the host's",
            commands=(Command(run_on="job", shell="docker run --shm-size=16g ...   # or --ipc=host"),),
            effect="next launch",
            persistent=False,
        )
    size = max(ADVISED_BYTES, host.memory_total_bytes // 2)
    return Fix(
        text="enlarge it to half of the memory, the kernel's own default",
        commands=(Command(run_on=node, shell=f"mount -o remount,size={size // MIB}M /dev/shm"),),
        root=True,
        persistent=False,
    )


def _size(value: int) -> str:
    return f"{value / (1024 * MIB):.1f} GiB" if value >= 1024 * MIB else f"{value / MIB:.0f} MiB"
