"""Causes and fixes in words: who is affected, what a cause explains, where a fix runs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from netdoctor.report.fmt import FOLD_LIMIT, nodes_text, number, pairs_text, plain
from netdoctor.report.model import Cause, FixRecord, Report
from netdoctor.report.results import Index


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


def explains(report: Report, cause: Cause, index: Index) -> list[str]:
    """Return what a cause accounts for: results it holds back, and results it turned bad."""
    own_cells = {(check, node) for check in cause.checks[:1] for node in cause.node_list}
    blocked = [e for e in cause.explains if index.status(e.check, e.target) == "blocked"]
    bad = [
        e
        for e in cause.explains
        if index.status(e.check, e.target) not in ("blocked", "pass") and (e.check, e.target) not in own_cells
    ]
    lines = []
    if cause.held or blocked:
        what = f"{number(cause.held or len(blocked), 'result')} not run"
        lines.append(f"{what}: {_spread(report, blocked)}" if blocked else what)
    if bad:
        lines.append(f"{number(len(bad), 'other result')}: {_spread(report, bad)}")
    return lines


def since(report: Report, cause: Cause) -> list[str]:
    """Return whether a cause is new, where the scan was held against a baseline."""
    against = report.baseline
    if against is None or cause.baseline is None:
        return []
    runs = f", {number(against.runs, 'run')}" if against.runs > 1 else ""
    known = "not in" if cause.baseline == "new" else "in"
    return [f"{plain(cause.baseline, 12)}: {known} the baseline {plain(against.name, 80)}{runs}"]


def _spread(report: Report, explained: Sequence[Any]) -> str:
    checks = list(dict.fromkeys(plain(e.check, 60) for e in explained))
    targets = list(dict.fromkeys(e.target for e in explained if e.target not in ("cluster", "control")))
    text = ", ".join(checks)
    if len(checks) > 6:
        families = dict.fromkeys(check.partition(".")[0] for check in checks)
        text = f"{len(checks)} checks of {plain(', '.join(families), 120)}"
    nodes = [target for target in targets if "->" not in target]
    where = [nodes_text(report, nodes)] if nodes else []
    where += pairs_text([target for target in targets if "->" in target])
    return f"{text} on {', '.join(where)}" if where else text


def fix_names(fixes: Iterable[FixRecord]) -> Iterator[str]:
    """Yield the label of each: ``look``, ``fix`` for the first that does more, ``or`` for others."""
    heals = False
    for fix in fixes:
        yield "look" if fix.kind == "look" else "or" if heals else "fix"
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
    """Return where a fix runs, as whom, when it acts, whether it lasts, what it costs, does and widens."""
    where = plain(fix.where, 200) or _where(report, fix)
    effect = plain(fix.effect, 60) if fix.kind != "look" else ""
    parts = [where] if where else []
    if fix.kind == "hosts":
        parts.append("in the hosts file")
    if fix.commands and fix.kind != "look":
        parts.append("root" if fix.needs_root else "no root")
    elif fix.needs_root:
        parts.append("root")
    if fix.commands or fix.kind == "hosts":
        parts += [effect] if effect else []
    here = fix.kind == "job" or all(name in ("job", "control") for c in fix.commands for name in c.run_on)
    if effect and not here and effect != "after reboot":
        parts.append("survives reboot" if fix.persistent else "lost at reboot")
    if fix.needs_reboot and effect != "after reboot":
        parts.append("needs a reboot")
    if fix.risk != "low":
        parts.append(f"risk {plain(fix.risk, 20)}")
    if fix.loses:
        parts.append(f"loses {plain(fix.loses, 200)}")
    tail = [plain(fix.text, 400), plain(fix.widens or "", 200)]
    if tail[1] and tail[1] in tail[0]:
        tail.pop()
    if fix.needs:
        tail.append(plain(f"needs {', '.join(fix.needs)}", 200))
    return "; ".join(filter(None, [", ".join(parts), *tail]))


def script_label(report: Report, fix: FixRecord) -> str:
    """The same where a script is shown in place of its commands."""
    undo = ", and --undo takes it back" if fix.undo else ""
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
