"""What happens where torch finds other libraries than its release pins (Requires-Dist of its wheel)."""

from dataclasses import dataclass

from netdoctor.rules.packages import requirement
from netdoctor.rules.versions import Version, at_least, parse_version


@dataclass(frozen=True, slots=True)
class Pinned:
    """Distributions that begin with `name`."""

    name: str
    older: str  # what an older release than the pinned one does
    source: str
    ends: bool = False  # whether a job ends of it
    newer: bool = False  # whether a newer release is trouble as well
    since: Version = (1, 0)  # of torch


# The first that fits counts. NVIDIA's libraries stay compatible within a major release, and newer NCCLs are
# put in on purpose: only what is older than the one that torch was linked against is told.
PINNED = (
    Pinned(
        "nvidia-cudnn-cu",
        'torch ends with "cuDNN version incompatibility" at its first convolution or attention',
        "https://github.com/pytorch/pytorch/blob/v2.6.0/torch/backends/cudnn/__init__.py",
        ends=True,
    ),
    Pinned(
        "nvidia-nccl-cu",
        'it may lack what torch calls ("undefined symbol: ncclCommRegister") or what it was tested with',
        "https://github.com/pytorch/pytorch/issues/119932",
        since=(2, 1),
    ),
    Pinned(
        "nvidia-",
        "it may lack what torch calls (undefined symbol, at import)",
        "https://github.com/pytorch/pytorch/issues/103832",
    ),
    Pinned(
        "triton",
        "torch.compile is made for exactly that release",
        "https://github.com/pytorch/pytorch/blob/v2.6.0/RELEASE.md#triton-dependency-for-the-release",
        newer=True,
        since=(2, 0),
    ),
)


def pinned(name: str, torch: str) -> Pinned | None:
    """The rule of a distribution that a release of torch pins; None for libraries in Python."""
    if not at_least(parse_version(torch), (1, 13)):  # until then everything was in torch's own wheel
        return None
    release = parse_version(torch)
    return next((r for r in PINNED if name.startswith(r.name) and at_least(release, r.since)), None)


def is_older(installed: str, requires: str) -> bool:
    """Whether it is older than the release that ``name==2.21.5`` pins."""
    found = requirement(requires)
    pin = parse_version(found[1].removeprefix("==")) if found and found[1].startswith("==") else None
    version = parse_version(installed)
    return pin is not None and version is not None and version < pin


def breaks_cudnn(runtime: str | None, built: str | None) -> bool:
    """Whether torch refuses this cuDNN: another major release, or an older minor one, than it was built with
    (torch/backends/cudnn/__init__.py, _init)."""
    have, want = parse_version(runtime), parse_version(built)
    if have is None or want is None:
        return False
    return have[0] != want[0] or have[:2] < want[:2]
