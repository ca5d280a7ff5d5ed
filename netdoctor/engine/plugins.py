"""What is not taken on trust: checks of plug-ins may hang and yield anything, experiments return anything."""

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from netdoctor.check import Check
from netdoctor.facts.base import Missing
from netdoctor.measure.declare import Experiment, Product
from netdoctor.model import (
    HERE,
    Cause,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Kind,
    Measure,
    Status,
    nodes_of,
    placed,
)

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

    here: what was judged, for a finding that does not say. `trusted` holds the cause hints already looked at,
    by their ids: thousands of pairs share one.
    """
    if not isinstance(answer, Finding):
        raise TypeError(f"yielded {type(answer).__name__} instead of a finding")
    finding: Any = answer  # its fields are a plug-in's, whatever their annotations say
    if not isinstance(finding.status, Status):
        raise TypeError(f"a finding's status is {type(finding.status).__name__}, not Status")
    # One text after the other takes most of the time that a finding takes: only where one is none.
    if not (type(finding.target) is type(finding.summary) is type(finding.path) is str):
        for name in ("target", "summary", "path"):
            _need_text(getattr(finding, name), name)
    if finding.target not in known:
        _need_target(finding.target, known)
    for name in finding.pairs:
        _need_text(name, "pair")
        _need_target(name, known)
    for name, text in (("observed", finding.observed), ("expected", finding.expected), ("gap", finding.gap)):
        if text is not None and type(text) is not str:
            _need_text(text, name)
    if finding.expected_from is not None and not isinstance(finding.expected_from, ExpectedFrom):
        raise TypeError("a finding's expected_from is no ExpectedFrom")
    for one in finding.evidence:
        if not isinstance(one, Evidence):
            raise TypeError("a finding's evidence is no Evidence")
        if not (type(one.kind) is type(one.where) is type(one.what) is type(one.output) is str):
            for name in ("kind", "where", "what", "output"):
                _need_text(getattr(one, name), f"evidence.{name}")
    if finding.measures is not None:
        for name, measure in finding.measures.items():
            _need_text(name, "measure's name")
            if not isinstance(measure, Measure) or not math.isfinite(measure.value):
                raise TypeError(f"measure {name} is no finite Measure")
    hint = finding.cause
    if hint is not None and id(hint) not in trusted:
        _need_hint(hint, known)
        trusted[id(hint)] = hint
    answer = placed(answer, here)
    if finding.status is Status.BLOCKED:
        return replace(answer, status=Status.UNKNOWN)  # only the engine knows what is blocked
    return answer


def _need_hint(hint: Any, known: frozenset[str]) -> None:
    if not isinstance(hint, Cause) or not isinstance(hint.confidence, Confidence):
        raise TypeError(f"a finding's cause is {type(hint).__name__}, not a whole Cause")
    hash(hint)  # everything in it is frozen, tuples and not lists
    _need_text(hint.key, "cause.key")
    _need_text(hint.title, "cause.title")
    for culprit in hint.culprits:
        _need_text(culprit, "culprit")
        _need_target(culprit, known)
    for text in (*hint.verify, hint.see or "", hint.settle_by or ""):
        _need_text(text, "cause")
    for fix in hint.fixes:
        if fix.kind is not None and not isinstance(fix.kind, Kind):
            raise TypeError(f"a finding's fix.kind is {type(fix.kind).__name__}, no Kind")
        for text in (fix.text, fix.effect, fix.risk, fix.widens or "", fix.loses or ""):
            _need_text(text, "fix")
        for command in (*fix.commands, *fix.undo):
            _need_text(command.run_on, "command.run_on")
            _need_text(command.shell, "command.shell")


def _need_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"a finding's {what} is {type(value).__name__}, not text")


def _need_target(target: str, known: frozenset[str]) -> None:
    for node in nodes_of(target) if target != HERE else ():
        if node not in known:
            raise ValueError(f"a finding names {node[:80]!r}, which is no node of this scan")
