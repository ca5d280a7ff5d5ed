"""Every group, decoded into its fact type: live under every interpreter, and from recorded trees."""

import importlib
import json
import os
import pkgutil
import platform
import random
import socket
import struct
import threading
import time
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.utils import canonicalize_name

from netdoctor import facts
from netdoctor.agent import runtime
from netdoctor.agent.facts import counters as facts_counters
from netdoctor.agent.facts import env as facts_env
from netdoctor.agent.facts import firewall as facts_firewall
from netdoctor.agent.facts import gpu as facts_gpu
from netdoctor.agent.facts import host as facts_host
from netdoctor.agent.facts import kernel_log as facts_kernel_log
from netdoctor.agent.facts import launch as facts_launch
from netdoctor.agent.facts import limits as facts_limits
from netdoctor.agent.facts import nccl_answer as facts_nccl_answer
from netdoctor.agent.facts import net as facts_net
from netdoctor.agent.facts import places as facts_places
from netdoctor.agent.facts import port_holder as facts_port_holder
from netdoctor.agent.facts import ray as facts_ray
from netdoctor.agent.facts import rdma as facts_rdma
from netdoctor.agent.facts import resolve as facts_resolve
from netdoctor.agent.facts import software as facts_software
from netdoctor.agent.facts import time as facts_time
from netdoctor.agent.facts import tuning as facts_tuning
from netdoctor.agent.operations import spawn as op_spawn
from netdoctor.agent.system import aside, dists, files, libs, mounts, nvml, procs, pythons, subnets
from netdoctor.facts import FACT_TYPES
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.clock import ChronyTracking, TimeReport
from netdoctor.facts.counters import CounterFacts
from netdoctor.facts.gpu import GpuFacts, KernelLog
from netdoctor.facts.host import HostFacts, LimitFacts
from netdoctor.facts.launching import LaunchFacts
from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.places import Place, PlaceFacts
from netdoctor.facts.ray import RayFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import ConfFile, EnvFacts, SoftwareFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.rules.packages import applies, applies_to, fits, requirement
from netdoctor.rules.packages import environment as environment_of
from netdoctor.transport import bundle
from tests.agent import harness, trees
from tests.agent.test_bootstrap import SUPPORTED, python_or_skip
from tests.strangers import strangers

TYPES = {info.group: cls for cls, info in FACT_TYPES.items()}


def groups() -> dict[str, dict[str, Any]]:
    return {
        "host": {},
        "counters": {},
        "limits": {},
        "net": {},
        "resolve": {"names": ["localhost", "no-such.invalid", "a..b", ""]},
        "routes": {"destinations": {"a": "127.0.0.1", "b": "192.0.2.200", "c": "x; rm"}},
        "firewall": {},
        "time": {},
        "software": {"packages": ["pip", "No_such.Package"]},
        "env": {},
        "gpu": {},
        "accelerators": {},
        "rdma": {},
        "port_holder": {"port": 29500},
        "places": {"paths": ["/etc/hostname", "~"]},
        "launch": {"launcher": "pdsh", "image": "pytorch"},
        "tuning": {},
    }


@pytest.mark.interpreters
@pytest.mark.parametrize("version", SUPPORTED)
def test_every_group_decodes(version: str) -> None:
    with harness.agent(python_or_skip(version), provide=True) as agent:
        reply = agent.facts(**groups())
    timings = reply.pop("timings_ms")
    assert set(timings) == set(reply) == set(groups())
    for group, entry in reply.items():
        assert "value" in entry, (group, entry)
        fact = msgspec.convert(entry["value"], type=TYPES[group])
        assert set(entry["value"]) <= set(fact.__dataclass_fields__), group
    msgspec.convert(reply["accelerators"]["value"], type=AcceleratorFacts)
    launch = msgspec.convert(reply["launch"]["value"], type=LaunchFacts)
    assert [one.name for one in launch.programs] == ["pdsh"]
    software = msgspec.convert(reply["software"]["value"], type=SoftwareFacts)
    assert software.version.startswith(version + ".")
    assert software.packages["No_such.Package"] is None
    assert software.packages["pip"]


