"""What most nodes say, and who says otherwise."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority(Generic[H]):
    """How a property is spread over nodes."""

    value: H | None  # what more nodes have than any other value; None on a tie, or with no nodes
    minority: dict[str, H]  # nodes that have another value, in the order given; every node on a tie
    groups: dict[H, tuple[str, ...]]  # nodes per value, largest group first

    @property
    def equal(self) -> bool:
        """All nodes agree (also true of one node, or none)."""
        return len(self.groups) < 2

    @property
    def tie(self) -> bool:
        """No value is commoner than every other: nobody can be called the odd one out."""
        return not self.equal and self.value is None


def majority(values: Mapping[str, H]) -> Majority[H]:
    """The commonest of `values` (node id to value) and the nodes that differ from it."""
    nodes: dict[H, list[str]] = {}
    for node, value in values.items():
        nodes.setdefault(value, []).append(node)
    ordered = sorted(nodes.items(), key=lambda item: -len(item[1]))
    tie = len(ordered) > 1 and len(ordered[0][1]) == len(ordered[1][1])
    typical = None if tie or not ordered else ordered[0][0]
    return Majority(
        value=typical,
        minority={node: value for node, value in values.items() if tie or value != typical},
        groups={value: tuple(holders) for value, holders in ordered},
    )


def of_most(values: Iterable[H], count: int = 0) -> H | None:
    """The value of more than half of `values`, or of `count`, where some have none."""
    counts = Counter(values)
    value, times = next(iter(counts.most_common(1)), (None, 0))
    return value if 2 * times > (count or counts.total()) else None
