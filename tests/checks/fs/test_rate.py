"""The rate test of storage, from a model of machines, ways, and a server to what the check says of it.

The model answers as agents do, so that the order of measuring, the sorting and the judging are tested as one.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from netdoctor.checks._shared.positions import cause_at
from netdoctor.checks.fs.rate import fs_rate
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import Job
from netdoctor.facts.storage import KINDS, StorageRates
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.load.storage import AGAIN, SINGLES, spread, storage
from netdoctor.model import Cause, Finding, Status
from netdoctor.store import Store
from netdoctor.transport.base import Reply, Request

from ..build import causes, found, job, names

SCRATCH = "/scratch/run"
KEY = cause_at(Cause("", ""), SCRATCH).key
SEEDS = 500


@dataclass
class Model:
    """Storage whose server shares what it has evenly among those that want more (max-min fairness).

    machine: a factor on all that a node does. way: one on what it does at the shared path, by kind. server:
    its rates, in units of what one healthy node reaches alone. noise: deviation of a rate's logarithm.
    """

    count: int = 8
    noise: float = 0.05
    machine: Mapping[str, float] = field(default_factory=dict)
    way: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    server: Mapping[str, float] = field(default_factory=dict)
    unit: Mapping[str, float] = field(default_factory=lambda: {"write": 3e8, "read": 1e9, "files": 900.0})
    seed: int = 0
    opened: Mapping[str, Any] = field(default_factory=dict)  # what a node says of the path, other than usual
    ran: Mapping[str, Any] = field(default_factory=dict)  # ditto of a measurement; Missing: it was lost
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    closed: dict[str, Any] = field(default_factory=dict)

    def call(self, requests: Mapping[str, Request]) -> Iterator[Reply]:
        (op,) = {one.op for one in requests.values()}
        self.asked.append((op, tuple(requests)))
        for node, request in requests.items():
            result = getattr(self, op)(node, request.args, list(requests))
            if isinstance(result, Missing):
                yield Reply(node=node, missing=result)
            else:
                yield Reply(node=node, result=result)

    def open_storage(self, node: str, args: Mapping[str, Any], others: list[str]) -> Any:
        row = {"path": args["path"], "error": "", "file": False, "place": "nfs4 s:/e"}
        more = self.opened.get(node, {})
        return [{**row, **more}, {**row, "path": "", "place": "local"}] if isinstance(more, dict) else more

    def run_storage(self, node: str, args: Mapping[str, Any], others: list[str]) -> Any:
        rng = random.Random(f"{self.seed} {len(self.asked)} {node}")
        rows = []
        for step in args["steps"]:
            kind, path = step["kind"], step["path"]
            rate = self.unit[kind] * (self.share(node, kind, others) if path else self.machine.get(node, 1.0))
            rate *= rng.lognormvariate(0, self.noise)
            amount = max(8, round(rate * step["seconds"]))
            row = {"path": path, "kind": kind, "amount": amount, "seconds": amount / rate, "error": ""}
            rows.append({**row, "direct": kind == "read", "full": False, **self.ran.get(node, {})})
        lost = [one for one in rows if isinstance(one.get("lost"), Missing)]
        return lost[0]["lost"] if lost else rows

    def close_storage(self, node: str, args: Mapping[str, Any], others: list[str]) -> Any:
        self.closed[node] = args["others"]
        return {}

    def share(self, node: str, kind: str, others: list[str]) -> float:
        wants = {n: self.machine.get(n, 1.0) * self.way.get(n, {}).get(kind, 1.0) for n in others}
        left, waiting = self.server.get(kind, 1e9), sorted(wants, key=lambda n: wants[n])
        for i, one in enumerate(waiting):
            given = min(wants[one], left / (len(waiting) - i))
            left -= given
            if one == node:
                return given
        raise AssertionError(node)

    def measured(self) -> StorageRates:
        given = job(self.count, rate_test=SCRATCH)
        members = Participants(nodes=tuple(names(self.count)), addresses={})
        return storage(Context(transport=self, participants=members, store=Store(), job=given))

    def judged(self, **changes: Any) -> list[Finding]:
        return list(fs_rate(replace(self.measured(), **changes), job(self.count, rate_test=SCRATCH)))


def keyed(findings: list[Finding]) -> dict[str, set[str]]:
    return {key.removesuffix(KEY): nodes for key, nodes in causes(findings).items()}


def random_model(kind: str, seed: int) -> tuple[Model, dict[str, set[str]]]:
    """A cluster of 8 with one kind of fault, or none, and what is right to say of it."""
    rng = random.Random(f"{kind} {seed}")
    nodes = names(8)
    model = Model(noise=rng.uniform(0.02, 0.1), seed=seed, server={k: rng.uniform(9, 40) for k in KINDS})
    byte_s = {k: 10 ** rng.uniform(6, 9.5) for k in ("write", "read")}
    model.unit = {**byte_s, "files": rng.uniform(20, 5000)}
    slow = set(rng.sample(nodes, rng.choice((1, 1, 2))))
    if kind == "machine":
        model.machine = {node: rng.uniform(0.1, 0.5) for node in slow}
        return model, {"fs-slow-machine": slow}
    model.server["files"] = rng.uniform(1.0, 10.0)  # one server of names, which is no news
    if kind == "path":
        some = rng.choice((("write",), ("read",), ("files",), ("read", "write"), KINDS))
        most = 0.35 if some == ("files",) else 0.5
        model.way = {node: dict.fromkeys(some, rng.uniform(0.1, most)) for node in slow}
        return model, {"fs-slow-path": slow}
    if kind == "server":
        some = rng.sample(("write", "read"), rng.choice((1, 2)))
        model.server = {**model.server, **{k: rng.uniform(1.0, 5.0) for k in some}}
        return model, {"fs-saturated": {"cluster"}}
    if kind == "both":
        model.way = {node: dict.fromkeys(KINDS, rng.uniform(0.1, 0.5)) for node in slow}
        model.server = dict.fromkeys(KINDS, rng.uniform(1.0, 3.5))
        return model, {"fs-slow-path": slow, "fs-saturated": {"cluster"}}
    if kind == "storage":  # slow for everybody, and no peer to show it
        model.unit = {k: value / 20 for k, value in model.unit.items()}
    return model, {}


def mistakes(kind: str, seeds: range) -> list[Any]:
    """Of so many clusters those of which the check says anything else than is right."""
    wrong = []
    for seed in seeds:
        model, right = random_model(kind, seed)
        findings = model.judged()
        if keyed(findings) != right or not {one.status for one in findings} <= {Status.PASS, Status.WARN}:
            wrong.append((seed, keyed(findings), right))
    return wrong


FAULTS, HEALTHY = ("machine", "path", "server", "both"), ("healthy", "storage")


@pytest.mark.parametrize("kind", [*FAULTS, *HEALTHY])
def test_a_few_clusters_of_each_kind(kind: str) -> None:
    assert len(mistakes(kind, range(1000, 1020))) <= (kind in FAULTS)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*FAULTS, *HEALTHY])
def test_what_is_slow_is_told_apart(kind: str) -> None:
    """At least 95 in 100 of each fault, and less than one alarm in 100 where all nodes are alike."""
    count = SEEDS if kind in FAULTS else 2 * SEEDS
    wrong = mistakes(kind, range(count))
    print(f"{kind}: {len(wrong)} of {count} wrong")
    assert len(wrong) < (0.05 if kind in FAULTS else 0.01) * count, wrong[:5]


def test_what_is_asked_of_whom() -> None:
    """Alone one by one, then all; those behind once more; a large cluster is sampled; no path, no request."""
    model = Model(machine={"n3": 0.3})
    facts = model.measured()
    assert [len(nodes) for op, nodes in model.asked if op == "run_storage"] == [1] * 8 + [8] * 3 + [1]
    assert model.asked[-2] == ("run_storage", ("n3",))
    assert {(one.turn, one.path) for one in facts.rates if one.node == "n3"} == {
        ("alone", ""), ("alone", SCRATCH), ("together", SCRATCH), ("again", ""), ("again", SCRATCH),
    }  # fmt: skip
    assert spread(names(8), SINGLES) == names(8)
    large = Model(count=100, way={f"n{i}": dict.fromkeys(KINDS, 0.2) for i in (2, 14, 57, 58, 99)})
    assert keyed(large.judged())["fs-slow-path"] < {"n2", "n14", "n57", "n58", "n99"}
    runs = [nodes for op, nodes in large.asked if op == "run_storage"]
    assert [len(nodes) for nodes in runs[:8]] == [1] * SINGLES
    assert len(set(runs[:8])) == SINGLES
    assert len(runs) == SINGLES + 3 + 2 * AGAIN
    nobody = Model()
    members = Participants(nodes=("n1",), addresses={})
    empty = storage(Context(transport=nobody, participants=members, store=Store(), job=Job()))
    assert (empty, nobody.asked) == (StorageRates(), [])
    assert {one.status for one in fs_rate(empty, Job())} == {Status.SKIP}


def test_who_could_not_take_part_is_never_green() -> None:
    lost = Missing(Why.LOST, "the connection was closed")
    opened = {"n1": {"error": "EACCES"}, "n2": "nonsense", "n3": {"error": "room"}, "n4": {"place": "local"}}
    ran = {"n5": {"error": "EIO", "amount": 0, "seconds": 0.0}, "n6": {"lost": lost}, "n7": {"amount": -1}}
    model = Model(opened=opened, ran=ran)
    findings = model.judged()
    said = found(findings, Status.UNKNOWN)
    assert said.keys() == {f"n{i}" for i in range(1, 8)}
    assert "EACCES" in said["n1"].summary
    assert "less than 8 MiB" in said["n3"].summary
    assert "rates are not compared" in said["n4"].summary
    assert "connection was closed" in said["n6"].summary
    assert keyed(findings) == {}
    # What those that were lost have left is removed by the others: n2, n6 and n7.
    assert model.closed["n8"] == [1, 5, 6]


def test_one_node_and_two() -> None:
    (one,) = Model(count=1).judged()
    assert (one.status, one.target) == (Status.PASS, "cluster")
    assert one.measures is not None
    assert one.measures["fs.rate.read.alone"].value == pytest.approx(1.0, rel=0.2)
    assert keyed(Model(count=2, noise=0.01).judged()) == {}
    assert keyed(Model(count=2, noise=0.01, machine={"n2": 0.3}).judged()) == {"fs-slow-machine": {"n2"}}
    assert keyed(Model(count=3, noise=0.01, way={"n2": {"read": 0.3}}).judged()) == {"fs-slow-path": {"n2"}}


def test_figures_and_what_they_do_not_say() -> None:
    findings = Model(server={"read": 2.0}, way={"n4": {"write": 0.2}}, noise=0.01).judged()
    (path,) = [one for one in findings if one.target == "n4"]
    assert "reading and small files as others" in path.summary
    assert path.observed is not None
    assert path.observed.startswith("writing with fsync 6")
    assert path.expected == "writing with fsync 300 MB/s" or "MB/s" in str(path.expected)
    (server,) = [one for one in findings if one.status is Status.WARN and one.target == "cluster"]
    assert "GB/s for 8 nodes" in str(server.observed)
    assert "as 2.0 nodes alone" in server.summary
    # Done before the time: who worked at the same moment as whom is not known, and nothing is said of it.
    early = Model(server={"read": 2.0}, ran={n: {"full": True} for n in names(8)}).judged()
    assert keyed(early) == {}
    assert "done too early" in early[-1].summary
    cached = Model(ran={n: {"direct": False} for n in names(8)}).judged()
    assert "through the page cache" in cached[-1].summary
    # A file is only read, and that is all that is said of it.
    read = Model(opened={n: {"file": True} for n in names(8)}).judged()
    assert "writing" not in read[-1].summary


def test_what_is_left_is_told_with_a_command_that_removes_just_that() -> None:
    for names_left, shell in ((".netdoctor-rate-" + "0" * 32 + "-*", True), ("* /etc", False)):
        findings = Model().judged(left={"n2": "EBUSY"}, names=names_left)
        (one,) = [one for one in findings if one.target == "n2"]
        assert one.cause is not None
        assert one.cause.key == f"fs-rate-left{KEY}"
        assert [c.shell for f in one.cause.fixes for c in f.commands] == (
            [f"rm -r {SCRATCH}/{names_left}"] if shell else []
        )
