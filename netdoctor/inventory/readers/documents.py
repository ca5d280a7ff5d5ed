"""JSON and YAML to plain dicts, lists and texts, within bounds, and with the lines of YAML kept.

YAML is built from parser events and not with the library's own constructor: a list of hosts names no Python
objects, aliases may multiply, and the recursion of a composer ends where the stack does.
"""

from __future__ import annotations

import re
from typing import Any

from netdoctor.inventory.readers.base import Source, Stop

YAML_MAX = 1024 * 1024
DEPTH_MAX = 40
VALUES_MAX = 200_000
_HINT = "write one host per line"

_BEGINS_JSON = re.compile(r'\{|\[(?:$|[ \t]*["{\[\]])')


class Map(dict[str, Any]):
    """A mapping of YAML. lines: where each key stands."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


class Text(str):
    """A text of YAML that YAML itself would not have read as one: 1e3, yes, 2026-01-01, !vault."""

    __slots__ = ("kind",)
    kind: str


def line_of(mapping: Any, key: str) -> int | None:
    """The line of a key, None for JSON."""
    return mapping.lines.get(key) if isinstance(mapping, Map) else None


def is_json(head: str) -> bool:
    """Whether a first line begins a JSON document."""
    return bool(_BEGINS_JSON.match(head))


def read(source: Source) -> Any:
    """The document, read once. Raises Stop after noting why it is none."""
    if source.document is None:
        head = source.lines[0].text if source.lines else ""
        source.document = _json(source) if is_json(head) else _Yaml(source).read()
    return source.document


def mapping(value: Any) -> dict[str, Any]:
    """A mapping as it is, and an empty one for everything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list as it is, and an empty one for everything else."""
    return value if isinstance(value, list) else []


def _json(source: Source) -> Any:
    import json

    try:
        return json.loads(source.text)
    except RecursionError:
        source.refuse(None, "", "JSON that is nested too deep", _HINT)
    except ValueError as error:
        line = getattr(error, "lineno", None)
        source.refuse(line, "", f"not JSON: {getattr(error, 'msg', 'a number of too many digits')}", _HINT)
    raise Stop


class _Yaml:
    """One document from parser events, on a stack of our own."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.anchors: dict[str, Any] = {}
        self.sizes: dict[int, int] = {}
        self.count = 0

    def read(self) -> Any:
        import yaml

        if len(self.source.text) > YAML_MAX:
            hint = "as JSON it may be larger: ansible-inventory -i FILE --list | netdoctor hosts show -"
            self._stop(None, f"YAML of more than {YAML_MAX // 1024} KiB", hint)
        kind = getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader
        loader = None
        try:
            loader = kind(self.source.text)
            return self._build(yaml, loader)
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # surrogates, "\\UFFFFFFFF"
            mark = getattr(error, "problem_mark", None)
            what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
            self._stop(mark.line + 1 if mark else None, f"not YAML: {what}")
        finally:
            if loader is not None:
                loader.dispose()

    def _build(self, yaml: Any, loader: Any) -> Any:
        # Each frame: the collection, its anchor, for a mapping the key that waits for its value, the line.
        stack: list[list[Any]] = []
        root: list[Any] = []
        while loader.check_event():
            event = loader.get_event()
            line = event.start_mark.line + 1
            if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._more(1, line)
                value: Any = Map() if isinstance(event, yaml.MappingStartEvent) else []
                stack.append([value, event.anchor, None, line])
                if len(stack) > DEPTH_MAX:
                    self._stop(line, f"YAML that is nested more than {DEPTH_MAX} deep")
                continue
            if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                value, anchor, _, line = stack.pop()
                self.sizes[id(value)] = 1 + sum(self._size(v) for v in _inner(value))
                if anchor:
                    self.anchors[anchor] = value
            elif isinstance(event, yaml.ScalarEvent):
                self._more(1, line)
                value = _scalar(yaml, loader, event)
                if event.anchor:
                    self.anchors[event.anchor] = value
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self.anchors:
                    self._stop(line, "an alias to what encloses it, or to nothing")
                value = self.anchors[event.anchor]
                self._more(self._size(value), line)
            else:
                if isinstance(event, yaml.DocumentStartEvent) and root:
                    self._stop(line, "more than one YAML document", "write one list per file")
                continue
            if stack:
                self._put(stack[-1], value, line)
            else:
                root.append(value)
        return root[0] if root else None

    def _put(self, frame: list[Any], value: Any, line: int) -> None:
        """Put a value into the collection that is open, the first of two in a mapping as the key."""
        inside, _, key, _ = frame
        if isinstance(inside, list):
            inside.append(value)
        elif key is None:
            if not isinstance(value, str):
                self._stop(line, "a key that is not text", "write it in quotes")
            if isinstance(value, Text):
                self._stop(line, f"'{value}' is not text to YAML but a {value.kind}", f'write: "{value}"')
            frame[2] = value
            if value in inside.lines:
                first = inside.lines[value]
                self.source.refuse(line, value, f"given twice, also line {first}", "YAML keeps only the last")
            inside.lines[value] = line
        else:
            frame[2] = None
            if key != "<<":
                inside[key] = value
                return
            del inside.lines[key]
            for other in value if isinstance(value, list) else [value]:
                for name, inner in mapping(other).items():
                    inside.setdefault(name, inner)

    def _more(self, count: int, line: int) -> None:
        self.count += count
        if self.count > VALUES_MAX:
            self._stop(line, f"more than {VALUES_MAX} values, aliases written out")

    def _size(self, value: Any) -> int:
        return self.sizes.get(id(value), 1)

    def _stop(self, line: int | None, message: str, hint: str = "") -> None:
        self.source.refuse(line, "", message, hint)
        raise Stop


def _inner(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Map) else list(value)


def _scalar(yaml: Any, loader: Any, event: Any) -> Any:
    """A text; None for YAML's null; numbers as they are written, where that is how they read, too."""
    tag = event.tag or loader.resolve(yaml.ScalarNode, event.value, event.implicit)
    kind = str(tag).rpartition(":")[2].lstrip("!")
    if kind == "null" and event.tag is None:
        return None
    if kind in ("str", "unsafe", "merge", "value") or (kind == "int" and _PLAIN_INT.fullmatch(event.value)):
        return str(event.value)
    text = Text(event.value)
    text.kind = kind
    return text


_PLAIN_INT = re.compile(r"0|[1-9][0-9]{0,17}")
