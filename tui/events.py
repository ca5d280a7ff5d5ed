"""What happens in a scan, as the interface is told.

Cells are plain tuples (row, column, letter) because thousands of them come each second.
"""

from dataclasses import dataclass, field

from netdoctor.report.model import Report

Cell = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Began:
    """A scan started."""

    at: float
    nodes: tuple[str, ...]
    checks: tuple[tuple[str, str], ...]  # (id, family) in matrix order, with those that come along
    source: str = ""
    profile: str = ""
    partial: bool = False  # a re-run of some cells of a report
    requested: tuple[str, ...] = ()  # the checks of a re-run that somebody asked for, none for all
    text: str = ""  # what to say first, as whom it waits for


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the engine has done so many of so many nodes; 0 of n when it begins."""

    at: float
    name: str
    done: int
    total: int
    left: float | None = None  # seconds that experiments with a time budget may still take


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
