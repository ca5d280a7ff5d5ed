"""The report for people: verdict and causes first, folded names, commands on lines of their own.

Depends on nothing but the report object, so that a saved report shown later is the same text.
"""

import textwrap
from collections.abc import Iterable, Iterator

from netdoctor.report import commands, describe, families, fmt, summary
from netdoctor.report.formats import bandwidth, trial
from netdoctor.report.model import Cause, FixRecord, Report, Result
from netdoctor.report.results import Index
from netdoctor.text import REPLACEMENT, inert_line

WIDTH = 100
NARROWEST = 40
FIRST_SCREEN = 40
SHOWN_CAUSES = 10

_RED, _GREEN, _YELLOW, _MAGENTA, _DIM, _BOLD = "31;1", "32;1", "33;1", "35;1", "2", "1"
_STYLES = {
    "fail": _RED,
    "warn": _YELLOW,
    "unknown": _MAGENTA,
    "pass": _DIM,
    "not_ready": _RED,
    "ready": _GREEN,
    "partial_pass": _BOLD,
    "undecided": _YELLOW,
}
_LABEL = 10
_HEAD = 12  # as wide as NOT READY or UNDECIDED, and a gap
_EXPECTED = "expected "
_REASONS_MAX = 8
_WORST_FIRST = ("fail", "warn", "unknown", "blocked", "pass", "skip")

_Row = tuple[str, str, int, str, str]  # status, family, checks, who, remark


def render(
    report: Report, *, width: int = WIDTH, color: bool = False, verbosity: int = 0, all_causes: bool = False
) -> str:
    """Return the text report, ending in a newline.

    verbosity: -1 causes and the last line only; 1 also why, every node and what passed; 2 also evidence and
    times. all_causes: more than ten. color: ANSI on statuses and verdict.
    """
    page = _Page(report, max(width, NARROWEST), color, verbosity, all_causes)
    lines = page.lines(evidence_lines=5)
    # Up to three causes fit one screen at any size: less of what was seen, never less of what to do. More of
    # them do not fit, and are no longer each. Figures of bandwidth, which only those get who asked for them,
    # come on top.
    room = FIRST_SCREEN + len(list(page.bandwidth()))
    for evidence_lines in (3, 2, 1) if len(report.causes) <= 3 else (3, 2):
        if width < 90 or verbosity > 0 or len(lines) <= room:
            break
        lines = page.lines(evidence_lines=evidence_lines)
    return "".join(f"{line}\n" for line in lines)


def cause_text(report: Report, cause: Cause, *, width: int = WIDTH, evidence_lines: int = 20) -> str:
    """Return one cause's block, without colour, for formats that embed it."""
    page = _Page(report, width, False, 0, True)
    return "\n".join(page.cause(cause, evidence_lines))


