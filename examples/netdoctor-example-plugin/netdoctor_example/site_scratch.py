"""Scratch space, the site's own rule: at least 100 GB free on every node."""

from collections.abc import Iterator
from dataclasses import dataclass

from netdoctor.check import check
from netdoctor.facts import fact
from netdoctor.facts.host import Node
from netdoctor.model import CauseHint, Command, ExpectedFrom, Finding, Fix, fail

GB = 10**9
# What one of our jobs writes between two checkpoints.
NEEDED_BYTES = 100 * GB


@fact("site_scratch", collector="collector.py")
@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The node's scratch folder: $SCRATCH of the login session, or /scratch."""

    path: str
    exists: bool
    writable: bool = False
    free_bytes: int = 0


@check()
def site_scratch(node: Node, scratch: Scratch) -> Iterator[Finding]:
    """Every node has a scratch folder with at least 100 GB free.

    Looks at:
        The folder that ``SCRATCH`` names in a login session, or /scratch: that it is there, that the user may
        write, and its free space (statvfs).

    Matters because:
        Jobs stage data and write checkpoints there. A full one ends a job hours after its start.

    Fix:
        Remove what is no longer needed, or ask for the folder to be made.
    """
    if not scratch.exists:
        yield finding(node, "missing", f"{scratch.path} does not exist", "does not exist")
    elif not scratch.writable:
        yield finding(node, "read-only", f"{scratch.path} cannot be written", "may not be written")
    elif scratch.free_bytes < NEEDED_BYTES:
        free = f"{scratch.free_bytes / GB:.0f} GB free"
        yield finding(node, "full", f"{scratch.path} has {free}", free, look=f"du -xsh {scratch.path}/*")


def finding(node: Node, kind: str, summary: str, observed: str, look: str | None = None) -> Finding:
    """The same shape for each of the three troubles."""
    fix = Fix(
        text="remove what is no longer needed" if look else "ask storage@example.org for the folder",
        commands=(Command(run_on=node.id, shell=look),) if look else (),
    )
    return fail(
        node.id,
        summary,
        observed=observed,
        expected=f"a folder that can be written, {NEEDED_BYTES // GB} GB free",
        expected_from=ExpectedFrom.CONFIG,
        cause=CauseHint(
            key=f"scratch-{kind}",
            title=f"the scratch folder of {{nodes}} is {kind}",
            culprits=(node.id,),
            fixes=(fix,),
        ),
    )
