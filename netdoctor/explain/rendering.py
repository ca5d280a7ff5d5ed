"""An explanation as JSON, text and Markdown. Pure; fixes come in from the checks' manuals."""

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from netdoctor.compat import UTC
from netdoctor.explain import nccl_info
from netdoctor.explain.knowledge import Role, load
from netdoctor.explain.lines import RAISED, WARNS, message
from netdoctor.explain.model import SCHEMA, Confidence, Explanation, Quote, Reason
from netdoctor.explain.quoting import anonymous
from netdoctor.text import listing, ranges

# Causes in the text; JSON has them all.
CAUSES_MAX = 5
# Check id to the paragraphs of its manual's "Fix:".
Manuals = Mapping[str, Sequence[str]]


def fixes(reason: Reason, manuals: Manuals) -> list[str]:
    """What to do: where a scan found the cause, what that says for this cluster; else in general."""
    if reason.fixes:
        return list(reason.fixes)
    return [*reason.known.fix, *(text for check in reason.known.fix_from for text in manuals.get(check, ()))]


def to_json(explanation: Explanation, manuals: Manuals) -> dict[str, Any]:
    """The object of schema netdoctor.explain/1."""
    return {
        "schema": SCHEMA,
        "causes": [
            {
                "label": reason.known.label,
                "title": reason.known.title,
                "why": " ".join(reason.known.why.split()),
                "confidence": str(reason.confidence),
                "weight": reason.weight,
                "lines": [_quote(one) for one in reason.lines],
                "echoes": [_quote(one) for one in explanation.echoes] if number == 0 else [],
                "checks": list(reason.known.checks),
                "fix": fixes(reason, manuals),
                "proof": list(reason.proof),
            }
            for number, reason in enumerate(explanation.reasons)
        ],
        "ranks": {
            "world_size": explanation.ranks.world_size,
            "seen": list(explanation.ranks.present),
            "silent": list(explanation.ranks.silent),
            "quiet": list(explanation.ranks.quiet),
            "hosts": list(explanation.ranks.hosts),
            "first": _quote(explanation.ranks.first) if explanation.ranks.first else None,
        },
        "unknown_lines": [_quote(one) for one in explanation.unknown],
        "guessed": explanation.is_guess,
        "refuted": dict(explanation.refuted),
        "again": explanation.again,
        "nccl": nccl_info.to_json(explanation.nccl) if explanation.nccl else None,
        "files": [
            {"file": one.name, "lines": one.lines, "bytes": one.size_bytes, "remarks": list(one.remarks)}
            for one in explanation.sources
        ],
    }


def _quote(one: Quote) -> dict[str, Any]:
    return {"file": one.file, "line": one.line, "rank": one.rank, "text": one.text}


def json_text(explanation: Explanation, manuals: Manuals) -> str:
    """The same as text."""
    return json.dumps(to_json(explanation, manuals), ensure_ascii=True, indent=1) + "\n"


def text(explanation: Explanation, manuals: Manuals, width: int = 80) -> str:
    """For a terminal, at most `width` columns."""
    return "".join(f"{line}\n" for line in _text(explanation, manuals, max(width, 40)))


def markdown(explanation: Explanation, manuals: Manuals, escape: Callable[[str], str]) -> str:
    """To be posted; `escape` makes any text harmless in Markdown."""
    return "".join(f"{line}\n" for line in _markdown(explanation, manuals, escape))


