"""An explanation as JSON, text and Markdown. Pure; the fixes come in from the checks' manuals."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from netdoctor.explain import nccl_info
from netdoctor.explain.model import SCHEMA, Confidence, Explanation, NcclInfo, Quote, Reason

# Check id to the paragraphs of its manual's "Fix:".
Manuals = Mapping[str, Sequence[str]]


def fixes(reason: Reason, manuals: Manuals) -> list[str]:
    """What to do: the cause's own words, then those of the checks that find it."""
    return [*reason.known.fix, *(text for check in reason.known.fix_from for text in manuals.get(check, ()))]


def to_json(said: Explanation, manuals: Manuals) -> dict[str, Any]:
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
                "echoes": [_quote(one) for one in said.echoes] if number == 0 else [],
                "checks": list(reason.known.checks),
                "fix": fixes(reason, manuals),
                "proof": list(reason.proof),
            }
            for number, reason in enumerate(said.reasons)
        ],
        "ranks": {
            "world_size": said.ranks.world_size,
            "seen": list(said.ranks.seen),
            "silent": list(said.ranks.silent),
            "hosts": list(said.ranks.hosts),
            "first": _quote(said.ranks.first) if said.ranks.first else None,
        },
        "unknown_lines": [_quote(one) for one in said.unknown],
        "refuted": dict(said.refuted),
        "nccl": nccl_info.to_json(said.nccl) if said.nccl else None,
        "files": [
            {"file": one.name, "lines": one.lines, "bytes": one.size_bytes, "remarks": list(one.remarks)}
            for one in said.sources
        ],
    }


def _quote(one: Quote) -> dict[str, Any]:
    return {"file": one.file, "line": one.line, "rank": one.rank, "text": one.text}


def json_text(said: Explanation, manuals: Manuals) -> str:
    """The same as text."""
    return json.dumps(to_json(said, manuals), ensure_ascii=True, indent=1) + "\n"


def text(said: Explanation, manuals: Manuals, width: int = 80) -> str:
    """For a terminal, at most `width` columns."""
    return "\n".join(_text(said, manuals, max(width, 40))) + "\n"


def _text(said: Explanation, manuals: Manuals, width: int) -> Iterator[str]:
    yield from _wrapped(_heading(said), "", width)
    for number, reason in enumerate(said.reasons, 1):
        yield ""
        yield from _wrapped(
            f"[{number}] {str(reason.confidence).upper()}  {reason.known.title}", "", width, "    "
        )
        yield from _reason(reason, said if number == 1 else None, manuals, width)
        if number == 1 and reason.confidence is Confidence.CERTAIN:
            others = [f"{one.known.title} ({one.confidence})" for one in said.reasons[1:4]]
            for other in others:
                yield from _field("or", other, width)
            break
    if said.unknown and not said.reasons:
        yield ""
        yield from _wrapped("lines that read like trouble and are not known:", "", width)
        for one in said.unknown:
            yield from _wrapped(f"{one.file}:{one.line}: {one.text}", "  ", width, "    ")
    if said.nccl is not None:
        yield from _nccl(said.nccl, width)
    for source in said.sources:
        for remark in source.remarks:
            yield from _wrapped(f"note: {source.name}: {remark}", "", width, "      ")


def _nccl(info: NcclInfo, width: int) -> Iterator[str]:
    yield ""
    yield "What NCCL says of the job"
    for name, value in nccl_info.fields(info):
        yield from _field(name, value, width)


def _heading(said: Explanation) -> str:
    logs = len(said.sources)
    lines = sum(one.lines for one in said.sources)
    read = f"{logs} log{'s' * (logs != 1)}, {lines} line{'s' * (lines != 1)}"
    first = said.ranks.first
    if first is None:
        return f"{read}. Nothing was recognised."
    return f"{read}. First to fail: {_who(first)}{_when(first)}"


def _who(one: Quote) -> str:
    place = f"rank {one.rank}" if one.rank is not None else ""
    if one.host:
        place = f"{place} ({one.host})" if place else one.host
    return place or "somebody who gives no rank"


def _when(one: Quote) -> str:
    if one.when is None:
        return ""
    when = datetime.fromtimestamp(one.when, UTC)
    return f" at {when:%H:%M:%S}.{when.microsecond // 1000:03d}"


def _reason(reason: Reason, whole: Explanation | None, manuals: Manuals, width: int) -> Iterator[str]:
    for one in reason.lines[:3]:
        yield from _field("line", f"{one.file}:{one.line}", width)
        yield from _wrapped(one.text, "              ", width)
    for proof in reason.proof:
        yield from _field("scan", proof, width)
    if whole is not None and whole.echo_count:
        yield from _field("not this", f"{whole.echo_count} later lines that only echo it", width)
    yield from _field("why", " ".join(reason.known.why.split()), width)
    for fix in fixes(reason, manuals)[: 3 if whole else 1]:
        yield from _field("fix", fix, width)
    if reason.known.checks:
        yield from _field("check", f"netdoctor scan HOSTS --only {','.join(reason.known.checks)}", width)


def _field(name: str, value: str, width: int) -> Iterator[str]:
    yield from _wrapped(value, f"    {name:<8}  ", width, " " * 14)


def _wrapped(value: str, first: str, width: int, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        value,
        width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=True,
        break_on_hyphens=False,
    ) or [first.rstrip()]
