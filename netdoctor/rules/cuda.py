"""What CUDA decides: which GPUs a process sees, which driver a release needs, whether a GPU is at work."""

import re
from collections.abc import Collection

from netdoctor.facts.gpu import Gpu, GpuProcess
from netdoctor.rules.versions import Version, parse_version

# First driver on Linux x86_64 that runs a toolkit at all ("minor version compatibility"). Newest first; holds
# for toolkits up to 13.2. https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
MINIMUM: tuple[tuple[Version, Version], ...] = (
    ((13, 0), (580,)),
    ((12, 0), (525, 60, 13)),
    ((11, 1), (450, 80, 2)),
    ((11, 0), (450, 36, 6)),
    ((10, 2), (440, 33)),
    ((10, 1), (418, 39)),
    ((10, 0), (410, 48)),
    ((9, 2), (396, 26)),
    ((9, 1), (390, 46)),
    ((9, 0), (384, 81)),
)
# GPU families that need a newer driver than the toolkit does, by compute capability: the CUDA
# release notes that introduced them (11.8 for Hopper, 12.8 for Blackwell).
FAMILIES: tuple[tuple[int, str, Version], ...] = (
    (9, "Hopper", (520, 61, 5)),
    (10, "Blackwell", (570,)),
    (12, "Blackwell", (570,)),
)


def minimum_driver(cuda: Version) -> Version | None:
    """First driver that runs programs built for `cuda`, (12, 4); None for toolkits before 9.0."""
    for toolkit, driver in MINIMUM:
        if cuda[:2] >= toolkit:
            return driver
    return None


def major(text: str | None) -> int | None:
    """12 of CUDA ``12.4``, 9 of compute capability ``9.0``; None where there are no numbers."""
    version = parse_version(text)
    return version[0] if version else None


def needed_by_gpus(driver: Version, capabilities: Collection[str | None]) -> tuple[str, Version] | None:
    """The first family of `capabilities`, ``9.0``, that `driver` is too old for, and the driver it needs."""
    present = {major(capability) for capability in capabilities}
    older = ((name, least) for family, name, least in FAMILIES if family in present and driver < least)
    return next(older, None)


def suits_every_gpu(driver: Version) -> bool:
    """Whether no family needs a newer driver."""
    return all(driver >= least for _, _, least in FAMILIES)


def has_compat(cuda: Version, offered: Version | None) -> bool:
    """Whether cuda-compat stands in for the libcuda of a driver that is too old for `cuda`: libcuda offers a
    release that such a driver cannot have by itself."""
    return offered is not None and offered[:2] >= cuda[:2]


def dotted(version: Version) -> str:
    """As NVIDIA writes it: (525, 60, 13) is ``525.60.13`` and (450, 80, 2) is ``450.80.02``."""
    return ".".join([str(version[0]), *(f"{part:02d}" for part in version[1:])])


# Display servers, monitors and the server of MPS (its clients are listed by themselves) hold small contexts
# on GPUs without being in a job's way. The kernel cuts names after 15 characters: nvidia-persistenced.
HARMLESS = (
    "Xorg", "Xwayland", "gnome-shell", "nvidia-persiste", "nv-hostengine", "dcgm", "nvidia-cuda-mps",
)  # fmt: skip
# The driver reserves memory by itself, up to about 1.1 GiB per GPU on the largest boards.
FOREIGN_BYTES = 2048 * 1024 * 1024


def visible(text: str, devices: int) -> list[str]:
    """The entries of CUDA_VISIBLE_DEVICES that count: the list ends at its first invalid or repeated one
    (CUDA C++ Programming Guide, environment variables); an empty value leaves none."""
    entries: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        is_index = re.fullmatch(r"[0-9]{1,4}", item) is not None
        if is_index and int(item) >= devices:
            break
        if item in entries or not (is_index or item.startswith(("GPU-", "MIG-"))):
            break
        entries.append(item)
    return entries


def unseen_bytes(device: Gpu) -> int:
    """Memory that no process accounts for, as when another container's holds it; 0 up to what the driver may
    keep for itself."""
    accounted = sum(process.memory_bytes or 0 for process in device.processes or ())
    beyond = (device.memory_used_bytes or 0) - accounted
    return beyond if beyond > FOREIGN_BYTES else 0


def is_harmless(process: GpuProcess) -> bool:
    name = (process.name or "").rsplit("/", 1)[-1]
    return name.startswith(HARMLESS)


# Which builds have code for GPUs that most have not, by compute capability: from a release of CUDA on, or up
# to one. https://github.com/pytorch/pytorch/blob/main/RELEASE.md, PyTorch CUDA Support Matrix
BUILDS: tuple[tuple[Version, Version, str], ...] = (
    ((5,), (7, 5), "a build for CUDA 12.6 or older: those for CUDA 13 begin with compute capability 7.5"),
    ((9,), (10,), "torch 2.0 or newer, built for CUDA 11.8 or newer"),
    ((10,), (99,), "torch 2.7 or newer, built for CUDA 12.8 or newer"),
)
# GPUs before Ampere have no bfloat16 in their matrix units: torch computes with it all the same, slower.
BF16 = (8, 0)
_ARCH = re.compile(r"(sm|compute)_(\d{1,2})(\d)([af]?)")


def code_for(archs: Collection[str], capability: Version) -> str:
    """How programs built for these, ``sm_90`` and ``compute_90``, run on a GPU of `capability`: ``binary``,
    ``ptx`` (compiled when it starts), or not at all, the empty text.

    A binary runs on the same major capability from its minor one on, PTX on every later one; code for one
    architecture (``sm_90a``) on no other, that of a family (``sm_100f``) within it.
    https://docs.nvidia.com/cuda/ada-compatibility-guide
    """
    found = ""
    for arch in archs:
        parts = _ARCH.fullmatch(arch)
        if parts is None:
            continue
        arch_version = (int(parts[2]), int(parts[3]))
        if parts[4] == "a":
            fits = arch_version == capability[:2]
        elif parts[1] == "sm" or parts[4]:
            fits = arch_version[0] == capability[0] and arch_version <= capability[:2]
        else:
            fits = arch_version <= capability[:2]
        if fits and parts[1] == "sm":
            return "binary"
        found = "ptx" if fits else found
    return found


def build_with(capability: Version) -> str:
    """Which builds of torch have code for such a GPU; empty where most have."""
    return next((words for low, high, words in BUILDS if low <= capability < high), "")
