"""Who is odd: the one rule for what most nodes have, and for where nobody can say.

Most is more than half of those that are compared. What is only commoner than any other value is no norm: of
3, 2, 2, 2 and 1 nodes seven would be called wrong. Without a majority a check says what there is, blames
every node alike or the suspects that it has reasons for, and is not certain.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from netdoctor.model import CERTAIN, LIKELY, Confidence

H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority(Generic[H]):
    """How a property is spread over nodes."""

    value: H | None  # what more than half of the nodes have; None where there is no such, or with no nodes
    minority: dict[str, H]  # nodes that have another value, in the order given; without a majority every node
    groups: dict[H, tuple[str, ...]]  # nodes per value, largest group first

    @property
    def equal(self) -> bool:
        """All nodes agree (also true of one node, or none)."""
        return len(self.groups) < 2

    @property
    def is_split(self) -> bool:
        """Nodes differ, and no value is on more than half of them: nobody can be called the odd one out."""
        return not self.equal and len(self.minority) == sum(map(len, self.groups.values()))

    @property
    def confidence(self) -> Confidence:
        """How sure it is that a node of the minority is the one at fault."""
        return LIKELY if self.is_split else CERTAIN

    @property
    def words(self) -> str:
        """Why nobody can be called the odd one out, as it stands behind a comma; empty where somebody can."""
        sizes = [len(nodes) for nodes in self.groups.values()]
        if not self.is_split:
            return ""
        if sizes == [1, 1]:
            return "and with two nodes there is no majority"
        if len(sizes) == 2:
            return f"and as many nodes have one as the other ({sizes[0]} each)"
        return f"{len(sizes)} values and no majority"


def majority(values: Mapping[str, H]) -> Majority[H]:
    """What more than half of `values` (node id to value) are, and the nodes that differ from it."""
    nodes: dict[H, list[str]] = {}
    for node, value in values.items():
        nodes.setdefault(value, []).append(node)
    # Of groups of one size the order is that of names: it must not hang on the order of the hosts file.
    ordered = sorted(nodes.items(), key=lambda item: (-len(item[1]), min(item[1])))
    most = ordered[:1] if ordered and 2 * len(ordered[0][1]) > len(values) else []
    agreeing = {node for _, holders in most for node in holders}
    return Majority(
        value=most[0][0] if most else None,
        minority={node: value for node, value in values.items() if node not in agreeing},
        groups={value: tuple(holders) for value, holders in ordered},
    )


def majority_among(values: Mapping[str, H], counted: Collection[str]) -> Majority[H]:
    """The majority of `values`; where there is none, that of the nodes that count, held against all.

    counted: those of which nothing else is known that makes them differ.
    """
    found = majority(values)
    some = majority({node: value for node, value in values.items() if node in counted})
    if not found.is_split or some.value is None or len(some.groups[some.value]) < 2:
        return found
    minority = {node: value for node, value in values.items() if value != some.value}
    return replace(found, value=some.value, minority=minority)


def of_majority(values: Mapping[str, H], noun: str) -> dict[str, str]:
    """The nodes that have the majority's value, each with it in words, ``torch 2.6.0``; none without one."""
    found = majority(values)
    return {
        node: f"{noun} {one}" for node, one in values.items() if not found.is_split and one == found.value
    }


def of_most(values: Iterable[H], count: int = 0) -> H | None:
    """The value of more than half of `values`, or of `count`, where some have none."""
    counts = Counter(values)
    value, times = next(iter(counts.most_common(1)), (None, 0))
    return value if 2 * times > (count or counts.total()) else None
