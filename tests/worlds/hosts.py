"""Hosts files as nodes have them: the own name anywhere, aliases, comments, CRLF, IPv6, garbage."""

import random
import re

OWN = "n2"
HEAD = "127.0.0.1{}localhost"
PEERS = ("10.0.0.1", "n1"), ("10.0.0.3", "n3")
ALIASES = (
    "n2.lan",
    "n2.example.com",
    "N2",
    "db",
    "slurm-ctl",
    "n22",
    "n2x",
    "xn2",
    "n2-ib",
    "a.n2",
    "n2.mgmt",
)
LINES = (
    "# n2 is ours",
    "#127.0.1.1 n2",
    "",
    "   ",
    "192.168.7.9 storage  # next to n2",
    "fe80::1%lo link-local",
    "ff02::1 ip6-allnodes",
    "::1 ip6-localhost ip6-loopback",
    "10.0.0.22 n22 n22.lan",
    "cafe",
    "10.0.0.77",
    "garbage n2",
    "# caf\xe9 \xd6\xd0",
    "10.9.9.9\tproxy\tproxy.lan",
    "0.0.0.0 ads.example.com",
    "255.255.255.255 broadcasthost",
)
FIRST = ("127.0.1.1", "127.0.0.1", "::1", "192.0.2.7", "192.168.7.2", "127.0.1.1", "  127.0.1.1")


def own_line(draw: random.Random) -> str:
    """A line that gives the own name a wrong address, with others beside it in any order."""
    names = [draw.choice(("n2", "n2", "n2", "N2")), *draw.sample(ALIASES, draw.choice((0, 0, 1, 2, 3)))]
    if draw.random() < 0.3:
        names += draw.choice((["localhost"], ["localhost", "localhost.localdomain", "localhost4"], ["n2"]))
    draw.shuffle(names)
    blank = draw.choice((" ", "\t", "   ", " \t"))
    comment = draw.choice(("", "", "", " # n2 by cloud-init", "#n2", " "))
    return draw.choice(FIRST) + blank + blank.join(names) + comment


def text(draw: random.Random) -> str:
    """A hosts file in which a peer may lack its address, or have a wrong one."""
    lines = [HEAD.format(draw.choice((" ", "\t")))] if draw.random() < 0.9 else []
    for address, name in PEERS:
        wrong = draw.choice(("", "10.0.0.99 {}", "10.0.0.99 {} spare", "127.0.0.1 {}", "10.0.0.98 x {}#{}"))
        line = wrong if draw.random() < 0.4 else address + " {}"
        lines.append(line.format(name, name))
    lines += draw.sample(LINES, draw.randrange(6))
    lines += [own_line(draw) for _ in range(draw.choice((0, 1, 1, 1, 2, 3)))]
    draw.shuffle(lines)
    end = draw.choice(("\n", "\n", "\n", "\r\n"))
    return end.join(lines) + draw.choice((end, end, ""))


def names_in(text: str) -> set[str]:
    """Every name that the file gives an address to, and some that it does not."""
    found = {"localhost", "no-such-name"}
    for line in re.split("[\r\n]+", text):
        found.update(line.partition("#")[0].split()[1:])
    return {name for name in found if name.isascii()}


def is_own(name: str) -> bool:
    """The machine's own name, or a longer form of it."""
    return name.lower().partition(".")[0] == OWN


def is_peer(name: str) -> bool:
    return name.lower() in ("n1", "n3")
