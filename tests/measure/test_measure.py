"""Schedules and answers of experiments: who dials whom, what unreadable or missing answers become."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.facts.bandwidth import Baseline, BaselineRate, RdmaRates, TcpRate
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.clock import ClockSample
from netdoctor.facts.counters import CounterFacts, LaterCounters
from netdoctor.facts.localisation import Decision, Round
from netdoctor.facts.net import PathMtus, PortMatrix
from netdoctor.facts.paths import Path, Paths, path_of
from netdoctor.facts.rdma import PcieLink
from netdoctor.facts.software import Job
from netdoctor.localise import earlier
from netdoctor.measure import bandwidth
from netdoctor.measure.bandwidth import _rate, connected, in_rounds, on_paths, tcp
from netdoctor.measure.clock import clock, combine
from netdoctor.measure.common import ALL_PAIRS_UP_TO, NO_ADDRESS, DialAddress, Participants, peers
from netdoctor.measure.counters import APART_S, counters
from netdoctor.measure.datagrams import path_mtu
from netdoctor.measure.declare import Context
from netdoctor.measure.firewall import filtered_ends
from netdoctor.measure.mesh import mesh
from netdoctor.measure.ports import TIMEOUT_S, ports
from netdoctor.measure.reach import reach
from netdoctor.measure.routes import routes
from netdoctor.measure.sharing import sharing
from netdoctor.measure.verbs import bound, usable, verbs
from netdoctor.store import Store
from netdoctor.transport.base import Request
from tests.checks import build as healthy
from tests.checks import build_hw
from tests.core.fake import LOST, FakeTransport, plain
from tests.engine.test_engine import cluster


def participants(count: int, **changes: Any) -> Participants:
    names = healthy.names(count)
    defaults: dict[str, Any] = {
        "nodes": tuple(names),
        "addresses": {n: healthy.address(i) for i, n in enumerate(names, start=1)},
        "master": "n1",
    }
    return Participants(**{**defaults, **changes})


def context(transport: FakeTransport, count: int, **changes: Any) -> Context:
    return Context(transport=transport, participants=participants(count, **changes), store=Store(), job=Job())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 63, 64])
def test_every_directed_pair_once(count: int) -> None:
    names = healthy.names(count)
    plan = peers(names)
    pairs = [(a, b) for a, others in plan.items() for b in others]
    assert len(pairs) == len(set(pairs)) == count * max(count - 1, 0)
    assert all(a != b for a, b in pairs)


@settings(deadline=None, max_examples=40)
@given(st.integers(4, 400), st.integers(2, 70), st.integers(2, 70), st.integers(0, 3))
def test_a_sample_is_regular(count: int, at_most: int, wanted: int, seed: int) -> None:
    names = healthy.names(count)
    plan = peers(names, at_most=at_most, count=wanted, seed=seed)
    dials = {len(others) for others in plan.values()}
    dialled = Counter(b for others in plan.values() for b in others)
    assert len(dials) == 1
    assert set(dialled.values()) == dials
    assert all(a not in others and len(set(others)) == len(others) for a, others in plan.items())
    if count > max(at_most, 3):
        assert dials == {min(wanted, count - 1)}
        for i, a in enumerate(names):
            assert {names[(i + 1) % count], names[i - 1]} <= set(plan[a])
    assert plan == peers(names, at_most=at_most, count=wanted, seed=seed)


def test_a_sample_reaches_past_the_neighbours() -> None:
    offsets = {int(name[1:]) - 1 for name in peers(healthy.names(1000), at_most=16, count=8)["n1"]}
    assert max(min(o, 1000 - o) for o in offsets) > 100


def matrix(transport: FakeTransport, count: int = 3, **changes: Any) -> PortMatrix:
    return ports(context(transport, count, **changes))


def test_every_pair_over_the_rendezvous_port_and_three_others() -> None:
    found = matrix(cluster(), ephemeral={"n1": (40000, 50000)})
    assert Counter((p.src, p.dst) for p in found.probes) == {
        (a, b): 4 for a in healthy.names(3) for b in healthy.names(3) if a != b
    }
    assert {p.purpose for p in found.probes} == {"rendezvous", "ephemeral"}
    assert all(40000 <= p.port <= 50000 for p in found.probes if p.dst == "n1" and p.purpose == "ephemeral")
    assert found.failed_nodes == {}
    assert found.possible == 6


@pytest.mark.thorough
def test_everybody_dials_the_master_past_the_sample() -> None:
    count = ALL_PAIRS_UP_TO + 30
    found = matrix(cluster(count), count, master="n50")
    assert {p.src for p in found.probes if p.dst == "n50"} == set(healthy.names(count)) - {"n50"}


@pytest.mark.parametrize("span", [(0, 0), (50000, 40000), (-5, 10**12), (1, 80)])
def test_an_absurd_port_range_is_the_kernel_s_default(span: tuple[int, int]) -> None:
    found = matrix(cluster(), ephemeral={"n1": span})
    assert all(32768 <= p.port <= 60999 for p in found.probes if p.dst == "n1" and p.purpose == "ephemeral")


def test_one_node_and_no_address() -> None:
    assert matrix(cluster(1), 1) == PortMatrix(timeout_s=TIMEOUT_S)
    found = matrix(cluster(), addresses={"n1": "10.0.0.1"})
    assert found.failed_nodes == {"n2": NO_ADDRESS, "n3": NO_ADDRESS}


def spoil(transport: FakeTransport, op: str, node: str, change: Any) -> FakeTransport:
    """n's answer to `op` goes through `change` first."""
    usual = transport.answers[op]
    transport.answers[op] = lambda n, request: change(usual(n, request)) if n == node else usual(n, request)
    return transport


