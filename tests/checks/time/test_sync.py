from typing import Any

import pytest

from netdoctor.checks.time.sync import time_sync
from netdoctor.facts.clock import ChronyTracking, TimeFacts, TimeReport
from netdoctor.facts.host import HostFacts
from netdoctor.model import Status

from ..build import cause, causes, host, said, time_facts

BARE = {"kernel_synchronized": False, "daemons": ()}


def chrony(**changes: object) -> ChronyTracking:
    fields: dict[str, object] = {
        "reference": "10.0.0.250",
        "stratum": 3,
        "offset_s": 0.0001,
        "root_delay_s": 0.001,
        "root_dispersion_s": 0.0005,
        "leap": "Normal",
    }
    return ChronyTracking(**{**fields, **changes})  # type: ignore[arg-type]


def report(**changes: Any) -> TimeReport:
    return TimeReport(**{"daemon": "ntpd", **changes})


UNSYNCHRONISED_PTP = report(daemon="ptp4l", synchronized=False)


def test_says_how_far_it_is() -> None:
    good = report(source="10.0.0.250", offset_s=0.000019)
    (finding,) = time_sync(time_facts(daemons=("ntpd",), reports=(good,)), host())
    assert (finding.status, finding.summary) == (Status.PASS, "ntpd is 0.019 ms from 10.0.0.250")


def keys(facts: TimeFacts) -> set[str]:
    return set(causes(time_sync(facts, host())))


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(time_facts(), id="kernel says so"),
        pytest.param(time_facts(daemons=()), id="no daemon seen, kernel synchronised"),
        pytest.param(time_facts(kernel_synchronized=False, chrony=chrony()), id="chrony without rtcsync"),
        pytest.param(
            time_facts(kernel_synchronized=False, daemons=("ptp4l", "phc2sys")), id="PTP sets no flag"
        ),
        pytest.param(time_facts(daemons=("systemd-timesyncd",), timesyncd_synchronized=True), id="timesyncd"),
        pytest.param(time_facts(reports=(report(error="pmc is not installed"),)), id="who does not answer"),
        pytest.param(time_facts(reports=(report(),)), id="who follows nobody yet"),
    ],
)
def test_silent_when_synchronised(facts: TimeFacts) -> None:
    assert list(time_sync(facts, host())) == []


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        pytest.param(time_facts(**BARE), "time-no-daemon", id="nothing runs"),
        pytest.param(time_facts(chrony=chrony(reference="7F7F0101")), "time-unsynchronised", id="local"),
        pytest.param(time_facts(chrony=chrony(leap="Not synchronised")), "time-unsynchronised", id="leap"),
        pytest.param(time_facts(chrony=chrony(offset_s=-4.0)), "time-unsynchronised", id="far off"),
        pytest.param(
            time_facts(daemons=("systemd-timesyncd",), timesyncd_synchronized=False),
            "time-unsynchronised",
            id="timesyncd",
        ),
        pytest.param(
            time_facts(kernel_synchronized=False, daemons=("ntpd",)), "time-unsynchronised", id="ntpd"
        ),
        pytest.param(time_facts(daemons=("chronyd", "systemd-timesyncd")), "time-daemons-fight", id="two"),
        pytest.param(
            time_facts(daemons=("ntpd",), reports=(report(synchronized=False),)),
            "time-unsynchronised",
            id="leap 3",
        ),
        pytest.param(
            time_facts(daemons=("ntpd",), reports=(report(source="s", offset_s=0.3),)),
            "time-unsynchronised",
            id="300 ms off",
        ),
        pytest.param(
            time_facts(daemons=("ptp4l",), reports=(report(daemon="ptp4l", source="ba6f47", offset_s=0.2),)),
            "time-unsynchronised",
            id="ptp4l",
        ),
    ],
)
def test_warns_otherwise(facts: TimeFacts, key: str) -> None:
    assert keys(facts) == {key}


@pytest.mark.parametrize(
    ("facts", "shell"),
    [
        pytest.param(
            time_facts(chrony=chrony(leap="Not synchronised")),
            "chronyc waitsync 60 0 0 2 && chronyc makestep",
            id="chronyd",
        ),
        pytest.param(
            time_facts(daemons=("ptp4l",), reports=(UNSYNCHRONISED_PTP,)), "pmc -u -b 0", id="ptp4l"
        ),
        pytest.param(
            time_facts(daemons=("chronyd", "ptp4l"), chrony=chrony(), reports=(UNSYNCHRONISED_PTP,)),
            "pmc -u -b 0",
            id="ptp4l beside a good chronyd",
        ),
    ],
)
def test_the_fix_fits_the_daemon(facts: TimeFacts, shell: str) -> None:
    hint = cause(said(time_sync(facts, host())), "time-unsynchronised")
    assert hint.fixes[0].commands[0].shell.startswith(shell)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("Ubuntu 22.04.4 LTS", "apt-get install -y chrony && systemctl enable --now chrony && "),
        ("Rocky Linux 9.3 (Blue Onyx)", "dnf install -y chrony && systemctl enable --now chronyd && "),
        ("SLES 15 SP5", "zypper --non-interactive install chrony && systemctl enable --now chronyd && "),
        ("NixOS 24.05", "(apt-get install -y chrony || dnf install -y chrony || zypper "),
    ],
)
def test_a_daemon_comes_from_the_nodes_own_distribution(name: str, start: str) -> None:
    nothing = time_facts(daemons=(), kernel_synchronized=False, chrony=None)
    findings = said(time_sync(nothing, host(os_name=name)))
    (command,) = cause(findings, "time-no-daemon").fixes[0].commands
    assert command.shell.startswith(start)
    assert command.shell.endswith("&& chronyc waitsync 60 0 0 2 && chronyc makestep")


@pytest.mark.parametrize(
    "machine", [host(container="docker"), host(shares_machine=True)], ids=["container", "lab"]
)
def test_shared_clocks_are_skipped(machine: HostFacts) -> None:
    (finding,) = time_sync(time_facts(**BARE), machine)
    assert finding.status is Status.SKIP


def test_what_could_not_be_read_is_unknown() -> None:
    facts = time_facts(kernel_synchronized=False, chrony_error="506 Cannot talk to daemon")
    (finding,) = time_sync(facts, host())
    assert finding.status is Status.UNKNOWN
    (finding,) = time_sync(time_facts(kernel_synchronized=None, daemons=()), host())
    assert finding.status is Status.UNKNOWN
