"""What is planned to measure in clusters that nobody has: rounds of pairs, the ranks of an all-reduce.

Nothing is measured: whoever is asked answers at once that all went well.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from netdoctor.engine.gathering import addresses, all_paths
from netdoctor.facts.localisation import Decision, Kind, Round, Suspect
from netdoctor.facts.net import PortMatrix, PortProbe
from netdoctor.facts.software import Job
from netdoctor.measure.bandwidth import _direction, connected
from netdoctor.measure.collective import by_node
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.ranks import Ranks
from netdoctor.measure.roster import Roster, roster_of
from netdoctor.measure.schedule import first_rounds, follow_up
from netdoctor.store import Store
from netdoctor.transport.base import Reply, Request
from tests import clusters

A_LEAF = 32
# Of so many nodes one is suspected in the follow-ups, and of the others every second one is not cleared.
A_SUSPECT = 16
PEERS = 8  # that each node has dialled; those in the first eighth of the cluster in vain


class Willing:
    """A transport whose nodes do whatever they are asked."""

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        for node, request in requests.items():
            yield Reply(node=node, result=self._answer(node, request))

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}

    def _answer(self, node: str, request: Request) -> dict[str, Any]:
        if request.op == "spawn":
            self._ranks[node] = len(request.args["ranks"])
        if request.op != "converse":
            return {"bytes": 1e9, "seconds": 1.0}
        step = (request.args["say"] or {}).get("step")
        event = {"event": "result", "step": step, "result": {}} if step else {"event": "imported"}
        return {"done": True, "ranks": [{"running": True, "events": [event]}] * self._ranks[node]}


def plans(count: int, name: Callable[[str], str] = str) -> dict[str, Callable[[], Any]]:
    """Each step of planning for so many nodes, by name, ready to be called in this order.

    name: makes a node's name of a text.
    """
    names = [name(clusters.name(i)) for i in range(count)]
    leaves = {node: f"leaf{i // A_LEAF}" for i, node in enumerate(names)}
    rounds = first_rounds(names, leaves)
    context = _context(names)
    found = roster_of(context)
    assert isinstance(found, Roster)
    ranks = Ranks(Willing(), found.layout, context.participants.addresses, "nccl", found.environments)
    matrix, decision = _matrix(names), _decision(names, leaves)
    ports = dict.fromkeys(names, 4711)

    def led() -> None:
        ranks.start()
        for one in rounds:
            ranks.step("pairs", 60.0, per_node=by_node(ranks, _asked(ranks, one)))

    def streamed() -> None:
        for one in rounds:
            _direction(Willing(), context.participants, ports, "word", one.number, one.pairs, 1.0, {})

    return {
        "rounds of pairs": lambda: first_rounds(names),
        "rounds across and in leaves": lambda: first_rounds(names, leaves),
        "a round for what is undecided": lambda: follow_up(decision, names, rounds, leaves=leaves),
        "who reaches everybody": lambda: connected(names, matrix),
        "pairs told to the nodes": streamed,
        "ranks of an all-reduce": lambda: roster_of(context),
        "ranks started, told their pairs": led,
    }


def _context(names: list[str]) -> Context:
    store, job = Store(), Job(master_node=names[0])
    for i, node in enumerate(names):
        for group, fact in clusters.facts(i).items():
            store.put(group, node, fact)
    known = dict(addresses(store, names, job))
    store.cluster["paths"] = all_paths(store, names, job)
    participants = Participants(nodes=tuple(names), addresses=known)
    return Context(transport=Willing(), participants=participants, store=store, job=job)


def _matrix(names: list[str]) -> PortMatrix:
    behind = len(names) // 8
    probes = [
        PortProbe(
            src=src, dst=names[(i + step) % len(names)], address="", port=1, purpose="ephemeral",
            outcome="filtered" if (i + step) % len(names) < behind <= i else "open", elapsed_ms=0.4,
        )
        for i, src in enumerate(names)
        for step in (len(names) * k // (PEERS + 1) for k in range(1, PEERS + 1))
    ]  # fmt: skip
    return PortMatrix(probes=tuple(probes), possible=len(names) * (len(names) - 1))


def _decision(names: list[str], leaves: Mapping[str, str]) -> Decision:
    def suspect(kind: Kind, *nodes: str, leaf: str | None = None) -> Suspect:
        return Suspect(kind=kind, nodes=nodes, leaf=leaf, confidence=0.9)

    suspects = [suspect(Kind.NODE, node) for node in names[::A_SUSPECT]]
    for first in range(0, len(names), 2 * A_LEAF):
        members = names[first : first + A_LEAF]
        suspects.append(suspect(Kind.UPLINK, *members, leaf=leaves[members[0]]))
    good = tuple(node for i, node in enumerate(names) if i % A_SUSPECT and i % 2)
    unclear = tuple(node for i, node in enumerate(names) if i % A_SUSPECT and not i % 2)
    return Decision(suspects=tuple(suspects), exonerated=good, unclear=unclear)


def _asked(ranks: Ranks, one: Round) -> list[tuple[int, int]]:
    return [
        (src.number, dst.number)
        for a, b in one.pairs
        for src, dst in zip(ranks.on_node(a), ranks.on_node(b), strict=True)
    ]
