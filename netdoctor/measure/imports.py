"""Whether torch, and the packages that the job asks for, can be imported in the job's interpreter."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import Import, Imports, SoftwareFacts, no_torch
from netdoctor.measure.common import reason, replies, token
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.ranks import ENDING_S, SPAWN_S, Heard, passed_on
from netdoctor.transport.base import Reply, Request

# torch takes a second where it is cached, and vllm on a busy network file system a minute and more.
THROUGH_S = 150.0
POLL_S = 10.0
ANSWER_S = 6.0
MOST_NAMES = 32


class Event(msgspec.Struct):
    """A line that the program said."""

    event: str
    text: str = ""
    rows: list[Any] = []


@cache
def program() -> str:
    """The text that every node runs."""
    return resources.files("netdoctor.agent").joinpath("import_program.py").read_text("utf-8")


@experiment(needs=["software"], bound_s=SPAWN_S + THROUGH_S + POLL_S + ANSWER_S + ENDING_S)
def imports(context: Context) -> dict[str, Imports | Missing]:
    """The job's interpreter imports torch and the packages that were asked for; all nodes at once."""
    found: dict[str, Imports | Missing] = {}
    asked: dict[str, list[str]] = {}
    for node in context.ground.nodes:
        software = context.store.get("software", node)
        names = _names(context, software) if isinstance(software, SoftwareFacts) else []
        if names:
            asked[node] = names
        elif isinstance(software, SoftwareFacts):
            found[node] = Missing(Why.NOT_EXAMINED, no_torch([software]))
        else:
            found[node] = Missing(Why.FAILED, "its software is not known")
    session, running, at = token()[:16], set(), dict[str, str]()
    requests = {node: _spawn(context, session, names) for node, names in asked.items()}
    for reply in replies(context.transport, requests):
        if reply.missing is None:
            running.add(reply.node)
        else:
            found[reply.node] = reply.missing
    end = time.monotonic() + THROUGH_S
    while running and time.monotonic() < end:
        wait_s = min(POLL_S, max(end - time.monotonic(), 0.1))
        args = {"session": session, "say": None, "until": "done", "wait_s": wait_s}
        request = Request(op="converse", args=args, timeout_s=wait_s + ANSWER_S)
        for reply in replies(context.transport, dict.fromkeys(running, request)):
            answer = _heard(reply, asked[reply.node], at)
            if answer is not None:
                found[reply.node] = answer
                running.discard(reply.node)
    for node in running:
        where = f", at {at[node]}" if node in at else ""
        found[node] = Missing(Why.TIMED_OUT, f"not through after {THROUGH_S:.0f} s{where}")
    stop = Request(op="stop", args={"session": session}, timeout_s=ENDING_S)
    for reply in replies(context.transport, dict.fromkeys(requests, stop)):
        reason(reply)
    return found


def _names(context: Context, software: SoftwareFacts) -> list[str]:
    """torch, and of the packages that were asked for those that are there."""
    there = [name for name in context.job.packages if software.packages.get(name) is not None]
    first = ["torch"] if software.torch else []
    return [*first, *(name for name in there if name.lower() != "torch")][:MOST_NAMES]


def _spawn(context: Context, session: str, names: list[str]) -> Request:
    args = {
        "session": session,
        "code": program(),
        "ranks": [{"names": names}],
        "env": {**passed_on(context.job), **{n: v for n, v in context.job.env.items() if n == "PYTHONPATH"}},
        "seconds": THROUGH_S,
        "gentle": True,
    }
    return Request(op="spawn", args=args, timeout_s=SPAWN_S)


def _heard(reply: Reply, names: list[str], at: dict[str, str]) -> Imports | Missing | None:
    """What ended it; None while it goes on. A crash is said of the module at which it was."""
    if reply.missing is not None:
        return reply.missing
    try:
        result: Mapping[str, Any] = reply.result if isinstance(reply.result, dict) else {}
        (heard,) = msgspec.convert(result.get("ranks"), list[Heard])
        events = [msgspec.convert(raw, Event) for raw in heard.events[:1000]]
        rows = next((event.rows for event in events if event.event == "result"), None)
        known = None if rows is None else msgspec.convert(rows, tuple[Import, ...])
    except (msgspec.ValidationError, RecursionError, ValueError):
        return Missing(Why.UNPARSABLE, "the answer could not be read")
    for event in events:
        if event.event == "begin" and event.text in names:
            at[reply.node] = event.text
    if known is not None:
        if [one.name for one in known] != names:
            return Missing(Why.UNPARSABLE, "it speaks of other packages than it was asked about")
        return Imports(imports=tuple(_bounded(one) for one in known))
    if heard.running:
        return None
    lines = [line.strip() for line in heard.stderr.splitlines() if line.strip()]
    said = f"its process ended with status {heard.code} {lines[-1] if lines else ''}".strip()[:400]
    if reply.node not in at:  # not an import, but the interpreter itself
        return Missing(Why.FAILED, said)
    return Imports(imports=(Import(name=at[reply.node], error=said, status=heard.code),))


def _bounded(one: Import) -> Import:
    return replace(one, version=one.version[:60], error=one.error[:400], modules=one.modules[:8], status=None)
