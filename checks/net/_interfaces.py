"""Interfaces by their names, compared with what the user expects of them."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping

from netdoctor.checks._shared.parity import unlike_expected_by_name
from netdoctor.checks._shared.text import on_dev
from netdoctor.facts.expected import Expectations
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.model import Cause, Evidence, Finding, Status, seen

MTU, SPEED, DRIVER, NETWORK = "net.mtu.*", "net.speed.*", "net.driver.*", "net.network.*"
KEYS: dict[str, type] = {SPEED: float, DRIVER: str, NETWORK: str}
OTHER = Cause("net-not-as-typed", "an interface of {nodes} is not as expected", explains=False)
# What stays on a node that is well: others come and go with containers and tunnels.
_LASTING = ("physical", "bond", "ipoib", "vlan")

Read = Callable[[NetFacts, Netdev], str | None]


def against_expected(
    nets: Mapping[str, NetFacts],
    read: Read,
    noun: str,
    cause: Cause,
    key: str,
    expect: Expectations | None,
    least: bool = False,
) -> Iterator[Finding]:
    """Compare what nodes have on interfaces with what the user expects. read: None where it is not known."""
    if expect is None:
        return
    names = expect.names(key)
    have = {
        node: {
            dev.name: read(net, dev)
            for dev in net.netdevs
            if dev.name in names or (dev.kind in _LASTING and dev.up and read(net, dev))
        }
        for node, net in nets.items()
    }

    def source(node: str) -> Evidence:
        return seen("/sys/class/net", ", ".join(f"{k} {v}" for k, v in have[node].items()), "file")

    yield from unlike_expected_by_name(
        have, noun, cause, key, expect, status=Status.WARN, at_least=least, evidence_of=source
    )


def others_against_expected(
    nets: Mapping[str, NetFacts], slow: Cause, expect: Expectations | None
) -> Iterator[Finding]:
    """Compare the speed (Gbit/s, at least), driver and IPv4 network of interfaces with those expected."""
    yield from against_expected(nets, _speed, "speed (Gbit/s)", slow, SPEED, expect, least=True)
    yield from against_expected(nets, lambda _, dev: dev.driver, "driver", OTHER, DRIVER, expect)
    yield from against_expected(nets, _network, "network", OTHER, NETWORK, expect)


def _speed(_: NetFacts, dev: Netdev) -> str | None:
    return f"{dev.speed_mbit_s / 1000:g}" if dev.speed_mbit_s and dev.speed_mbit_s > 0 else None


def _network(net: NetFacts, dev: Netdev) -> str | None:
    """``10.20.0.0/24``; of several the first, and None without an IPv4 address."""
    for row in net.addresses:
        if row.ifname.partition(":")[0] == dev.name and row.family == "inet" and row.scope == "global":
            return str(ipaddress.ip_interface(f"{row.address}/{row.prefix_len}").network)
    return None


def unspecified(devs: Mapping[str, Netdev], key: str, expect: Expectations | None) -> Mapping[str, Netdev]:
    """The nodes of whose interface the user expects nothing; these are compared with each other."""
    names = expect.names(key) if expect else set()
    if expect is None or not names:
        return devs
    expectations = {name: expect.for_nodes(key, devs, name) for name in names}
    return {node: dev for node, dev in devs.items() if node not in expectations.get(dev.name, ())}


def nmcli_modify(ifname: str, text: str) -> str:
    """Changes the profile that NetworkManager uses for an interface; text: ``802-3-ethernet.mtu 9000``."""
    return on_dev(
        ifname, f'nmcli connection modify "$(nmcli -g GENERAL.CONNECTION device show {{0}})" {text}'
    )
