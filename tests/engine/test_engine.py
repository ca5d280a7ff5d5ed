"""One scan from login to judgement over a fake transport, cut short at every place."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netdoctor.check import Check, Profile
from netdoctor.engine import gathering
from netdoctor.engine import run as engine_run
from netdoctor.engine.diagnose import diagnose
from netdoctor.engine.gathering import AUTO, chosen_pythons, lookups
from netdoctor.engine.judge import ready_nodes
from netdoctor.engine.run import Options, Outcome, Progress, Scan, judge_facts
from netdoctor.errors import DeadlineReached
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.clock import ClockSample
from netdoctor.facts.host import HostFacts, LimitFacts
from netdoctor.facts.net import FirewallFacts, PathMtus, PortMatrix, ResolveFacts, RouteFacts
from netdoctor.facts.software import Interpreter, Job, Requested, SoftwareFacts, Torch
from netdoctor.model import Finding, Status, fail
from netdoctor.scanning.reporting import python_notes
from netdoctor.store import Store, dump, load
from netdoctor.transport.base import Reply, Request
from netdoctor.transport.frames import decode_members
from tests.checks import build as healthy
from tests.core.fake import LOST, FakeTransport, login, make, plain, saying, targets
from tests.counting import calls


def limits() -> Check:
    def host_limits(limits: LimitFacts) -> Iterator[Finding]:
        """Limits are there."""
        yield from ()

    return make(host_limits)


def everything() -> list[Check]:
    """A check for each kind of fact that experiments bring."""

    def net_ports(ports: PortMatrix) -> Iterator[Finding]:
        """Ports."""
        yield from ()

    def net_mtu(mtus: PathMtus) -> Iterator[Finding]:
        """MTUs."""
        yield from ()

    def net_routes(nodes: Mapping[str, RouteFacts]) -> Iterator[Finding]:
        """Routes."""
        yield from ()

    def time_skew(nodes: Mapping[str, ClockSample]) -> Iterator[Finding]:
        """Clocks."""
        yield from ()

    def net_firewall(nodes: Mapping[str, FirewallFacts]) -> Iterator[Finding]:
        """Firewalls."""
        yield from ()

    return [login(), limits(), *map(make, (net_ports, net_mtu, net_routes, time_skew, net_firewall))]


def net_of(i: int) -> dict[str, Any]:
    return plain(healthy.net(i))


def cluster(count: int = 3, **changes: Any) -> FakeTransport:
    """Nodes that take part in every experiment and find nothing wrong."""

    def listen(node: str, request: Request) -> Any:
        return [{**row, "error": None} for row in request.args["listeners"]]

    def connect(node: str, request: Request) -> Any:
        return [{**t, "outcome": "open", "detail": "", "elapsed_ms": 0.1} for t in request.args["targets"]]

    def path_mtu(node: str, request: Request) -> Any:
        row = {"dev": "eth0", "dev_mtu": 1500, "small_ok": True, "largest_ok": 1500, "outcome": "ok"}
        return [{"dst": t["dst"], "address": t["address"], **row} for t in request.args["targets"]]

    def facts(node: str, request: Request) -> Any:
        return {"routes": {"value": {"routes": {}}}, "firewall": {"value": {"rulesets": []}}}

    defaults: dict[str, Any] = {
        "facts": {
            healthy.name(i): {"net": net_of(i), "env": plain(healthy.env())} for i in range(1, count + 1)
        },
        "answers": {
            "listen": listen,
            "connect": connect,
            "udp_echo": lambda node, request: {"port": 4000},
            "path_mtu": path_mtu,
            "clock": lambda node, request: {"samples": [[0.0, 0.1, 0.1, 0.2]]},
            "facts": facts,
        },
    }
    return FakeTransport(**{**defaults, **changes})


def run(
    transport: FakeTransport, checks: list[Check] | None = None, count: int = 3, **options: Any
) -> Outcome:
    listener: Callable[[Progress], None] = options.pop("listener", lambda progress: None)
    scan = Scan(targets(count), checks or everything(), Job(master_node="n1"), Options(**options), listener)
    return scan.run(transport)


def rows(outcome: Outcome) -> dict[str, str]:
    said = outcome.judgement
    return {c.id: "".join(said.cells[c.id][n].letter for n in said.nodes) for c in said.checks}


def keys(outcome: Outcome) -> list[str]:
    return [group.key for group in diagnose(outcome.judgement)]


def test_a_healthy_cluster() -> None:
    transport = cluster()
    outcome = run(transport)
    assert rows(outcome) == {c.id: "..." for c in everything() if c.id != "net.firewall"} | {
        "net.firewall": "---"
    }
    assert outcome.ended_by == "end"
    assert transport.closed == 1
    assert ready_nodes(outcome.judgement) == (["n1", "n2", "n3"], [], [])


def test_nobody_can_be_logged_in_to() -> None:
    refused = {f"n{i}": healthy.session(i, outcome="refused") for i in (1, 2, 3)}
    outcome = run(cluster(sessions=refused))
    assert rows(outcome) == {"ssh.login": "XXX"} | {c.id: "bbb" for c in everything()[1:]}
    assert keys(outcome) == ["ssh-refused"]
    assert ready_nodes(outcome.judgement) == ([], ["n1", "n2", "n3"], [])


def test_our_own_trouble_leaves_everything_undecided() -> None:
    sessions = {f"n{i}": healthy.session(i, outcome="control") for i in (1, 2, 3)}
    outcome = run(cluster(sessions=sessions))
    assert rows(outcome)["ssh.login"] == "???"
    assert set(rows(outcome)["host.limits"]) == {"b"}
    assert ready_nodes(outcome.judgement) == ([], [], ["n1", "n2", "n3"])


def test_one_node() -> None:
    assert set(rows(run(cluster(1), count=1)).values()) <= {".", "-"}


def test_a_node_lost_before_its_facts_is_unknown_as_one_cause() -> None:
    facts = dict(cluster().facts)
    facts["n2"] = LOST
    outcome = run(cluster(facts=facts))
    assert {row[1] for check, row in rows(outcome).items() if check != "ssh.login"} == {"?"}
    assert {row[0] for row in rows(outcome).values()} <= {".", "-"}
    assert keys(outcome) == ["unmeasured-lost"]


@pytest.mark.parametrize("op", ["listen", "connect", "udp_echo", "path_mtu"])
def test_a_node_lost_in_an_experiment_is_unknown_as_one_cause(op: str) -> None:
    transport = cluster()
    usual = transport.answers[op]
    transport.answers[op] = lambda node, request: LOST if node == "n2" else usual(node, request)
    outcome = run(transport)
    said = rows(outcome)
    assert said["net.ports" if op in ("listen", "connect") else "net.mtu"] == ".?."
    assert said["host.limits"] == "..."
    assert keys(outcome) == ["unmeasured-lost"]
    assert ready_nodes(outcome.judgement) == (["n1", "n3"], [], ["n2"])


def test_what_timed_out_first_is_why_all_else_is_unknown() -> None:
    facts = dict(cluster().facts)
    facts["n2"] = Missing(Why.TIMED_OUT, "no answer within 30 s")
    assert keys(run(cluster(facts=facts))) == ["unmeasured-timed-out"]


@pytest.mark.parametrize("garbage", [None, 7, "x", [], {"host": []}, {"host": {"value": {}}}, {"limits": 3}])
def test_a_node_that_talks_nonsense_is_unknown_alone(garbage: Any) -> None:
    facts = dict(cluster().facts)
    facts["n2"] = garbage
    outcome = run(cluster(facts=facts), [login(), limits()])
    wrong = not isinstance(garbage, dict) or "limits" in garbage
    assert rows(outcome) == {"ssh.login": "...", "host.limits": ".?." if wrong else "..."}


WORDS = ["login", "facts", "clock", "listen", "connect", "unlisten", "udp_echo", "path_mtu", "close"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, DeadlineReached])
@pytest.mark.parametrize("what", WORDS)
@pytest.mark.parametrize("node", ["n1", "n3"])
def test_cut_short_anywhere_the_matrix_is_complete_and_blames_nobody(
    what: str, node: str, error: type[BaseException]
) -> None:
    def trip(now: str, at: str) -> None:
        if now == what and at in (node, ""):
            transport.trip = lambda now, at: None
            raise error

    transport = cluster(trip=trip)
    outcome = run(transport)
    assert outcome.ended_by == ("interrupt" if error is KeyboardInterrupt else "deadline")
    assert transport.closed == 1
    letters = "".join(rows(outcome).values())
    assert len(letters) == 3 * 7
    assert "X" not in letters
    found = diagnose(outcome.judgement)
    assert {group.key for group in found} <= {"unmeasured-stopped"}
    if what != "close":
        assert found
        assert ready_nodes(outcome.judgement)[2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, DeadlineReached])
def test_cut_short_while_answers_are_read_none_is_lost(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, came = gathering.decoder, list[str]()

    def decoder(group: str) -> Callable[[Any], Any]:
        came.append(group)
        if len(came) == 3:
            raise error
        return real(group)

    monkeypatch.setattr(gathering, "decoder", decoder)
    # As answers wait that come as JSON.
    monkeypatch.setattr(gathering.Answers, "add", lambda self, reply: self._unread.append(reply))
    outcome = run(cluster())
    assert outcome.ended_by == ("interrupt" if error is KeyboardInterrupt else "deadline")
    assert set(outcome.store.present("host", ["n1", "n2", "n3"])) == {"n1", "n2", "n3"}
    assert set(rows(outcome)["host.limits"]) == {"."}


def test_what_is_measured_between_nodes_is_said_to_be_untried_and_nothing_else() -> None:
    store = Store()
    gathering.put_untried(store, {"ports", "routes", "limits"}, ["n1"])
    assert list(store.cluster) == ["ports"]
    assert (
        store.cluster["ports"]
        == store.node["routes"]["n1"]
        == Missing(Why.NOT_COLLECTED, "no node met another")
    )
    assert list(store.node) == ["routes"]


def test_nodes_look_for_the_extras_of_lines_that_are_meant_for_all_of_them() -> None:
    plain, job = Requested(name="torch"), Requested(name="vllm", extras=("ray",))
    also = replace(job, extras=("audio",))
    elsewhere = replace(job, name="jax", extras=("cuda",), marker='python_version < "3.13"')
    bound = replace(job, name="trl", only_if_there=True)
    asked = Job(requested=(plain, job, also, elsewhere, bound))
    assert gathering.extras(asked) == {"vllm": ["audio", "ray"]}


def test_large_answers_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "UNREAD_BYTES", 1000)
    store = Store()
    unread = gathering.Answers(store, {"limits": {}})
    long = decode_members(b'{"limits":{"value":{"nofile_soft":%s}}}' % (b" " * 600 + b"1024"))
    for node in ("n1", "n2", "n3"):
        unread.add(Reply(node=node, result=long))
    assert list(store.node["limits"]) == ["n1", "n2"]
    unread.read()
    assert list(store.node["limits"]) == ["n1", "n2", "n3"]
    unread.add(Reply(node="n4", result={"limits": {"value": {"nofile_soft": 1024}}}))
    assert "n4" in store.node["limits"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, DeadlineReached])
def test_cut_short_while_judging_it_judges_again(error: type[BaseException]) -> None:
    came: list[int] = []

    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        if not came:
            came.append(1)
            raise error
        yield fail("n1", "bad")

    outcome = run(cluster(), [login(), make(net_x)])
    assert rows(outcome)["net.x"] == "X.."
    assert outcome.ended_by == ("interrupt" if error is KeyboardInterrupt else "deadline")


def test_the_deadline_ends_judging_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged again after the alarm, it ends by itself: what no time was left for is unknown."""
    monkeypatch.setattr(engine_run, "JUDGING_S", 0.0)
    came: list[int] = []

    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """It takes for ever."""
        came.append(1)
        raise DeadlineReached
        yield

    outcome = run(cluster(), [login(), make(net_x), saying("host.y")], deadline_s=3600.0)
    assert rows(outcome) == {"ssh.login": "???", "net.x": "bbb", "host.y": "bbb"}
    assert outcome.ended_by == "deadline"
    assert came == [1]


