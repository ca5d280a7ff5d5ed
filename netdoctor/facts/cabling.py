"""What the ports of a node are connected to, and which nodes share a leaf switch."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class CabledPort:
    """A port, and what answers at the other end of its cable."""

    port: str  # an interface, ``eth1``, or an InfiniBand port, ``mlx5_0:1``
    switch: str  # its chassis id or GUID; another node's where no switch is between
    switch_name: str = ""  # the name that it gives itself
    at: str = ""  # its port: ``Ethernet1/7``, ``5``
    by: str = ""  # ``lldpd``, ``systemd-networkd``, ``smpquery``, ``rail=``

    @property
    def name(self) -> str:
        return self.switch_name or self.switch

    @property
    def where(self) -> str:
        """``leaf-3 port 5``"""
        return f"{self.name} port {self.at}" if self.at else self.name


@fact("cabling", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class CablingFacts:
    """Ports whose neighbour is known, by LLDP or a query over InfiniBand. unread: what might know more, and
    why it was not read."""

    ports: tuple[CabledPort, ...]
    unread: str = ""


def by_switches(links: Iterable[tuple[str, str, str]], titles: Mapping[str, str]) -> dict[str, str]:
    """The leaf of each host. links: (host, port, switch) of each port that is connected; titles: names that
    switches give themselves.

    Where each rail has a switch, hosts are of one leaf that share more than half of their switches: a link
    may be down. A switch counts the less, the more hosts are on it: one for management is everybody's. A
    leaf is named after the switch of its first host that fewest hosts are on.
    """
    often = Counter(titles.values())  # switches that nobody named have one name
    ports_of: dict[str, dict[str, str]] = {}
    for host, port, switch in links:
        ports_of.setdefault(host, {})[port] = switch
    hosts_on = Counter(switch for ports in ports_of.values() for switch in set(ports.values()))
    sizes: dict[str, float] = {}
    by_switch: dict[str, str] = {}
    by_host: dict[str, str] = {}
    by_set: dict[frozenset[str], str] = {}  # the leaf of hosts with exactly these switches
    names: Counter[str] = Counter()
    for host, ports in ports_of.items():
        if leaf := by_set.get(frozenset(ports.values()), ""):
            by_host[host] = leaf
            continue
        weights = {ports[port]: 1 / hosts_on[ports[port]] for port in sorted(ports, key=natural)}
        shared: dict[str, float] = {}
        for switch in weights.keys() & by_switch.keys():
            shared[by_switch[switch]] = shared.get(by_switch[switch], 0.0) + weights[switch]
        leaf = max(sorted(shared), key=lambda one: shared[one], default="")
        fresh = [switch for switch in weights if switch not in by_switch]
        if not leaf or (fresh and 2 * shared[leaf] <= min(sum(weights.values()), sizes[leaf])):
            first = min(fresh, key=lambda switch: hosts_on[switch])
            title = titles.get(first) or first
            leaf = _new_name(leaf_name(title if often[title] < 2 else first), names, sizes)
            sizes[leaf] = 0.0
        for switch in fresh:
            by_switch[switch] = leaf
            sizes[leaf] += weights[switch]
        by_host[host] = by_set[frozenset(ports.values())] = leaf
    return by_host


def _new_name(name: str, times: Counter[str], names: Collection[str]) -> str:
    """The name, or with a number where it is there already. times: how often it was wanted, counted here."""
    while True:
        times[name] += 1
        found = name if times[name] == 1 else f"{name}-{times[name]}"
        if found not in names:
            return found


def natural(port: str) -> list[tuple[int, str]]:
    """A key that sorts mlx5_10 behind mlx5_2."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", port)]


def leaf_name(name: str) -> str:
    """As a hosts file takes it."""
    # Of an OCID that is too long, the end tells it from others.
    return re.sub(r"[^A-Za-z0-9._:/-]+", "-", name)[-58:].lstrip("._:/-") or "leaf"
