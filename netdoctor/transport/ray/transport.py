"""A Ray cluster as the way to its nodes: one actor on each, which runs the same agent as every transport.

Ray takes only a driver of its own release and Python, so that netdoctor imports none: it sends `ray_driver`
to the cluster's interpreter (see `rayhelper`) and talks through that to the agents.
"""

import math
import secrets
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from netdoctor.facts.base import Why
from netdoctor.facts.host import Login, Session
from netdoctor.inventory.model import Inventory, Target
from netdoctor.inventory.names import RESERVED, is_valid_host
from netdoctor.text import clean
from netdoctor.transport.base import (
    CLOCK_AT_ONCE,
    SLACK_S,
    Event,
    Limits,
    Reply,
    Request,
    SessionEvent,
    StartPlan,
    Transport,
    last_moment,
    missing_reply,
)
from netdoctor.transport.bundle import argv, build_bundle
from netdoctor.transport.ray.ray_driver import BUNDLE, CLOSE, DATA, ENDED, OPEN, WRITE
from netdoctor.transport.ray.rayhelper import (
    DIED,
    Helper,
    HelperGone,
    RayNode,
    RayOptions,
    Table,
    checked,
    in_order,
)
from netdoctor.transport.session import Answer, Broken, Conversation, Greeting, Send, too_old

# Each has Ray start a process, which its head knows of.
ACTORS_AT_ONCE = 64
ALIKE_AT_MOST = 4
# How it ends where no agent comes to answer, by what the driver says was going on.
OUTCOMES = {"late": Login.TIMEOUT, "interpreter": Login.INTERPRETER, "dead": Login.UNREACHABLE}


@dataclass(frozen=True, slots=True)
class _Over:
    """An agent has ended, or is late."""

    why: Why
    detail: str
    stage: str = ""  # as the driver names it


_Outcome = Greeting | Answer | Broken | _Over


@dataclass(slots=True, eq=False)
class _Agent:
    """An agent at the other end of a channel."""

    node: str
    channel: int
    conversation: Conversation
    session: dict[str, Any]
    finish: float
    is_awaited: bool = True  # something is to come of it, until `finish`


