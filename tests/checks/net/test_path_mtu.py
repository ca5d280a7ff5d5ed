from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.net.path_mtu import net_path_mtu
from netdoctor.facts.net import PathMtus
from netdoctor.model import Confidence, Finding, Status

from ..build import (
    cause,
    causes,
    found,
    host,
    inbound,
    job,
    loopback,
    names,
    net,
    netdev,
    nets,
    outbound,
    path_mtus,
    second,
)

HOLE: dict[str, Any] = {"outcome": "black_hole", "dev_mtu": 9000, "largest_ok": 1500}
SMALL: dict[str, Any] = {"outcome": "small", "dev_mtu": 9000, "largest_ok": 1500, "learned_mtu": 1500}


def judge(paths: PathMtus, count: int = 4, mtus: dict[str, int] | None = None) -> list[Finding]:
    sizes = dict.fromkeys(names(count), 9000) | (mtus or {})
    machines = {
        name: net(i, netdevs=(loopback(), netdev(mtu=sizes[name])))
        for i, name in enumerate(names(count), start=1)
    }
    return list(net_path_mtu(paths, job(count), machines))


def around(count: int, node: str, what: dict[str, Any]) -> PathMtus:
    cells = {**inbound(count, node), **outbound(count, node)}
    return path_mtus(count, dict.fromkeys(cells, what))


def test_silent_when_full_packets_pass() -> None:
    assert judge(path_mtus(4)) == []


def test_one_node_is_skipped() -> None:
    assert judge(PathMtus(), 1)[0].status is Status.SKIP


@pytest.mark.parametrize(
    ("changes", "mtu"),
    [
        pytest.param({}, 1500, id="what passes"),
        pytest.param({"largest_ok": None}, 1500, id="nothing known to pass"),
        pytest.param({"largest_ok": 600}, 1500, id="less than IPv6 needs"),
        pytest.param({"largest_ok": 600, "dev_mtu": 1500}, 1280, id="less than IPv6 needs, no jumbo frames"),
    ],
)
def test_a_hole_around_one_node_is_that_node(changes: dict[str, Any], mtu: int) -> None:
    findings = judge(around(4, "n3", HOLE | changes))
    assert causes(findings) == {"mtu-black-hole": {"n3"}}
    assert {one.status for one in findings} == {Status.FAIL}
    shells = [
        command.shell
        for one in findings
        if one.cause
        for fix in one.cause.fixes
        for command in fix.commands
        if command.run_on == "n3"
    ]
    assert f"ip link set dev eth0 mtu {mtu}" in shells


@pytest.mark.parametrize("cells", [inbound(4, "n2"), outbound(4, "n2")], ids=["in", "out"])
def test_one_direction_is_enough(cells: dict[tuple[str, str], str]) -> None:
    findings = judge(path_mtus(4, dict.fromkeys(cells, HOLE)))
    assert causes(findings) == {"mtu-black-hole": {"n2"}}


def test_two_nodes_stay_undecided() -> None:
    findings = judge(path_mtus(2, {("n1", "n2"): HOLE, ("n2", "n1"): HOLE}), 2)
    assert causes(findings) == {"mtu-black-hole": {"n1", "n2"}}
    assert cause(findings, "mtu-black-hole").confidence is Confidence.SUSPECTED


def test_one_path_both_ways_is_one_pair() -> None:
    findings = judge(path_mtus(4, {("n1", "n2"): HOLE, ("n2", "n1"): HOLE}))
    assert causes(findings) == {"mtu-black-hole": {"n1->n2"}}
    assert set(found(findings)) == {"n1->n2", "n2->n1"}
    assert "on the path {nodes}" in cause(findings, "mtu-black-hole").title


def test_a_hole_at_everybody_is_between_the_nodes() -> None:
    every = {(a, b): HOLE for a in names(4) for b in names(4) if a != b}
    assert "between nodes" in cause(judge(path_mtus(4, every)), "mtu-black-hole").title


def test_a_smaller_path_that_says_so_warns() -> None:
    findings = judge(around(4, "n3", SMALL))
    assert causes(findings) == {"path-mtu-small": {"n3"}}
    assert {one.status for one in findings} == {Status.WARN}


def test_filtered_udp_is_unknown() -> None:
    silent = {"outcome": "no_answer", "small_ok": False, "largest_ok": None}
    findings = judge(path_mtus(3, {("n1", "n2"): silent}), 3)
    assert found(findings)["n1->n2"].status is Status.UNKNOWN
    assert causes(findings) == {}


