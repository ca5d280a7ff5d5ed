"""What the user expects of nodes: for these it takes the place of what most nodes have."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from netdoctor.facts.base import fact

# Instead of a value, of a node that has nothing of a name: no expectation is met by it.
ABSENT = "(absent)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One value of an expectations file."""

    # What it is about, as checks declare it (`expects=`): ``gpu.driver``.
    key: str
    # One of these texts is expected; ``*`` in one stands for any characters.
    any_of: tuple[str, ...]
    # Where it was written: ``expect.toml:4``.
    place: str
    # Whom it is about; None for all.
    nodes: tuple[str, ...] | None = None
    # The model or card that it is about, empty for all; of a key such as ``net.mtu.*`` the name.
    of: str = ""

    def is_met_by(self, value: str, or_more: bool = False) -> bool:
        """Whether a node that has `value` has what is expected. or_more: a larger number will do as well."""
        if value == ABSENT:
            return False
        return any(_pattern(one).fullmatch(value) for one in self.any_of) or (
            or_more and float(value) >= self.number
        )

    @property
    def name(self) -> str:
        """The key as it is written: ``net.mtu.eth0``."""
        return f"{self.key[:-1]}{self.of}" if self.key.endswith(".*") else self.key

    @property
    def text(self) -> str:
        """For people: ``570.86.15 or 570.124.06``."""
        return " or ".join(self.any_of)

    @property
    def exact(self) -> str | None:
        """The one value that would do; None where there are several."""
        return self.any_of[0] if len(self.any_of) == 1 and "*" not in self.any_of[0] else None

    @property
    def number(self) -> float:
        """The least of the values of a key whose values are numbers."""
        return min(float(one) for one in self.any_of)


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", text))), re.DOTALL)


@fact("wanted", scope="cluster", origin="control")
@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """All values that the user expects. Of several about one key and node the last one holds."""

    wishes: tuple[Expectation, ...] = ()

    def has(self, key: str, of: str = "") -> bool:
        """Whether anything is expected about this key, of any node."""
        return any(one.key == key and one.of in ("", of) for one in self.wishes)

    def names(self, key: str) -> set[str]:
        """The names of which something is expected about a key such as ``net.mtu.*``."""
        return {one.of for one in self.wishes if one.key == key}

    def for_values(self, key: str, values: Mapping[str, str | None], of: str = "") -> dict[str, Expectation]:
        """As `for_nodes`, where a check compares. values: what nodes have, None where it cannot be read."""
        return self.for_nodes(key, values, of)

    def for_nodes(self, key: str, nodes: Collection[str], of: str = "") -> dict[str, Expectation]:
        """What is expected of each of these nodes, where something is.

        of: the model or card; what is expected of it alone comes before the rest.
        """
        found: dict[str, Expectation] = {}
        matching = [one for one in self.wishes if one.key == key and one.of in ("", of)]
        for one in sorted(matching, key=lambda one: bool(one.of)):
            about: Iterable[str] = nodes if one.nodes is None else one.nodes
            found.update((node, one) for node in about if node in nodes)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedExpectations(Expectations):
    """As Expectations, and records what checks compare."""

    # The values that nodes have, by key and `of`.
    compared: dict[tuple[str, str], dict[str, str | None]] = field(default_factory=dict)

    def for_values(self, key: str, values: Mapping[str, str | None], of: str = "") -> dict[str, Expectation]:
        self.compared.setdefault((key, of), {}).update(values)
        return self.for_nodes(key, values, of)

    def not_compared(self, keys: Collection[str], nodes: Iterable[str]) -> Iterator[tuple[str, Expectation]]:
        """Each of these nodes with what is expected of it by one of `keys`, and no check has compared."""
        # Of models and cards a node has those that it has; a name that is expected is present, or missed.
        matching = [one for one in self.wishes if one.key in keys and (not one.of or one.key.endswith(".*"))]
        if not matching:
            return
        compared = {
            (key, of if key.endswith(".*") else "", node)
            for (key, of), values in self.compared.items()
            if key in keys
            for node in values
        }
        listed = dict.fromkeys(nodes)
        for key, of in dict.fromkeys((one.key, one.of) for one in matching):
            for node, one in self.for_nodes(key, listed, of).items():
                if (key, of, node) not in compared:
                    yield node, one
