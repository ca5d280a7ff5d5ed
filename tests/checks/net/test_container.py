from typing import Any

from netdoctor.checks.net.container import net_container
from netdoctor.facts.net import NetFacts, PortMatrix
from netdoctor.model import Finding, Status

from ..build import (
    causes,
    host,
    hosts,
    inbound,
    loopback,
    matrix,
    name,
    net,
    netdev,
    nets,
    probe,
    row,
    session,
)


def inside(address: str = "172.17.0.2", kind: str = "veth") -> NetFacts:
    devs = (loopback(), netdev(kind=kind, speed_mbit_s=None))
    return net(netdevs=devs, addresses=(row("lo", "127.0.0.1", 8, scope="host"), row("eth0", address, 16)))


def judged(
    boxes: dict[str, NetFacts],
    ports: PortMatrix | None = None,
    engine: str | None = "docker",
    boot: str | None = None,
    count: int = 3,
    **more: Any,
) -> list[Finding]:
    """Nodes n1… of which `boxes` are containers, each logged in to at its machine's address."""
    machines = dict(hosts(count))
    for n in boxes:
        machines[n] = host(int(n[1:]), container=engine, **({"boot_id": boot} if boot else {}))
    sessions = {name(i): session(i, **more) for i in range(1, count + 1)}
    return list(net_container(machines, {**nets(count), **boxes}, sessions, ports))


# Containers by node, what was tried between nodes, what they run in, their machine's boot id; who is named.
TWICE, APART = {"n1": inside(), "n2": inside()}, {"n2": inside("10.88.0.4")}
CLOSED = matrix(3, inbound(3, "n2"))
ITSELF = PortMatrix(probes=(probe("n1", "n2", address="172.17.0.2"),))
CASES: list[tuple[dict[str, NetFacts], PortMatrix | None, str | None, str | None, set[str]]] = [
    ({}, matrix(3), "docker", None, set()),
    (TWICE, None, "docker", None, {"n1", "n2"}),
    # What n1 reached at that address was n1.
    (TWICE, ITSELF, "podman", None, {"n1", "n2"}),
    (APART, CLOSED, "podman", None, {"n2"}),
    (APART, None, "podman", None, {"n2"}),
    # Its peers reach it: all on one machine, or on an overlay.
    (APART, matrix(3), "docker", None, set()),
    ({"n1": inside(), "n2": inside("172.17.0.3")}, matrix(3), "docker", "one", set()),
    # A pod's trouble is another's, and so is that of what has an interface of the network.
    (APART, CLOSED, "kubernetes", None, set()),
    (APART, CLOSED, "lxc", None, set()),
    (APART, CLOSED, None, None, set()),
    ({"n2": inside("10.0.0.2", "macvlan")}, CLOSED, "docker", None, set()),
]  # fmt: skip


def test_who_is_on_a_bridge() -> None:
    for number, (boxes, ports, engine, boot, named) in enumerate(CASES):
        findings = judged(boxes, ports, engine, boot)
        assert causes(findings) == ({"container-bridge": named} if named else {}), number
        said = {one.status for one in findings}
        assert said <= {Status.FAIL if named else Status.SKIP}, number


def test_a_login_without_translation_says_nothing_alone() -> None:
    assert judged(APART, CLOSED, address="10.88.0.4") == []
    assert judged(APART, CLOSED, address=None) == []


def test_one_node_has_nobody_to_be_dialled_by() -> None:
    assert [(one.status, one.summary) for one in judged({"n1": inside()}, count=1)] == [
        (Status.SKIP, "one node")
    ]


def test_two_machines_are_told_that_neither_is_a_container() -> None:
    (said,) = judged({}, count=2)
    assert (said.status, said.summary) == (Status.SKIP, "no node is a container of Docker or Podman")