def test_a_node_does_not_choose_where_others_dial() -> None:
    def elsewhere(rows: Any) -> Any:
        return [{**rows[0], "address": "10.9.9.9"}, {**rows[1], "port": 6379}, *rows[2:]]

    transport = cluster()
    dialled: list[tuple[str, int]] = []
    usual = transport.answers["connect"]

    def connect(node: str, request: Request) -> Any:
        dialled.extend((t["address"], t["port"]) for t in request.args["targets"])
        return usual(node, request)

    transport.answers["connect"] = connect
    found = matrix(spoil(transport, "listen", "n2", elsewhere))
    assert "10.9.9.9" not in {address for address, _ in dialled}
    assert 6379 not in {port for _, port in dialled}
    assert "n2" in found.failed_nodes


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda rows: [], id="no rows"),
        pytest.param(lambda rows: rows[1:], id="a row missing"),
        pytest.param(lambda rows: [{**rows[0], "dst": "n9"}, *rows[1:]], id="a row about a stranger"),
        pytest.param(lambda rows: [{**rows[0], "dst": ["n1"]}, *rows[1:]], id="a list for a name"),
        pytest.param(lambda rows: [rows[1], *rows[1:]], id="a row twice"),
        pytest.param(lambda rows: "nonsense", id="text"),
        pytest.param(lambda rows: {"rows": rows}, id="an object"),
        pytest.param(lambda rows: None, id="silence"),
    ],
)
@pytest.mark.parametrize("op", ["connect", "path_mtu"])
def test_what_was_not_answered_for_is_not_good(op: str, change: Any) -> None:
    transport = spoil(cluster(), op, "n2", change)
    found: PortMatrix | PathMtus = matrix(transport) if op == "connect" else path_mtu(context(transport, 3))
    assert list(found.failed_nodes) == ["n2"]
    asked = {(a, b) for a in healthy.names(3) for b in healthy.names(3) if a != b}
    assert {(p.src, p.dst) for p in found.probes} <= asked
    per_pair = Counter((p.src, p.dst) for p in found.probes)
    assert max(per_pair.values()) == (4 if op == "connect" else 1)


@pytest.mark.parametrize("row", [{"outcome": "fine"}, {"outcome": 7}, {"elapsed_ms": "fast"}])
def test_a_row_that_cannot_be_read_is_an_error_and_no_pass(row: dict[str, Any]) -> None:
    found = matrix(spoil(cluster(), "connect", "n2", lambda rows: [{**rows[0], **row}, *rows[1:]]))
    assert Counter(p.outcome for p in found.probes if p.src == "n2") == {"error": 1, "open": 7}


