"""Releases as numbers."""

import re
from functools import lru_cache

from netdoctor.facts.software import SoftwareFacts

Version = tuple[int, ...]


@lru_cache(maxsize=1 << 12)
def parse_version(text: str | None) -> Version | None:
    """``2.21.5`` or ``2.21.5+cuda12.4`` as (2, 21, 5); None where there are no numbers."""
    match = re.match(r"\d+(?:\.\d+)*", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else None


def nccl_version(software: SoftwareFacts | None) -> Version | None:
    """Release of the library that torch would load on a node."""
    return parse_version(software.nccl[0].version) if software and software.nccl else None


def at_least(version: Version | None, least: Version) -> bool:
    """Whether the newer behaviour applies; an unknown release counts as the newest."""
    return version is None or version >= least
