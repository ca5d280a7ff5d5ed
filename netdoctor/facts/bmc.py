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
    """What the event log asserts and did not take back, by the controller's clock."""

    sensor: str
    event: str
    age_days: int


@fact("bmc", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class BmcFacts:
    """Sensors that answered, those among them that do not say what most say, and events of 30 days.

    events: None where the log could not be read.
    """

    sensors: int
    odd: tuple[BmcSensor, ...] = ()
    events: tuple[BmcEvent, ...] | None = None

    def missing_field(self) -> str:
        return "" if self.sensors else "sensors"
