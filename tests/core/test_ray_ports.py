"""Who dials what in a Ray cluster, and what hostile or missing answers become."""

from collections import Counter
from typing import Any

from netdoctor.facts.ray import RayFacts, RayPorts
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.ray_ports import ray_ports
from netdoctor.store import Store
from netdoctor.transport.base import Request
from tests.checks import build as healthy
from tests.checks.build_ray import GCS_PORT, ray
from tests.core.fake import LOST, FakeTransport


def listen(node: str, request: Request) -> Any:
    return [{**row, "error": None} for row in request.args["listeners"]]


def connect(node: str, request: Request) -> Any:
    return [{**target, "outcome": "in_use"} for target in request.args["targets"]]


def found(rays: dict[str, RayFacts], **answers: Any) -> RayPorts:
    said = {"listen": listen, "connect": connect, "unlisten": lambda node, request: [], **answers}
    store = Store()
    for node, one in rays.items():
        store.put("ray", node, one)
        store.put("net", node, healthy.net(int(node[1:])))
    participants = Participants(nodes=tuple(rays), addresses={})
    job = healthy.job()
    return ray_ports(
        Context(transport=FakeTransport(answers=said), participants=participants, store=store, job=job)
    )


def cluster(count: int, **odd: RayFacts) -> dict[str, RayFacts]:
    return {healthy.name(i): odd.get(healthy.name(i), ray(i)) for i in range(1, count + 1)}


def test_all_dial_raylets_the_head_and_a_worker_port() -> None:
    ports = found(cluster(3))
    assert Counter(p.purpose for p in ports.probes) == {"raylet": 12, "worker": 6, "gcs": 2}
    assert {(p.src, p.port) for p in ports.probes if p.purpose == "gcs"} == {
        ("n2", GCS_PORT),
        ("n3", GCS_PORT),
    }
    assert all(15000 <= p.port <= 19999 for p in ports.probes if p.purpose == "worker")
    assert ports.failed_nodes == {}
    many = found(cluster(80))
    assert {p.src for p in many.probes if p.purpose == "gcs"} == {healthy.name(i) for i in range(2, 81)}


def test_a_node_does_not_choose_where_others_dial() -> None:
    evil = ray(2, address="192.0.2.9", gcs_address="192.0.2.9:22")
    ports = found(cluster(3, n2=evil))
    assert {p.address for p in ports.probes} == {healthy.address(1), healthy.address(3)}
    assert set(ports.failed_nodes) == {"n2"}


def test_alone_or_without_ray_nobody_is_asked() -> None:
    for count in (0, 1):
        assert found(cluster(count), listen=None, connect=None) == RayPorts(timeout_s=3.2)


def test_one_nodes_trouble_is_that_nodes() -> None:
    ports = found(cluster(3), connect=lambda node, request: LOST if node == "n2" else connect(node, request))
    assert set(ports.failed_nodes) == {"n2"}
    assert {p.src for p in ports.probes} == {"n1", "n3"}
    assert "worker" not in {p.purpose for p in ports.probes if p.dst == "n2"}
    for junk in ([], "x", [{"dst": "n1"}], [{**{"outcome": "open"}, "dst": ["n1"]}]):
        broken = found(cluster(2), connect=lambda node, request, junk=junk: junk)
        assert set(broken.failed_nodes) == {"n1", "n2"}
        assert broken.probes == ()
    closed = found(cluster(2), listen=lambda node, request: LOST)
    assert {p.purpose for p in closed.probes} == {"raylet", "gcs"}
