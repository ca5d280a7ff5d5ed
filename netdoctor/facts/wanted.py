"""What the user says that nodes have: for these it takes the place of what most nodes have."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One value that was typed. key: what it is about, ``gpu.driver``, as checks declare it (`expects=`).

    any_of: one of these texts is expected; ``*`` in one stands for any characters. place: where it was typed,
    ``expect.toml:4``. nodes: whom it is about, None for all. of: the model or card that it is about, where a
    node may have several; empty for all.
    """

    key: str
    any_of: tuple[str, ...]
    place: str
    nodes: tuple[str, ...] | None = None
    of: str = ""

    def is_met_by(self, value: str) -> bool:
        """Whether a node that has `value` has what is expected."""
        return any(_pattern(one).fullmatch(value) for one in self.any_of)

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

    def look(self, key: str, values: Mapping[str, str | None], of: str = "") -> dict[str, Wish]:
        """What is expected of each of these nodes, where something is. values: what each has, None where that
        could not be read. of: the model or card; what was typed of it alone comes before the rest."""
        return self._of(key, values, of)

    def _of(self, key: str, nodes: Collection[str], of: str) -> dict[str, Wish]:
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
        return self._of(key, values, of)

    def unseen(self, keys: Collection[str], nodes: Iterable[str]) -> Iterator[tuple[str, Wish]]:
        """Each of these nodes with what is expected of it by one of `keys`, and no check has compared."""
        mine = [wish for wish in self.wishes if wish.key in keys and not wish.of]
        if not mine:
            return
        compared = {(key, node) for (key, _), values in self.seen.items() if key in keys for node in values}
        listed = list(nodes)
        for key in dict.fromkeys(wish.key for wish in mine):
            for node, wish in self._of(key, dict.fromkeys(listed), "").items():
                if (key, node) not in compared:
                    yield node, wish
