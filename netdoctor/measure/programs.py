"""A program that each node runs by itself: started everywhere at once, listened to, ended."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.measure.common import Caller, reason, replies, token
from netdoctor.measure.ranks import ANSWER_S, ENDING_S, SPAWN_S, ProcessState, pause
from netdoctor.transport.base import Request

POLL_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What runs on a node: code, its CONFIG, and what is added to its environment."""

    code: str
    config: Mapping[str, Any]
    env: Mapping[str, str]


def bound_s(through_s: float) -> float:
    """The longest that `on_each` may take."""
    return SPAWN_S + through_s + POLL_S + ANSWER_S + ENDING_S


def on_each(
    transport: Caller,
    programs: Mapping[str, Program],
    through_s: float,
    outcome: Callable[[str, ProcessState], T | Missing | None],
) -> dict[str, T | Missing | None]:
    """What became of each node's program; None of one that was not through in so many seconds.

    outcome: what a node's program came to, or None while it goes on.
    """
    session = token()[:16]
    found: dict[str, T | Missing | None] = {}
    spawns = {node: _spawn(session, one, through_s) for node, one in programs.items()}
    for reply in replies(transport, spawns):
        found[reply.node] = reply.missing
    running = {node for node, missing in found.items() if missing is None}
    end = time.monotonic() + through_s
    while running and (began := time.monotonic()) < end:
        wait_s = min(POLL_S, max(end - began, 0.1))
        args = {"session": session, "say": None, "until": "done", "wait_s": wait_s}
        request = Request(op="converse", args=args, timeout_s=wait_s + ANSWER_S)
        for reply in replies(transport, dict.fromkeys(running, request)):
            found[reply.node] = reply.missing or _read(reply.node, reply.result, outcome)
        running = {node for node in running if found[node] is None}
        if running:
            pause(began, end)
    stop = Request(op="stop", args={"session": session}, timeout_s=ENDING_S)
    for reply in replies(transport, dict.fromkeys(programs, stop)):
        reason(reply)
    return found


def _spawn(session: str, program: Program, through_s: float) -> Request:
    return Request(
        op="spawn",
        args={
            "session": session,
            "code": program.code,
            "ranks": [dict(program.config)],
            "env": dict(program.env),
            "seconds": through_s,
            "gentle": True,
        },
        timeout_s=SPAWN_S,
    )


def _read(
    node: str, result: Any, outcome: Callable[[str, ProcessState], T | Missing | None]
) -> T | Missing | None:
    try:
        (one,) = msgspec.convert(result["ranks"] if isinstance(result, dict) else None, list[ProcessState])
        return outcome(node, one)
    except (msgspec.ValidationError, RecursionError, ValueError, LookupError):
        return Missing(Why.UNPARSABLE, "the answer could not be read")
