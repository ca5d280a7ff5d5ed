"""YAML and JSON with the position of everything, bounded, and without making objects of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from netdoctor.errors import InputError
from netdoctor.lint.model import Position
from netdoctor.text import clean

EVENTS_MOST = 200_000
DEPTH_MOST = 60
ALIASES_MOST = 2_000
ITEMS_MOST = 100_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSES = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


@dataclass(frozen=True, slots=True)
class Item:
    """One node of a document."""

    node: yaml.Node
    key: str = ""  # under which it stands, "" in a list or at the top

    @property
    def position(self) -> Position:
        mark = self.node.start_mark
        return Position(mark.line + 1, mark.column + 1)

    @property
    def text(self) -> str | None:
        """The text of a scalar, None of anything else."""
        return self.node.value if isinstance(self.node, yaml.ScalarNode) else None

    @property
    def number(self) -> int | None:
        """A whole number of up to nine digits, quoted or not."""
        text = self.text
        return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None

    @property
    def tag(self) -> str:
        return str(self.node.tag).rpartition(":")[2]

    @property
    def is_map(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def pairs(self, *path: str) -> list[tuple[str, "Item"]]:
        """(key, value) of a mapping below these keys, nothing of anything else; ``<<`` brings in what it
        names."""
        found: list[tuple[str, Item]] = []
        item = self.get(*path)
        if item is not None and isinstance(item.node, yaml.MappingNode):
            for key, value in item.node.value:
                if key.tag.endswith(":merge") and isinstance(value, yaml.MappingNode):
                    found += [
                        (k.value, Item(v, k.value)) for k, v in value.value if isinstance(k, yaml.ScalarNode)
                    ]
                elif isinstance(key, yaml.ScalarNode):
                    found.append((key.value, Item(value, key.value)))
        return found

    def list(self, *path: str) -> "list[Item]":
        """The items of a sequence below these keys, nothing of anything else."""
        item = self.get(*path)
        node = item.node if item is not None else None
        return [Item(value) for value in node.value] if isinstance(node, yaml.SequenceNode) else []

    def get(self, *path: str) -> "Item | None":
        """What stands below these keys."""
        item: Item | None = self
        for key in path:
            if item is None:
                return None
            item = next((value for name, value in reversed(item.pairs()) if name == key), None)
        return item

    def number_at(self, *path: str) -> int | None:
        item = self.get(*path)
        return item.number if item is not None else None

    def text_at(self, *path: str) -> str | None:
        item = self.get(*path)
        return item.text if item is not None else None

    def walk(self) -> Iterator["Item"]:
        """This item and all below it; what aliases share is met once."""
        stack, visited = [self], {id(self.node)}
        for _ in range(ITEMS_MOST):
            if not stack:
                return
            item = stack.pop()
            yield item
            below = [value for _, value in item.pairs()] + item.list()
            for one in reversed(below):
                if id(one.node) not in visited:
                    visited.add(id(one.node))
                    stack.append(one)


def documents(path: str, text: str) -> list[Item]:
    """The documents of a file. Raises InputError with the line where it is not YAML, or too deep."""
    name = clean(path, 300)
    depth = aliases = 0
    try:
        for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            depth += isinstance(event, _OPENS)
            depth -= isinstance(event, _CLOSES)
            aliases += isinstance(event, yaml.AliasEvent)
            large = count > EVENTS_MOST or aliases > ALIASES_MOST
            if large or depth > DEPTH_MOST:
                what = "too large" if large else "nested too deeply"
                raise InputError(f"{name}:{event.start_mark.line + 1}: {what} for a configuration")
        return [Item(node) for node in yaml.compose_all(text, Loader=_LOADER) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise InputError(f"{name}{line}: not YAML: {clean(error.problem or str(error), 200)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{name}: not YAML: {clean(str(error), 200)}") from None
