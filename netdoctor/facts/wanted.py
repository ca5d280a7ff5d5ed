"""What the user says that nodes have: for these it takes the place of what most nodes have."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from netdoctor.facts.base import fact

# Instead of a value, of a node that has nothing of a name: no expectation is met by it.
ABSENT = "(absent)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One value that was typed. key: what it is about, ``gpu.driver``, as checks declare it (`expects=`).

    any_of: one of these texts is expected; ``*`` in one stands for any characters. place: where it was typed,
    ``expect.toml:4``. nodes: whom it is about, None for all. of: the model or card that it is about, where a
    node may have several, empty for all; of a key such as ``net.mtu.*`` the name of the one thing.
    """

    key: str
    any_of: tuple[str, ...]
    place: str
    nodes: tuple[str, ...] | None = None
    of: str = ""

    def is_met_by(self, value: str, least: bool = False) -> bool:
        """Whether a node that has `value` has what is expected. least: a larger number will do as well."""
        if value == ABSENT:
            return False
        return any(_pattern(one).fullmatch(value) for one in self.any_of) or (
            least and float(value) >= self.number
        )

    @property
    def said(self) -> str:
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
class Wanted:
    """All values that were typed. Of several about one key and node the last one holds."""

    wishes: tuple[Wish, ...] = ()

    def about(self, key: str, of: str = "") -> bool:
        """Whether anything was typed about this key, of any node."""
        return any(wish.key == key and wish.of in ("", of) for wish in self.wishes)

    def names(self, key: str) -> set[str]:
        """The names of which something was typed about a key such as ``net.mtu.*``."""
        return {wish.of for wish in self.wishes if wish.key == key}

    def look(self, key: str, values: Mapping[str, str | None], of: str = "") -> dict[str, Wish]:
        """What is expected of each of these nodes, where something is. values: what each has, None where that
        could not be read. of: the model or card; what was typed of it alone comes before the rest."""
        return self.typed(key, values, of)

    def typed(self, key: str, nodes: Collection[str], of: str = "") -> dict[str, Wish]:
        """As `look`, where nothing is compared."""
        found: dict[str, Wish] = {}
        mine = [wish for wish in self.wishes if wish.key == key and wish.of in ("", of)]
        for wish in sorted(mine, key=lambda wish: bool(wish.of)):
            about: Iterable[str] = nodes if wish.nodes is None else wish.nodes
            found.update((node, wish) for node in about if node in nodes)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(Wanted):
    """As Wanted, and notes what checks asked of it. seen: the values that nodes have, by key and `of`."""

    seen: dict[tuple[str, str], dict[str, str | None]] = field(default_factory=dict)

    def look(self, key: str, values: Mapping[str, str | None], of: str = "") -> dict[str, Wish]:
        self.seen.setdefault((key, of), {}).update(values)
        return self.typed(key, values, of)

    def unseen(self, keys: Collection[str], nodes: Iterable[str]) -> Iterator[tuple[str, Wish]]:
        """Each of these nodes with what is expected of it by one of `keys`, and no check has compared."""
        mine = [w for w in self.wishes if w.key in keys and (not w.of or w.key.endswith(".*"))]
        if not mine:
            return
        # Of models and cards a node has those that it has; a name that was typed is there, or missed.
        compared = {
            (key, of if key.endswith(".*") else "", node)
            for (key, of), values in self.seen.items()
            if key in keys
            for node in values
        }
        listed = list(nodes)
        for key, of in dict.fromkeys((wish.key, wish.of) for wish in mine):
            for node, wish in self.typed(key, dict.fromkeys(listed), of).items():
                if (key, of, node) not in compared:
                    yield node, wish
