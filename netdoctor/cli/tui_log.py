"""`netdoctor tui --log`: what logs say, as causes beside those of a report."""

from collections.abc import Sequence

from netdoctor.explain.engine import explain
from netdoctor.explain.model import Confidence, Quote, Reason
from netdoctor.report.model import Cause, FixRecord, Verify
from netdoctor.tui.state import LOG_NUMBERS

NOTHING = "Nothing in the logs was recognised, which says nothing about the job"


def causes(names: Sequence[str]) -> tuple[Cause, ...]:
    """The causes that these logs admit, the likeliest first. Raises InputError."""
    explanation = explain(names)
    found = [_cause(number, reason) for number, reason in enumerate(explanation.reasons, 1)]
    if not found:
        evidence = tuple(_line(quote) for quote in explanation.unknown[:10])
        found = [_log_cause("nothing", 1, NOTHING, "unknown", seen=evidence, confidence="")]
    return tuple(found)


def _cause(number: int, reason: Reason) -> Cause:
    """A possible cause is no failure of anything yet: it stands below what is certain or likely."""
    from netdoctor.cli.explain import fix_texts

    known = reason.known
    verify = ("netdoctor", "scan", "--last", "--only", ",".join(known.checks))
    who = next((quote for quote in reason.lines if quote.rank is not None or quote.host), None)
    return _log_cause(
        known.label,
        number,
        known.title,
        "unknown" if reason.confidence is Confidence.POSSIBLE else "fail",
        checks=known.checks,
        nodes=_who(who) if who else "",
        confidence=str(reason.confidence),
        seen=tuple(_line(quote) for quote in reason.lines),
        fixes=tuple(FixRecord(text=text, kind="owner", effect="") for text in fix_texts(reason)),
        verify=Verify(argv=verify, shell=" ".join(verify)) if known.checks else None,
        why=" ".join(known.why.split()),
    )


def _log_cause(label: str, number: int, title: str, status: str, **more: object) -> Cause:
    fields = {"checks": (), "nodes": "", "node_list": (), **more}
    key = f"log:{label}"
    number += LOG_NUMBERS
    return Cause(id=number, key=key, fingerprint=key, status=status, title=title, **fields)  # type: ignore[arg-type]


def _line(quote: Quote) -> str:
    return f"{quote.file}:{quote.line}: {quote.text}"


def _who(quote: Quote) -> str:
    rank = f"rank {quote.rank}" if quote.rank is not None else ""
    return f"{rank} on {quote.host}" if rank and quote.host else rank or quote.host