def test_after_an_interrupt_no_node_is_asked_anything() -> None:
    def trip(what: str, node: str) -> None:
        if what == "connect":
            raise KeyboardInterrupt

    transport = cluster(trip=trip)
    run(transport)
    assert transport.requests[-1][0] == "connect"


def test_a_defect_in_one_experiment_costs_that_one() -> None:
    transport = cluster()

    def broken(node: str, request: Request) -> Any:
        raise ZeroDivisionError("us")

    transport.answers["connect"] = broken
    outcome = run(transport)
    assert rows(outcome)["net.ports"] == "???"
    assert rows(outcome)["net.mtu"] == "..."
    assert [t.splitlines()[0] for t in outcome.judgement.tracebacks] == ["measuring ports crashed"]


def test_a_defect_in_the_transport_still_closes_it() -> None:
    def trip(what: str, node: str) -> None:
        if what == "login":
            raise ZeroDivisionError

    transport = cluster(trip=trip)
    with pytest.raises(ZeroDivisionError):
        run(transport)
    assert transport.closed == 1


def test_a_transport_that_forgets_a_node() -> None:
    class Forgetful(FakeTransport):
        def start(self, targets: Any, first: Any, **kept: Any) -> Any:
            for event in super().start(targets, first, **kept):
                if event.node != "n2":
                    yield event

    outcome = run(Forgetful(), [login(), limits()])
    assert rows(outcome) == {"ssh.login": ".?.", "host.limits": ".b."}


