"""Group `bmc`: what the board's management controller says of fans, power supplies and parts.

ipmitool asks it, as root, through the kernel's device. [ipmitool lib/ipmi_sdr.c, lib/ipmi_sel.c]
"""

import os
import time

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional  # noqa: F401

# [ipmitool src/plugins/open/open.c]
DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
# Chosen by us: a slow controller may answer so long, and a report keeps so much of a node.
SENSORS_S, EVENTS_S = 25.0, 10.0
MAX_SENSORS, MAX_EVENTS, TEXT_MAX, DAYS_MAX = 128, 32, 120, 30
# A number with its unit, or what a part that is well says: such lines are counted and not kept.
_PLAIN = (
    r"(?i)-?[\d.]+ [^,]*$|no reading$|disabled$|(presence detected|fully redundant|drive present|"
    r"device present|connected|ok|state deasserted|transition to ok|present|enabled)?$"
)
_DATE = r"(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})$"


def sensors(text: str) -> "tuple[int, list[dict[str, str]]]":
    """Return (how many sensors answered, those whose line is not _PLAIN) of ``ipmitool sdr elist``."""
    import re

    plain = re.compile(_PLAIN)
    count = 0
    found = []  # type: list[dict[str, str]]
    # PS2 Status       | 63h | ok  | 10.2 | Presence detected, Failure detected
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", 4)]
        if len(fields) != 5 or fields[2] == "ns":
            continue
        count += 1
        if fields[2] != "ok" or not plain.match(fields[4]):
            name, _, status, entity, reading = (field[:TEXT_MAX] for field in fields)
            found.append({"name": name, "status": status, "entity": entity, "reading": reading})
    return count, found


def events(text: str, now: float) -> "list[dict[str, Any]]":
    """Return the events of ``ipmitool sel elist`` that did not clear, of the last days. now: time.time().

    The controller's clock counts: one that is wrong by years has no last days.
    """
    import re

    dates = re.compile(_DATE)
    found = {}  # type: dict[tuple[str, str], dict[str, Any]]
    for line in text.splitlines():  #   89 | 08/31/2016 | 06:20:30 | Processor #0xc9 | IERR | Asserted
        fields = [field.strip()[:TEXT_MAX] for field in line.split("|")]
        date = dates.match(fields[1]) if len(fields) >= 5 else None
        if date is None:
            continue
        month, day, year = (int(part) for part in date.groups())
        try:
            at = time.mktime((year + 2000 if year < 100 else year, month, day, 12, 0, 0, 0, 0, -1))
        except (OverflowError, ValueError):
            continue
        days = int(max(0.0, now - at) // 86400)
        key = (fields[3], fields[4])
        found.pop(key, None)
        if fields[-1] != "Deasserted" and now - at > -2 * 86400 and days <= DAYS_MAX:
            found[key] = {"sensor": fields[3], "event": fields[4], "age_days": days}
    return list(found.values())[-MAX_EVENTS:]


def _output(argv: "list[str]", seconds: float) -> "tuple[str, str]":
    """Return (what ipmitool prints, why it ended early or ""). Raises Unavailable where it prints nothing."""
    words = "ipmitool " + " ".join(argv[1:])
    try:
        done = runtime.run_tool(argv, seconds)
    except OSError as e:
        raise runtime.Unavailable(*runtime.explain(e))
    if done.code is None:
        raise runtime.Unavailable("timed_out", "%s did not end within %g s" % (words, seconds))
    if done.code == 0:
        return done.out, ""
    text = "%s: %s" % (words, " ".join(done.err.split())[:200] or "ended with %d" % done.code)
    if not done.out.strip():
        raise runtime.Unavailable("failed", text)
    return done.out, text


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.health.BmcFacts."""
    devices = [path for path in DEVICES if os.path.exists(files.under(root, path))]
    if not devices:
        raise runtime.Unavailable("not_applicable", "the kernel has found no management controller")
    if not os.access(files.under(root, devices[0]), os.R_OK | os.W_OK):
        raise runtime.Unavailable("no_permission", devices[0] + " can be used by root alone")
    tool = runtime.find_tool("ipmitool", root=root)
    if tool is None:
        raise runtime.Unavailable("not_examined", "no ipmitool, which asks the management controller")
    text, unread = _output([tool, "sdr", "elist"], SENSORS_S)
    count, unusual = sensors(text)
    if len(unusual) > MAX_SENSORS:
        unread = "%d of its lines are not kept" % (len(unusual) - MAX_SENSORS)
    log = None  # type: Optional[list[dict[str, Any]]]
    try:
        text, cut = _output([tool, "sel", "elist", "last", "100"], EVENTS_S)
        log = events(text, time.time())
    except runtime.Unavailable as e:
        cut = str(e)
    return {
        "sensors": count,
        "unusual": unusual[:MAX_SENSORS],
        "events": log,
        "unread": "; ".join(one for one in (unread, cut) if one),
    }
