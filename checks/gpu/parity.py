"""Firmware, modes and power limits of GPUs of one model."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._limits import corrupt, set_lower
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import Cause, Finding, Fix, Status, run, skip

MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
RESET = "  # needs a reset of the GPUs"


def _inforom(said: tuple[bool | None, str]) -> str:
    """Its version, where it is known whether that can be trusted."""
    valid, version = said
    return "" if valid is None else version


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


# What is compared: its key and its kind, its word, how it is read and put into words, and the command that
# sets it. Read by C of each GPU there is, and put into words once for what is alike.
PROPERTIES: tuple[tuple[str, type, str, Callable[[Gpu], Any], Callable[[Any], str | None], str], ...] = (
    ("gpu.vbios", str, "VBIOS", attrgetter("vbios"), lambda text: text, ""),
    ("gpu.inforom", str, "InfoROM", attrgetter("inforom_valid", "inforom"), _inforom, ""),
    ("gpu.ecc", bool, "ECC mode", attrgetter("ecc_enabled"), _switch, "nvidia-smi -e {}" + RESET),
    ("gpu.mig", bool, "MIG mode", attrgetter("mig_enabled"), _switch, "nvidia-smi -mig {}" + RESET),
    ("gpu.persistence", bool, "persistence mode", attrgetter("persistence"), _switch, "nvidia-smi -pm {}"),
    ("gpu.compute-mode", str, "compute mode", attrgetter("compute_mode"), MODES.get, ""),
)


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    expects={key: kind for key, kind, *_ in PROPERTIES},
)
def gpu_parity(gpus: Mapping[str, GpuFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """GPUs of one model have the same firmware, the same modes, and their full power.

    Looks at:
        VBIOS, InfoROM, ECC, MIG, persistence and compute mode of all GPUs of one model in the cluster; if
        the checksums of each InfoROM fit; power limits and application clocks against their own defaults.
        NVML does not tell of clocks that were locked (nvidia-smi -lgc): those show under load (`gpu.work`).

    Matters because:
        The odd one is the slow one, or the one that fails: MIG hides the GPU from NCCL, ECC takes memory, an
        exclusive mode refuses a second process, a power limit holds clocks down. The InfoROM has the board's
        configuration and its history of errors: with a corrupt one neither can be trusted.

    Fix:
        Bring the odd node to the mode of the others; firmware comes with the board's or the system's updates.
    """
    models: dict[str, dict[str, list[Gpu]]] = defaultdict(lambda: defaultdict(list))
    for node, facts in gpus.items():
        for device in facts.devices:
            if device.error is None and device.name:
                models[device.name][node].append(device)
    if not models:
        yield skip("no GPU on any node")
    for model, nodes in models.items():
        named: set[str | None] = set()  # another VBIOS brings its own InfoROM
        for key, _, word, read, put, command in PROPERTIES:
            read_of = {node: set(map(read, devices)) for node, devices in nodes.items()}
            said = {node: {put(one) or "" for one in values} for node, values in read_of.items()}
            # Boards and drivers that do not know the property say nothing on all nodes.
            asked = expect is not None and expect.has(key, model)
            if not asked and not any(values - {""} for values in said.values()):
                continue
            if key == "gpu.inforom" and not asked:
                said = {node: values for node, values in said.items() if node not in named}
            told = {node: None if "" in values else listing(sorted(values)) for node, values in said.items()}

            def fix(node: str, wanted: str, command: str = command) -> tuple[Fix, ...]:
                shell = command.format("1" if wanted == "on" else "0") if wanted in ("on", "off") else ""
                return (run(f"switch it {wanted}", shell, root=True, risk="medium"),) if shell else ()

            cause = Cause(f"gpu-parity-{word.split()[0].lower()}", f"{word} differs between {{nodes}}")
            like: dict[str, Any] = {"key": key, "expect": expect, "item": model, "status": Status.WARN}
            for found in differing(told, f"{word} of {model}", cause, fixes=fix, **like):
                named.add(found.target if key == "gpu.vbios" else None)
                yield found
        for node, devices in nodes.items():
            for one in devices:
                yield from set_lower(node, one)
                yield from corrupt(node, one)
