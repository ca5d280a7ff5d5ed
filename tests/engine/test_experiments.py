"""Experiments as declared: what they make, their order and time, and what becomes of what they find."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from netdoctor.engine import experiments as engine
from netdoctor.engine.experiments import ADDRESS_FACTS, plan
from netdoctor.engine.registry import load_builtin, select
from netdoctor.engine.run import Options, Progress, Scan
from netdoctor.facts import fact
from netdoctor.facts.base import FACT_TYPES, Missing, Why
from netdoctor.facts.clock import ClockSample
from netdoctor.facts.net import PortMatrix
from netdoctor.facts.software import Job
from netdoctor.measure.declare import EXPERIMENTS, Context, ExperimentError, experiment, ordered
from netdoctor.store import dump
from netdoctor.transport.base import Reply, Request
from tests.checks import build_hw as hw
from tests.core.fake import LOST, FakeTransport, login, plain, targets
from tests.engine.test_engine import cluster

ALL = {group for one in EXPERIMENTS.values() for group in one.groups}
MEASURED = {info.group for info in FACT_TYPES.values() if info.origin == "measure"}


@fact("site_run", scope="cluster", origin="measure")
@dataclass(frozen=True)
class SiteRun:
    word: str


@fact("site_node", origin="measure")
@dataclass(frozen=True)
class SiteNode:
    number: int


RUN, NODE = FACT_TYPES.pop(SiteRun), FACT_TYPES.pop(SiteNode)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The registered experiments; what a test adds to them, and its facts, is forgotten after it."""
    monkeypatch.setitem(FACT_TYPES, SiteRun, RUN)
    monkeypatch.setitem(FACT_TYPES, SiteNode, NODE)
    before = dict(EXPERIMENTS)
    yield EXPERIMENTS
    EXPERIMENTS.clear()
    EXPERIMENTS.update(before)


def scan_for(
    wanted: set[str], count: int = 3, listener: Callable[[Progress], None] | None = None, **options: Any
) -> Scan:
    """A scan in which somebody wants these groups."""
    rest = () if listener is None else (listener,)
    scan = Scan(targets(count), [login()], Job(master_node="n1"), Options(**options), *rest)
    scan.groups |= wanted
    return scan


def test_every_measured_fact_has_its_experiment() -> None:
    assert ALL == MEASURED


def test_the_order_of_ours() -> None:
    steps = plan(ALL, 4, 20.0)
    names = [step.experiment.name + (" again" if step.again else "") for step in steps]
    assert names[:4] == ["clock", "routes", "ports", "firewall"]  # what runs again, and what it comes after
    assert {"gpu-work", "imports", "path-mtu", "loss"} < set(names[4:-5])
    assert names[-5:] == ["verbs", "tcp", "allreduce", "clock again", "counters"]


def test_only_what_is_wanted() -> None:
    assert [step.experiment.name for step in plan({"firewall", "host"}, 4, 20.0)] == ["firewall"]
    assert plan({"host", "limits"}, 4, 20.0) == ()


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [
        pytest.param({"tcp_rates"}, [{"tcp_rates": 20.0}], id="one has it all"),
        pytest.param(
            {"tcp_rates", "pair_rates", "allreduce"},
            [{"tcp_rates": 8.0}, {"pair_rates": 7.0, "allreduce": 5.0}],
            id="by their weights",
        ),
        pytest.param({"allreduce"}, [{"allreduce": 20.0}], id="the group that nobody wants has no part"),
        pytest.param({"ports", "tcp_rates"}, [{}, {"tcp_rates": 20.0}], id="others need none"),
    ],
)
def test_the_budget_is_shared_by_those_that_are_wanted(
    wanted: set[str], seconds: list[dict[str, float]]
) -> None:
    assert [dict(step.seconds) for step in plan(wanted, 4, 20.0)] == [pytest.approx(s) for s in seconds]


