import random
from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.net.loss import LIMIT, net_loss
from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.facts.counters import Counted, CounterFacts, LaterCounters
from netdoctor.localise.binomial import at_least, log_tail
from netdoctor.localise.loss import suspects
from netdoctor.model import Finding, Status

from ..build import job, names, net, second

PACKETS = 250
Share = dict[tuple[str, str], float]


def matrix(count: int, share: Share, seed: int = 1, background: float = 0.0) -> LossMatrix:
    """Counted datagrams between all pairs, each lost with its direction's share."""
    rng = random.Random(seed)
    probes = []
    for a in names(count):
        for b in names(count):
            if a != b:
                there, back = share.get((a, b), background), share.get((b, a), background)
                arrived = sum(rng.random() >= there for _ in range(PACKETS))
                answered = sum(rng.random() >= back for _ in range(arrived))
                probes.append(
                    LossProbe(
                        src=a, dst=b, address="10.0.0.1", sent=PACKETS, arrived=arrived, answered=answered
                    )
                )
    return LossMatrix(probes=tuple(probes))


def judge(losses: LossMatrix, count: int = 4) -> list[Finding]:
    return list(net_loss(losses, job(count), {n: net(i) for i, n in enumerate(names(count), start=1)}))


def carriers(changes: dict[str, dict[str, int]], ifname: str = "eth0", **more: Any) -> dict[str, Any]:
    """What every one of four nodes counted on an interface within 20 s."""
    moved = {"rx_packets": 600_000, "tx_packets": 400_000}

    def read(at_s: float, values: dict[str, int]) -> CounterFacts:
        return CounterFacts(uptime_s=at_s, netdevs=(Counted(name=ifname, read=9, values=values, **more),))

    return {
        "counters": dict.fromkeys(names(4), read(9e6, {})),
        "later": {
            n: LaterCounters(reading=read(9e6 + 20, {**moved, **changes.get(n, {})})) for n in names(4)
        },
    }


FLAPS, DAMAGED = {"carrier_changes": 8}, {"rx_errors": 900}
LINK, BAD, LOSS = "net-link-flap", "net-link-errors", "packet-loss"


@pytest.mark.parametrize(
    ("lossy", "count", "said", "expected"),
    [
        # Both ends of a pair show the same loss: the one whose link flaps is named, whichever it is.
        (["n1"], 2, carriers({"n1": FLAPS}), {(LINK, ("n1",))}),
        (["n1"], 2, carriers({"n2": FLAPS}), {(LINK, ("n2",))}),
        (["n2"], 4, carriers({"n2": FLAPS}), {(LINK, ("n2",))}),
        (["n2"], 4, carriers({"n2": DAMAGED}), {(BAD, ("n2",))}),
        # An interface below the one that is dialled is its link; another one is not.
        (["n2"], 4, carriers({"n2": FLAPS}, "ens1", uppers=("eth0",)), {(LINK, ("n2",))}),
        (["n2"], 4, carriers({"n2": FLAPS}, "ens6"), {(LOSS, ("n2",))}),
        # Another node's link says nothing of this one's loss.
        (["n2"], 4, carriers({"n3": FLAPS}), {(LOSS, ("n2",))}),
        (["n2"], 4, carriers({}), {(LOSS, ("n2",))}),
        (["n2", "n3"], 4, carriers({"n2": FLAPS}), {(LINK, ("n2",)), (LOSS, ("n3",))}),
    ],
)
def test_loss_on_a_link_that_breaks_is_no_second_cause(
    lossy: list[str], count: int, said: dict[str, Any], expected: set[tuple[str, tuple[str, ...]]]
) -> None:
    share: Share = {}
    for node in lossy:
        share |= into(count, node, 0.2) | outof(count, node, 0.2)
    machines = {n: net(i) for i, n in enumerate(names(count), start=1)}
    assert blamed(list(net_loss(matrix(count, share), job(count), machines, **said))) == expected


def test_damage_on_the_way_in_explains_what_does_not_arrive_and_not_what_is_sent() -> None:
    machines = {n: net(i) for i, n in enumerate(names(4), start=1)}
    for share, expected in ((into(4, "n2", 0.2), BAD), (outof(4, "n2", 0.2), "packet-loss-out")):
        findings = net_loss(matrix(4, share), job(4), machines, **carriers({"n2": DAMAGED}))
        assert blamed(list(findings)) == {(expected, ("n2",))}


def test_loss_on_one_path_or_on_all_is_nobodys_link() -> None:
    machines = {n: net(i) for i, n in enumerate(names(4), start=1)}
    flap = carriers({"n1": FLAPS})
    for share in ({("n1", "n3"): 0.2}, {(a, b): 0.2 for a in names(4) for b in names(4) if a != b}):
        found = blamed(list(net_loss(matrix(4, share), job(4), machines, **flap)))
        assert found
        assert LINK not in {key for key, _ in found}


def into(count: int, node: str, share: float = 0.02) -> Share:
    return {(a, node): share for a in names(count) if a != node}


def outof(count: int, node: str, share: float = 0.02) -> Share:
    return {(node, a): share for a in names(count) if a != node}