def test_passive_facts_are_cheap() -> None:
    with harness.agent() as agent:
        agent.facts(**groups())
        stat = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{agent.process.pid}/status").read_text()
    peak_kib = int(status.split("VmHWM:")[1].split()[0])
    assert (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK") < 1.0
    assert peak_kib < 50 * 1024


# --- host, limits, net ------------------------------------------------------------------------------------


def host(tmp_path: Path, content: dict[str, Any]) -> HostFacts:
    return msgspec.convert(facts_host.collect({}, trees.make(tmp_path, content)), type=HostFacts)


def test_host_of_an_aws_node_in_the_lab(tmp_path: Path) -> None:
    fact = host(
        tmp_path,
        {
            "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n',
            "/etc/machine-id": "3d12\n",
            "/proc/meminfo": "MemTotal:       24683116 kB\nMemAvailable:   24302628 kB\n",
            "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
            "/run/netdoctor-lab.json": '{"lab": true, "fake": ["hca", "gpu"]}',
            "/proc/1/cgroup": "0::/\n",
        },
    )
    assert (fact.os_name, fact.cloud, fact.container) == ("Ubuntu 22.04.4 LTS", "aws", None)
    assert fact.memory_total_bytes == 24683116 * 1024
    assert (fact.shares_machine, fact.pretended) == (True, ("hca", "gpu"))


@pytest.mark.parametrize("lab", ["", "{", "[]", "null", '{"fake": 5}', "[" * 100000])
def test_damaged_lab_file_is_survived(tmp_path: Path, lab: str) -> None:
    assert host(tmp_path, {"/run/netdoctor-lab.json": lab}).pretended == ()


def own_root(root: str) -> dict[str, str]:
    """A /proc in which the kernel's threads show, as in a virtual machine, or with --pid=host."""
    return {"/proc/2/comm": "kthreadd\n", "/proc/self/mountinfo": root + "\n"}


@pytest.mark.parametrize(
    ("content", "container"),
    [
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": ""}, "podman"),
        ({"/proc/1/environ": b"PATH=/x\0container=lxc\0"}, "lxc"),
        ({"/var/run/secrets/kubernetes.io/serviceaccount/x": "", "/.dockerenv": ""}, "kubernetes"),
        ({"/proc/1/cgroup": "12:cpu:/kubepods/burstable/pod1\n"}, "kubernetes"),
        ({"/.dockerenv": "", **own_root("27 1 254:0 / / rw - ext4 /dev/vda rw")}, None),
        ({"/.dockerenv": "", **own_root("27 1 0:40 / / rw - overlay overlay rw,lowerdir=/x")}, "docker"),
        ({"/.dockerenv": "", **own_root("27 1 8:1 /docker/vfs/dir/ab / rw - ext4 /dev/sda1 rw")}, "docker"),
        ({"/.dockerenv": "", **own_root("")}, "docker"),
        ({}, None),
    ],
)
def test_containers(tmp_path: Path, content: dict[str, Any], container: str | None) -> None:
    assert facts_host.container(trees.make(tmp_path, content), {}) == container


@pytest.mark.parametrize(
    ("dmi", "cloud"),
    [
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gcp"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine",
          "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, None),
        ({"sys_vendor": "QEMU", "chassis_asset_tag": "OracleCloud.com"}, "oci"),
        ({"sys_vendor": "Supermicro", "product_name": "AS -8125GS-TNHR"}, None),
    ],
)  # fmt: skip
def test_clouds(tmp_path: Path, dmi: dict[str, str], cloud: str | None) -> None:
    root = trees.make(tmp_path, {f"/sys/class/dmi/id/{k}": v + "\n" for k, v in dmi.items()})
    assert facts_host.cloud(root) == cloud


def test_limits_from_a_tree(tmp_path: Path) -> None:
    root = trees.make(
        tmp_path,
        {
            "/proc/self/mountinfo": (
                "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                "30 22 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k\n"
                "garbage\n31 - x\n"
            ),
            "/dev/shm/nccl-Ab12Cd": b"x" * 8192,
            "/dev/shm/sem.mp-1": b"x" * 32,
            "/dev/shm/mine.txt": "keep",
            "/proc/77/maps": "7f00-7f01 rw-s 00000000 00:19 5 /dev/shm/sem.mp-1\n",
            "/proc/77/fd": None,
        },
    )
    old = time.time() - 3600
    for name in ("nccl-Ab12Cd", "sem.mp-1"):
        os.utime(f"{root}/dev/shm/{name}", (old, old))
    fact = msgspec.convert(facts_limits.collect({}, root), type=LimitFacts)
    assert (fact.shm.is_mount, fact.shm.fs_type) == (True, "tmpfs")
    assert fact.tmp.error is not None
    assert not fact.tmp.writable
    assert fact.stale_shm_files == ("nccl-Ab12Cd",)
    assert fact.stale_shm_bytes >= 8192


def test_left_over_files_of_others_where_their_processes_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, or behind hidepid, a file that nobody seems to use may be in use all the same."""
    tree = {"/dev/shm/nccl-Ab12Cd": b"x" * 8192, "/dev/shm/torch_88_1_0": b"x", "/proc/77/maps": ""}
    whole = trees.make(tmp_path / "whole", {**tree, "/proc/2/comm": "kthreadd\n", "/proc/77/fd/": None})
    part = trees.make(tmp_path / "part", tree)
    later = time.time() + 3600
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert facts_limits.stale_shm(whole, later)[0] == ["nccl-Ab12Cd", "torch_88_1_0"]
    assert facts_limits.stale_shm(part, later) == ([], 0)


@pytest.mark.parametrize(
    ("wanted", "login", "used"),
    [
        (None, None, "/tmp"),
        ("/var/tmp/", "/scratch", "/var/tmp"),
        (None, "/scratch", "/scratch"),
        ("/Users/me/T", "/scratch", "/tmp"),
        ("scratch", None, "/tmp"),
    ],
)
def test_temporary_files_go_where_tmpdir_says_if_that_can_be_used(
    wanted: str | None, login: str | None, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trees.make(tmp_path, {"/var/tmp": None, "/scratch": None})
    monkeypatch.delenv("TMPDIR", raising=False)
    if login:
        monkeypatch.setenv("TMPDIR", login)
    assert facts_limits.collect({"tmpdir": wanted}, root)["tmp"]["path"] == used


def test_unlimited_is_none() -> None:
    import resource

    infinite = resource.RLIM_INFINITY
    assert facts_limits.limit("MEMLOCK", 0, {"MEMLOCK": (infinite, infinite)}) is None
    assert facts_limits.limit("MEMLOCK", 0, {"MEMLOCK": (65536, infinite)}) == 65536
    assert facts_limits.limit("NOFILE", 0, {}) is None


def test_interfaces_from_a_tree(tmp_path: Path) -> None:
    net = "/sys/class/net"

    def dev(name: str, index: int, link: int | None = None, **more: str) -> dict[str, str]:
        content = {"ifindex": str(index), "iflink": str(link or index), "mtu": "1500", "type": "1"}
        return {f"{net}/{name}/{k}": v + "\n" for k, v in (content | more).items()}

    pci = "/sys/devices/pci0000:00/0000:17:00.0"
    root = trees.make(
        tmp_path,
        {
            **dev("lo", 1, mtu="65536", operstate="unknown"),
            **dev("eth0", 2, speed="400000", operstate="up", carrier="1", mtu="9000"),
            f"{net}/eth0/device -> ../../../devices/pci0000:00/0000:17:00.0": "",
            f"{pci}/driver -> ../../../bus/pci/drivers/mlx5_core": "",
            **dev("eth1", 3, speed="-1", operstate="down"),
            **dev("bond0", 4),
            f"{net}/bond0/bonding/mode": "802.3ad 4\n",
            f"{net}/bond0/bonding/slaves": "eth0 eth1\n",
            f"{net}/eth1/bonding_slave/mii_status": "down\n",
            f"{net}/eth1/bonding_slave/ad_aggregator_id": "2\n",
            **dev("docker0", 5, operstate="down", carrier="0"),
            f"{net}/docker0/bridge": None,
            **dev("eth0.7", 6, uevent="DEVTYPE=vlan\nINTERFACE=eth0.7"),
            **dev("ib0", 7, type="32"),
            **dev("vethabc", 8, link=9, speed="10000"),
            **dev("tailscale0", 10, tun_flags="0x1001", speed="10"),
            f"{net}/bonding_masters": "bond0\n",
            "/proc/net/route": (
                "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                "eth1\t00000000\t0100000A\t0003\t0\t0\t200\t00000000\t0\t0\t0\n"
                "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
                "eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\nshort\n"
                "eth0\t0000010A\t0100000A\t0003\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
                "*\t0000020A\t00000000\t0203\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
            ),
            "/proc/net/ipv6_route": "".join(
                f"{dest} {length} {'0' * 32} 00 {gateway} 00000400 00000001 00000000 {flags} eth0\n"
                for dest, length, gateway, flags in (
                    ("fd000077000000000000000000000000", "30", "fd" + "0" * 29 + "1", "00000003"),
                    ("fd000078000000000000000000000000", "40", "0" * 32, "00000001"),
                    ("fd000079000000000000000000000000", "40", "fd" + "0" * 29 + "1", "00200200"),
                )
            ),
            "/proc/sys/net/ipv4/ip_local_port_range": "20000\t30000\n",
            "/proc/sys/net/ipv4/ip_local_reserved_ports": "29500\n",
            "/proc/net/sockstat": "sockets: used 9\nTCP: inuse 7 orphan 0 tw 2600 alloc 9\nUDP: inuse x\n",
            "/proc/net/tcp": "  sl  local_address\nshort\n"
            + "".join(
                f"   {i}: 0100007F:{port:04X} 0100007F:0050 06 00000000:00000000\n"
                for i, port in enumerate((20001, 20001, 29500, 80))
            ),
            "/proc/net/tcp6": f"sl\n   0: {'0' * 32}:4E22 {'0' * 32}:0000 0A 00000000:00000000\n",
            "/proc/sys/net/netfilter/nf_conntrack_count": "12\n",
            "/proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
            "/proc/sys/net/ipv6/conf/all/disable_ipv6": "1\n",
        },
    )
    rows = [
        facts_net.Row("lo", 0x49, 2, "127.0.0.1", 8),
        facts_net.Row("eth1", 0x1003, 2, "10.0.1.5", 24),
        facts_net.Row("eth0", 0x1043, 2, "10.0.0.5", 24),
        facts_net.Row("eth0", 0x1043, 10, "fe80::1", 64),
        facts_net.Row("eth0", 0x1043, 17),
    ]
    fact = msgspec.convert(facts_net.collect({}, root, rows), type=NetFacts)
    devs = {d.name: d for d in fact.netdevs}
    assert [d.name for d in fact.netdevs][:4] == ["lo", "eth0", "eth1", "bond0"]
    kinds = {name: d.kind for name, d in devs.items()}
    assert kinds == {
        "lo": "loopback", "eth0": "physical", "eth1": "other", "bond0": "bond", "docker0": "bridge",
        "eth0.7": "vlan", "ib0": "ipoib", "vethabc": "veth", "tailscale0": "tun",
    }  # fmt: skip
    eth0 = devs["eth0"]
    assert (eth0.driver, eth0.pci_address, eth0.speed_mbit_s) == ("mlx5_core", "0000:17:00.0", 400000)
    assert (eth0.up, eth0.running, eth0.carrier, eth0.mtu) == (True, True, True, 9000)
    assert (devs["eth1"].up, devs["eth1"].running, devs["eth1"].carrier) == (True, False, None)
    assert devs["docker0"].carrier is False
    assert (devs["bond0"].bond_mode, devs["bond0"].slaves) == ("802.3ad", ("eth0", "eth1"))
    assert (devs["eth1"].mii_status, devs["eth1"].aggregator, devs["eth0"].mii_status) == ("down", 2, None)
    assert devs["vethabc"].speed_mbit_s is devs["tailscale0"].speed_mbit_s is None
    # The order of getifaddrs() and not of names or indexes.
    assert [(a.ifname, a.scope) for a in fact.addresses] == [
        ("lo", "host"), ("eth1", "global"), ("eth0", "global"), ("eth0", "link"),
    ]  # fmt: skip
    assert fact.default_devs == ("eth0", "eth1")
    assert fact.routed == ("10.1.0.0/16", "fd00:77::/48")
    assert (fact.ephemeral_ports, fact.reserved_ports) == ((20000, 30000), "29500")
    # 20001 twice, 20002 over IPv6; 29500 is reserved and 80 outside of the range.
    assert (fact.ports_taken, fact.time_wait, fact.tw_reuse) == (2, 2600, None)
    assert fact.ipv6_enabled is False
    assert (fact.conntrack, fact.conntrack_max) == (12, 262144)


def test_routes_of_tables_that_rules_lead_to(tmp_path: Path) -> None:
    main = "Iface\tDestination\tand so on\neth0\t{}\t0100000A\t0003\t0\t0\t0\t{}\n"
    trie = (
        "Main:\n  |-- 10.1.0.0\n     /16 universe UNICAST\nId 101:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n"
        "        /0 universe UNICAST\n     |-- 10.3.0.0\n        /16 universe UNREACHABLE\n"
        "        /24 link UNICAST\n"
        "Local:\n  |-- 10.0.0.5\n     /32 host LOCAL\n"
    )
    files = {"/proc/net/route": main.format("0000010A", "0000FFFF"), "/proc/net/fib_trie": trie}
    assert facts_net.routes(trees.make(tmp_path / "rules", files))[1] == [
        "10.1.0.0/16", "0.0.0.0/0", "10.3.0.0/24"
    ]  # fmt: skip
    files["/proc/net/route"] = main.format("00000000", "00000000")
    assert facts_net.routes(trees.make(tmp_path / "default", files)) == (["eth0"], [])


def test_addresses_that_overlap_with_another_interfaces(tmp_path: Path) -> None:
    apart = [
        ("eth0", "10.0.0.5", 24),
        ("eth1", "10.0.1.5", 24),
        ("eth0", "10.0.0.6", 24),
        ("tun0", "10.0.0.7", 32),
    ]
    assert subnets.crowded(apart) == []
    twin, wide = ("eth2", "10.0.1.9", 25), ("eth3", "10.0.0.9", 23)
    assert subnets.crowded([*apart, twin]) == [apart[1], twin]
    assert set(subnets.crowded([*apart, twin, wide])) == {*apart[:3], twin, wide}
    conf = {f"/proc/sys/net/ipv4/conf/{scope}/rp_filter": f"{i}\n" for i, scope in enumerate(("all", "eth1"))}
    root = trees.make(tmp_path, conf)
    one, two = subnets.shared(root, [*apart, twin], False)
    assert (one["ifname"], one["rp_filter"], one["arp_ignore"], one["dev"]) == ("eth1", 1, None, None)
    assert (two["ifname"], two["rp_filter"]) == ("eth2", None)


def test_live_addresses_match_the_kernel() -> None:
    rows = facts_net.getifaddrs()
    assert "127.0.0.1" in [row.address for row in rows]
    assert {row.name for row in rows} == {name for _, name in socket.if_nameindex()}


# --- resolve, ports ---------------------------------------------------------------------------------------


def test_hosts_lines_and_first_bindable(tmp_path: Path) -> None:
    root = trees.make(
        tmp_path,
        {"/etc/hosts": b"127.0.0.1 localhost\n127.0.1.1\tGPU01  gpu01.x\n#10.0.0.9 gpu01\n\xff\xfe\n"},
    )
    assert facts_resolve.hosts_lines(["gpu01"], root) == ["127.0.1.1 GPU01 gpu01.x"]
    rows = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.222", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0)),
    ]
    assert facts_resolve.first_bindable(rows) == "127.0.1.1"
    assert facts_resolve.first_bindable([]) is None


def test_hanging_resolver_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    real = facts_resolve.socket.getaddrinfo

    def slow(name: bytes, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(b"slow"):
            time.sleep(20)
        return real("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(facts_resolve, "LOOKUP_S", 0.3)
    monkeypatch.setattr(facts_resolve, "TOTAL_S", 2.0)
    monkeypatch.setattr(facts_resolve, "PARALLEL", 2)
    monkeypatch.setattr(facts_resolve.socket, "getaddrinfo", slow)
    names = ["slow1", "slow2", "slow3", "a", "b"]
    start = time.monotonic()
    fact = msgspec.convert(facts_resolve.collect({"names": names}), type=ResolveFacts)
    assert time.monotonic() - start < 15, "nobody waits for a lookup of twenty seconds"
    assert [p.error is None for p in fact.peers] == [False, False, False, True, True]
    assert "timed out" in (fact.peers[0].error or "")


def test_port_tables(tmp_path: Path) -> None:
    root = trees.make(
        tmp_path,
        {
            "/proc/net/tcp": (
                "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
                "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000 "
                " 1000        0 4242 1 0 100 0 0 10 0\n"
                "   1: 0100007F:733C 0100007F:9999 01 00000000:00000000 00:00000000 00000000 "
                " 1000        0 4243 1 0\n garbage\n"
            ),
            "/proc/net/tcp6": (
                "  sl  local_address\n"
                "   0: 00000000000000000000000001000000:733C 00000000000000000000000000000000:0000 0A "
                "00000000:00000000 00:00000000 00000000     0        0 4244 1 0 100 0 0 10 0\n"
            ),
            "/proc/99/comm": "python3\n",
            "/proc/99/stat": "99 (py (x) 3) S 1 " + "0 " * 17 + "5000 0 0\n",
            "/proc/uptime": "1050.00 2000.00\n",
            "/proc/99/fd/3 -> socket:[4242]": "",
            "/proc/98/fd/x": "",
        },
    )
    value = facts_port_holder.collect({"port": 0x733C}, root)
    fact = msgspec.convert(value, type=TYPES["port_holder"])
    first, second = fact.listeners
    assert (first.address, first.pid, first.process) == ("0.0.0.0", 99, "python3")
    assert first.uid == os.getuid(), "who holds the socket now, and not 1000, who opened it"
    assert second.uid == 0, "whose holder is not to be seen: its opener"
    assert first.age_s == pytest.approx(1050 - 5000 / os.sysconf("SC_CLK_TCK"))
    assert (second.address, second.pid) == ("::1", None)
    assert not fact.other_scan
    # The same socket of another scan's agent, or of one of its ranks, is there for the moment only.
    for arguments in (bundle.BOOTSTRAP, op_spawn._STARTER):
        (Path(root) / "proc/99/cmdline").write_text(f"python3\0-c\0{arguments}\0")
        fact = msgspec.convert(facts_port_holder.collect({"port": 0x733C}, root), type=TYPES["port_holder"])
        assert (fact.other_scan, [one.address for one in fact.listeners]) == (True, ["::1"])


@pytest.mark.interpreters
@pytest.mark.parametrize("provide", [True, False])
def test_holder_of_a_busy_port_is_named(provide: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, harness.agent(provide=provide) as agent:
        port = server.getsockname()[1]
        value = agent.facts(port_holder={"port": port})["port_holder"]["value"]
    (listener,) = value["listeners"]
    assert listener["pid"] == os.getpid()
    assert listener["process"]
    assert listener["user"]
    assert 0 <= listener["age_s"] < 100000
    assert value["bind_error"] == "EADDRINUSE"


@pytest.mark.parametrize("port", [0, 70000, "x", None])
def test_no_such_port_is_missing(port: Any) -> None:
    with harness.agent() as agent:
        assert "missing" in agent.facts(port_holder={"port": port})["port_holder"]


# --- firewall, time ---------------------------------------------------------------------------------------

NFT = """table inet filter {
	set blocked {
		type ipv4_addr
		elements = { 10.0.0.1, 10.0.0.2 }
	}
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		tcp dport 29500 counter packets 3 bytes 180 drop
		log prefix "please drop me" accept
		tcp dport vmap { 22 : accept, 80 : drop }
	}
	chain out {
		type filter hook output priority filter; policy accept;
		ip daddr 10.0.0.9 reject with icmp admin-prohibited
	}
}
"""

IPTABLES = """# Generated by iptables-save v1.8.9 on Thu Nov 20 10:00:00 2025
*filter
:INPUT DROP [0:0]
:OUTPUT ACCEPT [10:100]
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -m tcp --dport 29500 -m comment --comment "no DROP here" -j ACCEPT
-A INPUT -s 10.0.0.0/8 -j REJECT --reject-with icmp-port-unreachable
COMMIT
"""


def test_nft_rules() -> None:
    assert facts_firewall.nft_rules(NFT) == [
        "inet filter input (hook input): policy drop",
        "inet filter input (hook input): tcp dport 29500 counter packets 3 bytes 180 drop",
        "inet filter input (hook input): tcp dport vmap { 22 : accept, 80 : drop }",
        "inet filter out (hook output): ip daddr 10.0.0.9 reject with icmp admin-prohibited",
    ]
    assert facts_firewall.nft_rules("") == facts_firewall.nft_rules("}}}{{{\x00 drop") == []


def test_a_chain_has_the_hooks_of_those_that_jump_to_it() -> None:
    text = """table ip site {
	map services {
		type inet_service : verdict
		elements = { 80 : goto both }
	}
	chain gate {
		type filter hook input priority 0; policy accept;
		jump inner
		tcp dport vmap @services
	}
	chain inner {
		jump both
	}
	chain leave {
		type filter hook output priority 0; policy accept;
		jump both
	}
	chain both {
		drop
	}
	chain inmost {
		drop
	}
}
table ip other {
	chain inner {
		drop
	}
}
"""
    assert facts_firewall.nft_rules(text) == [
        "ip site both (hook input,output): drop",
        "ip site inmost: drop",
        "ip other inner: drop",
    ]


def test_iptables_rules() -> None:
    assert facts_firewall.iptables_rules(IPTABLES) == [
        "filter INPUT: policy DROP",
        "filter INPUT: -s 10.0.0.0/8 -j REJECT --reject-with icmp-port-unreachable",
    ]


def test_firewalld_and_ufw() -> None:
    zone = "public (active)\n  target: default\n  services: ssh\n  ports: \n  rich rules: \n"
    assert facts_firewall.firewalld_rules(zone)[1] == "zone public: services: ssh"
    status = "Status: active\nDefault: deny (incoming), allow (outgoing)\n22/tcp  LIMIT IN Anywhere\n"
    assert facts_firewall.ufw_rules(status) == [
        "Default: deny (incoming), allow (outgoing)", "22/tcp LIMIT IN Anywhere",
    ]  # fmt: skip
    assert facts_firewall.ufw_rules("Status: inactive\n") == []


def test_many_rules_are_cut() -> None:
    value = facts_firewall.ruleset("nftables", ["x" * 1000] * 1000)
    assert len(value["rules"]) == 50
    assert max(map(len, value["rules"])) <= 240


def test_chrony_tracking() -> None:
    line = (
        "0A4D000A,10.77.0.10,4,1763623911.904,-0.000012,0.000020,0.000100,"
        "-12.300,0.010,0.400,0.000200,0.000300,64.2,Normal\n"
    )
    fact = msgspec.convert(facts_time.parse_tracking(line), type=ChronyTracking)
    assert (fact.reference, fact.stratum, fact.offset_s) == ("10.77.0.10", 4, -0.000012)
    for garbage in ("", "506 Cannot talk to daemon\n", "a," * 20):
        with pytest.raises(ValueError, match=r".*"):
            facts_time.parse_tracking(garbage)


def test_more_addresses_than_are_judged_are_no_fact(tmp_path: Path) -> None:
    """Cut short they would be another machine's."""
    addresses = [f"10.96.{i >> 8}.{i & 255}" for i in range(4097)]
    rows = [facts_net.Row("kube-ipvs0", 0x82, facts_net.AF_INET, address, 32) for address in addresses]
    assert len(facts_net.collect({}, str(tmp_path), rows[1:])["addresses"]) == 4096
    with pytest.raises(runtime.Unavailable, match="more than 4096 addresses"):
        facts_net.collect({}, str(tmp_path), rows)


