from typing import Any

import pytest

from netdoctor.checks.rdzv.addr import rdzv_addr
from netdoctor.facts.net import ResolveFacts
from netdoctor.model import CERTAIN, LIKELY, Finding, Status

from ..build import address, cause, causes, found, job, lookup, net, nets, relook, resolves, row, said


def judge(master: str | None, facts: dict[str, ResolveFacts] | None = None, count: int = 3) -> list[Finding]:
    return list(rdzv_addr(job(count, master_addr=master), facts or resolves(count), nets(count)))


def test_says_what_would_be_used_when_nothing_is_set() -> None:
    (finding,) = judge(None)
    assert finding.status is Status.PASS
    assert "n1 at 10.0.0.1" in finding.summary


def test_silent_when_it_is_the_first_node() -> None:
    assert judge("10.0.0.1") == []
    assert judge("n1") == []


def test_one_node_may_use_anything() -> None:
    assert judge("127.0.0.1", count=1) == []


def test_a_loopback_address() -> None:
    assert set(causes(judge("127.0.0.1"))) == {"master-loopback"}


def test_an_address_of_nobody() -> None:
    findings = judge("192.0.2.1")
    assert set(causes(findings)) == {"master-foreign"}
    assert findings[0].expected == "n1 (10.0.0.1)"
    fix = cause(findings, "master-foreign").fixes[0]
    assert fix.commands[0].shell == "export MASTER_ADDR=10.0.0.1"


def test_another_node_than_the_first() -> None:
    assert causes(judge("10.0.0.2")) == {"master-not-first": {"n2"}}
    assert causes(judge("n2")) == {"master-not-first": {"n2"}}


@pytest.mark.parametrize(
    ("launcher", "backend", "status", "confidence"),
    [
        (None, None, Status.FAIL, CERTAIN),
        ("srun", None, Status.FAIL, CERTAIN),
        ("torchrun", None, Status.WARN, LIKELY),
        ("torchrun", "static", Status.FAIL, CERTAIN),
        ("torchrun", "c10d", Status.PASS, None),
    ],
)
@pytest.mark.parametrize("master", ["n2", "10.0.0.2"])
def test_torchrun_lets_another_node_host_the_store(
    master: str, launcher: str | None, backend: str | None, status: Status, confidence: object
) -> None:
    variables = {"PET_RDZV_BACKEND": backend} if backend else {}
    asked = job(3, master_addr=master, launcher=launcher, env=variables)
    (finding,) = rdzv_addr(asked, resolves(3), nets(3))
    assert (finding.status, finding.cause and finding.cause.confidence) == (status, confidence)


def test_an_address_that_several_nodes_have() -> None:
    machines = {
        node: net(i, addresses=(*net(i).addresses, row("docker0", "172.17.0.1", 16)))
        for i, node in enumerate(("n1", "n2", "n3"), 1)
    }
    findings = list(rdzv_addr(job(3, master_addr="172.17.0.1"), resolves(3), machines))
    assert set(causes(findings)) == {"master-duplicate"}


def test_a_node_that_cannot_resolve_it() -> None:
    facts = resolves(3)
    facts["n2"] = relook(facts["n2"], lookup("n1", error="EAI_NONAME"))
    assert causes(judge("n1", facts)) == {"master-unresolved": {"n2"}}


def test_a_node_that_takes_it_for_another_machine() -> None:
    facts = resolves(3)
    facts["n3"] = relook(facts["n3"], lookup("n1", address(2)))
    assert causes(findings := judge("n1", facts)) == {"master-differs": {"n3"}}
    assert [one.expected for one in findings] == ["n1"]


def test_two_nodes_that_disagree_are_both_named() -> None:
    facts = resolves(2)
    facts["n2"] = relook(facts["n2"], lookup("n1", address(2)))
    assert causes(findings := judge("n1", facts, 2)) == {"master-differs": {"n1", "n2"}}
    assert {one.expected for one in findings} == {"the same on all nodes"}


def test_loopback_on_the_master_itself_is_fine_and_elsewhere_not() -> None:
    facts = resolves(3)
    facts["n1"] = relook(facts["n1"], lookup("n1", "127.0.1.1"))
    assert judge("n1", facts) == []
    facts["n2"] = relook(facts["n2"], lookup("n1", "127.0.1.1"))
    assert causes(judge("n1", facts)) == {"master-loopback": {"n2"}}


def test_a_second_address_of_the_master_is_the_same_answer() -> None:
    machines = {**nets(3), "n1": net(1, addresses=(*net(1).addresses, row("eth1", "10.1.0.1")))}
    facts = resolves(3)
    facts["n2"] = relook(facts["n2"], lookup("n1", "10.1.0.1"))
    assert list(rdzv_addr(job(3, master_addr="n1"), facts, machines)) == []


def test_a_name_nobody_looked_up_is_unknown() -> None:
    assert set(found(judge("elsewhere.example"), Status.UNKNOWN)) == {"n1", "n2", "n3"}


def test_a_name_that_there_was_no_time_for_is_unknown() -> None:
    facts = resolves(3)
    facts["n2"] = relook(facts["n2"], lookup("n1", error="timed out: earlier lookups used up the time"))
    assert {n: one.status for n, one in found(judge("n1", facts)).items()} == {"n2": Status.UNKNOWN}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        pytest.param({"data_addresses": {}}, Status.UNKNOWN, id="its address is not known"),
        pytest.param({"master_node": "n9"}, Status.SKIP, id="it could not be asked"),
        pytest.param({"master_node": None}, Status.SKIP, id="there is none"),
    ],
)
def test_without_a_first_node_nothing_passes(changes: dict[str, Any], status: Status) -> None:
    (finding,) = said(rdzv_addr(job(3, master_addr=None, **changes), resolves(3), nets(3)), "cluster")
    assert (finding.target, finding.status) == ("cluster", status)
