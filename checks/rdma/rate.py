"""Link rate of HCA ports, compared across the cluster."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.parity import unlike_expected
from netdoctor.checks._shared.rdma import NO_HCAS, cable, has_any, port_evidence, ports_of, unread
from netdoctor.facts.cabling import CablingFacts
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.model import LIKELY, PEERS, SUSPECTED, Action, Cause, Evidence, Finding, look, skip, unknown
from netdoctor.text import is_plain_name

READ = "mlxlink -d {0} -p {1} -m -c; ibstat {0} {1}"
LOW = Cause("hca-rate-low", "HCA ports of {nodes} run slower than on most nodes", action=Action.DRAIN)
SLOWER = "HCA ports of {nodes} run slower than on other nodes"
LANES = Cause("hca-rate-lanes", "HCA ports of {nodes} run with too few lanes", action=Action.DRAIN)
SLOWER_KIND = Cause("hca-rate-kind", "the HCAs of {nodes} are of a slower kind than those of most nodes")
KINDS = "the HCAs of {nodes} are of a slower kind than those of other nodes"
UNNAMED = Cause(
    "hca-rate-not-known", "the kernel of {nodes} does not know the rate of its HCA ports", SUSPECTED
)


class Rate(NamedTuple):
    """What a port runs at."""

    gbit_s: float
    port: HcaPort
    kind: str  # of its card, ``MT4129``
    is_most: bool = False  # where it is what is typical: of more than half of those that are compared


# Not after rdma.port: a port that is down says nothing about the others of its node.
@check(
    source="https://docs.kernel.org/admin-guide/abi-stable.html#abi-file-stable-sysfs-class-infiniband",
    expects={"rdma.rate": float},
)
def rdma_rate(
    nodes: Mapping[str, RdmaFacts],
    nets: Mapping[str, NetFacts] | None,
    expect: Expectations | None = None,
    cablings: Mapping[str, CablingFacts] | None = None,
) -> Iterator[Finding]:
    """Every active HCA port runs at the usual rate of that port in the cluster.

    Looks at:
        ``rate`` of each active port, its number and its lanes (``400 Gb/sec (4X NDR)``), compared with
        the same port on the other nodes. A port that only one node has is compared with ports of the same
        kind of card. If all cards of one kind are slower than another kind, that is a warning. Software
        and cloud adapters print a fixed number and are left out. With ``--expect`` a port must not be
        slower than that value (Gbit/s).

    Matters because:
        A collective ends when its slowest ring does. One port at 200 Gbit/s among ports at 400, or with
        two lanes of four, slows down every rank.

    Fix:
        Reseat or swap the cable and transceiver, then read ``ibstat`` again. If a port stays slow, the
        HCA or the switch port is at fault. A kernel that is older than the HCA prints SDR for speeds that
        it does not know.
    """
    yield from (silent := list(unread(nodes)))
    ports = [(node, hca, port) for node, hca, port in ports_of(nodes) if port.active and not hca.is_virtual]
    judged = {node for node, _, _ in ports}.union(finding.target for finding in silent)
    if not judged:
        yield skip("no node has an active HCA port with a real rate" if has_any(nodes) else NO_HCAS)
        return
    for node in (one for one in nodes if one not in judged):
        yield skip("no active HCA port with a real rate on this node", node)

    expectations = _expected(ports, expect)
    comparable: dict[str, list[Rate]] = defaultdict(list)
    kinds: dict[str, set[float]] = defaultdict(set)
    compared: list[tuple[str, Hca, Rate]] = []
    for node, hca, port in ports:
        expectation = expectations.get((node, hca.hca_type or ""))
        if not port.rate_gbit_s:
            yield unknown(node, f"the rate of {port.name} could not be read")
        elif expectation is None:
            one = Rate(port.rate_gbit_s, port, hca.hca_type or "")
            kinds[one.kind].add(one.gbit_s)
            comparable[port.name].append(one)
            comparable[_card(hca)].append(one)
            compared.append((node, hca, one))
        elif port.rate_gbit_s < expectation.number:
            text, more = f"{port.rate_gbit_s:g} Gbit/s", port_evidence(hca, port)
            yield unlike_expected(expectation, node, text, f"rate of {port.name}", LOW, seen=more)
    typical = {key: _typical(group) for key, group in comparable.items()}
    for node, hca, one in compared:
        port = one.port
        most = typical[port.name]
        # Between two generations a port is held against its own kind, where that differs in itself.
        by_kind = not most.is_most and typical[_card(hca)].is_most and len(kinds[one.kind]) > 1
        if len(comparable[port.name]) == 1 or by_kind:
            most = typical[_card(hca)]
        if one.gbit_s < most.gbit_s:
            # Two generations in one cluster: what all cards of a kind have is no fault of one.
            if hca.hca_type and most.kind not in ("", hca.hca_type) and len(kinds[hca.hca_type]) == 1:
                yield _of_slower_kind(node, hca, port, most)
            else:
                end = cable((cablings or {}).get(node), [hca], port.name)
                yield _slow(node, hca, port, most, (nets or {}).get(node), end)


def _expected(
    ports: Sequence[tuple[str, Hca, HcaPort]], expect: Expectations | None
) -> dict[tuple[str, str], Expectation]:
    """What the user expects of the cards of a kind on a node."""
    if expect is None:
        return {}
    slowest: dict[str, dict[str, float]] = defaultdict(dict)
    for node, hca, port in ports:
        if port.rate_gbit_s:
            rates = slowest[hca.hca_type or ""]
            rates[node] = min(port.rate_gbit_s, rates.get(node, port.rate_gbit_s))
    return {
        (node, kind): expectation
        for kind, rates in slowest.items()
        for node, expectation in expect.for_values(
            "rdma.rate", {n: f"{r:g}" for n, r in rates.items()}, kind
        ).items()
    }


def _card(hca: Hca) -> str:
    return f"card {hca.board_id or hca.hca_type or hca.name}"  # no port is called so


def _typical(ports: Sequence[Rate]) -> Rate:
    """The commonest rate, and a port that has it. Not the highest: one 800G port among 400s is the odd one
    out. Without a majority, as between two nodes, the slower one is the suspect."""
    count = Counter(one.gbit_s for one in ports)
    found = max(ports, key=lambda one: (count[one.gbit_s], one.gbit_s))
    return found._replace(is_most=2 * count[found.gbit_s] > len(ports))


def _of_slower_kind(node: str, hca: Hca, port: HcaPort, most: Rate) -> Finding:
    now = port.rate_text or f"{port.rate_gbit_s:g} Gbit/s"
    who, say = ("most nodes", SLOWER_KIND) if most.is_most else ("others", SLOWER_KIND.but(title=KINDS))
    return say.warn(
        f"{port.name} of this {hca.hca_type} runs at {now}, as all of its kind; the same port of {who}, "
        f"of a {most.kind}, at {most.gbit_s:g} Gbit/s",
        at=node,
        observed=now,
        expected=PEERS(most.port.rate_text or f"{most.gbit_s:g} Gbit/s"),
        seen=port_evidence(hca, port),
    )


def _slow(
    node: str, hca: Hca, port: HcaPort, most: Rate, net: NetFacts | None, end: tuple[Evidence, ...]
) -> Finding:
    typical, fast = most.gbit_s, most.port
    if port.speed_is_unnamed and port.lanes and port.lanes == fast.lanes:
        speeds = [dev.speed_mbit_s or 0 for dev in net.netdevs if dev.name in hca.netdevs] if net else []
        true = next((f"; its interface says {speed / 1000:g} Gbit/s" for speed in speeds if speed > 0), "")
        say = UNNAMED.but(settle_by="mlxlink on the port shows the true rate").warn
        summary = f"prints {port.rate_gbit_s:g} Gbit/s, as kernels do that do not know its speed{true}"
        fix = "read the true rate from the card"
    else:
        narrow = port.lanes is not None and fast.lanes is not None and port.lanes < fast.lanes
        cause = LANES if narrow else LOW
        if not most.is_most:  # lanes tell by themselves which side lost some
            cause = LANES.but(confidence=LIKELY) if narrow else LOW.but(title=SLOWER, confidence=LIKELY)
        say, who = cause.fail, "most" if most.is_most else "other"
        how = f"with {port.lanes} of {fast.lanes} lanes" if narrow else f"at {port.rate_gbit_s:g} Gbit/s"
        summary = f"runs {how}, the same port of {who} nodes at {typical:g} Gbit/s"
        fix = "read the link's own report, then reseat or swap cable and transceiver"
    device = hca.name if is_plain_name(hca.name) else "mlx5_0"
    return say(
        f"{port.name} {summary}",
        at=node,
        observed=port.rate_text or f"{port.rate_gbit_s:g} Gbit/s",
        expected=PEERS(fast.rate_text or f"{typical:g} Gbit/s"),
        seen=(port_evidence(hca, port), *end),
        fixes=look(fix, READ.format(device, port.number), root=True),
    )
