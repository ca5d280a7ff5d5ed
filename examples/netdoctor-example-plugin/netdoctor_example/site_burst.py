"""Bursts between nodes, an experiment of the site: its storage sends them, and small buffers drop them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from netdoctor.check import check
from netdoctor.facts import fact
from netdoctor.measure.common import CLOSE_S, ECHO_OPEN_S, over_echoes
from netdoctor.measure.declare import Context, experiment
from netdoctor.model import CONFIG, Cause, Finding, look, pair, skip, unknown

PACKETS = 200
SECONDS = 0.05
COUNTING_S = 10.0

LOST = Cause("burst-lost", "bursts of packets to or from {nodes} do not arrive whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """One burst of small packets. sent: handed to the kernel of `src`; arrived: counted on `dst`."""

    src: str
    dst: str
    address: str
    sent: int
    arrived: int
    detail: str = ""


@fact("site_bursts", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """A burst over every directed pair. failed_nodes: why a node took no part, by node."""

    bursts: tuple[Burst, ...] = ()
    failed_nodes: Mapping[str, str] = field(default_factory=dict)


@experiment(after=["ports"], bound_s=ECHO_OPEN_S + COUNTING_S + CLOSE_S, cost="opens-port")
def bursts(context: Context) -> Bursts:
    """Every node sends each other one 200 small packets within a twentieth of a second."""
    args = {"packets": PACKETS, "seconds": SECONDS}
    found = over_echoes(context.transport, context.participants, Burst, "udp_loss", args, COUNTING_S)
    return Bursts(bursts=found.probes, failed_nodes=found.failed)


@check(after=["net.ports"], profile="launch", cost="opens-port", required=False)
def site_burst(found: Bursts) -> Iterator[Finding]:
    """Bursts of 200 packets between nodes arrive whole.

    Looks at:
        200 small UDP packets within 50 ms from every node to every other, counted where they arrive.

    Matters because:
        Our storage answers in bursts. A switch port with too small a buffer drops the end of each, and reads
        take seconds instead of milliseconds.

    Fix:
        Give the switch port a larger share of the buffer, or the storage's traffic a class of its own.
    """
    if not found.bursts and not found.failed_nodes:
        yield skip("one node alone has nobody to send to")
    for node, why in found.failed_nodes.items():
        yield unknown(node, f"no burst was counted: {why}")
    for burst in found.bursts:
        if burst.arrived < burst.sent:
            yield LOST.warn(
                f"{burst.sent - burst.arrived} of {burst.sent} packets did not arrive",
                at=pair(burst.src, burst.dst),
                observed=f"{burst.arrived} of {burst.sent}",
                expected="all of them",
                expected_from=CONFIG,
                fixes=look("see what its interfaces dropped", "ip -s link"),
            )
