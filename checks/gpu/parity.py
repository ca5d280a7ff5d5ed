"""Firmware, modes and power limits of GPUs of one model."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from netdoctor.check import check
from netdoctor.checks._shared.parity import Property
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import nvml_finding
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import DERIVED, Action, Cause, Finding, Fix, look, run, skip

CAPPED = Cause("gpu-power-capped", "GPUs of {nodes} have a power limit below the default")
SLOWER = Cause("gpu-clocks-set", "GPUs of {nodes} have clocks below the default")
CORRUPT = Cause("gpu-inforom-corrupt", "{nodes} {has} a GPU with a corrupt InfoROM", action=Action.REPLACE)
STATES = {None: "", True: "on", False: "off"}
MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
REPLACE = "have it written again, or the board replaced"
RESET = "  # needs a reset of the GPUs"


def _mode(attribute: str) -> Callable[[Gpu], str]:
    return lambda gpu: STATES[getattr(gpu, attribute)]


def _switch(command: str) -> Callable[[str], tuple[Fix, ...]]:
    """Set a mode as on the other nodes; nothing where those are mixed. command: ``{}`` is 1 or 0."""

    def fix(mode: str) -> tuple[Fix, ...]:
        if mode not in ("on", "off"):
            return ()
        return (run(f"switch it {mode}", command.format(int(mode == "on")), root=True, risk="medium"),)

    return fix


# InfoROM: where it is known whether it can be trusted. Those with a fix are on or off.
PROPERTIES: tuple[Property[Gpu], ...] = (
    Property("gpu.vbios", "VBIOS", attrgetter("vbios")),
    Property("gpu.inforom", "InfoROM", lambda gpu: "" if gpu.inforom_valid is None else gpu.inforom),
    Property("gpu.ecc", "ECC mode", _mode("ecc_enabled"), fix=_switch(f"nvidia-smi -e {{}}{RESET}")),
    Property("gpu.mig", "MIG mode", _mode("mig_enabled"), fix=_switch(f"nvidia-smi -mig {{}}{RESET}")),
    Property("gpu.persistence", "persistence mode", _mode("persistence"), fix=_switch("nvidia-smi -pm {}")),
    Property("gpu.compute-mode", "compute mode", lambda gpu: MODES.get(gpu.compute_mode)),  # type: ignore[arg-type]
)
# What may be set below its default: what it is, its unit, how it and its default are read, nvidia-smi's
# section, and the flag that takes it back.
DEFAULTS: tuple[tuple[Cause, str, str, Callable[[Gpu], tuple[float, float]], str, str], ...] = (
    (CAPPED, "power", "W", lambda gpu: (gpu.power_limit_w or 0, gpu.power_default_w or 0), "POWER", "-pl"),
    (SLOWER, "graphics clock", "MHz", lambda gpu: _clocks(gpu, 0), "CLOCK", "-rac"),
    (SLOWER, "memory clock", "MHz", lambda gpu: _clocks(gpu, 1), "CLOCK", "-rac"),
)


def _clocks(gpu: Gpu, index: int) -> tuple[float, float]:
    """Application clock as set, and its default: 0 graphics, 1 memory."""
    now, default = gpu.clocks_set_mhz, gpu.clocks_default_mhz
    return (now[index], default[index]) if now and default else (0, 0)


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    expects={row.key: bool if row.fix else str for row in PROPERTIES},
)
def gpu_parity(gpus: Mapping[str, GpuFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """GPUs of one model have the same firmware, the same modes, and their full power.

    Looks at:
        VBIOS, InfoROM, ECC, MIG, persistence and compute mode of all GPUs of one model in the cluster.
        Whether the checksums of each InfoROM are right. Power limits and application clocks, compared
        with their own defaults. NVML does not report locked clocks (nvidia-smi -lgc): those show under
        load (`gpu.work`).

    Matters because:
        The GPU that differs is the slow one, or the one that fails. MIG hides the GPU from NCCL, ECC
        takes memory, an exclusive mode refuses a second process, a power limit lowers the clocks. The
        InfoROM has the board's configuration and error history; if it is corrupt, neither can be trusted.

    Fix:
        Set the mode of the others on the odd node. Firmware comes with updates of the board or the
        system.
    """
    models: dict[str, dict[str, list[Gpu]]] = defaultdict(lambda: defaultdict(list))
    for node, facts in gpus.items():
        for device in facts.devices:
            if device.error is None and device.name:
                models[device.name][node].append(device)
    if not models:
        yield skip("no GPU on any node")
    for model, nodes in models.items():
        vbios_differs: set[str] = set()
        for row in PROPERTIES:
            texts = {node: {str(row.read(one) or "") for one in devices} for node, devices in nodes.items()}
            is_expected = expect is not None and expect.has(row.key, model)
            # Boards and drivers that do not know the property say nothing on all nodes.
            if not is_expected and not any(found - {""} for found in texts.values()):
                continue
            # Another VBIOS brings its own InfoROM.
            if row.key == "gpu.inforom" and not is_expected:
                texts = {node: found for node, found in texts.items() if node not in vbios_differs}
            values = {node: None if "" in found else listing(sorted(found)) for node, found in texts.items()}
            cause = Cause(
                f"gpu-parity-{row.noun.split()[0].lower()}", f"{row.noun} differs between {{nodes}}"
            )
            for finding in row.differing(values, cause, expect, noun=f"{row.noun} of {model}", item=model):
                if row.key == "gpu.vbios":
                    vbios_differs.add(finding.target)
                yield finding
        for node, devices in nodes.items():
            for one in devices:
                yield from _set_lower(node, one)
                if one.inforom_valid is False:
                    yield nvml_finding(
                        CORRUPT.warn, one, "has an InfoROM with wrong checksums",
                        "validation of the InfoROM", "corrupt", "right checksums", at=node,
                        output=f"corrupt, {one.inforom}",
                        fixes=look(REPLACE, f"nvidia-smi -q -i {one.index}"),
                    )  # fmt: skip


def _set_lower(node: str, gpu: Gpu) -> Iterator[Finding]:
    """What somebody has set below the GPU's default."""
    for cause, what, unit, read, section, flag in DEFAULTS:
        now, default = read(gpu)
        if 0 < now < default:
            value, normal = f"{now:g} {unit}", f"{default:g} {unit}"
            yield nvml_finding(
                cause.warn, gpu, f"is limited to {value} ({what}), its default is {normal}",
                f"limit of its {what}", value, DERIVED(normal), at=node,
                fixes=look(
                    f"ask who has set it; nvidia-smi {flag} resets it",
                    f"nvidia-smi -q -d {section} -i {gpu.index}",
                ),
            )  # fmt: skip
