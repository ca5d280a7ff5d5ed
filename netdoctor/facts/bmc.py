"""What the management controller of a node's board says of the hardware around the GPUs."""

from dataclasses import dataclass

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class BmcSensor:
    """A line of ``ipmitool sdr elist``. status: ok, lnc, lcr, lnr, unc, ucr, unr; entity: "10.2" (IPMI 2.0,
    table 43-13: 10 is a power supply, 29 a fan); reading: a number with its unit, or states."""

    name: str
    status: str
    entity: str
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BmcEvent:
    """An entry of the event log that was asserted and did not clear, by the controller's clock."""

    sensor: str
    event: str
    age_days: int


@fact("bmc", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class BmcFacts:
    """Sensors and events of the management controller, by ipmitool.

    sensors: how many answered; unusual: those that are past a threshold, or say more than that a part is
    there; events: of the last 100 those of 30 days, None where the log could not be read; unread: what could
    not be read and why, "" for nothing.
    """

    sensors: int
    unusual: tuple[BmcSensor, ...] = ()
    events: tuple[BmcEvent, ...] | None = None
    unread: str = ""

    def missing_field(self) -> str:
        return "" if self.sensors else "sensors"
