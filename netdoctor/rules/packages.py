"""What pip would say of a version on a node: specifiers, and markers read for its own Python and platform.

https://packaging.python.org/en/latest/specifications/version-specifiers/ and
https://packaging.python.org/en/latest/specifications/dependency-specifiers/

`packaging` is imported where it is asked: what it compiles takes a tenth of a start, and many nodes have no
requirement to ask about.
"""

from collections.abc import Sequence
from functools import lru_cache

from netdoctor.facts.host import HostFacts
from netdoctor.facts.software import Job, SoftwareFacts

# Nobody writes longer ones, and who does would have them parsed by recursion.
MOST = 500
Environment = tuple[tuple[str, str], ...]


def environment(software: SoftwareFacts, host: HostFacts | None) -> Environment:
    """What markers ask about, as a node's interpreter would answer; without `host` no platform."""
    minor = ".".join(software.version.split(".")[:2])
    found = {
        "implementation_name": software.implementation.lower(),
        "implementation_version": software.version,
        "os_name": "posix",
        "platform_python_implementation": software.implementation,
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": software.version,
        "python_version": minor,
        "sys_platform": "linux",
        "extra": "",
    }
    if host is not None:
        found |= {"platform_machine": host.arch, "platform_release": host.kernel}
    return tuple(sorted(found.items()))


@lru_cache(maxsize=1 << 14)
def applies(marker: str, here: Environment) -> bool | None:
    """Whether a requirement with this marker is meant for such a node; None where that cannot be said."""
    if not marker:
        return True
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
    from packaging.version import InvalidVersion

    try:
        known = dict(here)
        unread = {"platform_machine", "platform_release"} - known.keys()
        if len(marker) > MOST or any(name in marker for name in unread):
            return None
        return Marker(marker).evaluate(known)
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, InvalidVersion, RecursionError):
        return None


def applies_to(marker: str, here: Environment, extras: Sequence[str]) -> bool | None:
    """As `applies`, for a line of Requires-Dist where some extras of its distribution are asked for."""
    if not extras:
        return applies(marker, here)
    bare = tuple(one for one in here if one[0] != "extra")
    answers = [applies(marker, (*bare, ("extra", extra))) for extra in extras]
    return any(answers) or (None if None in answers else False)


@lru_cache(maxsize=1 << 12)
def requirement(text: str) -> tuple[str, str, str] | None:
    """(name, specifier, marker) of a line of Requires-Dist; None where it is none."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text) if len(text) <= MOST else None
    except (InvalidRequirement, RecursionError):
        found = None
    return (found.name, str(found.specifier), str(found.marker or "")) if found else None


@lru_cache(maxsize=1 << 14)
def fits(specifier: str, version: str) -> bool | None:
    """Whether an installed version is one of these; None where one of the two is no such thing.

    As for pip, an installed pre-release counts by its number, and ``+cu124`` only where it is asked for.
    """
    if not specifier:
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return None


@lru_cache(maxsize=1 << 10)
def nearly(specifier: str, version: str) -> bool:
    """Whether the release fits whose pre-release this is: ``2.6.0a0+nv25.1`` for ``>=2.6.0``."""
    from packaging.version import InvalidVersion, Version

    try:
        found = Version(version)
    except InvalidVersion:
        return False
    return found.is_prerelease and fits(specifier, found.base_version) is True


def meets(job: Job, name: str, version: str) -> bool:
    """Whether it is a version that the job asks for, or may not be held against what it asks for."""
    return all(fits(one.specifier, version) is not False for one in job.requested if one.name.lower() == name)
