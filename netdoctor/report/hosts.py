"""The nodes that may be used as a hosts file: those without trouble, with what was listed beside each."""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from netdoctor.inventory import Target
from netdoctor.inventory.names import (
    is_valid_host,
    is_valid_port,
    is_valid_python_path,
    is_valid_user,
    leaf_fault,
)
from netdoctor.report import scope, words
from netdoctor.report.model import Report


def render(report: Report) -> str:
    """Return a hosts file of the nodes that are healthy; of a part or a redacted report only a comment.

    rank= goes: the order of the lines is that of the ranks, and without a gap.
    """
    if report.run.redacted:
        return "# a redacted report names no node that could be logged in to\n"
    part = report.verdict.part
    if part is not None:
        return f"# only {scope.part_text(part)} were looked at: no node is known to be usable\n"
    return of_nodes(report, report.healthy_nodes)


def of_nodes(report: Report, nodes: Collection[str]) -> str:
    """Return a hosts file of these nodes of a report, in the order in which they were listed."""
    lines = [line for target in _targets(report) if target.id in nodes for line in _line(target)]
    when = words.plain(report.run.finished, 40)
    head = f"# {len(lines)} of {words.number(len(report.matrix.nodes), 'node')}, scanned {when}"
    return "".join(f"{line}\n" for line in (head, *lines))


def _targets(report: Report) -> list[Target]:
    """The nodes as they were listed; of somebody else's report as they were reached."""
    try:
        listed = msgspec.convert(report.run.replay.get("targets"), type=list[Target])
    except msgspec.ValidationError:
        listed = []
    known = {target.id for target in listed}
    rest = [t for t in report.targets if t.id not in known]
    return [*listed, *(Target(id=t.id, host=t.id, port=t.port or None, user=t.user or None) for t in rest)]


def _line(target: Target) -> Iterator[str]:
    """The target's line, of words that keep the rules for hosts files: a report is anybody's file."""
    if not is_valid_host(target.host):
        return
    said: dict[str, Any] = {
        "port": target.port if target.port and is_valid_port(target.port) else None,
        "user": target.user if target.user and is_valid_user(target.user) else None,
        "python": target.python if target.python and is_valid_python_path(target.python) else None,
        "slots": target.slots,
        "gpus": target.gpus,
        "leaf": target.leaf if target.leaf and not leaf_fault(target.leaf) else None,
    }
    host = f"[{target.host}]" if ":" in target.host else target.host
    yield " ".join([host, *(f"{key}={value}" for key, value in said.items() if value is not None)])