def test_a_node_lost_in_the_middle_is_no_firewall() -> None:
    def connect(node: str, request: Request) -> Any:
        if node == "n2":
            return LOST
        bad = "filtered"
        return [{**t, "outcome": bad if t["dst"] == "n2" else "open"} for t in request.args["targets"]]

    transport = cluster()
    transport.answers["connect"] = connect
    found = matrix(transport)
    assert {p.outcome for p in found.probes} == {"open"}
    assert "n2" in found.failed_nodes


def test_who_does_not_answer_is_tried_from_other_source_ports() -> None:
    """n2 is behind a filter that drops answers to source ports 40000 to 50000, and what goes to 29500."""
    first = iter(range(41000, 49000))

    def connect(_: str, request: Request) -> Any:
        found = []
        for target in request.args["targets"]:
            source = target.get("source_port") or next(first)
            lost = target["dst"] == "n2" and (40000 <= source <= 50000 or target["port"] == 29500)
            found.append({**target, "source_port": source, "outcome": "filtered" if lost else "open"})
        return found

    transport = cluster()
    transport.answers["connect"] = connect
    found = matrix(transport)
    by_source = {(p.dst, p.purpose) for p in found.probes if p.is_by_source}
    assert by_source == {("n2", "ephemeral")}
    assert {p.outcome for p in found.probes if p.dst == "n2"} == {"filtered"}
    (stays,) = {p.open_from for p in found.probes if (p.dst, p.purpose) == ("n2", "rendezvous")}
    assert stays == ()


def test_a_listener_that_could_not_be_opened_is_told() -> None:
    def denied(rows: Any) -> Any:
        return [{**rows[0], "error": "EACCES"}, *rows[1:]]

    found = matrix(spoil(cluster(), "listen", "n2", denied))
    assert found.failed_nodes == {"n2": "could not listen on port 29500: EACCES"}
    busy = matrix(
        spoil(cluster(), "listen", "n2", lambda rows: [{**rows[0], "error": "EADDRINUSE"}, *rows[1:]])
    )
    assert busy.failed_nodes == {}
    assert {p.dst for p in busy.probes if p.purpose == "rendezvous"} == {"n1", "n2", "n3"}


def test_who_held_a_port_and_left_is_no_firewall() -> None:
    transport = cluster()
    spoil(transport, "listen", "n2", lambda rows: [{**rows[0], "error": "EADDRINUSE"}, *rows[1:]])

    def connect(node: str, request: Request) -> Any:
        gone = ("n2", 29500)
        return [
            {**t, "outcome": "refused" if (t["dst"], t["port"]) == gone else "open"}
            for t in request.args["targets"]
        ]

    transport.answers["connect"] = connect
    found = matrix(transport)
    assert {p.outcome for p in found.probes} == {"open"}
    assert {p.dst for p in found.probes if p.purpose == "rendezvous"} == {"n1", "n3"}


def test_further_paths_are_dialled_for_what_the_job_dials_there() -> None:
    further = {
        "n1": (DialAddress("10.1.0.1", frozenset({"rendezvous"})),),
        "n2": (DialAddress("10.1.0.2", frozenset({"ephemeral"})),),
    }
    found = matrix(cluster(), further=further)
    by_address: dict[str, Counter[str]] = {}
    for p in found.probes:
        by_address.setdefault(p.address, Counter())[p.purpose] += 1
    assert by_address["10.1.0.1"] == {"rendezvous": 2}, "by the two others, as MASTER_ADDR"
    assert by_address["10.1.0.2"] == {"ephemeral": 6}
    assert by_address["10.0.0.3"] == {"rendezvous": 2, "ephemeral": 6}
    assert not found.failed_nodes


def test_datagrams_go_over_every_path_that_carries_data_and_to_no_dead_end() -> None:
    ways = {
        "n1": (DialAddress("10.1.0.1", frozenset({"rendezvous"})),),
        "n2": (DialAddress("10.1.0.2"),),
        "n3": (DialAddress("10.1.0.3"),),
    }
    dead = frozenset({("n1", "10.1.0.3"), ("n2", "10.0.0.1")})
    found = path_mtu(context(cluster(), 3, further=ways, dead=dead))
    tried = {(p.src, p.address) for p in found.probes}
    everywhere = {(f"n{i}", f"10.0.0.{j}") for i in (1, 2, 3) for j in (1, 2, 3) if i != j}
    beside = {(f"n{i}", f"10.1.0.{j}") for i in (1, 2, 3) for j in (2, 3) if i != j}
    assert tried == (everywhere | beside) - dead
    assert not found.failed_nodes