# --- env --------------------------------------------------------------------------------------------------


def test_environment_is_an_allow_list_without_secrets() -> None:
    raw = {
        b"NCCL_SOCKET_IFNAME": b"eth0",
        b"NCCL_IB_PKEY": b"1",
        b"HF_TOKEN": b"hf_s3cr3t",
        b"AWS_SECRET_ACCESS_KEY": b"s3cr3t",
        b"UCX_AUTH_TOKEN": b"s3cr3t",
        b"https_proxy": b"http://joe:s3cr3t@proxy:3128/",
        b"HTTP_PROXY": b"joe:s3cr3t@proxy:3128",
        b"MY_NCCL_X": b"s3cr3t",
        b"LD_PRELOAD": b"\xff\xfe\x1b[31m",
        b"PATH": b"x" * 100000,
        b"GLOO_\xff": b"y",
    }
    found = facts_env.variables(raw)
    assert "s3cr3t" not in str(found)
    assert found["NCCL_IB_PKEY"] == "1"
    assert found["HF_TOKEN"] == found["UCX_AUTH_TOKEN"] == "set"
    assert found["https_proxy"] == "http://***@proxy:3128/"
    assert len(found["PATH"]) == 4096
    assert "AWS_SECRET_ACCESS_KEY" not in found
    assert "MY_NCCL_X" not in found


@pytest.mark.interpreters
@pytest.mark.parametrize("version", SUPPORTED)
def test_binary_environment_travels(version: str) -> None:
    env = {**os.environ, "NCCL_DEBUG": "\udcff\udc80", "NCCL_X": "\U0001f600", "LC_ALL": "C"}
    with harness.agent(python_or_skip(version), env=env) as agent:
        value = agent.facts(env={})["env"]["value"]
    fact = msgspec.convert(value, type=EnvFacts)
    assert fact.variables["NCCL_DEBUG"] == "\ufffd\ufffd"
    assert fact.variables["NCCL_X"] == "\U0001f600"


def test_nccl_conf_is_read_as_nccl_reads_it(tmp_path: Path) -> None:
    root = trees.make(
        tmp_path,
        {
            "/etc/nccl.conf": (
                "# comment\n #NCCL_A=1\nNCCL_SOCKET_IFNAME=eth0 \nNCCL_SOCKET_IFNAME=eth1\n"
                " NCCL_DEBUG=INFO\nNCCL_EMPTY=\nno equals\nPASSWORD=s3cr3t\r\n=x\n"
            ),
            "/home/u/.nccl.conf": "NCCL_DEBUG=WARN\n",
        },
    )
    entries = facts_env.nccl_conf(None, "/home/u", "/home/u", root)
    conf = [msgspec.convert(e, type=ConfFile) for e in entries]
    assert [c.path for c in conf] == ["/home/u/.nccl.conf", "/etc/nccl.conf"]
    assert conf[1].values == {
        "NCCL_SOCKET_IFNAME": "eth0 ", " NCCL_DEBUG": "INFO", "NCCL_EMPTY": "",
    }  # fmt: skip
    assert [c.place for c in conf] == ["home", "system"]
    # Every file that any release reads: which one does is a rule's business.
    named = facts_env.nccl_conf("/nope", "/home/v", "/home/u", root)
    assert [(e["path"], e["place"], e.get("error")) for e in named] == [
        ("/nope", "named", "ENOENT"), ("/home/u/.nccl.conf", "home-passwd", None),
        ("/etc/nccl.conf", "system", None),
    ]  # fmt: skip


def test_the_address_in_an_id_of_nccl() -> None:
    four = struct.pack("=QH2s4s", 7, socket.AF_INET, b"\x12\x34", bytes((10, 0, 0, 1))).ljust(128, b"\0")
    assert facts_nccl_answer.address_of(four) == ("10.0.0.1", None)
    local = socket.inet_pton(socket.AF_INET6, "fe80::1")
    six = struct.pack("=QH2sI16sI", 7, socket.AF_INET6, b"", 0, local, 1).ljust(128, b"\0")
    assert facts_nccl_answer.address_of(six) == ("fe80::1", "lo")
    assert facts_nccl_answer.address_of(b"") == facts_nccl_answer.address_of(bytes(128)) == (None, None)
    assert [facts_nccl_answer.release(n) for n in (2804, 21805, 23203)] == ["2.8.4", "2.18.5", "2.32.3"]


def test_nccl_is_asked_in_silence_and_with_the_jobs_variables() -> None:
    own = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": "/x",
        "LD_PRELOAD": "y.so",
        "WANDB_API_KEY": "s",
        "HOME": "/h",
    }
    env = facts_nccl_answer.environment({"NCCL_SOCKET_IFNAME": "eth1", "EVIL": "x"}, own)
    assert (env["NCCL_DEBUG"], env["NCCL_SOCKET_IFNAME"], env["HOME"]) == ("NONE", "eth1", "/h")
    assert not {"NCCL_DEBUG_FILE", "LD_PRELOAD", "WANDB_API_KEY", "EVIL"} & env.keys()


@pytest.mark.parametrize(
    ("text", "why"),
    [("import time; time.sleep(60)", "timed_out"), ("import os; os.kill(os.getpid(), 9)", "failed"),
     ("print('[]')", "failed"), ("print('{' * 9999)", "failed"), ("", "failed")],
)  # fmt: skip
def test_a_library_that_does_not_answer_is_no_fact(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_nccl_answer, "_ASK", text)
    monkeypatch.setattr(facts_nccl_answer, "ASK_S", 1.0)
    with pytest.raises(runtime.Unavailable) as caught:
        facts_nccl_answer.ask("/nope.so", {})
    assert caught.value.why == why


# --- rdma, gpu --------------------------------------------------------------------------------------------


def test_roce_hca(tmp_path: Path) -> None:
    root = trees.make(tmp_path, trees.connectx7())
    fact = msgspec.convert(facts_rdma.collect({}, root), type=RdmaFacts)
    (hca,) = fact.hcas
    (port,) = hca.ports
    assert (hca.name, hca.fw_version, hca.pci_address) == ("mlx5_0", "28.39.1002", "0000:17:00.0")
    assert (hca.netdevs, hca.numa_node) == (("ens1np0",), 1)
    assert (hca.uverbs, hca.uverbs_there, hca.uverbs_ok) == ("uverbs0", True, True)
    assert (port.name, port.state, port.phys_state) == ("mlx5_0:1", "ACTIVE", "LinkUp")
    assert (port.rate_gbit_s, port.rate_text) == (400.0, "400 Gb/sec (4X NDR)")
    assert port.is_roce
    assert [(g.index, g.type, g.netdev) for g in port.gids] == [
        (0, "IB/RoCE v1", "ens1np0"), (10, "RoCE v2", None),
    ]  # fmt: skip
    assert fact.unbound_pci == ("0000:18:00.0",)


@pytest.mark.parametrize("gone", ["/dev/infiniband/uverbs0", f"{trees.PCI}/infiniband_verbs/uverbs0/ibdev"])
def test_hcas_of_which_only_sysfs_tells(tmp_path: Path, gone: str) -> None:
    """A container without /dev/infiniband, and a machine without ib_uverbs."""
    tree = trees.connectx7()
    del tree[gone]
    (hca,) = msgspec.convert(facts_rdma.collect({}, trees.make(tmp_path, tree)), type=RdmaFacts).hcas
    assert (hca.uverbs_there, hca.uverbs_ok) == (False, None)


def test_garbage_instead_of_an_hca(tmp_path: Path) -> None:
    base = "/sys/class/infiniband/mlx5_0"
    root = trees.make(
        tmp_path,
        {
            f"{base}/fw_ver": b"\xff\xfe\x00\x1b[31m" * 5000,
            f"{base}/ports/1/state": "",
            f"{base}/ports/1/rate": "fast\n",
            f"{base}/ports/1/lid": "0xzz\n",
            f"{base}/ports/x/state": "4: ACTIVE\n",
            f"{base}/device -> /nowhere": "",
            "/sys/class/infiniband/loop -> loop": "",
        },
    )
    os.mkfifo(f"{root}{base}/board_id")
    fact = msgspec.convert(facts_rdma.collect({}, root), type=RdmaFacts)
    hca = next(h for h in fact.hcas if h.name == "mlx5_0")
    assert [(p.number, p.rate_gbit_s, p.lid) for p in hca.ports] == [(1, None, None)]
    assert hca.board_id is None


def test_the_pcie_link_of_an_hca(tmp_path: Path) -> None:
    card = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
    files = {
        f"{card}/current_link_speed": "16.0 GT/s PCIe\n",
        f"{card}/max_link_speed": "32.0 GT/s PCIe\n",
        f"{card}/current_link_width": "8\n",
        f"{card}/max_link_width": "16\n",
        f"{card}/../max_link_speed": "16.0 GT/s PCIe\n",
        f"{card}/../max_link_width": "16\n",
    }
    root = trees.make(tmp_path / "real", files)
    expected = {"width": 8, "width_most": 16, "gtransfers_s": 16.0, "gtransfers_s_most": 16.0}
    expected |= dict.fromkeys(("read_request", "payload", "payload_most"), 0)
    assert facts_rdma.pcie_link(root + card, False) == expected
    files[f"{card}/../max_link_speed"], files[f"{card}/../max_link_width"] = "Unknown\n", "255\n"
    unknown = facts_rdma.pcie_link(trees.make(tmp_path / "virtual", files) + card, False)
    assert unknown == {**expected, "width_most": 0, "gtransfers_s_most": 0.0}
    on_a_root_bus = trees.make(tmp_path / "vm", {"/sys/devices/pci0000:00/0000:00:05.0/max_link_width": "16"})
    assert facts_rdma.pcie_link(on_a_root_bus + "/sys/devices/pci0000:00/0000:00:05.0", False) is None


def test_partitions_traffic_class_and_driver_of_an_hca(tmp_path: Path) -> None:
    tree = trees.connectx7()
    ib, module = f"{trees.PCI}/infiniband/mlx5_0", "/sys/module/mlx5_core"
    tree |= {
        f"{ib}/ports/1/link_layer": "InfiniBand\n",
        f"{ib}/ports/1/pkeys/0": "0xffff\n",
        f"{ib}/ports/1/pkeys/1": "0x8001\n",
        f"{ib}/ports/1/pkeys/2": "0x0000\n",
        f"{ib}/tc/1/traffic_class": "Global tclass=106\nsrc_addr=1.1.1.1,tclass=7\n",
        f"{trees.PCI}/driver -> ../../../bus/pci/drivers/mlx5_core": "",
        f"{module}/version": "24.10-1.1.4\n",
        "/sys/bus/pci/drivers/mlx5_core/module -> ../../../../module/mlx5_core": "",
    }
    root = trees.make(tmp_path, tree)
    (hca,) = msgspec.convert(facts_rdma.collect({}, root), type=RdmaFacts).hcas
    assert (hca.driver, hca.ports[0].pkeys, hca.ports[0].traffic_class) == (
        "mlx5_core 24.10-1.1.4", ("0x8001", "0xffff"), 106,
    )  # fmt: skip
    assert hca.ports[0].subnet == "fe80:0000:0000:0000"
    (Path(root) / module[1:] / "version").unlink()
    (hca,) = msgspec.convert(facts_rdma.collect({}, root), type=RdmaFacts).hcas
    assert hca.driver == "mlx5_core"


def pcie_config(kind: int, control: int, size: int = 4096, device: int = 0, able: int = 0) -> bytes:
    """Configuration of a PCIe port: power management, PCIe of this type, then AER and ACS above 0x100.
    device, able: its DEVCTL and DEVCAP."""
    config = bytearray(4096)
    config[0x34] = 0x40
    config[0x40:0x44] = bytes([0x01, 0x60, 0x03, 0x00])
    config[0x60:0x64] = bytes([0x10, 0x00, kind << 4 | 2, 0x00])
    config[0x64:0x6A] = able.to_bytes(4, "little") + device.to_bytes(2, "little")
    config[0x100:0x104] = (0x148 << 20 | 1 << 16 | 0x0001).to_bytes(4, "little")
    config[0x148:0x150] = (1 << 16 | 0x000D).to_bytes(4, "little") + bytes([0x5F, 0, control, 0])
    return bytes(config[:size])


