"""Worlds for fixes that write files, set the kernel, or change a firewall: what a node may have there.

Each family draws what is there, takes the fix of the product, and says how it is asked whether it healed.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from netdoctor.checks._shared import env, limits
from netdoctor.checks.host.shm import _enlarge
from netdoctor.checks.net._firewall import allow
from netdoctor.checks.net._sysctl import set_to
from netdoctor.checks.net.route import _add
from netdoctor.checks.ssh._login import authorize, more_startups, remember
from netdoctor.facts.host import FileSystem, Session
from netdoctor.facts.net import FirewallFacts, Route
from netdoctor.model import JOB, Fix
from netdoctor.rules.variables import Setting, Source
from tests.checks.build import host, node

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class World:
    """What is drawn, and what a fix has to do to it.

    files, setup: how the node is. ask: shells whose outputs, and the files, say how it is. fix: made of the
    state before; its paste, its undo ("" for none). healed: whether the outputs are as they should be.
    ours: whether the fix may take this line out of this file. kept: outputs that may not change, by index.
    """

    files: Mapping[str, str]
    fix: Callable[[dict[str, Any]], tuple[str, str]]
    healed: Callable[[list[str]], bool]
    ask: tuple[str, ...] = ()
    setup: str = ":"
    ours: Callable[[str, str], bool] = lambda path, line: False
    kept: tuple[int, ...] = ()
    firewall: bool = False
    notes: dict[str, Any] = field(default_factory=dict)


def text(draw: random.Random, lines: Iterable[str]) -> str:
    """A file of these lines in any order, with or without a last newline."""
    drawn = list(lines)
    draw.shuffle(drawn)
    return "\n".join(drawn) + draw.choice(("\n", "\n", "")) if drawn else draw.choice(("", "\n"))


def some(draw: random.Random, lines: Iterable[str], most: int = 5) -> list[str]:
    drawn = list(lines)
    return draw.sample(drawn, draw.randint(0, min(most, len(drawn))))


def on(fix: Fix) -> tuple[str, str]:
    """The command that is pasted on the node, and its undo."""
    paste = " && ".join(one.shell for one in fix.commands if one.run_on != JOB)
    return paste, " && ".join(one.shell for one in fix.undo if one.run_on != JOB)


# --- variables ----------------------------------------------------------------------------------------------

NCCL_LINES = (
    "# NCCL_SOCKET_IFNAME=eth9", "NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME_=x", "NCCL_IB_HCA=mlx5_0,mlx5_1",
    "", "XNCCL_SOCKET_IFNAME=y", "NCCL_SOCKET_NTHREADS=4", "garbage", "NCCL_TOPO_FILE=/opt/topo.xml",
)  # fmt: skip
# As NCCL reads it: the first line of a name counts. [src/misc/param.cc setEnvFile]
FIRST = "awk -F= '/^[^#]/ && !s[$1]++ && /=/' /etc/nccl.conf | sort"
NAME = "NCCL_SOCKET_IFNAME"


def nccl_conf(draw: random.Random) -> World:
    """A variable that each node gets in /etc/nccl.conf, or that is changed or taken out there."""
    old = [f"{NAME}={value}" for value in draw.choices(("eth0", "=ib0", "^lo"), k=draw.choice((0, 1, 1, 2)))]
    content = text(draw, [*some(draw, NCCL_LINES), *old])
    value = draw.choice(("eth1", "=bond0", "^docker,lo"))
    kind = draw.choice(("each", "change", "remove")) if old else "each"

    def fix(_: dict[str, Any]) -> tuple[str, str]:
        if kind == "each":
            return on(env.each_its_own({"n1": value}, NAME, "/etc/nccl.conf", text="x"))
        first = next(line for line in content.split("\n") if line.startswith(f"{NAME}="))
        setting = Setting(NAME, first.partition("=")[2], "/etc/nccl.conf", Source.FILE)
        (only,) = env.change(setting, value if kind == "change" else None)
        return on(only)

    wanted = [] if kind == "remove" else [f"{NAME}={value}"]
    return World(
        files={"/etc/nccl.conf": content} if content or draw.random() < 0.5 or old else {},
        ask=(
            f"touch -a /etc/nccl.conf 2>/dev/null; {FIRST} | grep ^{NAME}= || :",
            f"{FIRST} | grep -v ^{NAME}= || :",
        ),
        fix=fix,
        healed=lambda said: said[0].split() == wanted,
        ours=lambda path, line: line.startswith(f"{NAME}="),
        kept=(1,),
    )


ENVIRONMENT = (
    'PATH="/usr/bin:/bin"', "LANG=C.UTF-8", "# GLOO_SOCKET_IFNAME=eth0", "", "HTTP_PROXY=http://p:1",
    "GLOO_SOCKET_IFNAME_OLD=x", 'EDITOR="vi"',
)  # fmt: skip


def environment(draw: random.Random) -> World:
    """A variable that each node gets in /etc/environment; PAM reads it."""
    name = "GLOO_SOCKET_IFNAME"
    old = [f"{name}={value}" for value in draw.choices(("eth0", '"eth0"'), k=draw.choice((0, 1, 1, 2)))]
    asked = "env -i su -s /bin/sh nobody -c 'env | grep {} | sort' 2>/dev/null || :"
    return World(
        files={"/etc/environment": text(draw, [*some(draw, ENVIRONMENT), *old])},
        ask=(asked.format(f"^{name}="), asked.format(f"-v ^{name}=")),
        fix=lambda _: on(env.each_its_own({"n1": "eth1"}, name, "/etc/environment", text="x")),
        healed=lambda said: said[0].split() == [f"{name}=eth1"],
        ours=lambda path, line: line.startswith(f"{name}="),
        kept=(1,),
    )


# --- limits, sysctl, shared memory --------------------------------------------------------------------------

LIMITS = (
    "* soft memlock 64", "* hard memlock 64", "* - memlock 1024", "root - memlock 64", "@adm - memlock 64",
    "daemon hard memlock 128", "* - nofile 65536", "# * - memlock 4", "* soft core 0",
    "@users - nproc 4000", "root hard nofile 100000",
)  # fmt: skip
LIMIT_FILES = (
    "/etc/security/limits.conf", "/etc/security/limits.d/20-nproc.conf",
    "/etc/security/limits.d/90-memlock.conf", "/etc/security/limits.d/95-site.conf",
    "/etc/security/limits.d/99-cluster.conf",
)  # fmt: skip


def memlock(draw: random.Random) -> World:
    """Locked memory without limit for logins; PAM reads it."""
    files = {path: text(draw, some(draw, LIMITS, 4)) for path in draw.sample(LIMIT_FILES, draw.randint(0, 3))}
    files["/etc/ssh/sshd_config"] = "UsePAM yes\n"
    session = Session(outcome="ok", transport="ssh", user="daemon")
    ask = [
        f"su -s /bin/sh {user} -c 'ulimit -H{what}; ulimit -S{what}'"
        for what in "ln"
        for user in ("daemon", "root")
    ]
    return World(
        files=files,
        ask=tuple(ask),
        fix=lambda _: on(limits.raise_limit(host(), "memlock", "4096", "", session)[0]),
        healed=lambda said: said[0].split() == said[1].split() == ["4096"] * 2,
        kept=(2, 3),
    )


SYSCTLS = (
    "net.core.somaxconn = 128", "net.core.somaxconn=128", "net/core/somaxconn=64",
    "-net.core.somaxconn = 512", "# net.core.somaxconn = 1", "; x", "net.ipv4.ip_forward = 0", "",
)  # fmt: skip
SYSCTL_FILES = (
    "/etc/sysctl.conf", "/etc/sysctl.d/10-network.conf", "/etc/sysctl.d/90-netdoctor-old.conf",
    "/etc/sysctl.d/95-tuning.conf", "/etc/sysctl.d/99-site.conf",
)  # fmt: skip
BOOT = (
    "sysctl -qw net.core.somaxconn=128; /lib/systemd/systemd-sysctl 2>/dev/null; sysctl -n net.core.somaxconn"
)


def sysctl(draw: random.Random) -> World:
    """A setting of the kernel from each boot on."""
    files = {
        path: text(draw, some(draw, SYSCTLS, 3)) for path in draw.sample(SYSCTL_FILES, draw.randint(0, 3))
    }
    if draw.random() < 0.5:
        files["/etc/sysctl.d/99-sysctl.conf"] = files.get("/etc/sysctl.conf", "")
    return World(
        files=files,
        setup="mkdir -p /etc/sysctl.d",
        ask=(BOOT,),
        fix=lambda _: on(set_to("x", {"net/core/somaxconn": (4096, 128)}, "accept-queue")[1]),
        healed=lambda said: said[0].split() == ["4096"],
    )


FSTAB = (
    "UUID=ab12 / ext4 defaults 0 1", "/dev/sdb1\t/data\txfs\tnoatime\t0 0",
    "# tmpfs /dev/shm tmpfs size=1m 0 0", "tmpfs /tmp tmpfs size=2g 0 0",
    "nfs:/home /home nfs4 rw,hard 0 0", "", "/data/shm /srv/dev/shm none bind 0 0",
    "tmpfs /dev/shm2 tmpfs size=1g 0 0",
)  # fmt: skip
SHM = (
    "tmpfs /dev/shm tmpfs defaults,size=1g 0 0",
    "tmpfs\t/dev/shm\ttmpfs\trw,nosuid,size=64m,mode=1777\t0\t0", "none /dev/shm tmpfs noexec 0 0 # by us",
    "  shm /dev/shm tmpfs size=50% 0 0",
)  # fmt: skip


def shm(draw: random.Random) -> World:
    """/dev/shm by its line in fstab."""
    content = text(draw, [*some(draw, FSTAB), *draw.sample(SHM, draw.choice((0, 1, 1, 2)))])
    place = FileSystem(
        path="/dev/shm", fs_type="tmpfs", is_mount=True, total_bytes=64 << 20, free_bytes=64 << 20
    )
    small = host(memory_total_bytes=GIB // 2)
    return World(
        files={"/etc/fstab": content},
        setup="mount -o remount,size=64m /dev/shm",
        ask=(
            "df -m --output=size /dev/shm | tail -n 1",
            "findmnt --fstab -rn -o TARGET,OPTIONS | grep -vx '/dev/shm .*'",
        ),
        fix=lambda _: on(_enlarge(small, place, 128 << 20)[1]),
        healed=lambda said: said[0].split() == ["256"],
        ours=lambda path, line: line.partition("#")[0].split()[1:2] == ["/dev/shm"],
        kept=(1,),
    )


# --- SSH ----------------------------------------------------------------------------------------------------

SSHD = (
    "PermitRootLogin yes", "MaxStartups 10:30:100", "maxstartups 5", "#MaxStartups 10", "UsePAM yes",
    "X11Forwarding no", "ClientAliveInterval 30", "", "AcceptEnv LANG LC_*",
)  # fmt: skip
DROP_INS = ("/etc/ssh/sshd_config.d/50-cloud-init.conf", "/etc/ssh/sshd_config.d/99-zz.conf")
INCLUDE = "Include /etc/ssh/sshd_config.d/*.conf"


def startups(draw: random.Random) -> World:
    """More logins at once; sshd itself says what it reads."""
    lines = some(draw, SSHD)
    draw.shuffle(lines)
    lines.insert(draw.randint(0, len(lines)), INCLUDE)
    if draw.random() < 0.4:
        lines += ["Match User backup", "    X11Forwarding yes"]
    files = {"/etc/ssh/sshd_config": "\n".join(lines) + draw.choice(("\n", ""))}
    files |= {path: text(draw, some(draw, SSHD[:4], 2)) for path in draw.sample(DROP_INS, draw.randint(0, 2))}
    return World(
        files=files,
        setup="mkdir -p /etc/ssh/sshd_config.d",
        ask=("sshd -T | grep -i ^maxstartups", "sshd -T | grep -vi ^maxstartups"),
        fix=lambda _: more_startups(),
        healed=lambda said: said[0].split() == ["maxstartups", "100:30:200"],
        ours=lambda path, line: line.strip().lower().startswith("maxstartups"),
        kept=(1,),
    )


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{}"
BODIES = (
    "OMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl", "Jx3sSTtNmZ1WMUUbeZB9S1CzcPrPPxBq1Kb9w3GJmCp",
    "HbqsXyqYgOJ4oCcBZ5yP3m7J1nqk2s0mWg4o9n8T6fLx",
)  # fmt: skip


def authorized(draw: random.Random) -> World:
    """The offered key beside those that are let in."""
    others = [
        KEY.format(body) + draw.choice(("", " alice@laptop", " # x")) for body in some(draw, BODIES[1:])
    ]
    lines = [*others, *some(draw, ("# keys", "", 'from="10.0.0.0/8" ' + KEY.format(BODIES[1])), 2)]
    session = Session(outcome="auth", transport="ssh", user="root", offered=KEY.format(BODIES[0]))
    path = "/root/.ssh/authorized_keys"
    count = f"[ ! -e {path} ] || ssh-keygen -lf {path} 2>/dev/null"
    return World(
        files={path: text(draw, lines)} if lines or draw.random() < 0.5 else {},
        ask=(f"{count} | grep -c . || :", f"grep -cF '{BODIES[0]}' {path} 2>/dev/null || :"),
        fix=lambda _: (authorize(session), ""),
        healed=lambda said: said[1].split() == ["1"],
        notes={"more": 1},
    )


def known(draw: random.Random) -> World:
    """The key that the server showed, in known_hosts; ssh-keygen says what is there."""
    others = [
        f"{host} {KEY.format(body)}"
        for host, body in zip(("n2", "n3,10.0.0.3", "[n4]:2222"), BODIES, strict=True)
    ]
    path = "/root/.ssh/known_hosts"
    session = Session(
        outcome="host_key_unknown",
        transport="ssh",
        known_hosts=path,
        known_as="n1",
        host_key=KEY.format(BODIES[0]),
    )
    look = f"ssh-keygen -F {{}} -f {path} 2>/dev/null || :"
    lines = [*some(draw, others), *some(draw, ("# ours", "", "n5 ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ"), 2)]
    return World(
        files={path: text(draw, lines)} if lines or draw.random() < 0.5 else {},
        setup="mkdir -p /root/.ssh",
        ask=(look.format("n1"), "; ".join(map(look.format, ("n2", "n3", "[n4]:2222")))),
        fix=lambda _: (remember(node(), session), ""),
        healed=lambda said: KEY.format(BODIES[0]) in said[0],
    )


# --- firewall and routes ------------------------------------------------------------------------------------

PROBE = """python3 - <<'E'
import ctypes, os, socket
servers, found = [], []
for port in (22, 29500, 45000):
    servers.append(socket.create_server(("10.0.0.2", port)))
