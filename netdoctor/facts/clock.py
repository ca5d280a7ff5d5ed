"""Facts about clocks."""

from dataclasses import dataclass

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


@fact("time")
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFacts:
    """What this node says about its own clock discipline.

    kernel_synchronized: adjtimex() without STA_UNSYNC and maxerror under 16 s; None where unreadable.
    daemons: time daemons that run (``chronyd``, ``systemd-timesyncd``, ``ntpd``, ``ptp4l``, ``phc2sys``…).
    timesyncd_synchronized: /run/systemd/timesync/synchronized exists; None without timesyncd.
    """

    kernel_synchronized: bool | None
    max_error_us: int | None
    status_bits: int | None
    daemons: tuple[str, ...] = ()
    chrony: ChronyTracking | None = None
    chrony_error: str | None = None
    timesyncd_synchronized: bool | None = None
    wall_time_s: float = 0.0


@fact("clock", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """Offset of the node's wall clock against the control host's monotonic-anchored clock, seconds.

    offset_s +/- error_s (half of the least round trip); exchanges: how many; jumped_s: step seen between the
    first and the last burst of the scan beyond the error bound, else 0.
    """

    offset_s: float
    error_s: float
    round_trip_s: float
    exchanges: int
    jumped_s: float = 0.0