RAIL = {f"n{i}": f"10.1.0.{i}" for i in (1, 2, 3)}
ACROSS = {f"n{i}": f"10.0.0.{i}" for i in (1, 2, 3)}


def test_a_rail_is_tried_from_its_own_addresses_on_one_port() -> None:
    rail = Path(id="RoCE mlx5_1:1", addresses=RAIL, sources=RAIL)
    transport = cluster()
    listening: list[dict[str, Any]] = []
    usual = transport.answers["listen"]

    def listen(node: str, request: Request) -> Any:
        listening.extend(request.args["listeners"])
        return usual(node, request)

    transport.answers["listen"] = listen
    found = matrix(transport, rails=(rail,))
    on_rail = Counter((p.src, p.dst, p.source) for p in found.probes if p.address == RAIL[p.dst])
    assert on_rail == {(a, b, RAIL[a]): 1 for a in RAIL for b in RAIL if a != b}
    assert all(not p.source for p in found.probes if p.address != RAIL[p.dst])
    assert Counter(row["address"] for row in listening if row.get("rail")) == dict.fromkeys(RAIL.values(), 1)
    assert (found.failed_nodes, found.crossings) == ({}, ())
    find = path_of(Paths(rails=(rail,)))
    assert all(find(p) is rail for p in found.probes if p.source)


def test_rails_are_tried_across_on_no_path() -> None:
    """Each pair of nodes both ways of two rails; of eight a bounded number, the same pairs from each."""
    main, rail = (
        Path(id=f"RoCE mlx5_{n}:1", addresses=table, sources=table) for n, table in enumerate((ACROSS, RAIL))
    )
    found = matrix(cluster(), rails=(rail,), to_cross=(main, rail))
    pairs = [(a, b) for a in RAIL for b in RAIL if a != b]
    assert Counter((p.src, p.dst, p.source, p.address) for p in found.crossings) == {
        (a, b, one[a], other[b]): 1 for a, b in pairs for one, other in ((ACROSS, RAIL), (RAIL, ACROSS))
    }
    assert len(found.probes) == len(matrix(cluster(), rails=(rail,)).probes)
    ways = [{n: f"10.{r}.0.{n[1:]}" for n in RAIL} for r in range(1, 9)]
    eight = tuple(Path(id=f"RoCE mlx5_{r}:1", addresses=one, sources=one) for r, one in enumerate(ways))
    found = matrix(cluster(), rails=eight, to_cross=eight)
    assert Counter(p.src for p in found.crossings) == dict.fromkeys(RAIL, 8)
    assert len({(p.source.split(".")[1], p.address.split(".")[1]) for p in found.crossings}) == 8


def test_equal_addresses_are_one_path() -> None:
    main = Path(id="main", addresses=ACROSS)
    rails = (
        Path(id="RoCE mlx5_0:1", addresses=ACROSS, sources=ACROSS),
        Path(id="RoCE mlx5_1:1", addresses=RAIL, sources=RAIL),
        Path(id="RoCE mlx5_2:1", addresses=RAIL, sources=RAIL, tried=False),
    )
    store = Store()
    store.cluster["paths"] = Paths(paths=(main,), rails=rails)
    found = Participants.from_facts(["n1", "n2"], store, Job(data_addresses=ACROSS))
    assert (found.rails, found.to_cross) == (rails[1:2], rails[:2])


def test_listeners_are_closed_at_the_end() -> None:
    transport = cluster()
    matrix(transport)
    assert {n for op, n in transport.requests if op == "unlisten"} == {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    "answer", [{"port": 0}, {"port": "x"}, {"port": True, "error": "EACCES"}, {}, [], LOST]
)
def test_an_echo_that_is_not_there(answer: Any) -> None:
    transport = spoil(cluster(), "udp_echo", "n2", lambda row: answer)
    found = path_mtu(context(transport, 3))
    assert list(found.failed_nodes) == ["n2"]
    assert "n2" not in {p.dst for p in found.probes}


def samples(*rows: Any) -> FakeTransport:
    return FakeTransport(answers={"clock": lambda node, request: {"samples": list(rows)}})


