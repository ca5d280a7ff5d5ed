from dataclasses import replace
from typing import Any

from netdoctor.checks.net.local_ports import net_local_ports
from netdoctor.model import Finding, Status

from ..build import cause, causes, job, net, nets, node, nodes
from ..build_hw import all_gpus

SHORT, FEW, TAKEN = "local-ports-short", "local-ports-few", "local-ports-taken"


def judged(first: dict[str, Any], slots: int = 8, **more: Any) -> list[Finding]:
    """What is said of four nodes, n1 of them with these values of NetFacts and so many ranks."""
    machines = {**nets(4), "n1": net(1, **first)}
    listed = {**nodes(4), "n1": node(1, slots=slots)}
    return list(net_local_ports(machines, listed, more.get("gpus"), more.get("job", job(4))))


def test_room_for_the_ranks() -> None:
    gloo = replace(job(4), backend="gloo")
    for first, more, key, status in (
        ({}, {}, "", None),
        # NVIDIA's own example of a narrow range.
        ({"ephemeral_ports": (50000, 51000)}, {}, "", None),
        ({"ephemeral_ports": (50000, 50099)}, {}, SHORT, Status.WARN),
        ({"ephemeral_ports": (50000, 50099)}, {"job": gloo}, FEW, Status.WARN),
        ({"ephemeral_ports": (50000, 50015)}, {"job": gloo}, FEW, Status.WARN),
        ({"ephemeral_ports": (50000, 50014)}, {"job": gloo}, SHORT, Status.FAIL),
        ({"ephemeral_ports": (50000, 50015), "reserved_ports": "50003"}, {}, SHORT, Status.FAIL),
        ({"reserved_ports": "32768-60990,0-9,x,60999-1"}, {}, SHORT, Status.FAIL),
        ({"reserved_ports": "29500,32768-33767,33000-33001"}, {}, "", None),
        ({"ephemeral_ports": (50000, 50001)}, {"slots": 1, "gpus": all_gpus(4)}, SHORT, Status.WARN),
        ({"ports_taken": 20000, "time_wait": 20000}, {}, "", None),
        ({"ports_taken": 28000, "time_wait": 27000, "tw_reuse": 2}, {}, TAKEN, Status.WARN),
        ({"ports_taken": 28000, "time_wait": 27000}, {"job": gloo}, "", None),
        ({"ports_taken": 28232}, {"job": gloo}, TAKEN, Status.WARN),
    ):  # fmt: skip
        findings = judged(first, **more)
        assert causes(findings) == ({key: {"n1"}} if key else {}), (first, more)
        assert {one.status for one in findings} == ({status} if key else set()), (first, more)


def test_few_ports_on_every_node_are_nobodys_oddity() -> None:
    gloo, few = replace(job(4), backend="gloo"), {"ephemeral_ports": (50000, 50015)}
    machines = {f"n{i}": net(i, **few) for i in range(1, 5)}
    assert list(net_local_ports(machines, {n: node(1, slots=1) for n in machines}, None, gloo)) == []


def test_what_frees_ports() -> None:
    many = {"ports_taken": 28200, "time_wait": 28000}
    for tw_reuse, fixes in ((2, 3), (0, 3), (1, 1), (None, 3)):
        hint = cause(judged({**many, "tw_reuse": tw_reuse}), TAKEN)
        assert len(hint.fixes) == fixes, tw_reuse
    again = cause(judged({**many, "tw_reuse": 2}), TAKEN).fixes[1]
    assert again.commands[0].shell == "sysctl -qw net/ipv4/tcp_tw_reuse=1"
    assert again.undo[0].shell == "sysctl -qw net/ipv4/tcp_tw_reuse=2"
    assert len(cause(judged({**many, "time_wait": 10}), TAKEN).fixes) == 1
    narrow = cause(judged({"ephemeral_ports": (50000, 50009)}), SHORT).fixes
    assert narrow[0].commands[0].shell == "sysctl -qw 'net/ipv4/ip_local_port_range=32768 60999'"
    assert narrow[0].undo[0].shell == "sysctl -qw 'net/ipv4/ip_local_port_range=50000 50009'"
    (reserved,) = cause(judged({"reserved_ports": "32768-60999"}), SHORT).fixes
    assert reserved.commands[0].shell.startswith("grep ")