def test_progress_counts_up_and_every_node_once() -> None:
    events: list[Progress] = []
    run(cluster(sessions={"n2": healthy.session(2, outcome="refused")}), listener=events.append)
    connect = [e for e in events if e.phase == "connect"]
    assert [e.done for e in connect] == [0, 1, 2, 3]
    assert [e.text for e in connect if e.node == "n2"] == ["refused"]
    assert events[-1].phase == "judge"


def test_only_what_checks_ask_for_is_asked() -> None:
    transport = cluster()
    run(transport, [login(), limits()])
    assert transport.requests == []


def test_a_thousand_first_requests_are_one_object() -> None:
    scan = Scan(targets(1000), [login(), limits()], Job(), Options())
    assert len({id(request) for request in scan.first_requests().values()}) == 1


@pytest.mark.parametrize("count", [3, 64, 65, 1000])
def test_names_are_looked_up_at_a_sample(count: int) -> None:
    listed = [replace(one, host=f"h{one.id}") for one in targets(count)]
    listed[1] = replace(listed[1], host="10.0.0.2")  # no name
    job = Job(master_node=listed[-1].id, master_addr="head", env={"NCCL_COMM_ID": "[fe80::1]:9"})
    asked = lookups(listed, job, Profile.LAUNCH)
    assert list(asked) == [one.id for one in listed]
    known = {one.id: one.host for one in listed if one is not listed[1]}
    for i, one in enumerate(listed):
        told = asked[one.id]
        assert len(told) == len(set(told)) <= 64 + 3
        assert {"head", listed[-1].host} <= set(told) <= {"head", *known.values()}
        if one.id in known:
            around = (listed[i - 1].id, one.id, listed[(i + 1) % count].id)
            assert {known[node] for node in around if node in known} <= set(told)
    by_name = Counter(name for told in asked.values() for name in told)
    assert min(by_name.values()) >= min(count - 1, 64)
    assert len({id(told) for told in asked.values()}) == (1 if count <= 65 else count)


