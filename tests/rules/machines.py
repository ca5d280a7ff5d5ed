"""Nodes by their addresses, in the kernel's order."""

from netdoctor.facts.net import AddressRow, NetFacts
from tests.checks.build import loopback, netdev, row

NEW = (2, 30, 7)
OLD = (2, 27, 7)


def machine(*rows: AddressRow, down: tuple[str, ...] = ()) -> NetFacts:
    names = list(dict.fromkeys(one.ifname for one in rows if one.ifname != "lo"))
    return NetFacts(
        netdevs=(
            loopback(),
            *(netdev(name, i, running=name not in down) for i, name in enumerate(names, start=2)),
        ),
        addresses=rows,
    )


LO = row("lo", "127.0.0.1", 8, scope="host")
ETH0 = row("eth0", "10.0.0.1")
ETH1 = row("eth1", "10.1.0.1")
ETH10 = row("eth10", "10.2.0.1")
IB0 = row("ib0", "192.168.100.1")
DOCKER = row("docker0", "172.17.0.1", 16)
VIRBR = row("virbr0", "192.168.122.1")
TAIL = row("tailscale0", "100.64.0.1", 32)
ETH0_V6 = row("eth0", "fd00::1", 64)
ETH0_LL = row("eth0", "fe80::1", 64, scope="link")
LOM = row("lom1", "10.3.0.1")


def cluster(*extra: AddressRow, count: int = 3, first: bool = True) -> dict[str, NetFacts]:
    nets = {}
    for i in range(1, count + 1):
        own = (row("eth0", f"10.0.0.{i}"),)
        nets[f"n{i}"] = machine(LO, *((*extra, *own) if first else (*own, *extra)))
    return nets
