"""Fans, power supplies and parts of the board, by its management controller."""

import re
from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.health import BmcFacts, BmcSensor
from netdoctor.model import HERE, Action, Cause, Finding, look, ok, seen, unknown

COOLING = Cause(
    "bmc-cooling", "{nodes} {has} a fan or a temperature that its board calls critical", action=Action.REPLACE
)
POWER = Cause("bmc-power", "{nodes} {has} a power supply that failed or has no spare", action=Action.DRAIN)
PARTS = Cause("bmc-part", "{nodes} {has} a part that its board reports as faulty", action=Action.REPLACE)

# A node that waits for a part is taken out of use, as those of StepFun's trace were: DRAIN, REPLACE.
# Thresholds of the board's maker are crossed; non-critical ones (lnc, unc, nc) are not reported.
# [ipmitool lib/ipmi_sdr.c ipmi_sdr_get_thresh_status]
CRITICAL = {"lcr", "lnr", "ucr", "unr", "cr", "nr"}
# Entities of IPMI 2.0, table 43-13: fans, cooling unit, air inlet; power supply, power unit, power domain.
FANS, SUPPLIES = {"29", "30", "55"}, {"10", "19", "20", "21"}
# [ipmitool include/ipmitool/ipmi_sel.h]
_FAILED = re.compile(
    r"Failure detected|Predictive failure(?! Deasserted)|AC lost|AC out-of-range|Config Error"
    r"|Redundancy (?:Lost|Degraded)|Insufficient Resources",
    re.I,
)
_BROKEN = re.compile(
    r"Drive Fault|Uncorrectable|IERR\b|Thermal Trip|Bus Fatal Error|Fatal NMI|Critical Overtemperature"
)


def cause_of(sensor: BmcSensor) -> Cause | None:
    """What a sensor says is wrong; None for nothing."""
    entity, name = sensor.entity.partition(".")[0], sensor.name.lower()
    fan = entity in FANS or "RPM" in sensor.reading or name.startswith(("fan", "sys_fan", "cool"))
    if sensor.status in CRITICAL:
        if fan or "degrees" in sensor.reading:
            return COOLING
        return POWER if re.search(r"Volts|Amps|Watts", sensor.reading) or entity in SUPPLIES else PARTS
    if _BROKEN.search(sensor.reading):
        return PARTS
    if not _FAILED.search(sensor.reading):
        return None
    return (
        COOLING if fan else POWER if entity in SUPPLIES or name.startswith(("ps", "pwr", "power")) else PARTS
    )


@check(
    profile="full",
    required=False,
    root=True,
    source="https://www.intel.com/content/dam/www/public/us/en/documents/product-briefs/"
    "ipmi-second-gen-interface-spec-v2-rev1-1.pdf",
)
def host_bmc(bmc: BmcFacts) -> Iterator[Finding]:
    """The board's management controller reports no failed fan, power supply or part.

    Looks at:
        `ipmitool sdr elist`: thresholds that the board's maker calls critical, states of power supplies and
        redundancy; and, among the last 100 entries of the event log, uncorrected memory, processor and bus
        errors of the last 30 days that did not clear. As root, where the kernel has found a controller and
        ipmitool is installed. Not by Redfish, for which the controller wants a login, or makes an account.

    Matters because:
        A fan or a power supply without a spare does not end a job. The next one that fails does, or the GPUs
        slow down by heat. In a published trace of 400 GPU nodes every fifth fault was of these two.

    Fix:
        Have the part replaced; look at cables and mains first.
    """
    see = look("see what the controller says", "ipmitool sdr elist", "ipmitool sel elist last 100", root=True)
    found = False
    for sensor in bmc.unusual:
        if cause := cause_of(sensor):
            found = True
            line = f"{sensor.name} | {sensor.status} | {sensor.entity} | {sensor.reading}"
            yield cause.warn(
                f"{sensor.name}: {sensor.reading}",
                observed=f"{sensor.name}: {sensor.reading}",
                expected="within the maker's critical thresholds, all supplies and fans redundant",
                seen=seen("ipmitool sdr elist", line, "command"),
                fixes=see,
            )
    for event in bmc.events or ():
        if _BROKEN.search(event.event):
            found = True
            days = f"{event.age_days} days ago" if event.age_days else "today"
            yield PARTS.warn(
                f"the event log has {event.sensor}: {event.event}, {days}",
                observed=f"{event.sensor}: {event.event}",
                expected="no such event in 30 days",
                seen=seen("ipmitool sel elist", f"{event.sensor} | {event.event} | Asserted", "command"),
                fixes=see,
            )
    if bmc.unread:
        yield unknown(HERE, f"not all that the management controller knows could be read: {bmc.unread}")
    elif not found:
        yield ok(HERE, f"{bmc.sensors} sensors answered, none is critical")
