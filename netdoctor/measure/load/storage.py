"""A file system under load: one node at a time, then all at once, then those again that were behind."""

import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from netdoctor.facts.storage import KINDS, StoragePath, StorageRate, StorageRates
from netdoctor.measure.common import ask, read_as, reason, rows, token
from netdoctor.measure.declare import Context, experiment

# So many nodes measure alone, spread over the list; and so many that were behind, once more at the end. What
# BEHIND means for a node is the check's to say.
SINGLES, AGAIN, BEHIND = 8, 4, 0.85
ALONE_S, LOCAL_S, TOGETHER_S = 1.5, 0.5, 3.0
# No turn of one node starts after these seconds; one request takes at most so long: an agent gives up a path
# after 12 s without an answer.
TURNS_S, AGAIN_S, OPEN_S, TURN_S, CLOSE_S = 60.0, 20.0, 30.0, 45.0, 30.0
BOUND_S = OPEN_S + TURNS_S + 2 * AGAIN_S + TURN_S * (3 + len(KINDS)) + CLOSE_S
PREFIX = ".netdoctor-rate-"


@experiment(bound_s=BOUND_S, cost="writes-file")
def storage(context: Context) -> StorageRates:
    """Up to 8 nodes alone, then all at once, write (at most 256 MiB a node), read, remove at --rate-test."""
    load = _Load(context)
    if not load.path:
        return StorageRates()
    load.prepare()
    load.alone(spread(list(load.kinds), SINGLES), "alone", TURNS_S)
    for kind in KINDS:
        load.run([node for node in load.kinds if kind in load.kinds[node][load.path]], kind, "together")
    known = {one.node for one in load.rates if one.turn == "alone"}
    suspects = behind(load.rates, list(load.kinds))
    # Who was not asked alone at first is asked twice now, as the others were.
    load.alone([node for node in suspects if node not in known], "alone", AGAIN_S)
    load.alone(suspects, "again", AGAIN_S)
    return load.close()


def spread(nodes: Sequence[str], count: int) -> list[str]:
    """So many of these nodes, evenly over the list."""
    return [nodes[i * len(nodes) // count] for i in range(count)] if len(nodes) > count else list(nodes)


def behind(rates: Iterable[StorageRate], nodes: Sequence[str]) -> list[str]:
    """The nodes furthest behind the others in any measurement of the shared path, at most AGAIN."""
    by_turn: dict[tuple[str, str], dict[str, float]] = {}
    for one in rates:
        if one.path and not one.error:
            by_turn.setdefault((one.kind, one.turn), {})[one.node] = one.rate
    shares: dict[str, float] = {}
    for values in by_turn.values():
        typical = median(values.values()) or 1.0
        for node, value in values.items():
            shares[node] = min(shares.get(node, BEHIND), value / typical)
    found = [node for node, share in shares.items() if share < BEHIND]
    return sorted(found, key=lambda node: (shares[node], nodes.index(node)))[:AGAIN]


class _Load:
    """One run of the experiment: who can measure what, and what came of it."""

    def __init__(self, context: Context) -> None:
        self.transport, self.path, self.word = context.transport, context.job.rate_test, token()
        self.number = {node: i for i, node in enumerate(context.participants.nodes)}
        self.found: list[StoragePath] = []
        self.rates: list[StorageRate] = []
        self.failed: dict[str, str] = {}
        self.kinds: dict[str, dict[str, Sequence[str]]] = {}  # what can be measured, by node and path
        self.turns = 0

    def prepare(self) -> None:
        common = {"path": self.path, "token": self.word, "nodes": len(self.number)}
        args = {node: {**common, "number": i} for node, i in self.number.items()}
        kinds: dict[str, dict[str, Sequence[str]]] = {}
        for reply in ask(self.transport, "open_storage", args, OPEN_S):
            by_path = {row.get("path"): row for row in rows(reply) if isinstance(row.get("path"), str)}
            known = {
                path: one
                for path in (self.path, "")
                if (one := read_as({**by_path.get(path, {"file": None}), "node": reply.node}, StoragePath))
            }
            if self.path not in known:
                self.failed[reply.node] = reason(reply)
                continue
            self.found.append(known[self.path])
            if not known[self.path].error:
                kinds[reply.node] = {
                    path: ("read",) if one.file else KINDS for path, one in known.items() if not one.error
                }
        self.found.sort(key=lambda one: self.number[one.node])
        self.kinds = {node: kinds[node] for node in self.number if node in kinds}

    def alone(self, nodes: Sequence[str], turn: str, limit_s: float) -> None:
        """One node after the other, until the time is over."""
        end = time.monotonic() + limit_s
        for node in nodes:
            if time.monotonic() < end:
                self.run([node], "", turn)

    def run(self, nodes: Sequence[str], only: str, turn: str) -> None:
        """These nodes at once. only: this kind, and only at the shared path; else all that each can.

        part: no two nodes, and no two turns, read the same of a file that is given, while it lasts.
        """
        self.turns += 1
        steps: dict[str, list[dict[str, Any]]] = {
            node: [
                {
                    "path": path,
                    "kind": kind,
                    "seconds": TOGETHER_S if only else ALONE_S if path else LOCAL_S,
                    "part": self.turns * len(self.number) + self.number[node],
                }
                for path, kinds in self.kinds[node].items()
                for kind in kinds
                if not only or (kind == only and path)
            ]
            for node in nodes
            if node not in self.failed
        }
        args = {node: {"token": self.word, "steps": some} for node, some in steps.items()}
        for reply in ask(self.transport, "run_storage", args, TURN_S):
            waiting = [(step["path"], step["kind"]) for step in steps[reply.node]]
            for row in rows(reply):
                one = _rate_of(row, reply.node, turn)
                if one is not None and (one.path, one.kind) in waiting:
                    waiting.remove((one.path, one.kind))
                    self.rates.append(one)
            if waiting:
                self.failed.setdefault(reply.node, reason(reply))

    def close(self) -> StorageRates:
        """Remove everything. What lost nodes have left is removed by all others."""
        lost = [self.number[node] for node in self.failed]
        args = {node: {"token": self.word, "others": lost} for node in self.number}
        left: dict[str, str] = {}
        for reply in ask(self.transport, "close_storage", args, CLOSE_S):
            error = (read_as(reply.result, dict[str, str]) or {}).get(self.path)
            if error and reply.node not in self.failed:
                left[reply.node] = error[:40]
            if reply.missing is not None:
                self.failed.setdefault(reply.node, reason(reply))
        return StorageRates(
            paths=tuple(self.found),
            rates=tuple(self.rates),
            failed_nodes=self.failed,
            left=left,
            names=f"{PREFIX}{self.word}-*",
        )


def _rate_of(row: Mapping[str, Any], node: str, turn: str) -> StorageRate | None:
    one = read_as({**row, "node": node, "turn": turn}, StorageRate)
    return one if one is not None and one.amount >= 0 and 0 <= one.seconds < TURN_S else None