@pytest.mark.parametrize(
    ("config", "redirects"),
    [
        pytest.param(pcie_config(6, 0x1D), True, id="a switch port as firmware leaves it"),
        pytest.param(pcie_config(6, 0x00), False, id="switched off"),
        pytest.param(pcie_config(6, 0x11), False, id="source validation and upstream forwarding"),
        pytest.param(pcie_config(4, 0x1D), False, id="a root port"),
        pytest.param(pcie_config(6, 0x1D, 64), None, id="without root"),
        pytest.param(b"\xff" * 4096, False, id="a device that is gone"),
        pytest.param(b"\x34" * 4096, False, id="a list without an end"),
    ],
)
def test_acs_of_a_switch_port(config: bytes, redirects: bool | None, tmp_path: Path) -> None:
    tree = trees.connectx7()
    port = "/sys/devices/pci0000:00/0000:16:00.0"
    card = f"{port}/0000:17:00.0"
    below = ("pci0000:00/0000:17", "pci0000:00/0000:16:00.0/0000:17")
    tree = {name.replace(trees.PCI, card).replace(*below): text for name, text in tree.items()}
    tree |= {f"{port}/config": config, f"{card}/iommu_group/type": "DMA-FQ\n"}
    (hca,) = msgspec.convert(facts_rdma.collect({}, trees.make(tmp_path, tree)), type=RdmaFacts).hcas
    assert hca.acs == (None if redirects is None else ("0000:16:00.0",) if redirects else ())
    assert hca.iommu == "DMA-FQ"
    guest = trees.make(tmp_path, {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n"})
    assert facts_rdma.collect({}, guest)["hcas"][0]["iommu"] is None
    asked = facts_rdma.collect({}, guest)["hcas"][0]["pcie"] or {}
    assert not asked.get("read_request")


def test_what_a_card_asks_for_and_sends_at_once(tmp_path: Path) -> None:
    """As lspci prints it: DevCtl 0x5936 is MaxPayload 256 bytes, MaxReadReq 4096 bytes; DevCap 2 is 512."""
    for card, port, expected in (
        (pcie_config(0, 0, device=0x5936, able=2), pcie_config(4, 0, able=1), [4096, 256, 256]),
        (pcie_config(0, 0, device=0x2810, able=2), pcie_config(4, 0, able=2), [512, 128, 512]),
        (pcie_config(0, 0, 64), pcie_config(4, 0), None),
        (pcie_config(0, 0, device=0x5936), b"\x34" * 4096, None),
        (pcie_config(0, 0, device=0x5936), b"", None),
    ):
        for folder, config in (("0000:16:00.0", port), ("0000:16:00.0/0000:17:00.0", card)):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "config").write_bytes(config)
        assert facts_rdma.sizes(str(tmp_path / "0000:16:00.0/0000:17:00.0")) == expected
        (tmp_path / "0000:16:00.0/0000:17:00.0/physfn").mkdir()
        assert facts_rdma.sizes(str(tmp_path / "0000:16:00.0/0000:17:00.0")) is None
        (tmp_path / "0000:16:00.0/0000:17:00.0/physfn").rmdir()


def test_counters(tmp_path: Path) -> None:
    net, hca = "/sys/class/net", "/sys/class/infiniband/mlx5_0/ports/1"
    tree: dict[str, str | bytes | None] = {
        "/proc/uptime": "350735.47 234388.90\n",
        f"{hca}/counters/symbol_error": "12\n",
        f"{hca}/counters/link_downed": "0\n",
        f"{hca}/counters/port_rcv_errors": "N/A (no PMA)\n",
        f"{hca}/hw_counters/out_of_sequence": "7\n",
        "/sys/class/infiniband/mlx5_0/ports/x/counters/symbol_error": "1\n",
        f"{net}/bonding_masters": "bond0\n",
    }
    for name, flags, more in (
        ("ens1", "0x1003", {"carrier_changes": "3\n", "statistics/rx_errors": "4\n", "device/x": ""}),
        ("ens2", "0x1002", {"device/x": ""}),  # down
        ("wlan0", "0x1003", {"device/x": "", "phy80211/x": ""}),
        ("bond0", "0x1003", {}),
        ("lo", "0x9", {}),
    ):
        tree |= {f"{net}/{name}/{file}": text for file, text in {"flags": flags, **more}.items()}
    tree |= {f"{net}/ens1/upper_bond0 -> ../bond0": "", f"{net}/bond0/upper_bond0.7 -> ../bond0.7": ""}
    root = trees.make(tmp_path, tree)
    fact = msgspec.convert(facts_counters.collect({"not_before_s": 5.0}, root), type=CounterFacts)
    assert fact.uptime_s == 350735.47
    assert [(p.name, p.values, p.read) for p in fact.ports] == [
        ("mlx5_0:1", {"symbol_error": 12, "out_of_sequence": 7}, 3)
    ]
    assert [(d.name, d.values, d.read, d.uppers) for d in fact.netdevs] == [
        ("ens1", {"carrier_changes": 3, "rx_errors": 4}, 2, ("bond0", "bond0.7"))
    ]
    container = {"/proc/uptime": "9.5 1.0\n", f"{net}/eth0/flags": "0x1003\n", f"{net}/lo/flags": "0x9\n"}
    found = facts_counters.collect({}, trees.make(tmp_path / "container", container))
    assert [one["name"] for one in found["netdevs"]] == ["eth0"]
    with pytest.raises(runtime.Unavailable, match="uptime"):
        facts_counters.collect({}, trees.make(tmp_path / "none", {"/proc/uptime": "soon\n"}))


def test_a_second_reading_waits_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waited: list[float] = []
    monkeypatch.setattr(facts_counters.time, "sleep", waited.append)
    root = trees.make(tmp_path, {"/proc/uptime": "100.0 1.0\n"})
    for not_before_s in (99.0, 101.5, 1e308):
        facts_counters.collect({"not_before_s": not_before_s}, root)
    assert waited == [1.5, facts_counters.WAIT_S]


@pytest.mark.parametrize(
    ("text", "rate"),
    [("2.5 Gb/sec (1X SDR)", 2.5), ("400 Gb/sec (4X NDR)", 400.0), ("", None), ("x Gb/sec", None)],
)
def test_rates(text: str, rate: float | None) -> None:
    assert facts_rdma.rate(text) == rate


def nvml_module(body: str) -> str:
    return (
        "class NVMLError(Exception):\n"
        "    def __init__(self, value): self.value = value\n"
        "    def __str__(self): return {9: 'Driver Not Loaded', 15: 'GPU is lost', 18: "
        "'RM has detected an NVML/RM version mismatch.', 3: 'Not Supported'}.get(self.value, '?')\n" + body
    )


HEALTHY = """
class Row:
    def __init__(self, **k): self.__dict__.update(k)
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlSystemGetDriverVersion(): return b'550.54.15'
def nvmlSystemGetCudaDriverVersion(): return 12040
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(i):
    if i == 1: raise NVMLError(15)
    return i
def nvmlDeviceGetName(h): return b'NVIDIA H100 80GB HBM3'
def nvmlDeviceGetUUID(h): return 'GPU-1'
def nvmlDeviceGetPciInfo(h): return Row(busId=b'00000000:17:00.0')
def nvmlDeviceGetMemoryInfo(h): return Row(total=80, used=8)
def nvmlDeviceGetCudaComputeCapability(h): return (9, 0)
def nvmlDeviceGetTotalEccErrors(h, a, b): raise NVMLError(3)
def nvmlDeviceGetComputeRunningProcesses(h):
    import os
    return [Row(pid=os.getpid(), usedGpuMemory=None), Row(pid=2**22 + 5, usedGpuMemory=5)]
"""


class FakeModule:
    def __init__(self, source: str) -> None:
        exec(source, self.__dict__)


def gpu_facts(source: str) -> GpuFacts:
    return msgspec.convert(nvml.query(FakeModule(nvml_module(source))), type=GpuFacts)


def test_nvml_with_a_lost_gpu() -> None:
    fact = gpu_facts(HEALTHY)
    good, lost = fact.devices
    assert (fact.nvml, fact.driver_version, fact.cuda_driver) == ("ok", "550.54.15", "12.4")
    assert (good.name, good.compute_capability) == ("NVIDIA H100 80GB HBM3", "9.0")
    assert good.error is good.ecc_uncorrected is good.mig_enabled is None
    assert [(p.pid, p.memory_bytes) for p in good.processes][1] == (2**22 + 5, 5)
    assert good.processes[0].user
    assert lost.error == "GPU is lost"


LINKS = """
def nvmlDeviceGetNvLinkState(h, link):
    if link >= 18: raise NVMLError(2)
    return link >= 2
def nvmlDeviceGetCurrPcieLinkWidth(h): return 8
def nvmlDeviceGetMaxPcieLinkGeneration(h): return 5
"""


def test_links_of_a_gpu() -> None:
    good, _ = gpu_facts(HEALTHY + LINKS).devices
    assert (good.nvlinks, good.nvlinks_active, good.nvlinks_down) == (18, 16, (0, 1))
    assert (good.pcie_width, good.pcie_generation) == (8, 5)
    none, _ = gpu_facts(HEALTHY + "def nvmlDeviceGetNvLinkState(h, link): raise NVMLError(3)\n").devices
    assert (none.nvlinks, none.nvlinks_active) == (0, 0)
    old, _ = gpu_facts(HEALTHY).devices  # a pynvml that does not know them
    assert (old.nvlinks, old.pcie_width) == (None, None)
    lost, _ = gpu_facts(HEALTHY + "def nvmlDeviceGetNvLinkState(h, link): raise NVMLError(15)\n").devices
    assert (lost.nvlinks, lost.error) == (None, "GPU is lost")


FIELDS = """
import ctypes, pynvml
SAID = {29: (2, 1), 30: (1, 3), 31: (1, 1), 38: (4, 3), 45: (2**64 - 1, 3), 52: (0, 3), 59: (1, 3),
        94: (7 << 32 | 9, 1), 194: (2**32 - 2, 1), 196: (0, 5)}
OF_LINKS = {}
def nvmlDeviceGetFieldValues(h, pairs):
    for field, scope in pairs:
        one = pynvml.c_nvmlFieldValue_t(fieldId=field, scopeId=scope)
        answer = SAID.get(field, OF_LINKS.get((field, scope)))
        one.nvmlReturn = 3 if answer is None else 0
        one.value.ullVal, one.valueType = answer or (0, 1)
        yield one
def nvmlDeviceGetTemperature(h, sensor): return 31
def nvmlDeviceGetApplicationsClock(h, kind): return {0: 1200, 2: 2619}[kind]
def nvmlDeviceGetDefaultApplicationsClock(h, kind): return {0: 1980, 2: 2619}[kind]
def nvmlDeviceGetTemperatureThreshold(h, which): return {1: 92, 3: 85}[which]
def nvmlDeviceGetMarginTemperature(h): raise NVMLError(3)
class c_nvmlEccSramErrorStatus_v1_t(ctypes.Structure):
    _fields_ = [("bThresholdExceeded", ctypes.c_uint)]
def nvmlDeviceGetSramEccErrorStatus(h, status): raise NVMLError(4)
"""


def test_counts_limits_and_clocks_of_a_gpu() -> None:
    good, _ = gpu_facts(HEALTHY + FIELDS).devices
    assert good.error is None  # what root alone may know is no fault of the GPU
    assert (good.sram_exceeded, good.sram_refused, good.margin_c) == (None, True, None)
    assert (good.retired_pages, good.retired_pending) == (3, True)
    assert (good.nvlink_crc_errors, good.nvlink_replays, good.nvlink_recoveries) == (4, 0, 1)
    assert good.pcie_replays == 9
    assert (good.temperature_c, good.operating_c, good.slowdown_c) == (31, 85, 92)
    assert (good.operating_margin_c, good.slowdown_margin_c) == (0, -2)
    assert (good.clocks_set_mhz, good.clocks_default_mhz) == ((1200, 2619), (1980, 2619))
    ada = "def nvmlDeviceGetMarginTemperature(h): return -1\n"
    ada += "def nvmlDeviceGetSramEccErrorStatus(h, status): return 0\n"
    newer, _ = gpu_facts(HEALTHY + FIELDS + ada).devices
    assert (newer.margin_c, newer.operating_c, newer.sram_exceeded) == (-1, None, False)
    lost = "def nvmlDeviceGetFieldValues(h, pairs): raise NVMLError(15)\n"
    assert gpu_facts(HEALTHY + lost).devices[0].error == "GPU is lost"


def test_errors_and_speed_of_each_nvlink() -> None:
    """Those of Hopper, of Blackwell, and of a driver that knows neither; the value's type is kept to."""
    newer = "def nvmlDeviceGetCudaComputeCapability(h): return (10, 0)\n"
    said = (
        "OF_LINKS = {(161, 2): (0, 3), (162, 5): (3, 3), (162, 6): (2**64 - 1, 3), (164, 2): (26562, 1),"
        " (164, 3): (26562, 1), (164, 4): (13281, 1), (164, 5): (13281, 1), (167, 4): (0, 1),"
        " (167, 5): (1, 1), (214, 7): (1, 3), (219, 7): (4607182418800017408, 0)}\n"
    )
    hopper, _ = gpu_facts(HEALTHY + FIELDS + LINKS + said).devices
    assert hopper.link_errors == {"replays": (), "recoveries": ((5, 3),)}
    # Link 5 sleeps, and says so.
    assert (hopper.nvlink_mbyte_s, hopper.nvlinks_other_mbyte_s) == (26562, ((4, 13281),))
    blackwell, _ = gpu_facts(HEALTHY + FIELDS + LINKS + newer + said).devices
    assert blackwell.link_errors == {"failed_recoveries": ((7, 1),), "bit_errors": ((7, 1),)}
    older = "def nvmlDeviceGetNvLinkErrorCounter(h, link, counter): return link == 3 and counter\n"
    volta, _ = gpu_facts(HEALTHY + FIELDS + LINKS + older).devices
    assert volta.link_errors == {"replays": (), "recoveries": ((3, 1),), "crc_errors": ((3, 5),)}
    assert volta.nvlink_mbyte_s is None


def test_inforom_of_a_gpu() -> None:
    version = "def nvmlDeviceGetInforomImageVersion(h): return b'G520.0200.00.05'\n"
    for code, valid in ((0, True), (14, False), (3, None)):
        check = f"def nvmlDeviceValidateInforom(h):\n    if {code}: raise NVMLError({code})\n"
        good, _ = gpu_facts(HEALTHY + version + check).devices
        assert (good.inforom, good.inforom_valid, good.error) == ("G520.0200.00.05", valid, None)


def test_a_pynvml_that_did_not_arrive_says_nothing_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the upload was lost on the way, not even the PCI bus may speak for the number of GPUs."""
    monkeypatch.setattr(runtime, "library", lambda name: None)
    monkeypatch.setattr(facts_gpu, "loadable", lambda: True)
    with pytest.raises(runtime.Unavailable) as caught:
        facts_gpu.collect({})
    assert (caught.value.why, caught.value.detail) == (
        "failed",
        "netdoctor's own pynvml did not get to the node",
    )


@pytest.mark.parametrize(
    ("code", "state"), [(9, "no_driver"), (18, "mismatch"), (4, "no_permission"), (999, "error")]
)
def test_nvml_that_does_not_start(code: int, state: str) -> None:
    fact = gpu_facts(f"def nvmlInit(): raise NVMLError({code})\n")
    assert (fact.nvml, fact.nvml_code) == (state, code)


def test_gpu_tree(tmp_path: Path) -> None:
    root = trees.make(
        tmp_path,
        {
            "/proc/driver/nvidia/version": (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n"
            ),
            "/usr/lib64/libnvidia-ml.so.550.90.07": "",
            "/usr/lib64/libnvidia-ml.so.1 -> libnvidia-ml.so.550.90.07": "",
            "/sys/bus/pci/devices/0000:17:00.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:17:00.0/class": "0x030200\n",
            "/sys/bus/pci/devices/0000:17:00.0/device": "0x2330\n",
            "/sys/bus/pci/devices/0000:17:00.0/driver -> ../../drivers/nvidia": "",
            "/sys/bus/pci/devices/0000:18:00.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:18:00.0/class": "0x068000\n",
            "/dev/nvidia10": "",
            "/dev/nvidia2": "",
            "/dev/nvidiactl": "",
        },
    )
    assert facts_gpu.kernel_driver(root) == "550.54.15"
    paths = libs.find("libnvidia-ml.so.1", root)
    assert facts_gpu.library_version(paths, root) == "550.90.07"
    (there,), switches = facts_gpu.pci_gpus(root)
    assert (there["address"], there["device_id"], there["driver"]) == ("0000:17:00.0", "0x2330", "nvidia")
    assert facts_gpu.device_nodes(root) == ["/dev/nvidia2", "/dev/nvidia10"]
    assert (switches, facts_gpu.open_module(root)) == (1, True)
    assert facts_gpu.services(root, True, True) == {}  # no processes are shown


STATUS = """Package: nvidia-fabricmanager-dev-550
Status: install ok installed
Version: 550.90.07-1

Package: nvidia-fabricmanager-535
Status: deinstall ok config-files
Version: 535.104.05-1

Package: nvidia-fabricmanager-550
Status: hold ok installed
Architecture: amd64
Version: 1:550.127.05-0ubuntu0.22.04.1

Package: nvidia-imex
Status: install ok installed
Version: 550.127.08"""


def test_a_fabric_manager_and_imex(tmp_path: Path) -> None:
    tree = {"/proc/1/comm": "systemd\n", "/proc/2/comm": "kthreadd\n", "/proc/77/comm": "bash\n"}
    assert facts_gpu.services(trees.make(tmp_path / "a", tree), True, False) == {
        "fabric_manager": False, "fabric_packages": {},
    }  # fmt: skip
    tree |= {
        "/proc/78/comm": "nv-fabricmanage\n",
        "/proc/79/comm": "nvidia-imex\n",
        "/usr/bin/nv-fabricmanager": "",
        "/usr/bin/nvidia-imex": "",
        "/var/lib/dpkg/status": STATUS,
        "/etc/nvidia-imex/nodes_config.cfg": "# rack 7\n10.0.0.2\n\n10.0.0.1  # first\n",
    }
    assert facts_gpu.services(trees.make(tmp_path / "b", tree), True, True) == {
        "fabric_manager": True,
        "imex": True,
        "imex_nodes": ["10.0.0.1", "10.0.0.2"],
        "fabric_packages": {"nvidia-fabricmanager": ["550.127.05"], "nvidia-imex": ["550.127.08"]},
    }
    del tree["/proc/2/comm"]  # a container's own
    assert facts_gpu.services(trees.make(tmp_path / "c", tree), True, True) == {}


def test_a_way_through_the_pci_tree(tmp_path: Path) -> None:
    place = "/sys/devices/pci0000:10/0000:10:01.0/0000:17:00.0"
    files_of = {"vendor": "0x10de", "class": "0x030200", "device": "0x2330", "numa_node": "1"}
    tree = {f"{place}/{name}": text + "\n" for name, text in files_of.items()}
    tree["/sys/bus/pci/devices/0000:17:00.0 -> ../../../devices/pci0000:10/0000:10:01.0/0000:17:00.0"] = ""
    (there,), _ = facts_gpu.pci_gpus(trees.make(tmp_path, tree))
    assert there["path"] == ["pci0000:10", "0000:10:01.0", "0000:17:00.0"]
    assert there["numa_node"] == 1
    # A guest of Hyper-V: each card is behind a bridge of its own.
    guest = "/sys/devices/LNXSYSTM:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0"
    assert files.pci_path(guest) == ["pci0001:00", "0001:00:00.0"]
    assert files.pci_path("/sys/devices/virtual/net/rxe0") == files.pci_path("") == []


def test_what_a_session_left_over(tmp_path: Path) -> None:
    scope, service = "0::/user.slice/user-1000.slice/session-3.scope\n", "0::/system.slice/vllm.service\n"
    older = "12:pids:/user.slice/session-c1.scope\n1:name=systemd:/user.slice/session-c1.scope\n"
    rows = {4: (scope, 1), 5: (scope, 812), 6: (service, 1), 7: (older, 1), 8: ("", 1)}
    tree = {f"/proc/{pid}/cgroup": text for pid, (text, _) in rows.items()}
    tree |= {f"/proc/{pid}/stat": f"{pid} (a) b) S {parent} 4 4 0" for pid, (_, parent) in rows.items()}
    root = trees.make(tmp_path, tree)
    assert {pid for pid in (*rows, 9) if procs.is_left_over(pid, root)} == {4, 7}


def test_no_gpu_hardware_at_all(tmp_path: Path) -> None:
    fact = msgspec.convert(facts_gpu.collect({}, trees.make(tmp_path, {})), type=GpuFacts)
    assert (fact.nvml, fact.pci, fact.devices, fact.device_nodes) == ("no_library", (), (), ())


# --- software ---------------------------------------------------------------------------------------------

VERSION_PY = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.5.1+cu124'
debug = False
cuda: Optional[str] = '12.4'
git_version = 'a8d6afb511a69687bbb2b7e88a3cf67917e1697e'
hip: Optional[str] = None
"""


def elf(path: Path, *, needed: str, rpath: str | None = None, runpath: str | None = None) -> None:
    """Write a 64-bit ELF file with nothing but a dynamic section."""
    strings = b"\0"
    entries = []
    for tag, text in ((1, needed), (15, rpath), (29, runpath)):
        if text is not None:
            entries.append((tag, len(strings)))
            strings += text.encode() + b"\0"
    table = 64 + 2 * 56
    size = 16 * (len(entries) + 2)
    entries += [(5, table + size), (0, 0)]
    body = b"".join(struct.pack("<qQ", *e) for e in entries) + strings
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )  # fmt: skip
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, table + len(body), table + len(body), 4096)
    dynamic = struct.pack("<IIQQQQQQ", 2, 4, table, table, table, size, size, 8)
    path.write_bytes(head + load + dynamic + body)


