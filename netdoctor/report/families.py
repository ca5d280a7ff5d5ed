"""Families of checks: their status, who it holds for, and results by check and target."""

from netdoctor.report import describe, summary
from netdoctor.report.fmt import fold, ids, nodes_text, number, plain
from netdoctor.report.model import Cause, FamilyRow, Report
from netdoctor.report.results import Index

FAMILIES = {"net": "network", "sw": "software", "bw": "bandwidth"}


def status(report: Report, row: FamilyRow, index: Index) -> str:
    """Return the status of a row; one that waits on every node is not green."""
    waits = row.status == "pass" and waiting(report, row.family, index)
    return "blocked" if waits and not passing(report, row.family, index) else row.status


def value(report: Report, row: FamilyRow, index: Index) -> tuple[str, str]:
    """Return (who, remark) of a row: ``all 4 nodes`` or ``[1] gpu-a03``, and what else is worth saying."""
    by_id = {cause.id: cause for cause in report.causes if cause.id in row.causes}
    remark = plain(row.remark, 300)
    blocked = {c.id: _blocked(row, c, index) for c in by_id.values()}
    failing = [
        c
        for c in by_id.values()
        if not blocked[c.id] or any(index.family.get(check) == row.family for check in c.checks)
    ]
    waits = [
        f"{number(blocked[c.id], 'check')} blocked by [{c.id}]" for c in by_id.values() if c not in failing
    ]
    word = status(report, row, index)
    late = waiting(report, row.family, index) if word == "pass" and not failing else []
    if late:
        good = passing(report, row.family, index)
        who = plain(good[0], 60) if len(good) == 1 else number(len(good), "node")
        return f"{who}; {fold(late, 40)} blocked by {ids(row.causes) or 'an earlier check'}", remark
    if failing or (waits and word != "blocked"):
        return "; ".join(
            [*(f"[{c.id}] {describe.cause_nodes(report, c, 40)}".rstrip() for c in failing), *waits]
        ), ""
    if word == "blocked":
        rest = [f"{len(row.causes)} causes"] if len(row.causes) > 4 else []
        return f"by {''.join(rest) or ids(row.causes) or 'an earlier check'}", ""
    if word == "pass":
        return nodes_text(report, passing(report, row.family, index)), remark
    if word == "skip":
        return remark or "does not apply", ""
    letter = next((letter for letter, known in summary.LETTERS.items() if known == word), "")
    return nodes_text(report, showing(report, row.family, letter, index)), remark


def _blocked(row: FamilyRow, cause: Cause, index: Index) -> int:
    """Return how many checks of a family wait for a cause."""
    waiting = {e.check for e in cause.explains if index.status(e.check, e.target) == "blocked"}
    return sum(index.family.get(check) == row.family for check in waiting)


def showing(report: Report, family: str, letter: str, index: Index) -> list[str]:
    """Return the nodes on which some check of a family has this letter."""
    rows = [cells for cells in _rows(report, family, index) if letter in cells]
    if not rows:
        return []
    return [node for n, node in enumerate(report.matrix.nodes) if any(cells[n] == letter for cells in rows)]


def _rows(report: Report, family: str, index: Index) -> list[str]:
    pairs = zip(report.matrix.checks, report.matrix.cells, strict=True)
    return [cells for check, cells in pairs if index.family.get(check) == family]


def passing(report: Report, family: str, index: Index) -> list[str]:
    """Return the nodes on which some check of a family passed and none did anything but pass or skip."""
    rows = _rows(report, family, index)
    if not rows:
        return []
    good = ({".", "-"}, {"."})
    return [
        node
        for node, column in zip(report.matrix.nodes, zip(*rows, strict=True), strict=True)
        if set(column) in good
    ]


def waiting(report: Report, family: str, index: Index) -> list[str]:
    """Return the nodes on which some check of a family waits for another."""
    return showing(report, family, "b", index)


def label(family: str) -> str:
    return FAMILIES.get(family) or plain(family, 20)
