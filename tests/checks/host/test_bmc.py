"""host.bmc on what boards of several makers print."""

import calendar
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdoctor.agent.facts import bmc as agent
from netdoctor.checks.host.bmc import cause_of, host_bmc
from netdoctor.compat import tomllib
from netdoctor.facts.health import BmcEvent, BmcFacts, BmcSensor
from netdoctor.model import Status

OUTPUTS = tomllib.loads(Path(__file__).with_name("bmc_outputs.toml").read_text("utf-8"))


def keys(facts: BmcFacts) -> list[str]:
    found = list(host_bmc(facts))
    assert {one.status for one in found} in ({Status.WARN}, {Status.PASS})
    return sorted({one.cause.key for one in found if one.cause})


@pytest.mark.parametrize("board", OUTPUTS["board"], ids=lambda one: one["name"])
def test_sensors(board: dict[str, Any]) -> None:
    count, unusual = agent.sensors(board["sdr"])
    assert count == board["sensors"]
    facts = BmcFacts(sensors=count, unusual=msgspec.convert(unusual, type=tuple[BmcSensor, ...]))
    assert keys(facts) == board["causes"]


def day_after(text: str) -> float:
    month, day, year = re.findall(r"\| (\d\d)/(\d\d)/(\d+) \|", text)[-1]
    return calendar.timegm((int(year) % 100 + 2000, int(month), int(day) + 1, 12, 0, 0))


@pytest.mark.parametrize("log", OUTPUTS["log"], ids=lambda one: one["name"])
def test_events(log: dict[str, Any]) -> None:
    found = agent.events(log["sel"], day_after(log["sel"]))
    facts = BmcFacts(sensors=1, events=msgspec.convert(found, type=tuple[BmcEvent, ...]))
    assert keys(facts) == log["causes"]


def test_an_event_that_is_old_or_was_taken_back_is_none() -> None:
    asserted = "1 | 08/31/2016 | 06:20:30 | Memory DIMM_A1 | Uncorrectable ECC | Asserted\n"
    now = day_after(asserted)
    assert agent.events(asserted, now) == [
        {"sensor": "Memory DIMM_A1", "event": "Uncorrectable ECC", "age_days": 1}
    ]
    assert agent.events(asserted, now + 40 * 86400) == []
    assert agent.events(asserted, now - 40 * 86400) == []  # a clock that is ahead
    assert agent.events(asserted + asserted.replace("Asserted", "Deasserted"), now) == []
    assert (
        agent.events(asserted.replace("08/31/2016", "Pre-Init").replace("06:20:30", "0000000004"), now) == []
    )
    assert agent.events(asserted.replace("08/31/2016", "13/32/2016"), now) == []


@pytest.mark.parametrize(
    ("sensor", "key"),
    [
        (("GPU3_TEMP", "ucr", "11.3", "93 degrees C"), "bmc-cooling"),
        (("P12V", "lcr", "7.1", "10.9 Volts"), "bmc-power"),
        (("SYS_FAN_RDN", "ok", "7.1", "Redundancy Degraded"), "bmc-cooling"),
        (("CPU1_Status", "ok", "3.1", "Thermal Trip"), "bmc-part"),
        (("SSD", "ok", "26.1", "Predictive Failure Deasserted"), None),
        (("FAN2", "lnc", "29.2", "1200 RPM"), None),
        (("Intrusion", "ok", "23.1", "General Chassis intrusion"), None),
    ],
)
def test_what_a_sensor_means(sensor: tuple[str, str, str, str], key: str | None) -> None:
    name, status, entity, reading = sensor
    cause = cause_of(BmcSensor(name=name, status=status, entity=entity, reading=reading))
    assert (cause.key if cause else None) == key


def test_what_was_read_in_part_is_not_green() -> None:
    (found,) = host_bmc(BmcFacts(sensors=40, unread="ipmitool sel elist last 100 did not end within 10 s"))
    assert found.status is Status.UNKNOWN
    assert "did not end within 10 s" in found.summary
    (found,) = host_bmc(BmcFacts(sensors=40, events=()))
    assert (found.status, found.summary) == (Status.PASS, "40 sensors answered, none is critical")
