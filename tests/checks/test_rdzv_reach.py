from netdoctor.checks.net_ports import net_ports
from netdoctor.checks.rdzv_reach import rdzv_reach
from netdoctor.facts.net import PortMatrix
from netdoctor.model import Status

from .build import causes, found, hosts, inbound, job, matrix, outbound


def test_passes_when_all_reach_the_master() -> None:
    (finding,) = rdzv_reach(matrix(4), job(4), None)
    assert finding.status is Status.PASS


def test_one_node_is_skipped() -> None:
    (finding,) = rdzv_reach(PortMatrix(), job(1), None)
    assert finding.status is Status.SKIP


def test_a_filtered_column_is_the_same_cause_as_in_net_ports() -> None:
    ports = matrix(4, inbound(4, "n1"))
    mine = list(rdzv_reach(ports, job(4), None))
    assert set(found(mine, Status.FAIL)) == {"n2->n1", "n3->n1", "n4->n1"}
    assert causes(mine) == causes(net_ports(ports, job(4), hosts(4), None))


def test_a_node_that_cannot_get_out_is_the_culprit() -> None:
    findings = list(rdzv_reach(matrix(4, outbound(4, "n3")), job(4), None))
    assert causes(findings) == {"firewall-outbound": {"n3"}}
    assert set(found(findings, Status.FAIL)) == {"n3->n1"}


def test_faults_elsewhere_are_not_its_business() -> None:
    findings = list(rdzv_reach(matrix(4, inbound(4, "n3")), job(4), None))
    assert found(findings, Status.FAIL) == {}


def test_a_master_that_took_no_part_is_unknown() -> None:
    (finding,) = rdzv_reach(PortMatrix(failed_nodes={"n1": "lost"}), job(4), None)
    assert finding.status is Status.UNKNOWN


def test_a_master_that_could_not_be_logged_in_to_leaves_nothing_to_say() -> None:
    others = tuple(p for p in matrix(3).probes if "n1" not in (p.src, p.dst))
    (finding,) = rdzv_reach(PortMatrix(probes=others), job(3), None)
    assert finding.status is Status.SKIP


def test_a_busy_port_that_answers_is_reached() -> None:
    ports = matrix(3, bad_rdzv=inbound(3, "n1", outcome="in_use"))
    assert found(rdzv_reach(ports, job(3), None), Status.FAIL) == {}