def site(tmp_path: Path) -> Path:
    root = tmp_path / "site-packages"
    trees.make(
        root,
        {
            "torch/__init__.py": "raise SystemExit('torch was imported')",
            "torch/version.py": VERSION_PY,
            "torch/lib": None,
            "torch-2.5.1+cu124.dist-info/METADATA": "Metadata-Version: 2.1\nVersion: 2.5.1+cu124\n",
            "nvidia/nccl/lib/libnccl.so.2": b"\x7fELF" + b"\0" * 100,
            "nvidia_nccl_cu12-2.21.5.dist-info/METADATA": "Name: nvidia-nccl-cu12\nVersion: 2.21.5\n",
            "nvidia_cuda_runtime_cu12-12.4.127.dist-info/METADATA": "Version: 12.4.127\n",
            "PyYAML-5.1-py3.8.egg-info": "Metadata-Version: 1.1\nName: PyYAML\nVersion: 5.1.2\n",
            "broken-1.0.dist-info -> nowhere": "",
            "huge-9.dist-info/METADATA": b"X" * 200000 + b"\nVersion: 6\n",
        },
    )
    return root


def test_torch_is_read_and_not_imported(tmp_path: Path) -> None:
    root = site(tmp_path)
    paths = [str(tmp_path), str(root)]
    packages = dists.installed(paths)
    torch, error = facts_software.find_torch(paths, packages)
    assert error is None
    assert torch == {
        "version": "2.5.1+cu124", "cuda": "12.4", "hip": None, "path": f"{root}/torch",
    }  # fmt: skip
    assert packages["pyyaml"].version() == "5.1.2"
    assert packages["broken"].version() == "1.0"
    assert packages["huge"].version() == "9"


@pytest.mark.parametrize("text", ["", "__version__ = open('/etc/passwd').read()", "\x00", "[" * 9999])
def test_damaged_torch_falls_back_to_metadata(tmp_path: Path, text: str) -> None:
    root = site(tmp_path)
    (root / "torch/version.py").write_text(text)
    torch, error = facts_software.find_torch([str(root)], dists.installed([str(root)]))
    assert torch
    assert torch["version"] == "2.5.1+cu124"
    assert error


def environment(
    prefix: str, python: str = "python3", version: str = "2.6.0"
) -> dict[str, str | bytes | None]:
    """The files of a virtual environment that has torch."""
    files = {f"{prefix}/bin/{python}": "", f"{prefix}/lib/python3.11/site-packages/torch/version.py": ""}
    files[f"{prefix}/lib/python3.11/site-packages/torch/version.py"] = f"__version__ = '{version}'\n"
    return dict(files)


def others(root: Path, *prefixes: str, **environ: str) -> list[tuple[str, str, str]]:
    """(interpreter, how it was found, torch) below a tree, whose interpreters may all be run."""
    for path in root.rglob("bin/*"):
        path.chmod(0o755)

    def torch_in(folders: list[str]) -> str | None:
        found, _ = facts_software.find_torch(folders, {})
        return str(found["version"]) if found else None

    rows = pythons.find_with_torch(environ, "/home/ml", prefixes, torch_in, str(root), "/usr")
    return [(row["python"], row["origin"], row["torch"]) for row in rows]


def test_interpreters_with_torch_are_found_by_name(tmp_path: Path) -> None:
    """Each place once, the likeliest first; what has no torch, or cannot be run or named, is none."""
    names = {
        "/srv/env": "calling environment", "/opt/act": "VIRTUAL_ENV", "/home/ml/conda-env": "CONDA_PREFIX",
        "/home/ml/.venv": "venv", "/home/ml/venv": "venv", "/opt/venv-23": "venv",
        "/home/ml/miniconda3/envs/train": "conda", "/opt/conda": "conda", "/data/listed": "conda",
        "/home/ml/llm/.venv": "uv", "/home/ml/.cache/pypoetry/virtualenvs/job-x": "poetry",
    }  # fmt: skip
    for prefix in names:
        trees.make(tmp_path, environment(prefix))
    trees.make(
        tmp_path, {**environment("/opt/venv odd"), "/home/ml/.conda/environments.txt": "/data/listed\n"}
    )
    trees.make(tmp_path, {"/opt/venv-bare/bin/python3": "", "/opt/venv-dead/lib/python3.9": None})
    found = others(tmp_path, "/srv/env", "no/path", VIRTUAL_ENV="/opt/act", CONDA_PREFIX="/home/ml/conda-env")
    wanted = {f"{prefix}/bin/python3": origin for prefix, origin in names.items()}
    assert {python: origin for python, origin, _ in found} == wanted
    assert found[0] == ("/srv/env/bin/python3", "calling environment", "2.6.0")


