"""Facts of a healthy cluster, for tests to spoil: nodes n1, n2… at 10.0.0.1, 10.0.0.2… on eth0."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from netdoctor.facts.clock import ClockSample, TimeFacts
from netdoctor.facts.host import FileSystem, HostFacts, LimitFacts, Node, Session
from netdoctor.facts.net import (
    AddressRow,
    Lookup,
    MtuProbe,
    Netdev,
    NetFacts,
    PathMtus,
    PortMatrix,
    PortProbe,
    ResolveFacts,
    Route,
    RouteFacts,
    TestListener,
)
from netdoctor.facts.paths import Path, Paths, Use
from netdoctor.facts.places import Place, PlaceFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import Cause, Finding, Status, placed

GIB = 1024**3
MIB = 1024**2
RDZV = 29500
HIGH = 40211


def name(i: int) -> str:
    """Node id and hostname of node i, counted from 1."""
    return f"n{i}"


def address(i: int) -> str:
    return f"10.0.0.{i}"


def names(count: int) -> list[str]:
    return [name(i) for i in range(1, count + 1)]


def node(i: int = 1, **changes: Any) -> Node:
    return Node(**{"id": name(i), "host": name(i), "order": i - 1, **changes})


def nodes(count: int) -> dict[str, Node]:
    return {name(i): node(i) for i in range(1, count + 1)}


def session(i: int = 1, **changes: Any) -> Session:
    defaults: dict[str, Any] = {
        "outcome": "ok",
        "address": address(i),
        "user": "root",
        "python_version": "3.11.2",
        "login_ms": 80.0,
        "first_byte_ms": 40.0,
    }
    return Session(**{**defaults, **changes})


def host(i: int = 1, **changes: Any) -> HostFacts:
    defaults: dict[str, Any] = {
        "hostname": name(i),
        "fqdn": name(i),
        "machine_id": f"{i:032x}",
        "boot_id": f"boot-{i}",
        "os_name": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0-18-amd64",
        "arch": "x86_64",
        "user": "root",
        "uid": 0,
        "cpu_count": 64,
        "memory_total_bytes": 512 * GIB,
        "memory_available_bytes": 480 * GIB,
        "ssh_server_address": address(i),
    }
    return HostFacts(**{**defaults, **changes})


def hosts(count: int) -> dict[str, HostFacts]:
    return {name(i): host(i) for i in range(1, count + 1)}


def file_system(path: str = "/tmp", **changes: Any) -> FileSystem:
    defaults: dict[str, Any] = {"fs_type": "tmpfs", "total_bytes": 64 * GIB, "free_bytes": 60 * GIB}
    return FileSystem(**{"path": path, **defaults, **changes})


def limits(**changes: Any) -> LimitFacts:
    defaults: dict[str, Any] = {
        "memlock_soft_bytes": None,
        "memlock_hard_bytes": None,
        "nofile_soft": 1048576,
        "nofile_hard": 1048576,
        "stack_soft_bytes": 8 * MIB,
        "nproc_soft": None,
        "shm": file_system("/dev/shm"),
        "tmp": file_system("/tmp"),
    }
    return LimitFacts(**{**defaults, **changes})


def tuning(**changes: Any) -> TuningFacts:
    defaults: dict[str, Any] = {
        "product": "SYS-821GE-TNHR", "bios": "2.1", "boot": {"iommu": "pt"}, "cpus_present": 64,
        "cpus_online": 64, "cpus_allowed": 64, "smt": "off", "governor": "performance",
        "hugepages": "madvise",
        "clock_source": "tsc", "numa_nodes": 2, "uptime_s": 40 * 86400.0,
        "sysctls": {"kernel.numa_balancing": "1", "net.core.rmem_max": "134217728",
                    "net.ipv4.tcp_rmem": "4096 1 2"},
    }  # fmt: skip
    return TuningFacts(**{**defaults, **changes})


def tunings(count: int, **changes: Any) -> dict[str, TuningFacts]:
    return {name(i): tuning(**changes) for i in range(1, count + 1)}


def place(path: str = "/srv/train.py", role: str = "path", **changes: Any) -> Place:
    defaults: dict[str, Any] = {
        "kind": "directory", "fs_type": "ext4", "mount_point": "/", "source": "/dev/sda1", "inside": path,
        "writable": True, "total_bytes": 900 * GIB, "free_bytes": 500 * GIB, "inodes_total": 60_000_000,
        "inodes_free": 50_000_000,
    }  # fmt: skip
    if role == "path":
        defaults |= {"asked": path, "kind": "file", "device": "8:1", "inode": "77", "changed": "1",
                     "size_bytes": 4096, "digest": "aa"}  # fmt: skip
    return Place(**{"path": path, "role": role, **defaults, **changes})


def places(*found: Place) -> PlaceFacts:
    usual = (place("/tmp", "tmp"), place("/", "root"), place("/home/ml", "home"))
    return PlaceFacts(places=(*found, *usual), patience_s=4.0)


def netdev(ifname: str = "eth0", ifindex: int = 2, **changes: Any) -> Netdev:
    defaults: dict[str, Any] = {
        "name": ifname,
        "ifindex": ifindex,
        "up": True,
        "running": True,
        "loopback": False,
        "mtu": 1500,
        "operstate": "up",
        "carrier": True,
        "speed_mbit_s": 100_000,
        "kind": "physical",
    }
    return Netdev(**{**defaults, **changes})


def loopback() -> Netdev:
    return netdev("lo", 1, loopback=True, mtu=65536, speed_mbit_s=None, kind="loopback")


def row(ifname: str, ip: str, prefix_len: int = 24, **changes: Any) -> AddressRow:
    family = "inet6" if ":" in ip else "inet"
    defaults: dict[str, Any] = {"family": family, "prefix_len": prefix_len}
    return AddressRow(**{"ifname": ifname, "address": ip, **defaults, **changes})


def net(i: int = 1, **changes: Any) -> NetFacts:
    defaults: dict[str, Any] = {
        "netdevs": (loopback(), netdev()),
        "addresses": (row("lo", "127.0.0.1", 8, scope="host"), row("eth0", address(i))),
        "default_devs": ("eth0",),
    }
    return NetFacts(**{**defaults, **changes})


def nets(count: int) -> dict[str, NetFacts]:
    return {name(i): net(i) for i in range(1, count + 1)}


def lookup(what: str, *ips: str, **changes: Any) -> Lookup:
    return Lookup(**{"name": what, "addresses": ips, "elapsed_ms": 0.4, **changes})


def resolve(i: int = 1, count: int = 4, **changes: Any) -> ResolveFacts:
    defaults: dict[str, Any] = {
        "own": lookup(name(i), address(i)),
        "first_bindable": address(i),
        "peers": tuple(lookup(name(j), address(j)) for j in range(1, count + 1)),
    }
    return ResolveFacts(**{**defaults, **changes})


def resolves(count: int) -> dict[str, ResolveFacts]:
    return {name(i): resolve(i, count) for i in range(1, count + 1)}


def relook(facts: ResolveFacts, *found: Lookup) -> ResolveFacts:
    """`facts` with the lookups of these names replaced."""
    new = {one.name: one for one in found}
    return replace(facts, peers=tuple(new.get(one.name, one) for one in facts.peers))


def job(count: int = 4, **changes: Any) -> Job:
    defaults: dict[str, Any] = {
        "master_node": name(1),
        "data_addresses": {name(i): address(i) for i in range(1, count + 1)},
    }
    return Job(**{**defaults, **changes})


def routes(i: int, count: int, **changes: Route) -> RouteFacts:
    healthy = {
        name(j): Route(destination=address(j), source=address(i), dev="eth0")
        for j in range(1, count + 1)
        if j != i
    }
    return RouteFacts(routes={**healthy, **changes})


def all_routes(count: int) -> dict[str, RouteFacts]:
    return {name(i): routes(i, count) for i in range(1, count + 1)}


def second(count: int, *purposes: str) -> Paths:
    """Beside 10.0.0.0/24 a network on eth1, of `purposes`; the store's is the first node's alone."""
    wanted = purposes or ("NCCL socket 1",)
    uses = [
        Use(node=name(i), address=f"10.1.0.{i}", purpose=purpose, rule="test")
        for purpose in wanted
        for i in range(1, 2 if purpose == "store" else count + 1)
    ]
    here = {use.node: use.address for use in uses}
    more = [
        Use(node=n, address=a, purpose="NCCL socket 0", rule="test")
        for n, a in job(count).data_addresses.items()
    ]
    ends = {name(i): f"10.1.0.{i}" for i in range(1, count + 1)}
    further = Path(
        id="2",
        addresses=here,
        ifnames=dict.fromkeys(here, "eth1"),
        sources=ends,
        network="10.1.0.0/24",
        users=tuple({"store": "MASTER_ADDR", "gloo": "gloo"}.get(one, "NCCL") for one in wanted),
    )
    main = Path(id="main", addresses=job(count).data_addresses, ifnames=dict.fromkeys(ends, "eth0"))
    return Paths(paths=(main, further), uses=(*uses, *more))


def env(**variables: str) -> EnvFacts:
    return EnvFacts(variables={"PATH": "/usr/bin:/bin", **variables})


def probe(src: str, dst: str, port: int = RDZV, outcome: str = "open", **changes: Any) -> PortProbe:
    defaults: dict[str, Any] = {
        "address": f"10.0.0.{dst[1:]}",
        "purpose": "rendezvous" if port == RDZV else "ephemeral",
        "outcome": outcome,
    }
    return PortProbe(**{"src": src, "dst": dst, "port": port, **defaults, **changes})


def matrix(
    count: int,
    bad: dict[tuple[str, str], str] | None = None,
    *,
    bad_high: dict[tuple[str, str], str] | None = None,
    bad_rdzv: dict[tuple[str, str], str] | None = None,
    **changes: Any,
) -> PortMatrix:
    """A full matrix over both ports; `bad` (both ports) and the rest map (src, dst) to outcomes."""
    everyone = names(count)
    wrong = {
        RDZV: {**(bad or {}), **(bad_rdzv or {})},
        HIGH: {**(bad or {}), **(bad_high or {})},
    }
    probes = [
        probe(src, dst, port, wrong[port].get((src, dst), "open"))
        for src in everyone
        for dst in everyone
        if src != dst
        for port in (RDZV, HIGH)
    ]
    listeners = tuple(
        TestListener(
            node=one,
            address=f"10.0.0.{one[1:]}",
            port=port,
            purpose="rendezvous" if port == RDZV else "ephemeral",
        )
        for one in everyone
        for port in (RDZV, HIGH)
    )
    defaults: dict[str, Any] = {
        "probes": tuple(probes),
        "listeners": listeners,
        "possible": count * (count - 1),
    }
    return PortMatrix(**{**defaults, **changes})


def inbound(count: int, *blocked: str, outcome: str = "filtered") -> dict[tuple[str, str], str]:
    """Cells of a matrix in which `blocked` nodes let nothing in."""
    return {(src, dst): outcome for dst in blocked for src in names(count) if src != dst}


def outbound(count: int, *blocked: str, outcome: str = "filtered") -> dict[tuple[str, str], str]:
    """Cells of a matrix in which `blocked` nodes let nothing out."""
    return {(src, dst): outcome for src in blocked for dst in names(count) if src != dst}


def mtu_probe(src: str, dst: str, **changes: Any) -> MtuProbe:
    defaults: dict[str, Any] = {
        "address": f"10.0.0.{dst[1:]}",
        "dev": "eth0",
        "dev_mtu": 1500,
        "small_ok": True,
        "largest_ok": 1500,
        "outcome": "ok",
    }
    return MtuProbe(**{"src": src, "dst": dst, **defaults, **changes})


def path_mtus(count: int, bad: dict[tuple[str, str], dict[str, Any]] | None = None) -> PathMtus:
    return PathMtus(
        probes=tuple(
            mtu_probe(src, dst, **(bad or {}).get((src, dst), {}))
            for src in names(count)
            for dst in names(count)
            if src != dst
        )
    )


def clock(offset_s: float = 0.0, **changes: Any) -> ClockSample:
    defaults: dict[str, Any] = {"error_s": 0.0005, "round_trip_s": 0.001, "exchanges": 8}
    return ClockSample(**{"offset_s": offset_s, **defaults, **changes})


def clocks(*offsets_s: float) -> dict[str, ClockSample]:
    return {name(i): clock(offset) for i, offset in enumerate(offsets_s, start=1)}


def time_facts(**changes: Any) -> TimeFacts:
    defaults: dict[str, Any] = {
        "kernel_synchronized": True,
        "max_error_us": 20_000,
        "status_bits": 0x2001,
        "daemons": ("chronyd",),
    }
    return TimeFacts(**{**defaults, **changes})


def said(findings: Iterable[Finding], here: str = "n1") -> list[Finding]:
    """What a check says, with names where the engine puts them: of node n1, or of `cluster`."""
    return [placed(one, here) for one in findings]


def found(findings: Iterable[Finding], status: Status | None = None) -> dict[str, Finding]:
    """Findings by target, of one status or of any; the last one wins."""
    return {one.target: one for one in findings if status is None or one.status is status}


def causes(findings: Iterable[Finding]) -> dict[str, set[str]]:
    """Culprits by cause key."""
    result: dict[str, set[str]] = {}
    for one in findings:
        if one.cause is not None:
            result.setdefault(one.cause.key, set()).update(one.cause.culprits)
    return result


def cause(findings: Iterable[Finding], key: str) -> Cause:
    """The first cause hint with this key."""
    return next(one.cause for one in findings if one.cause is not None and one.cause.key == key)
