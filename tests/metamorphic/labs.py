"""Recorded lab nodes (tests/data/lab, made by record.py): healthy, with one fault, and two at once."""

import json
import lzma
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from netdoctor.facts.base import Missing
from netdoctor.store import Store, load
from tests.metamorphic import moves
from tests.metamorphic.world import Judgement, derive, judged

FILE = Path(__file__).parents[1] / "data/lab/recorded.json.xz"
NODES = ("node0", "node1", "node2", "node3")


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A scan of four nodes. causes: (key, nodes) that it named when it was recorded."""

    name: str
    store: Store
    causes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __str__(self) -> str:
        return f"lab: {self.name}"

    @property
    def node(self) -> str:
        """Where the fault is."""
        return self.name.split(" ")[0]


@cache
def recordings() -> tuple[Recording, ...]:
    data = json.loads(lzma.decompress(FILE.read_bytes()))
    healthy = Recording("healthy", load(data["healthy"]))
    return (
        healthy,
        *(
            Recording(name, load(one["facts"]), tuple((key, tuple(nodes)) for key, nodes in one["causes"]))
            for name, one in data["faults"].items()
        ),
    )


def judgement_of(store: Store) -> Judgement:
    return judged(store, NODES)


@cache
def on(recording: Recording, node: str) -> Store:
    """The same fault on another node: names and addresses of the two are exchanged."""
    if recording.node == node:
        return recording.store
    a, b = (
        recording.store.get("session", name).address.rpartition(".")[2] for name in (recording.node, node)
    )
    found = moves.with_names(recording.store, {recording.node: node, node: recording.node})
    # All networks of the lab number their nodes alike.
    pattern = re.compile(rf"(?<![\d.])(10\.\d+\.\d+\.)({a}|{b})(?![\d.])")
    found = moves.rewritten(found, pattern, lambda match: match[1] + (b if match[2] == a else a))
    for name in NODES:  # lines of the hosts file stay where they were
        found.put("node", name, replace(found.get("node", name), order=NODES.index(name)))
    return found


def both(one: Recording, other: Recording, node: str) -> Store:
    """One fault where it was recorded, the other on `node`: a path is as bad as either saw it."""
    first, second = one.store, on(other, node)
    found = moves.copied(first)
    for group, by_node in second.node.items():
        # Rule sets are read at the ends of what failed, and so for either of the faults.
        if node in by_node and not (group == "firewall" and isinstance(by_node[node], Missing)):
            found.put(group, node, by_node[node])
        for name, fact in by_node.items():  # what is looked at only where something failed
            if isinstance(first.get(group, name), Missing) and not isinstance(fact, Missing):
                found.put(group, name, fact)
    for group, is_bad in BETWEEN.items():
        mine, its = first.cluster[group], second.cluster[group]
        if isinstance(mine, Missing) or isinstance(its, Missing):
            continue
        bad: dict[tuple[str, str, str], list[Any]] = {}
        for probe in its.probes:
            bad.setdefault(_key(probe), []).append(probe)
        probes = []
        tried = {_key(probe) for probe in its.probes}
        for probe in mine.probes:
            if _key(probe) not in tried:  # of a node that nobody gets into
                continue
            twins = [p for p in bad.get(_key(probe), ()) if is_bad(p)]
            probes.append(twins[0] if twins and not is_bad(probe) else probe)
        found.cluster[group] = replace(mine, probes=tuple(probes))
    derive(found, NODES)
    return found


def _key(probe: Any) -> tuple[str, str, str]:
    return probe.src, probe.dst, f"{probe.address} {getattr(probe, 'purpose', '')}"


BETWEEN: dict[str, Callable[[Any], bool]] = {
    "ports": lambda probe: probe.outcome not in ("open", "in_use"),
    "path_mtu": lambda probe: probe.outcome != "ok",
    "loss": lambda probe: probe.answered < probe.sent,
}


def drawn(rng: random.Random) -> Recording:
    return rng.choice(recordings())


@cache
def is_between(recording: Recording) -> bool:
    """Whether the fault shows in what nodes tried with each other. Two of these may overlap in a pair."""
    healthy = recordings()[0]
    return any(
        sum(map(is_bad, recording.store.cluster[group].probes)) for group, is_bad in BETWEEN.items()
    ) or (len(recording.store.cluster["ports"].probes) < len(healthy.store.cluster["ports"].probes))


@cache
def alone() -> tuple[Recording, ...]:
    """Faults of node2 that leave the others as they are in the first scan, and are named."""

    def others(recording: Recording) -> object:
        net = recording.store.get("net", "node3")
        return [(dev.name, dev.mtu, dev.nic) for dev in net.netdevs]

    usual = others(recordings()[-1])
    return tuple(r for r in recordings() if r.causes and r.node == "node2" and others(r) == usual)


@cache
def judgement_alone(recording: Recording, node: str) -> Judgement:
    store = moves.copied(on(recording, node))
    derive(store, NODES)
    return judgement_of(store)


def pair(rng: random.Random) -> tuple[Recording, Recording, str]:
    """Two faults, of which at most one is between nodes, and a node for the second."""
    while True:
        one, other = rng.sample(alone(), 2)
        keys = {key for recording in (one, other) for key, _ in recording.causes}
        # Two of four nodes that differ in one thing are no minority.
        if len(keys) == len(one.causes) + len(other.causes) and not (is_between(one) and is_between(other)):
            return one, other, rng.choice(("node1", "node3"))