@pytest.mark.parametrize(
    "first",
    [
        "#!/opt/t/bin/python3.11\nimport re\n",
        "#! /opt/t/bin/python\n",
        "#!/bin/sh\n'''exec' /opt/t/bin/python3 \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"/opt/t/bin/python3\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_the_interpreter_of_torchrun_is_found(tmp_path: Path, first: str) -> None:
    trees.make(tmp_path, {**environment("/opt/t", python="python"), "/usr/local/bin/torchrun": first})
    (tmp_path / "usr/local/bin/torchrun").chmod(0o755)
    path = "relative:/usr/bin:/usr/local/bin"
    assert others(tmp_path, PATH=path) == [("/opt/t/bin/python", "torchrun", "2.6.0")]


def test_with_torch_only_what_is_named_is_asked(tmp_path: Path) -> None:
    trees.make(tmp_path, {**environment("/opt/venv"), **environment("/opt/act"), **environment("/opt/t")})
    trees.make(tmp_path, {"/usr/local/bin/torchrun": "#!/opt/t/bin/python3\n"})
    for path in tmp_path.rglob("bin/*"):
        path.chmod(0o755)
    environ = {"PATH": "/usr/local/bin", "VIRTUAL_ENV": "/opt/act"}
    rows = pythons.find_with_torch(
        environ, "/home/ml", [], lambda _: "2.6.0", str(tmp_path), "/usr", named_only=True
    )
    assert [(row["python"], row["origin"]) for row in rows] == [
        ("/opt/act/bin/python3", "VIRTUAL_ENV"),
        ("/opt/t/bin/python3", "torchrun"),
    ]


DIGESTS = {"docker": "sha256:" + "1" * 64, "podman": "sha256:" + "2" * 64}


def test_images_and_the_container_toolkit(tmp_path: Path) -> None:
    docker = {"Repositories": {"nvcr.io/x": {"nvcr.io/x:1": DIGESTS["docker"], "nvcr.io/x@sha256:0": "id"}}}
    podman = [{"id": "2", "digest": DIGESTS["podman"], "names": ["docker.io/library/pytorch:latest"]}]
    root = trees.make(
        tmp_path,
        {
            "/var/lib/docker/image/overlay2/repositories.json": json.dumps(docker),
            "/var/lib/containers/storage/overlay-images/images.json": json.dumps(podman),
            "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
            "/var/run/cdi/nvidia.yaml": "cdiVersion: 0.5.0\n",
        },
    )

    def said(image: str) -> list[str]:
        return list(facts_launch.collect({"image": image}, str(root))["images"].values())

    assert said("nvcr.io/x:1") == [DIGESTS["docker"]]
    assert said("nvcr.io/x@sha256:0") == ["id"]
    assert said("pytorch") == said("docker.io/library/pytorch:latest") == [DIGESTS["podman"]]
    assert said("nvcr.io/x") == said("other/pytorch") == []
    value = facts_launch.collect({"image": "x"}, str(root))
    assert value["toolkit"][0] == "/etc/docker/daemon.json"
    assert value["toolkit"][-1] == "/var/run/cdi/nvidia.yaml"
    assert len(value["stores"]) == 2
    (tmp_path / "var/lib/docker/image/overlay2/repositories.json").write_text("[" * 99999)
    assert facts_launch.collect({"image": "x"}, str(root))["unread"]
    with pytest.raises(runtime.Unavailable):
        facts_launch.collect({"launcher": None, "image": None})


def test_looking_for_interpreters_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        trees.make(tmp_path, environment(f"/opt/venv{number}"))
    assert len(others(tmp_path)) == pythons.MAX_FOUND
    assert others(tmp_path, *[f"/none/{number}" for number in range(pythons.MAX_TRIED)]) == []
    monkeypatch.setattr(pythons, "BOUND_S", -1.0)
    assert others(tmp_path) == []


def nccl(root: Path, tmp_path: Path, **environ: str) -> list[tuple[str | None, str]]:
    paths = [str(root)]
    rows = facts_software.find_nccl(paths, dists.installed(paths), f"{root}/torch", environ, "/")
    mine = [row for row in rows if row["path"].startswith(str(tmp_path))]
    return [(row["version"], row["origin"]) for row in mine]


RPATH = "$ORIGIN/../../nvidia/nccl/lib:$ORIGIN"


def test_loader_order_of_nccl(tmp_path: Path) -> None:
    root = site(tmp_path)
    other = trees.make(
        tmp_path / "other",
        {
            "libnccl.so.2 -> libnccl.so.2.20.3": "",
            "libnccl.so.2.20.3": "x",
            "pre/libnccl.so.2": b"\0" * (1 << 20) + b"NCCL version 2.19.3+cuda12.2\0",
        },
    )
    cuda = root / "torch/lib/libtorch_cuda.so"
    wheel, path, preload = ("2.21.5", "wheel"), ("2.20.3", "LD_LIBRARY_PATH"), ("2.19.3", "LD_PRELOAD")
    environ = {"LD_LIBRARY_PATH": f"/nope:{other}"}
    elf(cuda, needed="libnccl.so.2", rpath=RPATH)
    assert nccl(root, tmp_path) == [wheel]
    assert nccl(root, tmp_path, **environ) == [wheel, path]
    elf(cuda, needed="libnccl.so.2", runpath=RPATH)
    assert nccl(root, tmp_path, **environ) == [path, wheel]
    environ["LD_PRELOAD"] = f"/x.so {other}/pre/libnccl.so.2"
    assert nccl(root, tmp_path, **environ) == [preload, path, wheel]
    elf(cuda, needed="libc.so.6", runpath=RPATH)
    assert nccl(root, tmp_path)[0] == (None, "torch-bundled")
    cuda.write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 200)
    assert nccl(root, tmp_path, LD_LIBRARY_PATH=other) == [path, wheel]


def test_requirements_that_are_not_met_are_those_of_pip(tmp_path: Path) -> None:
    """Of random environments: what pip check says, from what the agent tells and packaging reads of it."""
    check = pytest.importorskip("pip._internal.operations.check")
    metadata = pytest.importorskip("pip._internal.metadata")
    source = random.Random(11)
    names = ["torch", "nvidia-nccl-cu12", "Foo.Bar", "b_z", "c"]
    versions = ["1.0", "1.0+cu124", "2.21.5", "2.19.3", "1.0rc1", "3"]
    ends = ["", "==1.0", "==2.21.5", " (>=1.0)", ">=2,<3", "[x]==1.0", "[x]", "~=1.0", "==1.*", "!=3", "==1"]
    markers = ["", "; sys_platform == 'linux'", " ; python_version < '3'", "; extra == 'x'", ";os_name=='nt'"]
    markers += [';extra=="y_1"', ";python_version>'3' and extra == 'x'", "; (extra=='y-1') and os_name=='nt'"]
    here = environment_of(SoftwareFacts(executable="", version=platform.python_version()), None)
    for trial in range(60):
        root = tmp_path / str(trial)
        for name in names:
            if source.random() < 0.8:
                version = source.choice(versions)
                lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
                for _ in range(source.randrange(4)):
                    wanted = source.choice(names) + source.choice(ends) + source.choice(markers)
                    lines.append(f"Requires-Dist: {wanted}")
                folder = root / f"{name.replace('-', '_').replace('.', '_')}-{version}.dist-info"
                folder.mkdir(parents=True)
                (folder / "METADATA").write_text("\n".join(lines) + "\n\nRequires-Dist: no-header\n")
        installed = {
            dist.canonical_name: check.PackageDetails(dist.version, list(dist.iter_dependencies()))
            for dist in metadata.get_environment([str(root)]).iter_installed_distributions(
                local_only=False, skip=()
            )
        }
        missing, conflicting = check.check_package_set(installed)
        said = {(of, name) for of, rows in missing.items() for name, _ in rows}
        said |= {(of, name) for of, rows in conflicting.items() for name, *_ in rows}
        found = set()
        for row in facts_software.unmet(names, dists.installed([str(root)])) or ():
            read = requirement(row["requires"])
            assert read
            if applies(read[2], here) and (row["installed"] is None or not fits(read[1], row["installed"])):
                found.add((row["of"], canonicalize_name(read[0])))
        assert found == said, trial
        extras = {name: ["X", "y.1"] for name in names}
        for row in facts_software.unmet(names, dists.installed([str(root)]), extras) or ():
            read = requirement(row["requires"])
            assert read
            meant = applies_to(read[2], here, row["extras"])
            if meant and (row["installed"] is None or not fits(read[1], row["installed"])):
                found.add((row["of"], canonicalize_name(read[0])))
        every = metadata.get_environment([str(root)])
        for dist in every.iter_installed_distributions(local_only=False, skip=()):
            for wanted in dist.iter_dependencies(["x", "y-1"]):
                there = installed.get(canonicalize_name(wanted.name))
                if there is None or not wanted.specifier.contains(there.version, prereleases=True):
                    said.add((dist.canonical_name, canonicalize_name(wanted.name)))
        assert found == said, trial


def test_extras_of_extras_are_followed(tmp_path: Path) -> None:
    for name, lines in {
        "vllm": ['vllm[ray,audio];extra == "all"', 'ray[cgraph]>=2.51; extra == "ray"', "av; extra=='audio'"],
        "ray": ['cupy-cuda12x; extra == "cgraph"', 'never; extra == "data"', "msgpack"],
        "msgpack": ['vllm[all] ; extra == "x"'],
    }.items():
        folder = tmp_path / f"{name}-2.50.dist-info"
        folder.mkdir()
        required = "".join(f"Requires-Dist: {line}\n" for line in lines)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 2.50\n{required}")
    for extras, missing in (
        ([], set()),
        (["none"], set()),
        (["audio"], {"av"}),
        (["ray"], {"ray[cgraph]>=2.51", "cupy-cuda12x"}),
        (["ALL"], {"av", "ray[cgraph]>=2.51", "cupy-cuda12x"}),
    ):
        rows = facts_software.unmet(["vllm"], dists.installed([str(tmp_path)]), {"vLLM": extras}) or []
        assert {row["requires"].partition(";")[0].strip() for row in rows} == missing, extras


def test_libraries_in_front_and_a_torch_for_another_python(tmp_path: Path) -> None:
    cudnn = "libcudnn.so.9 -> libcudnn.so.9.5.1"
    folder = trees.make(tmp_path / "x", {cudnn: "", "libcudnn.so.9.5.1": "", "libcuda.so.1": "stub"})
    root = site(tmp_path)
    environ = {"LD_LIBRARY_PATH": f"/nope:{folder}", "LD_PRELOAD": f"{folder}/libcudnn.so.9.5.1 /y.so"}

    def said(**environ: str) -> list[tuple[str, str, str | None]]:
        rows = facts_software.shadows(environ, f"{root}/torch", "/")
        return [(row["name"], row["origin"], row["version"]) for row in rows]

    elf(root / "torch/lib/libtorch_cuda.so", needed="libnccl.so.2", runpath=RPATH)
    stub = ("libcuda.so.1", "LD_LIBRARY_PATH", None)
    assert said(**environ) == [("libcudnn.so.9", "LD_PRELOAD", "9.5.1"), stub]
    assert set(said(LD_LIBRARY_PATH=str(folder))) == {("libcudnn.so.9", "LD_LIBRARY_PATH", "9.5.1"), stub}
    elf(root / "torch/lib/libtorch_cuda.so", needed="libnccl.so.2", rpath=RPATH)
    assert said(LD_LIBRARY_PATH=str(folder)) == [stub]

    assert facts_software.built_for(f"{root}/torch") == []
    (root / "torch/_C.cpython-36m-x86_64-linux-gnu.so").write_text("")
    assert facts_software.built_for(f"{root}/torch") == ["cpython-36m"]
    (root / f"torch/_C{EXTENSION_SUFFIXES[0]}").write_text("")
    assert facts_software.built_for(f"{root}/torch") == []


@pytest.mark.interpreters
@pytest.mark.parametrize("version", SUPPORTED)
def test_search_path_is_that_of_a_normal_start(version: str, tmp_path: Path) -> None:
    python = python_or_skip(version)
    root = site(tmp_path)
    user = tmp_path / f"base/lib/python{version}/site-packages"
    trees.make(
        user,
        {
            "a.pth": f"import os\n# x\n{tmp_path}/pth\nnope\n",
            "only_user-3.dist-info/METADATA": "Version: 3\n",
            "silent.egg-info/PKG-INFO": "Name: silent\n",
        },
    )
    trees.make(tmp_path / "pth", {"by_pth-4.dist-info/METADATA": "Version: 4\n"})
    env = {**os.environ, "PYTHONPATH": f"site-packages:{tmp_path}/nope", "PYTHONUSERBASE": f"{tmp_path}/base"}
    env.pop("PYTHONNOUSERSITE", None)
    asked = {"packages": ["torch", "only-user", "By.Pth", "silent", "absent"]}
    with harness.agent(python, env=env, cwd=tmp_path) as agent:
        value = agent.facts(software=asked)["software"]["value"]
    fact = msgspec.convert(value, type=SoftwareFacts)
    assert fact.search_path[0] == str(root)
    found = {"torch": "2.5.1+cu124", "only-user": "3", "By.Pth": "4", "silent": "", "absent": None}
    assert fact.packages == found
    assert fact.torch
    assert fact.torch.cuda == "12.4"
    assert fact.cuda_packages["nvidia-cuda-runtime-cu12"] == "12.4.127"


def test_pci_functions_are_read_once_for_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of files: a large node has hundreds of functions, and two groups look for theirs."""
    functions = {f"sys/bus/pci/devices/0000:{i:02x}:00.0/vendor": "0x8086\n" for i in range(200)}
    nvidia = {"vendor": "0x10de\n", "class": "0x030200\n"}
    mellanox = {"vendor": "0x15b3\n", "class": "0x020000\n"}
    for address, told in (("0000:f0:00.0", nvidia), ("0000:f1:00.0", mellanox)):
        functions.update({f"sys/bus/pci/devices/{address}/{name}": text for name, text in told.items()})
    root = trees.make(tmp_path, functions)
    read: list[str] = []
    one = files.attribute
    monkeypatch.setattr(files, "attribute", lambda path: read.append(path) or one(path))

    def found() -> tuple[list[str], list[str]]:
        boards, _ = facts_gpu.pci_gpus(root)
        return [board["address"] for board in boards], facts_rdma.unbound_pci(root, set())

    monkeypatch.setattr(runtime.scope, "request", 1, raising=False)
    assert found() == (["0000:f0:00.0"], ["0000:f1:00.0"])
    assert len([path for path in read if path.endswith("/vendor")]) == 202
    (tmp_path / "sys/bus/pci/devices/0000:f0:00.0/vendor").unlink()  # it fell off the bus
    monkeypatch.setattr(runtime.scope, "request", 2)
    assert found() == ([], ["0000:f1:00.0"])


def test_ld_cache_of_this_machine() -> None:
    if not Path("/etc/ld.so.cache").exists():
        pytest.skip("no ld.so.cache on this machine")
    rows = dict(libs.parse_cache(Path("/etc/ld.so.cache").read_bytes()))
    assert rows["libc.so.6"].endswith("libc.so.6")
    assert libs.parse_cache(b"garbage") == []


# --- files ------------------------------------------------------------------------------------------------


def test_reading_is_capped_and_never_blocks(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 1_000_000)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    assert len(files.read_bytes(str(tmp_path / "big"), 1000)) == 1000
    for name in ("fifo", "loop", "absent"):
        assert files.text_or_none(str(tmp_path / name)) is None
    assert files.text_or_none("/dev/zero") is None
    assert files.text_or_none("nul\0byte") is None
    assert files.names(str(tmp_path / "absent")) == []


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("no_such", {}),
        ("no-such", {}),
        ("../main", {}),
        ("", {}),
        ("facts", {"groups": {"no_such": {}}}),
        ("facts", {"groups": {"host.x": {}}}),
    ],
)
def test_what_the_agent_cannot_do_is_not_collected(op: str, args: dict[str, Any]) -> None:
    with harness.agent() as running:
        answer = running.finish(running.start(op, args))
    why = answer["result"][next(iter(args["groups"]))]["missing"]["why"] if args else answer["why"]
    assert why == "not_collected"


def test_every_fact_of_the_agent_has_its_collector() -> None:
    for module in pkgutil.iter_modules(facts.__path__, facts.__name__ + "."):
        importlib.import_module(module.name)
    asked = {info.group for info in FACT_TYPES.values() if info.origin == "agent" and info.collector is None}
    by_experiments = {"routes", "firewall"}
    assert asked | by_experiments == {n[6:] for n in bundle.modules() if n.startswith("facts.")}


# --- kernel_log -------------------------------------------------------------------------------------------

BOOT = "6,0,0,-;Linux version 6.1.0\n"
XIDS = """\
6,900,2000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build
 SUBSYSTEM=pci
4,901,5000000,-;NVRM: Xid (PCI:0000:3B:00): 31, pid=42, name=python, Ch 00000008, MMU Fault
4,902,6000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=43, name=python, Ch 00000009, MMU Fault
4,903,7000000,c;NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No
3,904,8000000,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
4,905,8000001,-;NVRM: Xid (0000:03:00): 14, Channel 00000001
4,906,x,-;NVRM: Xid (PCI:0000:3b:00): 79, a time that is none
4,907,9000000,-;eth0: NVRM: Xid (PCI:zz): 79
"""


def test_a_kernel_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees.make(tmp_path, {"/dev/kmsg": BOOT + XIDS, "/proc/driver/nvidia/version": "x"})
    fact = msgspec.convert(facts_kernel_log.collect({}, root), type=KernelLog)
    assert (fact.source, fact.since_s, fact.refused) == ("/dev/kmsg", None, "")
    assert [(e.kind, e.device, e.code, e.count) for e in fact.events] == [
        ("xid", "0000:3b:00", 31, 2),
        ("xid", "0000:01:00", 94, 1),
        ("sxid", "0000:c1:00", 20034, 1),
        ("xid", "0000:03:00", 14, 1),
    ]
    first = fact.events[0]
    assert first.first_age_s - first.last_age_s == pytest.approx(1.0)
    assert first.text == "pid=43, name=python, Ch 00000009, MMU Fault"
    assert fact.driver_age_s is not None
    assert fact.driver_age_s - first.last_age_s == pytest.approx(4.0)
    later = trees.make(tmp_path / "later", {"/dev/kmsg": XIDS, "/proc/driver/nvidia/version": "x"})
    monkeypatch.setattr(facts_kernel_log, "from_journal", lambda: "[    1.5] n1 kernel: Linux version 6.1")
    assert facts_kernel_log.collect({}, later)["source"] == "journal"
    monkeypatch.setattr(facts_kernel_log, "from_journal", lambda: None)
    assert msgspec.convert(facts_kernel_log.collect({}, later), type=KernelLog).since_s is not None


def test_a_kernel_log_of_noise(tmp_path: Path) -> None:
    noise = b"\xff\x00;;;" * 999 + b"\n" + b"4,5,6,-;NVRM: Xid (PCI:0000:3b:00): 9999999\n" * 9
    many = "".join(f"4,{i},{i},-;NVRM: Xid (PCI:0000:3b:00): {i}, {'x' * 999}\n" for i in range(900))
    root = trees.make(tmp_path, {"/dev/kmsg": noise + many.encode(), "/proc/driver/nvidia/version": "x"})
    fact = msgspec.convert(facts_kernel_log.collect({}, root), type=KernelLog)
    assert len(fact.events) == facts_kernel_log.MAX_EVENTS
    assert {len(e.text) for e in fact.events} == {facts_kernel_log.TEXT_MAX}


def test_a_kernel_log_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(runtime.Unavailable) as caught:
        facts_kernel_log.collect({}, trees.make(tmp_path, {}))
    assert caught.value.why == "not_applicable"
    root = trees.make(tmp_path / "gpu", {"/proc/driver/nvidia/version": "x"})
    monkeypatch.setattr(runtime, "find_tool", lambda name: None)
    assert facts_kernel_log.collect({}, root) == {"refused": "ENOENT"}
    text = (
        "[    0.000000] n1 kernel: Linux version 6.1\n"
        "[   12.500000] n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x"
    )
    monkeypatch.setattr(runtime, "find_tool", lambda name: "/bin/journalctl")
    monkeypatch.setattr(runtime, "run_tool", lambda argv, timeout_s: runtime.ToolResult(0, text, ""))
    fact = msgspec.convert(facts_kernel_log.collect({}, root), type=KernelLog)
    assert (fact.source, [e.code for e in fact.events]) == ("journal", [79])
    shown_nothing = runtime.ToolResult(0, text.replace("Linux version", "x"), "")
    monkeypatch.setattr(runtime, "run_tool", lambda argv, timeout_s: shown_nothing)
    assert facts_kernel_log.collect({}, root) == {"refused": "ENOENT"}


# --- ray --------------------------------------------------------------------------------------------------

# Of Ray 2.44.1, as `ray start --address` starts it; what it is told beside is left out.
RAYLET = (
    "/opt/ray/lib/python3.11/site-packages/ray/core/src/ray/raylet/raylet",
    "--raylet_socket_name=/tmp/ray/session_2026-11-22_14-23-13_998495_8/sockets/raylet",
    "--object_manager_port=0", "--min_worker_port=10002", "--max_worker_port=19999", "--node_manager_port=0",
    "--node_ip_address=10.99.7.11",
    "--static_resource_list=node:10.99.7.11,1.0,accelerator_type:H100,1,CPU,1,GPU,2,memory,23916727296",
    "--python_worker_command=/opt/ray/bin/python /x/setup_worker.py --node-ip-address=10.0.0.9",
    "--object_store_memory=80000000", "--plasma_directory=/dev/shm", "--gcs-address=10.99.7.10:6379",
)  # fmt: skip
SOCKETS = """\
Num       RefCount Protocol Flags    Type St Inode Path
000000004db3ad44: 00000002 00000000 00010000 0001 01 11596791 /tmp/ray/session_2026-11-22_8/sockets/raylet
"""


def test_a_raylet_says_how_it_was_started(tmp_path: Path) -> None:
    tree = {
        "/proc/net/unix": SOCKETS,
        "/proc/21/cmdline": b"/usr/bin/tail\0raylet\0",
        "/proc/22/cmdline": "\0".join(RAYLET).encode() + b"\0",
        "/proc/22/fd/30 -> socket:[501]": "",
        "/proc/net/tcp": "  sl\n   0: 00000000:ACC1 00000000:0000 0A 0:0 0:0 0 0 0 501 1\n"
        "   1: 00000000:0016 00000000:0000 0A 0:0 0:0 0 0 0 502 1\n",
        RAYLET[0][: -len("core/src/ray/raylet/raylet")] + "_version.py": (
            '# Ray\ncommit = "daca7b2"\nversion = "2.44.1"\n'
        ),
    }
    found = facts_ray.collect({}, trees.make(tmp_path, tree))
    assert msgspec.convert(found, type=RayFacts) == RayFacts(
        version="2.44.1", commit="daca7b2", python="/opt/ray/bin/python", address="10.99.7.11",
        gcs_address="10.99.7.10:6379", ports=(0xACC1,), worker_ports=(10002, 19999), cpus=1.0, gpus=2.0,
        object_store_bytes=80000000, object_store_dir="/dev/shm",
    )  # fmt: skip


def test_raylets_of_one_cluster_on_one_machine_hand_out_together(tmp_path: Path) -> None:
    other = [word.replace("10.99.7.10:6379", "10.99.9.9:6379") for word in RAYLET]
    tree = {
        "/proc/net/unix": SOCKETS,
        **{f"/proc/{pid}/cmdline": "\0".join(RAYLET).encode() for pid in (22, 23)},
        "/proc/24/cmdline": "\0".join(other).encode(),
    }
    found = msgspec.convert(facts_ray.collect({}, trees.make(tmp_path, tree)), type=RayFacts)
    assert (found.raylets, found.cpus, found.gpus) == (2, 2.0, 4.0)
    assert found.gcs_address == "10.99.7.10:6379"


def test_without_a_raylet_there_is_no_fact(tmp_path: Path) -> None:
    cases = {
        "none": ({"/proc/net/unix": "Num\n", "/proc/22/cmdline": b"raylet\0--x=1\0"}, "not_applicable"),
        "unread": ({}, "not_applicable"),
        "hidden": ({"/proc/net/unix": SOCKETS}, "no_permission"),
        "a word of it": ({"/proc/net/unix": SOCKETS, "/proc/9/cmdline": b"raylet\0"}, "no_permission"),
    }
    for name, (tree, why) in cases.items():
        with pytest.raises(runtime.Unavailable) as caught:
            facts_ray.collect({}, trees.make(tmp_path / name, tree))
        assert caught.value.why == why, name
    garbage = b"raylet\0--static_resource_list=CPU,x,GPU\0--min_worker_port=-1\0--object_store_memory=1e9\0"
    tree = {"/proc/net/unix": SOCKETS, "/proc/9/cmdline": garbage}
    found = msgspec.convert(facts_ray.collect({}, trees.make(tmp_path / "odd", tree)), type=RayFacts)
    assert found == RayFacts()


# --- places -----------------------------------------------------------------------------------------------

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 22 0:26 /exp/a /data rw,relatime shared:2 - nfs4 10.0.0.5:/vol rw,vers=4.2,hard
31 22 0:27 / /mnt/my\\040bucket rw - fuse.s3fs s3fs rw,user_id=0
32 22 0:28 / /run/user/1000/doc rw - fuse.portal portal rw
33 22 8:17 / /fell rw,relatime - ext4 /dev/sdb1 ro,errors=remount-ro
34 22 8:33 / /emergency rw - ext4 /dev/sdc1 rw,emergency_ro
35 22 8:49 / /meant ro,relatime - ext4 /dev/sdd1 ro
36 22 7:1 / /snap/x rw - squashfs /dev/loop1 ro
garbage
37 22 0:30 / /short
38 22 0:31 /\\ /cut\\04 rw - ntfs3 \\srv\\134x rw
"""


def test_mounts_of_a_tree(tmp_path: Path) -> None:
    found = mounts.read_mounts(trees.make(tmp_path, {"/proc/self/mountinfo": MOUNTINFO}))
    by = {mount.point: mount for mount in found}
    assert {point for point, mount in by.items() if mount.is_network} == {"/data", "/mnt/my bucket"}
    assert {point for point, mount in by.items() if mount.fell} == {"/fell", "/emergency"}
    assert {point for point, mount in by.items() if mount.read_only} == {"/fell", "/meant", "/snap/x"}
    below = mounts.mount_of("/data/x/y", found)
    assert below is not None
    assert (below.point, below.root, below.source) == ("/data", "/exp/a", "10.0.0.5:/vol")
    assert mounts.mount_of("/database", found) is by["/"]
    assert (by["/cut\\04"].root, by["/cut\\04"].source) == ("/\\", "\\srv\\x")  # what is no escape stays
    roles = {
        one["path"]: one["role"] for one in facts_places.select_paths({"paths": ["/data", "rel"]}, found, "/")
    }
    assert (roles["/data"], roles["/mnt/my bucket"]) == ("path", "mount")
    assert "rel" not in roles
    assert "/run/user/1000/doc" not in roles


def places(*paths: Path | str, **env: str) -> dict[str, Place]:
    asked = facts_places.collect({"paths": [str(path) for path in paths], "env": env})
    return {one.path: one for one in msgspec.convert(asked, type=PlaceFacts).places}


def test_contents_tell_what_differs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        trees.make(
            tmp_path / name,
            {
                "/pkg/x.py": "x = 1\n", "/pkg/deep/y.py": "y\n", "/big": b"0" * (17 << 20),
                "/new -> pkg/x.py": "",
                "/loop -> .": "", "/pkg/__pycache__/x.pyc": name, "/train.log": name, "/t.sock": "",
            },
        )  # fmt: skip
    os.chmod(tmp_path / "b/big", 0o600)
    one, other = (places(tmp_path / name)[str(tmp_path / name)] for name in ("a", "b"))
    assert one.entries == other.entries
    assert one.digest == other.digest
    assert set(one.entries) == {"big", "loop", "new", "pkg", "t.sock"}
    # The end of a file that is as long as it was.
    with (tmp_path / "b/big").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"1")
    (tmp_path / "b/pkg/deep/y.py").write_text("z\n")
    other = places(tmp_path / "b")[str(tmp_path / "b")]
    assert {name for name in one.entries if one.entries[name] != other.entries[name]} == {"big", "pkg"}
    files = places(tmp_path / "a/big", tmp_path / "b/big")
    assert len({file.digest for file in files.values() if file.role == "path"}) == 2
    assert all(file.sampled and file.size_bytes == 17 << 20 for file in files.values() if file.role == "path")


