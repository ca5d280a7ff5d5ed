"""NVLinks and PCIe lanes of GPUs of one kind."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.majority import of_most
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import nvml_finding
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import (
    CONSTANT,
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
OFF = Cause("gpu-nvlink-off", "the driver of {nodes} was loaded with NVLink switched off")
SLOW = Cause("gpu-nvlink-slow", "GPUs of {nodes} have a slow NVLink", action=Action.RESET_GPU)
NARROW = Cause(
    "gpu-pcie-narrow",
    "GPUs of {nodes} have fewer PCIe lanes, or slower ones, than others",
    action=Action.DRAIN,
)

# What may be expected of a model: the least of a node's GPUs is compared with it.
EXPECTED = (
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

GpuId = tuple[str, int]  # node and index of a GPU


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__NvLink.html",
    expects={key: int for key, *_ in EXPECTED},
)
def gpu_link(gpus: Mapping[str, GpuFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """Every GPU has as many NVLinks up, and as many PCIe lanes, as the others of its kind.

    Looks at:
        NVML's state and speed of each NVLink, and width and best generation of the PCIe link, of all GPUs
        of one model in the cluster. Boards of one model are wired in several ways, so no number is right
        by itself: what most of them have is expected. What all nodes have at one index is taken as the
        design, and an NVLink's speed is compared with the others of its GPU. A GPU without any NVLink up
        is compared inside its node, because bridges between PCIe boards join some GPUs only. A node with
        no NVLink at all is compared with nodes where all GPUs have one, and is named alone if its boards
        are wired to each other (SXM). For SXM boards the PCIe width must be what GPU and slot can do; the
        generation only while the GPU is in use, because an idle one may lower it.

    Matters because:
        A collective runs at the speed of its slowest GPU. A GPU with a link down, or in a slot with half
        the lanes, slows down every job that uses it, and nothing reports it. Where NVSwitches join the
        GPUs, one GPU without NVLink may keep CUDA from starting.

    Fix:
        Look for errors of the link, then reset the GPU or reboot the node. If it stays, it is hardware:
        the board's connector, a bridge, a riser, the slot.
    """
    models: dict[str, dict[GpuId, Gpu]] = defaultdict(dict)
    silent: set[GpuId] = set()
    for node, facts in gpus.items():
        for device in facts.devices:
            if device.error is None and device.name:
                models[device.name][node, device.index] = device
            elif device.error is None:
                silent.add((node, device.index))
    off = {found.target: found for node, facts in gpus.items() for found in _switched_off(node, facts)}
    yield from off.values()
    compared: set[str] = set()
    for model, devices in models.items():
        up = {gpu_id: d.nvlinks_active for gpu_id, d in devices.items() if d.nvlinks_active is not None}
        widths = {gpu_id: d.pcie_width for gpu_id, d in devices.items() if d.pcie_width}
        generations = {gpu_id: d.pcie_generation for gpu_id, d in devices.items() if d.pcie_generation}
        free: list[dict[GpuId, int]] = []
        for values, row in zip((up, generations, widths), EXPECTED, strict=True):
            expected: Container[str] = ()
            if expect and expect.has(row[0], model):
                yield from _unlike_expected(model, values, expect, *row)
                expected = expect.for_nodes(row[0], {node for node, _ in values}, model)
            free.append({gpu_id: value for gpu_id, value in values.items() if gpu_id[0] not in expected})
        yield from _nvlinks(devices, free[0])
        yield from _nodes_without(devices, {one: count for one, count in up.items() if one[0] not in off})
        yield from _slow(devices)
        below = {gpu_id: found for gpu_id, one in devices.items() if (found := _below(gpu_id[0], one))}
        yield from below.values()
        yield from _pcie(
            {gpu_id: d for gpu_id, d in devices.items() if gpu_id not in below}, free[2], free[1]
        )
        # Not measured, or nothing that most agree on, is not green.
        for values in (up, widths, generations):
            if _typical(values.values()) is not None:
                silent |= devices.keys() - values.keys()
                compared.update(node for node, _ in values if values is not generations)
    for node, facts in gpus.items():
        if not facts.devices:
            yield skip("no GPU on this node", node)
        elif node not in compared:
            yield skip("too few GPUs of this kind report their links, or most do not agree", node)
        elif mute := [f"GPU {d.index}" for d in facts.devices if (node, d.index) in silent]:
            words = f"NVML reports less about the links of {listing(mute, 4)} than about others of the kind"
            yield unknown(node, words)


def _unlike_expected(
    model: str, counts: Mapping[GpuId, int], expect: Expectations, key: str, noun: str, cause: Cause
) -> Iterator[Finding]:
    """Nodes on which a GPU has less than the user expects of this model."""
    least: dict[str, int] = {}
    for (node, _), count in counts.items():
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


def _typical(values: Iterable[int]) -> int | None:
    """What more than half of several have."""
    known = list(values)
    return of_most(known) if len(known) > LEAST_PEERS else None


def _low(values: Mapping[GpuId, int], typical: Callable[[GpuId], int | None]) -> dict[GpuId, int]:
    """GPUs that have less than is typical of them, and what is, but not where all nodes are built so."""
    at_index: dict[int, Counter[int]] = defaultdict(Counter)
    for (_, index), value in values.items():
        at_index[index][value] += 1
    totals = {index: counts.total() for index, counts in at_index.items()}
    found = {}
    for gpu_id, value in values.items():
        same = at_index[gpu_id[1]]
        others, equal = totals[gpu_id[1]] - 1, same[value] - 1
        right = typical(gpu_id)
        if right is not None and value < right and (others < LEAST_PEERS or 2 * equal <= others):
            found[gpu_id] = right
    return found


def _nvlinks(devices: Mapping[GpuId, Gpu], up: Mapping[GpuId, int]) -> Iterator[Finding]:
    linked = _typical(count for count in up.values() if count)
    on_node: dict[str, list[int]] = defaultdict(list)
    for (node, _), count in up.items():
        on_node[node].append(count)
    for gpu_id, typical in _low(up, lambda one: linked if up[one] else _typical(on_node[one[0]])).items():
        device, count = devices[gpu_id], up[gpu_id]
        have, down = f"{count} of {device.nvlinks}", listing(map(str, device.nvlinks_down), 8)
        yield nvml_finding(
            DOWN.warn if count else DOWN.fail, device, f"has {have} NVLinks up, its peers {typical}",
            "", f"{count} NVLinks", PEERS(f"{typical} NVLinks, as most {device.name} have"), at=gpu_id[0],
            output=f"NVLinks up: {have}{f'; down: {down}' if down else ''}",
            fixes=look(
                "see which links are down and what errors they had",
                f"nvidia-smi nvlink -s -i {device.index}; nvidia-smi nvlink -e -i {device.index}",
            ),
        )  # fmt: skip


def _slow(devices: Mapping[GpuId, Gpu]) -> Iterator[Finding]:
    """Links that trained at less than the others of their GPU."""
    for (node, index), device in devices.items():
        typical = device.nvlink_mbyte_s or 0
        slow = {link: speed for link, speed in device.nvlinks_other_mbyte_s if speed < typical}
        if slow:
            links = listing((f"NVLink {link} at {speed / 1000:.4g} GB/s" for link, speed in slow.items()), 4)
            rate = f"{typical / 1000:.4g}"
            yield nvml_finding(
                SLOW.warn, device, f"has {links}, its others at {rate}", "speed of its NVLinks",
                f"{min(slow.values()) / 1000:.4g} GB/s",
                PEERS(f"{rate} GB/s, as most NVLinks of this GPU"), at=node, output=links,
                fixes=look("compare the links", f"nvidia-smi nvlink -s -i {index}"),
            )  # fmt: skip


def _switched_off(node: str, facts: GpuFacts) -> Iterator[Finding]:
    wired = [device for device in facts.devices if WIRED.search(device.name)]
    if facts.nvlink_disabled and len(wired) > 1:
        yield OFF.warn(
            f"{len(wired)} GPUs that NVLink should join, and the driver was loaded with NvLinkDisable=1",
            at=node,
            observed="NvLinkDisable: 1",
            expected=CONSTANT("0, the driver's default"),
            seen=seen("/proc/driver/nvidia/params", "NvLinkDisable: 1", "file"),
            fixes=look(
                "see which file sets it; removing it there needs a restart (in a virtual machine without "
                "NVSwitches it is on purpose)",
                "grep -rns NvLinkDisable /etc/modprobe.d /usr/lib/modprobe.d /proc/cmdline",
            ),
        )


def _nodes_without(devices: Mapping[GpuId, Gpu], up: Mapping[GpuId, int]) -> Iterator[Finding]:
    """Nodes that lost every NVLink of several GPUs, while other nodes have them on all of this model."""
    nodes: dict[str, dict[int, int | None]] = defaultdict(dict)
    for node, index in devices:
        nodes[node][index] = up.get((node, index))
    linked = [node for node, counts in nodes.items() if all(counts.values())]
    lost = [n for n, counts in nodes.items() if len(counts) > 1 and all(c == 0 for c in counts.values())]
    typical = max((count or 0 for node in linked for count in nodes[node].values()), default=0)
    for node in lost:
        first = devices[node, min(nodes[node])]
        bridged = not WIRED.search(first.name)
        excused = not first.nvlinks or first.mig_enabled or first.fabric_state in WAITING
        if (bridged and len(linked) <= len(lost)) or (excused and not linked):
            continue
        are = "are down" if first.nvlinks else "do not exist for the driver"
        others = f"; GPUs of {listing(linked, 3)} have {typical} up" if linked else ""
        expected = PEERS(f"{typical} NVLinks, as every {first.name} of {listing(linked, 3)} has")
        yield (NONE_UP.warn if bridged or not linked else NONE_UP.fail)(
            f"the NVLinks of all {len(nodes[node])} GPUs {are}{others}",
            at=node,
            observed="no NVLink up on any GPU",
            expected=expected if linked else DERIVED(f"{first.nvlinks} NVLinks, which the board has"),
            seen=seen("NVML, all GPUs", f"NVLinks up: 0 of {first.nvlinks or 0}"),
            fixes=look(
                "see whether Fabric Manager runs and what it says; after its start, reset the GPUs or reboot",
                "systemctl status nvidia-fabricmanager; nvidia-smi nvlink -s; nvidia-smi topo -m",
            ),
        )


def _pcie(
    devices: Mapping[GpuId, Gpu], widths: Mapping[GpuId, int], generations: Mapping[GpuId, int]
) -> Iterator[Finding]:
    width, generation = _typical(widths.values()), _typical(generations.values())
    typical = f"PCIe {generation or '?'} x{width or '?'}"
    low = {**_low(widths, lambda _: width), **_low(generations, lambda _: generation)}
    for (node, index), device in devices.items():
        if (node, index) in low:
            has = f"PCIe {device.pcie_generation or '?'} x{device.pcie_width or '?'}"
            expected = PEERS(f"{typical}, as most {device.name} have")
            yield _narrow(node, device, has, f"its peers on {typical}", expected)


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
    best = f"PCIe {gpu.pcie_generation or '?'} x{gpu.pcie_width_most or '?'}"
    return _narrow(node, gpu, has, f"it and its slot can do {best}", DERIVED(best))


def _narrow(node: str, gpu: Gpu, has: str, against: str, expected: Expected) -> Finding:
    shell = (
        f"nvidia-smi -i {gpu.index} --format=csv --query-gpu="
        "pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"
    )
    see = look("compare what the slot and the GPU can do with what they agreed on", shell)
    return nvml_finding(NARROW.warn, gpu, f"is on {has}, {against}", "", has, expected, at=node, fixes=see)
