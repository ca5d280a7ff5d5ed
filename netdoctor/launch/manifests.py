"""Kubernetes manifests to plain dicts and lists and back, within bounds, every scalar as it was written.

What a scalar is, Go's YAML decides, which is not PyYAML's: 12:30, 1e3 and y are read otherwise. Scalars stay
texts with their style, and go out as they came in.
"""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from netdoctor.errors import InputError
from netdoctor.text import clean

FILE_MAX = 1024 * 1024
DEPTH_MAX = 60
VALUES_MAX = 100_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSES = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_TAG = "tag:yaml.org,2002:"
# Tags that plain text has by what it looks like; kubectl takes no others.
_KNOWN = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")}
_RESOLVER = yaml.resolver.Resolver()
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class Map(dict[str, Any]):
    """A mapping. line: where it begins, 0 of our own."""

    line = 0


class Scalar(str):
    """A text, number or what else one value is, as it is written. tag: what PyYAML takes it for."""

    tag = f"{_TAG}str"
    style: str | None = None


def mapping(value: Any) -> dict[str, Any]:
    """A mapping as it is, and an empty one for everything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The mappings of a list, none of everything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """A text as it is, and an empty one for everything else, numbers too."""
    is_text = isinstance(value, str) and getattr(value, "tag", f"{_TAG}str") == f"{_TAG}str"
    return value if is_text else ""


def is_null(value: Any) -> bool:
    return value is None or (isinstance(value, Scalar) and value.tag == f"{_TAG}null")


def number_of(value: Any) -> int | None:
    """A whole number of up to nine digits; None where it is not one, or is a text."""
    if isinstance(value, Scalar):
        return int(value) if value.tag == f"{_TAG}int" and _NUMBER.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def flag_of(value: Any) -> bool | None:
    """True or false; None where it is neither."""
    if isinstance(value, Scalar):
        word = value.lower() if value.tag == f"{_TAG}bool" else ""
        return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(word)
    return value if isinstance(value, bool) else None


def read(name: str, text: str) -> list[Map]:
    """The documents of a file that are not empty. Raises InputError with the line."""
    where = clean(name, 300)
    try:
        _bound(where, text)
        nodes = list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise InputError(f"{where}{line}: not YAML: {clean(error.problem or str(error), 200)}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # surrogates, "\\UFFFFFFFF"
        raise InputError(f"{where}: not YAML: {clean(str(error), 200)}") from None
    found = []
    for node in nodes:
        value = None if node is None else _value(where, node)
        if isinstance(value, Map):
            found.append(value)
        elif not is_null(value):
            raise InputError(f"{where}:{_line(node)}: not a Kubernetes object, which has apiVersion and kind")
    return found


def write(documents: Iterable[Any]) -> str:
    """YAML of documents. What several of them share is written out in each."""
    text = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20, explicit_start=False
    )
    return str(text)


def _bound(where: str, text: str) -> None:
    """Raise InputError where it is too large or too deep with its aliases written out."""
    anchors: dict[str, tuple[int, int]] = {}
    stack: list[list[int]] = []  # of what is open: values in it, and how deep they go
    names: list[str | None] = []
    total = 0
    for event in yaml.parse(text, Loader=_LOADER):
        values, depth = 1, 0
        if isinstance(event, _OPENS):
            stack.append([1, 1])
            names.append(event.anchor)
            continue
        if isinstance(event, _CLOSES):
            values, depth = stack.pop()
            anchor = names.pop()
        elif isinstance(event, yaml.ScalarEvent):
            anchor = event.anchor
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise InputError(f"{where}:{_line(event)}: an alias to what encloses it, or to nothing")
            anchor, (values, depth) = None, anchors[event.anchor]
        else:
            anchors = {} if isinstance(event, yaml.DocumentStartEvent) else anchors
            continue
        if anchor:
            anchors[anchor] = values, depth
        if stack:
            stack[-1] = [stack[-1][0] + values, max(stack[-1][1], depth + 1)]
        total += 0 if stack else values
        if max(total, stack[-1][0] if stack else 0) > VALUES_MAX:
            raise InputError(f"{where}:{_line(event)}: more than {VALUES_MAX} values, aliases written out")
        if len(stack) + depth > DEPTH_MAX:
            raise InputError(f"{where}:{_line(event)}: nested more than {DEPTH_MAX} deep")


def _line(mark: Any) -> int:
    return int(mark.start_mark.line) + 1


def _value(where: str, node: yaml.Node) -> Any:
    """A new value for each place, so that a change of one is none of what an alias shares with it."""
    if isinstance(node, yaml.ScalarNode):
        return _scalar(where, node)
    if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
        raise InputError(f"{where}:{_line(node)}: Kubernetes knows no tag {clean(str(node.tag), 60)}")
    if isinstance(node, yaml.SequenceNode):
        return [_value(where, one) for one in node.value]
    found, merged = Map(), list[Any]()
    found.line = _line(node)
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError(f"{where}:{_line(key_node)}: a key that is not text")
        key, value = _scalar(where, key_node), _value(where, value_node)
        if key.tag == f"{_TAG}merge":
            merged += value if isinstance(value, list) else [value]
        elif key in found:
            raise InputError(f"{where}:{_line(key_node)}: {clean(key, 60)} is given twice; leave one out")
        else:
            found[key] = value
    for other in merged:
        for name, value in mapping(other).items():
            found.setdefault(name, value)
    return found


def _scalar(where: str, node: yaml.ScalarNode) -> Scalar:
    found = Scalar("null" if node.tag == f"{_TAG}null" else node.value)  # "" would be none in every place
    found.tag, found.style = str(node.tag), node.style or None
    looks_like = _RESOLVER.resolve(yaml.ScalarNode, str(found), (True, False))
    if found.tag not in _KNOWN:
        raise InputError(f"{where}:{_line(node)}: Kubernetes knows no tag {clean(found.tag, 60)}")
    if found.tag != f"{_TAG}str":  # as it looks, or with !!int before it
        found.style = None
        if looks_like != found.tag:
            raise InputError(f"{where}:{_line(node)}: {clean(found, 60)} is not what its tag says")
    elif looks_like != found.tag:  # quoted, or with !!str before it
        found.style = found.style or '"'
    if any(char in found for char in "\r\x85\u2028\u2029\ufeff") or ("\n" in found and not found.style):
        found.style = '"'
    elif found.style == ">":
        found.style = "|"
    return found


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # no types
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _scalar_node(dumper: Any, value: Scalar) -> Any:
    return dumper.represent_scalar(value.tag, str(value), style=value.style)


_Dumper.add_representer(Map, yaml.SafeDumper.represent_dict)
_Dumper.add_representer(Scalar, _scalar_node)
