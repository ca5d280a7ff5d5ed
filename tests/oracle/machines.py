"""Random machines and random settings of NCCL's and gloo's variables, leaning towards odd input."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

# fmt: off
NAMES = (  # noqa: SIM905  one name per word reads better
    "eth0 eth1 eth2 eth10 ens1f0np0 eno1 ib0 ib1 ibs5f1 docker0 docker_gwbridge virbr0 virbr1 br-1a2b"
    " lo1 lom1 tun0 tailscale0 wg0 bond0 podman0 usb0 x cni0 enx00e04c680001"
).split()
# fmt: on
HOSTS = {
    "node1": "10.1.0.9",
    "peer": "10.1.0.7",
    "six": "fd00:1::9",
    "far": "192.0.2.9",
    "up_score": "10.2.0.9",
    "a..b": "10.1.0.9",
}


@dataclass
class Machine:
    """Lines of `ip`, and what they ask for."""

    commands: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)


@dataclass
class Question:
    """One setting. login: of the session; job: wins over it; files: NCCL's, by path below the space's
    /etc."""

    login: dict[str, str]
    job: dict[str, str]
    files: dict[str, str]

    @property
    def environ(self) -> dict[str, str]:
        return self.login | self.job


def machine(rng: random.Random) -> Machine:
    made = Machine()
    if rng.random() < 0.9:
        made.commands.append("link set lo up")
    for number, name in enumerate(rng.sample(NAMES, rng.randint(1, 6))):
        _interface(rng, made, name, number)
    if rng.random() < 0.15:
        made.commands.append("addr add 10.1.0.250/32 dev lo")
    return made


def _interface(rng: random.Random, made: Machine, name: str, number: int) -> None:
    peer = f"p{number}"
    kind = rng.choice(["veth"] * 5 + ["bridge", "dummy", "macvlan", "vxlan", "ifb", "tun", "down"])
    if kind in ("veth", "down"):
        made.commands.append(f"link add {name} type veth peer name {peer}")
        if rng.random() < 0.85:
            made.commands.append(f"link set {peer} up")  # else no carrier
    elif kind == "macvlan":
        made.commands.append(f"link add {peer} type veth peer name q{number}")
        made.commands += [f"link set {peer} up", f"link set q{number} up"]
        made.commands.append(f"link add link {peer} name {name} type macvlan")
    elif kind == "vxlan":
        made.commands.append(f"link add {name} type vxlan id {number + 1} dstport 4789 local 127.0.0.1")
    elif kind == "tun":
        made.commands.append(f"tuntap add dev {name} mode tun")
    else:
        made.commands.append(f"link add {name} type {kind}")
    if rng.random() < 0.3:
        made.commands.append(f"link set {name} addrgenmode none")
    up = f"link set {name} up"
    early = rng.random() < 0.5
    if kind != "down" and early:
        made.commands.append(up)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        made.commands.append(_address(rng, made, name, number))
    if kind != "down" and not early:
        made.commands.append(up)
    made.names.append(name)


def _address(rng: random.Random, made: Machine, name: str, number: int) -> str:
    net = rng.randint(1, 4)
    draw = rng.random()
    if draw < 0.65:
        usual = ["10.{n}.0.{h}"] * 2
        host = rng.choice([*usual, "192.168.{n}.{h}", "172.17.0.{h}", "169.254.{n}.{h}"])
        address = host.format(n=net, h=rng.randint(1, 20) + 20 * number)
        label = ""
        if rng.random() < 0.3:
            label = f" label {name[:12]}{rng.choice([':1', ':x', 'x', '_b', ':1:2'])}"
        made.addresses.append(address)
        if rng.random() < 0.1:
            return f"addr add {address} peer 10.9.{net}.1/{rng.choice([24, 32])} dev {name}{label}"
        return f"addr add {address}/{rng.choice([8, 16, 20, 24, 24, 24, 30, 32])} dev {name}{label}"
    if draw < 0.9:
        address = f"fd00:{net}::{number + 1:x}"
        made.addresses.append(address)
        return f"-6 addr add {address}/{rng.choice([64, 64, 48, 128])} dev {name} nodad"
    address = f"fe80::{net}:{number + 1:x}"
    made.addresses.append(address)
    return f"-6 addr add {address}/64 dev {name} nodad"


# --- settings ------------------------------------------------------------------------------------


def question(rng: random.Random, made: Machine) -> Question:
    """A setting for this machine: mostly one or two variables, from one place or several."""
    login: dict[str, str] = {"PATH": "/usr/bin:/bin"}
    if rng.random() < 0.9:
        login["HOME"] = rng.choice(["/etc/home", "/etc/home", "/etc/other", ""])
    variables: dict[str, str] = {}
    if rng.random() < 0.7:
        variables["NCCL_SOCKET_IFNAME"] = ifname(rng, made)
    if rng.random() < 0.3:
        variables["NCCL_SOCKET_FAMILY"] = rng.choice(
            ["AF_INET", "AF_INET6", "AF_INET6", "4", "", "af_inet", "AF_INET "]
        )
    if rng.random() < 0.3:
        variables["NCCL_COMM_ID"] = comm_id(rng, made)
    job: dict[str, str] = {}
    lines: list[str] = []
    for name, value in variables.items():
        place = rng.choice(["job", "job", "login", "file"])
        if place == "job":
            job[name] = value
        elif place == "login":
            login[name] = value
        else:
            lines.append(f"{name}={value}")
    files: dict[str, str] = {}
    if lines or rng.random() < 0.25:
        files = _files(rng, made, lines, job, login)
    return Question(login, job, files)


def _files(
    rng: random.Random, made: Machine, lines: list[str], job: dict[str, str], login: dict[str, str]
) -> dict[str, str]:
    files: dict[str, str] = {}
    for path in rng.sample(("nccl.conf", "home/.nccl.conf", "pw/.nccl.conf", "mine.conf"), rng.randint(1, 3)):
        own = list(lines)
        if rng.random() < 0.5:
            own.append(f"NCCL_SOCKET_IFNAME={ifname(rng, made)}")
        own += rng.sample(
            ["# a comment", "#NCCL_SOCKET_IFNAME=lo", " NCCL_SOCKET_IFNAME=lo", "NCCL_SOCKET_IFNAME =lo",
             "NCCL_SOCKET_FAMILY=AF_INET6", "", "no equals", "=x", "NCCL_SOCKET_IFNAME=", "FOO=bar"],
            rng.randint(0, 3),
        )  # fmt: skip
        rng.shuffle(own)
        end = rng.choice(["\n", "\n", "\n", "\r\n"])
        files[path] = end.join(own) + rng.choice([end, ""])
    if rng.random() < 0.4:
        where = rng.choice([job, job, login])
        where["NCCL_CONF_FILE"] = rng.choice(["/etc/mine.conf", "/etc/mine.conf", "/etc/none.conf", ""])
    return files


def ifname(rng: random.Random, made: Machine) -> str:
    """A list for NCCL_SOCKET_IFNAME."""
    known = [*made.names, "lo", "p0", "p1"]
    words = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        word = rng.choice(known) if rng.random() < 0.75 else rng.choice(NAMES)
        draw = rng.random()
        if draw < 0.25:
            word = word[: rng.randint(1, len(word))]
        elif draw < 0.35:
            word += rng.choice([":1", ":", ":x", "::", ":1:2"])
        elif draw < 0.4:
            word = rng.choice([" ", "=", "^"]) + word
        elif draw < 0.43:
            word += " "
        words.append(word)
    head = rng.choice(["", "", "", "=", "=", "^", "^=", "=^", "^^"])
    odd = ["", "=", "^", "^=", ",", "^,", "=,", "e", ",,eth", "docker", "lo", "ib", "^docker,lo", "virbr"]
    return rng.choice(odd) if rng.random() < 0.12 else head + ",".join(words)


def comm_id(rng: random.Random, made: Machine) -> str:
    """A value for NCCL_COMM_ID: an address of the machine or near one, a name, or something odd."""
    port = rng.choice([":29500", ":0", ":1", "", ":", ":x"])
    draw = rng.random()
    if draw < 0.5 and made.addresses:
        address = rng.choice(made.addresses)
        if "." in address and rng.random() < 0.5:
            address = address.rsplit(".", 1)[0] + f".{rng.randint(1, 254)}"
        if ":" in address:
            zone = f"%{rng.choice([*made.names, 'none0'])}" if rng.random() < 0.4 else ""
            return f"[{address}{zone}]{port}"
        return address + port
    if draw < 0.7:
        return rng.choice(list(HOSTS)) + port
    return rng.choice(
        ["", " ", "x", ":", ":1", " 10.1.0.9:1", "10.1.0.9 :1", "10.1.0.9:1,10.2.0.9:1", ",10.1.0.9:1",
         ":5,10.1.0.9:1", "010.1.0.9:1",
         "[10.1.0.9]:1", "fd00:1::1", "fd00:1::1:29500", "[fd00:1::1", "[]:1", "[::]:1", "10.1:1",
         "0x0a010009:1", "10.1.0.999:1", "nowhere.invalid:1", "^10.1.0.9:1", "[fd00:1::9]",
         "[fd00:1::9]:x", "127.0.0.1:1", "[::1]:1", "0.0.0.0:1", "localhost:1", "10:1"]
    )  # fmt: skip


# --- gloo ----------------------------------------------------------------------------------------

OWN_NAMES = (
    "node1", "node1", "node1", "NODE1", "node1.cluster.local", "a..b", "under_score", "-dash", "x" * 63,
    "y" * 64, "10.1.0.9", "localhost", "1", "node1.", "n\u00f6de", "(none)",
)  # fmt: skip


def own_name(rng: random.Random, made: Machine) -> list[str]:
    """The host name, and lines of /etc/hosts that say what it means, or do not."""
    name = rng.choice(OWN_NAMES)
    lines = ["127.0.0.1 localhost"] if rng.random() < 0.8 else []
    if rng.random() < 0.4:
        lines.append("::1 localhost ip6-localhost")
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3])):
        odd = [
            "127.0.1.1",
            "127.0.0.1",
            "::1",
            "192.0.2.9",
            "0.0.0.0",
            "::",
            "fd99::1",
            "224.0.0.1",
            "10.1.0.255",
        ]
        known = [*made.addresses, "127.0.1.1"] if rng.random() < 0.7 else odd
        address = rng.choice(known or odd)
        if address.startswith("fe80") and rng.random() < 0.5 and made.names:
            address += "%" + rng.choice(made.names)
        spelled = rng.choice([name, name, name, name.lower(), f"{name}.x {name}", f"other {name}"])
        lines.append(f"{address} {spelled}")
    rng.shuffle(lines)
    return [name, *lines]


def gloo_ifname(rng: random.Random, made: Machine) -> str:
    """A list for GLOO_SOCKET_IFNAME."""
    known = [*made.names, "lo", "p0", "none0"]
    words = [rng.choice(known) for _ in range(rng.choice([1, 1, 1, 2]))]
    if rng.random() < 0.2:
        words[0] = rng.choice(["=", "^", " "]) + words[0]
    odd = ["", ",", "l", "lo,", ",lo", "lo,,lo"]
    return rng.choice(odd) if rng.random() < 0.15 else ",".join(words)