def test_a_quick_scan_opens_no_port_and_loads_no_gpu() -> None:
    chosen = select(load_builtin(), engine.Profile.QUICK)
    scan = Scan(targets(3), chosen, Job(), Options(profile=engine.Profile.QUICK))
    assert chosen
    # Nor does it ask between nodes: sessions end with their first answer.
    assert not scan.plan


@pytest.mark.parametrize(
    ("name", "asked"),
    [("net.route", ["routes"]), ("net.container", ["ports"]), ("gpu.link-errors", ["counters"])],
)
def test_a_check_that_is_named_in_a_quick_scan_gets_all_that_it_looks_at(name: str, asked: list[str]) -> None:
    chosen = select(load_builtin(), engine.Profile.QUICK, only=[name])
    scan = Scan(targets(3), chosen, Job(), Options(profile=engine.Profile.QUICK))
    assert [step.experiment.name for step in scan.plan] == asked


def test_what_it_needs_is_asked_for_at_login() -> None:
    asked = set(scan_for({"allreduce"}).first_requests()["n1"].args["groups"])
    assert asked == {"host", "net", "env", "resolve", "software", "gpu", "rdma", "cabling"}
    assert set(scan_for({"ports"}).first_requests()["n1"].args["groups"]) == set(ADDRESS_FACTS)
    assert set(scan_for(set()).first_requests()["n1"].args["groups"]) == {"host"}


def test_the_phases_are_the_experiments(known: Any) -> None:
    events: list[Progress] = []
    scan_for({"clock", "ports", "routes"}, listener=events.append).run(cluster())
    began = [e.phase for e in events if not e.done and not e.requested and e.phase != "connect"]
    assert began == ["clock", "routes", "ports", "clock", "judge"]


# Declaring


def test_what_it_makes_is_its_return_type(known: Any) -> None:
    @experiment(bound_s=1.0)
    def site_both(context: Context) -> tuple[SiteRun | Missing, dict[str, SiteNode | Missing]]:
        """Both."""
        raise NotImplementedError

    assert known["site-both"].groups == ("site_run", "site_node")
    assert known["site-both"].title == "Both."


def wrong_type(context: Context) -> int:
    """An int."""
    return 1


def wrong_origin(context: Context) -> Job:
    """A fact that nobody measures."""
    raise NotImplementedError


def wrong_scope(context: Context) -> dict[str, PortMatrix]:
    """One of each node."""
    raise NotImplementedError


def no_type(context: Context):  # type: ignore[no-untyped-def]  # what is tested
    """Nothing said."""


def taken(context: Context) -> PortMatrix:
    """Ours."""
    raise NotImplementedError