def _text(explanation: Explanation, manuals: Manuals, width: int) -> Iterator[str]:
    for sentence in headings(explanation):
        yield from _wrapped(sentence, "", width)
    for one in raised(explanation):
        yield from _wrapped(f"Not known, and perhaps the first failure: {one.file}:{one.line}", "", width)
        yield from _wrapped(one.text, " " * 14, width)
    for number, reason in enumerate(main_reasons(explanation), 1):
        if number == 2:
            yield ""
            certain = explanation.reasons[0].confidence is Confidence.CERTAIN
            yield "Found as well:" if certain else "What else it could be:"
        title = f"{str(reason.confidence).upper()}  {reason.known.title}"
        yield ""
        yield from _wrapped(f"[{number}] {title}", "", width, "    ")
        for name, value in _reason(explanation, number - 1, manuals):
            text, *commands = value.split("\n")
            yield from _wrapped(text, f"    {name:<9} ", width, " " * 14)
            yield from (f"      {command}" for command in commands)  # whole, to be pasted
    if len(explanation.reasons) > 1 and explanation.reasons[0].confidence is not Confidence.CERTAIN:
        yield ""
        yield from _wrapped(DECIDE, "", width)
    if explanation.refuted:
        yield ""
    for label, why in explanation.refuted.items():
        yield from _wrapped(f"ruled out: {load().causes[label].title} ({why})", "", width, "    ")
    if explanation.unknown and (explanation.is_guess or not explanation.reasons):
        yield ""
        yield from _wrapped(SEND if _has_unknown_failure(explanation) else WARNED, "", width)
        for one in explanation.unknown:
            position = f"  {anonymous(one.file.rpartition('/')[2])}:{one.line}: "
            yield from _wrapped(anonymous(one.text, explanation.ranks.hosts), position, width, "      ")
    if explanation.nccl is not None:
        yield from ("", "What NCCL says of the job")
        for name, value in nccl_info.fields(explanation.nccl):
            yield from _wrapped(value, f"    {name:<9} ", width, " " * 14)
    for source in explanation.sources:
        for remark in source.remarks:
            yield from _wrapped(f"note: {source.name}: {remark}", "", width, "      ")


WARNED = "Warnings that are not known:"
DECIDE = "To decide between them: the same command with --scan HOSTS, which runs exactly these checks."
SEND = (
    "These lines read like trouble and are not known. To have them known, send them as they stand here "
    "(hosts, users, addresses and secrets are masked), with what it turned out to be:"
)


def main_reasons(explanation: Explanation) -> Sequence[Reason]:
    """The causes that are shown to people: beside one that is certain no guesses."""
    if explanation.reasons and explanation.reasons[0].confidence is Confidence.CERTAIN:
        likely = [
            one for one in explanation.reasons[1:] if one.confidence is not Confidence.POSSIBLE or one.fixes
        ]
        return (explanation.reasons[0], *likely)[:CAUSES_MAX]
    return explanation.reasons[:CAUSES_MAX]


def _has_unknown_failure(explanation: Explanation) -> bool:
    return any(WARNS.search(one.text) is None for one in explanation.unknown)


def headings(explanation: Explanation) -> Iterator[str]:
    """What was read, who is in it, and who failed first."""
    count, lines = len(explanation.sources), sum(one.lines for one in explanation.sources)
    ranks = explanation.ranks
    total = f" of {ranks.world_size}" if ranks.world_size else ""
    who = f", {_numbered(ranks.present)}{total}" if ranks.present else ""
    yield f"{_number(count, 'log')}, {_number(lines, 'line')}{who}."
    if ranks.silent and explanation.reasons:
        yield f"No line is from {_numbered(ranks.silent)}."
    has_cause = ranks.first is not None and ranks.first.role is Role.CAUSE
    if ranks.quiet and not has_cause and len(ranks.quiet) < len(ranks.present):
        one = len(ranks.quiet) == 1
        who = f"The log{'s' * (not one)} of {_numbered(ranks.quiet)} say{'s' * one}"
        yield f"{who} nothing of a failure: killed, stuck, or done early."
    if ranks.first is not None:
        yield f"First to fail: {_who(ranks.first)}{_when(ranks.first)}"
        if explanation.again:
            yield explanation.again
    elif explanation.is_guess:
        yield "Nothing was recognised. By what the last lines are about, these are the first to look at:"
    elif _has_unknown_failure(explanation):
        yield "Nothing was recognised."
    else:
        yield "Nothing wrong was found."


