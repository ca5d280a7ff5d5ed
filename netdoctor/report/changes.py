"""What `netdoctor diff` prints: the changes between two reports, for people and as JSON. Judges nothing."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from netdoctor.jsontext import encode
from netdoctor.report import describe, fmt, summary
from netdoctor.report.diff import Change, Diff, Moved, TrialChange
from netdoctor.report.model import Cause, Report
from netdoctor.text import inert_line

SCHEMA = "netdoctor.diff/1"
ROWS_MAX, RUNGS_MAX = 20, 16
_LABEL, _MARK, _STATUS = 9, 10, 8


def text(
    found: Diff, before: Report, now: Report, *, runs: int = 1, names: tuple[str, str], width: int
) -> str:
    """The changes for people, the worst first. runs: how many the older side has; names: of the two sides."""
    lines = [
        f"{fmt.plain(names[0], 200)}   {_side(before)}{f', newest of {runs} runs' if runs > 1 else ''}",
        f"{fmt.plain(names[1], 200)}   {_side(now)}",
        "",
    ]
    rows = list(_rows(found, before, now))
    last_label = ""
    for label, row in rows or [("", "nothing changed")]:
        left = f"{label if label != last_label else '':<{_LABEL}}"
        last_label = label
        lines += textwrap.wrap(
            f"{left}{row}",
            max(width, 40),
            subsequent_indent=" " * (_LABEL + 2),
            break_on_hyphens=False,
            drop_whitespace=True,
        )
    lines += ["", f"{'worse' if found.is_worse else 'not worse'}, exit {int(found.is_worse)}"]
    return "".join(f"{inert_line(line)}\n" for line in lines)


def as_json(found: Diff, before: Report, now: Report, *, runs: int = 1, names: tuple[str, str]) -> bytes:
    """The changes as JSON, whole, with a newline at the end."""
    sides = [_side_data(report, name) for report, name in zip((before, now), names, strict=True)]
    data = {
        "schema": SCHEMA,
        "old": {**sides[0], "runs": runs},
        "new": sides[1],
        "worse": found.is_worse,
        "exit_code": int(found.is_worse),
        "causes": {
            kind: [_cause_data(c) for c in getattr(found, kind)] for kind in ("new", "healed", "open", "same")
        },
        "changes": [
            {"kind": kind, **msgspec.to_builtins(change)}
            for kind in ("worse", "better", "other")
            for change in getattr(found, kind)
        ],
        "moved": [
            {**msgspec.to_builtins(m), "ratio": round(m.ratio, 4), "worse": m.is_worse} for m in found.moved
        ],
        "trial": {**msgspec.to_builtins(found.trial), "trend": found.trial.trend} if found.trial else None,
        "facts": msgspec.to_builtins(found.facts),
        "nodes": {"added": list(found.nodes_added), "removed": list(found.nodes_removed)},
        "checks": {"added": list(found.checks_added), "removed": list(found.checks_removed)},
    }
    return encode(data) + b"\n"


def _side(report: Report) -> str:
    when = fmt.plain(report.run.finished[:16].replace("T", " "), 20)
    return f"{when}   {summary.verdict(report)}   profile {fmt.plain(report.run.profile, 20)}"


def _side_data(report: Report, name: str) -> dict[str, Any]:
    verdict = report.verdict
    return {"name": name, "run": report.run.id, "finished": report.run.finished, "state": verdict.state}


def _cause_data(cause: Cause) -> dict[str, Any]:
    return {
        name: msgspec.to_builtins(getattr(cause, name))
        for name in ("key", "fingerprint", "status", "title", "checks", "node_list")
    }


def _rows(found: Diff, before: Report, now: Report) -> Iterator[tuple[str, str]]:
    """(label, line). What changed on the nodes comes before what broke there: it is often why."""
    if found.new:
        yield from _facts(found, now)
    yield from (("WORSE", _cause("[new]", c, now)) for c in found.new)
    if found.verdict_worse:
        yield "WORSE", f"{'verdict':<{_MARK}}{summary.verdict(before)} -> {summary.verdict(now)}"
    trial = [f"{'trial':<{_MARK}}{text}" for text in trial_lines(found.trial)]
    label = trial_label(found.trial)
    yield from (("WORSE", text) for text in trial if label == "WORSE")
    yield from (("WORSE", _change(c, now)) for c in _unexplained(found.worse, found.new, now))
    yield from _values("WORSE", [m for m in found.moved if m.is_worse])
    yield from (("BETTER", _cause("[fixed]", c, before)) for c in found.healed)
    yield from (("BETTER", _change(c, now)) for c in _unexplained(found.better, found.healed, before))
    yield from ((label, text) for text in trial if label != "WORSE")
    yield from _values("MOVED", [m for m in found.moved if not m.is_worse])
    if not found.new:
        yield from _facts(found, now)
    yield from (("OPEN", _cause("[open]", c, before)) for c in found.open)
    other = list(_unexplained(found.other, found.new, now))
    yield from (("OTHER", _change(c, now)) for c in other[:ROWS_MAX])
    if len(other) > ROWS_MAX:
        yield "OTHER", f"and {len(other) - ROWS_MAX} more: -o json"
    for what, added, removed in (
        ("HOSTS", found.nodes_added, found.nodes_removed),
        ("CHECKS", found.checks_added, found.checks_removed),
    ):
        if added:
            yield what, f"added {_names(what, added)}"
        if removed:
            yield what, f"removed {_names(what, removed)}"


def _names(what: str, names: Sequence[str]) -> str:
    return fmt.fold(names) if what == "HOSTS" else fmt.plain(", ".join(names), 300)


def _cause(mark: str, cause: Cause, report: Report) -> str:
    check = describe.cause_check(cause)
    return f"{mark:<{_MARK}}{summary.word(cause.status):<{_STATUS}}{check:<16} {describe.title(cause)}"


def _change(change: Change, now: Report) -> str:
    nodes = fmt.nodes_text(now, change.nodes)
    went = f"{change.before} -> {change.now}"
    text = f"{fmt.plain(change.check, 60):<16} {nodes} {fmt.plain(change.summary)}".rstrip()
    return f"{went:<{_MARK + _STATUS}}{text}"


def _unexplained(changes: Sequence[Change], causes: Sequence[Cause], report: Report) -> Iterator[Change]:
    """The changes of which no cause that is listed speaks. report: the one that has these causes."""
    numbers = {cause.id for cause in causes}
    owner = {(r.check, r.target): r.cause for r in report.results}
    for change in changes:
        if not all(owner.get((change.check, node)) in numbers for node in change.nodes):
            yield change


def trial_label(change: TrialChange | None) -> str:
    if change is None or not change.is_same_job:
        return "OTHER"
    return change.trend.upper() or "MOVED"


def trial_lines(change: TrialChange | None) -> list[str]:
    """What became of the tried job: state, cause, rate, and rungs that both climbed."""
    if change is None:
        return []
    before, now = change.before, change.now
    was = fmt.plain(before.state, 12).upper() if before is not None else "not tried"
    of_another = "" if before is None or change.is_same_job else "  (another command, or other nodes)"
    lines = [f"{was} -> {fmt.plain(now.state, 12).upper()}   {fmt.plain(now.headline, 300)}{of_another}"]
    lines += [f"{fmt.plain(c.title, 300)} ({fmt.plain(c.confidence, 12)})" for c in now.causes[:2]]
    if before is None or not change.is_same_job:
        return lines
    if before.steps_per_s is not None or now.steps_per_s is not None:
        share = f"  {change.ratio:+.0%}" if change.ratio else ""
        lines.append(f"{_rate(before.steps_per_s)} -> {_rate(now.steps_per_s)} steps/s{share}")
    rungs = {rung.nodes: rung.steps_per_s for rung in before.ladder.rungs} if before.ladder else {}
    both = [r for r in (now.ladder.rungs if now.ladder else ())[:RUNGS_MAX] if r.nodes in rungs]
    if both:
        went = (f"{r.nodes}: {_rate(rungs[r.nodes])} -> {_rate(r.steps_per_s)}" for r in both)
        lines.append(f"steps/s by nodes   {', '.join(went)}")
    if now.ladder and now.ladder.headline:
        lines.append(fmt.plain(now.ladder.headline, 300))
    return lines


def _rate(value: float | None) -> str:
    return _three(value) if value else "none"


def _values(label: str, moved: Sequence[Moved]) -> Iterator[tuple[str, str]]:
    """A line for each value that moved; one for all of a measure where those are many."""
    by_name: dict[str, list[Moved]] = {}
    for one in moved:
        by_name.setdefault(one.name, []).append(one)
    for name, values in by_name.items():
        first = values if len(values) <= 4 else values[:1]
        for one in first:
            yield label, _value(one, f"{fmt.plain(name, 40)} {fmt.plain(one.target, 120)}")
        if len(values) > len(first):
            rest = values[len(first) :]
            ends = [one.target.replace(" -> ", "->") for one in rest]
            where = "; ".join(fmt.pairs_text(ends)) if all("->" in end for end in ends) else fmt.fold(ends)
            yield (
                label,
                f"{'moved':<{_MARK}}{fmt.plain(name, 40)} {len(rest)} more, less than that: {where}",
            )


def _value(one: Moved, what: str) -> str:
    unit = fmt.plain(one.unit, 12)
    share = f"  {one.ratio:+.0%}" if one.before else ""
    band = f"{one.band / abs(one.before):.0%}" if one.before and one.band else f"{_three(one.band)} {unit}"
    learnt = f"of {one.runs} runs" if one.runs > 1 else "by default"
    return (
        f"{'moved':<{_MARK}}{what}  {_three(one.before)} -> {_three(one.now)} {unit}{share}"
        f"  (noise band +/- {band} {learnt})"
    )


def _three(value: float) -> str:
    """A figure with three digits that count, and all of a number that is counted."""
    return f"{value:.3g}" if abs(value) < 1000 else fmt.figure(value)


def _facts(found: Diff, now: Report) -> Iterator[tuple[str, str]]:
    for fact in found.facts[:ROWS_MAX]:
        nodes = fmt.nodes_text(now, fact.nodes)
        went = f"{fmt.plain(fact.before, 80)} -> {fmt.plain(fact.now, 80)}"
        yield "FACTS", f"{fmt.plain(fact.fact, 40):<16} {nodes}   {went}"
    if len(found.facts) > ROWS_MAX:
        yield "FACTS", f"and {len(found.facts) - ROWS_MAX} more: -o json"
