"""Group `time`: what the kernel and the time daemons say about this node's clock."""

import ctypes
import os
import struct
import time

from .. import runtime
from ..system import files, procs, sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

STA_UNSYNC = 0x40
# The kernel lets maxerror grow to this while nobody disciplines the clock.
NTP_PHASE_LIMIT_US = 16000000
TIMESYNCD_FLAG = "/run/systemd/timesync/synchronized"
CHRONYC_S = 2.0

# By name, of which comm holds 15 characters.
_DAEMONS = {name: name for name in ("chronyd", "ntpd", "openntpd", "ptp4l", "phc2sys", "timemaster")}
_DAEMONS.update({"systemd-timesyn": "systemd-timesyncd", "ntp-daemon": "ntpd-rs"})


def adjtimex() -> "tuple[int, int]":
    """Return (maxerror in us, status bits) of adjtimex() with modes 0. Raises OSError."""
    # include/uapi/linux/timex.h: modes, offset, freq, maxerror, esterror, status, and more. `l` makes it
    # right on 32 and 64 bits; the tail is generous padding.
    timex = ctypes.create_string_buffer(400)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
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


def parse_sources(text: str) -> "list[str]":
    """Return the names of ``chronyc -c sources``: ``^,*,10.77.0.10,3,6,377,40,-0.00001,-0.00002,0.0005``."""
    rows = [line.split(",") for line in text.splitlines()]
    return [row[2][:100] for row in rows if len(row) == 10 and row[0] in ("^", "=", "#")][:SOURCES_AT_MOST]


def chrony() -> "tuple[Optional[dict[str, Any]], Optional[str], list[str]]":
    """Return (tracking, error, sources) of chronyc."""
    tool = runtime.find_tool("chronyc")
    if tool is None:
        return None, "chronyc is not installed", []
    try:
        done = runtime.run_tool([tool, "-n", "-c", "-m", "tracking", "sources"], CHRONYC_S)
    except OSError as e:
        return None, runtime.explain(e)[1], []
    if done.code is None:
        return None, "no answer within %g s" % CHRONYC_S, []
    if done.code != 0:
        text = " ".join((done.out + " " + done.err).split())[:200]
        return None, text or "chronyc ended with %d" % done.code, []
    lines = [line for line in done.out.splitlines() if line.count(",") >= 13]
    try:
        return parse_tracking("\n".join(lines[:1])), None, parse_sources(done.out)
    except ValueError as e:
        return None, str(e), []


# --- the other daemons ------------------------------------------------------------------------------------

SOURCES_AT_MOST = 16
ASK_S = 1.0
NTP_PORT = 123


def _output(tool: str, *args: str) -> str:
    """Return what a tool prints. Raises OSError."""
    path = runtime.find_tool(tool)
    if path is None:
        raise OSError(tool + " is not installed")
    done = runtime.run_tool([path, *args], CHRONYC_S)
    if done.code != 0:
        text = " ".join((done.err + " " + done.out).split())[:200]
        raise OSError(text if done.code is not None and text else "%s gave no answer" % tool)
    return done.out


def seconds(text: str) -> "Optional[float]":
    """Return a time span of systemd's, ``-1min 2.5s``, ``+382us``, without its sign."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    total = None  # type: Optional[float]
    for part in text.strip().lstrip("+-").split():
        number = part.rstrip("usmindh")
        if part[len(number) :] not in units or number.count(".") > 1 or not number.replace(".", "").isdigit():
            return None
        total = (total or 0.0) + float(number) * units[part[len(number) :]]
    return total


def parse_timesyncd(text: str) -> "dict[str, Any]":
    """Return what ``timedatectl timesync-status`` says.

    ``Server: 185.125.190.56 (ntp.ubuntu.com)``, ``Stratum: 2``, ``Offset: -1.234ms``, ``Packet count: 5``.
    """
    fields = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(": ")
        fields[key] = value.strip()
    address, _, name = fields.get("Server", "").partition(" (")
    stratum = fields.get("Stratum", "")
    return {
        "source": (name.rstrip(")") or address)[:100].replace("n/a", ""),
        "offset_s": seconds(fields.get("Offset", "")),
        "stratum": int(stratum) if stratum.isdigit() else None,
        "synchronized": False if fields.get("Packet count") == "0" or "Offset" not in fields else None,
    }


def timesyncd() -> "dict[str, Any]":
    """Return TimeReport of systemd-timesyncd. Raises OSError."""
    return parse_timesyncd(_output("timedatectl", "--no-pager", "timesync-status"))


def parse_pmc(text: str) -> "dict[str, Any]":
    """Return what pmc says to ``GET TIME_STATUS_NP``: ``master_offset -12``, in ns, ``gmPresent true``."""
    rows = [line.split() for line in text.splitlines()]
    fields = {row[0]: row[1] for row in rows if len(row) == 2}
    offset, present = fields.get("master_offset", ""), fields.get("gmPresent")
    return {
        "source": fields.get("gmIdentity", "")[:100] if present == "true" else "",
        "offset_s": abs(int(offset)) * 1e-9 if offset.lstrip("-").isdigit() and present == "true" else None,
    }


def ptp4l() -> "dict[str, Any]":
    """Return TimeReport of ptp4l, whose socket is root's. Raises OSError."""
    return parse_pmc(_output("pmc", "-u", "-b", "0", "GET TIME_STATUS_NP"))


