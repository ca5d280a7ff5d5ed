"""Scratch space, the site's own rule: at least 100 GB free on every node."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from netdoctor.check import check
from netdoctor.facts import fact
from netdoctor.model import CONFIG, Cause, Finding, look, run

GB = 10**9
# What one of our jobs writes between two checkpoints.
NEEDED_BYTES = 100 * GB
WANTED = f"a folder that can be written, {NEEDED_BYTES // GB} GB free"

MISSING = Cause("scratch-missing", "the scratch folder of {nodes} is missing")
READ_ONLY = Cause("scratch-read-only", "the scratch folder of {nodes} is read-only")
FULL = Cause("scratch-full", "the scratch folder of {nodes} is full")
ASK = run("ask storage@example.org for the folder")


@fact("site_scratch", collector="collector.py")
@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The node's scratch folder: $SCRATCH of the login session, or /scratch."""

    path: str
    exists: bool
    writable: bool = False
    free_bytes: int = 0


@check()
def site_scratch(scratch: Scratch) -> Iterator[Finding]:
    """Every node has a scratch folder with at least 100 GB free.

    Looks at:
        The folder that ``SCRATCH`` names in a login session, or /scratch: that it is there, that the user may
        write, and its free space (statvfs).

    Matters because:
        Jobs stage data and write checkpoints there. A full one ends a job hours after its start.

    Fix:
        Remove what is no longer needed, or ask for the folder to be made.
    """
    wanted = {"expected": WANTED, "expected_from": CONFIG}
    if not scratch.exists:
        yield MISSING.fail(f"{scratch.path} does not exist", observed="does not exist", fixes=ASK, **wanted)
    elif not scratch.writable:
        yield READ_ONLY.fail(
            f"{scratch.path} cannot be written", observed="may not be written", fixes=ASK, **wanted
        )
    elif scratch.free_bytes < NEEDED_BYTES:
        free = f"{scratch.free_bytes / GB:.0f} GB free"
        yield FULL.fail(
            f"{scratch.path} has {free}",
            observed=free,
            fixes=look("remove what is no longer needed", f"du -xsh {shlex.quote(scratch.path)}/*"),
            **wanted,
        )
