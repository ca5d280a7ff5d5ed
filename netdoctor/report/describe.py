"""Causes and fixes in words: who is affected, what a cause explains, where a fix runs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from netdoctor.report.fmt import FOLD_LIMIT, nodes_text, number, pairs_text, plain
from netdoctor.report.model import Cause, FixRecord, Report
from netdoctor.report.results import Index

# Of a page, without a user, a port, and what Markdown or a terminal would take for something else.
_ADDRESS = re.compile(r"https://[a-z0-9.-]{1,100}/[\w.~/#?=&%+,:-]{0,400}", re.ASCII)


def cause_nodes(report: Report, cause: Cause, limit: int | None = FOLD_LIMIT) -> str:
    """Return the culprits of a cause, folded."""
    if cause.node_list:
        return nodes_text(report, cause.node_list, limit)
    return plain(cause.nodes, 200)


def title(cause: Cause) -> str:
    """Return the cause's sentence; a weak one says so."""
    text = plain(cause.title, 600)
    return f"suspected: {text}" if cause.confidence == "suspected" else text


def cause_check(cause: Cause) -> str:
    """Return the check id that stands for a cause."""
    return plain(cause.checks[0], 60) if cause.checks else ""


def address(report: Report, cause: Cause) -> str | None:
    """Return where to read more, where that may be a link: of the catalogue, which no node has a word in.

    A report that somebody else wrote may name any page.
    """
    found = cause.see or ""
    return found if _ADDRESS.fullmatch(found) and not report.run.foreign else None


def blocks(report: Report, cause: Cause, index: Index) -> list[str]:
    """Return which checks were not run because of a cause, and where."""
    blocked = [e for e in cause.explains if index.status(e.check, e.target) == "blocked"]
    if blocked:
        everything = {e.check for e in blocked} >= set(report.matrix.checks) - set(cause.checks)
        return [_spread(report, blocked, "every other check" if everything else "")]
    return [number(cause.held, "result")] if cause.held else []


def explains(report: Report, cause: Cause, index: Index) -> list[str]:
    """Return which other results a cause turned bad."""
    own_cells = {(check, node) for check in cause.checks[:1] for node in cause.node_list}
    bad = [
        e
        for e in cause.explains
        if index.status(e.check, e.target) not in ("blocked", "pass") and (e.check, e.target) not in own_cells
    ]
    return [_spread(report, bad)] if bad else []


def since(report: Report, cause: Cause) -> list[str]:
    """Return whether a cause is new, where the scan was held against a baseline."""
    against = report.baseline
    if against is None or cause.baseline is None:
        return []
    runs = f", {number(against.runs, 'run')}" if against.runs > 1 else ""
    known = "not in" if cause.baseline == "new" else "in"
    return [f"{plain(cause.baseline, 12)}: {known} the baseline {plain(against.name, 80)}{runs}"]


def _spread(report: Report, explained: Sequence[Any], what: str = "") -> str:
    """Checks and where they are; what: in place of their names."""
    checks = list(dict.fromkeys(plain(e.check, 60) for e in explained))
    targets = list(dict.fromkeys(e.target for e in explained if e.target not in ("cluster", "control")))
    text = what or ", ".join(checks)
    if len(checks) > 6 and not what:
        families = dict.fromkeys(check.partition(".")[0] for check in checks)
        text = f"{len(checks)} checks of {plain(', '.join(families), 120)}"
    nodes = [target for target in targets if "->" not in target]
    where = [nodes_text(report, nodes)] if nodes else []
    where += pairs_text([target for target in targets if "->" in target])
    return f"{text} on {', '.join(where)}" if where else text


def fix_names(fixes: Iterable[FixRecord]) -> Iterator[str]:
    """Yield the label of each: ``inspect``, ``fix`` for the first that does more, ``or`` for others."""
    heals = False
    for fix in fixes:
        yield "inspect" if fix.kind == "look" else "or" if heals else "fix"
        heals = heals or fix.kind != "look"


def first_fixes(fixes: Sequence[FixRecord]) -> Sequence[FixRecord]:
    """Return those that fit into a short report: two that heal, with what is to be looked at before."""
    selected: list[FixRecord] = []
    for fix in fixes:
        if len(selected) == 3 or sum(one.kind != "look" for one in selected) == 2:
            break
        selected.append(fix)
    return selected


def fix_label(report: Report, fix: FixRecord) -> str:
    """Return what a fix does, and in brackets where, as whom, when, for how long, what it costs and opens.

    A risk comes before all.
    """
    effect = plain(fix.effect, 60) if fix.kind != "look" else ""
    parts = [plain(fix.where, 200) or _where(report, fix)]
    if fix.kind == "hosts":
        parts.append("in the hosts file")
    if fix.commands and fix.kind != "look":
        parts.append("root" if fix.needs_root else "no root")
    elif fix.needs_root:
        parts.append("root")
    if fix.commands or fix.kind == "hosts":
        parts.append(effect)
    here = fix.kind == "job" or all(name in ("job", "control") for c in fix.commands for name in c.run_on)
    if effect and not here and effect != "after reboot":
        parts.append("survives reboot" if fix.persistent else "lost at reboot")
    if fix.needs_reboot and effect != "after reboot":
        parts.append("needs a reboot")
    if fix.loses:
        parts.append(f"loses {plain(fix.loses, 200)}")
    text, widens = plain(fix.text, 400), plain(fix.widens or "", 200)
    conditions = [", ".join(filter(None, parts)), "" if widens in text else widens]
    if fix.needs:
        conditions.append(plain(f"needs {', '.join(fix.needs)}", 200))
    inside = "; ".join(filter(None, conditions))
    risk = f"RISK {plain(fix.risk, 20).upper()}: " if fix.risk != "low" else ""
    return risk + (f"{text} [{inside}]" if text and inside else text or inside)


def script_label(report: Report, fix: FixRecord) -> str:
    """The same where a script is shown in place of its commands."""
    undo = ", --undo reverts it" if fix.undo else ""
    return f"{fix_label(report, fix)}{f'; a script to read{undo}' if fix.script else ''}"


def _where(report: Report, fix: FixRecord) -> str:
    names = list(dict.fromkeys(name for c in fix.commands for name in c.run_on))
    if not names:
        return ""
    if names == ["control"]:
        return "on this machine"
    if names == ["job"]:
        return "in the job's environment or script"
    return f"on {nodes_text(report, names)}"