def test_the_least_round_trip_counts() -> None:
    found = clock(context(samples([0, 5.5, 5.5, 1], [0, 5.05, 5.05, 0.1], [0, 9, 9, 8]), 1))
    assert found["n1"] == ClockSample(offset_s=5.0, error_s=0.05, round_trip_s=0.1, exchanges=3)


@pytest.mark.parametrize(
    "row",
    [
        [math.nan] * 4,
        ["nan"] * 4,
        [0, math.inf, 0, 1],
        [1, 2, 3],
        "x",
        None,
        [0, 1e308, -1e308, 0],
        [0, 1e308, 1e308, 0],
        [0, -5e12, -5e12, 1],
        [10**400] * 4,
    ],
)
def test_an_exchange_that_is_no_number_is_none(row: Any) -> None:
    found = clock(context(samples(row), 1))["n1"]
    assert isinstance(found, Missing)
    assert found.why is Why.UNPARSABLE
    good = clock(context(samples(row, [0, 1.05, 1.05, 0.1]), 1))["n1"]
    assert isinstance(good, ClockSample)
    assert good.offset_s == pytest.approx(1.0)


def test_two_bursts() -> None:
    early, late = healthy.clock(0.0), healthy.clock(0.0)
    assert combine(early, late).jumped_s == 0.0  # type: ignore[union-attr]
    jumped = combine(early, healthy.clock(3600.0))
    assert isinstance(jumped, ClockSample)
    assert jumped.jumped_s == pytest.approx(3600.0)
    assert combine(early, LOST) == early
    assert combine(LOST, late) == late
    assert isinstance(combine(None, None), Missing)


def test_every_node_has_a_route_answer_or_a_reason() -> None:
    found = routes(context(cluster(), 3, addresses={"n1": "10.0.0.1", "n2": "10.0.0.2"}))
    assert found["n3"] == Missing(Why.FAILED, NO_ADDRESS)
    silent = FakeTransport(answers={"facts": lambda node, request: None})
    assert {type(v) for v in routes(context(silent, 2)).values()} == {Missing}


def test_firewalls_are_looked_at_where_something_was_filtered() -> None:
    spoiled = healthy.matrix(3, {("n1", "n3"): "filtered"})
    assert list(filtered_ends(spoiled)) == ["n1", "n3"]


@pytest.mark.parametrize(
    ("count", "budget_s", "purposes"),
    [
        (20, 20.0, ["cross_leaf", "same_leaf", "cross_leaf"]),
        (20, 21.0, ["cover"] * 19),  # and two rounds for what they leave undecided
        (6, 8.0, ["cover"] * 5),
    ],
)
def test_leaves_arrange_the_rounds_where_not_all_pairs_are_met(
    count: int, budget_s: float, purposes: list[str]
) -> None:
    nodes = [f"n{i}" for i in range(count)]
    leaf_of = {node: f"sw{i // 5}" for i, node in enumerate(nodes)}
    ran: list[Round] = []
    done, planned = in_rounds(nodes, budget_s, 1.0, ran.append, Decision, leaf_of)
    assert [one.purpose for one in ran] == purposes
    assert (list(done), planned) == (ran, len(purposes))
    for one in ran:
        same = [leaf_of[a] == leaf_of[b] for a, b in one.pairs]
        if one.purpose == "cross_leaf":
            assert not any(same)


