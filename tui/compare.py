"""The Diff screen: what changed since another report."""

from collections.abc import Sequence

from netdoctor.report import describe, fmt, summary
from netdoctor.report.diff import Change, Diff
from netdoctor.report.model import Cause, Report
from netdoctor.tui.lines import STATUS_STYLES, Line, fit, labelled, line


def page(found: Diff, before: Report, now: Report, width: int, *, changes_only: bool = False) -> list[Line]:
    """Causes that are new or fixed, results that got worse or better, values that moved, facts, hosts."""
    lines = [
        line(
            f" {_when(before)} -> {_when(now)}   ",
            (f"{summary.verdict(before)} -> {summary.verdict(now)}", "head"),
        ),
        Line(),
    ]
    if found.empty:
        lines.append(line("   nothing changed."))
    lines += _causes("new", "fail", found.new, width)
    lines += _causes("fixed", "good", found.healed, width)
    lines += _causes("open", "dim", found.open, width)
    if not changes_only:
        lines += _causes("still", "dim", found.same, width)
    lines += _changes("worse", found.worse, now, width)
    lines += _changes("better", found.better, now, width)
    lines += _changes("other", found.other, now, width)
    lines += _texts(
        "moved",
        [
            f"{fmt.plain(m.name, 40)}  {fmt.plain(m.target, 50)}   "
            f"{fmt.figure(m.before)} -> {fmt.figure(m.now)} {fmt.plain(m.unit, 12)}  {m.ratio:+.0%}"
            for m in found.moved
        ],
        width,
    )
    lines += _texts(
        "facts",
        [
            f"{fmt.plain(f.fact, 20)}  {fmt.nodes_text(now, f.nodes, 40)}   "
            f"{fmt.plain(f.before, 60)} -> {fmt.plain(f.now, 60)}"
            for f in found.facts
        ],
        width,
    )
    hosts = [f"+ {fmt.fold(found.nodes_added, 80)}"] if found.nodes_added else []
    hosts += [f"- {fmt.fold(found.nodes_removed, 80)}"] if found.nodes_removed else []
    lines += _texts("hosts", hosts, width)
    checks = [f"+ {fmt.plain(', '.join(found.checks_added), 200)}"] if found.checks_added else []
    checks += [f"- {fmt.plain(', '.join(found.checks_removed), 200)}"] if found.checks_removed else []
    return lines + _texts("checks", checks, width)


def _when(report: Report) -> str:
    return fmt.plain(report.run.finished[:16].replace("T", " "), 20) or "?"


def _causes(label: str, style: str, items: Sequence[Cause], width: int) -> list[Line]:
    return [
        line(
            (f" {label if n == 0 else '':<8}", "label"),
            (
                f"{summary.word(c.status):<8}",
                STATUS_STYLES.get(c.status, "unknown") if style == "fail" else style,
            ),
            fit(describe.title(c), width - 20).rstrip(),
            key=("cause-of", "before" if label in ("fixed", "open") else "now", c.fingerprint),
        )
        for n, c in enumerate(items)
    ]


def _changes(label: str, items: Sequence[Change], report: Report, width: int) -> list[Line]:
    return [
        line(
            (f" {label if n == 0 else '':<8}", "label"),
            (fit(f"{c.before} -> {c.now}", 20), STATUS_STYLES.get(c.now, "")),
            fit(
                f"{fmt.plain(c.check, 40):<16} {fmt.nodes_text(report, c.nodes, 40):<14} "
                f"{fmt.plain(c.summary, 200)}",
                width - 31,
            ).rstrip(),
            key=("changed", c.check, c.nodes[0]),
        )
        for n, c in enumerate(items)
    ]


def _texts(label: str, texts: Sequence[str], width: int) -> list[Line]:
    lines = labelled(f" {label:<8}", (fit(text, width - 12).rstrip() for text in texts[:200]))
    if len(texts) > 200:
        lines.append(line((f"         and {len(texts) - 200} more", "dim")))
    return lines


def markdown(found: Diff, before: Report, now: Report) -> str:
    """The changes as Markdown, each on a line of a code block: nothing in it can become markup."""
    lines = page(found, before, now, 120)
    return "```\n" + "\n".join(one.text.rstrip().replace("`", "'") for one in lines) + "\n```\n"
