"""Slow nodes, directions and paths, and lost packets, each put into a real lab and named."""

from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.lab.test_lab import Maker
from tests.scan.harness import Scanned, scan

pytestmark = [pytest.mark.lab, pytest.mark.rates]

TCP = ("--only", "bw.tcp", "--budget", "14")
LOSS = ("--only", "net.loss")


def names(scanned: Scanned) -> list[tuple[str, list[str], str]]:
    """(key, culprits, confidence) of every cause."""
    return [(c["key"], list(c["node_list"]), c["confidence"]) for c in scanned.report["causes"]]


def test_a_node_behind_a_slow_link(even: Lab, folder: Path) -> None:
    node = "node3"
    even.break_(node, "slow-link", rate="50mbit")
    found = scan(even, folder, *TCP)
    assert found.code == 1, found.summary()
    assert names(found) == [("slow-node-both", [node], "certain")], found.summary()
    slow = {(p["from"], p["to"]) for p in found.report["pairs"] if p["status"] == "fail"}
    assert slow == {(a, b) for a in even.nodes for b in even.nodes if a != b and node in (a, b)}


def test_slow_directions_of_two_nodes(even: Lab, folder: Path) -> None:
    for node, way in (("node0", "in"), ("node1", "out")):
        even.break_(node, "slow-link", rate="50mbit", dir=way)
    # A link that is slow one way has no rate the other way: from one to the other all would be passed.
    rate = ("root", "tbf", "rate", "200mbit", "burst", "128k", "latency", "50ms")
    even.run("node0", ["tc", "qdisc", "replace", "dev", "eth0", *rate], check=True)
    try:
        found = scan(even, folder, *TCP)
    finally:
        even.run("node0", ["tc", "qdisc", "del", "dev", "eth0", "root"], check=True)
    wanted = [("slow-node-in", ["node0"], "certain"), ("slow-node-out", ["node1"], "certain")]
    assert sorted(names(found)) == wanted, found.summary()


def test_a_slow_pair_and_a_slow_direction_of_another(lab4: Lab, folder: Path) -> None:
    lab4.break_("node0", "slow-pair", peer="node3", dir="out")
    lab4.break_("node1", "slow-pair", peer="node2")
    found = scan(lab4, folder, *TCP)
    assert found.keys == ["slow-path"], found.summary()
    assert sorted(found.cause("slow-path")["node_list"]) == lab4.nodes, found.summary()
    slow = {(p["from"], p["to"]) for p in found.report["pairs"] if p["status"] == "fail"}
    assert slow == {("node0", "node3"), ("node1", "node2"), ("node2", "node1")}


def test_packet_loss_on_one_node_and_in_one_direction_of_another(even: Lab, folder: Path) -> None:
    even.break_("node2", "loss")
    even.break_("node1", "loss", dir="in")
    found = scan(even, folder, *LOSS)
    wanted = [("packet-loss", ["node2"], "certain"), ("packet-loss-in", ["node1"], "certain")]
    assert sorted(names(found)) == wanted, found.summary()


def test_a_clean_lab_is_silent_and_slower_links_than_in_the_baseline_are_told(
    lab4: Lab, folder: Path
) -> None:
    for node in lab4.nodes:
        lab4.break_(node, "slow-link", rate="100mbit")
    # Nothing but a baseline can tell: all pairs are alike. Seconds enough for each pair, and once more.
    tcp = (*TCP[:2], "--budget", "10")
    good = scan(lab4, folder, *tcp, *LOSS, "--save", "good.json")
    assert (good.code, good.keys) == (0, []), good.summary()
    pairs = [p for p in good.report["pairs"] if p["check"] == "bw.tcp"]
    assert len(pairs) == 12
    assert all(p["status"] == "pass" and p["value"] > 0 and p["unit"] == "Gbit/s" for p in pairs)
    found = scan(lab4, folder, *tcp, "--baseline", "good.json")
    assert not found.report["causes"], found.summary()
    for node in lab4.nodes:
        lab4.break_(node, "slow-link", rate="60mbit")
    found = scan(lab4, folder, *tcp, "--baseline", "good.json")
    assert names(found) == [("slower-than-baseline", [], "likely")], found.summary()
    (result,) = (r for r in found.report["results"] if r["target"] == "cluster" and r["status"] == "warn")
    assert result["expected_from"] == "baseline"
    assert "good.json of 20" in result["expected"]


def test_the_uplink_of_a_leaf(make_lab: Maker, tmp_path: Path) -> None:
    lab = make_lab(6)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("".join(f"node[{2 * i}-{2 * i + 1}] leaf=sw{i}\n" for i in range(3)))
    for inside in ("node0", "node1"):
        for outside in lab.nodes[2:]:
            lab.break_(inside, "slow-pair", peer=outside)
    found = scan(lab, tmp_path, *TCP[:2], "--budget", "20", hosts=str(hosts))
    assert found.keys == ["slow-uplink"], found.summary()
    cause = found.cause("slow-uplink")
    assert sorted(cause["node_list"]) == ["node0", "node1"]
    assert "leaf sw0" in cause["title"]
    slow = {(p["from"], p["to"]) for p in found.report["pairs"] if p["status"] == "fail"}
    inside = {"node0", "node1"}
    assert slow == {(a, b) for a in lab.nodes for b in lab.nodes if (a in inside) != (b in inside)}
