"""What happens in a scan, as the interface is told: events that a file can hold and play back.

Cells are plain tuples (row, column, letter) because thousands of them come each second.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from netdoctor.report.formats.json_ import from_dict, to_dict
from netdoctor.report.model import Report

Cell = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Began:
    """A scan started. checks: (id, family) in matrix order. partial: a re-run of some cells of a report.

    asked: the checks of a re-run that were asked for, none for all; `checks` are those that come along, too.
    text: what is to be said first, as whom it waits for.
    """

    at: float
    nodes: tuple[str, ...]
    checks: tuple[tuple[str, str], ...]
    source: str = ""
    profile: str = ""
    partial: bool = False
    asked: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the engine has done so many of so many nodes; 0 of n when it begins.

    left: seconds that experiments with a time budget may still take, None for other phases.
    """

    at: float
    name: str
    done: int
    total: int
    left: float | None = None


@dataclass(frozen=True, slots=True)
class NodeDone:
    """A node has given its first answer, or `text` says why not."""

    at: float
    node: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The scan is over and this is its report. text: what could not be done, such as saving."""

    at: float
    report: Report = field(repr=False)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """No report came out; the text says why. The report that was shown stays."""

    at: float
    text: str


Event = Began | Phase | NodeDone | Ended | Failed | Cell

_KINDS: dict[str, Any] = {"began": Began, "phase": Phase, "node": NodeDone, "failed": Failed}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def dump(events: Iterable[Event]) -> Iterator[str]:
    """One JSON line per event."""
    for event in events:
        if isinstance(event, tuple):
            data: dict[str, Any] = {"event": "cell", "row": event[0], "column": event[1], "letter": event[2]}
        elif isinstance(event, Ended):
            data = {"event": "ended", "at": event.at, "report": to_dict(event.report), "text": event.text}
        else:
            data = {"event": _NAMES[type(event)], **asdict(event)}
        yield json.dumps(data)


def load(lines: Iterable[str]) -> Iterator[Event]:
    """The events of a recorded stream."""
    for line in lines:
        data = json.loads(line)
        kind = data.pop("event")
        if kind == "cell":
            yield (data["row"], data["column"], data["letter"])
        elif kind == "ended":
            yield Ended(data["at"], from_dict(data["report"]), data["text"])
        elif kind == "began":
            data["nodes"], data["asked"] = tuple(data["nodes"]), tuple(data["asked"])
            data["checks"] = tuple((check, family) for check, family in data["checks"])
            yield Began(**data)
        else:
            yield _KINDS[kind](**data)
