"""Which driver a CUDA release needs."""

from netdoctor.nccl_rules import Version

# First driver on Linux x86_64 that runs a toolkit at all ("minor version compatibility"). Newest
# first; holds for toolkits up to 13.2.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
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


def dotted(version: Version) -> str:
    """As NVIDIA writes it: (525, 60, 13) is ``525.60.13`` and (450, 80, 2) is ``450.80.02``."""
    return ".".join([str(version[0]), *(f"{part:02d}" for part in version[1:])])