def test_a_pair_below_its_baseline_is_measured_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad moment that the localiser blames nobody for must not pass for a change since then."""
    names = healthy.names(4)
    rounds: dict[int, set[frozenset[str]]] = {}

    def direction(*given: Any) -> list[TcpRate]:
        number, pairs = given[4], given[5]
        rounds.setdefault(number, set()).update(map(frozenset, pairs))
        speed = 0.6 if number < 3 else 0.97  # all alike, so that nobody is slow beside the others
        return [TcpRate(src=a, dst=b, round=number, gbyte_s=speed) for a, b in pairs]

    monkeypatch.setattr(bandwidth, "_serve", lambda *given: dict.fromkeys(given[2], 5000))
    monkeypatch.setattr(bandwidth, "_direction", direction)
    asked = context(FakeTransport({}), 4)
    asked = replace(
        asked,
        job=Job(data_addresses=dict(asked.participants.addresses)),
        seconds={"tcp_rates": 100.0},
    )
    then = (BaselineRate(src=names[0], dst=names[1], gbyte_s=1.0),)
    asked.store.cluster["baseline"] = Baseline(source="good.json", finished="2026-11-19", tcp=then)
    found = tcp(asked)
    assert (found.planned, found.rounds) == (3, 4)
    assert rounds[3] == {frozenset(names[:2])}
    assert not earlier.doubtful(found.rates, then)


@pytest.mark.parametrize(("moved", "took"), [(1e14, 1e-310), (1e14, 1.0), (1e9, 0.0), (-1.0, 1.0)])
def test_a_rate_that_no_network_has_is_not_believed(moved: float, took: float) -> None:
    found = _rate("a", "b", 0, {}, {"bytes": moved, "seconds": took})
    assert isinstance(found, str)
    assert "cannot be" in found


def test_streams_go_over_the_paths_that_carry_data() -> None:
    store = Store(cluster={"paths": healthy.second(3, "NCCL socket 1")})
    whole = Context(transport=cluster(), participants=participants(3), store=store, job=Job())
    main, (name, further) = on_paths(whole)
    assert main == ("main", whole)
    assert (name, further.participants.addresses["n2"]) == ("2", "10.1.0.2")
    store.cluster["paths"] = healthy.second(3, "store")
    assert [name for name, _ in on_paths(whole)] == ["main"], "nobody sends data to the store"


def test_who_reaches_whom_is_asked_of_one_path_or_of_all() -> None:
    closed = tuple(healthy.probe(src, "n3", outcome="filtered", address="10.1.0.3") for src in ("n1", "n2"))
    seen = replace(healthy.matrix(3), probes=(*healthy.matrix(3).probes, *closed))
    assert connected(["n1", "n2", "n3"], seen) == ["n1", "n2"]
    assert connected(["n1", "n2", "n3"], seen, participants(3).addresses) == ["n1", "n2", "n3"]
    assert connected(["n1", "n2", "n3"], seen, {"n3": "10.1.0.3"}) == ["n1", "n2"]


# Counters


def test_logins_of_nodes_are_those_that_were_asked_for() -> None:
    def logged_in(node: str, request: Request) -> Any:
        rows = [{**row, "code": 0, "tried": True} for row in request.args["targets"]]
        spoilt = {"n2": [*rows[:1], {"dst": "n1", "host": "elsewhere", "code": 0}], "n3": [*rows, *rows[:1]]}
        about = {"client": True, "public_keys": [], "host_keys": []}
        return LOST if node == "n4" else {**about, "rows": spoilt.get(node, rows)}

    known = context(FakeTransport(answers={"login": logged_in}), 4)
    for node, one in healthy.nodes(4).items():
        known.store.put("node", node, one)
    found = mesh(known)
    assert {(one.src, one.dst) for one in found.logins if one.src in ("n1", "n3")} == {
        (a, b) for a in ("n1", "n3") for b in healthy.names(4) if a != b
    }
    assert [one.dst for one in found.logins if one.src == "n2"] == ["n3"]
    assert found.failed_nodes.keys() == {"n2", "n3", "n4"}
    assert (found.possible, found.nodes.keys()) == (12, {"n1", "n2", "n3"})


def test_urls_are_those_that_were_named_and_nodes_say_all_of_them() -> None:
    def reached(node: str, request: Request) -> Any:
        assert request.args == {"urls": ["https://a/", "https://b/"], "env": {"https_proxy": "p:1"}}
        rows = [{"url": url, "status": 200} for url in request.args["urls"]]
        spoilt = {"n2": [*rows, {"url": "https://c/", "status": 200}], "n3": rows[:1], "n4": "no list"}
        return spoilt.get(node, rows)

    env = {"https_proxy": "p:1", "NCCL_DEBUG": "INFO"}
    given = Job(reach=("https://a/", "https://b/"), env=env)
    found = reach(replace(context(FakeTransport(answers={"reach": reached}), 4), job=given))
    assert [(one.node, one.url[8:9]) for one in found.rows] == [
        *((n, "a") for n in ("n1", "n2", "n3")), *((n, "b") for n in ("n1", "n2")),
    ]  # fmt: skip
    assert found.failed_nodes.keys() == {"n3", "n4"}
    assert reach(context(FakeTransport(), 2)).rows == ()


def test_who_writes_into_a_folder_is_read_and_everything_is_removed() -> None:
    places = ("/a", "~/b")
    asked: dict[str, Any] = {}

    def write(node: str, request: Request) -> Any:
        rows = [{"path": path, "uid": 0, "cached_s": 60.0} for path in places]
        failed = {**rows[0], "error": "ENOENT", "step": "folder"}
        odd = [failed, rows[1], {"path": "/etc", "error": ""}, rows[1], 7]
        return {"n2": odd, "n4": rows[:1]}.get(node, rows)

    def read(node: str, request: Request) -> Any:
        asked[node] = request.args["reads"]
        wanted = [(path, number) for path, numbers in asked[node].items() for number in numbers]
        rows = [{"path": path, "number": number, "error": ""} for path, number in wanted]
        more = [{"path": "/a", "number": n, "error": ""} for n in (99, -1, "1")] + rows[:1]
        return rows + more if node != "n5" else LOST

    def remove(node: str, request: Request) -> Any:
        asked[f"{node} removes"] = request.args["others"]
        return {"n1": {"/a": "EIO", "/etc": "EIO"}, "n2": "?"}.get(node, {})

    answers = {"share": write, "read_shared": read, "remove_shared": remove}
    here = replace(context(FakeTransport(answers=answers), 5), job=Job(write_test=places))
    found = sharing(here)
    assert len(found.writes) == 9
    assert found.failed_nodes.keys() == {"n4", "n5"}
    # n2 has no /a, and n4 did not say what became of ~/b.
    assert asked["n1"] == {"/a": [2, 3], "~/b": [1, 2]}
    assert asked["n3"] == {"/a": [0, 3], "~/b": [0, 1, 4]}
    assert asked["n2"] == {"~/b": [0, 2]}
    assert {one.reader for one in found.reads} == {"n1", "n2", "n3", "n4"}
    assert len(found.reads) == len({(one.path, one.reader, one.writer) for one in found.reads})
    assert (asked["n1 removes"], found.left) == ([3, 4], {"n1": {"/a": "EIO"}})
    assert sharing(context(FakeTransport(), 2)).writes == ()


def test_counters_are_read_again_where_they_were_read_before() -> None:
    later = CounterFacts(uptime_s=107.0)
    asked: dict[str, Any] = {}

    def facts(node: str, request: Request) -> Any:
        asked[node] = request.args["groups"]["counters"]
        return LOST if node == "n2" else {"counters": plain(later)}

    here = context(FakeTransport(answers={"facts": facts}), 3)
    for node, value in (("n1", CounterFacts(uptime_s=100.0)), ("n2", CounterFacts(uptime_s=200.0))):
        here.store.put("counters", node, value)
    found = counters(here)
    assert asked == {"n1": {"not_before_s": 100.0 + APART_S}, "n2": {"not_before_s": 200.0 + APART_S}}
    assert (found["n1"], found["n2"]) == (LaterCounters(reading=later), LOST)
    assert found["n3"] == Missing(Why.NOT_COLLECTED, "there is no first reading")


def test_gpus_are_asked_apart_for_what_they_count() -> None:
    """NVML that hangs takes nothing from the counters of files, and a node without GPUs is not asked."""
    later, count = CounterFacts(uptime_s=107.0), build_hw.gpus(count=2)

    def facts(node: str, request: Request) -> Any:
        groups = request.args["groups"]
        if "gpu" in groups:
            assert groups == {"gpu": {"counters": True}}
            assert node != "n3"
            return LOST if node == "n2" else {"gpu": plain(count)}
        return {"counters": plain(later)}

    here = context(FakeTransport(answers={"facts": facts}), 3)
    for node, gpus in (("n1", count), ("n2", count), ("n3", build_hw.no_gpus())):
        here.store.put("counters", node, CounterFacts(uptime_s=100.0))
        here.store.put("gpu", node, gpus)
    found = counters(here)
    assert found["n1"] == LaterCounters(reading=later, gpu=count)
    assert found["n2"] == found["n3"] == LaterCounters(reading=later)


# RDMA writes


def verbs_context(transport: FakeTransport, count: int = 2, **hcas: Any) -> Context:
    here = context(transport, count)
    for node in here.participants.nodes:
        here.store.put("rdma", node, hcas.get(node, build_hw.rdma()))
    return replace(here, seconds={"rdma_rates": 1.0})


def perftest(figures: dict[str, Any], installed: Any = True, asked: list[Any] | None = None) -> FakeTransport:
    """Agents whose programs say `figures`: by role or test."""

    def answer(node: str, request: Request) -> Any:
        args = request.args
        if asked is not None:
            asked.append((node, args))
        if args["role"] == "look":
            return {"installed": installed}
        rails = args.get("rails", [])
        row = {"ready": True} if args["role"] == "serve" else figures.get(args.get("test", ""), {})
        return {"rails": [row] * len(rails)}

    return FakeTransport(answers={"verbs": answer})


def test_rdma_writes_go_from_rail_to_rail_of_the_same_name() -> None:
    asked: list[Any] = []
    only = build_hw.rdma(build_hw.hca("mlx5_1"))
    figures = {"bandwidth": {"value": 385.6}, "latency": {"value": 1.9}}
    found = verbs(verbs_context(perftest(figures, asked=asked), n2=only))
    assert {(r.src, r.dst, r.rail, r.gbyte_s) for r in found.rates} == {
        ("n1", "n2", "mlx5_1:1", 48.2), ("n2", "n1", "mlx5_1:1", 48.2),
    }  # fmt: skip
    assert {one.us for one in found.latencies} == {1.9}
    assert found.expected_gbyte_s == {"n1": 48.0, "n2": 48.0}
    assert found.limited_by["n1"] == "mlx5_0:1 at 400 Gbit/s"
    served = [(node, args["rails"]) for node, args in asked if args["role"] == "serve"]
    assert served[0][1] == [{"device": "mlx5_1", "ib_port": 1, "tcp_port": 18516}]
    ran = {args["rails"][0]["address"] for _, args in asked if args["role"] == "run"}
    assert ran == {"10.0.0.1", "10.0.0.2"}
    assert {node for node, args in asked if args["role"] == "stop"} == {"n1", "n2"}


@pytest.mark.parametrize(
    ("figures", "rates", "trouble"),
    [
        ({"bandwidth": {"error": "no such option"}}, 0, "no such option"),
        ({"bandwidth": {"error": "Failed status 12", "dead": True}}, 4, "Failed status 12"),
        ({"bandwidth": {"value": -1.0}}, 0, "an answer that cannot be"),
        ({"bandwidth": {"value": 1e300}}, 0, "an answer that cannot be"),
        ({"bandwidth": {"value": "385"}}, 0, "an answer that cannot be"),
        ({"bandwidth": {"value": True}}, 0, "an answer that cannot be"),
        ({"bandwidth": "fast"}, 0, "an answer that cannot be"),
    ],
)
def test_rdma_writes_that_failed(figures: dict[str, Any], rates: int, trouble: str) -> None:
    found = verbs(verbs_context(perftest(figures)))
    assert len(found.rates) == rates
    assert {r.gbyte_s for r in found.rates} <= {0.0}
    assert trouble in found.troubles["n1->n2 mlx5_0:1"]


def test_who_takes_part_in_rdma_writes() -> None:
    assert verbs(verbs_context(perftest({}, installed=False))).without == ("n1", "n2")
    assert verbs(verbs_context(perftest({}, installed="yes"))).without == ("n1", "n2")
    for hca in (
        build_hw.hca("rxe0"), build_hw.hca("mlx5_0; id"), build_hw.hca("-d"), build_hw.hca(uverbs_ok=False),
        build_hw.hca(ports=(build_hw.port(state="DOWN"),)),
    ):  # fmt: skip
        assert verbs(verbs_context(perftest({}), n2=build_hw.rdma(hca))) == RdmaRates(), hca
    assert bound(usable(build_hw.rdma(build_hw.hca(pcie=None)))) == (48.0, "mlx5_0:1 at 400 Gbit/s")
    slot = PcieLink(width=8, width_most=16, gtransfers_s=16.0, gtransfers_s_most=32.0)
    assert bound(usable(build_hw.rdma(build_hw.hca(pcie=slot)))) == (
        pytest.approx(14.18, abs=0.01), "PCIe 16 GT/s x8 of mlx5_0",
    )  # fmt: skip