def test_each_node_is_asked_for_its_own_names() -> None:
    def net_names(resolve: ResolveFacts) -> Iterator[Finding]:
        """Names mean something."""
        yield from ()

    scan = Scan(targets(100), [login(), make(net_names)], Job(), Options())
    wanted = lookups(targets(100), Job(), Profile.LAUNCH)
    assert len({tuple(names) for names in wanted.values()}) == 100
    for node, request in scan.first_requests().items():
        assert request.args["groups"]["resolve"]["names"] == wanted[node]


@pytest.mark.thorough
def test_forty_checks_cost_a_node_the_same_among_many() -> None:
    checks = [login(), limits(), *(saying(f"net.c{i}") for i in range(38))]
    assert len(run(FakeTransport(), checks, count=1000).judgement.nodes) == 1000
    few, many = (calls(lambda n=n: run(FakeTransport(), checks, count=n)) for n in (250, 1000))  # type: ignore[misc]
    assert many < 4.5 * few


def test_saved_facts_judge_the_same() -> None:
    facts = dict(cluster().facts)
    facts["n2"] = LOST
    outcome = run(cluster(facts=facts))
    again = judge_facts(load(dump(outcome.store)), everything())
    assert rows(again) == rows(outcome)
    assert {c: [f.summary for f in fs] for c, fs in again.judgement.findings.items()} == {
        c: [f.summary for f in fs] for c, fs in outcome.judgement.findings.items()
    }


def test_saved_facts_without_what_a_check_needs_skip() -> None:
    outcome = run(cluster(), [login()])
    again = judge_facts(load(dump(outcome.store)), [login(), limits()])
    assert rows(again) == {"ssh.login": "...", "host.limits": "---"}


