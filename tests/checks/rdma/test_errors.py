from typing import Any

import pytest

from netdoctor.checks._shared.counters import STOPS
from netdoctor.checks.rdma.errors import TABLE, rdma_errors
from netdoctor.facts.cabling import CabledPort, CablingFacts
from netdoctor.facts.counters import Counted, CounterFacts, LaterCounters
from netdoctor.facts.rdma import Gid
from netdoctor.model import Finding, Status

from ..build import causes, said
from ..build_hw import hca, port, rdma

USUAL = {"port_rcv_packets": 1000, "port_xmit_packets": 1000}


def readings(before: dict[str, int], after: dict[str, int], seconds: float = 10.0, **changes: Any) -> Any:
    """Two readings of mlx5_0:1, which is quiet, and of mlx5_1:1."""

    def at(uptime_s: float, values: dict[str, int]) -> CounterFacts:
        quiet = Counted(name="mlx5_0:1", values=USUAL, read=14)
        port = Counted(**{"name": "mlx5_1:1", "values": {**USUAL, **values}, "read": 14, **changes})
        return CounterFacts(uptime_s=uptime_s, ports=(quiet, port))

    return at(5000.0, before), LaterCounters(reading=at(5000.0 + seconds, after))


def judged(before: dict[str, int], after: dict[str, int], *args: Any, **changes: Any) -> list[Finding]:
    return said(rdma_errors(*readings(before, after, *args, **changes)))


def test_silent_while_nothing_grows_beyond_what_healthy_links_do() -> None:
    assert not judged({}, {})
    for before, after in (
        ({"link_downed": 200}, {"link_downed": 200}),
        ({"symbol_error": 65000}, {"symbol_error": 65100}),
        ({}, {"symbol_error": 9, "port_xmit_discards": 1000, "local_ack_timeout_err": 10}),
        ({}, {"out_of_sequence": 1_000_000, "port_rcv_packets": 1 << 63}),
        ({}, {"link_error_recovery": 2}),
        ({}, {"np_cnp_sent": 1 << 40, "rp_cnp_handled": 1 << 40, "rp_cnp_ignored": 10}),
    ):
        assert {f.status for f in judged(before, after)} <= {Status.PASS}, after


def test_the_port_of_the_switch_is_named() -> None:
    """That is where the cable is, which is to be swapped."""
    gids = (Gid(index=3, gid="::ffff:10.0.0.1", type="RoCE v2", netdev="rail1"),)
    facts = rdma(hca("mlx5_0"), hca("mlx5_1", ports=(port("mlx5_1", gids=gids),)))
    for name in ("rail1", "mlx5_1:1"):
        cabled = CabledPort(port=name, switch="02:01", switch_name="leaf-1", at="swp7", by="lldpd")
        (finding, *_) = rdma_errors(*readings({}, {"link_downed": 1}), facts, CablingFacts(ports=(cabled,)))
        last = finding.evidence[-1]
        assert (last.what, last.output) == ("lldpd, at the other end of mlx5_1:1", "leaf-1 port swp7")


def test_old_totals_are_told() -> None:
    (finding,) = judged({"link_downed": 3, "symbol_error": 70}, {"link_downed": 3, "symbol_error": 80})
    assert (finding.status, finding.summary) == (
        Status.PASS, "no errors of HCA ports in 10 s; earlier ones: link_downed 3, symbol_error 70",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ({"link_downed": 2}, {"link_downed": 3}, "hca-link-flap"),
        ({}, {"link_error_recovery": 3}, "hca-link-flap"),
        ({}, {"local_link_integrity_errors": 1}, "hca-link-errors"),
        ({"symbol_error": 5}, {"symbol_error": 200}, "hca-link-errors"),
        ({"symbol_error": 60000}, {"symbol_error": 300}, "hca-link-errors"),  # cleared meanwhile
        ({}, {"rx_icrc_encapsulated": 101}, "hca-link-errors"),
        ({}, {"excessive_buffer_overrun_errors": 1}, "hca-drops"),
        ({}, {"port_xmit_discards": 1001}, "hca-drops"),
        ({}, {"local_ack_timeout_err": 11}, "hca-resends"),
        ({}, {"packet_seq_err": 101}, "hca-resends"),
        ({"rp_cnp_ignored": 5}, {"rp_cnp_ignored": 16}, "hca-cnp-ignored"),
    ],
)
def test_what_grows_too_fast(before: dict[str, int], after: dict[str, int], key: str) -> None:
    (finding,) = judged(before, after)
    assert (finding.status, causes([finding])) == (Status.WARN, {key: {"n1"}})
    (counter,) = after
    assert counter in finding.summary
    assert finding.summary.startswith("mlx5_1:1 counted")
    assert "+" in finding.evidence[0].output


