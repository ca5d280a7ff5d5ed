"""The trial of a job in the text and HTML reports: what it came to, and how the job scales, as bars."""

from xml.etree import ElementTree as ET

from netdoctor.report import fmt
from netdoctor.report.formats.bandwidth import BAR
from netdoctor.report.formats.elements import add, bar, table
from netdoctor.report.model import Report, TrialLadder, TrialRecord, TrialRung
from netdoctor.report.results import Index

# Of a ladder and of other lists: seventeen rungs are 65,536 nodes, and a report may be a stranger's.
RUNGS_MAX, LINES_MAX = 32, 5


def word(trial: TrialRecord) -> str:
    """``STARTED``, ``FAILED``, ``UNDECIDED``, ``INTERRUPTED``."""
    return fmt.plain(trial.state, 12).upper()


def status(trial: TrialRecord) -> str:
    """The status whose colour it has: also that of a ladder that broke, though the last rung started."""
    if trial.state == "started" and trial.ladder is not None and trial.ladder.from_nodes is not None:
        return "warn"
    return {"started": "pass", "failed": "fail"}.get(trial.state, "unknown")


def rows(trial: TrialRecord) -> list[tuple[str, str]]:
    """(label, line) behind the state; labels that repeat are left out."""
    when = fmt.plain(trial.finished[:16].replace("T", " "), 20)
    job = f"{fmt.plain(' '.join(trial.command), 200)} ({when} UTC, {fmt.number(trial.nodes, 'node')})"
    texts = [("job", [job]), ("found", trial.found), ("over", trial.over)]
    texts.append(("cause", [f"{c.title} ({c.confidence}: {c.source})" for c in trial.causes]))
    if trial.ladder is not None and trial.ladder.headline:
        texts.append(("ladder", [trial.ladder.headline]))
    return [
        (label if not number else "", fmt.plain(text, 400))
        for label, lines in texts
        for number, text in enumerate(lines[:LINES_MAX])
    ]


def _shares(ladder: TrialLadder) -> list[tuple[TrialRung, float | None, float | None, float]]:
    """(rung, its rate over the first one's, over that of the rung below, over the best), None if unknown."""
    rungs = ladder.rungs[:RUNGS_MAX]
    rates = [max(rung.steps_per_s or 0.0, 0.0) for rung in rungs]
    best = max(rates, default=0.0)
    return [
        (
            rung,
            rate / rates[0] if rate and rates[0] else None,
            rate / rates[n - 1] if n and rate and rates[n - 1] else None,
            rate / best if best else 0.0,
        )
        for n, (rung, rate) in enumerate(zip(rungs, rates, strict=True))
    ]


def _rate(rung: TrialRung) -> str:
    return f"{rung.steps_per_s:.3g}" if rung.steps_per_s else fmt.plain(rung.state, 9)


def ladder_lines(ladder: TrialLadder, width: int) -> list[str]:
    """A table of the rungs with bars, at most `width` columns from 40 on."""
    lines = [f"{'nodes':>5} {'ranks':>6} {'steps/s':>9} {'of one':>7} {'of below':>9}"]
    room = min(BAR, width - len(lines[0]) - 2)
    for rung, of_first, of_below, of_best in _shares(ladder):
        shares = [f"{share:.0%}" if share is not None else "" for share in (of_first, of_below)]
        drawn = "#" * round(room * of_best) if room >= 8 else ""
        row = f"{rung.nodes:5} {rung.ranks:6} {_rate(rung):>9} {shares[0]:>7} {shares[1]:>9}  {drawn}"
        lines.append(row.rstrip())
    return lines


def section(parent: ET.Element, report: Report, index: Index) -> None:
    """The trial in the page; nothing where no job was tried."""
    trial = report.trial
    if trial is None:
        return
    line = add(parent, "p", class_="headline")
    kind = {"pass": "p", "fail": "f", "warn": "w"}.get(status(trial), "u")
    add(line, "span", word(trial), class_=f"badge {kind}").tail = f" {fmt.plain(trial.headline, 400)}"
    pairs = add(parent, "dl")
    for label, text in rows(trial):
        if label:
            add(pairs, "dt", label)
        add(pairs, "dd", text)
    if trial.ladder is None or not trial.ladder.rungs:
        return
    names = ("nodes", "ranks", "steps/s", "of one node", "of the rung below", "")
    _, body = table(parent, "The same job on more and more nodes", names)
    for rung, of_first, of_below, of_best in _shares(trial.ladder):
        row = add(body, "tr")
        add(row, "th", str(rung.nodes), scope="row")
        cells = [str(rung.ranks), _rate(rung)]
        cells += [f"{share:.0%}" if share is not None else "" for share in (of_first, of_below)]
        for text in cells:
            add(row, "td", text, class_="number")
        bar(add(row, "td"), of_best, _rate(rung), bad=rung.nodes == trial.ladder.from_nodes)