def raised(explanation: Explanation) -> list[Quote]:
    """Exceptions of the program that nobody knows, where no line names a cause: they may be the cause."""
    if not explanation.reasons or explanation.reasons[0].confidence is Confidence.CERTAIN:
        return []
    return [one for one in explanation.unknown if RAISED.search(one.text)][:3]


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _numbered(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0-6 and 8``."""
    return f"rank{'s' * (len(ranks) != 1)} {listing(ranges(ranks))}"


def _who(one: Quote) -> str:
    local = f"local rank {one.local_rank}" if one.local_rank is not None else ""
    parts = [part for part in (one.host, local) if part]
    if one.rank is not None:
        return f"rank {one.rank}" + (f" ({', '.join(parts)})" if parts else "")
    return ", ".join(parts) or f"{one.file}:{one.line}"


def _when(one: Quote) -> str:
    if one.when is None:
        return ""
    when = datetime.fromtimestamp(one.when, UTC)
    return f" at {when:%H:%M:%S}.{when.microsecond // 1000:03d}"


def _reason(explanation: Explanation, index: int, manuals: Manuals) -> Iterator[tuple[str, str]]:
    """(word, text) of one cause: the first one with all there is, the others in short."""
    *before, reason = main_reasons(explanation)[: index + 1]
    first = index == 0
    quoted = {(one.file, one.line) for other in before for one in other.lines[:3]}
    for one in reason.lines[: 3 if first else 1]:
        yield "line", f"{one.file}:{one.line}"
        if (one.file, one.line) not in quoted:
            yield "", one.text
    for proof in reason.proof:
        yield "scan", proof
    if first and explanation.echo_count:
        by = f" by {_numbered(explanation.echo_ranks)}" if explanation.echo_ranks else ""
        example = f", such as: {message(explanation.echoes[0].text)[:160]}" if explanation.echoes else ""
        more = _number(explanation.echo_count, "line")
        yield "not this", f"{more}{by} about others that were gone or late{example}"
    if first:
        yield "why", " ".join(reason.known.why.split())
    if first or reason.fixes:
        yield from (("fix", fix) for fix in fixes(reason, manuals)[:4])
    if reason.known.checks:
        decided = "proves" if reason.confidence is Confidence.CERTAIN else "decides"
        yield decided, f"netdoctor scan HOSTS --only {','.join(reason.known.checks)}"
    elif first:
        yield "decides", "no check of netdoctor; the lines of every rank, side by side"


def _wrapped(value: str, first: str, width: int, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        value,
        width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _markdown(explanation: Explanation, manuals: Manuals, escape: Callable[[str], str]) -> Iterator[str]:
    for sentence in headings(explanation):
        yield f"{escape(sentence)}  "
    for one in raised(explanation):
        yield f"- not known, and perhaps the first failure: {escape(f'{one.file}:{one.line}: {one.text}')}"
    for number, reason in enumerate(main_reasons(explanation), 1):
        yield ""
        yield f"### {number}. {escape(reason.known.title)} ({reason.confidence})"
        yield ""
        for name, value in _reason(explanation, number - 1, manuals):
            text, *commands = value.split("\n")
            yield f"- {name + ': ' if name else ''}{escape(text)}"
            yield from (f"      {command}" for command in commands)
    if explanation.refuted:
        yield ""
        yield from (
            f"- ruled out: {escape(load().causes[label].title)} ({escape(why)})"
            for label, why in explanation.refuted.items()
        )
    if explanation.unknown and (explanation.is_guess or not explanation.reasons):
        yield ""
        yield escape(SEND if _has_unknown_failure(explanation) else WARNED)
        yield ""
        yield from (
            f"- {escape(anonymous(one.text, explanation.ranks.hosts))}" for one in explanation.unknown
        )
    notes = [(source.name, remark) for source in explanation.sources for remark in source.remarks]
    if notes:
        yield ""
        yield from (f"- {escape(name)}: {escape(remark)}" for name, remark in notes)