def test_judged_nodes_only() -> None:
    outcome = run(cluster(), judged=("n2",))
    assert {len(row) for row in rows(outcome).values()} == {1}
    assert outcome.judgement.nodes == ("n2",)


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        pytest.param({"a": Status.PASS, "b": Status.SKIP}, 0, id="pass"),
        pytest.param({"a": Status.WARN}, 0, id="warn"),
        pytest.param({"a": Status.FAIL, "b": Status.UNKNOWN}, 1, id="fail and unknown"),
        pytest.param({"a": Status.UNKNOWN, "b": Status.BLOCKED}, 2, id="unknown and blocked"),
        pytest.param({"a": Status.BLOCKED}, 1, id="blocked"),
        pytest.param({"optional": Status.UNKNOWN}, 0, id="unknown of an optional check"),
    ],
)
def test_ready_nodes(cells: dict[str, Status], place: int) -> None:
    from netdoctor.engine.judge import Judgement

    checks = tuple(saying(f"x.{name}", required=name != "optional") for name in cells)
    judgement = Judgement(
        nodes=("n1",),
        checks=checks,
        cells={c.id: {"n1": s} for c, s in zip(checks, cells.values(), strict=True)},
    )
    assert [bool(nodes) for nodes in ready_nodes(judgement)].index(True) == place


def bare(i: int, *others: str, torch: bool = False) -> dict[str, Any]:
    """The facts of a node, as its default interpreter has them."""
    found = tuple(Interpreter(python=path, origin="venv", torch="2.6.0") for path in others)
    own = Torch(version="2.5.1") if torch else None
    software = SoftwareFacts(executable="/usr/bin/python3", version="3.11.9", torch=own, others=found)
    return {"net": net_of(i), "env": plain(healthy.env()), "software": plain(software)}


@pytest.mark.parametrize(
    ("facts", "taken"),
    [
        pytest.param([bare(1, "/a", "/b"), bare(2, "/b", "/c")], ["/b", "/b"], id="the same path everywhere"),
        pytest.param([bare(1, "/a"), bare(2, "/c")], ["/a", "/c"], id="each its own"),
        pytest.param([bare(1, torch=True), bare(2, torch=True)], ["/usr/bin/python3"] * 2, id="the default"),
        pytest.param([bare(1, torch=True), bare(2, "/c")], ["/usr/bin/python3", "/c"], id="one of each"),
        pytest.param([bare(1, "/a"), bare(2)], ["/a", None], id="one has none"),
        pytest.param([bare(1, "/a b", "$(x)", "b"), bare(2)], [None, None], id="no path for a command line"),
    ],
)
def test_python_auto_takes_what_the_node_has(facts: list[dict[str, Any]], taken: list[str | None]) -> None:
    """Each node runs only what it named itself; the job's environments are told to all."""
    transport = cluster(2, facts={f"n{i}": said for i, said in enumerate(facts, start=1)})
    listed = [replace(target, python=AUTO) for target in targets(2)]
    job = Job(master_node="n1", env={"VIRTUAL_ENV": "/srv/v"})
    scan = Scan(listed, everything(), job, Options())
    outcome = scan.run(transport)
    assert [target.python for target in scan.targets] == taken
    assert set(rows(outcome)["net.ports"]) == {"."}
    assert transport.started == [[None, None], taken]


def test_python_auto_leaves_out_what_somebody_else_made() -> None:
    """Also where all nodes have it and nothing else has torch."""
    theirs = Interpreter(python="/opt/a/bin/python3", origin="venv", torch="2.6.0", distrust="of uid 1001")
    own = Interpreter(python="/opt/b/bin/python3", origin="venv", torch="2.6.0")
    node = SoftwareFacts(executable="/usr/bin/python3", version="3.11.9")
    found = {"n1": replace(node, others=(theirs, own)), "n2": replace(node, others=(theirs,))}
    assert chosen_pythons(found) == {"n1": own.python}
    store = Store()
    for name, software in found.items():
        store.put("software", name, software)
    asking = SimpleNamespace(targets=[replace(target, python=AUTO) for target in targets(2)])
    notes = python_notes(cast(Any, asking), cast(Any, SimpleNamespace(store=store)))
    assert "/opt/a/bin/python3 on n2: of uid 1001; --python PATH takes it" in notes[-1].text
