"""host.bmc against the real ipmitool, which asks controllers with random sensors that ipmi_sim plays."""

import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from netdoctor.agent.facts import bmc as agent
from netdoctor.agent.runtime import Unavailable
from netdoctor.checks.host.bmc import host_bmc
from netdoctor.facts.health import BmcEvent, BmcFacts, BmcSensor
from tests.checks.host import controller
from tests.checks.host.controller import Controller

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(controller.missing()), reason=f"no {controller.missing()} (openipmi, ipmitool)"),
]
# Of IPMI 2.0, table 42-3 and 42-2: states of a supply and of redundancy that are trouble, and that are none.
SUPPLY = {0: False, 1: True, 2: True, 3: True, 4: True, 5: True}
UNIT = {0: False, 1: True, 2: True, 3: False, 4: False, 5: True, 6: True, 7: True}


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def played(one: Controller, folder: Path) -> Iterator[list[str]]:
    """What asks it, once it answers."""
    port = free_port()
    argv = controller.argv(port)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(one.write(folder, port), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while subprocess.run([*argv, "mc", "info"], capture_output=True).returncode:
            assert time.monotonic() < until, (folder / "log").read_text()
        yield argv
    finally:
        process.kill()
        process.wait()


def asked(argv: list[str]) -> BmcFacts:
    text, unread = agent._output([*argv, "sdr", "elist"], 20.0)
    count, unusual = agent.sensors(text)
    log, cut = agent._output([*argv, "sel", "elist", "last", "100"], 20.0)
    return BmcFacts(
        sensors=count,
        unusual=msgspec.convert(unusual, type=tuple[BmcSensor, ...]),
        events=msgspec.convert(agent.events(log, time.time()), type=tuple[BmcEvent, ...]),
        unread=unread + cut,
    )


def test_random_controllers(tmp_path: Path) -> None:
    for seed in range(8):
        chance = random.Random(seed)
        one, bad = Controller(), set()
        for number in range(6):
            low = tuple(sorted(chance.sample(range(1, 100), 3)))
            high = tuple(sorted(chance.sample(range(150, 250), 3), reverse=True))
            value = chance.choice([*range(100, 150), *low, *high, 0, 255])
            one.fan(name := f"FAN{number}", value, low, high)  # type: ignore[arg-type]
            if value <= low[1] or value >= high[1]:
                bad.add((name, "bmc-cooling"))
            bits = {0, *chance.sample(sorted(SUPPLY), chance.randrange(2))}
            one.states(name := f"PS{number} Status", controller.SUPPLY, controller.SPECIFIC, 10, bits)
            if any(SUPPLY[bit] for bit in bits):
                bad.add((name, "bmc-power"))
            bits = {chance.choice(sorted(UNIT))}
            name = f"Pwr Redund {number}"
            one.states(name, controller.POWER_UNIT, controller.REDUNDANCY, 21, bits)
            if any(UNIT[bit] for bit in bits):
                bad.add((name, "bmc-power"))
        folder = tmp_path / str(seed)
        folder.mkdir()
        with played(one, folder) as argv:
            facts = asked(argv)
        assert (facts.sensors, facts.events, facts.unread) == (18, (), "")
        found = list(host_bmc(facts))
        named = {(f.observed, f.cause.key) for f in found if f.cause and f.observed}
        assert len(named) == len(bad), (seed, named, bad)
        assert all(any(text.startswith(name) and key == which for text, key in named) for name, which in bad)


def test_an_event_that_happens_now(tmp_path: Path) -> None:
    one = Controller()
    one.fan("FAN1", 120, (1, 2, 3), (250, 240, 230))
    (tmp_path / "event").write_text("0x04 0x07 0x71 0x6f 0x00 0xff 0xff # Processor: IERR\n")
    with played(one, tmp_path) as argv:
        (empty,) = host_bmc(asked(argv))
        for words in (["sel", "time", "set", "now"], ["sel", "add", str(tmp_path / "event")]):
            subprocess.run([*argv, *words], check=True, capture_output=True)
        found = [one.cause.key for one in host_bmc(asked(argv)) if one.cause]
    assert empty.cause is None
    assert found == ["bmc-part"]


@pytest.mark.skipif(any(Path(one).exists() for one in agent.DEVICES), reason="this machine has a controller")
def test_without_a_device_it_is_unread() -> None:
    with pytest.raises(Unavailable, match="Could not open device"):
        agent._output(["ipmitool", "sdr", "elist"], 10.0)
