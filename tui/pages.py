"""What the screens say, as lines for a given width: pure functions of a report and of where somebody looks.

Everything that came from outside passes `fmt.plain` (one harmless line) or `commands.display` here.
"""

from collections.abc import Sequence
from dataclasses import replace

from netdoctor.compat import UTC, instant
from netdoctor.errors import InputError
from netdoctor.report import commands, describe, families, fmt, summary
from netdoctor.report.formats import trial
from netdoctor.report.kept import pair_checks, pairs_of
from netdoctor.report.model import Cause, Report, Result
from netdoctor.tui.lines import (
    LETTER_OF,
    TWO_COLUMNS,
    VERDICT_STYLES,
    Line,
    cell_span,
    cut,
    fit,
    labelled,
    line,
    side_by_side,
    status_span,
    width_of,
    wrap,
)
from netdoctor.tui.state import RANK, Cells, Known, State, is_of_log, left_s, mark, slow, worst

SMALL_BELOW = 80
MARGIN = 2  # what a page keeps for its cursor and its scroll bar
MOST_ACCEPTED = 3
BAR = 16  # columns
DAY_S = 86_400


# Header


def age_s(report: Report, now: float) -> float | None:
    """Seconds since a report was finished, None when it does not say."""
    try:
        finished = instant(report.run.finished)
    except ValueError:
        return None
    if finished.tzinfo is None:
        finished = finished.replace(tzinfo=UTC)
    return now - finished.timestamp()


