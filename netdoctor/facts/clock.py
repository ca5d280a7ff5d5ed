"""Facts about clocks."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class ChronyTracking:
    """`chronyc -c tracking`: fields used here; offset_s positive means the system clock is slow of NTP."""

    reference: str
    stratum: int
    offset_s: float
    root_delay_s: float
    root_dispersion_s: float
    leap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeReport:
    """What a time daemon says of itself."""

    daemon: str  # as in TimeFacts
    source: str = ""  # the server, clock or grandmaster that it follows, empty for none
    sources: tuple[str, ...] = ()  # all that it knows, that one among them
    offset_s: float | None = None  # how far the clock is from it, whatever the sign
    stratum: int | None = None  # of this node
    synchronized: bool | None = None  # False where the daemon says that it is not
    error: str | None = None  # why nothing could be read


@fact("time")
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFacts:
    """What this node says about its own clock discipline."""

    # adjtimex() without STA_UNSYNC and maxerror under 16 s; None where unreadable.
    kernel_synchronized: bool | None
    max_error_us: int | None
    status_bits: int | None
    # Time daemons that run (``chronyd``, ``systemd-timesyncd``, ``ntpd``, ``ptp4l``, ``phc2sys``…).
    daemons: tuple[str, ...] = ()
    chrony: ChronyTracking | None = None
    chrony_error: str | None = None
    # /run/systemd/timesync/synchronized exists; None without timesyncd.
    timesyncd_synchronized: bool | None = None
    reports: tuple[TimeReport, ...] = ()  # what the daemons that could be asked said
    wall_time_s: float = 0.0


@fact("clock", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """Offset of the node's wall clock against the control host's monotonic-anchored clock."""

    offset_s: float
    error_s: float  # half of the least round trip
    round_trip_s: float
    exchanges: int
    # Step seen between the first and the last burst of the scan beyond the error bound, else 0.
    jumped_s: float = 0.0


# Clocks that lie within so many seconds of each other agree.
APART_S = 1.0


def skews(clocks: Mapping[str, ClockSample]) -> tuple[dict[str, tuple[float, float]], bool]:
    """({node: (how far its clock is off the median of those that agree, error)}, whether it is a tie).

    Seconds, of at least one clock. In a tie nobody can be called right: what counts is how far they are from
    the outermost.
    """
    agreeing = _agreeing(clocks)
    tie = len(agreeing) * 2 <= len(clocks)
    among = clocks if tie else agreeing
    offsets, errors = zip(*((clocks[node].offset_s, clocks[node].error_s) for node in among), strict=True)
    against = (min(offsets), max(offsets)) if tie else (median(offsets),)
    beside = max(errors) if tie else median(errors)
    found = {
        node: (max((clock.offset_s - one for one in against), key=abs), clock.error_s + beside)
        for node, clock in clocks.items()
    }
    return found, tie


def _agreeing(clocks: Mapping[str, ClockSample]) -> list[str]:
    """The most nodes whose clocks lie within APART_S of each other."""
    order = sorted(clocks, key=lambda node: clocks[node].offset_s)
    best: list[str] = []
    first = 0
    for last, node in enumerate(order):
        while clocks[node].offset_s - clocks[order[first]].offset_s > APART_S:
            first += 1
        if last + 1 - first > len(best):
            best = order[first : last + 1]
    return best
