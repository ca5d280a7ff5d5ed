"""Group `time`: what the kernel and the time daemons say about this node's clock."""

import os
import time

from . import clib, files, procs, runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

STA_UNSYNC = 0x40
# The kernel lets maxerror grow to this while nobody disciplines the clock.
NTP_PHASE_LIMIT_US = 16000000
TIMESYNCD_FLAG = "/run/systemd/timesync/synchronized"
CHRONYC_S = 2.0

# comm holds 15 characters.
_DAEMONS = {
    "chronyd": "chronyd",
    "systemd-timesyn": "systemd-timesyncd",
    "ntpd": "ntpd",
    "ntp-daemon": "ntpd-rs",
    "openntpd": "openntpd",
    "ptp4l": "ptp4l",
    "phc2sys": "phc2sys",
    "timemaster": "timemaster",
}


def adjtimex() -> "tuple[int, int]":
    """Return (maxerror in us, status bits) of adjtimex() with modes 0. Raises OSError."""
    import struct

    # include/uapi/linux/timex.h: modes, offset, freq, maxerror, esterror, status, and more. `l` makes it
    # right on 32 and 64 bits; the tail is generous padding.
    timex = clib.array(400)()
    if clib.call("adjtimex", clib.byref(timex)) < 0:
        raise OSError("adjtimex() failed")
    _, _, _, max_error, _, status = struct.unpack_from("@Illlli", timex)
    return max_error, status


def parse_tracking(text: str) -> "dict[str, Any]":
    """Return facts.clock.ChronyTracking from ``chronyc -c tracking``. Raises ValueError.

    ``0A4D000A,10.77.0.10,4,1763623911.9,-0.000001,0.00002,0.0001,-12.3,0.01,0.4,0.0002,0.0003,64.2,Normal``
    """
    lines = text.strip().splitlines()
    part = lines[-1].split(",") if lines else []
    if len(part) < 14:
        raise ValueError("not 14 fields: " + text.strip()[:120])
    # In an IPv6 or named reference no comma can occur, so positions hold.
    return {
        "reference": part[1] or part[0],
        "stratum": int(part[2]),
        "offset_s": float(part[4]),
        "root_delay_s": float(part[10]),
        "root_dispersion_s": float(part[11]),
        "leap": part[13],
    }


def chrony() -> "tuple[Optional[dict[str, Any]], Optional[str]]":
    """Return (tracking, error) of chronyc."""
    tool = runtime.find_tool("chronyc")
    if tool is None:
        return None, "chronyc is not installed"
    try:
        said = runtime.run_tool([tool, "-n", "-c", "tracking"], CHRONYC_S)
    except OSError as e:
        return None, runtime.explain(e)[1]
    if said.code is None:
        return None, "no answer within %g s" % CHRONYC_S
    if said.code != 0:
        return None, " ".join((said.out + " " + said.err).split())[:200] or (
            "chronyc ended with %d" % said.code
        )
    try:
        return parse_tracking(said.out), None
    except ValueError as e:
        return None, str(e)


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.clock.TimeFacts."""
    running = procs.running(root)
    daemons = sorted({_DAEMONS[name] for name in running if name in _DAEMONS})
    reply = {
        "kernel_synchronized": None,
        "max_error_us": None,
        "status_bits": None,
        "daemons": daemons,
    }  # type: dict[str, Any]
    try:
        max_error, status = adjtimex()
        reply["max_error_us"], reply["status_bits"] = max_error, status
        reply["kernel_synchronized"] = not status & STA_UNSYNC and max_error < NTP_PHASE_LIMIT_US
    except (OSError, AttributeError, ValueError):  # a sandbox that forbids the call, an odd C library
        pass
    if "chronyd" in daemons:
        reply["chrony"], reply["chrony_error"] = chrony()
    if "systemd-timesyncd" in daemons:
        reply["timesyncd_synchronized"] = os.path.exists(files.under(root, TIMESYNCD_FLAG))
    reply["wall_time_s"] = time.time()
    return reply
