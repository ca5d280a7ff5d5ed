"""Decides what runs, in which order, with which bound: log in, collect, measure, judge."""

import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from netdoctor.check import Check, Profile
from netdoctor.engine.experiments import (
    ADDRESS_FACTS,
    BUDGET_S,
    Asker,
    OutOfTime,
    Step,
    keep,
    plan,
    run_step,
    with_more,
)
from netdoctor.engine.gathering import (
    AUTO,
    Answers,
    addresses,
    all_paths,
    chosen_pythons,
    fill_gaps,
    first_groups,
    lookups,
    put_control_facts,
    put_leaves,
    put_untried,
    software_args,
)
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import collectors
from netdoctor.errors import DeadlineReached
from netdoctor.facts.bandwidth import Baseline
from netdoctor.facts.base import FactInfo, Missing, Why
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import Login, Session
from netdoctor.facts.software import Job
from netdoctor.inventory import Target
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.model import Status
from netdoctor.store import Store
from netdoctor.transport.base import Request, SessionEvent, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Something happened."""

    phase: str  # ``pythons``, ``connect``, the name of an experiment, ``judge``
    done: int = 0
    total: int = 0  # 0 when a phase begins without a count
    node: str | None = None
    text: str = ""  # what happened to that node
    # When all experiments with a share of the budget mean to be over, on the clock of time.monotonic(); None
    # for phases that take as long as their nodes do.
    ends: float | None = None
    requested: int = 0  # nodes that an experiment asked the same
    left: int = 0  # how many of these have not answered
    waiting: tuple[str, ...] = ()  # a few of those


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to run."""

    profile: Profile = Profile.LAUNCH
    timeout_s: float = 30.0
    budget_s: float | None = None  # for all experiments that fill the network; None: by profile
    deadline_s: float | None = None  # for the whole scan; None: its own bound
    judged: tuple[str, ...] | None = None  # nodes that get statuses, None for all; peers are contacted too
    baseline: Baseline | None = None  # of an earlier report, to compare with
    alone: bool = False  # each node speaks for itself, and nothing is tried between them
    expected: Expectations | None = None  # by the user


@dataclass(slots=True)
class Outcome:
    """A finished or interrupted scan."""

    store: Store
    judgement: Judgement
    ended_by: str = "end"  # ``end``, ``interrupt``, ``deadline``
    phases: tuple[tuple[str, float], ...] = ()  # name and seconds of each, in order, as in Progress


# What judging may take beyond the deadline, or after an interrupt.
JUDGING_S = 10.0

Listener = Callable[[Progress], None]


