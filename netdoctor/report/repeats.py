"""Nodes that fail again: a short record of every saved scan, and what it says of each node.

A node that failed three times within 30 days is named. On StepFun's trace of 400 nodes over 348 days that
names 50. Of the 40 that can be followed for 180 days more, 36 failed again in that time and 4 did not: 90 %
are right, and 0.011 false names a day (tests/history/test_repeats.py).
Source: https://github.com/stepfun-ai/InfiniteHBD-Trace (commit 7aacdc8).
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from netdoctor.compat import instant
from netdoctor.errors import InputError
from netdoctor.files import read_regular
from netdoctor.inventory.nodeset import expand, fold
from netdoctor.report import LAST, history
from netdoctor.report.model import Note, Report

NAME = "nodes.jsonl"
BYTES_MAX = 4 << 20
DAY_S = 86400.0
WINDOW_S, TIMES = 30 * DAY_S, 3
NOTES_MAX = 10
ORDINALS = {3: "third", 4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth"}
# What a run of one saw, one of a higher rank sees, too.
_RANKS = {"quick": 0, "launch": 1, "full": 2}


class Record(msgspec.Struct, kw_only=True):
    """One scan. at: RFC 3339; good: usable nodes, folded; bad: per node the causes it fails by, each with the
    action that was advised ("" for none)."""

    at: str
    profile: str
    good: str = ""
    bad: dict[str, dict[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Failure:
    """A cause on a node, from the scan that found it to the first one that found the node usable.

    began, ended: seconds since the epoch; ended None while it lasts. repair: the action that was advised.
    """

    node: str
    key: str
    began: float
    ended: float | None = None
    repair: str = ""


@dataclass(slots=True)
class NodeHistory:
    """The failures of a node, the oldest first. Those that begin at one time are one."""

    failures: list[Failure] = field(default_factory=list)

    def times(self, now: float, window_s: float | None = None, key: str | None = None) -> int:
        """How often it failed, within seconds before now, by one cause or any."""
        since = -1.0 if window_s is None else now - window_s
        return len({f.began for f in self.failures if since <= f.began <= now and key in (None, f.key)})


def record_of(report: Report) -> Record | None:
    """The record of a report; None of a part, and of one that was cut short or has aliases for names.

    What more than half of the nodes fail by at once is no node's own, and a suspicion is no failure.
    """
    run = report.run
    if report.verdict.part is not None or not run.complete or run.redacted or run.foreign:
        return None
    bad: dict[str, dict[str, str]] = {}
    for cause in report.causes:
        alone = len(cause.node_list) <= max(1, len(report.matrix.nodes) // 2)
        if cause.status == "fail" and cause.confidence != "suspected" and alone:
            for node in cause.node_list:
                bad.setdefault(node, {})[cause.key] = cause.action or ""
    return Record(at=run.finished, profile=run.profile, good=fold(report.healthy_nodes), bad=bad)


def line_of(report: Report) -> bytes:
    """What is appended for a report; nothing where it has no record."""
    record = record_of(report)
    return b"" if record is None else msgspec.json.encode(record) + b"\n"


def records(last: Path = LAST) -> list[Record]:
    """The records beside a last report. What cannot be read is left out."""
    try:
        lines = read_regular(last.parent / history.FOLDER / NAME, 2 * BYTES_MAX).splitlines()
    except (OSError, ValueError):
        return []
    found: list[Record] = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            one = msgspec.json.decode(line, type=Record)
            found += [one] if _is_time(one.at) else []
    return found


def _is_time(text: str) -> bool:
    try:
        return instant(text).timestamp() > 0
    except (ValueError, OverflowError):
        return False


def _names(folded: str) -> set[str]:
    """The nodes of a folded list; none of one that is damaged, which then ends no failure."""
    try:
        return set(expand(folded)) if folded else set()
    except InputError:
        return set()


def failures(every: Iterable[Record]) -> list[Failure]:
    """The failures of these records, by their beginnings.

    A failure ends where the node was usable in a scan that looked at no less.
    """
    running: dict[tuple[str, str], tuple[Failure, int]] = {}
    done: list[Failure] = []
    for record in sorted(every, key=lambda one: one.at):
        now, rank = instant(record.at).timestamp(), _RANKS.get(record.profile, 0)
        good = _names(record.good)
        for position in [p for p, (_, before) in running.items() if p[0] in good and before <= rank]:
            done.append(replace(running.pop(position)[0], ended=now))
        for node, causes in record.bad.items():
            for key, repair in causes.items():
                running.setdefault((node, key), (Failure(node, key, now, None, repair), rank))
    return sorted([*done, *(one for one, _ in running.values())], key=lambda one: one.began)


def by_node(found: Iterable[Failure]) -> dict[str, NodeHistory]:
    """The failures of each node."""
    nodes: dict[str, NodeHistory] = {}
    for one in sorted(found, key=lambda one: one.began):
        nodes.setdefault(one.node, NodeHistory()).failures.append(one)
    return nodes


def repeaters(nodes: Mapping[str, NodeHistory], now: float) -> list[str]:
    """The nodes that failed `TIMES` times or more within `WINDOW_S` before now, the worst first."""
    often = {name: one.times(now, WINDOW_S) for name, one in nodes.items()}
    return sorted((n for n, times in often.items() if times >= TIMES), key=lambda n: (-often[n], n))


def phrase(node: NodeHistory, now: float) -> str:
    """``third gpu-ecc in 30 days``: of the cause that is there most often, else of all failures."""
    counts = {f.key: node.times(now, WINDOW_S, f.key) for f in node.failures}
    key = max(counts, key=lambda one: counts[one])
    times = counts[key] if counts[key] >= TIMES else node.times(now, WINDOW_S)
    what = key if counts[key] >= TIMES else "failure"
    return f"{ORDINALS.get(times, f'{times}th')} {what} in {WINDOW_S / DAY_S:.0f} days"


def notes(report: Report, earlier: Sequence[Record]) -> Iterator[Note]:
    """What is to be told in a report of nodes that fail again. earlier: records before it."""
    record = record_of(report)
    if record is None or not earlier or not _is_time(record.at):
        return
    now = instant(record.at).timestamp()
    nodes = by_node(failures([*(one for one in earlier if one.at < record.at), record]))
    names = [name for name in repeaters(nodes, now) if name in report.matrix.nodes]
    for name in names[:NOTES_MAX]:
        state = "" if name in record.bad else ", usable now"
        text = f"{name} fails again: {phrase(nodes[name], now)}{state}; netdoctor history"
        yield Note(level="warn", text=text)
    if names[NOTES_MAX:]:
        yield Note(level="warn", text=f"{len(names) - NOTES_MAX} more nodes fail again; netdoctor history")