def no_words(context: Context) -> SiteRun:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (wrong_type, {}, "write a fact of origin measure"),
        (wrong_origin, {}, "write a fact of origin measure"),
        (wrong_scope, {}, "write a fact of origin measure"),
        (no_type, {}, "write a fact of origin measure"),
        (taken, {}, "that of netdoctor.measure.ports makes ports"),
        (no_words, {}, "needs a docstring"),
        (taken, {"after": "ports"}, "a list of fact groups"),
        (taken, {"shares": {"tcp_rates": 1.0}}, "shares are of the groups it makes: ports"),
        (taken, {"again": max}, "a fact of each node"),
        (taken, {"shares": {"ports": 0.0}}, "a share is a weight above 0"),
        (taken, {"bound_s": float("nan")}, "bound_s is a number of seconds"),
        (taken, {"bound_s": lambda nodes, seconds: float("inf")}, "bound_s is a number of seconds"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(
    known: Any, function: Callable[[Context], Any], options: dict[str, Any], words: str
) -> None:
    before = dict(known)
    with pytest.raises(ExperimentError, match=words):
        experiment(**{"bound_s": 1.0, **options})(function)
    assert known == before


def test_those_that_wait_for_each_other_are_named(known: Any) -> None:
    @experiment(bound_s=1.0, after=["site_node"])
    def first(context: Context) -> SiteRun:
        """First."""
        raise NotImplementedError

    @experiment(bound_s=1.0, after=["site_run"])
    def second(context: Context) -> dict[str, SiteNode]:
        """Second."""
        raise NotImplementedError

    with pytest.raises(ExperimentError, match="first -> second -> first"):
        ordered(known.values())


# What becomes of what they find


def run_one(function: Callable[[Context], Any], known: Any, **options: Any) -> Scan:
    experiment(**{"bound_s": 1.0, **options})(function)
    scan = scan_for(ALL - {"allreduce", "pair_rates"} | {"site_run", "site_node"})
    scan.run(cluster())
    return scan


def test_a_fact_of_the_run_and_what_was_known_before(known: Any) -> None:
    def site(context: Context) -> SiteRun:
        """Counts the pairs that ports tried."""
        found = context.store.cluster_fact("ports")
        return SiteRun(
            f"{len(found.probes)} probes of {len(context.participants.nodes)} nodes, {context.profile}"
        )

    scan = run_one(site, known, after=["ports"])
    assert scan.store.cluster_fact("site_run") == SiteRun("24 probes of 3 nodes, launch")
    assert scan.tracebacks == []


def test_facts_of_nodes_and_the_second_time(known: Any) -> None:
    calls: list[int] = []

    def site(context: Context) -> dict[str, SiteNode | Missing]:
        """Numbers the nodes."""
        calls.append(1)
        return {n: SiteNode(number=i) for i, n in enumerate(context.participants.nodes, len(calls) * 10)}

    def sum_of(first: SiteNode, second: SiteNode) -> SiteNode:
        return SiteNode(first.number + second.number)

    scan = run_one(site, known, again=sum_of)
    assert [scan.store.get("site_node", n).number for n in scan.nodes] == [30, 32, 34]


def test_the_others_have_what_one_leaves_of_the_budget(monkeypatch: pytest.MonkeyPatch, known: Any) -> None:
    clock = Clock(monkeypatch)
    seconds: dict[str, float] = {}

    def idle(context: Context) -> SiteRun:
        """Finds in two seconds that there is nothing to measure with."""
        clock.now += 2.0
        return SiteRun("nothing")

    def busy(context: Context) -> dict[str, SiteNode | Missing]:
        """Takes what it gets."""
        seconds.update(context.seconds)
        return {}

    for function, share, spares in ((busy, {"site_node": 3.0}, False), (idle, {"site_run": 1.0}, True)):
        experiment(bound_s=lambda nodes, seconds: seconds, shares=share, spares=spares)(function)
    scan = scan_for({"site_run", "site_node"}, budget_s=40.0)
    first, second = [step.limit_s for step in scan.plan if step.seconds]
    assert second - first == 30.0
    scan.run(slow(clock, 3))
    assert seconds == {"site_node": 38.0}


def test_what_was_found_first_stands_when_the_second_time_breaks(known: Any) -> None:
    def site(context: Context) -> dict[str, SiteNode | Missing]:
        """Numbers the nodes."""
        return dict.fromkeys(context.participants.nodes, SiteNode(number=7))

    def broken(first: SiteNode, second: SiteNode) -> SiteNode:
        raise ZeroDivisionError

    scan = run_one(site, known, again=broken)
    assert [scan.store.get("site_node", n).number for n in scan.nodes] == [7, 7, 7]
    assert [text.splitlines()[0] for text in scan.tracebacks] == ["measuring site crashed"]


@pytest.mark.parametrize(
    "found", [pytest.param(None, id="nothing"), pytest.param(("a", "b"), id="too many"), "text", {"n1": 1}]
)
def test_what_was_not_declared_is_nobody_s_fact(known: Any, found: Any) -> None:
    def site(context: Context) -> SiteRun:
        """Returns what it likes."""
        return found  # type: ignore[no-any-return]  # what is tested

    scan = run_one(site, known)
    assert scan.store.cluster_fact("site_run") == Missing(
        Why.FAILED, "experiment site returned something else than it declares"
    )
    assert isinstance(scan.store.cluster_fact("ports"), PortMatrix)


def test_a_fact_that_could_not_be_saved_is_none(known: Any) -> None:
    def site(context: Context) -> SiteRun:
        """Makes a fact of what no report holds."""
        return SiteRun(word=object())  # type: ignore[arg-type]  # what is tested

    scan = run_one(site, known)
    assert scan.store.cluster_fact("site_run").why is Why.FAILED
    dump(scan.store)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_one_that_breaks_costs_only_its_own(known: Any, error: BaseException) -> None:
    def site(context: Context) -> SiteRun:
        """Breaks."""
        raise error

    scan = run_one(site, known)
    assert scan.store.cluster_fact("site_run").why is Why.FAILED
    assert [text.splitlines()[0] for text in scan.tracebacks] == ["measuring site crashed"]
    assert isinstance(scan.store.cluster_fact("ports"), PortMatrix)


def test_a_node_that_is_lost_has_no_part_in_the_fact(known: Any) -> None:
    def site(context: Context) -> SiteRun:
        """Asks everybody."""
        replies = list(context.transport.call({n: Request(op="site") for n in context.participants.nodes}))
        return SiteRun(str(len(replies)))

    experiment(bound_s=1.0)(site)
    scan = scan_for({"site_run"})
    transport = cluster()
    transport.answers["site"] = lambda node, request: LOST if node == "n2" else 1
    scan.run(transport)
    assert scan.store.part("site_run", "n2") == LOST
    assert scan.store.part("site_run", "n1") == SiteRun("3")


@pytest.mark.parametrize("silent", [True, False], ids=["gone", "busy"])
def test_who_stopped_answering_is_not_waited_for_again(silent: bool) -> None:
    """A node that was late and gives no sign of life is lost; one that was only late is asked on."""
    late = Missing(Why.TIMED_OUT, "no answer to connect within 22 s")
    transport = cluster()
    usual = dict(transport.answers)

    def slow(op: str, *ops: str) -> None:
        transport.answers[op] = lambda node, request: late if node == "n2" else usual[op](node, request)

    slow("connect")
    asked: list[str] = []

    def ping(node: str, request: Request) -> Any:
        asked.append(node)
        return late if silent and node == "n2" else {"recv_s": 1.0, "send_s": 1.0, "mono_s": 1.0}

    transport.answers["ping"] = ping
    scan = scan_for({"ports", "path_mtu"})
    outcome = scan.run(transport)
    assert asked == ["n2"]
    after = [node for op, node in transport.requests if op == "path_mtu"]
    assert ("n2" in after) is not silent
    found = scan.store.part("ports", "n2")
    if silent:
        gone = Missing(Why.LOST, "it stopped answering: no answer to connect within 22 s")
        assert found == scan.store.part("path_mtu", "n2") == gone
    else:
        assert found.failed_nodes == {"n2": late.detail}
    assert outcome.ended_by == "end"


def test_nothing_that_is_opened_outlives_its_experiment() -> None:
    """Agents close it by themselves, when whoever should have said so stands still."""
    transport = cluster()
    opened: dict[str, list[float]] = {}
    for op in ("listen", "udp_echo"):
        usual = transport.answers[op]

        def answer(node: str, request: Request, op: str = op, usual: Any = usual) -> Any:
            opened.setdefault(op, []).append(request.args["ttl_s"])
            return usual(node, request)

        transport.answers[op] = answer
    scan = scan_for({"ports", "path_mtu"})
    scan.run(transport)
    limits = {step.experiment.name: step.limit_s for step in scan.plan}
    assert len(opened["listen"]) == len(opened["udp_echo"]) == 3
    assert max(opened["listen"]) <= limits["ports"]
    assert max(opened["udp_echo"]) <= limits["path-mtu"]


def test_a_fact_that_tells_of_lost_nodes_is_theirs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = scan_for({"allreduce"})
    transport = slow(Clock(monkeypatch), 3)
    transport.answers["spawn"] = lambda node, request: LOST if node == "n2" else {}
    scan.run(transport)
    found = scan.store.part("allreduce", "n2")
    assert [(one.node, one.what) for one in found.session.trouble] == [("n2", "silent")]


# Time


class Clock:
    """time.monotonic() by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        modules = (
            "engine.experiments",
            "engine.run",
            "measure.bandwidth",
            "measure.collective",
            "measure.programs",
            "measure.ranks",
        )
        for module in modules:
            monkeypatch.setattr(f"netdoctor.{module}.time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Slow(FakeTransport):
    """Every login and every answer comes in the last moment; a stuck transport gives none at all."""

    clock: Clock
    stuck = False
    deadline_s = 0.0

    def bound_s(self, targets: Any) -> float:
        return 40.0

    def start(self, *args: Any, **options: Any) -> Any:
        self.deadline_s = options["deadline_s"]
        self.clock.now += 40.0
        return super().start(*args, **options)

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        longest = max(request.timeout_s for request in requests.values())
        assert within_s is not None
        self.clock.now += within_s if self.stuck else min(longest, within_s)
        late = Missing(Why.TIMED_OUT, "the worker did not answer")
        for reply in super().call(requests):
            yield Reply(node=reply.node, missing=late) if self.stuck else reply


def slow(clock: Clock, count: int, hang: str = "") -> Slow:
    """A healthy cluster with torch, but slow. hang: what ranks do not come through."""
    usual = cluster(count)
    torch = {
        "software": plain(hw.software()),
        "gpu": {"missing": {"why": "not_applicable", "detail": "none"}},
        "rdma": {"missing": {"why": "not_applicable", "detail": "none"}},
    }
    transport = Slow(
        facts={n: {**said, **torch} for n, said in usual.facts.items()}, answers=dict(usual.answers)
    )
    transport.clock = clock
    said: dict[str, Any] = {}

    def converse(node: str, request: Request) -> Any:
        until, say = request.args["until"], request.args["say"] or {}
        said.update({until: say} if say else {})
        what = said.get(until, {}).get("do", until)
        events: list[Any] = [{"event": "imported", "torch": "2.9"}] if until == "imported" else []
        if until.isdecimal():
            result: Any = (
                {"port": 29500} if what == "host" else {"rows": [], "median": 1e9, "least": 1e9, "most": 1e9}
            )
            events = [{"event": "result", "step": int(until), "result": result}]
        done = what != hang
        return {"ranks": [{"running": True, "events": events if done else []}], "done": done}

    def stream(node: str, request: Request) -> Any:
        return {"port": 5000, "seconds": 1.0, "bytes": 1e9, "rates": [1e9] * 8}

    def loss(node: str, request: Request) -> Any:
        return [
            {"dst": t["dst"], "address": t["address"], "sent": 250, "arrived": 250, "answered": 250}
            for t in request.args["targets"]
        ]

    transport.answers |= {
        "converse": converse, "spawn": lambda node, request: {}, "stop": lambda node, request: {},
        "stream_serve": stream, "stream_send": stream, "stream_receive": stream, "udp_loss": loss,
    }  # fmt: skip
    return transport


@pytest.mark.parametrize("hang", ["", "imported", "host", "join", "pairs", "allreduce"])
@pytest.mark.parametrize(
    ("count", "profile", "budget_s"), [(2, "launch", None), (5, "full", None), (3, "full", 900.0)]
)
def test_slow_answers_are_within_the_declared_bounds(
    monkeypatch: pytest.MonkeyPatch, count: int, profile: str, budget_s: float | None, hang: str
) -> None:
    clock = Clock(monkeypatch)
    began: list[float] = []
    scan = scan_for(
        ALL,
        count,
        listener=lambda event: began.append(clock.now) if not event.done and not event.requested else None,
        profile=engine.Profile(profile),
        budget_s=budget_s,
    )
    transport = slow(clock, count, hang)
    bound_s = scan.bound_s(transport)
    outcome = scan.run(transport)
    assert clock.now - 1000.0 <= bound_s
    assert outcome.ended_by == "end"
    assert scan.tracebacks == []
    took = [after - before for before, after in pairwise(began[1:])]
    assert all(t <= step.limit_s for t, step in zip(took, scan.plan, strict=True))
    for step in scan.plan:
        for made in step.experiment.products:
            if made.info.scope == "cluster":
                assert isinstance(scan.store.cluster_fact(made.info.group), made.fact), made.info.group


def test_a_transport_that_is_stuck_costs_each_experiment_its_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    scan = scan_for(ALL)
    transport = slow(clock, 3)
    transport.stuck = True
    bound_s = scan.bound_s(transport)
    outcome = scan.run(transport)
    assert clock.now - 1000.0 <= bound_s
    assert outcome.ended_by == "end"
    assert scan.tracebacks == []
    for group in ("ports", "path_mtu", "loss"):
        assert scan.store.cluster_fact(group).why is Why.TIMED_OUT, group
    assert set(scan.store.cluster_fact("tcp_rates").failed_nodes) == {"n1", "n2", "n3"}
    assert {one.what for one in scan.store.cluster_fact("allreduce").session.trouble} == {"silent"}


def test_one_that_goes_on_for_ever_is_ended_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, known: Any
) -> None:
    clock = Clock(monkeypatch)

    @experiment(bound_s=30.0)
    def at_first(context: Context) -> SiteRun:
        """Asks again and again."""
        while True:
            list(context.transport.call({"n1": Request(op="site", timeout_s=7.0)}))

    scan = scan_for({"site_run", "ports"})
    scan.run(slow(clock, 3))
    found = scan.store.cluster_fact("site_run")
    assert found == Missing(Why.TIMED_OUT, "measuring at-first: it did not end within 38 s")
    assert isinstance(scan.store.cluster_fact("ports"), PortMatrix)


def test_the_deadline_ends_one_that_goes_on(monkeypatch: pytest.MonkeyPatch, known: Any) -> None:
    clock = Clock(monkeypatch)

    @experiment(bound_s=300.0)
    def at_length(context: Context) -> SiteRun:
        """Asks once and again."""
        for _ in range(20):
            list(context.transport.call({"n1": Request(op="site", timeout_s=7.0)}))
        return SiteRun("it came to its end")

    scan = scan_for({"site_run"}, deadline_s=60.0)
    outcome = scan.run(slow(clock, 3))
    assert (outcome.ended_by, clock.now) == ("deadline", 1060.0)
    assert scan.store.cluster_fact("site_run").why is Why.STOPPED


@pytest.mark.parametrize("deadline_s", [None, 50.0])
def test_agents_live_as_long_as_the_scan_may_take(
    monkeypatch: pytest.MonkeyPatch, deadline_s: float | None
) -> None:
    scan = scan_for({"ports"}, deadline_s=deadline_s)
    transport = slow(Clock(monkeypatch), 3)
    scan.run(transport)
    limits = 40.0 + sum(step.limit_s for step in scan.plan)
    assert transport.deadline_s == scan.bound_s(transport) == pytest.approx(deadline_s or limits)


def test_the_deadline_ends_a_scan_that_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = scan_for(ALL, deadline_s=50.0)
    outcome = scan.run(slow(Clock(monkeypatch), 3))
    assert outcome.ended_by == "deadline"
    assert isinstance(scan.store.get("clock", "n1"), ClockSample)
    assert scan.store.cluster_fact("loss").why is Why.STOPPED


def test_ranks_live_as_long_as_their_experiment_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = scan_for({"allreduce"}, budget_s=2000.0)
    transport = slow(Clock(monkeypatch), 3)
    asked: list[float] = []
    transport.answers["spawn"] = lambda node, request: asked.append(request.args["seconds"]) or {}
    scan.run(transport)
    assert asked == [scan.plan[0].limit_s] * 3
    assert asked[0] > 2000.0