class _Page:
    """One rendering: the options and the lines they lead to."""

    def __init__(self, report: Report, width: int, color: bool, verbosity: int, all_causes: bool) -> None:
        self.report = report
        self.width = width
        self.color = color
        self.verbosity = verbosity
        self.all_causes = all_causes
        self.index = Index(report)
        self.fold_limit = fmt.FOLD_LIMIT if verbosity < 1 else None

    def line(self, *parts: str | tuple[str, str]) -> str:
        """Return one line of (text, style) parts: the only place where styles become escape codes."""
        styled: list[str] = []
        plain = "".join(part if isinstance(part, str) else part[0] for part in parts)
        if inert_line(plain) != plain:  # a wrapped word has come to the start
            parts = (inert_line(plain),)
        for part in parts:
            text, style = part if isinstance(part, tuple) else (part, "")
            if not text.isprintable():  # everything was cleaned before; this is the second lock
                text = "".join(char if char.isprintable() else REPLACEMENT for char in text)
            styled.append(f"\x1b[{style}m{text}\x1b[0m" if self.color and style and text else text)
        return "".join(styled).rstrip(" ")

    def lines(self, evidence_lines: int) -> list[str]:
        """Return the whole report; `evidence_lines` caps those per cause."""
        report = self.report
        last = f"{summary.verdict(report)}, exit {report.verdict.exit_code}, "
        last += fmt.seconds(report.run.duration_ms)
        end = self.line((last, _STYLES.get(report.verdict.state, "")))
        if self.verbosity < 0:
            return [*self.causes(evidence_lines), end]
        blocks = [
            list(self.header()),
            [*self.verdict(), *self.scope()],
            list(self.trial()),
            self.causes(evidence_lines),
            list(self.table()),
            list(self.bandwidth()),
            list(self.passes()) if self.verbosity > 0 else [],
            list(self.evidence()) if self.verbosity > 1 else [],
            list(self.times()) if self.verbosity > 1 else [],
            [*self.footer(), end],
        ]
        return [line for block in blocks if block for line in (*block, "")][:-1]

    def wrap(self, text: str, first: int, rest: int | None = None) -> Iterator[str]:
        """Yield pieces of `text` for a first line that begins at column `first`, others at `rest`."""
        rest = first if rest is None else rest
        initial, following = " " * first, " " * rest
        room = max(self.width, first + 20, rest + 20)
        wrapped = textwrap.wrap(
            text,
            width=room,
            initial_indent=initial,
            subsequent_indent=following,
            break_on_hyphens=False,
            break_long_words=True,
        )
        for number, line in enumerate(wrapped):
            yield line[first if number == 0 else rest :]

    def hanging(self, first: str, text: str, rest: int | None = None) -> Iterator[str]:
        """Yield the lines of `text` behind `first`; all but the first line begin at column `rest`."""
        rest = len(first) if rest is None else rest
        for number, piece in enumerate(self.wrap(text, len(first), rest)):
            yield self.line(first if number == 0 else " " * rest, piece)

    def header(self) -> Iterator[str]:
        line = ""
        for part in summary.header(self.report):
            if line and len(line) + 3 + len(part) > self.width:
                yield self.line(line)
                line = f"  {part}"
            else:
                line = f"{line}   {part}" if line else part
        yield self.line(line)

    def verdict(self) -> Iterator[str]:
        name = summary.verdict(self.report)
        style = _STYLES.get(self.report.verdict.state, "")
        for number, piece in enumerate(self.wrap(summary.short_headline(self.report), _HEAD)):
            start = ((name, style), " " * (_HEAD - len(name))) if number == 0 else (" " * _HEAD,)
            yield self.line(*start, piece)
        stopped = summary.stopped(self.report)
        if stopped:
            for piece in self.wrap(stopped, 0, 2):
                yield self.line(piece)

    def scope(self) -> Iterator[str]:
        """Yield which nodes can be used, and what the verdict does not speak of."""
        usable = summary.usable(self.report, self.fold_limit)
        yield from self.hanging(f"{'usable':<{_HEAD}}", usable) if usable else ()
        label = "not tested"
        for text in summary.not_tested(self.report):
            yield from self.hanging(f"{label:<{_HEAD}}", text)
            label = ""

    def trial(self) -> Iterator[str]:
        """Yield what the job itself came to, where it was tried on these nodes."""
        found = self.report.trial
        if found is None:
            return
        state = f"{trial.word(found):<{_HEAD - 1}}"
        for number, piece in enumerate(self.wrap(fmt.plain(found.headline, 400), _HEAD)):
            style = _STYLES.get(trial.status(found), "")
            yield self.line((state, style) if number == 0 else " " * (_HEAD - 1), " ", piece)
        for label, text in trial.rows(found):
            yield from self.hanging(f"{label:<{_HEAD}}", text)
        if found.ladder is not None:
            yield from ("", *(self.line(row) for row in trial.ladder_lines(found.ladder, self.width)))

    def causes(self, evidence_lines: int) -> list[str]:
        causes = self.report.causes if self.all_causes else self.report.causes[:SHOWN_CAUSES]
        lines: list[str] = []
        for cause in causes:
            lines += [*self.cause(cause, evidence_lines if self.verbosity < 1 else 1_000), ""]
        hidden = len(self.report.causes) - len(causes)
        if hidden:
            return [*lines, self.line(f"and {hidden} more: --all"), *([""] if self.verbosity < 0 else [])]
        return lines if self.verbosity < 0 else lines[:-1]

    def cause(self, cause: Cause, evidence_lines: int) -> Iterator[str]:
        """Yield the block of one cause."""
        yield from self.cause_title(cause)
        lines = [fmt.plain(line) for line in cause.seen]
        expected = [line.removeprefix(_EXPECTED) for line in lines if line.startswith(_EXPECTED)]
        lines = [line for line in lines if not line.startswith(_EXPECTED)]
        found = lines[:evidence_lines]
        if len(lines) > evidence_lines:
            found[-1] += f" (and {len(lines) - evidence_lines} more: -v)"
        yield from self.labelled("found", found)
        yield from self.labelled("expected", expected)
        yield from self.labelled("blocks", describe.blocks(self.report, cause, self.index))
        yield from self.labelled("also", describe.explains(self.report, cause, self.index))
        yield from self.labelled("since", describe.since(self.report, cause))
        if self.verbosity > 0:
            yield from self.labelled("why", [fmt.plain(cause.why)] if cause.why else [])
            yield from self.labelled("nodes", self.every_node(cause))
        everything = self.verbosity > 0 or self.all_causes
        fixes = cause.fixes if everything else describe.first_fixes(cause.fixes)
        for name, fix in zip(describe.fix_names(fixes), fixes, strict=True):
            yield from self.fix(name, fix)
        if len(fixes) < len(cause.fixes):
            yield from self.labelled("", [f"{fmt.number(len(cause.fixes) - len(fixes), 'other way')}: -v"])
        if cause.settle_by:
            label = "settle" if cause.status != "unknown" else "try"
            yield from self.aim(label, cause.settle_by)
        if cause.verify:
            again = "verify" if cause.status != "unknown" or cause.settle_by else "try"
            yield self.line(self.label(again), commands.display(cause.verify.shell))
        if cause.see:
            yield self.line(self.label("see"), fmt.plain(cause.see))  # whole: it is clicked, or pasted

    def cause_title(self, cause: Cause) -> Iterator[str]:
        check = describe.cause_check(cause)
        status = summary.word(cause.status)
        mark = f"[{cause.id}] "
        indent = 10 if len(status) < 5 and len(mark) < 5 else len(mark) + len(status) + 2
        indent = indent if self.width >= 60 else 4
        gap = " " * max(indent - len(mark) - len(status), 1)
        text = describe.title(cause)
        column = self.width
        check_at_right = self.width >= 90 and bool(check)
        if check_at_right:
            widest = max(len(describe.cause_check(other)) for other in self.report.causes)
            column = min(self.width - 13, self.width - widest)
        styled = (status, _STYLES.get(cause.status, ""))
        if self.width < 60:
            yield self.line(mark, styled, f" {check}" if check else "")
            for piece in self.wrap(text, indent):
                yield self.line(" " * indent, piece)
            return
        room = textwrap.wrap(
            text, width=max(column - indent - (2 if check_at_right else 0), 20), break_on_hyphens=False
        ) or [""]
        first = room[0]
        if check_at_right:
            first = first.ljust(column - indent) + check
        yield self.line(mark, styled, gap, first)
        for piece in room[1:]:
            yield self.line(" " * indent, piece)
        if check and not check_at_right:
            yield self.line(" " * indent, check)

    def every_node(self, cause: Cause) -> list[str]:
        names = describe.cause_nodes(self.report, cause, None)
        return [names] if len(names) > fmt.FOLD_LIMIT else []

    def label(self, name: str) -> str:
        if self.width < 60:
            return f"  {name}: " if name else "  "
        return f"    {name:<{_LABEL}}"

    def labelled(self, name: str, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            label = self.label(name)
            rest = len(label) if self.width >= 60 else 4
            yield from self.hanging(label, text, rest)
            name = name if self.width < 60 else ""

    def aim(self, name: str, text: str) -> Iterator[str]:
        """Yield a command unwrapped, or a sentence wrapped."""
        if text.startswith("netdoctor "):
            yield self.line(self.label(name), commands.display(text))
        else:
            yield from self.labelled(name, [fmt.plain(text)])

    def fix(self, name: str, fix: FixRecord) -> Iterator[str]:
        label = self.label(name)
        pieces = self.wrap(
            describe.script_label(self.report, fix), len(label), len(label) if self.width >= 60 else 4
        )
        for number, piece in enumerate(pieces):
            risk, found, rest = (
                piece.partition(": ") if number == 0 and fix.risk != "low" else ("", "", piece)
            )
            start = label if number == 0 else " " * (len(label) if self.width >= 60 else 4)
            yield self.line(start, (risk + found, _RED), rest)
        indent = "      " if self.width >= 60 else "    "
        for shell in commands.to_type(fix, every=self.all_causes or self.verbosity > 0):
            yield self.line(indent, shell)
        if fix.undo and self.verbosity > 0:
            yield from self.labelled("undo", ["reverts the fix"])
            for shell in commands.to_undo(fix):
                yield self.line(indent, shell)

    def table(self) -> Iterator[str]:
        """Yield one row per family, the worst first; what is in order, or does not apply, in a row each."""
        rows: list[_Row] = []
        for row in self.report.families:
            who, remark = families.value(self.report, row, self.index)
            status = families.status(self.report, row, self.index)
            rows.append((status, families.label(row.family), row.checks, who, remark))
        rows.sort(key=lambda row: _WORST_FIRST.index(row[0]) if row[0] in _WORST_FIRST else 0)
        everywhere = fmt.nodes_text(self.report, self.report.matrix.nodes)
        rows = _merged(rows, everywhere) if self.verbosity < 1 else rows
        state = max([4, *(len(summary.word(row[0])) for row in rows)])
        name = max([10, *(len(row[1]) for row in rows if "," not in row[1])])
        for status, label, checks, who, remark in rows:
            value = f"{who}    {remark}" if remark and who else who or remark
            count = f"{checks:>2}   " if self.verbosity > 0 else ""
            left = f"{label:<{name}}  {count}" if len(label) <= name and (value or count) else ""
            indent = 2 + state + 2 + len(left)
            style = _STYLES.get(status, "")
            word = summary.word(status)
            pieces = list(self.wrap(value if left else f"{label}   {value}".rstrip(), indent))
            start = ("  ", (word, style), " " * (state - len(word) + 2), left)
            yield self.line(*start, pieces[0] if pieces else "")
            for piece in pieces[1:]:
                yield self.line(" " * indent, piece)
        if self.verbosity > 0:
            indent = 8 if self.width >= 60 else 2
            yield from self.hanging(" " * indent, summary.counts_line(self.report), indent + 2)

    def bandwidth(self) -> Iterator[str]:
        """Yield pairs, sizes of an all-reduce and a ladder where somebody wants them: a full run, or -v."""
        if self.report.run.profile == "full" or self.verbosity > 0:
            blocks = [bandwidth.matrix(self.report, check, self.width) for check in ("bw.tcp", "bw.pair")]
            blocks += [bandwidth.table(self.report), bandwidth.ladder(self.report, self.width)]
            blocks = [block for block in blocks if block]
            for text in [line for block in blocks for line in ("", *block)][1:]:
                yield self.line(text)

    def passes(self) -> Iterator[str]:
        """Yield each check with what it found in all, and the reasons and values behind it."""
        matrix = self.report.matrix
        name = max([10, *(len(fmt.plain(check, 60)) for check in matrix.checks)])
        found: dict[str, dict[str, list[str]]] = {}
        for result in self.report.results:
            if not self.index.is_plain_pass(result):
                text = fmt.plain(result.summary or result.observed or "", 300)
                if result.status == "blocked" and result.cause is not None:
                    text = f"by [{result.cause}]"
                blocked = result.status == "blocked" and result.cause is not None
                line = f"{summary.word(result.status)}{'' if blocked else ':'} {text}"
                found.setdefault(result.check, {}).setdefault(line, []).append(result.target)
        found = {check: fmt.fold_addresses(lines) for check, lines in found.items()}
        for check, cells in zip(matrix.checks, matrix.cells, strict=True):
            parts = [
                f"{n} {status}" for letter, status in summary.LETTERS.items() if (n := cells.count(letter))
            ]
            # A title states the healthy case: beside a failure it would read as a contradiction.
            healthy = set(cells) <= {".", "-"}
            title = fmt.plain(self.index.titles.get(check, ""), 200) if healthy else ""
            value = f"{', '.join(parts):<8}   {title}"
            yield from self.hanging(f"  {fmt.plain(check, 60):<{name}}   ", value)
            lines = found.get(check, {})
            for text, targets in list(lines.items())[:_REASONS_MAX]:
                for piece in self.wrap(f"{fmt.nodes_text(self.report, targets)} {text}", 6, 8):
                    yield self.line("      ", piece)
            if len(lines) > _REASONS_MAX:
                yield self.line(f"      and {len(lines) - _REASONS_MAX} more in the JSON report")

    def evidence(self) -> Iterator[str]:
        """Yield what was run or read for each result that keeps it."""
        for result in self.report.results:
            if result.evidence:
                yield from self.one_evidence(result)

    def times(self) -> Iterator[str]:
        """Yield how long each phase took, and the slowest logins."""
        phases = self.report.run.phases
        name = max((len(fmt.plain(phase.name, 40)) for phase in phases), default=0)
        for number, phase in enumerate(phases):
            took = fmt.seconds(phase.duration_ms)
            label = f"{'times' if number == 0 else '':<{_LABEL}}"
            yield self.line(label, f"{fmt.plain(phase.name, 40):<{name}}  {took:>8}")
        for text in summary.logins(self.report):
            yield self.line(f"{'logins':<{_LABEL}}", text)

    def one_evidence(self, result: Result) -> Iterator[str]:
        yield self.line(
            f"  {fmt.plain(result.check, 60)} on {fmt.plain(result.target, 200)}: ",
            (summary.word(result.status), _STYLES.get(result.status, "")),
        )
        for item in result.evidence:
            where = f"    {fmt.plain(item.where, 200)} {fmt.plain(item.kind, 20)}: "
            yield self.line(where, fmt.escaped(item.what))
            for text in item.output.splitlines() if item.output else ():
                yield self.line("      | ", fmt.escaped(text))
            if item.truncated:
                yield self.line("      | (cut)")

    def footer(self) -> Iterator[str]:
        accepted = summary.accepted(self.report)
        if len(accepted) > 1 and self.verbosity < 1:
            first = min(self.report.suppressed, key=lambda one: one.until or "9")
            rest = f" (and {len(accepted) - 1} more: -v)"
            accepted = [accepted[self.report.suppressed.index(first)] + rest]
        yield from self.block("accepted", accepted)
        yield from self.block("fixed", summary.healed(self.report))
        step = summary.next_step(self.report)
        if step:
            does, then = step
            yield self.line(f"{'next':<{_LABEL}}", f"{does}   {then}" if then else does)
        again = summary.report_command(self.report)
        if again:
            saved = fmt.escaped(self.report.run.saved_to or "")
            yield self.line(f"{'report':<{_LABEL}}", f"{saved}    {again}")
        yield from self.block("note", [fmt.plain(note.text, 300) for note in self.report.notes])

    def block(self, label: str, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            yield from self.hanging(f"{label:<{_LABEL}}", text)


def _merged(rows: list[_Row], everywhere: str) -> list[_Row]:
    """Put rows that ask for nothing into one: what passes on the same nodes, or is blocked by the same."""
    merged: dict[tuple[str, str], list[_Row]] = {}
    for number, row in enumerate(rows):
        status, who = row[0], row[3]
        quiet = status in ("pass", "skip", "blocked", "unknown")
        key = ("" if status == "skip" else who) if quiet else f"\0{number}"
        merged.setdefault((status, key), []).append(row)
    return [_one_row(members, everywhere) for members in merged.values()]


def _one_row(members: list[_Row], everywhere: str) -> _Row:
    """The row of several families; what passes everywhere or does not apply needs no more than names."""
    status, _, _, who, remark = members[0]
    checks = sum(row[2] for row in members)
    if status == "pass" and (who == everywhere or len(members) > 1):
        names = ", ".join(f"{row[1]} ({row[4]})" if row[4] else row[1] for row in members)
        return status, names, checks, "" if who == everywhere else who, ""
    return (
        status,
        ", ".join(row[1] for row in members),
        checks,
        "" if status == "skip" and len(members) > 1 else who,
        remark,
    )