def test_one_cause_of_several_counters() -> None:
    after = {"symbol_error": 500, "port_rcv_errors": 400, "local_ack_timeout_err": 50}
    findings = judged({}, after)
    assert [f.summary for f in findings] == [
        "mlx5_1:1 counted 500 symbol_error in 10 s", "mlx5_1:1 counted 50 local_ack_timeout_err in 10 s",
    ]  # fmt: skip
    assert findings[0].expected == "at most 10 a second"
    assert findings[0].evidence[0].output == (
        "symbol_error +500, port_rcv_errors +400, local_ack_timeout_err +50, of 0 packets, in 10 s"
    )


def test_notices_of_congestion_are_shown_beside_what_is_wrong() -> None:
    (finding,) = judged({}, {"packet_seq_err": 500, "np_cnp_sent": 70, "rp_cnp_handled": 8})
    assert "packet_seq_err +500, np_cnp_sent +70, rp_cnp_handled +8" in finding.evidence[0].output
    assert not judged({"np_cnp_sent": 7}, {"np_cnp_sent": 7})


def test_what_cannot_be_judged() -> None:
    first, later = readings({"link_downed": 255}, {"link_downed": 255})
    assert [(f.status, f.summary) for f in said(rdma_errors(first, later))] == [
        (Status.UNKNOWN, "mlx5_1:1: link_downed at the maximum value: it does not count any more")
    ]
    turned = said(rdma_errors(later.reading, LaterCounters(reading=first)))
    assert [f.status for f in turned] == [Status.UNKNOWN]
    none = CounterFacts(uptime_s=1.0)
    assert [f.summary for f in said(rdma_errors(none, LaterCounters(reading=none)))] == [
        "no HCA on this node"
    ]
    mute = CounterFacts(uptime_s=1.0, ports=(Counted(name="efa_0:1"),))
    assert [f.status for f in said(rdma_errors(mute, LaterCounters(reading=mute)))] == [Status.SKIP]


def test_a_port_that_came_is_not_judged_and_one_that_went_is_unknown() -> None:
    first, later = readings({}, {"link_downed": 9}, name="mlx5_9:1")
    gone = CounterFacts(uptime_s=first.uptime_s, ports=first.ports[:1])
    assert not said(rdma_errors(gone, later))
    went = LaterCounters(reading=CounterFacts(uptime_s=6e3, ports=first.ports[:1]))
    (finding,) = said(rdma_errors(later.reading, went))
    assert (finding.status, finding.summary) == (
        Status.UNKNOWN, "mlx5_9:1 reported fewer counters at the end than at login",
    )  # fmt: skip


def test_an_hca_of_which_nothing_was_counted_is_not_healthy() -> None:
    none = CounterFacts(uptime_s=1.0)
    (finding,) = said(rdma_errors(none, LaterCounters(reading=none), rdma()))
    assert (finding.status, finding.summary) == (
        Status.UNKNOWN, "mlx5_0:1 and mlx5_1:1: no counters were reported",
    )  # fmt: skip
    one = CounterFacts(uptime_s=1.0, ports=(Counted(name="mlx5_0:1", read=14),))
    again = LaterCounters(reading=CounterFacts(uptime_s=9.0, ports=one.ports))
    assert [f.status for f in said(rdma_errors(one, again, rdma()))] == [Status.UNKNOWN]
    assert not said(rdma_errors(one, again, rdma(hca("mlx5_0"))))


@pytest.mark.parametrize("name", ["mlx5_1; id:1", "$(id):1", "mlx5_1:1;id", "mlx5_1", "-d:1", "mlx5_1:1\n"])
def test_no_words_of_a_node_stand_in_a_command(name: str) -> None:
    (finding,) = judged({}, {"link_downed": 9}, name=name)
    assert finding.cause
    assert not [c.shell for fix in finding.cause.fixes for c in fix.commands]


def test_those_that_stop_are_judged() -> None:
    assert STOPS.keys() <= {rule.counter for rule in TABLE.rule if rule.judged}
