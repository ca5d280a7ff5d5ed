"""The Diff screen: what changed since another report."""

from collections.abc import Hashable, Sequence

from netdoctor.report import describe, fmt, summary
from netdoctor.report.changes import trial_label, trial_lines
from netdoctor.report.diff import Change, Diff
from netdoctor.report.model import Cause, Report
from netdoctor.tui.lines import STATUS_STYLES, Line, Span, fit, labelled, line, width_of, wrap

BESIDE_FROM = 106  # columns of the screen, of a window of 110 and its frame
MOST = 200  # values, facts


def page(found: Diff, before: Report, now: Report, width: int, *, changes_only: bool = False) -> list[Line]:
    """Causes that are new or fixed, results that got worse or better, values that moved, facts, hosts.

    Where there is room for it what was and what is stand beside each other.
    """
    lines = [
        line(
            f" {_when(before)} -> {_when(now)}   ",
            (f"{summary.verdict(before)} -> {summary.verdict(now)}", "head"),
        ),
        _counts(found, changes_only),
        Line(),
    ]
    if found.empty:
        lines.append(line("   nothing changed."))
    wide = width >= BESIDE_FROM
    if wide and not (found.empty and changes_only):
        lines.append(
            _row(("", ""), ("", ""), (f"before {_when(before)}", "dim"), (f"now {_when(now)}", "dim"), width)[
                0
            ]
        )
    causes = _cause_rows if wide else _causes
    lines += causes("new", "fail", found.new, width)
    lines += causes("fixed", "good", found.healed, width)
    lines += causes("open", "dim", found.open, width)
    if not changes_only:
        lines += causes("still", "dim", found.same, width)
    style = {"WORSE": "bad", "BETTER": "good"}.get(trial_label(found.trial), "")
    for text in trial_lines(found.trial):
        lines += [line(("  trial   ", "label"), (piece, style)) for piece in wrap(text, width - 11)[:3]]
    for label, changes in (("worse", found.worse), ("better", found.better), ("other", found.other)):
        if wide:
            lines += _change_rows(label, changes, before, now, width)
        else:
            lines += _changes(label, changes, now, width)
    lines += _values(found, now, width)
    hosts = [f"+ {fmt.fold(found.nodes_added, 80)}"] if found.nodes_added else []
    hosts += [f"- {fmt.fold(found.nodes_removed, 80)}"] if found.nodes_removed else []
    lines += _texts("hosts", hosts, width)
    checks = [f"+ {fmt.plain(', '.join(found.checks_added), 200)}"] if found.checks_added else []
    checks += [f"- {fmt.plain(', '.join(found.checks_removed), 200)}"] if found.checks_removed else []
    return lines + _texts("checks", checks, width)


def _counts(found: Diff, changes_only: bool) -> Line:
    """How many of each, those that say something in colour."""
    counts = [("fixed", "good", found.healed), ("new", "bad", found.new)]
    counts += [] if changes_only else [("still", "head", found.same)]
    counts += [("open", "unknown", found.open)] if found.open else []
    parts: list[str | tuple[str, str]] = []
    for word, style, items in counts:
        parts += [f" {word} ", (str(len(items)), style if items else "dim"), "  "]
    for word, style, many in (
        ("worse", "bad", found.worse),
        ("better", "good", found.better),
        ("other", "", found.other),
    ):
        parts += [f" {word} ", (str(len(many)), style if many else "dim"), "  "]
    return line(*parts)


def _values(found: Diff, now: Report, width: int) -> list[Line]:
    """Values that moved, and facts."""
    moved = [
        (
            f"{fmt.plain(m.name, 40)}  {fmt.plain(m.target, 50)}",
            fmt.figure(m.before),
            f"{fmt.figure(m.now)} {fmt.plain(m.unit, 12)}  {m.ratio:+.0%}",
        )
        for m in found.moved
    ]
    facts = [
        (
            f"{fmt.plain(f.fact, 20)}  {fmt.nodes_text(now, f.nodes, 40)}",
            fmt.plain(f.before, 60),
            fmt.plain(f.now, 60),
        )
        for f in found.facts
    ]
    lines = []
    for label, rows in (("moved", moved), ("facts", facts)):
        if width < BESIDE_FROM:
            lines += _texts(label, [f"{what}   {was} -> {is_}" for what, was, is_ in rows], width)
            continue
        for n, (what, was, is_) in enumerate(rows[:MOST]):
            head = (label if n == 0 else "", "label")
            lines += _row(head, (what, ""), (was, ""), (is_, ""), width)
        lines += [line((f"         and {len(rows) - MOST} more", "dim"))] if len(rows) > MOST else []
    return lines


