"""The check with literals, and the experiment over a transport without machines."""

from typing import Any

from netdoctor_example.site_burst import Burst, Bursts, bursts, site_burst

from netdoctor.facts.software import Job
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.model import Status
from netdoctor.store import Store
from netdoctor.transport.base import Request
from netdoctor.transport.fake import FakeTransport


def burst(arrived: int = 200) -> Burst:
    return Burst(src="a", dst="b", address="10.0.0.2", sent=200, arrived=arrived)


def test_what_arrives_whole_is_fine() -> None:
    assert list(site_burst(Bursts(bursts=(burst(),)))) == []


def test_the_pair_that_loses_is_named() -> None:
    (finding,) = site_burst(Bursts(bursts=(burst(), burst(150))))
    assert (finding.target, finding.status, finding.observed) == ("a->b", Status.WARN, "150 of 200")


def test_what_was_not_counted_is_unknown() -> None:
    (finding,) = site_burst(Bursts(failed_nodes={"b": "no answer"}))
    assert (finding.target, finding.status) == ("b", Status.UNKNOWN)
    assert [finding.status for finding in site_burst(Bursts())] == [Status.SKIP]


def test_every_pair_is_asked_once() -> None:
    def count(node: str, request: Request) -> Any:
        row = {"sent": 200, "arrived": 200 if node == "a" else 190, "answered": 180}
        return [{"dst": t["dst"], "address": t["address"], **row} for t in request.args["targets"]]

    answers = {"udp_echo": lambda node, request: {"port": 4000}, "udp_loss": count}
    participants = Participants(nodes=("a", "b", "c"), addresses={"a": "10.0.0.1", "b": "10.0.0.2"})
    found = bursts(
        Context(transport=FakeTransport(answers=answers), participants=participants, store=Store(), job=Job())
    )
    assert [(one.src, one.dst, one.arrived) for one in found.bursts] == [("a", "b", 200), ("b", "a", 190)]
    assert found.failed_nodes == {"c": "has no usable data address"}
