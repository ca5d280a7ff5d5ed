"""What the screens say, as lines for a given width: pure functions of a report and of where somebody looks.

Everything that came from outside passes `words.plain` (one harmless line) or `words.command` here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from netdoctor.report import words
from netdoctor.report.model import Cause, Report, Result
from netdoctor.tui.lines import (
    STATUS_STYLES,
    TWO_COLUMNS,
    VERDICT_STYLES,
    Line,
    beside,
    fit,
    labelled,
    line,
    width_of,
    wrap,
)
from netdoctor.tui.state import Known, State, left_s, slow

SMALL_BELOW = 80
MARGIN = 2  # what a page keeps for its cursor and its scroll bar
DAY_S = 86_400


# Header


def age_s(report: Report, now: float) -> float | None:
    """Seconds since a report was finished, None when it does not say."""
    try:
        finished = datetime.fromisoformat(report.run.finished)
    except ValueError:
        return None
    if finished.tzinfo is None:
        finished = finished.replace(tzinfo=UTC)
    return now - finished.timestamp()


def age_text(seconds: float) -> str:
    days, hours = divmod(int(seconds // 3600), 24)
    return f"{words.number(days, 'day')} old" if days else f"{words.number(hours, 'hour')} old"


def header(state: State, width: int, now: float, spinner: str = "") -> Line:
    """Tool, hosts, sizes, verdict, and when that was."""
    report = state.report
    nodes, checks = len(state.cells.nodes), len(state.cells.checks)
    verdict = state.verdict
    causes = len(report.causes) if report else 0
    mark: list[str | tuple[str, str]] = [(verdict, VERDICT_STYLES.get(verdict, "head"))]
    if causes:
        mark.append(f"  {words.number(causes, 'cause')}")
    if width < SMALL_BELOW:
        return line(" ", *mark, f"  {words.number(nodes, 'node')}")
    size = f"{words.number(nodes, 'node')}, {words.number(checks, 'check')}   "
    right = ""
    if state.scanning:
        taken = max(state.now - state.began, 0.0)
        right = f"{spinner} {_clock(taken)}".strip()
        rest = left_s(state)
        right += f", about {_clock(rest)} left" if rest is not None else ""
        if state.partial:
            right = f"re-running {right}"
    elif report is not None:
        old = age_s(report, now)
        right = words.plain(report.run.finished[11:16], 5) if len(report.run.finished) >= 16 else ""
        if old is not None and old > DAY_S:
            right = age_text(old)
        right += f"  {words.seconds(report.run.duration_ms)}"
    right += f"   {words.plain(state.profile, 10)} "
    fixed = width_of(size) + sum(width_of(m if isinstance(m, str) else m[0]) for m in mark)
    # The end of a path says more than its beginning.
    source = words.plain(state.source, 400)
    room = max(width - fixed - width_of(right) - 18, 12)
    source = source if width_of(source) <= room else f"..{source[-(room - 2) :]}"
    left = f" netdoctor   {source}   {size}" if width >= 100 else f" {source}   {size}"
    used = fixed - width_of(size) + width_of(left)
    if used + width_of(right) > width:
        return line(fit(left, max(width - fixed + width_of(size), 0)), *mark)
    return line(left, *mark, " " * (width - used - width_of(right)), (right, "dim"))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


# Causes


def banners(state: State, now: float) -> list[Line]:
    """What has to be known before anything else is read."""
    report = state.report
    if report is None:
        return []
    found = []
    if not report.run.complete:
        what = {"deadline": "the deadline ended the scan", "interrupt": "the scan was interrupted"}.get(
            report.run.ended_by, "the scan did not end by itself"
        )
        left = report.verdict.counts.unknown
        found.append(
            line((f"  ! {what}: {words.number(left, 'result')} unknown (?), the rest is true", "warn"))
        )
    old = age_s(report, now)
    if old is not None and old > DAY_S:
        found.append(line((f"  ! this report is {age_text(old)}: Ctrl-R scans again", "warn")))
    for note in report.notes:
        if note.level == "warn":
            found.append(line((f"  ! {words.plain(note.text, 300)}", "warn")))
    return found


def causes(state: State, known: Known, width: int, now: float) -> list[Line]:
    """The causes, worst first, then one line per family, then what was noted."""
    report = known.report
    lines = banners(state, now)
    if lines:
        lines.append(Line())
    if not report.causes:
        return [*lines, *_no_cause(state, known, width)]
    if width < SMALL_BELOW - MARGIN:
        for cause in report.causes:
            lines += _small_cause(known, cause, width)
        return lines
    lines += [line("  ", (piece, "head")) for piece in wrap(words.headline(report), width - 4)]
    if nobody(report):
        lines.append(
            line(("  nothing else can be examined until this works.   R retry   e evidence   q quit", "dim"))
        )
    lines.append(Line())
    for cause in report.causes:
        lines += _cause(known, cause, width)
    lines += _families(known, width)
    for note in report.notes:
        if note.level != "warn":
            for n, piece in enumerate(wrap(words.plain(note.text, 600), width - 13)):
                lines.append(line(("  note      " if n == 0 else " " * 12, "label"), (piece, "dim")))
    return lines


def nobody(report: Report) -> bool:
    """Whether no node could be logged in to."""
    return bool(report.targets) and not any(target.reached for target in report.targets)


def _no_cause(state: State, known: Known, width: int) -> list[Line]:
    report = known.report
    verdict = words.verdict(report)
    first, *more = wrap(words.headline(report), width - len(verdict) - 8)
    lines = [Line(), line("   ", (verdict, VERDICT_STYLES.get(verdict, "head")), "   ", first)]
    lines += [line(" " * (len(verdict) + 6), piece) for piece in more]
    lines.append(Line())
    if report.verdict.state == "ready":
        lines.append(line("   nothing to fix.   ", (_best_numbers(report), "dim")))
        lines += [Line(), line("   2  see the full matrix", key=("screen", "matrix"))]
        if report.measures or report.pairs:
            lines.append(line("   3  see pairs and bandwidth", key=("screen", "pairs")))
        lines.append(line("   6  compare with another report", key=("screen", "diff")))
    lines.append(Line())
    return lines + _families(known, width)


def _best_numbers(report: Report) -> str:
    """The two numbers people ask for, where they were measured."""
    skews = [m for m in report.measures if m.name == "time.skew"]
    rates = [p for p in report.pairs if p.check.startswith("bw.") and p.value is not None]
    parts = []
    if skews:
        most = max(skews, key=lambda m: abs(m.value))
        error = f" +/- {words.figure(most.error)}" if most.error is not None else ""
        parts.append(f"worst skew {words.figure(most.value)}{error} {words.plain(most.unit, 10)}")
    if rates:
        least = min(rates, key=lambda p: p.value if p.value is not None else 0.0)
        parts.append(
            f"slowest pair {words.figure(least.value or 0.0)} {words.plain(least.unit or '', 10)}"
            f" ({words.plain(least.from_, 40)} -> {words.plain(least.to, 40)})"
        )
    return "   ".join(parts)


def _small_cause(known: Known, cause: Cause, width: int) -> list[Line]:
    key = ("cause", known.key_of(cause))
    head = f"[{cause.id}] "
    lines = [
        line(
            head,
            (words.word(cause.status), STATUS_STYLES.get(cause.status, "unknown")),
            f" {words.cause_check(cause)}",
            key=key,
        ),
        line(f"    {fit(words.cause_nodes(known.report, cause), width - 8).rstrip()}"),
    ]
    pieces = wrap(words.title(cause), width - 6, "    ")
    return lines + [line(piece) for piece in pieces[:2]]


def _cause(known: Known, cause: Cause, width: int) -> list[Line]:
    report = known.report
    check = words.cause_check(cause)
    head = f"[{cause.id}]"
    word = words.word(cause.status)
    room = width - 2 - len(head) - 1 - len(word) - 2 - len(check) - 4
    pieces = wrap(words.title(cause), room)
    start = len(head) + len(word) + 5
    lines = [
        line(
            f"{head} ",
            (word, STATUS_STYLES.get(cause.status, "unknown")),
            "  ",
            (fit(pieces[0], room), "head"),
            "  ",
            (check, "dim"),
            key=("cause", known.key_of(cause)),
        )
    ]
    lines += [line(" " * (start - 2), (piece, "head")) for piece in pieces[1:3]]
    about = [words.cause_nodes(report, cause)]
    if cause.held:
        about.append(f"holds up {words.number(cause.held, 'result')}")
    if cause.confidence not in ("certain", ""):
        about.append(words.plain(cause.confidence, 20))
    if cause.fixes:
        about.append(words.number(len(cause.fixes), "fix").replace("fixs", "fixes"))
    lines.append(line(" " * (start - 2), (fit(",  ".join(filter(None, about)), width - start - 2), "dim")))
    lines.append(Line())
    return lines


def _families(known: Known, width: int) -> list[Line]:
    report = known.report
    lines = []
    for row in report.families:
        status = words.family_status(report, row, known.index)
        who, remark = words.family_value(report, row, known.index)
        room = max(width - 30, 10)
        who = words.plain(who, 300)
        text = f"{who:<16} {words.plain(remark, 300)}" if remark else who
        lines.append(
            line(
                "  ",
                (f"{words.word(status):<8}", STATUS_STYLES.get(status, "unknown")),
                f"{words.family_label(row.family):<11}{row.checks:>3}   ",
                (fit(text, room).rstrip(), "dim"),
                key=("family", row.family),
            )
        )
    if lines:
        lines.append(line(("  " + fit(words.counts_line(report), width - 4).rstrip(), "dim")))
    return lines


# One cause


def cause(known: Known, item: Cause, width: int) -> list[Line]:
    """Evidence, scope, fixes, and the command that proves the fix."""
    report = known.report
    word = words.word(item.status)
    check = words.cause_check(item)
    room = width - len(word) - len(check) - 14
    lines = [
        line(
            f" [{item.id}] ",
            (word, STATUS_STYLES.get(item.status, "unknown")),
            "  ",
            (text if n else fit(text, room), "head"),
            "  " if n == 0 else "",
            (check if n == 0 else "", "dim"),
        )
        if n == 0
        else line(" " * (len(word) + 8), (text, "head"))
        for n, text in enumerate(wrap(words.title(item), room)[:4])
    ]
    lines.append(line(("-" * width, "rule")))
    if width >= TWO_COLUMNS:
        left = width - 42
        lines += beside(_seen(item, left), _scope(known, item, 38), left)
    else:
        lines += _seen(item, width) + _scope(known, item, width)
    lines.append(Line())
    total = len(item.fixes)
    for number, fix in enumerate(item.fixes):
        label = "look" if fix.kind == "look" else "fix"
        label += f" {number + 1} of {total}" if total > 1 else ""
        pieces = wrap(words.fix_label(report, fix), width - 15)
        lines.append(line((f" {label:<11} ", "label"), pieces[0], key=("fix", known.key_of(item), number)))
        lines += [line(" " * 13, piece) for piece in pieces[1:]]
        for shell in words.fix_commands(fix, every=True)[:20]:
            lines += _command(shell, width)
        for shell in words.to_paste(fix.undo)[:20]:
            lines += [line((" " * 13 + "undo", "label")), *_command(shell, width)]
    if not item.fixes:
        settle = words.plain(item.settle_by or "", 400)
        text = f"none known; to settle it: {settle}" if settle else "none known"
        lines += [line((" fix         ", "label"), piece) for piece in wrap(text, width - 15)]
    if item.verify is not None:
        shell = words.command(item.verify.shell)
        pieces = wrap(shell, width - 15)
        key = ("verify", known.key_of(item))
        lines.append(line((" verify      ", "label"), (pieces[0], "command"), key=key))
        lines += [line(" " * 15, (piece, "command")) for piece in pieces[1:]]
    if item.why:
        lines += [
            line((" why         " if n == 0 else " " * 13, "label"), (piece, "dim"))
            for n, piece in enumerate(wrap(words.plain(item.why, 600), width - 15))
        ]
    if item.see:
        lines.append(line((" see         ", "label"), (words.plain(item.see, 200), "dim")))
    return lines


def _command(shell: str, width: int) -> list[Line]:
    """A command, broken where it is too long; copying takes it whole."""
    return [line(("   " + piece, "command")) for piece in wrap(shell, width - 6, "    ", "")]


def _seen(item: Cause, width: int) -> list[Line]:
    lines = [line((" seen", "label"))]
    for text in item.seen:
        lines += [line(piece) for piece in wrap(words.plain(text, 600), width - 2, "     ", "   ")]
    return lines


def _scope(known: Known, item: Cause, width: int) -> list[Line]:
    report = known.report
    count = len(item.node_list)
    lines = [line(("affected", "label"), f"   {words.number(count, 'node')}" if count > 1 else "")]
    lines += [line(p) for p in wrap(words.cause_nodes(report, item), width, "  ")[:3]]
    held = words.explains(report, item, known.index)
    if held:
        lines.append(line(("held up by this", "label")))
        for text in held:
            lines += [line(p) for p in wrap(text, width, "  ")[:4]]
    lines.append(line(("confidence  ", "label"), words.plain(item.confidence, 20)))
    evidence = sum(len(r.evidence) for r in results_of(known, item))
    lines.append(line(("evidence    ", "label"), words.number(evidence, "item"), ("  (e opens)", "dim")))
    return lines


def results_of(known: Known, item: Cause) -> list[Result]:
    """The results that a cause groups, those that it holds up left out."""
    return [r for r in known.report.results if r.cause == item.id and r.status != "blocked"]


# Evidence


def evidence(known: Known, results: Sequence[Result], width: int) -> list[Line]:
    """Results with what was observed, expected, and the very output that was judged."""
    lines: list[Line] = []
    for result in results[:200]:
        lines += _result(known, result, width)
        lines.append(Line())
    if len(results) > 200:
        lines.append(line((f" and {len(results) - 200} more results", "dim")))
    return lines or [line((" no result was recorded here; a plain pass leaves none", "dim"))]


def _result(known: Known, result: Result, width: int) -> list[Line]:
    key = ("cell", result.check, result.target)
    lines = [
        line(
            " ",
            (words.word(result.status), STATUS_STYLES.get(result.status, "unknown")),
            f"  {words.plain(result.check, 60)}  {words.plain(result.target, 80)}",
            (f"  [{result.cause}]" if result.cause is not None else "", "dim"),
            key=key,
        )
    ]
    title = known.titles.get(result.check)
    if title:
        lines += labelled("healthy", [words.plain(title, 300)], width, "dim")
    lines += labelled("says", [words.plain(result.summary, 600)], width)
    if result.observed is not None:
        lines += labelled("observed", [words.plain(result.observed, 600)], width)
    if result.expected is not None:
        source = f" ({words.plain(result.expected_from, 20)})" if result.expected_from else ""
        lines += labelled("expected", [words.plain(result.expected, 600) + source], width)
    for item in result.evidence:
        where = f"{words.plain(item.where, 60)}: " if item.where else ""
        lines += labelled(words.plain(item.kind, 9), [where + words.plain(item.what, 400)], width, "command")
        for text in item.output.split("\n")[:200]:
            shown = words.escaped(text.expandtabs(4))[:2000]
            lines += [line("      ", (piece, "dim")) for piece in _chunks(shown, width - 8)]
        if item.truncated:
            lines.append(line(("      (cut)", "dim")))
    return lines


def _chunks(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]


# Live scan


def scan_panel(state: State, width: int) -> list[Line]:
    """Phases with bars, then nodes that take long, then the latest trouble. At most eight lines."""
    lines = []
    bar = max(min(40, width - 50), 8)
    for phase in state.phases[-5:]:
        name = words.plain(phase.name, 10)
        if phase.ended is not None:
            took = phase.ended - phase.began
            lines.append(
                line((f" {name:<10} ", "label"), ("#" * bar, "good"), (f" done in {took:.1f} s", "dim"))
            )
        elif phase.total and phase.done:
            full = bar * phase.done // phase.total
            lines.append(
                line(
                    (f" {name:<10} ", "label"),
                    ("#" * full, "head"),
                    ("." * (bar - full), "dim"),
                    f" {phase.done}/{phase.total}",
                )
            )
        else:
            of = f", {words.number(phase.total, 'node')}" if phase.total else ""
            taken = state.now - phase.began
            lines.append(line((f" {name:<10} ", "label"), ("." * bar, "dim"), f" {taken:.0f} s{of}"))
    late = slow(state)
    if late:
        taken, usual, nodes = late
        lines.append(
            line(
                (" slow       ", "label"),
                (
                    fit(f"{words.fold(nodes[:200], 40)} {taken:.0f} s (usual {usual:.1f} s)", width - 14),
                    "warn",
                ),
            )
        )
    if state.news:
        lines.append(line((" new        ", "label"), (fit(";  ".join(state.news[:3]), width - 14), "fail")))
    return lines
