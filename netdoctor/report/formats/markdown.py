"""The report as Markdown, safe to post: no HTML, mention, reference, link or image can come from a node.

Addresses of the catalogue are links.
"""

import re
from collections.abc import Iterator

from netdoctor.report import commands, describe, families, fmt, summary
from netdoctor.report.model import Cause, Report
from netdoctor.report.results import Index
from netdoctor.text import inert_line

# Everything that could open markup in the middle of a line (GitHub Flavored Markdown 0.29, section 6), and
# the dollar sign of GitHub's formulas. What matters only at the start of a line cannot stand there.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~$!{}])")
# GitHub looks for @name, #12, GH-12 and addresses in the drawn text, where a backslash no longer helps; an
# invisible break does. ``&#8203;`` is what Renovate uses.
_BREAK = "&#8203;"
_TRIGGERS = re.compile(r"([@#])|(?<=[Gg][Hh])(-)|(?<=:)(//)|(?<=[Ww]{3})(\.)")
_BACKTICKS = re.compile(r"`+")


def escape(text: str) -> str:
    """Return `text` as Markdown that is drawn as that text and does nothing."""
    text = _MARKUP.sub(r"\\\1", fmt.plain(text).replace("&", "&amp;"))
    text = text.replace("\\<", "&lt;").replace("\\>", "&gt;")
    text = re.sub(r"^::", r"\\::", text)  # a command of GitHub Actions at the start of a line of its log
    return _TRIGGERS.sub(lambda m: f"{m[0]}{_BREAK}" if m[1] else f"{_BREAK}{m[0]}", text)


def fence(lines: list[str], language: str = "") -> Iterator[str]:
    """Yield a fenced block; the fence is longer than any run of backticks inside."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    marks = "`" * max(3, longest + 1)
    yield f"{marks}{language}"
    yield from map(inert_line, lines)
    yield marks


def render(report: Report, *, all_causes: bool = True) -> str:
    """Return verdict, causes with their commands, and the table by family."""
    return "\n".join(_lines(report, all_causes)) + "\n"


def render_cause(report: Report, cause: Cause) -> str:
    """Return one cause with its commands."""
    return "\n".join(_cause(report, cause, Index(report)))


def _lines(report: Report, all_causes: bool) -> Iterator[str]:
    index = Index(report)
    yield f"## {escape(summary.verdict(report))}"
    yield ""
    yield escape(summary.headline(report))
    stopped = summary.stopped(report)
    if stopped:
        yield ""
        yield escape(stopped)
    yield ""
    yield escape(", ".join(summary.header(report)))
    yield ""
    causes = report.causes if all_causes else report.causes[:10]
    for cause in causes:
        yield from _cause(report, cause, index)
    if len(causes) < len(report.causes):
        yield f"{len(report.causes) - len(causes)} more causes are in the JSON report."
        yield ""
    if report.families:
        yield "| status | family | checks | |"
        yield "|---|---|--:|---|"
        for row in report.families:
            who, remark = families.value(report, row, index)
            value = ", ".join(filter(None, [who, remark]))
            status = summary.word(families.status(report, row, index))
            family = families.label(row.family)
            yield f"| {escape(status)} | {escape(family)} | {row.checks} | {escape(value)} |"
        yield ""
    yield escape(summary.counts_line(report))
    yield ""
    remarks = [f"- accepted: {escape(line)}" for line in summary.accepted(report)]
    remarks += [f"- fixed: {escape(line)}" for line in summary.healed(report)]
    remarks += [f"- note: {escape(note.text)}" for note in report.notes]
    yield from [*remarks, ""] if remarks else ()
    took = fmt.seconds(report.run.duration_ms)
    yield f"{escape(summary.verdict(report))}, exit {report.verdict.exit_code}, {took}"


def _cause(report: Report, cause: Cause, index: Index) -> Iterator[str]:
    check = escape(describe.cause_check(cause))
    yield f"### \\[{cause.id}\\] {escape(summary.word(cause.status))} {escape(describe.title(cause))}"
    yield ""
    yield f"- check: {check}"
    yield f"- nodes: {escape(describe.cause_nodes(report, cause))}"
    for line in cause.seen:
        yield f"- found: {escape(line)}"
    for line in describe.blocks(report, cause, index):
        yield f"- blocks: {escape(line)}"
    for line in describe.explains(report, cause, index):
        yield f"- also: {escape(line)}"
    for line in describe.since(report, cause):
        yield f"- since: {escape(line)}"
    if cause.settle_by:
        yield f"- {'try' if cause.status == 'unknown' else 'settle'}: {escape(cause.settle_by)}"
    if cause.see:
        address = describe.address(report, cause)
        yield f"- see: {f'<{address}>' if address else escape(cause.see)}"
    for name, fix in zip(describe.fix_names(cause.fixes), cause.fixes, strict=True):
        yield ""
        yield f"{name.capitalize()}: {escape(describe.fix_label(report, fix))}"
        if fix.commands:
            yield ""
            yield from fence(commands.fix_commands(fix), "sh")
        if fix.undo:
            yield from ("", "Undo:", "")
            yield from fence(commands.to_paste(fix.undo), "sh")
    if cause.verify:
        yield ""
        yield "Verify:"
        yield ""
        yield from fence([commands.display(cause.verify.shell)], "sh")
    yield ""
