"""Slow nodes, directions and paths, and lost packets, each put into a real lab and named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.scan.harness import Scanned, scan

pytestmark = pytest.mark.lab

TCP = ("--only", "bw.tcp", "--budget", "14")
LOSS = ("--only", "net.loss")


def names(scanned: Scanned) -> list[tuple[str, list[str], str]]:
    """(key, culprits, confidence) of every cause."""
    return [(c["key"], list(c["node_list"]), c["confidence"]) for c in scanned.report["causes"]]


def settled(
    lab: Lab, folder: Path, args: tuple[str, ...], hurt: set[str], right: Callable[[Scanned], bool]
) -> Scanned:
    """The first scan, of at most three, that says what it should.

    Rates are measured on cores that other programs use too, so one scan may leave a side undecided. In no
    scan may a node that was left alone be blamed for certain.
    """
    seen = []
    for _ in range(3):
        found = scan(lab, folder, *args)
        certain = {n for _, nodes, confidence in names(found) if confidence == "certain" for n in nodes}
        assert certain <= hurt, found.summary()
        if right(found):
            return found
        seen.append(found.summary())
    pytest.fail("\n".join(seen))


def named(key: str, node: str) -> Callable[[Scanned], bool]:
    """Exactly one cause, certain, of this kind and node."""
    return lambda found: names(found) == [(key, [node], "certain")]


def test_a_clean_lab_is_silent(lab4: Lab, folder: Path) -> None:
    found = settled(lab4, folder, (*TCP, *LOSS), set(), lambda scanned: not scanned.report["causes"])
    assert found.code == 0, found.summary()
    pairs = [p for p in found.report["pairs"] if p["check"] == "bw.tcp"]
    assert len(pairs) == 12
    assert all(p["status"] == "pass" and p["value"] > 0 and p["unit"] == "Gbit/s" for p in pairs)


@pytest.mark.parametrize("node", ["node0", "node3"])
def test_a_node_behind_a_slow_link(lab4: Lab, folder: Path, node: str) -> None:
    lab4.break_(node, "slow-link", rate="50mbit")
    found = settled(lab4, folder, TCP, {node}, named("slow-node-both", node))
    assert found.code == 1, found.summary()
    slow = {(p["from"], p["to"]) for p in found.report["pairs"] if p["status"] == "fail"}
    assert slow == {(a, b) for a in lab4.nodes for b in lab4.nodes if a != b and node in (a, b)}


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_slow_direction_of_one_node(lab4: Lab, folder: Path, way: str) -> None:
    lab4.break_("node1", "slow-link", rate="50mbit", dir=way)
    settled(lab4, folder, TCP, {"node1"}, named(f"slow-node-{way}", "node1"))


def path(key: str, nodes: str) -> Callable[[Scanned], bool]:
    """Exactly one cause, of this kind, on this way as the report writes it, whichever end it names first."""
    ends = sorted(nodes.split(" -> "))

    def right(found: Scanned) -> bool:
        causes = found.report["causes"]
        return [(c["key"], sorted(c["node_list"])) for c in causes] == [(key, ends)]

    return right


def test_a_slow_direction_of_one_pair(lab4: Lab, folder: Path) -> None:
    lab4.break_("node0", "slow-pair", peer="node3", dir="out")
    found = settled(lab4, folder, TCP, {"node0", "node3"}, path("slow-path", "node0 -> node3"))
    assert found.report["causes"][0]["nodes"] == "node0 -> node3", found.summary()
    slow = [(p["from"], p["to"]) for p in found.report["pairs"] if p["status"] == "fail"]
    assert slow == [("node0", "node3")]


def test_a_slow_pair_in_both_directions(lab4: Lab, folder: Path) -> None:
    lab4.break_("node1", "slow-pair", peer="node2")
    settled(lab4, folder, TCP, {"node1", "node2"}, path("slow-path", "node1 -> node2"))


@pytest.mark.parametrize("node", ["node0", "node2"])
def test_packet_loss_on_one_node(lab4: Lab, folder: Path, node: str) -> None:
    lab4.break_(node, "loss")
    settled(lab4, folder, LOSS, {node}, named("packet-loss", node))


def test_packet_loss_in_one_direction(lab4: Lab, folder: Path) -> None:
    lab4.break_("node1", "loss", dir="in")
    settled(lab4, folder, LOSS, {"node1"}, named("packet-loss-in", "node1"))
