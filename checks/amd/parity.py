"""AMD's GPUs and their software, compared across the cluster."""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from netdoctor.check import check
from netdoctor.checks._shared.parity import Property
from netdoctor.checks._shared.text import listing
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.expected import Expectations
from netdoctor.model import Cause, Finding, skip


def _kinds(found: AcceleratorFacts) -> str:
    kinds = list(found.kfd or [board.device_id for board in found.amd])
    return listing([f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds))])


def _of_boards(attribute: str) -> Callable[[AcceleratorFacts], str]:
    return lambda found: listing(sorted({getattr(board, attribute) for board in found.amd} - {""}))


PROPERTIES: tuple[Property[AcceleratorFacts], ...] = tuple(
    Property(key, noun, read, f"{noun}, sysfs and files")
    for key, noun, read in (
        ("amd.gpus", "AMD GPUs", _kinds),
        ("amd.vbios", "VBIOS of AMD GPUs", _of_boards("vbios")),
        ("amd.partition", "partitioning", _of_boards("partition")),
        ("amd.driver", "amdgpu", attrgetter("amdgpu")),
        ("amd.rocm", "ROCm", attrgetter("rocm")),
        ("amd.rccl", "RCCL", attrgetter("rccl")),
    )
)


@check(
    after=["ssh.login", "amd.visible"],
    required=False,
    source="https://rocm.docs.amd.com/en/latest/compatibility/compatibility-matrix.html",
    expects={row.key: str for row in PROPERTIES},
)
def amd_parity(
    nodes: Mapping[str, AcceleratorFacts], expect: Expectations | None = None
) -> Iterator[Finding]:
    """Nodes with AMD GPUs have the same GPUs, driver, ROCm and RCCL.

    Looks at:
        Number and architecture of the GPUs that the driver offers for compute, VBIOS and partitioning of
        the boards, the versions of the amdgpu module (the kernel's own has none), of /opt/rocm and of
        librccl. Nodes without AMD GPUs, and what a node does not have, are left out.

    Matters because:
        A node with fewer or other GPUs starts fewer ranks, or slower ones. If the job uses the system's
        ROCm and RCCL, two releases do not understand each other's messages.

    Fix:
        Give the odd node what the others have.
    """
    having = {node: facts for node, facts in nodes.items() if facts.amd}
    if not having:
        yield skip("no AMD GPU on any node")
        return
    for row in PROPERTIES:
        # What a node does not have is no difference.
        values = {node: value for node, value in row.values(having).items() if value}
        verb = "differ" if row.noun.endswith("s") else "differs"
        cause = Cause(row.key.replace(".", "-"), f"{row.noun} {verb} between {{nodes}}")
        yield from row.differing(values, cause, expect, report_equal=len(values) == len(having))
