"""AMD's GPUs and their software, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.expected import Expectations
from netdoctor.model import Cause, Finding, Status, seen, skip

# What is compared: its word, the key under which it may be expected, how it is read. What no node tells is no
# difference.
PROPERTIES = (
    ("AMD GPUs", "amd.gpus", lambda one: _counted(one.kfd or [b.device_id for b in one.amd])),
    ("VBIOS of AMD GPUs", "amd.vbios", lambda one: _each([board.vbios for board in one.amd])),
    ("partitioning", "amd.partition", lambda one: _each([board.partition for board in one.amd])),
    ("amdgpu", "amd.driver", lambda one: one.amdgpu),
    ("ROCm", "amd.rocm", lambda one: one.rocm),
    ("RCCL", "amd.rccl", lambda one: one.rccl),
)


@check(
    after=["ssh.login", "amd.visible"],
    required=False,
    source="https://rocm.docs.amd.com/en/latest/compatibility/compatibility-matrix.html",
    expects={key: str for _, key, _ in PROPERTIES},
)
def amd_parity(
    nodes: Mapping[str, AcceleratorFacts], expect: Expectations | None = None
) -> Iterator[Finding]:
    """Nodes with AMD GPUs have the same GPUs, driver, ROCm and RCCL.

    Looks at:
        Number and architecture of the GPUs that the driver offers for computing, the VBIOS and partitioning
        of the boards, the version of amdgpu's module (the kernel's own has none), of /opt/rocm, and of
        librccl. Nodes without AMD GPUs, and what a node does not have, are left out.

    Matters because:
        A node with fewer or other GPUs starts fewer ranks, or slower ones; ROCm and RCCL of two releases
        disagree about what ranks say to each other, where the job uses those of the system.

    Fix:
        Bring the odd node to what the others have.
    """
    having = {node: facts for node, facts in nodes.items() if facts.amd}
    if not having:
        yield skip("no AMD GPU on any node")
        return
    for word, key, read in PROPERTIES:
        told = {node: value for node, facts in having.items() if (value := read(facts))}
        verb = "differ" if word[-1] == "s" else "differs"
        yield from differing(
            told,
            word,
            Cause(key.replace(".", "-"), f"{word} {verb} between {{nodes}}"),
            key=key,
            expect=expect,
            status=Status.WARN,
            report_equal=len(told) == len(having),
            evidence_of=lambda node, told=told, word=word: seen(
                f"{word}, sysfs and files", told[node], "file"
            ),  # type: ignore[misc]
        )


def _counted(kinds: list[str] | tuple[str, ...]) -> str:
    return listing([f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds))])


def _each(values: list[str]) -> str | None:
    return listing(sorted(set(values) - {""})) or None
