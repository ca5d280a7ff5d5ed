"""Errors, limits and links of AMD's GPUs, as their driver tells them to everybody."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._amd import Place, alone, among
from netdoctor.checks._words import listing
from netdoctor.facts.accelerators import AcceleratorFacts, AmdGpu
from netdoctor.model import Finding, ok, skip


@check(
    after=["ssh.login", "amd.visible"],
    required=False,
    source="https://docs.kernel.org/gpu/amdgpu/index.html",
)
def amd_health(nodes: Mapping[str, AcceleratorFacts]) -> Iterator[Finding]:
    """AMD GPUs have met no error that they could not correct, and run at full power, clocks and links.

    Looks at:
        amdgpu's files in sysfs, without root: uncorrected errors of each part since the driver was loaded,
        pages of memory that wait for a reset or cannot be taken out of use, temperatures against the driver's
        critical ones, the power limit against its default, the performance level, the PCIe speed of a GPU at
        work; the highest clock that is allowed, PCIe lanes and XGMI links against GPUs of the same device.
        What was corrected, pages taken out of use and PCIe replays are told, and not judged.

    Matters because:
        The process that touches faulty memory is ended, and a collective waits for the slowest GPU.

    Fix:
        Take limits back (amd-smi reset), reset or restart what has met errors, replace what meets them again.
    """
    kinds: dict[str, dict[Place, AmdGpu]] = defaultdict(dict)
    for node, facts in nodes.items():
        driven = [one for one in facts.amd if one.driver == "amdgpu" and not one.asleep]
        for board in driven:
            kinds[board.device_id][node, board.address] = board
            yield from alone(node, board)
        if not driven:
            yield skip(f"no AMD GPU {'at work' if facts.amd else 'on this node'}", node)
        elif not any(one.ras_blocks or one.sensors for one in driven):
            yield skip("the driver tells no errors and no temperatures, as in a virtual machine", node)
        elif told := [f"{one.address}: {words}" for one in driven if (words := _told(one))]:
            yield ok(node, f"not judged: {listing(told, 8)}")
    for boards in kinds.values():
        yield from among(boards)


def _told(board: AmdGpu) -> str:
    corrected, retired = sum(board.corrected.values()), board.bad_pages.get("R")
    parts = (
        f"{corrected} corrected errors" if corrected else "",
        f"{retired} pages taken out of use" if retired else "",
        f"{board.replays} PCIe replays" if board.replays else "",
    )
    return listing(part for part in parts if part)
