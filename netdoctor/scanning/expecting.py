"""What a user expects of nodes, as a TOML file says it: counts, models, versions, rates, modes.

    [gpu]
    count = 8                                   # of every node
    driver = ["570.124.06", "570.86.*"]         # one of these
    vbios."NVIDIA H100 80GB HBM3" = "96.00.*"   # of this model
    [net.mtu]
    eth1 = 9000                                 # of the one with this name, which is to be there

    [[nodes]]                                   # of these nodes; what stands later holds
    nodes = "gpu[17-32]"                        # or group = "a100", or leaf = "sw3"
    gpu.model = "NVIDIA A100-SXM4-80GB"

Which keys there are checks say (`expects=`). Mistakes are told all at once, with their lines.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from netdoctor.check import Check
from netdoctor.errors import InputError
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.inventory import Target
from netdoctor.scanning.tomlfile import KeyPath, Reader, load
from netdoctor.text import clean

MOST = 5000
VALUE_MAX = 300
MOST_NUMBER = 1e15
GROUP = "nodes"
# Who a group of nodes is: a node set of names, a group or a leaf of the hosts file.
WHO = ("nodes", "group", "leaf")
KINDS = {str: "a text in quotes", int: "a whole number", float: "a number", bool: "true or false"}


def keys_of(checks: Iterable[Check]) -> dict[str, type]:
    """What may be expected, with the type of its value."""
    return {key: kind for check in checks for key, kind in check.expects.items()}


def read(path: Path, checks: Collection[Check], targets: Sequence[Target]) -> Expectations:
    """What a file expects. checks: all there are; targets: the nodes as listed. Raises InputError."""
    tables, lines = load(path)
    reader = _Reader(path, lines, keys_of(checks), targets)
    wishes = tuple(reader.all(tables))
    if len(wishes) > MOST:
        reader.say((0, ()), f"expects {len(wishes)} values, {MOST} are allowed")
    if reader.wrong:
        raise InputError("\n".join(f"{path}: line {line}: {text}" for line, text in sorted(reader.wrong)))
    return Expectations(wishes=wishes)


def unused(expected: Expectations) -> list[str]:
    """A note for each place whose nodes are none of those that are listed."""
    empty = dict.fromkeys(one.place for one in expected.wishes if one.nodes == ())
    return [f"{position} expects something of nodes of which none is listed" for position in empty]


class _Reader(Reader):
    def __init__(
        self, path: Path, lines: Sequence[str], keys: Mapping[str, type], targets: Sequence[Target]
    ) -> None:
        super().__init__(path, lines, GROUP)
        self.keys, self.targets = keys, targets

    def all(self, tables: dict[str, Any]) -> Iterator[Expectation]:
        groups = tables.pop(GROUP, [])
        yield from self.table(tables, 0, (), None)
        if not isinstance(groups, list) or not all(isinstance(one, dict) for one in groups):
            self.say((0, (GROUP,)), "write each group of nodes as a table of its own: [[nodes]]")
            groups = []
        for number, group in enumerate(groups, 1):
            nodes = self.members(group, number)
            expected = {key: value for key, value in group.items() if key not in WHO}
            yield from self.table(expected, number, (), nodes)

    def table(
        self, table: dict[str, Any], group: int, above: tuple[str, ...], nodes: tuple[str, ...] | None
    ) -> Iterator[Expectation]:
        for word, value in table.items():
            words = (*above, word)
            key = ".".join(words)
            path = (group, words)
            named_key = f"{key}.*"
            if named_key in self.keys and isinstance(value, dict):
                for name, one, deeper in _leaves(value):
                    yield from self.expectation(named_key, one, (group, (*words, *deeper)), nodes, name)
            elif named_key in self.keys:
                self.say(path, f"say of which one: {key}.NAME = ...")
            elif key in self.keys and isinstance(value, dict):
                for name, one in value.items():
                    yield from self.expectation(key, one, (group, (*words, name)), nodes, name)
            elif key in self.keys:
                yield from self.expectation(key, value, path, nodes)
            elif isinstance(value, dict) and any(known.startswith(key + ".") for known in self.keys):
                yield from self.table(value, group, words, nodes)
            elif isinstance(value, dict) and value:
                for inner in value:
                    self.unknown(f"{key}.{inner}", (group, (*words, inner)), sorted(self.keys))
            else:
                self.unknown(key, path, sorted(self.keys))

    def expectation(
        self, key: str, value: Any, path: KeyPath, nodes: tuple[str, ...] | None, name: str = ""
    ) -> Iterator[Expectation]:
        """The expectation of a key, of the one thing with this name where it has one."""
        kind = self.keys[key]
        label = f"{key[:-1]}{clean(name, 60)}" if key.endswith(".*") else key
        values = value if isinstance(value, list) and kind is not bool else [value]
        if not values or not all(_is(one, kind) for one in values):
            more = "" if kind is bool else ", or a list of such"
            self.say(path, f"{label} is {KINDS[kind]}{more}")
            return
        texts = tuple(_text(one) for one in values)
        odd = [text for text in (*texts, name) if text != clean(text, VALUE_MAX) or not (text or not name)]
        if odd or "" in texts:
            text = f"{label} is empty, has more than {VALUE_MAX} characters, or some that none can see"
            self.say(path, text)
            return
        position = f"{clean(self.path.name, 60)}:{self.line(path)}"
        yield Expectation(key=key, any_of=texts, place=position, nodes=nodes, of=name)

    def members(self, group: dict[str, Any], number: int) -> tuple[str, ...]:
        """The ids of a group's nodes, of those that are listed."""
        words = [word for word in WHO if word in group]
        if len(words) != 1:
            self.say(
                (number, ()),
                "say which nodes, in one way: " + ", or ".join(f'{word} = "..."' for word in WHO),
            )
            return ()
        word = words[0]
        path = number, (word,)
        values = group[word] if isinstance(group[word], list) else [group[word]]
        if not values or not all(isinstance(one, str) and one.strip() for one in values):
            self.say(path, f'{word} is a text in quotes, or a list: {word} = "..."')
            return ()
        names: set[str] = set()
        try:
            for one in values:
                names.update(self.names(one) if word == "nodes" else [one])
        except ValueError as error:
            self.say(path, clean(str(error), 200))
        return tuple(target.id for target in self.targets if names & _called(target, word))


def _leaves(
    table: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """(name, value, its words) of ``net.core.somaxconn = 4096``, where the dots are the name's own."""
    for word, value in table.items():
        words = (*above, word)
        if isinstance(value, dict) and value:
            yield from _leaves(value, words)
        else:
            yield ".".join(words), value, words


def _called(target: Target, word: str) -> set[str | None]:
    return {target.id} if word == "nodes" else {*target.groups} if word == "group" else {target.leaf}


def _is(value: object, kind: type) -> bool:
    if isinstance(value, bool | str):
        return type(value) is kind
    return isinstance(value, (int, float) if kind is float else kind) and abs(float(str(value))) < MOST_NUMBER


def _text(value: object) -> str:
    """As checks compare it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
