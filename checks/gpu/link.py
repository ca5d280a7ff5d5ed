"""NVLinks and PCIe lanes of GPUs of one kind."""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import (
    DERIVED,
    PEERS,
    Action,
    Cause,
    Expected,
    Finding,
    Status,
    look,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.cuda import major

# With so many GPUs of a kind nobody can be called the odd one out.
LEAST_PEERS = 2

DOWN = Cause("gpu-nvlink-down", "GPUs of {nodes} have NVLinks down", action=Action.RESET_GPU)
NONE_UP = Cause("gpu-nvlink-none", "no GPU of {nodes} has an NVLink up", action=Action.RESET_GPU)
SLOW = Cause("gpu-nvlink-slow", "GPUs of {nodes} have a slow NVLink", action=Action.RESET_GPU)
NARROW = Cause(
    "gpu-pcie-narrow",
    "GPUs of {nodes} have fewer PCIe lanes, or slower ones, than others",
    action=Action.DRAIN,
)

# What may be typed of a model: the least of a node's GPUs is held to it.
TYPED = (
    ("gpu.nvlinks", "number of NVLinks up", DOWN),
    ("gpu.pcie-generation", "PCIe generation that GPU and slot can do", NARROW),
    ("gpu.pcie-width", "number of PCIe lanes", NARROW),
)
# Boards that come with wires or switches between them. Others have links only where somebody put a bridge.
WIRED = re.compile(r"SXM|HBM3|\b(H20|H200|GH200|B200|B300|GB200|GB300)\b(?!.*(NVL|PCIe))")
# Those whose way to the processor is another one than PCIe.
GRACE = re.compile(r"\bG[HB]\d+\b")
IDLE = 0x1  # nvmlClocksEventReasonGpuIdle
WAITING = (1, 2)  # nvmlGpuFabricState_t, before it is complete

Place = tuple[str, int]  # node and index of a GPU


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__NvLink.html",
    expects={key: int for key, *_ in TYPED},
)
def gpu_link(gpus: Mapping[str, GpuFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """Every GPU has as many NVLinks up, and as many PCIe lanes, as the others of its kind.

    Looks at:
        NVML's state and speed of each NVLink, whose speed is that of the others of its GPU, and the width and
        the best generation of the PCIe link, of all GPUs of one model in the cluster. What most of them have
        is expected of all: boards of one model are wired in several ways, so no number is right by itself,
        and what all nodes have at one index is how they are built. A GPU without any NVLink up is compared
        inside its node, because bridges between PCIe boards join some of them; a node of which no GPU has one
        is compared with nodes of which all have, and named by itself where its boards are wired to each other
        (SXM). Such boards are held to the PCIe width that GPU and slot can do, and a GPU that is in use to
        the generation: an idle one may lower that.

    Matters because:
        A collective runs at the speed of its slowest GPU. A GPU with a link down, or in a slot that trained
        at half its width, slows every job that uses it, and nothing says so. Where NVSwitches join the GPUs,
        one without NVLink may keep CUDA from starting.

    Fix:
        Look for errors of the link, then reset the GPU or reboot the node; what stays is hardware: the
        board's connector, a bridge, a riser, the slot.
    """
    models: dict[str, dict[Place, Gpu]] = {}
    silent: set[Place] = set()
    for node, facts in gpus.items():
        for device in facts.devices:
            if device.error is None and device.name:
                models.setdefault(device.name, {})[node, device.index] = device
            elif device.error is None:
                silent.add((node, device.index))
    compared: set[str] = set()
    for model, devices in models.items():
        up = {place: d.nvlinks_active for place, d in devices.items() if d.nvlinks_active is not None}
        widths = {place: d.pcie_width for place, d in devices.items() if d.pcie_width}
        generations = {place: d.pcie_generation for place, d in devices.items() if d.pcie_generation}
        free: list[dict[Place, int]] = []
        for values, typed in zip((up, generations, widths), TYPED, strict=True):
            said: Container[str] = ()
            if expect and expect.has(typed[0], model):
                yield from _typed(model, values, expect, *typed)
                said = expect.for_nodes(typed[0], {node for node, _ in values}, model)
            free.append({p: value for p, value in values.items() if p[0] not in said} if said else values)
        yield from _nvlinks(devices, free[0])
        yield from _nodes_without(devices, up)
        yield from _slow(devices)
        below = {place: found for place, one in devices.items() if (found := _below(place[0], one))}
        yield from below.values()
        yield from _pcie({p: d for p, d in devices.items() if p not in below}, free[2], free[1])
        # Not measured, or nothing that most agree on, is not green.
        for values in (up, widths, generations):
            if _usual(list(values.values())) is not None:
                silent |= devices.keys() - values.keys()
                compared.update(node for node, _ in values if values is not generations)
    for node, facts in gpus.items():
        if not facts.devices:
            yield skip("no GPU on this node", node)
        elif node not in compared:
            yield skip("too few GPUs of this kind report their links, or most do not agree", node)
        elif mute := [f"GPU {d.index}" for d in facts.devices if (node, d.index) in silent]:
            yield unknown(
                node, f"NVML tells less of the links of {listing(mute, 4)} than of others of the kind"
            )


def _typed(
    model: str, there: Mapping[Place, int], expect: Expectations, key: str, noun: str, cause: Cause
) -> Iterator[Finding]:
    """Nodes on which a GPU has less than the user expects of this model."""
    least: dict[str, int] = {}
    for (node, _), count in there.items():
        least[node] = min(count, least.get(node, count))
    values = {node: str(count) for node, count in least.items()}
    yield from differing(
        values,
        noun,
        cause,
        key=key,
        expect=expect,
        item=model,
        status=Status.WARN,
        peers=False,
        at_least=True,
    )


def _usual(values: list[int]) -> int | None:
    """What more than half of several have."""
    if len(values) <= LEAST_PEERS:
        return None
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None


def _by_index(values: Mapping[Place, int]) -> dict[int, Counter[int]]:
    """How often each value is there at each index."""
    counts: dict[int, Counter[int]] = {}
    for (_, index), value in values.items():
        counts.setdefault(index, Counter())[value] += 1
    return counts


def _is_odd(
    place: Place, values: Mapping[Place, int], alike: Mapping[int, Counter[int]], usual: int | None
) -> bool:
    """Fewer than usual, and not because all nodes are built so at this index. alike: by _by_index."""
    value = values.get(place)
    if usual is None or value is None or value >= usual:
        return False
    others = alike[place[1]].total() - 1
    return others < LEAST_PEERS or 2 * (alike[place[1]][value] - 1) <= others


def _nvlinks(devices: Mapping[Place, Gpu], up: Mapping[Place, int]) -> Iterator[Finding]:
    if len(set(up.values())) < 2:
        return
    linked = _usual([count for count in up.values() if count])
    beside: dict[str, list[int]] = {}
    for (node, _), count in up.items():
        beside.setdefault(node, []).append(count)
    alike = _by_index(up)
    for (node, index), count in up.items():
        usual = linked if count else _usual(beside[node])
        if _is_odd((node, index), up, alike, usual):
            device = devices[node, index]
            yield (DOWN.warn if count else DOWN.fail)(
                f"GPU {index} has {count} of {device.nvlinks} NVLinks up, its peers {usual}",
                at=node,
                observed=f"{count} NVLinks",
                expected=PEERS(f"{usual} NVLinks, as most {device.name} have"),
                seen=seen(f"NVML, GPU {index}", f"NVLinks up: {count} of {device.nvlinks}{_down(device)}"),
                fixes=look(
                    "see which links are down and what errors they had",
                    f"nvidia-smi nvlink -s -i {index}; nvidia-smi nvlink -e -i {index}",
                ),
            )


def _down(gpu: Gpu) -> str:
    return f"; down: {listing(map(str, gpu.nvlinks_down), 8)}" if gpu.nvlinks_down else ""


def _slow(devices: Mapping[Place, Gpu]) -> Iterator[Finding]:
    """Links that trained at less than the others of their GPU."""
    for (node, index), device in devices.items():
        usual = device.nvlink_mbyte_s or 0
        slow = {link: speed for link, speed in device.nvlinks_other_mbyte_s if speed < usual}
        if slow:
            said = listing((f"NVLink {link} at {speed / 1000:.4g} GB/s" for link, speed in slow.items()), 4)
            yield SLOW.warn(
                f"GPU {index} has {said}, its others at {usual / 1000:.4g}",
                at=node,
                observed=f"{min(slow.values()) / 1000:.4g} GB/s",
                expected=PEERS(f"{usual / 1000:.4g} GB/s, as most NVLinks of this GPU"),
                seen=seen(f"NVML, GPU {index}, speed of its NVLinks", said),
                fixes=look("compare the links", f"nvidia-smi nvlink -s -i {index}"),
            )


def _nodes_without(devices: Mapping[Place, Gpu], up: Mapping[Place, int]) -> Iterator[Finding]:
    """Nodes that lost every NVLink of several GPUs, while other nodes have them on all of this model."""
    nodes: dict[str, dict[int, int | None]] = {}
    for node, index in devices:
        nodes.setdefault(node, {})[index] = up.get((node, index))
    linked = [node for node, counts in nodes.items() if all(counts.values())]
    lost = [n for n, counts in nodes.items() if len(counts) > 1 and all(c == 0 for c in counts.values())]
    usual = max((count or 0 for node in linked for count in nodes[node].values()), default=0)
    for node in lost:
        first = devices[node, min(nodes[node])]
        bridged = not WIRED.search(first.name)
        excused = not first.nvlinks or first.mig_enabled or first.fabric_state in WAITING
        if (bridged and len(linked) <= len(lost)) or (excused and not linked):
            continue
        are = "are down" if first.nvlinks else "do not exist for the driver"
        others = f"; GPUs of {listing(linked, 3)} have {usual} up" if linked else ""
        wanted = PEERS(f"{usual} NVLinks, as every {first.name} of {listing(linked, 3)} has")
        yield (NONE_UP.warn if bridged or not linked else NONE_UP.fail)(
            f"the NVLinks of all {len(nodes[node])} GPUs {are}{others}",
            at=node,
            observed="no NVLink up on any GPU",
            expected=wanted if linked else DERIVED(f"{first.nvlinks} NVLinks, which the board has"),
            seen=seen("NVML, all GPUs", f"NVLinks up: 0 of {first.nvlinks or 0}"),
            fixes=look(
                "see whether Fabric Manager runs and what it says; after its start, reset the GPUs or reboot",
                "systemctl status nvidia-fabricmanager; nvidia-smi nvlink -s; nvidia-smi topo -m",
            ),
        )


def _pcie(
    devices: Mapping[Place, Gpu], widths: Mapping[Place, int], generations: Mapping[Place, int]
) -> Iterator[Finding]:
    if len(set(widths.values())) < 2 and len(set(generations.values())) < 2:
        return
    width, generation = _usual(list(widths.values())), _usual(list(generations.values()))
    usual = f"PCIe {generation or '?'} x{width or '?'}"
    kinds = ((widths, _by_index(widths), width), (generations, _by_index(generations), generation))
    for (node, index), device in devices.items():
        if any(_is_odd((node, index), *kind) for kind in kinds):
            has = f"PCIe {device.pcie_generation or '?'} x{device.pcie_width or '?'}"
            summary = f"GPU {index} is on {has}, its peers on {usual}"
            yield _narrow(node, index, has, summary, PEERS(f"{usual}, as most {device.name} have"))


def _below(node: str, gpu: Gpu) -> Finding | None:
    """A link that is below what GPU and slot can do, where nothing excuses it."""
    width, generation = gpu.pcie_width or 0, gpu.pcie_generation_now or 0
    # Boards in slots may be in one with fewer wires than it says, and POWER9 has four for a V100.
    narrow = 0 < width < (gpu.pcie_width_most or 0)
    if narrow:
        older = (major(gpu.compute_capability) or 0) < 8
        narrow = not (older or not WIRED.search(gpu.name) or GRACE.search(gpu.name))
    at_work = gpu.throttle_reasons is not None and not gpu.throttle_reasons & IDLE and gpu.processes
    if not narrow and not (at_work and 0 < generation < (gpu.pcie_generation or 0)):
        return None
    has = f"PCIe {generation or '?'} x{width or '?'}"
    most = f"PCIe {gpu.pcie_generation or '?'} x{gpu.pcie_width_most or '?'}"
    summary = f"GPU {gpu.index} is on {has}, it and its slot can do {most}"
    return _narrow(node, gpu.index, has, summary, DERIVED(most))


def _narrow(node: str, index: int, has: str, summary: str, expected: Expected) -> Finding:
    return NARROW.warn(
        summary,
        at=node,
        observed=has,
        expected=expected,
        seen=seen(f"NVML, GPU {index}", has),
        fixes=look(
            "compare what the slot and the GPU can do with what they agreed on",
            f"nvidia-smi -i {index} --format=csv --query-gpu="
            "pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max",
        ),
    )