def test_a_node_that_took_no_part_is_unknown() -> None:
    findings = judge(PathMtus(failed_nodes={"n2": "lost"}))
    assert found(findings)["n2"].status is Status.UNKNOWN


def test_a_node_in_no_pair_is_unknown() -> None:
    findings = found(judge(path_mtus(3), 4))
    assert {node: one.status for node, one in findings.items()} == {"n4": Status.UNKNOWN}


def test_an_outcome_that_says_nothing_is_unknown() -> None:
    findings = found(judge(path_mtus(3, {("n1", "n2"): {"outcome": ""}}), 3))
    assert {target: one.status for target, one in findings.items()} == {"n1->n2": Status.UNKNOWN}


def test_a_receivers_mtu_that_was_not_read_excuses_no_hole() -> None:
    paths = path_mtus(4, dict.fromkeys(inbound(4, "n2"), HOLE))
    assert causes(judge(paths, mtus={"n2": 0})) == {"mtu-black-hole": {"n2"}}


def test_a_receiver_with_a_smaller_mtu_is_the_difference_and_no_hole() -> None:
    # four bytes more than the MTU: a VLAN tag's worth, as veth takes
    paths = path_mtus(4, dict.fromkeys(inbound(4, "n2"), HOLE | {"largest_ok": 1504}))
    findings = judge(paths, mtus={"n2": 1500})
    assert causes(findings) == {"mtu-differs": {"n2"}}
    assert {one.status for one in findings} == {Status.WARN}


def test_a_sender_with_a_larger_mtu_is_the_difference_too() -> None:
    paths = path_mtus(4, dict.fromkeys(outbound(4, "n2"), HOLE))
    findings = judge(paths, mtus={"n1": 1500, "n3": 1500, "n4": 1500})
    assert causes(findings) == {"mtu-differs": {"n2"}}


def test_a_limit_below_the_receivers_mtu_stays_a_hole() -> None:
    paths = path_mtus(4, dict.fromkeys(inbound(4, "n2"), HOLE | {"largest_ok": 1400}))
    assert causes(judge(paths, mtus={"n2": 1500})) == {"mtu-black-hole": {"n2"}}


def over_two(bad: PathMtus) -> PathMtus:
    """Beside a whole main path these probes, over 10.1.0.0/24."""
    there = (replace(one, address=f"10.1.0.{one.dst[1:]}", dev="eth1") for one in bad.probes)
    return PathMtus(probes=(*path_mtus(4).probes, *there))


def test_a_hole_on_a_further_path_is_named() -> None:
    findings = list(net_path_mtu(over_two(around(4, "n2", HOLE)), job(4), nets(4), second(4)))
    assert causes(findings) == {"mtu-black-hole-net2": {"n2"}}
    assert "over eth1 (10.1.0.0/24: NCCL)" in cause(findings, "mtu-black-hole-net2").title


def test_a_node_is_named_once_for_all_of_its_paths() -> None:
    bad = around(4, "n2", HOLE)
    further = over_two(bad).probes[len(bad.probes) :]
    jumbo = {n: replace(one, netdevs=(netdev(mtu=9000),)) for n, one in nets(4).items()}
    findings = list(net_path_mtu(PathMtus(probes=(*bad.probes, *further)), job(4), jumbo, second(4)))
    assert causes(findings) == {"mtu-black-hole": {"n2"}}


def test_a_cloud_has_no_switch_ports() -> None:
    machines = {name: net(i, netdevs=(loopback(), netdev(mtu=9000))) for i, name in enumerate(names(3), 1)}
    for clouds, word, shell in (
        (("gcp", "gcp", "gcp"), "1460 bytes unless set", "gcloud compute networks describe"),
        (("aws", "aws", "aws"), "inside a VPC 9001 bytes", ""),
        (("azure", "azure", "azure"), "set the switch", ""),
        (("gcp", "aws", "gcp"), "set the switch", ""),
        ((None, None, None), "set the switch", ""),
    ):
        known = {name: host(i, cloud=clouds[i - 1]) for i, name in enumerate(names(3), 1)}
        probes = path_mtus(3, dict.fromkeys(inbound(3, "n3"), HOLE))
        findings = net_path_mtu(probes, job(3), machines, None, known)
        fix, *_ = cause(list(findings), "mtu-black-hole").fixes
        assert word in fix.text, clouds
        assert bool(shell) is bool(fix.commands)
        assert all(command.shell.startswith(shell) for command in fix.commands)
