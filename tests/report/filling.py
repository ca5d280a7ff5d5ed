"""A report whose every string field holds the same text, for pushing hostile text through renderers."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from netdoctor.report.model import SCHEMA, Matrix, Report
from tests.report.build import sample_report, with_evidence

# Kept in the realistic report: words of the format itself, which the schema lists.
STRUCTURE = {
    "schema", "state", "status", "cells", "fail_on", "confidence", "expected_from", "risk", "level",
    "kind", "via",
}  # fmt: skip


def fill(text: str) -> Report:
    """A report with one of everything, made from the types alone, `text` in every string."""
    return typing.cast(Report, _value(Report, text, ""))


def replace_text(text: str, state: str = "not_ready") -> Report:
    """A realistic report with `text` for every string but the words of the format."""
    return typing.cast(Report, _replaced(with_evidence(sample_report(state)), text, ""))


def paths(kind: Any = Report, prefix: str = "") -> list[str]:
    """Every string field, so that a test can see that none is left out."""
    found = []
    for name, hint in typing.get_type_hints(kind).items():
        for part in _parts(hint):
            if dataclasses.is_dataclass(part):
                found += paths(part, f"{prefix}{name}.")
            elif part is str:
                found.append(f"{prefix}{name}")
    return found


def _parts(hint: Any) -> list[Any]:
    inner = typing.get_args(hint)
    return [part for arg in inner for part in _parts(arg)] if inner else [hint]


def _value(hint: Any, text: str, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Matrix:
        return Matrix(checks=(text,), nodes=(text, f"{text}2"), cells=("X.",))
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: _value(hints[f.name], text, f.name) for f in dataclasses.fields(hint)})  # type: ignore[operator]
    if origin in (typing.Union, types.UnionType):
        return _value(arguments[0], text, name)
    if name == "healthy_nodes":  # the one without an X
        return (f"{text}2",)
    if origin in (tuple, Sequence):
        return (_value(arguments[0], text, name),)
    if origin in (dict, Mapping):
        return {text: _value(arguments[1], text, name), "path": text, "count": text}
    if hint is str or hint is Any:
        return {"schema": SCHEMA, "state": "not_ready", "status": "fail"}.get(name, text)
    return {int: 1, float: 1.5, bool: False}[hint]


def _replaced(value: Any, text: str, name: str) -> Any:
    if name in STRUCTURE:
        return value
    if isinstance(value, str):
        return text
    if isinstance(value, Matrix):
        nodes = tuple(f"{text}{n}" for n in range(len(value.nodes)))
        return dataclasses.replace(
            value, checks=tuple(f"{text}{n}" for n in range(len(value.checks))), nodes=nodes
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _replaced(getattr(value, f.name), text, f.name) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if isinstance(value, tuple):
        return tuple(_replaced(item, text, name) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, text, name) for key, item in value.items()} | {text: text}
    return value
