"""The interface that carries the job's traffic on each node."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._addresses import data_device, device, is_loopback, usable
from netdoctor.checks._majority import majority
from netdoctor.checks._words import is_ifname, listing
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    warn,
)


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
)
def net_interface(nets: Mapping[str, NetFacts], job: Job) -> Iterator[Finding]:
    """Each node has an interface for the job's traffic: up, with carrier, an address, and its peers' speed.

    Looks at:
        The interface that holds the address at which peers dial the node: flags, carrier and speed from
        /sys/class/net, addresses from getifaddrs(); and interfaces that the other nodes have up.

    Matters because:
        Without an address that peers can dial a node cannot join. One link that trained at 1 or 10 Gbit/s
        holds back every rank, because a collective ends with its slowest member.

    Fix:
        Bring the link up, give it an address, or reseat the cable of the slow port.
    """
    usual = majority(
        {
            node: dev.name
            for node, net in nets.items()
            if (dev := data_device(net, job.data_addresses.get(node))) is not None
        }
    ).value
    speeds: dict[str, tuple[str, int]] = {}
    for node, net in nets.items():
        address = job.data_addresses.get(node)
        if is_loopback(address):
            yield skip("reached over loopback: there is no interface to judge", node)
            continue
        if not usable(net):
            yield _no_address(node, net, usual)
            continue
        dev = data_device(net, address)
        if address is not None and dev is None:
            yield _not_own(node, net, address)
        if dev is not None:
            if _is_down(dev):
                yield _down(node, dev, fail, "carries the job's traffic")
                continue
            if dev.speed_mbit_s and dev.kind == "physical":
                speeds[node] = (dev.name, dev.speed_mbit_s)
        yield from _down_here_only(node, net, nets, dev, usual)
    yield from _slow(speeds)


def _is_down(dev: Netdev) -> bool:
    return not dev.up or not dev.running or dev.carrier is False


def _no_address(node: str, net: NetFacts, usual: str | None) -> Finding:
    dev = next((one for one in net.netdevs if not one.loopback), None)
    name = usual if usual and device(net, usual) else (dev.name if dev else None)
    commands = (
        (Command(run_on=node, shell=f"ip link set dev {name} up && ip address show dev {name}"),)
        if is_ifname(name)
        else ()
    )
    return fail(
        node,
        "has no address that other nodes can dial",
        observed=listing(f"{row.ifname} {row.address}" for row in net.addresses) or "no address",
        expected="an address that is neither loopback nor link-local",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(
            Evidence(
                kind="command",
                where=node,
                what="ip address",
                output=listing((f"{row.ifname} {row.address}" for row in net.addresses), 8),
            ),
        ),
        cause=CauseHint(
            key="net-no-address",
            title="{nodes} {has} no address that the other nodes can dial",
            culprits=(node,),
            fixes=(Fix(text="bring the interface up and give it an address", commands=commands, root=True),),
        ),
    )


def _not_own(node: str, net: NetFacts, address: str) -> Finding:
    own = listing(f"{row.ifname} {row.address}" for row in usable(net))
    return warn(
        node,
        f"is dialled at {address}, which none of its interfaces has",
        observed=own,
        expected=address,
        expected_from=ExpectedFrom.CONFIG,
        evidence=(Evidence(kind="command", where=node, what="ip address", output=own),),
        cause=CauseHint(
            key="net-address-not-own",
            title="{nodes} {is} reached through an address translation",
            culprits=(node,),
            confidence=Confidence.LIKELY,
            fixes=(
                Fix(
                    text="list the node by its own address: NCCL and gloo advertise that one to the others",
                    effect="next launch",
                ),
            ),
        ),
    )


def _down(node: str, dev: Netdev, say: object, role: str) -> Finding:
    state = "is down" if not dev.up else "has no carrier"
    finding = fail if say is fail else warn
    return finding(
        node,
        f"{dev.name}, which {role}, {state}",
        observed=f"operstate {dev.operstate}",
        expected="up, with carrier",
        expected_from=ExpectedFrom.PEERS,
        evidence=(
            Evidence(
                kind="file", where=node, what=f"/sys/class/net/{dev.name}/operstate", output=dev.operstate
            ),
        ),
        cause=CauseHint(
            key="net-down" if not dev.up else "net-no-carrier",
            title=f"An interface of {{nodes}} {state}",
            culprits=(node,),
            fixes=(_up(node, dev),),
        ),
    )


def _up(node: str, dev: Netdev) -> Fix:
    if dev.up:
        return Fix(text="see that the cable is in and the switch port enabled at the same speed")
    commands = (Command(run_on=node, shell=f"ip link set dev {dev.name} up"),) if is_ifname(dev.name) else ()
    return Fix(text="bring it up", commands=commands, root=True, persistent=False)


def _down_here_only(
    node: str, net: NetFacts, nets: Mapping[str, NetFacts], own: Netdev | None, usual: str | None
) -> Iterator[Finding]:
    """Interfaces that are down here, and up with an address on most other nodes."""
    others = [facts for peer, facts in nets.items() if peer != node]
    for dev in net.netdevs:
        if dev.loopback or (own is not None and dev.name == own.name) or not _is_down(dev):
            continue
        having = 0
        for facts in others:
            peer = device(facts, dev.name)
            if peer is not None and not _is_down(peer):
                having += any(row.ifname == dev.name for row in usable(facts))
        if having * 2 > len(others):
            role = "carries the other nodes' traffic" if dev.name == usual else "the other nodes have up"
            yield _down(node, dev, fail if dev.name == usual else warn, role)


def _slow(speeds: Mapping[str, tuple[str, int]]) -> Iterator[Finding]:
    found = majority({node: speed for node, (_, speed) in speeds.items()})
    if found.equal:
        return
    # On a tie, as between two nodes, the slower one is the suspect.
    usual = found.value if found.value is not None else max(found.groups)
    for node, (name, speed) in speeds.items():
        if speed >= usual:
            continue
        look = (Command(run_on=node, shell=f"ethtool {name}"),) if is_ifname(name) else ()
        yield warn(
            node,
            f"{name} runs at {speed / 1000:g} Gbit/s, most nodes at {usual / 1000:g}",
            observed=f"{speed / 1000:g} Gbit/s",
            expected=f"{usual / 1000:g} Gbit/s",
            expected_from=ExpectedFrom.PEERS,
            evidence=(
                Evidence(kind="file", where=node, what=f"/sys/class/net/{name}/speed", output=str(speed)),
            ),
            cause=CauseHint(
                key="net-speed",
                title="The link of {nodes} is slower than those of the other nodes",
                culprits=(node,),
                confidence=Confidence.CERTAIN if found.value is not None else Confidence.SUSPECTED,
                fixes=(
                    Fix(
                        text="see what was negotiated; reseat or swap the cable, or set the switch port",
                        commands=look,
                        root=True,
                    ),
                ),
            ),
        )