def test_the_revision_is_read_as_git_keeps_it(tmp_path: Path) -> None:
    git = tmp_path / "repo/.git"
    head, packed = "1" * 40, "2" * 40
    made = {
        "HEAD": "ref: refs/heads/main\n", "refs/heads/main": head + "\n",
        "packed-refs": f"# pack-refs\n{packed} refs/heads/old\n",
        "worktrees/w/HEAD": "ref: refs/heads/old\n", "worktrees/w/commondir": "../..\n",
    }  # fmt: skip
    trees.make(git, {f"/{name}": text for name, text in made.items()})
    trees.make(tmp_path, {"/repo/src/a.py": "", "/linked/.git": f"gitdir: {git}/worktrees/w\n"})
    assert facts_places.revision(str(tmp_path / "repo/src")) == head
    assert facts_places.revision(str(tmp_path / "linked")) == packed
    for text in (
        "ref: refs/../../../../etc/passwd",
        "ref: refs/heads/none",
        "x" * 40,
        "",
        packed.upper()[:7],
    ):
        (git / "HEAD").write_text(text)
        assert facts_places.revision(str(tmp_path / "repo")) is None, text
    (git / "HEAD").write_text(packed)  # detached
    assert facts_places.revision(str(tmp_path / "repo")) == packed


def test_places_of_every_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").mkdir()
    found = places(
        tmp_path / "fifo", tmp_path / "empty", tmp_path / "none", "/dev/null/x", HF_HOME=str(tmp_path)
    )
    kinds = {path.removeprefix(str(tmp_path)): one.kind or one.error for path, one in found.items()}
    wanted = {
        "/fifo": "other",
        "/empty": "directory",
        "/none": "ENOENT",
        "/dev/null/x": "ENOTDIR",
        "": "directory",
    }
    assert {path: kinds[path] for path in wanted} == wanted
    assert (found[str(tmp_path)].role, found[str(tmp_path)].inode) == ("cache", None)
    assert found["/"].total_bytes > found["/"].free_bytes > 0
    assert "tmp" in {one.role for one in found.values()}