def control(operation: int, association: int, data: bytes) -> bytes:
    """Ask the ntpd of this machine, as ntpq does; return its data. Raises OSError, socket.timeout.

    RFC 9327: version 2, mode 6; of the answer response and error bits, and fragments in any order.
    """
    asking = sockets.raw.socket(sockets.raw.AF_INET, sockets.raw.SOCK_DGRAM)
    try:
        asking.settimeout(ASK_S)
        asking.connect(("127.0.0.1", NTP_PORT))
        head = struct.pack(">BBHHHHH", 0x16, operation, 1, 0, association, 0, len(data))
        asking.send(head + data + b"\0" * (-len(data) % 4))
        parts = {}  # type: dict[int, bytes]
        total = None  # type: Optional[int]
        for _ in range(32):
            got = asking.recv(1500)
            if len(got) < 12:
                continue
            first, bits, number, _, _, offset, count = struct.unpack(">BBHHHHH", got[:12])
            if first & 7 != 6 or not bits & 0x80 or bits & 0x1F != operation or number != 1:
                continue
            if bits & 0x40:
                raise OSError("ntpd refuses to answer")
            parts[offset] = got[12 : 12 + count]
            if not bits & 0x20:
                total = offset + count
            if total is not None and sum(map(len, parts.values())) >= total:
                return b"".join(parts[at] for at in sorted(parts))
        raise OSError("ntpd answers without end")
    finally:
        asking.close()


def variables(data: bytes) -> "dict[str, str]":
    """Return ``leap=0, stratum=3, refid=10.0.0.1, offset=0.123``."""
    found = {}
    for item in data.decode("ascii", "replace").replace("\r\n", " ").split(","):
        name, _, value = item.strip().partition("=")
        found[name] = value.strip().strip('"')
    return found


def ntpd() -> "dict[str, Any]":
    """Return TimeReport of ntpd. Raises OSError."""
    system = variables(control(2, 0, b"leap,stratum,offset"))
    pairs = control(1, 0, b"")
    sources = []
    chosen = ""
    for at in range(0, min(len(pairs) - 3, 4 * SOURCES_AT_MOST), 4):
        number = pairs[at] << 8 | pairs[at + 1]
        address = variables(control(2, number, b"srcadr")).get("srcadr", "")[:100]
        sources.append(address)
        # Of the peer's status the selection: 6 and 7 are the one that is followed. [RFC 9327, 3.2]
        if pairs[at + 2] & 7 >= 6:
            chosen = address
    offset = system.get("offset", "")
    stratum = system.get("stratum", "")
    return {
        "source": chosen,
        "sources": [one for one in sources if one],
        "offset_s": abs(float(offset)) * 1e-3 if _is_number(offset) and chosen else None,
        "stratum": int(stratum) if stratum.isdigit() else None,
        "synchronized": False if system.get("leap") in ("3", "11") else None,
    }


def _is_number(text: str) -> bool:
    digits = text.lstrip("+-").replace(".", "", 1)
    return digits.isdigit()


_DAEMON_REPORTS = (("systemd-timesyncd", timesyncd), ("ntpd", ntpd), ("ptp4l", ptp4l))


def reports(daemons: "list[str]") -> "list[dict[str, Any]]":
    """Return facts.clock.TimeReport of each daemon that runs, but chrony."""
    found = []
    for name, ask in _DAEMON_REPORTS:
        if name in daemons:
            report = {"daemon": name}  # type: dict[str, Any]
            try:
                report.update(ask())
                report.setdefault("sources", [report["source"]] if report["source"] else [])
            except (OSError, ValueError) as e:
                report["error"] = " ".join(str(e).split())[:200]
            found.append(report)
    return found


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.clock.TimeFacts."""
    running = procs.running(root)
    daemons = sorted({_DAEMONS[name] for name in running if name in _DAEMONS})
    reply = {"kernel_synchronized": None, "max_error_us": None, "status_bits": None, "daemons": daemons}  # type: dict[str, Any]
    try:
        max_error, status = adjtimex()
        reply["max_error_us"], reply["status_bits"] = max_error, status
        reply["kernel_synchronized"] = not status & STA_UNSYNC and max_error < NTP_PHASE_LIMIT_US
    except (OSError, AttributeError, ValueError):  # a sandbox that forbids the call, an odd C library
        pass
    if "chronyd" in daemons:
        reply["chrony"], reply["chrony_error"], sources = chrony()
        tracking = reply["chrony"]
        if tracking is not None:
            chrony_report = {"daemon": "chronyd", "source": tracking["reference"], "sources": sources}
            chrony_report.update(offset_s=abs(tracking["offset_s"]), stratum=tracking["stratum"])
            reply["reports"] = [chrony_report]
    if "systemd-timesyncd" in daemons:
        reply["timesyncd_synchronized"] = os.path.exists(files.under(root, TIMESYNCD_FLAG))
    if root == "/":
        reply["reports"] = reply.get("reports", []) + reports(daemons)
    reply["wall_time_s"] = time.time()
    return reply
