"""The Node screen, and the cell under the cursor of the matrix spelled out. Lines for a given width."""

from collections import Counter

from netdoctor.report import describe, fmt, summary
from netdoctor.report.model import Report
from netdoctor.tui.lines import (
    STYLES,
    TWO_COLUMNS,
    Line,
    fit,
    line,
    rule,
    side_by_side,
    status_span,
    width_of,
)
from netdoctor.tui.state import Cells, Known, worst


def page(known: Known, cells: Cells, name: str, width: int) -> list[Line]:
    """A node: its causes, its facts with what differs from the majority marked, its checks."""
    row = cells.nodes.index(name)
    report = known.report
    target = known.targets.get(name)
    letters = cells.row(row)
    status = summary.LETTERS.get(worst(letters), "unknown")
    reach = "not reached"
    if target is not None and target.reached:
        reach = f"{fmt.plain(target.user, 40)}@{fmt.plain(target.address or '', 60)}:{target.port}"
    lines = [
        line(
            f" {fit(fmt.plain(name, 200), 40).rstrip()}  ",
            status_span(status),
            (f"   {reach}", "dim"),
            (f"   rank order {target.order}" if target else "", "dim"),
        ),
        rule(width),
    ]
    for item in known.causes_of(name)[:8]:
        lines.append(
            line(
                f" [{item.id}] ",
                status_span(item.status),
                f"  {fit(describe.title(item), width - 16).rstrip()}",
                key=("cause", known.key_of(item)),
            )
        )
    if len(lines) > 2:
        lines.append(Line())
    facts = _facts(report, name, min(44, width - 2))
    checks = _checks(known, cells, row, width - 48 if width >= TWO_COLUMNS else width)
    if width >= TWO_COLUMNS:
        return lines + side_by_side(facts, checks, 44)
    return lines + facts + [Line()] + checks


def _facts(report: Report, name: str, width: int) -> list[Line]:
    lines = [line((" facts", "label"), ("   * differs from most nodes", "dim"))]
    facts = next((t.facts for t in report.targets if t.id == name), {})
    for fact, value in facts.items():
        given = fmt.plain(value, 100)
        every = Counter(fmt.plain(t.facts[fact], 100) for t in report.targets if fact in t.facts)
        typical, times = every.most_common(1)[0]
        odd = fact != "hostname" and given != typical and times * 2 > every.total()
        lines.append(
            line(
                (" * " if odd else "   ", "warn"),
                (f"{fmt.plain(fact, 14):<14} ", "label"),
                (fit(given, width - 18).rstrip(), "warn" if odd else ""),
            )
        )
        if odd:
            lines.append(line((f"   {'':<14} most: {fit(typical, width - 24).rstrip()}", "dim")))
    if len(lines) == 1:
        lines.append(line(("   none known", "dim")))
    return lines


def _checks(known: Known, cells: Cells, row: int, width: int) -> list[Line]:
    name = cells.nodes[row]
    order = sorted(range(len(cells.checks)), key=lambda c: "X?!b~-. ".find(cells.letter(row, c)))
    lines = [line(("checks", "label"))]
    for column in order:
        letter, check = cells.letter(row, column), cells.checks[column]
        result = known.result(check, name)
        text = fmt.plain(result.summary, 300) if result else ""
        if letter == "b":
            waits = known.cause_of(check, name)
            text = f"blocked by [{waits.id}]" if waits else text
        lines.append(
            line(
                (f"{letter} ", STYLES.get(letter, "")),
                f"{fit(fmt.plain(check, 60), 20)} ",
                (fit(text, max(width - 24, 8)).rstrip(), "" if letter in "X!?" else "dim"),
                key=("cell", check, name),
            )
        )
    return lines


def under_cursor(known: Known | None, cells: Cells, node: str, check: str | None, width: int) -> list[Line]:
    """Three lines about the cell under the cursor, spelled out; about the node without a check."""
    row = cells.nodes.index(node)
    name = fmt.plain(node, 60)
    if check is None:
        letters = cells.row(row)
        counts = ", ".join(
            f"{letters.count(letter.encode())} {word}"
            for letter, word in summary.LETTERS.items()
            if letter.encode() in letters
        )
        return [line(f" {name}   {counts}"), Line(), Line()]
    letter = cells.letter(row, cells.checks.index(check))
    status = summary.LETTERS.get(letter, "")
    word = summary.word(status) if status else {"~": "running", " ": "not yet"}.get(letter, "")
    shown_check = fmt.plain(check, 60)
    result = known.result(check, node) if known else None
    item = known.cause_of(check, node) if known else None
    mark = f"[{item.id}] " if item and letter in "X!?b" else ""
    text = fmt.plain(result.summary, 400) if result else ""
    if letter == ".":
        text = text or fmt.plain((known.titles.get(check) if known else "") or "", 300)
    head = f" {name} x {shown_check}   "
    rest = f"   {mark}{text}"
    lines = [
        line(
            head,
            (word, STYLES.get(letter, "")),
            fit(rest, max(width - width_of(head) - width_of(word) - 1, 4)),
        )
    ]
    if item and letter in "X!?b":
        evidence = fmt.plain(item.seen[0], 400) if item.seen else describe.title(item)
        lines.append(line(("   found  ", "label"), fit(evidence, width - 12)))
        if item.fixes:
            label = describe.fix_label(known.report, item.fixes[0]) if known else ""
            lines.append(line(("   fix    ", "label"), fit(label, width - 12)))
    return [*lines, Line(), Line(), Line()][:3]