def test_a_child_that_hangs_or_ends_is_given_up() -> None:
    def answer(question: int) -> int:
        if question == 1:
            time.sleep(60)
        if question == 2:
            os._exit(3)
        return question * 10

    before = set(os.listdir("/proc/self/fd"))
    assert aside.answers(answer, [0, 1, 3, 2, 4], 0.2, 3) == [0, None, 30, None, 40]
    assert aside.answers(answer, [1, 2, 3], 0.2, 2) == [None, None, None]
    assert set(os.listdir("/proc/self/fd")) == before


# --- tuning -----------------------------------------------------------------------------------------------

CMDLINE = (
    "BOOT_IMAGE=/vmlinuz root=UUID=1-2 ro iommu=pt intel-iommu=on hugepagesz=1G hugepages=4 hugepagesz=2M "
    "hugepages=9 ds=nocloud-net;s=http://u:secret@10.0.0.1/ quiet nosmt -- mitigations=off"
)


def tuned(tmp_path: Path, content: dict[str, Any]) -> TuningFacts:
    return msgspec.convert(facts_tuning.collect({}, trees.make(tmp_path, content)), type=TuningFacts)


def test_tuning_of_a_server(tmp_path: Path) -> None:
    cpu = "/sys/devices/system/cpu"
    tree: dict[str, Any] = {
        "/proc/cmdline": CMDLINE,
        "/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor lm\n\nprocessor : 1\n",
        "/proc/uptime": "3600.25 99999.0\n",
        "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 8388604 1048576 -2\n"
        "/dev/zram0 partition 4194304 4194304 100\n",
        "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
        "/proc/self/cgroup": "0::/\n",
        "/sys/class/dmi/id/product_name": "DGXH100\n",
        "/sys/class/dmi/id/bios_version": "1.5.3\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/devices/system/node/online": "0-1\n",
        f"{cpu}/present": "0-223\n",
        f"{cpu}/online": "0-99,101-223\n",
        f"{cpu}/smt/control": "on\n",
        "/run/reboot-required": "",
        "/lib/modules/1.2.3-gone/modules.dep": "",
    }
    tree |= {f"{cpu}/cpufreq/policy{i}/scaling_governor": "performance\n" for i in range(9)}
    tree[f"{cpu}/cpufreq/policy8/scaling_governor"] = "powersave\n"
    fact = tuned(tmp_path, tree)
    assert fact.boot == {
        "iommu": "pt", "intel_iommu": "on", "hugepagesz": "1G 2M", "hugepages": "4 9", "nosmt": "",
    }  # fmt: skip
    assert (fact.product, fact.bios, fact.is_virtual, fact.hugepages) == ("DGXH100", "1.5.3", True, "madvise")
    assert (fact.cpus_present, fact.cpus_online, fact.numa_nodes) == (224, 223, 2)
    assert fact.governor == "performance+powersave"
    assert (fact.swap_bytes, fact.swap_used_bytes) == (8388604 << 10, 1 << 30)
    assert fact.sysctls == {"net.ipv4.tcp_rmem": "4096 131072 6291456"}
    assert (fact.uptime_s, fact.reboot_wanted, fact.modules_gone) == (3600.25, True, True)


def test_tuning_of_a_machine_that_shows_nothing(tmp_path: Path) -> None:
    assert tuned(tmp_path, {}) == TuningFacts()
    broken = dict.fromkeys(("/proc/cmdline", "/proc/swaps", "/proc/uptime", "/proc/self/cgroup"), "\0\xff[")
    assert tuned(tmp_path, broken) == TuningFacts()
    for text in ("x", "", "-", "1-2-3", "0,x"):
        assert facts_tuning.count(text) is None, text


V2 = "/sys/fs/cgroup/user.slice"
V1 = "/sys/fs/cgroup"
GROUPS: list[tuple[dict[str, str], tuple[int | None, int | None, int | None, float | None]]] = [
    ({"/proc/self/cgroup": "0::/user.slice/user-0.slice/s.scope\n"}, (None, None, None, None)),
    (
        {
            "/proc/self/cgroup": "0::/user.slice/user-0.slice/s.scope\n",
            f"{V2}/memory.max": "max\n", f"{V2}/memory.high": "4096\n",
            f"{V2}/user-0.slice/memory.max": "8192\n",
            f"{V2}/user-0.slice/pids.max": "100\n", f"{V2}/user-0.slice/pids.current": "30\n",
            f"{V2}/pids.max": "90\n", f"{V2}/pids.current": "10\n", f"{V2}/cpu.max": "max 100000\n",
            f"{V2}/user-0.slice/cpu.max": "150000 100000\n",
        },
        (4096, 90, 70, 1.5),
    ),
    # A container: its own group is the root of what it sees.
    ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/pids.max": "64\n"}, (None, 64, None, None)),
    (
        {
            "/proc/self/cgroup": "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n"
            "3:pids:/docker/ab\n1:name=systemd:/\n",
            f"{V1}/memory/memory.limit_in_bytes": "9223372036854771712\n",
            f"{V1}/memory/docker/ab/memory.limit_in_bytes": "2048\n",
            f"{V1}/pids/docker/ab/pids.max": "max\n", f"{V1}/cpu/docker/ab/cpu.cfs_quota_us": "-1\n",
            f"{V1}/cpu/docker/ab/cpu.cfs_period_us": "100000\n",
        },
        (2048, None, None, None),
    ),
    # The names of the host's groups, seen from a container that has no such folders.
    (
        {
            "/proc/self/cgroup": "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n",
            f"{V1}/memory/memory.limit_in_bytes": "2048\n",
            f"{V1}/cpu/cpu.cfs_quota_us": "200000\n", f"{V1}/cpu/cpu.cfs_period_us": "100000\n",
        },
        (2048, None, None, 2.0),
    ),
]  # fmt: skip


def test_limits_of_control_groups(tmp_path: Path) -> None:
    for i, (tree, expected) in enumerate(GROUPS):
        fact = tuned(tmp_path / str(i), tree)
        found = (fact.memory_limit_bytes, fact.processes_limit, fact.processes_left, fact.cores_limit)
        assert found == expected, tree


# --- time daemons -----------------------------------------------------------------------------------------

# chrony 4.3: `chronyc -n -c -m tracking sources`.
CHRONYC = """\
0A630001,10.99.0.1,4,1795372306.415604523,-0.000004659,0.000000012,0.000002952,-0.089,0.001,0.424,0.000014538,0.000001393,2.0,Normal
^,*,10.99.0.1,3,1,377,0,0.000000155,0.000000167,0.000007328
^,?,10.99.0.9,0,7,0,4294967295,0.000000000,0.000000000,0.000000000
"""
# linuxptp 3.1.1: `pmc -u -b 0 'GET TIME_STATUS_NP'`.
PMC = """\
sending: GET TIME_STATUS_NP
\t32ed31.fffe.521f3c-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              -19910
\t\tingress_time               1795372306629139096
\t\tcumulativeScaledRateOffset +0.000000000
\t\tgmPresent                  true
\t\tgmIdentity                 ba6f47.fffe.8aac87
"""
# `timedatectl timesync-status`, in the form that systemd's src/timedate/timedatectl.c gives it.
TIMESYNCD = """\
       Server: 185.125.190.56 (ntp.ubuntu.com)
Poll interval: 34min 8s (min: 32s; max 34min 8s)
         Leap: normal
      Version: 4
      Stratum: 2
       Offset: -1.234ms
        Delay: 30.4ms
 Packet count: 13
"""
# ntpsec 1.2.2: the answers of mode 6, by operation and association.
SYSTEM = b"leap=0, stratum=4, offset=-0.250000\r\n"
MODE6 = {
    (2, 0): (SYSTEM[:20], SYSTEM[20:]),
    (1, 0): (b"Eh\x80\x11Eg\xb6\x1a",),
    (2, 0x4567): (b"srcadr=10.99.0.1\r\n",),
    (2, 0x4568): (b"srcadr=10.99.0.8\r\n",),
}


@pytest.mark.parametrize(
    ("second", "found"),
    [
        pytest.param("2 (kthreadd) S 0 0 0", {"chronyd", "kthreadd"}, id="the kernel's threads"),
        pytest.param("2 (kthreadd) S 1 0 0", {"chronyd", "kthreadd", "ntpd"}, id="a container's process"),
        pytest.param("2 (bash) S 0 0 0", {"chronyd", "kthreadd", "ntpd"}, id="another one"),
    ],
)
def test_the_kernels_threads_are_not_looked_at(tmp_path: Path, second: str, found: set[str]) -> None:
    for pid, name in ((2, "kthreadd\n"), (3, "ntpd\n"), (40, "chronyd\n"), (41, "chronyd\n"), (42, "\n")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/comm").write_text(name)
    (tmp_path / "proc/43").mkdir()  # it has just ended
    (tmp_path / "proc/2/stat").write_text(second)
    (tmp_path / "proc/2/task/2").mkdir(parents=True)
    (tmp_path / "proc/2/task/2/children").write_text("3 9 ")
    assert procs.running(str(tmp_path)) == found


def test_time_daemons_say_what_they_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"chronyc": CHRONYC, "pmc": PMC, "timedatectl": TIMESYNCD}
    monkeypatch.setattr(runtime, "find_tool", lambda name: name)
    monkeypatch.setattr(runtime, "run_tool", lambda argv, _: runtime.ToolResult(0, said[argv[0]], ""))
    tracking, error, sources = facts_time.chrony()
    assert (error, sources) == (None, ["10.99.0.1", "10.99.0.9"])
    assert tracking is not None
    assert (tracking["reference"], tracking["leap"]) == ("10.99.0.1", "Normal")
    assert tracking["offset_s"] == -0.000004659
    found = msgspec.convert(facts_time.reports(["ptp4l", "systemd-timesyncd"]), type=list[TimeReport])
    assert found == [
        TimeReport(
            daemon="systemd-timesyncd", source="ntp.ubuntu.com", sources=("ntp.ubuntu.com",),
            offset_s=0.001234, stratum=2,
        ),
        TimeReport(
            daemon="ptp4l", source="ba6f47.fffe.8aac87", sources=("ba6f47.fffe.8aac87",),
            offset_s=pytest.approx(19.91e-6),
        ),
    ]  # fmt: skip
    said.update(pmc="gmPresent false\n", timedatectl="Server: n/a (ntp.ubuntu.com)\nPacket count: 0\n")
    found = msgspec.convert(facts_time.reports(["ptp4l", "systemd-timesyncd"]), type=list[TimeReport])
    said_now = [(one.offset_s, one.synchronized, one.error) for one in found]
    assert said_now == [(None, False, None), (None, None, None)]
    for text in (
        "",
        "\0",
        "Offset: x",
        "Offset: 1.2.3s\nStratum: ²",
        "master_offset --\ngmPresent true",
        "a,b\n" * 9,
    ):
        said.update(pmc=text, timedatectl=text, chronyc=text)
        assert all(
            one.get("offset_s") is None for one in facts_time.reports(["ptp4l", "systemd-timesyncd"])
        ), text
        assert facts_time.chrony()[0] is None


def test_spans_of_time() -> None:
    spans = {
        "+382us": 382e-6,
        "-1min 2.5s": 62.5,
        "1h 1min": 3660.0,
        "0": None,
        "": None,
        "5y": None,
        "s": None,
    }
    for text, expected in spans.items():
        assert facts_time.seconds(text) == (expected if expected is None else pytest.approx(expected)), text


def test_ntpd_is_asked_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setattr(facts_time, "NTP_PORT", server.getsockname()[1])

        def serve() -> None:
            while True:
                got, whom = server.recvfrom(500)
                _, operation, number, _, association, *_ = struct.unpack(">BBHHHHH", got[:12])
                if operation == 31:
                    return
                parts = MODE6[operation, association]
                offset = sum(map(len, parts))
                for i, part in reversed(list(enumerate(parts))):  # the last one first
                    offset -= len(part)
                    bits = 0x80 | operation | (0x20 if i + 1 < len(parts) else 0)
                    head = struct.pack(">BBHHHHH", 0x16, bits, number, 0, association, offset, len(part))
                    server.sendto(b"junk", whom)
                    server.sendto(head + part + bytes(-len(part) % 4), whom)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            (found,) = msgspec.convert(facts_time.reports(["ntpd"]), type=list[TimeReport])
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.sendto(struct.pack(">BBHHHHH", 0x16, 31, 0, 0, 0, 0, 0), server.getsockname())
            thread.join()
    assert found == TimeReport(
        daemon="ntpd", source="10.99.0.1", sources=("10.99.0.8", "10.99.0.1"), offset_s=0.00025, stratum=4
    )


def test_an_ntpd_that_does_not_answer_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setattr(facts_time, "NTP_PORT", nobody.getsockname()[1])
    (found,) = facts_time.reports(["ntpd"])
    assert "refused" in found["error"]


@pytest.mark.parametrize(
    "part", ["", "bin", "bin/python3", "lib/python3.11", "lib/python3.11/site-packages",
             "lib/python3.11/site-packages/torch"],
)  # fmt: skip
def test_who_could_change_an_interpreter_is_told(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.make(tmp_path, environment("/opt/venv"))
    other = tmp_path / "opt/venv" / part

    def distrust() -> str:
        rows = pythons.find_with_torch({}, "/home/ml", [], lambda _: "2.6.0", str(tmp_path), "/usr")
        return str(next(row.get("distrust", "") for row in rows))

    (tmp_path / "opt/venv/bin/python3").chmod(0o755)
    assert distrust() == ""
    with strangers(monkeypatch, other):
        assert distrust() == f"{other} belongs to uid 4321"
    other.chmod(0o777)
    assert distrust() == f"everybody may write to {other} (mode 777)"
    other.chmod(0o775)
    assert distrust() == ""
    other.rename(tmp_path / "real")
    other.symlink_to(tmp_path / "real")
    if part:  # the link of the interpreter is what is replaced
        with strangers(monkeypatch, other):
            assert "belongs to uid 4321" in distrust()