def age_text(seconds: float) -> str:
    days, hours = divmod(int(seconds // 3600), 24)
    return f"{fmt.number(days, 'day')} old" if days else f"{fmt.number(hours, 'hour')} old"


def header(state: State, width: int, now: float, spinner: str = "") -> Line:
    """Verdict, hosts, sizes, and when that was; of a scan of some cells, which and for how long."""
    if state.scanning and state.partial:
        right = _now(state, spinner)
        what = fit(state.running, max(width - len(right) - 16, 8)).rstrip()
        gap = max(width - 14 - width_of(what) - len(right) - 1, 1)
        return line((" RE-RUNNING ", "chip.head"), "  ", what, " " * gap, right, fill="band.head")
    verdict, causes = state.verdict, len(state.report.causes) if state.report else 0
    count = f" {fmt.number(causes, 'cause')}" if causes else ""
    count += f" +{len(state.log)} log" if state.log and state.report else ""
    nodes = fmt.number(len(state.cells.nodes), "node")
    when = _now(state, spinner) if state.scanning else _then(state, now)
    sizes = f"{nodes}, {fmt.number(len(state.cells.checks), 'check')}"
    source = fmt.plain(state.source, 400)
    profile = fmt.plain(state.profile, 10)
    # What is said as long as there is room for it; less and less of it.
    ways = [
        (source, sizes, f"{profile}   {when}"),
        (source, sizes, when),
        (source, nodes, when),
        ("", nodes, when),
        ("", nodes, _clock(state.now - state.began) if state.scanning else ""),
    ]
    chip = f" {verdict} "
    for name, size, right in ways:
        room = width - width_of(f"{chip}{count}{size}{right}") - (10 if name else 7)
        if room >= min(width_of(name), 12):
            break
    # The end of a path says more than its beginning.
    name = name if width_of(name) <= room else f"..{name[-(room - 2) :]}"
    rest = "   ".join(filter(None, (name, size, right)))
    look = VERDICT_STYLES.get(verdict, "head")
    gap = max(width - width_of(f"{chip}{count}{rest}") - 2, 2)
    return line((chip, f"chip.{look}"), " ", count, " " * gap, rest, fill=f"band.{look}")


def _now(state: State, spinner: str) -> str:
    """What a scan does now, how long it has taken, and how long it may still take."""
    phase = next((p for p in reversed(state.phases) if p.ended is None), None)
    doing = f"{fmt.plain(phase.name, 12)} {phase.done}/{phase.total}   " if phase and phase.total else ""
    rest = left_s(state)
    left = f", {rest[0]} {_clock(rest[1])} left" if rest is not None and rest[1] >= 1 else ""
    doing = doing if state.partial else ""  # a scan of everything shows its phases
    return f"{doing}{spinner} {_clock(max(state.now - state.began, 0.0))}{left}".strip()


def _then(state: State, now: float) -> str:
    """When the report was made and how long that took; its age where that is more than a day."""
    report = state.report
    if report is None:
        return ""
    old = age_s(report, now)
    clock = fmt.plain(report.run.finished[11:16], 5) if len(report.run.finished) >= 16 else ""
    age = age_text(old) if old is not None and old > DAY_S else clock
    return f"{age}  {fmt.seconds(report.run.duration_ms)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


# Causes


def banners(state: State, now: float, width: int) -> list[Line]:
    """What has to be known before anything else is read."""
    report = state.report
    if report is None:
        return []
    texts = []
    if not report.run.complete:
        what = {"deadline": "the deadline ended the scan", "interrupt": "the scan was interrupted"}.get(
            report.run.ended_by, "the scan did not end by itself"
        )
        texts.append(
            f"{what}: {fmt.number(report.verdict.counts.unknown, 'result')} unknown (?), the rest is true"
        )
    old = age_s(report, now)
    if old is not None and old > DAY_S:
        texts.append(f"this report is {age_text(old)}: Ctrl-R scans again")
    texts += [fmt.plain(note.text, 300) for note in report.notes if note.level == "warn"]
    found = [line((piece, "warn")) for text in texts for piece in wrap(text, width - 2, "    ", "  ! ")]
    accepted = summary.accepted(report)
    found += [line(("  accepted  ", "label"), (text, "dim")) for text in accepted[:MOST_ACCEPTED]]
    if len(accepted) > MOST_ACCEPTED:
        found.append(line((f"            and {len(accepted) - MOST_ACCEPTED} more", "dim")))
    return found


def causes(state: State, known: Known, width: int, now: float, *, small: bool = False) -> list[Line]:
    """The causes, worst first, then one line per family, then what was noted. small: the causes alone."""
    report = known.report
    lines = banners(state, now, width)
    if lines:
        lines.append(Line())
    tried = _trial(report, width)
    if not known.listed:
        return [*lines, *_no_cause(state, known, width, tried)]
    if small:
        for cause in known.listed:
            lines += _small_cause(known, cause, width)
        return [*lines, *tried]
    lines += [line("  ", (piece, "head")) for piece in wrap(summary.headline(report), width - 4)]
    if report.targets and not any(target.reached for target in report.targets):
        text = "nothing else can be examined until this works; R scans again"
        lines += [line((f"  {piece}", "dim")) for piece in wrap(text, width - 4)]
    lines.append(Line())
    for cause in known.listed:
        lines += _cause(known, cause, width)
    lines += tried
    lines += _families(known, width)
    for note in report.notes:
        if note.level != "warn":
            lines += labelled("  note      ", wrap(fmt.plain(note.text, 600), width - 13), "dim")
    return lines


def _trial(report: Report, width: int) -> list[Line]:
    """What the job itself came to, where it was tried on these nodes; with a ladder, how it scales."""
    found = report.trial
    if found is None:
        return []
    look = {"pass": "good", "fail": "bad", "warn": "warn"}.get(trial.status(found), "open")
    first, *more = wrap(fmt.plain(found.headline, 400), width - 16)
    lines = [Line(), line("  ", (f"{trial.word(found):<12}", look), (first, "head"))]
    lines += [line(" " * 14, piece) for piece in more]
    for label, text in trial.rows(found):
        lines += labelled(f"  {label:<12}", wrap(text, width - 16))
    if found.ladder is not None:
        table = trial.ladder_lines(found.ladder, width - 4)
        lines += [Line(), *(line("  ", (row, "" if n else "dim")) for n, row in enumerate(table))]
    return [*lines, Line()]


def _no_cause(state: State, known: Known, width: int, tried: list[Line]) -> list[Line]:
    report = known.report
    verdict = summary.verdict(report)
    first, *more = wrap(summary.headline(report), width - len(verdict) - 8)
    lines = [Line(), line("   ", (verdict, VERDICT_STYLES.get(verdict, "head")), "   ", first)]
    lines += [line(" " * (len(verdict) + 6), piece) for piece in more]
    lines += tried or [Line()]
    if report.verdict.state == "ready":
        first, *more = _items(_best_numbers(report), width - 22, "   ")
        lines.append(line("   nothing to fix.   ", (first, "dim")))
        lines += [line(" " * 21, (piece, "dim")) for piece in more]
        lines += [Line(), line("   2  see the full matrix", key=("screen", "matrix"))]
        if report.measures or report.pairs:
            lines.append(line("   3  see pairs and bandwidth", key=("screen", "pairs")))
        lines.append(line("   5  compare with another report", key=("screen", "diff")))
    lines.append(Line())
    return lines + _families(known, width)


def _best_numbers(report: Report) -> str:
    """The two numbers people ask for, where they were measured."""
    skews = [m for m in report.measures if m.name == "time.skew"]
    rated = [check for check in pair_checks(report) if check.startswith("bw.")]
    try:
        rates = [p for check in rated for p in pairs_of(report, check) if p.value is not None]
    except InputError:  # the screen of pairs says it
        rates = []
    parts = []
    if skews:
        most = max(skews, key=lambda m: abs(m.value))
        error = f" +/- {fmt.figure(most.error)}" if most.error is not None else ""
        parts.append(f"worst skew {fmt.figure(most.value)}{error} {fmt.plain(most.unit, 10)}")
    if rates:
        least = min(rates, key=lambda p: p.value if p.value is not None else 0.0)
        parts.append(
            f"slowest pair {fmt.figure(least.value or 0.0)} {fmt.plain(least.unit or '', 10)}"
            f" ({fmt.plain(least.from_, 40)} -> {fmt.plain(least.to, 40)})"
        )
    return "   ".join(parts)


def _small_cause(known: Known, cause: Cause, width: int) -> list[Line]:
    key = ("cause", known.key_of(cause))
    head = f"{mark(cause)} "
    lines = [
        line(head, status_span(cause.status), f" {_origin(cause)}", key=key),
        line(f"    {fit(describe.cause_nodes(known.report, cause), width - 8).rstrip()}"),
    ]
    pieces = wrap(describe.title(cause), width - 6, "    ")
    return lines + [line(piece) for piece in pieces[:2]]


def _origin(cause: Cause) -> str:
    """The check that found a cause, or that a log names it."""
    return "log" if is_of_log(cause) else describe.cause_check(cause)


def _cause(known: Known, cause: Cause, width: int) -> list[Line]:
    head = f"{mark(cause)} "
    word = summary.word(cause.status)
    start = len(head) + len(word) + 2
    first, *more = wrap(describe.title(cause), width - start - 1)
    key = ("cause", known.key_of(cause))
    lines = [line(head, status_span(cause.status), "  ", (first, "head"), key=key)]
    lines += [line(" " * start, (piece, "head")) for piece in more[:2]]
    remarks = [describe.cause_nodes(known.report, cause), _origin(cause)]
    if cause.held:
        remarks.append(f"blocks {fmt.number(cause.held, 'result')}")
    if cause.confidence not in ("certain", ""):
        remarks.append(fmt.plain(cause.confidence, 20))
    text = "  ".join(filter(None, remarks))
    under = start if width_of(text) < width - start else len(head)
    pieces = wrap(text, width - under - 1)
    return [*lines, *(line(" " * under, (piece, "dim")) for piece in pieces[:2]), Line()]


def _families(known: Known, width: int) -> list[Line]:
    """A line per family, what is worst first."""
    report = known.report
    lines = []
    rows = [(families.status(report, row, known.index), row) for row in report.families]
    for status, row in sorted(rows, key=lambda one: -RANK.get(LETTER_OF.get(one[0], ""), 0)):
        who, remark = families.value(report, row, known.index)
        who, remark = fmt.plain(who, 300), fmt.plain(remark, 300)
        text = f"{who:<16} {remark}" if remark else who
        room = max(width - 28, 10)
        texts = (text,) if width_of(text) <= room else (who, remark)
        pieces = [piece for some in texts for piece in _items(some, room) if piece] or [""]
        head = f"{families.label(row.family):<11}{row.checks:>3}   "
        word = status_span(status, f"{summary.word(status):<8}")
        lines.append(line("  ", word, head, (pieces[0], "dim"), key=("family", row.family)))
        lines += [line(" " * 27, (piece, "dim")) for piece in pieces[1:4]]
    return lines


def _items(text: str, width: int, between: str = ", ") -> list[str]:
    """A list in lines that break between its items."""
    items = text.split(between)
    fits = all(width_of(item) < width for item in items)
    pieces = wrap(between.join(item.replace(" ", "\xa0") for item in items) if fits else text, width)
    return [piece.replace("\xa0", " ") for piece in pieces]


def family(known: Known, cells: Cells, name: str, width: int) -> list[Line]:
    """The checks of a family, each with the worst that it says of any node."""
    lines = [line((f" checks of {families.label(name)}", "label")), Line()]
    for column in (c for c, family in enumerate(cells.families) if family == name):
        letters = cells.cells[column :: len(cells.checks)]
        check = cells.checks[column]
        title = fit(fmt.plain(known.titles.get(check) or "", 300), max(width - 24, 8)).rstrip()
        lines.append(line(cell_span(worst(letters)), f" {fit(fmt.plain(check, 60), 18)} ", (title, "dim")))
    return lines


def every_family(known: Known, cells: Cells, width: int) -> list[Line]:
    """The checks of all families, one family below the other."""
    names = dict.fromkeys(cells.families)
    return [each for name in names for each in (*family(known, cells, name, width), Line())][:-1]


# One cause


def cause(known: Known, item: Cause, width: int, *, brief: bool = False) -> list[Line]:
    """What fixes it and the command that proves that, then what was found, its scope and why it matters.

    brief: of further fixes only what they do, and nothing of how a fix is undone.
    """
    word, check = summary.word(item.status), _origin(item)
    head = f" {mark(item)} "
    start = len(head) + len(word) + 2
    first, *more = wrap(describe.title(item), width - start - 1)
    lines = [line(head, status_span(item.status), "  ", (first, "head"))]
    lines += [line(" " * start, (text, "head")) for text in more[:3]]
    nodes = f"{describe.cause_nodes(known.report, item)}  {check}"
    lines += [line(" " * start, (fit(nodes, width - start - 1).rstrip(), "dim")), Line()]
    lines += [*_fixes(known, item, width, brief=brief), *_verify(known, item, width), Line()]
    wide = width >= TWO_COLUMNS and bool(item.seen)
    left = width - 42 if wide else width
    evidence, scope = _evidence_of(item, left), _scope(known, item, 38 if wide else width)
    lines += (
        side_by_side(evidence, scope, left) if wide else [*evidence, *([Line()] if evidence else []), *scope]
    )
    if item.why:
        lines += labelled(" why         ", wrap(fmt.plain(item.why, 600), width - 15), "dim")
    if item.see:
        lines.append(line((" see         ", "label"), (fmt.plain(item.see, 200), "dim")))
    return lines


def _fixes(known: Known, item: Cause, width: int, *, brief: bool) -> list[Line]:
    """Each fix with its commands; without one, what would settle the cause."""
    lines = []
    total = len(item.fixes)
    for number, fix in enumerate(item.fixes):
        label = "inspect" if fix.kind == "look" else "fix"
        label += f" {number + 1} of {total}" if total > 1 else ""
        pieces = wrap(describe.script_label(known.report, fix), width - 15)
        risk = "fail" if fix.risk == "high" else ""
        key = ("fix", known.key_of(item), number)
        lines.append(line((f" {label:<11} ", "label"), (pieces[0], risk), key=key))
        lines += [line(" " * 13, (piece, risk)) for piece in pieces[1:]]
        if brief and number:
            continue
        for shell in commands.to_type(fix, every=True)[:20]:
            lines += _command(shell, width)
        for shell in () if brief else commands.to_undo(fix)[:20]:
            lines += [line((" " * 13 + "undo", "label")), *_command(shell, width)]
    if not item.fixes:
        settle = fmt.plain(item.settle_by or "", 400)
        text = f"none known; to settle it: {settle}" if settle else "none known"
        lines += [line((" fix         ", "label"), piece) for piece in wrap(text, width - 15)]
    return lines


def _verify(known: Known, item: Cause, width: int) -> list[Line]:
    """The command that proves the fix, if there is one."""
    if item.verify is None:
        return []
    head = line((" verify", "label"), key=("verify", known.key_of(item)))
    return [head, *_command(commands.display(item.verify.shell), width)]


def _command(shell: str, width: int) -> list[Line]:
    """A command, broken where it is too long; copying takes it whole."""
    return [line(("   " + piece, "command"), fill="code") for piece in wrap(shell, width - 6, "    ", "")]


def _evidence_of(item: Cause, width: int) -> list[Line]:
    lines = [line((" found", "label"))] if item.seen else []
    for text in item.seen:
        lines += [line(piece) for piece in wrap(fmt.plain(text, 600), width - 2, "     ", "   ")]
    return lines


def _scope(known: Known, item: Cause, width: int) -> list[Line]:
    report = known.report
    count, names = len(item.node_list), describe.cause_nodes(report, item)
    many = f"   {fmt.number(count, 'node')}" if count > 1 and not names.startswith("all ") else ""
    lines = [line((" affected", "label"), many)]
    lines += [line(p) for p in wrap(names, width, "   ")[:3]]
    for label, what in (("blocks", describe.blocks), ("also", describe.explains)):
        texts = what(report, item, known.index)
        lines += [line((f" {label}", "label"))] if texts else []
        for text in texts:
            lines += [line(p) for p in wrap(text, width, "   ")[:4]]
    lines.append(line((" confidence  ", "label"), fmt.plain(item.confidence, 20)))
    if is_of_log(item):
        lines.append(line((" decided by  ", "label"), fmt.plain(", ".join(item.checks) or "no check", 200)))
        return lines
    evidence = sum(len(r.evidence) for r in results_of(known, item))
    items, hint = (fmt.number(evidence, "item"), "  (e opens)") if evidence else ("none kept", "")
    lines.append(line((" evidence    ", "label"), items, (hint, "dim")))
    return lines


def results_of(known: Known, item: Cause) -> list[Result]:
    """The results that a cause groups, those that it holds up left out."""
    return [r for r in known.report.results if r.cause == item.id and r.status != "blocked"]


# Evidence


def evidence(known: Known, results: Sequence[Result], width: int) -> list[Line]:
    """Results with what was observed, expected, and the very output that was judged."""
    lines: list[Line] = []
    groups = by_words(results)
    for group in groups[:200]:
        lines += _result(known, group, width)
        lines.append(Line())
    if rest := sum(map(len, groups[200:])):
        lines.append(line((f" and {fmt.number(rest, 'more result')}", "dim")))
    return lines or [line((" no result was recorded here; a plain pass leaves none", "dim"))]


def by_words(results: Sequence[Result]) -> list[list[Result]]:
    """Results that say the same of several targets, together, in the order of the first of each."""
    groups: dict[Result, list[Result]] = {}
    for result in results:
        groups.setdefault(replace(result, target="", duration_ms=None), []).append(result)
    return list(groups.values())


def _result(known: Known, group: Sequence[Result], width: int) -> list[Line]:
    """What is said of a target, or of several alike."""
    result, targets = group[0], [one.target for one in group]
    key = ("cell", result.check, result.target)
    names = fmt.plain(result.target, 80) if len(group) == 1 else fmt.nodes_text(known.report, targets, 80)
    many = f" ({len(group)})" if len(group) > 1 and not names.startswith("all ") else ""
    lines = [
        line(
            " ",
            status_span(result.status),
            f"  {fmt.plain(result.check, 60)}  {names}{many}",
            (f"  [{result.cause}]" if result.cause is not None else "", "dim"),
            key=key,
        )
    ]
    title = known.titles.get(result.check)
    if title:
        lines += _stated("healthy", fmt.plain(title, 300), width, "dim")
    lines += _stated("says", fmt.plain(result.summary, 600), width)
    if result.observed is not None:
        lines += _stated("observed", fmt.plain(result.observed, 600), width)
    if result.expected is not None:
        source = f" ({fmt.plain(result.expected_from, 20)})" if result.expected_from else ""
        lines += _stated("expected", fmt.plain(result.expected, 600) + source, width)
    for item in result.evidence:
        where = f"{fmt.plain(item.where, 60)}: " if item.where else ""
        lines += _stated(fmt.plain(item.kind, 9), where + fmt.plain(item.what, 400), width, "command")
        for text in item.output.split("\n")[:200]:
            text_ = fmt.escaped(text.expandtabs(4))[:2000]
            lines += [line("      ", (piece, "dim")) for piece in _chunks(text_, width - 8)]
        if item.truncated:
            lines.append(line(("      (cut)", "dim")))
    return lines


def _stated(label: str, text: str, width: int, style: str = "") -> list[Line]:
    return labelled(f"  {label:<10}", wrap(text, width - 12), style)


def _chunks(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]


# Live scan


def scan_panel(state: State, width: int) -> list[Line]:
    """Phases, with a bar for the one that goes on, and the nodes it waits for; then the latest trouble."""
    parts: list[str | tuple[str, str]] = []
    for phase in state.phases[-5:]:
        name = f" {fmt.plain(phase.name, 10)} "
        if phase.ended is not None:
            parts += [name, ("done ", "dim")]  # which says nothing of what it found
            continue
        full = BAR * min(phase.done, phase.total) // phase.total if phase.total else 0
        count = f" {phase.done}/{phase.total}" if phase.total else ""
        parts += [(name, "head"), ("#" * full, "busy"), "." * (BAR - full), count]
        parts.append(f" {state.now - phase.began:.0f} s ")
    if (late := slow(state)) is not None:
        _, typical, nodes = late
        parts.append((f"  waiting for {fmt.fold(nodes[:200], 40)} (usual {typical:.1f} s)", "warn"))
    lines = [Line(cut(line(*parts), width), fill="band")] if parts else []
    if state.news:
        text = fit(";  ".join(state.news[:3]), width - 8)
        lines.append(line((" new    ", "label"), (text, "fail"), fill="band"))
    return lines