def blamed(findings: list[Finding]) -> set[tuple[str, tuple[str, ...]]]:
    return {(f.cause.key, f.cause.culprits) for f in findings if f.cause is not None}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("count", [3, 4, 8])
def test_names_the_node_and_the_direction(count: int, seed: int) -> None:
    both = into(count, "n2") | outof(count, "n2")
    assert blamed(judge(matrix(count, both, seed), count)) == {("packet-loss", ("n2",))}
    assert blamed(judge(matrix(count, into(count, "n2"), seed), count)) == {("packet-loss-in", ("n2",))}
    assert blamed(judge(matrix(count, outof(count, "n2"), seed), count)) == {("packet-loss-out", ("n2",))}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("background", [0.0, 0.001])
def test_silent_on_healthy_networks(seed: int, background: float) -> None:
    findings = judge(matrix(4, {}, seed, background))
    assert [f.status for f in findings] == [Status.PASS]
    assert "lost" in findings[0].summary


def test_two_nodes_are_two_causes() -> None:
    share = into(8, "n2", 0.03) | outof(8, "n2", 0.03) | into(8, "n7", 0.03)
    assert blamed(judge(matrix(8, share), 8)) == {("packet-loss", ("n2",)), ("packet-loss-in", ("n7",))}


def test_one_path_is_named_as_a_pair() -> None:
    assert blamed(judge(matrix(4, {("n1", "n3"): 0.05}))) == {("packet-loss-path", ("n1->n3",))}


def test_loss_everywhere_is_nobodys() -> None:
    findings = judge(matrix(4, {}, background=0.03))
    assert blamed(findings) == {("packet-loss", ("cluster",))}


def test_two_nodes_cannot_be_told_apart() -> None:
    findings = judge(matrix(2, {("n1", "n2"): 0.05}), 2)
    (finding,) = (f for f in findings if f.status is Status.WARN)
    assert finding.cause is not None
    assert finding.cause.settle_by


def test_silence_is_no_loss() -> None:
    probe = LossProbe(src="n1", dst="n2", address="10.0.0.2", sent=250, arrived=0, answered=0)
    findings = judge(LossMatrix(probes=(probe,)), 2)
    assert {f.status for f in findings} == {Status.UNKNOWN}


def test_where_no_packet_was_sent_nothing_is_known() -> None:
    unsent = LossProbe(src="n1", dst="n2", address="10.0.0.2", sent=0, arrived=0, answered=0)
    for losses, target in (
        (LossMatrix(), "cluster"),
        (LossMatrix(failed_nodes=dict.fromkeys(names(2), "no answer")), "n1"),
        (LossMatrix(probes=(unsent,)), "n1->n2"),
    ):
        findings = judge(losses, 2)
        assert (findings[0].target, {one.status for one in findings}) == (target, {Status.UNKNOWN})


def test_answers_of_which_none_comes_back_are_lost_on_the_way_back() -> None:
    findings = judge(matrix(4, into(4, "n2", 1.0)))
    assert blamed(findings) == {("packet-loss-in", ("n2",))}


def test_a_node_that_did_not_report_is_unknown() -> None:
    losses = matrix(3, {})
    spoilt = LossMatrix(probes=losses.probes, failed_nodes={"n1": "no answer"})
    assert any(f.target == "n1" and f.status is Status.UNKNOWN for f in judge(spoilt, 3))


def test_a_node_in_no_pair_is_unknown() -> None:
    findings = {f.target: f.status for f in judge(matrix(3, {}), 4)}
    assert findings == {"n4": Status.UNKNOWN, "cluster": Status.PASS}


def test_skips_one_node() -> None:
    assert [f.status for f in judge(LossMatrix(), 1)] == [Status.SKIP]


def test_no_packets_no_culprits() -> None:
    assert suspects({}, LIMIT) == ()


def test_the_bound_holds_its_promise() -> None:
    # One-sided 99 %: for 4 of 200 the textbook's lower bound (Clopper and Pearson) is 0.41 %.
    assert at_least(4, 200) == pytest.approx(0.0041, abs=0.0002)
    assert at_least(0, 100) == 0.0
    assert log_tail(0, 10, 0.5) == 0.0


def test_a_further_path_is_counted_by_itself() -> None:
    whole, lossy = (
        tuple(replace(p, address=address.format(p.dst[1:])) for p in matrix(4, share).probes)
        for address, share in (("10.0.0.{}", {}), ("10.1.0.{}", into(4, "n3", 0.05)))
    )
    machines = {n: net(i) for i, n in enumerate(names(4), start=1)}
    findings = list(net_loss(LossMatrix(probes=(*whole, *lossy)), job(4), machines, second(4)))
    assert blamed(findings) == {("packet-loss-in-net2", ("n3",))}
    (fix,) = {f.cause.fixes[0] for f in findings if f.cause}
    assert "eth1" in fix.commands[0].shell
    (clean,) = net_loss(LossMatrix(probes=(*whole, *whole)), job(4), machines, second(4))
    assert "0 of" in clean.summary
