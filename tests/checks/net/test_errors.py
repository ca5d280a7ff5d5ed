from typing import Any

import pytest

from netdoctor.checks.net.errors import net_errors
from netdoctor.facts.counters import Counted, CounterFacts, LaterCounters
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Finding, Status

from .. import build
from ..build import causes, said
from ..build_hw import hca, rdma

MOVED = {"rx_packets": 600_000, "tx_packets": 400_000}


def judged(
    before: dict[str, int],
    after: dict[str, int],
    *,
    seconds: float = 20.0,
    uptime_s: float = 9e6,
    net: NetFacts | None = None,
    rdma: RdmaFacts | None = None,
    **changes: Any,
) -> list[Finding]:
    """Two readings of eth0, which moved a million packets meanwhile."""

    def at(uptime_s: float, values: dict[str, int]) -> CounterFacts:
        one = Counted(**{"name": "eth0", "values": values, "read": 9, **changes})
        quiet = () if one.name == "eth0" else (Counted(name="eth0", read=9),)
        return CounterFacts(uptime_s=uptime_s, netdevs=(*quiet, one))

    later = LaterCounters(reading=at(uptime_s + seconds, {**MOVED, **after}))
    return said(net_errors(at(uptime_s, before), later, net or build.net(), rdma))


def test_silent_on_what_healthy_machines_count() -> None:
    for before, after in (
        ({}, {}),
        ({"carrier_changes": 400}, {"carrier_changes": 400}),
        ({"rx_dropped": 5}, {"rx_dropped": 500_000}),
        ({}, {"rx_errors": 4}),
        ({}, {"rx_missed_errors": 100}),
        ({"rx_errors": 1 << 40}, {"rx_errors": 1 << 40}),
        ({}, {"tx_pause_us": 1_900_000, "tx_pauses": 90_000, "rx_pauses": 1 << 30, "rx_pause_us": 1 << 30}),
        ({"tx_pause_storm_error_events": 3}, {"tx_pause_storm_error_events": 3}),
    ):
        assert {f.status for f in judged(before, after)} <= {Status.PASS}, after
    (finding,) = judged({"rx_errors": 7, "rx_crc_errors": 7}, {"rx_errors": 7, "rx_crc_errors": 7})
    assert finding.summary == "no errors of interfaces in 20 s; earlier ones: rx_errors 7, rx_crc_errors 7"


@pytest.mark.parametrize(
    ("before", "after", "key", "words"),
    [
        ({}, {"rx_errors": 5, "rx_crc_errors": 5}, "net-link-errors", "eth0 counted 5 rx_errors in 20 s"),
        ({"tx_errors": 9}, {"tx_errors": 90}, "net-link-errors", "eth0 counted 81 tx_errors in 20 s"),
        ({}, {"rx_missed_errors": 101}, "net-missed", "eth0 counted 101 rx_missed_errors"),
        ({"carrier_changes": 2}, {"carrier_changes": 4}, "net-link-flap", "eth0 counted 2 carrier_changes"),
        ({}, {"tx_pause_us": 2_100_000}, "net-pauses", "eth0 counted 2100000 tx_pause_us in 20 s"),
        ({}, {"tx_pause_storm_warning_events": 1}, "net-pauses", "eth0 counted 1 tx_pause_storm_warning"),
        ({}, {"tx_pause_storm_error_events": 2}, "net-pauses", "eth0 counted 2 tx_pause_storm_error_events"),
    ],
)
def test_what_grows_too_fast(before: dict[str, int], after: dict[str, int], key: str, words: str) -> None:
    (finding,) = judged(before, after)
    assert (finding.status, causes([finding])) == (Status.WARN, {key: {"n1"}})
    assert finding.summary.startswith(words)
    assert finding.cause
    assert any(c.shell for c in finding.cause.fixes[0].commands)


def test_parts_of_errors_are_shown_and_not_counted_twice() -> None:
    (finding,) = judged({}, {"rx_errors": 50, "rx_length_errors": 50})
    assert finding.evidence[0].output == "rx_errors +50, rx_length_errors +50, of 1000000 packets, in 20 s"
    assert finding.expected == "at most 1 in a million packets"


