from dataclasses import replace

import pytest

from netdoctor.checks._shared.ports import port_causes
from netdoctor.checks.net.ports import net_ports
from netdoctor.checks.rdzv.reach import rdzv_reach
from netdoctor.facts.net import PortMatrix
from netdoctor.model import Finding, Status

from ..build import causes, found, hosts, inbound, job, matrix, outbound, probe, second


def judge(ports: PortMatrix, count: int = 4, lost: str | None = None) -> list[Finding]:
    machines = {node: facts for node, facts in hosts(count).items() if node != lost}
    return list(rdzv_reach(ports, port_causes(ports, None), machines, job(count)))


def test_passes_when_all_reach_the_master() -> None:
    (finding,) = judge(matrix(4))
    assert finding.status is Status.PASS


def test_one_node_is_skipped() -> None:
    (finding,) = judge(PortMatrix(), 1)
    assert finding.status is Status.SKIP


def test_a_filtered_column_is_the_same_cause_as_in_net_ports() -> None:
    ports = matrix(4, inbound(4, "n1"))
    mine = judge(ports)
    assert set(found(mine, Status.FAIL)) == {"n2->n1", "n3->n1", "n4->n1"}
    assert causes(mine) == causes(net_ports(ports, port_causes(ports, None), job(4), hosts(4)))


def test_a_node_that_cannot_get_out_is_the_culprit() -> None:
    findings = judge(matrix(4, outbound(4, "n3")))
    assert causes(findings) == {"firewall-outbound": {"n3"}}
    assert set(found(findings, Status.FAIL)) == {"n3->n1"}


@pytest.mark.parametrize("backwards", [False, True])
def test_a_pair_with_a_fault_at_each_end_is_its_source_s(backwards: bool) -> None:
    """A node that gets nothing out does not reach the master, whatever the master lets in besides."""
    ports = matrix(4, inbound(4, "n1") | outbound(4, "n2"))
    ports = replace(ports, probes=ports.probes[::-1]) if backwards else ports
    findings = found(judge(ports), Status.FAIL)
    assert {pair: causes([finding]) for pair, finding in findings.items()} == {
        "n2->n1": {"firewall-outbound": {"n2"}},
        "n3->n1": {"firewall-inbound": {"n1"}},
        "n4->n1": {"firewall-inbound": {"n1"}},
    }


def test_faults_elsewhere_are_not_its_business() -> None:
    assert found(judge(matrix(4, inbound(4, "n3"))), Status.FAIL) == {}


def test_a_master_that_took_no_part_is_unknown() -> None:
    (finding,) = judge(PortMatrix(failed_nodes={"n1": "lost"}))
    assert finding.status is Status.UNKNOWN


def test_a_master_that_could_not_be_logged_in_to_leaves_nothing_to_say() -> None:
    others = tuple(p for p in matrix(3).probes if "n1" not in (p.src, p.dst))
    (finding,) = judge(PortMatrix(probes=others), 3, lost="n1")
    assert finding.status is Status.SKIP


def test_a_busy_port_that_answers_is_reached() -> None:
    ports = matrix(3, bad_rdzv=inbound(3, "n1", outcome="in_use"))
    assert found(judge(ports, 3), Status.FAIL) == {}


def test_a_node_whose_part_did_not_run_is_unknown() -> None:
    without = tuple(p for p in matrix(3).probes if p.src != "n3")
    findings = found(judge(PortMatrix(probes=without, failed_nodes={"n3": "no answer"}), 3))
    assert findings["n3"].status is Status.UNKNOWN
    assert "no answer" in findings["n3"].summary
    assert "cluster" not in findings


def test_a_node_in_no_pair_is_unknown() -> None:
    findings = found(judge(matrix(3), 4))
    assert findings["n4"].status is Status.UNKNOWN
    assert "cluster" not in findings


def test_a_master_in_no_pair_is_unknown() -> None:
    others = tuple(p for p in matrix(3).probes if "n1" not in (p.src, p.dst))
    assert found(judge(PortMatrix(probes=others), 3))["cluster"].status is Status.UNKNOWN


def test_another_port_than_the_one_tried_is_unknown() -> None:
    ports = matrix(3)
    findings = found(rdzv_reach(ports, port_causes(ports, None), hosts(3), job(3, master_port=1234)))
    assert {node: one.status for node, one in findings.items()} == dict.fromkeys(("n2", "n3"), Status.UNKNOWN)


def test_asks_where_master_addr_points() -> None:
    store = second(3, "store")
    there = [
        probe(src, "n1", outcome=said, address="10.1.0.1")
        for src, said in (("n2", "open"), ("n3", "filtered"))
    ]
    ports = PortMatrix(probes=(*matrix(3, bad_rdzv={("n2", "n1"): "filtered"}).probes, *there))
    (finding,) = rdzv_reach(ports, port_causes(ports, None, store), hosts(3), job(3))
    assert (finding.target, finding.cause and finding.cause.key) == ("n3->n1", "firewall-path-net2")
    assert "over eth1 (10.1.0.0/24: MASTER_ADDR)" in finding.summary
