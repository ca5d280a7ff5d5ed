"""Whether torch, and the packages that the job asks for, can be imported in the job's interpreter."""

from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import Import, Imports, SoftwareFacts, no_torch
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.programs import Program, bound_s, on_each
from netdoctor.measure.ranks import ProcessState, how_it_ended, passed_on

# torch takes a second where it is cached, and vllm on a busy network file system a minute and more.
THROUGH_S = 150.0
MOST_NAMES = 32


class Event(msgspec.Struct):
    """A line that the program said."""

    event: str
    text: str = ""
    rows: list[Any] = []


@cache
def program() -> str:
    """The text that every node runs."""
    return resources.files("netdoctor.agent.programs").joinpath("import_.py").read_text("utf-8")


@experiment(needs=["software"], bound_s=bound_s(THROUGH_S))
def imports(context: Context) -> dict[str, Imports | Missing]:
    """The job's interpreter imports torch and the packages that were asked for; all nodes at once."""
    found: dict[str, Imports | Missing] = {}
    names_of: dict[str, list[str]] = {}
    for node in context.participants.nodes:
        software = context.store.get_or_none("software", node)
        if software is None:
            found[node] = Missing(Why.FAILED, "its software is not known")
        elif names := _names(context, software):
            names_of[node] = names
        else:
            found[node] = Missing(Why.NOT_EXAMINED, no_torch([software]))
    text = program()
    env = {n: v for n, v in context.job.env.items() if n == "PYTHONPATH"} | passed_on(context.job)
    programs = {n: Program(code=text, config={"names": names}, env=env) for n, names in names_of.items()}
    at: dict[str, str] = {}

    def outcome(node: str, state: ProcessState) -> Imports | Missing | None:
        return _outcome(node, state, names_of[node], at)

    for node, answer in on_each(context.transport, programs, THROUGH_S, outcome).items():
        where = f", at {at[node]}" if node in at else ""
        found[node] = answer or Missing(Why.TIMED_OUT, f"not through after {THROUGH_S:.0f} s{where}")
    return found


def _names(context: Context, software: SoftwareFacts) -> list[str]:
    """torch, and of the packages that were asked for those that are there."""
    installed = [name for name in context.job.packages if software.packages.get(name) is not None]
    first = ["torch"] if software.torch else []
    return [*first, *(name for name in installed if name.lower() != "torch")][:MOST_NAMES]


def _outcome(
    node: str, state: ProcessState, names: list[str], at: dict[str, str]
) -> Imports | Missing | None:
    """What ended it; None while it goes on. A crash is said of the module at which it was.

    Raises msgspec.ValidationError, which is an answer that could not be read.
    """
    events = [msgspec.convert(raw, Event) for raw in state.events[:1000]]
    rows = next((event.rows for event in events if event.event == "result"), None)
    known = None if rows is None else msgspec.convert(rows, tuple[Import, ...])
    for event in events:
        if event.event == "begin" and event.text in names:
            at[node] = event.text
    if known is not None:
        if [one.name for one in known] != names:
            return Missing(Why.UNPARSABLE, "it reports other packages than the requested ones")
        return Imports(imports=tuple(_bounded(one) for one in known))
    if state.running:
        return None
    text = how_it_ended(state)
    if node not in at:  # not an import, but the interpreter itself
        return Missing(Why.FAILED, text)
    return Imports(imports=(Import(name=at[node], error=text, status=state.code),))


def _bounded(one: Import) -> Import:
    return replace(one, version=one.version[:60], error=one.error[:400], modules=one.modules[:8], status=None)
