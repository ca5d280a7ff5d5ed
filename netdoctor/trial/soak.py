"""Rounds of the same load, one after the other: what came up, in which round, and on which nodes. Pure."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from netdoctor.compat import StrEnum
from netdoctor.inventory.nodeset import fold
from netdoctor.report.model import CheckRecord, Report
from netdoctor.text import clean, hung

SCHEMA = "netdoctor.soak/1"
LABEL = 10
# A soak holds so many different causes at most, and shows so many figures: its memory does not grow.
CAUSES_MAX, FIGURES_MAX, SHOWN_MAX = 500, 20_000, 8
# How much more often a node is slow than a path of it that goes with it.
MANY = 10
ROOMS = ("bw.", "gpu.", "fs.")


class State(StrEnum):
    STEADY = "steady"
    PROBLEMS = "problems"
    UNDECIDED = "undecided"
    INTERRUPTED = "interrupted"


EXIT_CODES = {State.STEADY: 0, State.PROBLEMS: 1, State.UNDECIDED: 3, State.INTERRUPTED: 130}


@dataclass(slots=True, kw_only=True)
class Anomaly:
    """A cause that one or more rounds found. first, last: rounds, from 1 on; at: when each node first had it,
    in seconds since the start, and seen: in how many rounds."""

    key: str
    status: str
    title: str
    first: int
    last: int
    rounds: int = 1
    at: dict[str, float] = field(default_factory=dict)
    evidence: str = ""
    fix: str = ""
    is_rate: bool = False

    @property
    def seen_once(self) -> bool:
        """Whether a rate was low in one round alone: others use the network, too."""
        return self.is_rate and self.status == "warn" and self.rounds == 1

    @property
    def first_s(self) -> float:
        """When it was first found."""
        return min(self.at.values(), default=0.0)


@dataclass(slots=True)
class Figure:
    """One measured value of one node over the rounds."""

    unit: str
    first: float
    last: float
    lowest: float
    highest: float


class Soak:
    """What is known of all rounds so far."""

    def __init__(self) -> None:
        self.rounds = 0
        self.seconds = 0.0  # until the end of the last whole round
        self.anomalies: dict[tuple[str, str, str], Anomaly] = {}
        self.figures: dict[tuple[str, str], Figure] = {}
        self.loaded: dict[str, int] = {}  # by node: rounds in which something loaded it
        self.dropped = 0  # causes beyond CAUSES_MAX

    def begin(self, nodes: Sequence[str]) -> None:
        """Take the nodes that a round is to have."""
        for node in nodes:
            self.loaded.setdefault(node, 0)

    def add(self, report: Report, began_s: float, ended_s: float) -> list[Anomaly]:
        """Take the report of a round, from began_s to ended_s after the start; what came up in it."""
        self.rounds += 1
        self.seconds = ended_s
        for node in _loaded(report):
            if node in self.loaded:
                self.loaded[node] += 1
        for measure in report.measures:
            self._add_figure(measure.name, measure.target, measure.value, measure.unit)
        new = []
        for cause in report.causes:
            identity = (cause.key, cause.status, cause.title)  # of links, the title names those at fault
            found = self.anomalies.get(identity)
            if found is None:
                if len(self.anomalies) >= CAUSES_MAX:
                    self.dropped += 1
                    continue
                found = Anomaly(
                    key=cause.key,
                    status=cause.status,
                    title=clean(cause.title, 400),
                    first=self.rounds,
                    last=self.rounds,
                    rounds=0,
                    evidence=clean(cause.seen[0], 400) if cause.seen else "",
                    fix=_first_fix(cause.fixes),
                    is_rate=all(check.startswith("bw.") for check in cause.checks),
                )
                self.anomalies[identity] = found
            if found.last != self.rounds or found.rounds == 0:
                found.rounds += 1
            found.last = self.rounds
            fresh = [node for node in cause.node_list or ("cluster",) if node not in found.at]
            found.at.update(dict.fromkeys(fresh, began_s))
            if fresh:
                new.append(found)
        return new

    def _add_figure(self, name: str, target: str, value: float, unit: str) -> None:
        if not name.startswith(ROOMS):
            return
        known = self.figures.get((name, target))
        if known is not None:
            known.last = value
            known.lowest, known.highest = min(known.lowest, value), max(known.highest, value)
        elif len(self.figures) < FIGURES_MAX:
            self.figures[name, target] = Figure(unit, value, value, value, value)

    @property
    def needs_another(self) -> bool:
        """Whether the last round found a low rate for the first time, which another may not have."""
        return any(a.seen_once and a.last == self.rounds > 1 for a in self.anomalies.values())

    def state(self, interrupted: bool = False) -> State:
        """PROBLEMS where a round failed, or where something came up that the first round did not have.

        A rate that was low in a single round does not count where another round has followed.
        """
        passing = {id(a) for a in self.anomalies.values() if a.seen_once and a.last < self.rounds}
        came_up = (a for a in self.anomalies.values() if a.status == "warn" and a.first > 1)
        if any(a.status == "fail" for a in self.anomalies.values()) or any(
            id(a) not in passing for a in came_up
        ):
            return State.PROBLEMS
        if interrupted:
            return State.INTERRUPTED
        if not self.rounds or not_loaded(self) or any(a.status == "unknown" for a in self.anomalies.values()):
            return State.UNDECIDED
        return State.STEADY


def _loaded(report: Report) -> set[str]:
    """The nodes on which something that loads them passed or found something."""
    loads = [_loads(check) for check in report.checks]
    by_id = {check.id for check, is_load in zip(report.checks, loads, strict=True) if is_load}
    found: set[str] = set()
    for check, row in zip(report.matrix.checks, report.matrix.cells, strict=False):
        if check in by_id:
            found.update(
                node for node, letter in zip(report.matrix.nodes, row, strict=False) if letter in ".!X"
            )
    return found


def _loads(check: CheckRecord) -> bool:
    return check.cost == "loads-gpu" or check.id.startswith("bw.")


def _first_fix(fixes: Sequence[Any]) -> str:
    if not fixes:
        return ""
    commands = fixes[0].commands
    return "\n".join([clean(fixes[0].text, 300), *(clean(one.shell, 2000) for one in commands[:2])])


def not_loaded(soak: Soak) -> list[str]:
    """Nodes that no round put load on."""
    return [node for node, rounds in soak.loaded.items() if not rounds]


def moment(began: float, seconds: float) -> str:
    """``12:40:13, 16 min after the start``. began: by time.time()."""
    clock = time.strftime("%H:%M:%S", time.localtime(began + seconds))
    after = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
    return f"{clock}, {after} after the start" if seconds >= 1 else f"{clock}, at the start"


def in_order(soak: Soak) -> list[Anomaly]:
    """What came up, the first first; beside each other failures before warnings."""
    rank = {"fail": 0, "warn": 1, "unknown": 2}
    return sorted(soak.anomalies.values(), key=lambda one: (one.first_s, rank.get(one.status, 3)))


def paths_of_nodes(soak: Soak) -> dict[int, Anomaly]:
    """By id: paths that were slow in a few rounds, and the anomaly of the node at one end that was slow in
    many. In a round with few pairs a slow node looks like a slow path."""
    nodes = [one for one in soak.anomalies.values() if one.is_rate and len(one.at) == 1]
    found = {}
    for one in soak.anomalies.values():
        ends = [
            node for node in nodes if node.at.keys() <= one.at.keys() and node.rounds >= MANY * one.rounds
        ]
        if one.is_rate and len(one.at) > 1 and ends:
            found[id(one)] = max(ends, key=lambda node: node.rounds)
    return found


def headline(soak: Soak, state: State) -> str:
    """The verdict in a line."""
    rounds = f"{soak.rounds} round{'' if soak.rounds == 1 else 's'} in {soak.seconds / 60:.1f} min"
    if state is State.STEADY:
        warnings = sum(one.status == "warn" and one.first == 1 for one in soak.anomalies.values())
        also = f"; {warnings} warning{'' if warnings == 1 else 's'} from the start on" if warnings else ""
        return f"nothing came up in {rounds}{also}"
    if state is State.PROBLEMS:
        paths = paths_of_nodes(soak)
        found = [one for one in soak.anomalies.values() if one.status != "unknown" and id(one) not in paths]
        return f"{len(found)} in {rounds}"
    if state is State.INTERRUPTED:
        return f"interrupted; nothing came up in {rounds}"
    if not soak.rounds:
        return "no round was finished"
    if idle := not_loaded(soak):
        return f"nothing loaded {fold(idle, 60)} in {rounds}"
    return f"some of it could not be measured, in {rounds}"


def lines(soak: Soak, state: State, began: float, width: int) -> Iterator[str]:
    """For people, at most `width` columns but for what is pasted. began: by time.time()."""
    width = max(width, 40)
    pad = " " * LABEL
    yield from hung(headline(soak, state), f"{state.upper():<{LABEL - 1}} ", width, pad)
    paths = paths_of_nodes(soak)
    chosen = [one for one in in_order(soak) if id(one) not in paths]
    for one in chosen[:SHOWN_MAX]:
        yield ""
        nodes = fold(sorted(one.at), 60)
        title = one.title.replace("{nodes}", nodes)
        yield from hung(clean(title, 500), f"{one.status:<{LABEL}}", width, pad)
        yield from hung(_when(one, soak, began), f"{'first':<{LABEL}}", width, pad)
        if one.evidence:
            yield from hung(one.evidence, f"{'found':<{LABEL}}", width, pad)
        if also := [a for a in in_order(soak) if paths.get(id(a)) is one]:
            rounds = sum(a.rounds for a in also)
            text = f"in {rounds} more round{'s' if rounds > 1 else ''} one path of it alone was slow"
            yield from hung(text, f"{'also':<{LABEL}}", width, pad)
        if one.fix:
            text, *commands = one.fix.split("\n")
            yield from hung(text, f"{'fix':<{LABEL}}", width, pad)
            yield from (f"  {command}" for command in commands)
    if (rest := len(chosen) - SHOWN_MAX) > 0:
        yield from ("", f"{'':<{LABEL}}and {rest} more; JSON has all")
    if soak.dropped:
        yield f"{'note':<{LABEL}}{soak.dropped} further causes were not kept"
    yield ""
    yield from figure_rows(soak)


def _when(one: Anomaly, soak: Soak, began: float) -> str:
    text = f"round {one.first} of {soak.rounds}, from {moment(began, one.first_s)}; in {one.rounds} of them"
    if one.seen_once and one.last < soak.rounds:
        text += ", and not since: others may have used the network"
    later = {node: at for node, at in one.at.items() if at > one.first_s}
    if later:
        text += f"; on {fold(sorted(later), 60)} from {moment(began, min(later.values()))} on"
    return text


def figure_rows(soak: Soak) -> Iterator[str]:
    """A table of the middle of each figure: in the first round, in the last, and its ends over all."""
    names: dict[str, list[Figure]] = {}
    for (name, _), figure in soak.figures.items():
        if not name[-1].isdigit():  # those of one size are in JSON
            names.setdefault(name, []).append(figure)
    if not names:
        return
    wide = max(map(len, names))
    yield f"{'measured':<{wide}}  {'first':>9} {'last':>9} {'lowest':>9} {'highest':>9}"
    for name, figures in sorted(names.items()):
        values = (
            median(f.first for f in figures),
            median(f.last for f in figures),
            min(f.lowest for f in figures),
            max(f.highest for f in figures),
        )
        numbers = " ".join(f"{value:>9.4g}" for value in values)
        yield f"{name:<{wide}}  {numbers}  {clean(figures[0].unit, 20)}"


def to_json(soak: Soak, state: State, began: float) -> Mapping[str, Any]:
    """The object of schema netdoctor.soak/1. Seconds since the start."""
    return {
        "schema": SCHEMA,
        "state": str(state),
        "headline": headline(soak, state),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "seconds": round(soak.seconds, 3),
        "rounds": soak.rounds,
        "nodes": list(soak.loaded),
        "not_loaded": not_loaded(soak),
        "anomalies": [
            {
                "key": one.key,
                "status": one.status,
                "title": one.title.replace("{nodes}", fold(sorted(one.at), 200)),
                "nodes": {node: round(at, 3) for node, at in one.at.items()},
                "first_round": one.first,
                "last_round": one.last,
                "rounds": one.rounds,
                "evidence": one.evidence,
                "fix": one.fix,
            }
            for one in in_order(soak)
        ],
        "figures": [
            {"name": name, "target": target, "unit": f.unit, "first": f.first, "last": f.last,
             "lowest": f.lowest, "highest": f.highest}
            for (name, target), f in soak.figures.items()
        ],
    }  # fmt: skip
