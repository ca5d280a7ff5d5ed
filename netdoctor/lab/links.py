"""Cables between nodes: veth pairs from a bridge in the fabric's namespace, one leg to this machine."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from netdoctor.lab import system
from netdoctor.lab.state import State
from netdoctor.lab.system import LabError

BRIDGES = ("br0", "br1")
PORTS = ("p", "d")
BASE_MTU = 1500
# For labs without --subnet; the network above each is that of --data-net.
SUBNETS = tuple(f"{b}.0" for b in (*(f"10.{n}" for n in range(77, 99, 2)), "172.20", "172.24", "172.28"))
# Entries in the kernel's table of neighbours, which all namespaces share.
NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")


def mac(state: State, node: str, net: int = 0) -> str:
    """Fixed per node: a rebuilt node with a new one would be unreachable until ARP caches expire."""
    digest = hashlib.blake2s(f"{state.subnet}/{net}/{node}".encode(), digest_size=5).digest()
    return "02:" + ":".join(f"{byte:02x}" for byte in digest)


def port(state: State, node: str, net: int = 0) -> str:
    """The fabric's end of a node's cable."""
    return f"{PORTS[net]}{state.index(node)}"


def leg_name(subnet: str) -> str:
    return f"lab{subnet}"


def networks(state: State) -> int:
    return 2 if state.data_net else 1


def take_free(state: State, subnets: Sequence[str]) -> None:
    """Give the lab the first of these that the machine uses for nothing. Raises LabError where none is."""
    refusals = []
    for state.subnet in subnets:
        state.leg = leg_name(state.subnet)
        try:
            return _check_free(state)
        except LabError as error:
            refusals.append(error)
    raise refusals[0]


def _check_free(state: State) -> None:
    """Refuse before anything is made when the machine already uses these addresses or names."""
    requested = [
        ipaddress.ip_network(f"{state.address(state.nodes[0], net)}/{state.prefix_length}", False)
        for net in range(networks(state))
    ]
    used: list[tuple[str, str]] = []
    for interface in json.loads(system.command(["ip", "-json", "address"]).stdout):
        name = interface.get("ifname", "?")
        if name == state.leg:
            raise LabError(
                f"interface {name} already exists: another lab uses {state.subnet}.0/24; "
                "end that one, or choose another --subnet"
            )
        for entry in interface.get("addr_info", []):
            if entry.get("family") == "inet":
                used.append(
                    (f"{entry['local']}/{entry['prefixlen']}", f"in use: {name} has {entry['local']}")
                )
    for route in json.loads(system.command(["ip", "-json", "-4", "route"]).stdout):
        network = route.get("dst", "default")
        if network != "default" and ipaddress.ip_network(network, False).prefixlen >= 8:
            used.append((network, f"routed on this machine ({network} on {route.get('dev', '?')})"))
    for network, how in used:
        for net in requested:
            if net.overlaps(ipaddress.ip_network(network, False)):
                raise LabError(f"{net} is already {how}; choose another --subnet")


def raise_neighbour_limit(state: State) -> None:
    """A full mesh of N nodes fills N*(N+1) entries of one table; record the old limit first."""
    if neighbours(state) <= 2048 or not NEIGHBOURS.exists():
        return
    now = NEIGHBOURS.read_text().strip()
    if int(now) < neighbours(state):
        state.sysctls[str(NEIGHBOURS)] = now


def neighbours(state: State) -> int:
    """Twice the entries that a full mesh of the nodes fills."""
    return 2 * len(state.nodes) * (len(state.nodes) + 1)


def apply_sysctls(state: State) -> None:
    """Only after the old values are on disk: `down` restores from there."""
    for path in state.sysctls:
        Path(path).write_text(f"{neighbours(state)}\n")


def in_fabric(state: State, argv: list[str], stdin: str = "", *, check: bool = True) -> None:
    pid = state.processes["fabric"].pid
    system.command(["nsenter", "-t", str(pid), "-n", "--", *argv], stdin=stdin, check=check)


def fabric_batch(state: State, lines: list[str]) -> None:
    """Commands of `ip` in the fabric."""
    in_fabric(state, ["ip", "-batch", "-"], "\n".join(lines) + "\n")


def connect(state: State) -> None:
    """Lay every cable: all of it in one `ip` batch inside the fabric, then the leg."""
    lines = ["link set lo up"]
    for net in range(networks(state)):
        lines += [
            f"link add {BRIDGES[net]} type bridge forward_delay 0 mcast_snooping 0",
            f"link set {BRIDGES[net]} up",
        ]
    for node in state.nodes:
        pid = state.processes[node].pid
        for net in range(networks(state)):
            end = port(state, node, net)
            lines += [
                f"link add {end} type veth peer name eth{net} address {mac(state, node, net)} netns {pid}",
                f"link set {end} master {BRIDGES[net]} up",
            ]
    fabric_batch(state, lines)

    fabric = state.processes["fabric"].pid
    leg = f"{state.leg} address {mac(state, 'control')} type veth peer name ctl netns {fabric}"
    system.command(["ip", "link", "add", *leg.split()])
    in_fabric(state, ["ip", "link", "set", "ctl", "master", BRIDGES[0], "up"])
    ipv6 = Path(f"/proc/sys/net/ipv6/conf/{state.leg}/disable_ipv6")
    if ipv6.exists():
        ipv6.write_text("1")
    lines = [
        f"address add {state.control_address()}/{state.prefix_length} dev {state.leg}",
        f"link set {state.leg} up",
    ]
    system.command(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")


def node_batch(state: State, node: str) -> str:
    """What a node itself runs once its cables are in."""
    lines = ["link set lo up"]
    for net in range(networks(state)):
        lines += [
            f"address add {state.address(node, net)}/{state.prefix_length} dev eth{net} brd +",
            f"link set eth{net} up",
        ]
    return "\n".join(lines) + "\n"


def remove_leg(state: State) -> None:
    """The other end may already be gone with its namespace, and the leg with it."""
    if state.leg:
        system.command(["ip", "link", "delete", state.leg], check=False)