assert not ctypes.CDLL(None).setns(os.open("/run/netns/peer", os.O_RDONLY), 0x40000000)
for source in ("10.0.0.1", "10.0.0.3", "172.16.0.9"):
    for port in (22, 29500, 45000):
        with socket.socket() as client:
            client.bind((source, 0)); client.settimeout(0.05)
            found.append("ok" if not client.connect_ex(("10.0.0.2", port)) else "no")
print(*found)
E"""
NFT_RULES = (
    "ct state established,related accept", "tcp dport 22 accept", "tcp dport { 22, 80, 443 } accept",
    "ip saddr 10.9.0.0/16 accept", "ip saddr @friends accept", "tcp dport vmap { 22 : accept, 25 : drop }",
    "counter", "ip saddr 172.16.0.9 tcp dport 29500 reject", "tcp dport 29500-29600 drop",
    "ip protocol icmp accept", 'tcp dport 45000 drop comment "site"', "jump site",
    'tcp dport 8080 log prefix "x" accept',
)  # fmt: skip


FRIENDS = "  set friends { type ipv4_addr; flags interval; elements = { 10.9.1.1 } }"


def nft(draw: random.Random) -> World:
    """Peers let in before the rule that stops them: now, and in the file that is loaded at boot."""
    tables = []
    for number in range(draw.choice((1, 1, 2))):
        family = draw.choice(("inet", "ip"))
        rules = some(draw, NFT_RULES, 4)
        policy = draw.choice(("accept", "drop", "drop"))
        if policy == "accept":
            rules.append(
                draw.choice(("tcp dport 29500 drop", "meta l4proto tcp drop", "tcp dport > 1024 drop"))
            )
        priority = draw.choice((0, -10, 10)) + number
        hook = f"type filter hook input priority {priority}; policy {policy};"
        tables += [
            f"table {family} t{number} {{", FRIENDS,
            "  chain site { tcp dport 9999 accept; }", f"  chain input {{ {hook}",
            *(f"    {rule}" for rule in rules), "  }", "}",
        ]  # fmt: skip
    content = "#!/usr/sbin/nft -f\nflush ruleset\n" + "\n".join(tables) + draw.choice(("\n", "\n", ""))
    lasting = draw.random() < 0.5

    def fix(state: dict[str, Any]) -> tuple[str, str]:
        facts = msgspec.convert(state["firewall"], type=FirewallFacts)
        fixes = allow("n2", facts, ["10.0.0.1", "10.0.0.3"], inbound=True)
        assert fixes, "a firewall that stops peers has no fix"
        return on(fixes[1 if lasting else 0])

    now = "sed 's/# handle.*//' | grep -v netdoctor"
    boot = "nft -f /etc/nftables.conf && " if lasting else ""
    return World(
        files={"/etc/nftables.conf": content},
        setup="ip route replace 10.0.0.0/24 dev eth0 src 10.0.0.2; ip route replace 172.16.0.0/24 dev eth0;"
        " nft -f /etc/nftables.conf",
        ask=(f"{boot}{PROBE}", f"nft -s list ruleset | {now}"),
        fix=fix,
        healed=lambda said: said[0].split()[:6] == ["ok"] * 6,
        kept=(1,),
        firewall=True,
    )


ROUTES = (
    "ip route add 10.7.0.0/16 dev eth0", "ip route add 10.7.3.0/24 via 10.1.0.7",
    "ip route add default via 10.1.0.1", "ip route add blackhole 10.7.9.0/24",
    "ip route add unreachable 10.7.4.4", "ip route add 10.7.4.0/24 via 10.1.0.9",
    "ip route add 10.7.4.4 via 10.1.0.5",
)  # fmt: skip


def route(draw: random.Random) -> World:
    """A route to one peer."""
    lines = some(draw, ROUTES, 4)
    if sum("10.7.4.4" in line.split() for line in lines) > 1:
        lines = lines[:1]
    others = "10.7.0.1 10.7.3.3 10.7.9.9 10.7.4.5 192.0.2.1"
    get = f"for a in {others}; do ip route get $a 2>&1 | sed 's/ uid.*//'; done; :"
    peer = Route(destination="10.7.4.4", dev=None, error="unreachable")
    return World(
        files={},
        setup="ip route flush root 0/0 2>/dev/null || :; ip route add 10.1.0.0/24 dev eth0 src 10.1.0.2; "
        + "; ".join(lines),
        ask=("ip route get 10.7.4.4 2>&1 | head -n 1; :", get, "ip route show"),
        fix=lambda _: on(_add("x", peer, "eth0")),
        healed=lambda said: said[0].startswith("10.7.4.4 dev eth0 "),
        kept=(1,),
    )


FAMILIES: dict[str, Callable[[random.Random], World]] = {
    one.__name__: one
    for one in (nccl_conf, environment, memlock, sysctl, shm, startups, authorized, known, nft, route)
}
