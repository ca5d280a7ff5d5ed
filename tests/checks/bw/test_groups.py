"""bw.groups from a model of the ranks: what they are asked, and what is made of it."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netdoctor.checks.bw.groups import bw_groups
from netdoctor.facts.bandwidth import Groups, RankFault, RankTrouble, Session
from netdoctor.measure.load.groups import MIB, groups
from netdoctor.measure.ranks import Failed, Ranks
from netdoctor.model import Finding, Status

from ..build import causes, host, names


@dataclass
class Model:
    """Four nodes with two ranks each: seconds of an operation by kind of group, and who is slow in it."""

    nodes: tuple[str, ...] = tuple(names(4))
    each: int = 2
    slow: str = ""
    slow_times: int = 99
    refused: str = ""
    dies_in: int = 0
    no_answer: int = -1  # this rank's answer cannot be read
    wrong: int = -1
    asked: list[dict[str, Any]] = field(default_factory=list)
    backend: str = "nccl"

    @property
    def ranks(self) -> list[Any]:
        return [SimpleNamespace(number=i, node=self.nodes[i // self.each]) for i in range(self.world)]

    @property
    def world(self) -> int:
        return len(self.nodes) * self.each

    def step(self, do: str, timeout_s: float, **args: Any) -> list[Any]:
        assert do == "side_by_side"
        assert timeout_s > args["seconds"]
        self.asked.append(args)
        if len(self.asked) == self.dies_in:
            trouble = RankTrouble(
                node=self.nodes[1], rank=2, what=RankFault.KILLED, detail="killed by signal 9", during="ready"
            )
            raise Failed([trouble])
        return [self.answer(rank, **args) for rank in range(self.world)]

    def answer(self, rank: int, **args: Any) -> Any:
        if rank == self.no_answer:
            return "nonsense"
        if args["op"] == self.refused:
            return {"rows": [], "refused": "Backend gloo does not support it"}
        block = args["stride"] * args["size"]
        members = range(
            rank - rank % block + rank % args["stride"], rank - rank % block + block, args["stride"]
        )
        on = {self.nodes[one // self.each] for one in members}
        took = 0.02 if self.slow in on and len(on) > 1 and len(self.asked) <= self.slow_times else 0.01
        row = {"size": 4 * MIB, "median_s": took, "least_s": took, "most_s": took, "batches": 50}
        bad = {"wrong": 3, "first_wrong": [7, 1.0, 2.0]} if rank == self.wrong else {}
        return {"rows": [{**row, "iterations": 1, **bad}], "refused": ""}

    def measure(self, text: str, budget_s: float = 30.0) -> Groups:
        session = Session(backend=self.backend, ranks=tuple(one.node for one in self.ranks))
        return groups(cast("Ranks", self), session, text, 256 * MIB, budget_s)

    def judge(self, text: str) -> list[Finding]:
        return judge(self.measure(text))


def judge(facts: Groups) -> list[Finding]:
    return list(bw_groups(facts, {node: host(i) for i, node in enumerate(names(4), start=1)}))


def test_equal_groups_are_fine_and_have_measures() -> None:
    model = Model()
    (finding,) = model.judge("tp=2,pp=2")
    assert (finding.status, finding.gap) == (Status.PASS, None)
    assert [(one["op"], one["stride"], one["size"]) for one in model.asked] == [
        ("all-reduce", 1, 2),
        ("all-reduce", 2, 2),
        ("send-recv", 4, 2),
    ]
    assert "tp: 4 groups of 2, all-reduce of 4 MiB" in finding.summary
    assert finding.measures is not None
    assert finding.measures["bw.groups.pp.slowest"].value == pytest.approx(4 * MIB / 0.01 / 1e9)


def test_a_node_whose_groups_are_slow_twice_is_named() -> None:
    model = Model(slow="n2")
    (finding,) = model.judge("tp=2,pp=2")
    assert (finding.status, causes([finding])) == (Status.WARN, {"groups-slow-node": {"n2"}})
    assert len(model.asked) == 5  # those between nodes once more


def test_groups_that_were_slow_once_are_fine() -> None:
    (finding,) = Model(slow="n2", slow_times=2).judge("tp=2")
    assert finding.status is Status.PASS


def test_a_layout_that_does_not_fit_is_not_tested() -> None:
    model = Model()
    (finding,) = model.judge("tp=3")
    assert (finding.status, finding.summary) == (
        Status.UNKNOWN,
        "--groups: tp=3 does not divide 8 ranks, one per GPU",
    )
    assert not model.asked


def test_groups_of_one_rank_are_skipped() -> None:
    found = list(bw_groups(Model(nodes=("n1",), each=1).measure("tp=1"), {"n1": host(1)}))
    assert [(one.status, one.summary) for one in found] == [
        (Status.SKIP, "--groups makes no group of two ranks")
    ]


def test_what_is_not_offered_or_alone_is_a_gap() -> None:
    (finding,) = Model(refused="all-to-all").judge("tp=8,ep=2,etp=4")
    assert finding.status is Status.PASS
    assert finding.gap == "all-to-all is not offered by nccl (ep); tp: no other group to compare with"
    found = Model(refused="all-reduce").judge("tp=8")
    assert {one.status for one in found} == {Status.UNKNOWN}


def test_a_rank_that_dies_ends_it() -> None:
    found = Model(dies_in=2).judge("tp=2,pp=2")
    texts = {one.summary for one in found}
    assert "the groups of dp failed, and what comes after them did not run" in texts
    assert any(one.status is Status.FAIL and one.target == "n2" for one in found)
    assert not any(one.status is Status.PASS for one in found)


def test_wrong_values_are_found() -> None:
    found = Model(wrong=5).judge("tp=2")
    (wrong,) = [one for one in found if one.status is Status.FAIL]
    assert causes([wrong]) == {"collective-wrong-values": {"n3"}}
    assert "values of all-reduce in tp" in wrong.summary


def test_an_answer_that_cannot_be_read_is_unknown() -> None:
    found = Model(no_answer=0).judge("tp=2")
    assert [one.target for one in found if one.status is Status.UNKNOWN] == ["n1"]


def test_what_time_did_not_reach_is_a_gap() -> None:
    measured = replace(Model().measure("tp=2"), late=("pp",))
    (finding,) = judge(measured)
    assert finding.gap == "no time was left for pp"
    assert Model().measure("tp=2,pp=2", budget_s=0.1).late == ("dp", "pp")
