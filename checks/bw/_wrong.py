"""Wrong values of collectives: which node they come from, as far as values show it."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple

from netdoctor.checks._shared.text import listing, size
from netdoctor.facts.bandwidth import SizeRow
from netdoctor.model import LIKELY, Cause, Finding, seen

WRONG = Cause("collective-wrong-values", "collectives give wrong values on {nodes}")
SENT = WRONG.but(key="collective-wrong-sender", title="what {nodes} send{s} in collectives arrives wrong")
BETWEEN = WRONG.but(
    key="collective-wrong-between",
    title="what collectives send between {nodes} arrives wrong",
    confidence=LIKELY,
)


class Blame(NamedTuple):
    """Who is to blame for wrong values of one collective."""

    cause: Cause
    nodes: tuple[str, ...]


def blame(rows: tuple[SizeRow, ...]) -> Blame:
    """The sender where several nodes name one and no other, the receivers where they name several or, as with
    sums, nobody; else both ends."""
    senders: dict[str, set[str]] = {}
    for row in rows:
        for node in row.wrong:
            senders.setdefault(node, set()).update(row.wrong_from.get(node, ()))
    common = reduce(set.intersection, senders.values()) if senders else set()
    receivers = tuple(senders)
    if len(receivers) > 1 and len(common) == 1:
        return Blame(SENT, tuple(common))
    ends = set().union(*senders.values())
    if len(receivers) == 1 and len(ends) == 1 and ends != set(receivers):
        return Blame(BETWEEN, (*ends, *receivers))
    return Blame(WRONG, receivers)


def wrong_values(rows: Mapping[str, tuple[SizeRow, ...]]) -> Iterator[Finding]:
    """One finding for all collectives that blame the same nodes in the same way."""
    by_blame: dict[Blame, dict[str, list[SizeRow]]] = {}
    for name, all_sizes in rows.items():
        if bad := [row for row in all_sizes if row.wrong]:
            by_blame.setdefault(blame(tuple(bad)), {})[name] = bad
    for (cause, nodes), found in by_blame.items():
        first = next(iter(found.values()))[0]
        counts = {name: sum(sum(row.wrong.values()) for row in bad) for name, bad in found.items()}
        texts = [
            f"{counts[name]} values of {name} (at {listing(map(size_of, bad), 4)})"
            for name, bad in found.items()
        ]
        where = listing(dict.fromkeys(node for bad in found.values() for row in bad for node in row.wrong), 4)
        for node in nodes:
            yield cause.fail(
                f"wrong on {where}: {listing(texts, len(texts))}",
                at=node,
                culprits=nodes,
                observed=first.first_wrong or f"{sum(counts.values())} wrong values",
                expected="every value as it was sent" if first.wrong_from else "the exact sum",
                seen=seen(f"{listing(found, len(found))} of whole numbers", first.first_wrong),
            )


def size_of(row: SizeRow) -> str:
    return size(row.size_bytes) if row.size_bytes >= 1024 else f"{row.size_bytes} B"
