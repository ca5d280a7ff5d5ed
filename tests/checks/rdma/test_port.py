from collections.abc import Mapping

import pytest

from netdoctor.checks.rdma.port import rdma_port
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Finding, Kind, Status

from ..build import cause, causes, net, netdev
from ..build_hw import hca, port, rdma, rdmas, roce_port


def with_port(**changes: object) -> RdmaFacts:
    return rdma(hca("mlx5_0"), hca("mlx5_1", ports=(port("mlx5_1", **changes),)))


def port_check(nodes: Mapping[str, RdmaFacts], nets: Mapping[str, NetFacts] | None = None) -> list[Finding]:
    return list(rdma_port(nodes, nets))


DOWN = {"state": "DOWN", "phys_state": "Polling"}


def test_silent_when_all_are_active() -> None:
    assert not list(port_check(rdmas(3)))


def test_skips_without_hcas_or_cables() -> None:
    assert [f.status for f in port_check({"n1": RdmaFacts()})] == [Status.SKIP]
    bare = rdma(hca("mlx5_0", ports=(port("mlx5_0", **DOWN),)))
    assert [f.status for f in port_check({"n1": bare, "n2": bare})] == [Status.SKIP]


def test_down_here_and_active_elsewhere_fails() -> None:
    findings = list(port_check(rdmas(3, n2=with_port(**DOWN))))
    assert causes(findings) == {"hca-port-down": {"n2"}}
    assert findings[0].summary.endswith("ACTIVE on 2 other nodes: no answer on the cable")
    (finding,) = port_check(rdmas(2, n2=with_port(**DOWN)))
    assert "ACTIVE on 1 other node:" in finding.summary


def test_down_everywhere_is_not_cabled() -> None:
    assert not list(port_check({f"n{i}": with_port(**DOWN) for i in (1, 2)}))


def test_one_node_alone_tells_nothing_of_a_port_that_is_down() -> None:
    assert not list(port_check({"n1": with_port(**DOWN)}))


def test_init_means_no_subnet_manager() -> None:
    init = {"state": "INIT", "sm_lid": 0}
    assert causes(port_check(rdmas(3, n1=with_port(**init)))) == {"hca-port-not-managed": {"n1"}}
    everywhere = rdma(hca("mlx5_0", ports=(port("mlx5_0", **init),)))
    findings = list(port_check({"n1": everywhere, "n2": everywhere}))
    assert causes(findings) == {"no-subnet-manager": {"cluster"}}
    assert {f.status for f in findings} == {Status.FAIL}


def test_init_on_a_spare_port_is_a_warning() -> None:
    spare = with_port(state="INIT", sm_lid=0)
    assert {f.status for f in port_check({"n1": spare, "n2": spare})} == {Status.WARN}


def test_roce_gets_the_interface_up() -> None:
    down = rdma(hca("mlx5_0", ports=(roce_port(state="DOWN", phys_state="Disabled"),)))
    up = rdma(hca("mlx5_0", ports=(roce_port(),)))
    findings = list(port_check({"n1": down, "n2": up}))
    bring_up, read = cause(findings, "hca-port-down").fixes
    assert bring_up.commands[0].shell == "ip link set dev eth1 up"
    assert read.kind is Kind.LOOK
    # An interface that is up, such as the one that we came in over, is not what keeps the port down.
    nets = {"n1": net(1, netdevs=(netdev("eth1"),))}
    assert cause(port_check({"n1": down, "n2": up}, nets), "hca-port-down").fixes == (read,)


def test_infiniband_gets_a_port_that_was_switched_off_on() -> None:
    findings = list(port_check({"n1": with_port(state="DOWN", phys_state="Disabled"), "n2": rdma()}))
    shells = [fix.commands[0].shell for fix in cause(findings, "hca-port-down").fixes]
    assert shells[0] == "mlxlink -d mlx5_1 -p 1 --port_state UP"
    assert shells[1].startswith("mlxlink -d mlx5_1 -p 1 -m")


@pytest.mark.parametrize(
    ("changes", "reads"),
    [
        ({"state": "DOWN", "phys_state": "Polling"}, "mlxlink -d mlx5_0"),
        ({"state": "INIT", "phys_state": "LinkUp"}, "rdma link show"),
    ],
)
def test_a_cable_is_only_suspected_where_the_link_is_not_up(changes: dict[str, str], reads: str) -> None:
    down = rdma(hca("mlx5_0", ports=(roce_port(**changes),)))
    up = rdma(hca("mlx5_0", ports=(roce_port(),)))
    (fix,) = cause(port_check({"n1": down, "n2": up}), "hca-port-down").fixes
    assert fix.kind is Kind.LOOK
    assert reads in fix.commands[0].shell
    assert ("cable and transceiver" in fix.text) is (changes["phys_state"] != "LinkUp")


def test_what_cannot_be_read_is_unknown_there() -> None:
    for odd in (with_port(state=""), with_port(link_layer=""), rdma(hca("mlx5_0"), hca("mlx5_1", ports=()))):
        findings = list(port_check(rdmas(3, n2=odd)))
        assert {f.target: f.status for f in findings} == {"n2": Status.UNKNOWN}
        assert "mlx5_1" in findings[0].summary


def test_a_node_without_hcas_is_skipped() -> None:
    assert {f.target: f.status for f in port_check(rdmas(3, n2=RdmaFacts()))} == {"n2": Status.SKIP}
