"""The interface that carries the job's traffic on each node."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.addresses import device, dialled, is_loopback, usable
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.paths import further_devices, on_path
from netdoctor.checks._shared.text import listing, on_dev
from netdoctor.checks.net._interfaces import KEYS, SPEED, others_against_expected, unspecified
from netdoctor.facts.expected import Expectations
from netdoctor.facts.net import AddressRow, Netdev, NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.software import Job
from netdoctor.model import (
    CONFIG,
    LIKELY,
    PEERS,
    SUSPECTED,
    Cause,
    Finding,
    Fix,
    look,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.text import LISTED

NO_ADDRESS = Cause("net-no-address", "{nodes} {has} no address that the other nodes can dial")
NOT_OWN = Cause("net-address-not-own", "{nodes} {is} reached through address translation (NAT)", LIKELY)
DOWN = Cause("net-down", "An interface of {nodes} is down")
NO_CARRIER = Cause("net-no-carrier", "An interface of {nodes} has no carrier")
SLOW = Cause("net-speed", "The link of {nodes} is slower than those of the other nodes")


@check(
    explains=[
        "net.route",
        "net.ports",
        "net.path-mtu",
        "net.loss",
        "net.resolve",
        "rdzv.*",
        "nccl.ifname",
        "gloo.ifname",
        "bw.*",
    ],
    source="https://kernel.org/doc/Documentation/ABI/testing/sysfs-class-net",
    expects=KEYS,
)
def net_interface(
    nets: Mapping[str, NetFacts], job: Job, paths: Paths | None = None, expect: Expectations | None = None
) -> Iterator[Finding]:
    """Each node has an interface for the job: up, with carrier and an address, as fast as its peers.

    Looks at:
        The interface with the address at which peers dial the node: flags, carrier and speed from
        /sys/class/net, addresses from getifaddrs(). Also interfaces that the other nodes have up.

    Matters because:
        A node without an address that peers can dial cannot join. One link at 1 or 10 Gbit/s slows down
        every rank, because a collective ends with its slowest member.

    Fix:
        Bring the link up, give it an address, or reseat the cable of the slow port.
    """
    yield from others_against_expected(nets, SLOW, expect)
    devs = {node: dev for node in nets if (dev := dialled(node, nets, job)) is not None}
    typical = majority({node: dev.name for node, dev in devs.items()}).value
    up = _up_with_address(nets.values())
    linked: dict[str, Netdev] = {}
    for node, net in nets.items():
        address, dev = job.data_addresses.get(node), devs.get(node)
        if is_loopback(address):
            yield skip("reached over loopback: there is no interface to judge", node)
            continue
        if not usable(net):
            yield _no_address(node, net, typical)
            continue
        if dev is not None and _is_down(dev):
            yield _down(node, dev, "carries the job's traffic", stops=True)
            continue
        if address is None:
            yield unknown(node, "it is not known at which of its addresses peers dial it")
        elif dev is None:
            have = _addresses(usable(net))
            text = "list the node with its own address: NCCL and gloo send that one to the others"
            yield NOT_OWN.warn(
                f"is dialled at {address}, but none of its interfaces has that address",
                at=node,
                observed=have,
                expected=CONFIG(address),
                seen=seen("ip address", have, "command"),
                fixes=run(text, effect="next launch"),
            )
        elif dev.kind == "physical" and dev.speed_mbit_s:
            linked[node] = dev
        for other in net.netdevs:
            used = dev is not None and other.name == dev.name
            # Down here, and up with an address on most other nodes.
            if not used and not other.loopback and _is_down(other) and up[other.name] * 2 > len(nets) - 1:
                is_typical = other.name == typical
                role = "carries the other nodes' traffic" if is_typical else "the other nodes have up"
                yield _down(node, other, role, stops=is_typical)
    yield from _slow(unspecified(linked, SPEED, expect))
    for path, further in further_devices(paths.further if paths else (), nets, devs):
        physical = {n: dev for n, dev in further.items() if dev.kind == "physical" and dev.speed_mbit_s}
        yield from (on_path(finding, path) for finding in _slow(unspecified(physical, SPEED, expect)))


def _is_down(dev: Netdev) -> bool:
    return not dev.up or not dev.running or dev.carrier is False


def _up_with_address(nets: Iterable[NetFacts]) -> Counter[str]:
    """On how many nodes each interface is."""
    found: Counter[str] = Counter()
    for net in nets:
        addressed = {row.ifname for row in usable(net)}
        found.update({dev.name for dev in net.netdevs if dev.name in addressed and not _is_down(dev)})
    return found


def _addresses(rows: Iterable[AddressRow], limit: int = LISTED) -> str:
    return listing((f"{row.ifname} {row.address}" for row in rows), limit)


def _no_address(node: str, net: NetFacts, typical: str | None) -> Finding:
    first = next((one.name for one in net.netdevs if not one.loopback), None)
    name = typical if typical and device(net, typical) else first
    shell = on_dev(name, "ip link set dev {0} up && ip address show dev {0}")
    return NO_ADDRESS.fail(
        "has no address that other nodes can dial",
        at=node,
        observed=_addresses(net.addresses) or "no address",
        expected="an address that is neither loopback nor link-local",
        seen=seen("ip address", _addresses(net.addresses, 8), "command"),
        fixes=run("bring the interface up and give it an address", shell, root=True),
    )


def _down(node: str, dev: Netdev, role: str, *, stops: bool) -> Finding:
    cause, state = (NO_CARRIER, "has no carrier") if dev.up else (DOWN, "is down")
    fix = Fix(text="check that the cable is plugged in and the switch port enabled at the same speed")
    if not dev.up:
        up, down = (on_dev(dev.name, f"ip link set dev {{0}} {word}") for word in ("up", "down"))
        fix = run("bring it up", up, undo=down, root=True, persistent=False)
    return (cause.fail if stops else cause.warn)(
        f"{dev.name}, which {role}, {state}",
        at=node,
        observed=f"operstate {dev.operstate}",
        expected=PEERS("up, with carrier"),
        seen=seen(f"/sys/class/net/{dev.name}/operstate", dev.operstate, "file"),
        fixes=fix,
    )


def _slow(devs: Mapping[str, Netdev]) -> Iterator[Finding]:
    speeds = {node: dev.speed_mbit_s or 0 for node, dev in devs.items()}
    found = majority(speeds)
    # Without a majority, as between two nodes, the slower ones are the suspects.
    typical = found.value or max(found.groups, default=0)
    who = "most nodes" if found.value else listing(found.groups.get(typical, ()), 3)
    for node, speed in speeds.items():
        if speed < typical:
            name = devs[node].name
            yield (SLOW if found.value else SLOW.but(confidence=SUSPECTED)).warn(
                f"{name} runs at {speed / 1000:g} Gbit/s, {who} at {typical / 1000:g}",
                at=node,
                observed=f"{speed / 1000:g} Gbit/s",
                expected=PEERS(f"{typical / 1000:g} Gbit/s"),
                seen=seen(f"/sys/class/net/{name}/speed", str(speed), "file"),
                fixes=look(
                    "see what was negotiated; reseat or swap the cable, or set the switch port",
                    on_dev(name, "ethtool {0}"),
                    root=True,
                ),
            )
