"""The nodes that may be used as a hosts file: those without trouble, with what was listed beside each."""

from dataclasses import replace

import msgspec

from netdoctor.inventory import Target
from netdoctor.inventory.names import (
    is_valid_host,
    is_valid_port,
    is_valid_user,
    leaf_fault,
    python_fault,
    rail_fault,
)
from netdoctor.inventory.writers import WRITERS
from netdoctor.report import fmt, summary
from netdoctor.report.model import Report


def render(report: Report) -> str:
    """Return a hosts file of the nodes that are healthy; of a part or a redacted report only a comment.

    rank= goes: the order of the lines is that of the ranks, and without a gap.
    """
    if report.run.redacted:
        return "# a redacted report names no node that could be logged in to\n"
    part = report.verdict.part
    if part is not None:
        return f"# only {summary.part_text(part)} were looked at: no node is known to be usable\n"
    healthy = set(report.healthy_nodes)
    lines = list(WRITERS["plain"].write([target for target in targets(report) if target.id in healthy]))
    when = fmt.plain(report.run.finished, 40)
    head = f"# {len(lines)} of {fmt.number(len(report.matrix.nodes), 'node')}, scanned {when}"
    return "".join(f"{line}\n" for line in (head, *lines))


def targets(report: Report) -> list[Target]:
    """The nodes as they were listed; of somebody else's report as they were reached.

    A report is anybody's file: what does not keep the rules for hosts files is left out, and so are the
    interpreters of a stranger's, which decide what runs on nodes.
    """
    try:
        listed = msgspec.convert(report.run.replay.get("targets"), type=list[Target])
    except msgspec.ValidationError:
        listed = []
    known = {target.id for target in listed}
    rest = [t for t in report.targets if t.id not in known]
    reached = (Target(id=t.id, host=t.id, port=t.port or None, user=t.user or None) for t in rest)
    sound = [_sound(target) for target in (*listed, *reached) if is_valid_host(target.host)]
    return sound if report.run.foreign is None else [replace(target, python=None) for target in sound]


def _sound(target: Target) -> Target:
    return replace(
        target,
        port=target.port if target.port and is_valid_port(target.port) else None,
        user=target.user if target.user and is_valid_user(target.user) else None,
        python=target.python if target.python and not python_fault(target.python) else None,
        leaf=target.leaf if target.leaf and not leaf_fault(target.leaf) else None,
        rail=target.rail if target.rail and not rail_fault(target.rail) else None,
        groups=(),
    )