def _row(
    label: Span, what: Span, was: Span, is_: Span, width: int, key: Hashable = None, pieces: int = 3
) -> list[Line]:
    """A change: what it is about, what was, and what is, each in as many lines as it takes."""
    left = (width - 9) * 2 // 5
    each = (width - 9 - left) // 2
    sizes = (left, each, each)
    texts = [wrap(text, size - 2)[:pieces] for (text, _), size in zip((what, was, is_), sizes, strict=True)]
    lines = []
    for n in range(max(map(len, texts))):
        parts = [(f" {label[0] if n == 0 else '':<8}", label[1])]
        for some, (_, style), size in zip(texts, (what, was, is_), sizes, strict=True):
            parts.append((fit(some[n] if n < len(some) else "", size), style))
        lines.append(line(*parts, key=key if n == 0 else None))
    return lines


def _cause_rows(label: str, style: str, items: Sequence[Cause], width: int) -> list[Line]:
    lines = []
    for n, c in enumerate(items):
        status = (summary.word(c.status), STATUS_STYLES.get(c.status, "unknown"))
        was = status if label != "new" else ("not there", "dim")
        is_ = {"fixed": ("fixed", "good"), "open": ("not found again", "unknown")}.get(label, status)
        key = ("cause-of", "before" if label in ("fixed", "open") else "now", c.fingerprint)
        head = (label if n == 0 else "", style if style != "fail" else "bad")
        lines += _row(head, (describe.title(c), "head"), was, is_, width, key)
    return lines


def _change_rows(label: str, items: Sequence[Change], before: Report, now: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    summaries = (
        [{(r.check, r.target): r.summary for r in report.results} for report in (before, now)]
        if items
        else []
    )
    for n, c in enumerate(items):
        sides = []
        for status, results in zip((c.before, c.now), summaries, strict=True):
            text = fmt.plain(results.get((c.check, c.nodes[0])) or "", 200)
            word = summary.word(status)
            sides.append((f"{word}: {text}" if text else word, STATUS_STYLES.get(status, "")))
        head = (label if n == 0 else "", "label")
        what = f"{fmt.plain(c.check, 40)}  {fmt.nodes_text(now, c.nodes, 40)}"
        lines += _row(head, (what, ""), sides[0], sides[1], width, ("changed", c.check, c.nodes[0]))
    return lines


def _when(report: Report) -> str:
    return fmt.plain(report.run.finished[:16].replace("T", " "), 20) or "?"


def _causes(label: str, style: str, items: Sequence[Cause], width: int) -> list[Line]:
    lines = []
    for n, c in enumerate(items):
        look = STATUS_STYLES.get(c.status, "unknown") if style == "fail" else style
        head = [(f" {label if n == 0 else '':<8}", "label"), (f"{summary.word(c.status):<8}", look)]
        first, *more = wrap(describe.title(c), width - 20)
        key = ("cause-of", "before" if label in ("fixed", "open") else "now", c.fingerprint)
        lines += [line(*head, first, key=key), *(line(" " * 17, piece) for piece in more[:2])]
    return lines


def _changes(label: str, items: Sequence[Change], report: Report, width: int) -> list[Line]:
    lines = []
    for n, c in enumerate(items):
        what = f"{fmt.plain(c.check, 40):<16} {fmt.nodes_text(report, c.nodes, 40):<14}"
        text_, space = fmt.plain(c.summary, 200), width - 31 - width_of(what)
        more = [] if width_of(text_) <= space else wrap(text_, width - 31)[:2]
        change = (fit(f"{c.before} -> {c.now}", 20), STATUS_STYLES.get(c.now, ""))
        head = [(f" {label if n == 0 else '':<8}", "label"), change]
        text = fit(what if more else f"{what} {text_}", width - 31).rstrip()
        lines += [
            line(*head, text, key=("changed", c.check, c.nodes[0])),
            *(line(" " * 29, piece) for piece in more),
        ]
    return lines


def _texts(label: str, texts: Sequence[str], width: int) -> list[Line]:
    lines = labelled(f" {label:<8}", (fit(text, width - 12).rstrip() for text in texts[:MOST]))
    if len(texts) > MOST:
        lines.append(line((f"         and {len(texts) - MOST} more", "dim")))
    return lines


def markdown(found: Diff, before: Report, now: Report) -> str:
    """The changes as Markdown, each on a line of a code block: nothing in it can become markup."""
    lines = page(found, before, now, BESIDE_FROM - 1)
    return "```\n" + "\n".join(one.text.rstrip().replace("`", "'") for one in lines) + "\n```\n"
