"""Who answers for an address where two interfaces are in one subnet: netdoctor's rule against the kernel."""

import os
import random
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent.system import subnets
from netdoctor.facts.net import SharedAddress
from netdoctor.rules import arp
from tests.oracle import spaces

CASES = 60
SEED = 20263
PATIENCE_S, LONGER_S = 2.0, 0.02
PEER = "10.9.0.9"
ADDRESSES = {"eth0": "10.9.0.1", "eth1": "10.9.0.2"}
MACS = {"eth0": bytes.fromhex("020000000001"), "eth1": bytes.fromhex("020000000002")}
VALUES = {
    "rp_filter": (0, 1, 2),
    "arp_ignore": (0, 1, 2, 3, 4, 8),
    "arp_announce": (0, 2),
    "arp_filter": (0, 1),
}
# None, of each interface for itself, and of both for the second alone.
RULES: tuple[dict[str, str], ...] = ({}, {"eth0": "eth0", "eth1": "eth1"}, {"eth0": "eth1"}, {"eth1": "eth1"})


def settle(rng: random.Random) -> None:
    """Another machine: sysctls, and rules of policy routing."""
    for key, values in VALUES.items():
        for scope in ("all", *ADDRESSES):
            # 8 on all would leave nothing to tell apart.
            value = 0 if scope == "all" and rng.random() < 0.7 else rng.choice(values[:3])
            if scope != "all" and rng.random() < 0.2:
                value = rng.choice(values)
            Path(f"/proc/sys/net/ipv4/conf/{scope}/{key}").write_text(str(value))
    lines = ["rule flush", "rule add lookup main pref 32766"]
    for table, (dev, out) in enumerate(rng.choice(RULES).items(), 100):
        lines += [
            f"route replace 10.9.0.0/24 dev {out} table {table}",
            f"rule add from {ADDRESSES[dev]} lookup {table} pref {table}",
        ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def request(address: str, mac: bytes) -> bytes:
    """Who has `address`?"""
    ips = socket.inet_aton(PEER), socket.inet_aton(address)
    body = struct.pack(">HHBBH6s4s6s4s", 1, 0x800, 6, 4, 1, mac, ips[0], bytes(6), ips[1])
    return b"\xff" * 6 + mac + b"\x08\x06" + body


def echo(address: str, to: bytes, mac: bytes, number: int) -> bytes:
    """A ping to `address` that an interface gets which need not have it."""
    icmp = struct.pack(">BBHHH", 8, 0, 0, 77, number)
    icmp = icmp[:2] + struct.pack(">H", checksum(icmp)) + icmp[4:]
    ips = socket.inet_aton(PEER) + socket.inet_aton(address)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0) + ips
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    return to + mac + b"\x08\x00" + head + icmp


def heard(link: socket.socket, wanted: set[Any]) -> set[Any]:
    """(address, interface) for each ARP answer, and numbers of pings that were answered. Listens a while
    longer than until all has come that is wanted."""
    found: set[Any] = set()
    names = {mac: name for name, mac in MACS.items()}
    end, whole = time.monotonic() + PATIENCE_S, False
    while (now := time.monotonic()) < end:
        if not whole and wanted <= found:
            whole, end = True, now + LONGER_S
        link.settimeout(end - now)
        try:
            frame, about = link.recvfrom(2048)
        except TimeoutError:
            continue
        if about[2] == socket.PACKET_OUTGOING:
            continue
        if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2":
            found.add((socket.inet_ntoa(frame[28:32]), names.get(frame[22:28])))
        elif frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[34] == 0:
            found.add(struct.unpack(">H", frame[40:42])[0])
    return found


def compare(node: int, peer: int, cases: int) -> dict[str, Any]:
    """Ask the kernel about random machines. Returns what differs, and how many of each kind were met."""
    net = {pid: os.open(f"/proc/{pid}/ns/net", os.O_RDONLY) for pid in (node, peer)}

    def enter(pid: int) -> None:
        spaces._call("setns", net[pid], spaces.CLONE_NEWNET)

    rng, differences, met = random.Random(SEED), [], {"several": 0, "nobody": 0, "other": 0, "own": 0}
    enter(peer)
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    link.bind(("br0", 0))
    mac = link.getsockname()[4]
    rows = [(name, address, 24) for name, address in ADDRESSES.items()]
    for case in range(cases):
        enter(node)
        settle(rng)
        facts = [SharedAddress(**row) for row in subnets.shared("/", rows, True)]
        assert len(facts) == 2, facts
        assert all(map(arp.is_known, facts)), facts
        enter(peer)
        wanted: set[Any] = {(one.address, name) for one in facts for name in arp.answering(one, facts)}
        for one in facts:
            link.send(request(one.address, mac))
            for at in facts:
                number = case * 4 + facts.index(one) * 2 + facts.index(at)
                wanted |= {number} if arp.lets_in(one, at) else set()
                link.send(echo(one.address, MACS[at.ifname], mac, number))
            own = arp.answering(one, facts)
            kind = "several" if len(own) > 1 else "nobody" if not own else "own"
            met[kind if kind != "own" or own == (one.ifname,) else "other"] += 1
        found = heard(link, wanted)
        if found != wanted:
            differences.append(f"{facts}: said {sorted(map(str, wanted))}, are {sorted(map(str, found))}")
        if len(differences) == 3:
            break
    return {"differences": differences, "met": met}


def test_who_answers_and_who_lets_in() -> None:
    if why := spaces.refused():
        pytest.skip(why)
    with spaces.space("node1") as node, spaces.space("node2") as peer:
        lines = ["link add br0 type bridge forward_delay 0 mcast_snooping 0", f"addr add {PEER}/24 dev br0"]
        for name, mac in MACS.items():
            port, there = f"p{name}", ":".join(f"{byte:02x}" for byte in mac)
            lines += [
                f"link add {port} type veth peer name {name} address {there} netns {node.pid}",
                f"link set {port} master br0 up",
            ]
        peer.batch([*lines, "link set br0 up", "link set lo up"])
        node.batch(
            ["link set lo up"]
            + [f"addr add {address}/24 dev {name}" for name, address in ADDRESSES.items()]
            + [f"link set {name} up" for name in ADDRESSES]
        )
        said = spaces.forked(lambda: compare(node.pid, peer.pid, CASES))
    assert not said["differences"], "\n".join(said["differences"][:3])
    assert min(said["met"].values()) > 3, said["met"]
