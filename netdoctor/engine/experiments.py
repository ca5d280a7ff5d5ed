"""Which experiments a scan runs, how long each may take, and what becomes of what they find."""

import importlib
import pkgutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import netdoctor.measure
from netdoctor.check import Profile
from netdoctor.engine.plugins import is_ours, read_back
from netdoctor.errors import DeadlineReached
from netdoctor.facts.base import Missing, Why
from netdoctor.measure.declare import EXPERIMENTS, Context, Experiment, Product, ordered
from netdoctor.store import Store
from netdoctor.transport.base import Reply, Request, Transport

# Seconds for all experiments of a profile that fill the network, unless --budget says otherwise.
BUDGET_S = {Profile.QUICK: 20.0, Profile.LAUNCH: 20.0, Profile.FULL: 120.0}
# How long a node that missed an answer is waited for once more: agents answer this at once, whatever they do.
ALIVE_S = 3.0
# Where peers dial each node is worked out from these, whatever the experiment.
ADDRESS_FACTS = frozenset({"host", "net", "env", "resolve", "gpu", "rdma"})

for _module in pkgutil.walk_packages(netdoctor.measure.__path__, "netdoctor.measure."):
    importlib.import_module(_module.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One experiment of a scan."""

    experiment: Experiment
    seconds: Mapping[str, float]  # its part of the budget, by group that is wanted
    limit_s: float  # the longest it may take, also with what others leave it of theirs
    again: bool = False  # for the second time


def plan(groups: Collection[str], nodes: int, budget_s: float) -> tuple[Step, ...]:
    """The experiments that make any of these fact groups, in their order.

    budget_s: for all that fill the network, once their processes run.
    """
    chosen = ordered(one for one in EXPERIMENTS.values() if set(one.groups) & set(groups))
    weights = {g: w for one in chosen for g, w in one.shares.items() if g in groups}
    spare = sum(weights.get(g, 0.0) for one in chosen if one.spares for g in one.shares)
    steps = []
    for one in chosen:
        seconds = {g: budget_s * weights[g] / sum(weights.values()) for g in one.shares if g in weights}
        most_s = sum(seconds.values())
        if most_s and not one.spares:
            most_s *= sum(weights.values()) / (sum(weights.values()) - spare)
        steps.append(Step(experiment=one, seconds=seconds, limit_s=one.limit_s(nodes, most_s) + ALIVE_S))
    again = [replace(step, again=True) for step in steps if step.experiment.again is not None]
    return tuple(sorted([*steps, *again], key=lambda step: step.experiment.last))


def with_more(steps: Sequence[Step], seconds: float) -> list[Step]:
    """The steps, with so many more seconds of the budget among those that have a part of it."""
    parts = sum(sum(step.seconds.values()) for step in steps)
    more = 1 + seconds / parts if parts else 1.0
    return [replace(step, seconds={g: part_s * more for g, part_s in step.seconds.items()}) for step in steps]


# Who is waited for, by name, where it is not everybody.
WAITING_NAMES = 4

# How many nodes were asked the same, and of how many an answer is missing; a few of these by name.
Waiting = Callable[[int, int, tuple[str, ...]], None]


class OutOfTime(Exception):
    """An experiment took longer than it may."""


class Asker:
    """A transport for one experiment, until its time is over. lost: the nodes that were lost meanwhile.

    scan_ends: on the clock of time.monotonic(). dead: nodes of the whole scan that stopped answering: who is
    late with an answer, and silent when asked for a sign of life, is not waited for again. tell: is told of
    each question and of each answer.
    """

    def __init__(
        self,
        transport: Transport,
        step: Step,
        scan_ends: float,
        dead: dict[str, Missing] | None = None,
        tell: Waiting = lambda total, left, some: None,
    ) -> None:
        self.tell = tell
        self.transport = transport
        self.dead = {} if dead is None else dead
        self.limit_s = step.limit_s
        self.ends = time.monotonic() + step.limit_s
        self.scan_ends = scan_ends
        self.lost: dict[str, Missing] = {}

    def call(self, requests: Mapping[str, Request]) -> Iterator[Reply]:
        """Raises OutOfTime, or DeadlineReached when it is the scan that ends."""
        now = time.monotonic()
        if now >= self.scan_ends:
            raise DeadlineReached
        if now >= self.ends:
            raise OutOfTime(f"it did not end within {self.limit_s:.0f} s")
        late: dict[str, Missing] = {}
        left = dict.fromkeys(requests)
        self.tell(len(requests), len(left), tuple(islice(left, WAITING_NAMES)))
        for reply in self._answers(requests, min(self.ends, self.scan_ends) - now):
            # By the time listeners are closed the node has told all that was asked.
            closing = reply.node in requests and requests[reply.node].op == "unlisten"
            if reply.missing is not None and reply.missing.why in (Why.LOST, Why.JUMP) and not closing:
                self.lost.setdefault(reply.node, reply.missing)
            elif reply.missing is not None and reply.missing.why is Why.TIMED_OUT:
                late[reply.node] = reply.missing
            left.pop(reply.node, None)
            self.tell(len(requests), len(left), tuple(islice(left, WAITING_NAMES)))
            yield reply
        self._look_for(late)

    def _answers(self, requests: Mapping[str, Request], within_s: float) -> Iterator[Reply]:
        yield from (Reply(node=node, missing=self.dead[node]) for node in requests if node in self.dead)
        alive = {n: _mortal(request, within_s) for n, request in requests.items() if n not in self.dead}
        if alive:
            yield from self.transport.call(alive, within_s=within_s)

    def _look_for(self, late: Mapping[str, Missing]) -> None:
        """Tell those that took too long for one question from those that answer none any more."""
        left_s = min(self.ends, self.scan_ends) - time.monotonic()
        if not late or left_s < ALIVE_S:
            return
        ask = Request(op="ping", timeout_s=ALIVE_S)
        for reply in self.transport.call(dict.fromkeys(late, ask), within_s=ALIVE_S):
            if reply.missing is not None and reply.node in late:
                lost = Missing(Why.LOST, f"it stopped answering: {late[reply.node].detail}")
                self.dead[reply.node] = lost
                self.lost.setdefault(reply.node, lost)


def _mortal(request: Request, within_s: float) -> Request:
    """The request, so that nothing it opens outlives the experiment, even if nobody is left to close it."""
    ttl_s = request.args.get("ttl_s")
    if not isinstance(ttl_s, int | float) or ttl_s <= within_s:
        return request
    return replace(request, args={**request.args, "ttl_s": within_s})


def run_step(step: Step, context: Context) -> tuple[Any, ...] | Missing:
    """What the experiment found of all that it makes; the second time, one fact of each node's two.

    A Missing where it is not what was declared: a plug-in returns anything.
    """
    experiment = step.experiment
    found = experiment.function(context)
    values = found if isinstance(found, tuple) else (found,)
    if isinstance(found, Missing):
        return found
    if len(values) != len(experiment.products) or not all(map(Product.fits, experiment.products, values)):
        return Missing(Why.FAILED, f"experiment {experiment.name} returned something else than it declares")
    if not is_ours(experiment):
        values = tuple(map(read_back, experiment.products, values))
    if not step.again or experiment.again is None:
        return values
    joined = []
    for fact, later in zip(experiment.products, values, strict=True):
        first = context.store.node.get(fact.info.group, {})
        joined.append({n: experiment.again(first.get(n), later.get(n)) for n in context.participants.nodes})
    return tuple(joined)


def keep(
    store: Store,
    step: Step,
    found: tuple[Any, ...] | Missing,
    nodes: Sequence[str],
    groups: Collection[str],
    lost: Mapping[str, Missing],
) -> None:
    """Store what an experiment found of these nodes; a Missing stands for all that it makes."""
    if step.again and isinstance(found, Missing):
        return  # what it found the first time stands
    facts = step.experiment.products
    for one, value in zip(facts, (found,) * len(facts) if isinstance(found, Missing) else found, strict=True):
        group = one.info.group
        if group not in groups:
            continue
        if one.info.scope == "node":
            by_node = dict.fromkeys(nodes, value) if isinstance(value, Missing) else value
            store.node.setdefault(group, {}).update(by_node)
            continue
        store.cluster[group] = value
        if not step.experiment.tells_lost:
            for node, missing in lost.items():
                store.put(group, node, missing)