class RayTransport(Transport):
    """Reaches the nodes of a Ray cluster."""

    def __init__(self, options: RayOptions, limits: Limits) -> None:
        """Raises InputError for an address that is none."""
        checked(options.address)
        self._options = options
        self._limits = limits
        self._at_once = min(limits.parallel, ACTORS_AT_ONCE)
        self._helper: Helper | None = None
        self._table: Table | None = None
        self._helper_end = ""
        self._agents: dict[int, _Agent] = {}
        self._open: dict[str, _Agent] = {}
        self._channels = 0
        self._anchor = time.time() - time.monotonic()

    # What there is

    def table(self) -> Table:
        """Ray's own table of its nodes. Raises InputError where there is no cluster."""
        if self._helper is None or self._table is None:
            self.close()
            self._helper = Helper(self._options, self._raise_interruption)
            try:
                self._table = self._helper.table(self._limits.node_budget_s)
            except BaseException:
                self.close()
                raise
        return self._table

    def inventory(self) -> Inventory:
        """The nodes of the cluster. Raises InputError."""
        rows = self.table().nodes
        return inventory_of(rows, f"Ray at {self._helper.address if self._helper else self._options.address}")

    def describe(self, target: Target) -> dict[str, Any]:
        """Return what `start` would do for this target, without contact."""
        return {
            "transport": "ray",
            "host": target.host,
            "address": None,
            "port": None,
            "user": "",
            "jump": [],
            "python": target.python or "that of Ray",
        }

    def bound_s(self, targets: Sequence[Target]) -> float:
        """Return the longest that `start` can take."""
        rounds = -(-len(targets) // self._at_once)
        return (rounds + 1) * self._limits.node_budget_s + SLACK_S  # one for connecting

    # Starting agents

    def _start(self, plan: StartPlan) -> Iterator[Event]:
        """Start an actor with an agent on each node. Raises InputError at once where there is no cluster."""
        for agent in list(self._agents.values()):
            self._dismiss(agent)
        rows = Rows(self.table().nodes)
        marker = secrets.token_hex(8)
        bundle = build_bundle(marker=marker, deadline_s=plan.deadline_s, collectors=plan.collectors)
        self._send(BUNDLE, 0, bundle)
        return self._serve(plan, rows, marker)

    def _serve(self, plan: StartPlan, rows: "Rows", marker: str) -> Iterator[Event]:
        left = deque(plan.targets)
        starting: set[_Agent] = set()
        pending: set[_Agent] = set()

        def fill() -> Iterator[SessionEvent]:
            while left and len(starting) < self._at_once:
                target = left.popleft()
                row = rows.find(target)
                absent = self._absent(target, row)
                if row is None or absent is not None:
                    yield SessionEvent(node=target.id, session=msgspec.convert(absent, Session))
                else:
                    starting.add(self._begin(target, rows.at_address_of(row), marker))

        yield from fill()
        for agent, event in self._outcomes(lambda: bool(left or starting or pending)):
            if agent in starting:
                starting.discard(agent)
                session = self._session(agent, event)
                yield SessionEvent(node=agent.node, session=session)
                if session.outcome == Login.OK:
                    pending.add(agent)
                    self._ask(agent, plan.first[agent.node], agent.finish)
                else:
                    self._dismiss(agent)
            elif agent in pending:
                pending.discard(agent)
                yield _reply(agent, event)
                if not plan.keep_open:
                    self._dismiss(agent)
            yield from fill()

    def _absent(self, target: Target, row: RayNode | None) -> dict[str, Any] | None:
        """The session with a node that has no actor to begin with."""
        if self._helper_end:
            outcome, detail = Login.CONTROL, self._helper_end
        elif row is None:
            outcome, detail = Login.NAME, f"Ray's table of nodes has no {target.host}"
        elif not row.alive:
            outcome, detail = Login.UNREACHABLE, f"dead in Ray's table of nodes: {row.death}"
        else:
            return None
        where = {"transport": "ray", "stage": "table", "address": None if row is None else row.address}
        return {**where, "outcome": outcome, "detail": detail}

    def _begin(self, target: Target, rows: Sequence[RayNode], marker: str) -> _Agent:
        """Ask for an actor on one of these nodes of Ray's, which are one machine."""
        self._channels += 1
        budget_s = self._limits.node_budget_s
        python = target.python or "that of Ray"
        session = {"transport": "ray", "address": rows[0].address, "interpreter": python}
        agent = _Agent(
            node=target.id,
            channel=self._channels,
            conversation=Conversation(marker, self._anchor),
            session=session,
            finish=time.monotonic() + budget_s,
        )
        self._agents[agent.channel] = self._open[agent.node] = agent
        # A little less than ours, so that what is late is told apart.
        within_s = max(0.9 * budget_s, budget_s - 2.0)
        ids = [row.id for row in rows]
        plan = {"node_ids": ids, "argv": argv(target.python or "", marker), "within_s": within_s}
        self._send(OPEN, agent.channel, msgspec.json.encode(plan))
        return agent

    def _session(self, agent: _Agent, event: _Outcome) -> Session:
        found: dict[str, Any] = {"outcome": Login.SHELL, "stage": "agent"}
        if isinstance(event, _Over) and event.why is Why.FAILED:
            found["outcome"], found["detail"] = Login.CONTROL, event.detail
        elif isinstance(event, _Over):
            late = Login.TIMEOUT if event.why is Why.TIMED_OUT else Login.SHELL
            found["outcome"], found["stage"] = OUTCOMES.get(event.stage, late), event.stage or "agent"
            found["detail"] = clean(event.detail or agent.conversation.tail or "the agent ended", 400)
        elif not isinstance(event, Greeting):
            why = event.why if isinstance(event, Broken) else "it answers what nobody asked"
            found["detail"] = f"the agent did not start: {why}"
        elif why := too_old(event.hello, agent.session["interpreter"]):
            found |= {"outcome": Login.OLD_PYTHON, "detail": why}
            found["python_version"] = clean(event.hello.old_python or "", 20)
        else:
            found |= {"outcome": Login.OK, "python_version": clean(event.hello.python, 20)}
            found |= {"interpreter": clean(event.hello.executable, 200), "noise": agent.conversation.noise}
        return msgspec.convert({**agent.session, **found}, Session)

    # Asking

    def _call(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        finish = last_moment(requests, finish)
        left = deque(requests.items())
        pending: set[_Agent] = set()

        def fill() -> Iterator[Reply]:
            while left and (left[0][1].op != "clock" or len(pending) < CLOCK_AT_ONCE):
                node, request = left.popleft()
                agent = self._open.get(node)
                if agent is None or self._helper_end:
                    yield missing_reply(node, Why.LOST, self._helper_end or "no open session")
                else:
                    pending.add(agent)
                    self._ask(agent, request, finish)

        yield from fill()
        for agent, event in self._outcomes(lambda: bool(left or pending), finish):
            if agent in pending:
                pending.discard(agent)
                yield _reply(agent, event)
            yield from fill()
        for node in [*(agent.node for agent in pending), *(node for node, _ in left)]:
            yield missing_reply(node, Why.TIMED_OUT, "no answer in time")

    def _ask(self, agent: _Agent, request: Request, finish: float) -> None:
        agent.finish, agent.is_awaited = min(finish, time.monotonic() + request.timeout_s), True
        self._send(WRITE, agent.channel, agent.conversation.ask_for(request))

    # The helper

    def _send(self, kind: bytes, channel: int, payload: bytes = b"") -> None:
        if self._helper is not None:
            self._helper.send(kind, channel, payload)

    def _outcomes(
        self, more: Callable[[], bool], finish: float = math.inf
    ) -> Iterator[tuple[_Agent, _Outcome]]:
        """Yield agents that something was waited for of, and what came of it.

        Ends where there is no more to wait for, or `finish` has passed.
        """
        helper = self._helper
        if helper is None or not more():
            return
        try:
            for kind, channel, payload in helper.messages(finish):
                late: list[_Agent] = []
                if not kind:
                    now = time.monotonic()
                    late = [a for a in self._agents.values() if a.is_awaited and a.finish <= now]
                    over = _Over(Why.TIMED_OUT, "no answer in time")
                elif (agent := self._agents.get(channel)) is None:
                    continue
                elif kind == DATA:
                    yield from ((agent, event) for event in self._from_agent(agent, payload))
                elif kind == ENDED:
                    del self._agents[channel]
                    if self._open.get(agent.node) is agent:
                        del self._open[agent.node]
                    late, over = [agent] if agent.is_awaited else [], _lost(payload)
                for one in late:
                    one.is_awaited = False
                    yield one, over
                if not more():
                    return
        except HelperGone as e:
            self._helper_end = str(e)
            for one in [agent for agent in self._agents.values() if agent.is_awaited]:
                one.is_awaited = False
                yield one, _Over(Why.FAILED, self._helper_end)

    def _from_agent(self, agent: _Agent, data: bytes) -> Iterator[Greeting | Answer | Broken]:
        """Take an agent's bytes; yield what came of them, where something was waited for."""
        for event in agent.conversation.feed(data):
            if isinstance(event, Send):
                self._send(WRITE, agent.channel, event.data)
                continue
            if isinstance(event, Broken):
                self._dismiss(agent)
            if agent.is_awaited:
                agent.is_awaited = False
                yield event

    def _dismiss(self, agent: _Agent) -> None:
        """End an agent: its actor ends with it."""
        self._send(CLOSE, agent.channel)
        if self._open.get(agent.node) is agent:
            del self._open[agent.node]

    def close(self) -> None:
        """End all agents and the helper within two seconds. Safe to call twice."""
        self._agents.clear()
        self._open.clear()
        helper, self._helper, self._table = self._helper, None, None
        if helper is not None:
            helper.close()


def inventory_of(rows: Sequence[RayNode], source: str) -> Inventory:
    """The nodes of a table, head first; of the dead those that nobody stopped and that none replaced."""
    by_address = {row.address: row for row in rows if not row.alive and row.reason in DIED}
    by_address.update({row.address: row for row in rows if row.alive})
    known = [row for row in by_address.values() if is_valid_host(row.address)]
    known.sort(key=lambda row: (not row.is_head, in_order(row.address)))
    count = Counter(row.hostname or "" for row in known)
    targets = []
    for order, row in enumerate(known):
        name = row.hostname or ""
        plain = count[name] == 1 and is_valid_host(name) and name not in RESERVED
        targets.append(Target(id=name if plain else row.address, host=row.address, order=order, source="Ray"))
    return Inventory(targets=tuple(targets), format="ray", source=source)


class Rows:
    """Ray's table by all names of a node; who is alive comes first."""

    def __init__(self, rows: Iterable[RayNode]) -> None:
        self._by_name: dict[str, RayNode] = {}
        self._at: dict[str, list[RayNode]] = {}
        for row in sorted(rows, key=lambda row: not row.alive):
            for name in row.names:
                self._by_name.setdefault(name, row)
            if row.alive:
                self._at.setdefault(row.address, []).append(row)

    def at_address_of(self, row: RayNode) -> list[RayNode]:
        """This one and those that are alive at the same address: of another ray start, or of one before."""
        more = self._at.get(row.address, [])[:ALIKE_AT_MOST]
        return [row, *(one for one in more if one.id != row.id)]

    def find(self, target: Target) -> RayNode | None:
        """The row of a target, by its names, or by an address that its name has here."""
        for name in (target.host.lower(), target.id.lower()):
            if name in self._by_name:
                return self._by_name[name]
        with suppress(OSError, UnicodeError):
            for *_, address in socket.getaddrinfo(target.host, None, type=socket.SOCK_STREAM):
                if str(address[0]) in self._by_name:
                    return self._by_name[str(address[0])]
        return None


def _lost(payload: bytes) -> _Over:
    """Why an agent is gone, as the driver says it."""
    try:
        end = msgspec.json.decode(payload, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        end = {}
    return _Over(Why.LOST, clean(end.get("detail", ""), 400) or "the agent ended", end.get("stage", ""))


def _reply(agent: _Agent, event: _Outcome) -> Reply:
    if isinstance(event, _Over):
        agent.conversation.late()
        return missing_reply(agent.node, event.why, event.detail)
    if isinstance(event, Answer):
        return event.reply(agent.node)
    return missing_reply(agent.node, Why.UNPARSABLE, "the agent started again")