class Scan:
    """One scan: state that survives an interrupt, so that what is known is always judged."""

    def __init__(
        self,
        targets: Sequence[Target],
        checks: Sequence[Check],
        job: Job,
        options: Options,
        listener: Listener = lambda progress: None,
    ) -> None:
        self.targets = tuple(targets)
        self.nodes = tuple(target.id for target in targets)
        self.checks = tuple(checks)
        self.job = job
        self.options = options
        self.listener = listener
        self.store = Store()
        self.groups = _groups(checks, options.profile)
        self.answers = Answers(self.store, {})
        self.tracebacks: list[str] = []
        self.began = time.monotonic()
        self.ends = math.inf
        self.phases: list[tuple[str, float]] = []

    def run(self, transport: Transport) -> Outcome:
        """Everything, then the verdict's raw material.

        KeyboardInterrupt and DeadlineReached end the collecting, not the scan: what was not measured by then
        is unknown.
        """
        self.began = time.monotonic()
        options = self.options
        put_control_facts(self.store, self.targets, self.job, options.baseline, options.expected)
        if self.options.alone:
            put_untried(self.store, self.groups, self.nodes)
        ended_by = "end"
        try:
            ended_by = _stopped(lambda: self._collect(transport)) or "end"
        finally:  # also when netdoctor itself broke: sessions do not wait for the process to end
            ended_by = _stopped(transport.close) or ended_by
        # Judging takes a second per thousand nodes. Whatever stops it, once by an interrupt and once by the
        # deadline, is noted and the judging done again, in bounded time: a scan that collected something has
        # something to say.
        judgement: Judgement | None = None
        while judgement is None:
            try:
                with self._timed("judge"):
                    judgement = self._judge(ended_by)
            except KeyboardInterrupt:
                ended_by = "interrupt"
            except DeadlineReached:
                ended_by = "deadline"
        judgement.tracebacks[:0] = self.tracebacks
        if ended_by != "interrupt":
            ended_by = judgement.stopped or ended_by
        phases = tuple(self.phases)
        return Outcome(store=self.store, judgement=judgement, ended_by=ended_by, phases=phases)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """Note how long a phase takes, also one that is cut short."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases.append((phase, time.monotonic() - began))

    def _collect(self, transport: Transport) -> None:
        if any(target.python == AUTO for target in self.targets):
            with self._timed("pythons"):
                self._choose_pythons(transport)
        with self._timed("connect"):
            self._connect(transport)
        if self.plan:
            self._measure(transport)

    def _choose_pythons(self, transport: Transport) -> None:
        """Log in to the targets that ask for it once before, and take an interpreter that has torch there."""
        asking = [replace(target, python=None) for target in self.targets if target.python == AUTO]
        if not asking:
            return
        total = len(asking)
        self.listener(Progress(phase="pythons", total=total))
        args = {"groups": {"software": software_args(self.job)}}
        request = Request(op="facts", args=args, timeout_s=self.options.timeout_s)
        first = {target.id: request for target in asking}
        found = Store()
        answers = Answers(found, args["groups"])
        for event in transport.start(
            asking, first, keep_open=False, collectors={}, deadline_s=transport.bound_s(asking)
        ):
            if not isinstance(event, SessionEvent):
                answers.add(event)
        answers.read()
        chosen = chosen_pythons(found.present("software", [target.id for target in asking]))
        self.targets = tuple(
            replace(target, python=chosen.get(target.id)) if target.python == AUTO else target
            for target in self.targets
        )

    def first_requests(self) -> dict[str, Request]:
        """The passive facts each node is asked for right after login; one object for those asked alike."""
        groups, names = self._first_groups, dict[str, list[str]]()
        if "resolve" in groups:
            names = lookups(self.targets, self.job, self.options.profile)

        def request(more: dict[str, Any]) -> Request:
            args = {"groups": {**groups, **more}}
            return Request(op="facts", args=args, timeout_s=self.options.timeout_s, by_group=True)

        lists = {id(one): one for one in names.values()}
        requests = {key: request({"resolve": {"names": one}}) for key, one in lists.items()}
        plain = request({})
        return {node: requests.get(id(names.get(node)), plain) for node in self.nodes}

    @cached_property
    def _first_groups(self) -> dict[str, dict[str, Any]]:
        return first_groups(self._needed(), self.targets, self.job, self.options.profile)

    def _needed(self) -> set[str]:
        """What checks want, and what experiments need."""
        needed = self.groups | {"host"} | {g for step in self.plan for g in step.experiment.needs}
        return needed | ADDRESS_FACTS if self.plan or {"job", "paths"} & self.groups else needed

    @cached_property
    def plan(self) -> tuple[Step, ...]:
        """What needs nodes to talk to each other or to keep their sessions open, in order."""
        if self.options.alone:
            return ()
        budget_s = self.options.budget_s or BUDGET_S[self.options.profile]
        return plan(self.groups, len(self.targets), budget_s)

    def bound_s(self, transport: Transport) -> float:
        """After how many seconds no node is asked anything any more, whatever the nodes do.

        Raises TransportInputError.
        """
        asking = [target for target in self.targets if target.python == AUTO]
        before = transport.bound_s(asking) if asking else 0.0
        longest = before + transport.bound_s(self.targets) + sum(step.limit_s for step in self.plan)
        return min(longest, self.options.deadline_s or longest)

    def _connect(self, transport: Transport) -> None:
        bound_s = self.bound_s(transport)
        self.ends = time.monotonic() + bound_s
        total = len(self.targets)
        done = 0
        self.listener(Progress(phase="connect", total=total))
        self.answers = Answers(self.store, self._first_groups)
        for event in transport.start(
            self.targets,
            self.first_requests(),
            keep_open=bool(self.plan),
            collectors=collectors(self._needed()),
            deadline_s=bound_s,
        ):
            if isinstance(event, SessionEvent):
                self.store.put("session", event.node, event.session)
                if event.session.outcome == Login.OK:
                    continue
                done += 1
                self.listener(
                    Progress(
                        phase="connect", done=done, total=total, node=event.node, text=event.session.outcome
                    )
                )
                continue
            done += 1
            self.answers.add(event)
            self.listener(Progress(phase="connect", done=done, total=total, node=event.node))
        self.answers.read()
        # Where peers dial each node; the checks read it from the job.
        what = "the nodes' data addresses"
        found = self._guarded(what, lambda: addresses(self.store, self.nodes, self.job))
        self.job = replace(self.job, data_addresses={} if isinstance(found, Missing) else found)
        self.store.cluster["job"] = self.job
        self.store.cluster["paths"] = self._guarded(
            "the job's paths", lambda: all_paths(self.store, self.nodes, self.job)
        )
        self._guarded("which nodes share a switch", lambda: put_leaves(self.store, self.nodes, self.job))

    def _measure(self, transport: Transport) -> None:
        alive = [
            n
            for n in self.nodes
            if isinstance(session := self.store.get("session", n), Session)
            and session.outcome == Login.OK
            and not isinstance(self.store.get("host", n), Missing)
        ]
        dead: dict[str, Missing] = {}
        left = list(self.plan)
        while left:
            own_s = sum(left[0].seconds.values())
            budget_s = sum(sum(one.seconds.values()) for one in left)
            step, *left = left
            start = time.monotonic()
            began = Progress(
                phase=step.experiment.name, total=len(alive), ends=start + budget_s if own_s else None
            )
            asker = Asker(transport, step, self.ends, dead, partial(self._report_waiting, began))
            context = Context(
                transport=asker,
                participants=Participants.from_facts(alive, self.store, self.job),
                store=self.store,
                job=self.job,
                profile=self.options.profile.value,
                seconds=step.seconds,
                limit_s=step.limit_s,
            )
            found = self._phase(step, context, began)
            keep(self.store, step, found, alive, self.groups, asker.lost)
            if step.experiment.spares:
                left = with_more(left, max(0.0, start + own_s - time.monotonic()))

    def _report_waiting(self, began: Progress, requested: int, left: int, waiting: tuple[str, ...]) -> None:
        self.listener(replace(began, requested=requested, left=left, waiting=waiting))

    def _phase(self, step: Step, context: Context, began: Progress) -> Any:
        """What the experiment found, or a Missing when it ended with an exception: the others go on."""
        name, total = began.phase, began.total
        self.listener(began)
        with self._timed(name):
            found = self._guarded(name, lambda: run_step(step, context))
        self.listener(Progress(phase=name, done=total, total=total))
        return found

    def _guarded(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except DeadlineReached:
            raise
        except OutOfTime as error:
            return Missing(Why.TIMED_OUT, f"measuring {what}: {error}")
        except (Exception, SystemExit) as error:  # a defect, or what a hostile node's answer leads to
            self.tracebacks.append(f"measuring {what} crashed\n{traceback.format_exc()}")
            return Missing(Why.FAILED, f"netdoctor could not measure {what}: {type(error).__name__}: {error}")

    def preview(self, node: str) -> dict[str, Status]:
        """What checks of one node say from the facts it has sent so far. The verdict judges everything again.

        For those who watch. Checks that compare nodes, wait for a fact, or come from plug-ins are left out.
        """
        self.answers.read()
        session = self.store.get("session", node)
        lost = isinstance(session, Session) and session.outcome != Login.OK
        ready = [
            check
            for check in self.checks
            if check.scope == "node"
            and check.origin.startswith("netdoctor.")
            and (lost or all(self._has(parameter.info, node) for parameter in check.parameters))
        ]
        cells = judge(ready, [node], self.store).cells
        return {check: by_node[node] for check, by_node in cells.items()}

    def _has(self, info: FactInfo, node: str) -> bool:
        if info.scope == "cluster":
            return info.group in self.store.cluster
        return node in self.store.node.get(info.group, {})

    def _judge(self, ended_by: str) -> Judgement:
        self.listener(Progress(phase="judge"))
        self.answers.read()  # those that were there when the collecting was stopped
        fill_gaps(self.store, self.groups, self.nodes, ended_by)
        now = time.monotonic()
        ends = now if ended_by != "end" else max(now, self.began + (self.options.deadline_s or math.inf))
        return judge(self.checks, self.nodes, self.store, self.options.judged, ends + JUDGING_S)


def _stopped(work: Callable[[], None]) -> str | None:
    """Do `work` and say what stopped it: ``interrupt``, ``deadline``, or None."""
    try:
        work()
    except KeyboardInterrupt:
        return "interrupt"
    except DeadlineReached:
        return "deadline"
    return None


def judge_facts(
    store: Store, checks: Sequence[Check], judged: Iterable[str] | None = None, ended_by: str = "end"
) -> Outcome:
    """Judge saved facts again, without any contact. Facts that the earlier scan did not collect make `skip`.

    ended_by: how the earlier scan ended; one that was cut short does not become whole by judging it again.
    """
    nodes = tuple(sorted(store.node.get("node", {}), key=lambda n: getattr(store.get("node", n), "order", 0)))
    return Outcome(store=store, judgement=judge(checks, nodes, store, judged), ended_by=ended_by)


def _groups(checks: Sequence[Check], profile: Profile) -> set[str]:
    """The fact groups that checks look at. A quick scan measures nothing that its own checks can do without:
    sessions then end with their first answer, and a node has few of its neighbours' beside its own. A check
    of a larger profile, which somebody has named, is asked for with all that it looks at."""
    passive = not profile.includes(Profile.LAUNCH)
    return {
        parameter.info.group
        for check in checks
        for parameter in check.needs
        if not (
            passive
            and check.profile is Profile.QUICK
            and parameter.optional
            and parameter.info.origin == "measure"
        )
    }
