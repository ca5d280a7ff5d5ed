"""The Node screen, and the cell under the cursor of the matrix spelled out. Lines for a given width."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from netdoctor.report import describe, fmt, summary
from netdoctor.report.model import Report
from netdoctor.tui.lines import (
    LETTER_OF,
    STYLES,
    TWO_COLUMNS,
    Line,
    cell_span,
    fit,
    labelled,
    line,
    side_by_side,
    status_span,
    width_of,
    wrap,
)
from netdoctor.tui.state import RANK, Cells, Known, worst

MOST_GROUPS = 50


def page(known: Known, cells: Cells, name: str, width: int, *, every: bool = False) -> list[Line]:
    """A node: its causes, its checks, its facts, those first that differ from the majority.

    every: with the checks that pass or do not apply, too.
    """
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
        Line(),
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
    checks = _checks(known, cells, row, width - 48 if width >= TWO_COLUMNS else width, every)
    if width >= TWO_COLUMNS:
        return lines + side_by_side(facts, checks, 44)
    return lines + checks + [Line()] + facts


def _facts(report: Report, name: str, width: int) -> list[Line]:
    lines = [line((" facts", "label"), ("   * differs from most nodes", "dim"))]
    others: list[Line] = []
    facts = next((t.facts for t in report.targets if t.id == name), {})
    for fact, value in facts.items():
        given = fmt.fact(fact, value)
        every = Counter(fmt.fact(fact, t.facts[fact]) for t in report.targets if fact in t.facts)
        typical, times = every.most_common(1)[0]
        odd = fact != "hostname" and given != typical and times * 2 > every.total()
        (lines if odd else others).append(
            line(
                (" * " if odd else "   ", "warn"),
                (f"{fmt.plain(fact, 14):<14} ", "label"),
                (fit(given, width - 18).rstrip(), "warn" if odd else ""),
            )
        )
        if odd:
            lines.append(line((f"   {'':<14} most: {fit(typical, width - 24).rstrip()}", "dim")))
    if not facts:
        lines.append(line(("   none known", "dim")))
    return lines + others


def _checks(known: Known, cells: Cells, row: int, width: int, every: bool) -> list[Line]:
    name = cells.nodes[row]
    order = sorted(range(len(cells.checks)), key=lambda c: "X?!b~.- ".find(cells.letter(row, c)))
    lines = [line((" checks", "label"))]
    quiet = Counter(letter for c in order if (letter := cells.letter(row, c)) in ".-") if not every else {}
    for column in order:
        if cells.letter(row, column) in quiet:
            continue
        letter, check = cells.letter(row, column), cells.checks[column]
        result = known.result(check, name)
        text = fmt.plain(result.summary, 300) if result else ""
        if letter == "b":
            waits = known.cause_of(check, name)
            text = f"blocked by [{waits.id}]" if waits else text
        lines.append(
            line(
                cell_span(letter),
                f" {fit(fmt.plain(check, 60), 20)} ",
                (fit(text, max(width - 26, 8)).rstrip(), "" if letter in "X!?" else "dim"),
                key=("cell", check, name),
            )
        )
    words = {".": "pass", "-": "do not apply"}
    for letter in (letter for letter in words if letter in quiet):
        lines.append(line(cell_span(letter), (f" {quiet[letter]} {words[letter]}   a shows them", "dim")))
    return lines


@lru_cache(1)  # the same for each place of the cursor
def groups(known: Known, cells: Cells, width: int) -> list[Line]:
    """The nodes of each cause, and of the others how many say what at the worst: what the overview shows."""
    others, lines = set(cells.nodes), []
    for number, item in enumerate(known.listed):
        others -= known.members[item.id]
        if number >= MOST_GROUPS:
            continue
        letter, count = LETTER_OF.get(item.status, "?"), len(item.node_list)
        first, *more = wrap(fmt.fold(item.node_list, 400), width - 18) if item.node_list else [""]
        mark = (f"[{item.id}] ", "dim")
        lines.append(line(cell_span(letter), f"{count:>5}  ", mark, (first, "head")))
        lines += [line(" " * 14, (piece, "head")) for piece in more[:2]]
        lines += [line(" " * 14, (piece, "dim")) for piece in wrap(describe.title(item), width - 16)[:2]]
    if len(known.listed) > MOST_GROUPS:
        lines.append(line((f"   and {len(known.listed) - MOST_GROUPS} more causes", "dim")))
    lines += [Line()] if lines else []
    worst_of = Counter(worst(cells.row(row)) for row, name in enumerate(cells.nodes) if name in others)
    for letter, count in sorted(worst_of.items(), key=lambda one: -RANK.get(one[0], 0)):
        text = f"without a cause, {summary.word(summary.LETTERS.get(letter, 'unknown'))}"
        lines.append(line(cell_span(letter), f"{count:>5}  ", (text, "dim")))
    return lines


def cell(known: Known, cells: Cells, node: str, check: str, width: int) -> list[Line]:
    """The cell under the cursor, for the second pane: what it says, its cause, and the fix of that."""
    letter = cells.letter(cells.nodes.index(node), cells.checks.index(check))
    status = summary.LETTERS.get(letter, "")
    result, item = known.result(check, node), known.cause_of(check, node)
    item = item if letter in "X!?b" else None
    lines = [line(" ", status_span(status) if status else "not yet", f"   cause [{item.id}]" if item else "")]
    title = fmt.plain(known.titles.get(check) or "", 300)
    lines += [line((piece, "dim")) for piece in wrap(title, width - 2, " ")] if title else []
    if result is not None and result.summary:
        lines += [Line(), *(line(piece) for piece in wrap(fmt.plain(result.summary, 600), width - 2, " "))]
    for label, text in (("found", result.observed), ("expected", result.expected)) if result else ():
        if text is not None:
            lines += labelled(f" {label:<10}", wrap(fmt.plain(text, 600), width - 13))
    if item is not None:
        head = f" [{item.id}]"
        lines += [Line(), *labelled(f"{head:<11}", wrap(describe.title(item), width - 13), "head")]
    if item is not None and item.fixes:
        lines += labelled(" fix       ", wrap(describe.script_label(known.report, item.fixes[0]), width - 13))
        lines.append(line(("           y copies it, enter opens the cause", "dim")))
    return lines


def row(cells: Cells, node: str, checks: Sequence[str], width: int) -> list[Line]:
    """What a node has said so far of these checks, one a line."""
    at = cells.nodes.index(node)
    lines = [line((f" {piece}", "dim")) for piece in wrap(_counts(cells, at, checks), width - 2)]
    lines.append(Line())
    for check in checks:
        letter = cells.letter(at, cells.checks.index(check))
        word = "not yet" if letter == " " else ""
        lines.append(
            line(cell_span(letter), f" {fit(fmt.plain(check, 60), max(width - 14, 8))} ", (word, "dim"))
        )
    return lines


def _counts(cells: Cells, at: int, checks: Sequence[str] = ()) -> str:
    """How many checks, of these or of all, say what of a node."""
    row = cells.row(at)
    letters = bytes(row[cells.checks.index(check)] for check in checks) or row
    words = {**summary.LETTERS, "~": "running", " ": "not yet"}
    return ", ".join(
        f"{letters.count(letter.encode())} {word}"
        for letter, word in words.items()
        if letter.encode() in letters
    )


def under_cursor(
    known: Known | None, cells: Cells, node: str, check: str | None, width: int, *, of: Sequence[str] = ()
) -> list[Line]:
    """Three lines about the cell under the cursor, spelled out; without a check about the node.

    of: the checks that then are counted, none for all.
    """
    row = cells.nodes.index(node)
    name = fmt.plain(node, 60)
    if check is None:
        return [line(f" {name}   {_counts(cells, row, of)}"), Line(), Line()]
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