@pytest.mark.parametrize(
    ("losses", "hours", "bad"), [(14, 3.0, False), (15, 3.0, True), (15, 23.0, True), (900, 25.0, False)]
)
def test_links_that_were_lost_again_and_again_since_the_boot(losses: int, hours: float, bad: bool) -> None:
    total = {"carrier_changes": 2 * losses + 1}
    findings = judged(total, total, uptime_s=hours * 3600)
    assert [f.status for f in findings] == [Status.WARN] * bad
    if bad:
        assert findings[0].summary == (
            f"the link of eth0 went down {losses} times since the node booted {hours:.1f} hours ago"
        )


@pytest.mark.parametrize(
    ("facts", "looked_at"),
    [
        pytest.param({}, True, id="it has the address"),
        pytest.param({"name": "ens1", "uppers": ("bond0", "eth0")}, True, id="a bond below a VLAN has it"),
        pytest.param({"name": "ens1"}, False, id="a port that nobody uses"),
        pytest.param(
            {"net": build.net(addresses=(build.row("eth0", "169.254.3.1", 16, scope="link"),))}, False,
            id="the management controller's",
        ),
        pytest.param({"net": build.net(addresses=(build.row("eth0:1", "10.9.0.1"),))}, True, id="a label"),
        pytest.param({"name": "eth1", "rdma": rdma(hca(netdevs=("eth1",)))}, True, id="RDMA alone"),
    ],
)  # fmt: skip
def test_which_interfaces_are_judged(facts: dict[str, Any], looked_at: bool) -> None:
    statuses = [f.status for f in judged({}, {"carrier_changes": 2}, **facts)]
    assert statuses == [Status.WARN] if looked_at else statuses in ([], [Status.SKIP])


def test_readings_that_do_not_follow_each_other() -> None:
    assert [f.status for f in judged({}, {"rx_errors": 900}, seconds=-5.0)] == [Status.UNKNOWN]
    assert [f.status for f in judged({}, {"rx_errors": 900}, read=0)] == [Status.UNKNOWN]


def test_an_interface_of_which_nothing_was_told_is_not_healthy() -> None:
    def statuses(before: CounterFacts, after: CounterFacts, net: NetFacts) -> list[Status]:
        return [f.status for f in said(net_errors(before, LaterCounters(reading=after), net, None))]

    def reading(uptime_s: float, *names: str, read: int = 9) -> CounterFacts:
        return CounterFacts(uptime_s=uptime_s, netdevs=tuple(Counted(name=n, read=read) for n in names))

    two = build.net(
        netdevs=(build.netdev("eth0"), build.netdev("eth1")),
        addresses=(build.row("eth0", "10.0.0.1"), build.row("eth1", "10.1.0.1")),
    )
    assert statuses(reading(5e3, "eth0", "eth1"), reading(5010.0, "eth0", "eth1"), two) == []
    assert statuses(reading(5e3), reading(5010.0), two) == [Status.UNKNOWN]
    assert statuses(reading(5e3, "eth0"), reading(5010.0, "eth0"), two) == [Status.UNKNOWN]
    assert statuses(reading(5e3, "eth0", "eth1"), reading(5010.0, "eth0"), two) == [Status.UNKNOWN]
    less = reading(5010.0, "eth0", "eth1", read=1)
    assert statuses(reading(5e3, "eth0", "eth1"), less, two) == [Status.UNKNOWN]
    # What a wireless interface counts is told of none, and most of a container's come and go.
    wifi = build.net(netdevs=(build.netdev("wlp3s0"),), addresses=(build.row("wlp3s0", "10.0.0.1"),))
    assert statuses(reading(5e3), reading(5010.0), wifi) == [Status.SKIP]
    veth = build.net(netdevs=(build.netdev("eth0", kind="veth"),))
    assert statuses(reading(5e3, "veth1", "eth0"), reading(5010.0, "eth0"), veth) == []


def test_no_words_of_a_node_stand_in_a_command() -> None:
    name = "eth0; id"
    (finding,) = judged({}, {"rx_errors": 900}, name=name, uppers=("eth0",))
    assert finding.cause
    assert not [c.shell for fix in finding.cause.fixes for c in fix.commands]
