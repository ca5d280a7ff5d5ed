"""What is not taken on trust: checks of plug-ins may hang and yield anything, experiments return anything."""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from netdoctor.check import Check
from netdoctor.facts.base import Missing
from netdoctor.measure.declare import Experiment, Product
from netdoctor.model import HERE, Cause, Finding, Status, nodes_of, placed

# What a plug-in's check may take for the whole cluster. Ours need milliseconds per thousand nodes; a function
# without I/O that is still busy after this long is stuck.
FOREIGN_CHECK_S = 10.0


def is_ours(one: Check | Experiment) -> bool:
    return one.origin.startswith("netdoctor.")


def read_back(declared: Product, found: Any) -> Any:
    """The fact as a report would give it back: a dataclass holds whatever it was made of.

    Raises msgspec.ValidationError or TypeError.
    """
    if isinstance(found, Missing):
        return found
    if declared.info.scope == "node":
        return {
            node: one if isinstance(one, Missing) else _read_back(declared, one)
            for node, one in found.items()
        }
    return _read_back(declared, found)


def _read_back(declared: Product, fact: object) -> Any:
    return msgspec.convert(msgspec.to_builtins(fact), type=declared.fact)


def bounded(work: Callable[[], None], limit_s: float) -> None:
    """Do it in a thread that is left behind when it takes longer."""
    thread = threading.Thread(target=work, name="foreign-check", daemon=True)
    thread.start()
    thread.join(limit_s)


def valid(answer: object, here: str, known: frozenset[str], trusted: dict[int, Cause]) -> Finding:
    """The finding, if it is one about nodes that exist. Raises TypeError or ValueError.

    here: what was judged, for a finding that does not say. `trusted` holds the causes already looked at, by
    their ids: thousands of pairs share one.
    """
    if not isinstance(answer, Finding):
        raise TypeError(f"yielded {type(answer).__name__} instead of a finding")
    _need_fields(answer, "")
    if answer.measures and not all(math.isfinite(one.value) for one in answer.measures.values()):
        raise TypeError("a finding's measure is not finite")
    hint, targets = answer.cause, (answer.target, *answer.pairs)
    if hint is not None and id(hint) not in trusted:
        if not isinstance(hint, Cause):
            raise TypeError(f"a finding's cause is {type(hint).__name__}, not a Cause")
        _need_fields(hint, "cause.")
        hash(hint)  # everything in it is frozen, tuples and not lists
        targets = (*targets, *hint.culprits)
        trusted[id(hint)] = hint
    for target in targets:
        for node in nodes_of(target) if target not in known and target != HERE else ():
            if node not in known:
                raise ValueError(f"a finding names {node[:80]!r}, which is not a node of this scan")
    finding = placed(answer, here)
    if finding.status is Status.BLOCKED:
        return replace(finding, status=Status.UNKNOWN)  # only the engine knows what is blocked
    return finding


@cache
def _kinds(cls: type) -> tuple[tuple[str, Any, frozenset[type]], ...]:
    """(name, annotation, types that need no second look) of the fields of a record."""
    found = []
    for name, kind in get_type_hints(cls).items():
        arms = get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)
        plain = frozenset(arm for arm in arms if isinstance(arm, type) and not is_dataclass(arm))
        found.append((name, kind, plain))
    return tuple(found)


def _need_fields(record: Any, where: str) -> None:
    """Raise TypeError where a field of a plug-in's finding is not what it is annotated with."""
    cls: Any = type(record)
    for name, kind, plain in _kinds(cls):
        value = getattr(record, name)
        if type(value) not in plain and value != () and name != "cause":
            _need(value, kind, f"{where}{name}")


def _need(value: Any, kind: Any, where: str) -> None:
    origin, arms = get_origin(kind), get_args(kind)
    if origin is UnionType or origin is Union:
        if value is not None:
            _need(value, arms[0], where)
    elif origin is tuple and isinstance(value, list | tuple):
        for one in value:
            _need(one, arms[0], where)
    elif origin is Mapping and isinstance(value, Mapping):
        for key, one in value.items():
            _need(key, arms[0], where)
            _need(one, arms[1], where)
    elif origin is not None or not isinstance(value, int | float if kind is float else kind):
        name = getattr(kind, "__name__", kind)
        raise TypeError(f"a finding's {where} is {type(value).__name__}, not {name}")
    elif is_dataclass(kind):
        _need_fields(value, f"{where}.")
