from dataclasses import replace
from typing import Any

from netdoctor.checks.net.capacity import net_capacity
from netdoctor.facts.net import NetFacts
from netdoctor.model import Finding, Status

from ..build import causes, job, net, nets, node, nodes
from ..build_hw import all_gpus


def judged(count: int = 4, first: dict[str, Any] | None = None, **more: Any) -> list[Finding]:
    """What is said of so many nodes, `first` of them with these values of NetFacts."""
    machines: dict[str, NetFacts] = {n: replace(one, somaxconn=4096) for n, one in nets(count).items()}
    machines["n1"] = replace(net(1, somaxconn=4096), **(first or {}))
    return list(net_capacity(machines, more.get("listed", nodes(count)), more.get("gpus"), job(count)))


def test_queues_and_tables() -> None:
    slots = {f"n{i}": node(i, slots=64) for i in range(1, 5)}
    for first, more, key in (
        ({}, {}, ""),
        ({"somaxconn": 128}, {}, ""),
        ({"somaxconn": 128}, {"listed": slots}, "accept-queue-short"),
        ({"somaxconn": 256}, {"listed": slots}, ""),
        ({"somaxconn": 7}, {"gpus": all_gpus(4)}, "accept-queue-short"),
        ({"somaxconn": None}, {"listed": slots}, ""),
        ({"conntrack": 300, "conntrack_max": 262144}, {}, ""),
        ({"conntrack": 200_000, "conntrack_max": 262144}, {}, "conntrack-full"),
        ({"conntrack": 5, "conntrack_max": 0}, {}, ""),
        ({"conntrack": None, "conntrack_max": 262144}, {}, ""),
    ):
        findings = [one for one in judged(4, first, **more) if one.status is not Status.SKIP]
        assert causes(findings) == ({key: {"n1"}} if key else {}), (first, more)
        assert {one.status for one in findings} <= {Status.WARN}


def test_only_rank_0_has_the_queue() -> None:
    slots = {f"n{i}": node(i, slots=64) for i in range(1, 3)}
    machines = {"n1": net(1, somaxconn=4096), "n2": net(2, somaxconn=128)}
    assert list(net_capacity(machines, slots, None, job(2))) == []


def test_the_fix_holds_all_ranks_and_goes_back() -> None:
    slots = {f"n{i}": node(i, slots=64) for i in range(1, 5)}
    (finding,) = judged(4, {"somaxconn": 128}, listed=slots)
    assert finding.cause
    now, later = finding.cause.fixes
    assert now.commands[0].shell == "sysctl -qw net/core/somaxconn=256"
    assert now.undo[0].shell == "sysctl -qw net/core/somaxconn=128"
    assert later.commands[0].shell.endswith("> /etc/sysctl.d/zz-netdoctor-queue.conf")


def test_what_is_not_shown() -> None:
    assert [one.status for one in net_capacity(nets(2), nodes(2), None, job(2))] == [Status.SKIP]
