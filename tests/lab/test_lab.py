"""The lab keeps its word: real nodes, real faults, and nothing left behind."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from netdoctor.lab import FAULTS, Lab, LabError, links, load, missing_requirements, up
from netdoctor.lab import cli as lab_cli

pytestmark = pytest.mark.lab

NODE = "node2"
Maker = Callable[..., Lab]


# --- helpers --------------------------------------------------------------------------------------


def ssh(
    lab: Lab, node: str, command: str, *, stdin: str = "", timeout: float = 30
) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(lab.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=3"]
    return subprocess.run(
        [*argv, node, command], input=stdin, capture_output=True, text=True, timeout=timeout
    )


def says(lab: Lab, node: str, command: str, **kw: str) -> str:
    done = ssh(lab, node, command, **kw)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def on(lab: Lab, node: str, *argv: str) -> str:
    done = lab.run(node, argv, capture_output=True, text=True)
    return str(done.stdout).strip()


CONNECT = """
import errno, socket, sys
s = socket.socket()
s.settimeout(1)
try:
    s.connect((sys.argv[1], int(sys.argv[2])))
    print("open")
except socket.timeout:
    print("timeout")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def connect(lab: Lab, node: str, to: str, port: int) -> str:
    return on(lab, node, "python3", "-c", CONNECT, to, str(port))


def listen(lab: Lab, node: str, port: int) -> None:
    """A real listener on a node, by the fault that makes one."""
    lab.break_(node, "port-busy", port=str(port))


def ping(lab: Lab, node: str, to: str, *options: str) -> bool:
    argv = ["ping", "-c", "1", "-W", "1", *options, to]
    return lab.run(node, argv, capture_output=True).returncode == 0


# Compiled once for each node.
PLACE = "mkdir -p /opt/nvml && cd /opt/nvml && { [ -e pynvml.py ] || cat >pynvml.py; }"


def nvml(lab: Lab, node: str, expression: str) -> str:
    """What nvidia-ml-py makes of the stand-in, on the node."""
    code = f"""
from pynvml import *
try:
    nvmlInit()
    h = nvmlDeviceGetHandleByIndex(0)
    print({expression})
except NVMLError as error:
    print("NVMLError", error.value, error)
"""
    source = Path(pynvml.__file__).read_text()
    return says(lab, node, f"{PLACE}; python3 -c {shlex.quote(code)}", stdin=source)


def traces(lab_subnet: str, state_dir: Path) -> dict[str, list[str]]:
    """What a lab could leave behind; other labs may run on this machine at the same time."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return {
        "links": [name for name in os.listdir("/sys/class/net") if name == f"lab{lab_subnet}"],
        "mounts": [line for line in mounts if str(state_dir) in line],
        "files": [str(path) for path in state_dir.rglob("*")],
        "processes": [str(pid) for pid in lab_processes(state_dir)],
    }


NOTHING: dict[str, list[str]] = {"links": [], "mounts": [], "files": [], "processes": []}


def lab_processes(state_dir: Path) -> list[int]:
    """Processes that carry the lab's id or its folder in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
            zombie = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if not zombie and int(pid) != os.getpid() and str(state_dir) in line:
            found.append(int(pid))
    return found


# --- a healthy lab --------------------------------------------------------------------------------


def test_every_node_answers_ssh_by_its_own_name(lab4: Lab) -> None:
    assert [says(lab4, node, "hostname") for node in lab4.nodes] == lab4.nodes


def test_hosts_file_is_in_rank_order(lab4: Lab) -> None:
    assert lab4.hosts_file.read_text().split() == ["node0", "node1", "node2", "node3"]


def test_nodes_reach_each_other_by_name(lab4: Lab) -> None:
    for node in lab4.nodes:
        for peer in lab4.nodes:
            assert ping(lab4, node, peer)
            assert on(lab4, node, "getent", "hosts", peer).split()[0] == lab4.address(peer)


def test_nodes_share_nothing_but_the_kernel(lab4: Lab) -> None:
    lab4.run("node0", ["touch", "/tmp/a", "/dev/shm/a", "/etc/a", "/root/a"])
    listing = "ls /tmp/a /dev/shm/a /etc/a /root/a 2>/dev/null | wc -l"
    assert says(lab4, "node0", listing) == "4"
    assert says(lab4, "node1", listing) == "0"
    assert not any(Path(p).exists() for p in ("/tmp/a", "/dev/shm/a", "/etc/a", "/root/a"))
    kinds = ("net", "mnt", "uts", "ipc", "pid")
    script = "; ".join(f"readlink /proc/1/ns/{kind}" for kind in kinds)
    script += "; cat /etc/machine-id /proc/sys/kernel/random/boot_id"
    seen = [says(lab4, node, script).split() for node in lab4.nodes]
    seen.append([os.readlink(f"/proc/self/ns/{kind}") for kind in kinds] + ["machine", "boot"])
    assert [len(set(column)) for column in zip(*seen, strict=True)] == [5] * 7


def test_sys_shows_the_nodes_own_interfaces(lab4: Lab) -> None:
    assert set(says(lab4, NODE, "ls /sys/class/net").split()) == {"lo", "eth0"}
    assert says(lab4, NODE, "cat /sys/class/net/eth0/mtu") == "1500"


def test_sessions_see_a_clean_environment(lab4: Lab) -> None:
    os.environ["LAB_LEAK"] = "1"
    try:
        lab4.break_(NODE, "host-key")
        lab4.heal()
    finally:
        del os.environ["LAB_LEAK"]
    names = {line.split("=")[0] for line in says(lab4, NODE, "env").splitlines()}
    assert names <= {
        "SHELL", "PWD", "LOGNAME", "HOME", "SSH_CONNECTION", "USER", "SHLVL", "SSH_CLIENT",
        "PATH", "MAIL", "_", "LANG", "MOTD_SHOWN",
    }  # fmt: skip


def test_nodes_have_no_way_out(lab4: Lab) -> None:
    assert on(lab4, NODE, "ip", "route", "show", "default") == ""
    assert "nameserver" not in says(lab4, NODE, "cat /etc/resolv.conf")


def test_a_node_reaps_orphans(lab4: Lab) -> None:
    says(lab4, NODE, "setsid sh -c 'sleep 0.1 & exec true' >/dev/null 2>&1; sleep 0.4")
    assert "Z" not in says(lab4, NODE, "ps -eo stat --no-headers")


def test_label_says_what_is_pretended(lab4: Lab, hw_lab: Lab) -> None:
    assert json.loads(says(lab4, NODE, "cat /run/netdoctor-lab.json"))["fake"] == []
    label = json.loads(says(hw_lab, NODE, "cat /run/netdoctor-lab.json"))
    assert label["lab"] is True
    assert label["fake"] == ["hca", "gpu"]


def test_listeners_and_pids(lab4: Lab) -> None:
    assert lab4.listeners(NODE) == [("0.0.0.0", 44222)]
    assert len(lab4.pids(NODE)) >= 2


def test_hosts_written_elsewhere_work_too(lab4: Lab, tmp_path: Path) -> None:
    lab4.write_hosts(tmp_path / "copy")
    argv = ["ssh", "-F", str(tmp_path / "copy" / "ssh_config"), "-o", "BatchMode=yes", NODE, "true"]
    assert subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


# --- every fault takes effect, and heals ----------------------------------------------------------


VERSION = "import sys; print(sys.version_info[:2])"


def hears(lab: Lab, node: str, command: str, timeout: float = 20) -> str:
    done = ssh(lab, node, command, timeout=timeout)
    return done.stdout + done.stderr


def ssh_error(lab: Lab) -> str:
    return ssh(lab, NODE, "true").stderr


def limit_of(lab: Lab, which: str) -> str:
    return says(lab, NODE, f"ulimit -S{which}; ulimit -H{which}")


def clock_error(lab: Lab) -> float:
    there = float(says(lab, NODE, "python3 -c 'import time; print(time.time())'"))
    return there - time.time()


def lost_share(lab: Lab) -> float:
    text = on(lab, "node0", "ping", "-q", "-f", "-c", "300", "-W", "1", NODE)
    found = re.search(r"([\d.]+)% packet loss", text)
    assert found, text
    return float(found[1])


def shell_seconds(lab: Lab) -> float:
    begin = time.monotonic()
    says(lab, NODE, "true")
    return time.monotonic() - begin


def versions(lab: Lab) -> str:
    code = "from importlib.metadata import version as v; print(v('torch'), v('nvidia-nccl-cu12'))"
    return hears(lab, NODE, f'python3 -c "{code}"').strip()


# fault, parameters, what to look at, what is true while it is in force, and when it is not
FLAPS = (
    "c() { cat /sys/class/net/eth0/carrier_changes; }; a=$(c); "
    'for _ in $(seq 30); do [ "$(c)" = "$a" ] || { echo flaps; break; }; sleep 0.05; done'
)
EFFECTS = [
    ("sshd-down", {}, ssh_error, lambda x: "Connection refused" in x, lambda x: not x),
    ("not-ssh", {}, ssh_error, lambda x: "exchange_identification" in x, lambda x: not x),
    ("frozen", {}, ssh_error, lambda x: "timed out" in x, lambda x: not x),
    ("wrong-key", {}, ssh_error, lambda x: "Permission denied" in x, lambda x: not x),
    ("ssh-full", {}, ssh_error, lambda x: "exchange_identification" in x, lambda x: not x),
    (
        "login-shell", {}, lambda lab: hears(lab, NODE, "echo in"),
        lambda x: "not available" in x, lambda x: x == "in\n",
    ),
    ("host-key", {}, ssh_error, lambda x: "HOST IDENTIFICATION HAS CHANGED" in x, lambda x: not x),
    (
        "shell-noise", {}, lambda lab: hears(lab, NODE, "echo end"),
        lambda x: "Welcome" in x and "\x1b[1;31m" in x and "not found" in x,
        lambda x: x == "end\n",
    ),
    ("slow-shell", {"seconds": "5"}, shell_seconds, lambda x: x > 5, lambda x: x < 5),
    (
        "env", {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0 x"},
        lambda lab: hears(lab, NODE, "env | grep NCCL | sort"),
        lambda x: x == "NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME=eth0 x\n", lambda x: not x,
    ),
    ("clock", {"offset": "+7s"}, clock_error, lambda x: 5 < x < 8, lambda x: abs(x) < 2),
    ("clock", {"offset": "-400s"}, clock_error, lambda x: -403 < x < -398, lambda x: abs(x) < 2),
    (
        "slow-link", {"rate": "20mbit"},
        lambda lab: on(lab, NODE, "tc", "qdisc", "show", "dev", "eth0"),
        lambda x: "tbf" in x and "20Mbit" in x, lambda x: "tbf" not in x,
    ),
    ("loss", {"percent": "20"}, lost_share, lambda x: 15 < x < 60, lambda x: x < 1),
    (
        "offload-off", {}, lambda lab: hears(lab, NODE, "ethtool -k eth0 | grep ^tcp-seg").strip("\n"),
        lambda x: x.endswith("off"), lambda x: x.endswith("on"),
    ),
    (
        "mtu", {}, lambda lab: ping(lab, "node0", NODE, "-s", "1460", "-M", "do"),
        lambda x: not x, lambda x: x,
    ),
    (
        "if-rename", {}, lambda lab: hears(lab, NODE, "ls /sys/class/net"),
        lambda x: "ens10f0np0" in x and "eth0" not in x, lambda x: x.split() == ["eth0", "lo"],
    ),
    (
        "if-flap", {}, lambda lab: hears(lab, NODE, FLAPS), lambda x: "flaps" in x, lambda x: not x.strip(),
    ),
    ("if-down", {}, lambda lab: ping(lab, "node0", NODE), lambda x: not x, lambda x: x),
    (
        "if-extra", {}, lambda lab: hears(lab, NODE, "ip -br address"),
        lambda x: re.search(r"docker0 +DOWN +172.17.0.1/16", x), lambda x: "docker0" not in x,
    ),
    (
        "if-extra", {"name": "tailscale0"}, lambda lab: hears(lab, NODE, "ip -br address"),
        lambda x: re.search(r"tailscale0 +UNKNOWN +100.64.0.1/32", x),
        lambda x: "tailscale0" not in x,
    ),
    (
        "container", {}, lambda lab: says(lab, NODE, "ls /sys/class/net; ip -br -4 address; ls -a /"),
        lambda x: re.search(r"eth0@if\d+ +UP +172.17.0.2/16 \n", x) and ".dockerenv\n" in x,
        lambda x: not re.search("172.17|docker", x),
    ),
    *(
        (
            "ssh-between", {"kind": kind}, lambda lab: on(lab, NODE, "sh", "-c", "ssh node0 hostname 2>&1"),
            lambda x, said=said: said in x, lambda x: x == "node0",
        )
        for kind, said in (("no-key", "Permission denied"), ("changed", "HAS CHANGED"))
    ),
    (
        "own-name-loopback", {}, lambda lab: on(lab, NODE, "getent", "ahostsv4", NODE).split()[0],
        lambda x: x == "127.0.1.1", lambda x: not x.startswith("127."),
    ),
    (
        "peer-name-missing", {"peer": "node1"}, lambda lab: on(lab, NODE, "getent", "hosts", "node1"),
        lambda x: not x, lambda x: "node1" in x,
    ),
    (
        "peer-name-wrong", {"peer": "node1", "address": "192.0.2.9"},
        lambda lab: on(lab, NODE, "getent", "hosts", "node1"),
        lambda x: x.startswith("192.0.2.9 "), lambda x: not x.startswith("192.0.2.9 "),
    ),
    (
        "port-busy", {"port": "29500"}, lambda lab: hears(lab, NODE, "ss -Hltnp; ps -eo user,args"),
        lambda x: ":29500" in x and '"python3"' in x and "nobody   python3 train.py" in x,
        lambda x: ":29500" not in x and "train.py" not in x,
    ),
    ("memlock", {}, lambda lab: limit_of(lab, "l"), lambda x: x == "64\n64", lambda x: x != "64\n64"),
    ("nofile", {}, lambda lab: limit_of(lab, "n"), lambda x: x == "256\n256", lambda x: "256" not in x),
    (
        "small-shm", {}, lambda lab: int(on(lab, NODE, "stat", "-f", "-c", "%b", "/dev/shm")) * 4096,
        lambda x: x == 64 << 20, lambda x: x > 64 << 20,
    ),
    (
        "full-disk", {}, lambda lab: hears(lab, NODE, "echo text > /tmp/x && rm /tmp/x"),
        lambda x: "No space left" in x, lambda x: not x,
    ),
    (
        "sysctl", {}, lambda lab: hears(lab, NODE, "cat /proc/sys/net/ipv4/tcp_rmem").split(),
        lambda x: x == ["4096", "8192", "16384"], lambda x: x != ["4096", "8192", "16384"],
    ),
    (
        "mount-silent", {}, lambda lab: hears(lab, NODE, "timeout -s KILL 1 ls /mnt/data; echo $?"),
        lambda x: "137" in x, lambda x: "137" not in x,
    ),
    (
        "mount-silent", {"server": "gone"}, lambda lab: hears(lab, NODE, "ls /mnt/data"),
        lambda x: "not connected" in x, lambda x: "not connected" not in x,
    ),
    (
        "old-python", {},
        lambda lab: hears(lab, NODE, f"python3 -V; python3 -Ic '{VERSION}'"),
        lambda x: x == "Python 3.5.3\n(3, 5)\n", lambda x: "Python 3.5" not in x,
    ),
    (
        "no-python", {}, lambda lab: hears(lab, NODE, "python3 -V"),
        lambda x: "not found" in x, lambda x: x.startswith("Python 3"),
    ),
    (
        "torch", {"version": "2.4.0+cu121", "cuda": "12.1", "nccl": "2.20.5"}, versions,
        lambda x: x == "2.4.0+cu121 2.20.5", lambda x: "PackageNotFoundError" in x,
    ),
    (
        "nccl-conf", {"NCCL_IB_DISABLE": "1"}, lambda lab: hears(lab, NODE, "cat /etc/nccl.conf"),
        lambda x: x == "NCCL_IB_DISABLE=1\n", lambda x: "No such file" in x,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "params", "look", "broken", "healthy"),
    [pytest.param(*row, id="-".join([row[0], *row[1].values()])) for row in EFFECTS],
)
def test_fault_takes_effect_and_heals(
    lab4: Lab,
    fault: str,
    params: dict[str, str],
    look: Callable[[Lab], object],
    broken: Callable[[object], bool],
    healthy: Callable[[object], bool],
) -> None:
    assert healthy(look(lab4)), look(lab4)
    assert lab4.break_(NODE, fault, **params)
    seen = look(lab4)
    assert broken(seen), seen
    lab4.heal(NODE, fault)
    seen = look(lab4)
    assert healthy(seen), seen
    assert ssh(lab4, NODE, "true").returncode == 0


@pytest.mark.parametrize(
    ("fault", "params", "outcome"),
    [
        ("drop", {}, "timeout"),
        ("drop", {"ports": "30000-40000"}, "timeout"),
        ("drop", {"peers": "node0"}, "timeout"),
        ("reject", {}, "EHOSTUNREACH"),
        ("reject", {"with": "reset"}, "ECONNREFUSED"),
        ("reject", {"with": "port-unreachable"}, "ECONNREFUSED"),
        ("fabric-drop", {}, "timeout"),
        ("fabric-drop", {"from": "node0"}, "timeout"),
    ],
)
def test_filter_closes_one_direction_only(
    lab4: Lab, fault: str, params: dict[str, str], outcome: str
) -> None:
    listen(lab4, NODE, 30001)
    listen(lab4, "node0", 30001)
    assert connect(lab4, "node0", NODE, 30001) == "open"
    lab4.break_(NODE, fault, **params)
    assert connect(lab4, "node0", NODE, 30001) == outcome
    assert connect(lab4, NODE, "node0", 30001) == "open"
    expected = "open" if "node0" in params.values() else outcome
    if "ports" not in params:
        assert connect(lab4, "node1", NODE, 30001) == expected
    assert ssh(lab4, NODE, "true").returncode == 0
    lab4.heal(NODE, fault)
    assert connect(lab4, "node0", NODE, 30001) == "open"


@pytest.mark.parametrize(("fault", "outcome"), [("drop", "timeout"), ("reject", "EHOSTUNREACH")])
def test_filter_outwards(lab4: Lab, fault: str, outcome: str) -> None:
    listen(lab4, "node0", 30001)
    lab4.break_(NODE, fault, dir="out")
    assert connect(lab4, NODE, "node0", 30001) == outcome
    assert "site_firewall" in on(lab4, NODE, "nft", "list", "tables")
    lab4.heal(NODE)
    assert "site_firewall" not in on(lab4, NODE, "nft", "list", "tables")


def test_filters_add_up_and_heal_one_by_one(lab4: Lab) -> None:
    for port in (30001, 30002):
        listen(lab4, NODE, port)
        lab4.break_(NODE, "drop", ports=str(port))
    assert {connect(lab4, "node0", NODE, p) for p in (30001, 30002)} == {"timeout"}
    assert len(load(lab4.state_dir).state.active(NODE, "drop")) == 2


def test_black_hole_swallows_large_packets_of_one_node(lab4: Lab) -> None:
    lab4.break_(NODE, "mtu-blackhole")
    assert ping(lab4, "node0", "node1", "-s", "8000", "-M", "do")
    assert ping(lab4, "node0", NODE, "-s", "1400", "-M", "do")
    assert not ping(lab4, "node0", NODE, "-s", "8000", "-M", "do")
    assert not ping(lab4, NODE, "node0", "-s", "8000", "-M", "do")
    assert ssh(lab4, NODE, "true").returncode == 0
    lab4.heal()
    assert says(lab4, "node0", "cat /sys/class/net/eth0/mtu") == "1500"
    assert ping(lab4, "node0", NODE, "-s", "1472", "-M", "do")


def test_slow_link_is_slow_in_its_direction(lab4: Lab) -> None:
    lab4.break_(NODE, "slow-link", rate="8mbit", dir="in")
    # 1 MB takes a second at 8 Mbit/s, less the burst
    send = f"head -c 1000000 /dev/zero | ssh -F {lab4.ssh_config} {NODE} 'cat > /dev/null'"
    begin = time.monotonic()
    subprocess.run(["sh", "-c", send], check=True, timeout=30)
    assert time.monotonic() - begin > 0.7
    assert "tbf" not in on(lab4, NODE, "tc", "qdisc", "show", "dev", "eth0")


def test_slow_pair_slows_that_pair(lab4: Lab) -> None:
    lab4.break_(NODE, "slow-pair", peer="node0", mbyte_s="1")

    def held_back() -> int:
        """Packets above the rate, of either direction."""
        fabric = str(lab4.state.processes["fabric"].pid)
        argv = ["nsenter", "-t", fabric, "-n", "--", "nft", "list", "ruleset"]
        rules = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert rules.count("limit rate over") == 2
        return sum(map(int, re.findall(r"counter packets (\d+)", rules)))

    def send(to: str) -> None:
        says(lab4, NODE, f"head -c 4000000 /dev/zero | ssh {to} 'cat > /dev/null'")

    send("node1")
    assert not held_back()
    begin = time.monotonic()
    send("node0")
    assert time.monotonic() - begin > 2.4
    assert held_back()


def test_nodes_log_in_to_each_other(lab4: Lab) -> None:
    assert says(lab4, "node0", "ssh node3 hostname") == "node3"


def test_an_ordinary_account_logs_in(lab4: Lab) -> None:
    done = subprocess.run(
        ["ssh", "-F", str(lab4.ssh_config), "-l", "trainer", NODE, "id -un; echo $HOME"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["trainer", "/home/trainer"], done.stderr


def test_real_older_interpreter(lab4: Lab) -> None:
    real = on(lab4, NODE, "readlink", "-f", "/usr/bin/python3")
    lab4.run(NODE, ["cp", real, "/opt/python-of-choice"])
    lab4.break_(NODE, "old-python", path="/opt/python-of-choice")
    assert says(lab4, NODE, "readlink -f $(command -v python3)") == "/opt/python-of-choice"


def test_same_torch_everywhere_then_another_on_one(lab4: Lab) -> None:
    lab4.install_torch("2.5.1+cu124", "12.4", "2.21.5")
    try:
        assert versions(lab4) == "2.5.1+cu124 2.21.5"
        lab4.break_(NODE, "torch", version="2.4.0+cu121", cuda="12.1", nccl="2.20.5")
        assert versions(lab4) == "2.4.0+cu121 2.20.5"
        lab4.heal(NODE)
        assert versions(lab4) == "2.5.1+cu124 2.21.5"
        assert "torch" in json.loads(says(lab4, NODE, "cat /run/netdoctor-lab.json"))["fake"]
    finally:
        lab4.remove_torch()
    assert "PackageNotFoundError" in versions(lab4)


def test_frozen_in_one_and_down_in_another(lab4: Lab) -> None:
    lab4.break_("node1", "frozen")
    lab4.break_("node3", "sshd-down")
    faults = {one.node: one.faults for one in lab4.status()}
    assert faults == {"node0": (), "node1": ("frozen",), "node2": (), "node3": ("sshd-down",)}
    lab4.heal()
    assert all(ssh(lab4, node, "true").returncode == 0 for node in lab4.nodes)


def test_same_fault_again_replaces_the_first(lab4: Lab) -> None:
    lab4.break_(NODE, "mtu", mtu="1400")
    lab4.break_(NODE, "mtu", mtu="1300")
    assert [a.params["mtu"] for a in load(lab4.state_dir).state.active(NODE)] == ["1300"]


def test_failed_break_leaves_the_node_healthy(lab4: Lab) -> None:
    with pytest.raises(LabError, match="no program /nowhere/python"):
        lab4.break_(NODE, "old-python", path="/nowhere/python")
    assert load(lab4.state_dir).state.faults == []
    assert says(lab4, NODE, "python3 -V").startswith("Python 3.")


# --- pretended hardware ---------------------------------------------------------------------------


def hca_file(name: str) -> Callable[[Lab], str]:
    return lambda lab: hears(lab, NODE, f"cat /sys/class/infiniband/mlx5_1/{name}").strip()


GROWS = (
    "for _ in $(seq 20); do read -r n < /sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error; "
    '[ "$n" = 0 ] || { echo grows; break; }; sleep 0.05; done'
)
HCA_EFFECTS = [
    ("hca-missing", lambda lab: hears(lab, NODE, "ls /sys/class/infiniband").split(), ["mlx5_0"]),
    ("hca-no-device", lambda lab: hears(lab, NODE, "cd /dev/infiniband; ls -d uverbs*").split(), ["uverbs0"]),
    ("hca-down", hca_file("ports/1/state"), "1: DOWN"),
    ("hca-init", hca_file("ports/1/state"), "2: INIT"),
    ("hca-rate", hca_file("ports/1/rate"), "200 Gb/sec (2X NDR)"),
    ("hca-fw", hca_file("fw_ver"), "28.33.0800"),
    ("hca-file", hca_file("ports/1/sm_lid"), "0x9"),
    ("hca-errors", lambda lab: hears(lab, NODE, GROWS), "grows\n"),
    ("hca-pcie", hca_file("../../current_link_width"), "8"),
    (
        "hca-gid",
        lambda lab: "ffff:" in hears(lab, NODE, "cat /sys/class/infiniband/mlx5_1/ports/1/gids/*"),
        False,
    ),
]


@pytest.mark.parametrize(("fault", "look", "broken"), [pytest.param(*row, id=row[0]) for row in HCA_EFFECTS])
def test_hca_fault(hw_lab: Lab, fault: str, look: Callable[[Lab], object], broken: object) -> None:
    before = look(hw_lab)
    assert before != broken
    hw_lab.break_(NODE, fault)
    assert look(hw_lab) == broken
    hw_lab.heal()
    assert look(hw_lab) == before


def test_two_interfaces_in_one_subnet(hw_lab: Lab) -> None:
    def mac_of_its_second() -> str:
        address = hw_lab.state.address(NODE, 1)
        on(hw_lab, "node0", "ip", "neigh", "flush", "all")
        assert ping(hw_lab, "node0", address)
        return on(hw_lab, "node0", "ip", "-br", "neigh", "show", "to", address).split()[2]

    own = [on(hw_lab, NODE, "cat", f"/sys/class/net/eth{net}/address") for net in (0, 1)]
    assert mac_of_its_second() == own[1]
    hw_lab.break_(NODE, "same-subnet", rp_filter="1")
    assert mac_of_its_second() == own[0]
    hw_lab.heal()
    assert mac_of_its_second() == own[1]


def test_hca_tree_looks_like_the_real_one(hw_lab: Lab) -> None:
    base = "/sys/class/infiniband/mlx5_1"
    assert says(hw_lab, NODE, f"cat {base}/ports/1/link_layer") == "Ethernet"
    assert says(hw_lab, NODE, f"cat {base}/ports/1/gid_attrs/types/3") == "RoCE v2"
    assert says(hw_lab, NODE, f"cat {base}/ports/1/gid_attrs/ndevs/3") == "eth1"
    assert says(hw_lab, NODE, f"ls {base}/device/net") == "eth1"
    assert says(hw_lab, NODE, f"cat {base}/device/net/eth1/mtu") == "1500"
    assert says(hw_lab, NODE, f"basename $(readlink {base}/device)") == "0000:82:00.0"
    assert says(hw_lab, NODE, "cat /sys/bus/pci/devices/0000:82:00.0/vendor") == "0x15b3"
    assert says(hw_lab, NODE, f"basename $(readlink -e {base}/device/driver)") == "mlx5_core"
    guids = [says(hw_lab, n, "cat /sys/class/infiniband/*/node_guid").split() for n in hw_lab.nodes]
    assert len({guid for node in guids for guid in node}) == 8


def test_infiniband_instead_of_ethernet(make_lab: Maker) -> None:
    lab = make_lab(2, hcas=1, link_layer="InfiniBand", prefix="ib")
    try:
        port = "/sys/class/infiniband/mlx5_0/ports/1"
        assert says(lab, "ib1", f"cat {port}/link_layer {port}/sm_lid") == "InfiniBand\n0x1"
        with pytest.raises(LabError, match="needs HCAs on Ethernet"):
            lab.break_("ib1", "hca-gid")
    finally:
        lab.down()


GPU_EFFECTS: list[tuple[str, dict[str, str], str, str]] = [
    ("gpu-missing", {}, "nvmlDeviceGetCount()", "1"),
    ("gpu-lost", {}, "nvmlDeviceGetName(h)", "NVMLError 15 GPU is lost"),
    ("gpu-mismatch", {}, "1", "NVMLError 18 RM has detected an NVML/RM version mismatch."),
    ("gpu-no-driver", {}, "1", "NVMLError 9 Driver Not Loaded"),
    ("gpu-driver", {}, "nvmlSystemGetDriverVersion()", "535.183.01"),
    ("gpu-ecc", {}, "nvmlDeviceGetTotalEccErrors(h, 1, 0)", "3"),
    ("gpu-xid", {}, "open('/dev/kmsg').read().count('Xid (PCI:0000:21:00): 95,')", "1"),
    ("gpu-xid", {"recovery": "1"}, "nvmlDeviceGetFieldValues(h, [230])[0].value.uiVal", "1"),
    (
        "gpu-fabric",
        {},
        "(f := c_nvmlGpuFabricInfoV_t(), nvmlDeviceGetGpuFabricInfoV(h, byref(f)), f.state)[2]",
        "2",
    ),
    ("gpu-mode", {"ecc": "0"}, "nvmlDeviceGetEccMode(h)[0]", "0"),
    ("gpu-no-peermem", {}, "__import__('os').path.exists('/sys/module/nvidia_peermem')", "False"),
    ("gpu-throttle", {}, "nvmlDeviceGetCurrentClocksThrottleReasons(h)", "64"),
    ("gpu-pcie", {}, "nvmlDeviceGetCurrPcieLinkWidth(h)", "8"),
    ("gpu-nvlink", {}, "nvmlDeviceGetNvLinkState(h, 0)", "0"),
    (
        "gpu-process",
        {},
        "[open(f'/proc/{p.pid}/comm').read().strip() for p in nvmlDeviceGetComputeRunningProcesses(h)]",
        "['python3']",
    ),
]


@pytest.mark.parametrize(
    ("fault", "params", "expression", "broken"),
    [pytest.param(*row, id=row[0]) for row in GPU_EFFECTS],
)
def test_gpu_fault(hw_lab: Lab, fault: str, params: dict[str, str], expression: str, broken: str) -> None:
    before = nvml(hw_lab, NODE, expression)
    traces = "ls /dev/nvidia* /sys/module /usr/lib/*/libnvidia-ml*; cat /proc/driver/nvidia/version"
    healthy_traces = hears(hw_lab, NODE, traces)
    assert "/dev/nvidia1" in healthy_traces
    assert "550.127.05" in healthy_traces
    assert before != broken
    hw_lab.break_(NODE, fault, **params)
    assert nvml(hw_lab, NODE, expression) == broken
    hw_lab.heal()
    assert nvml(hw_lab, NODE, expression) == before
    assert hears(hw_lab, NODE, traces) == healthy_traces


def test_gpu_without_driver_leaves_only_the_pci_function(hw_lab: Lab) -> None:
    hw_lab.break_(NODE, "gpu-no-driver")
    assert "No such file" in hears(hw_lab, NODE, "cat /proc/driver/nvidia/version")
    assert "No such file" in hears(hw_lab, NODE, "ls /dev/nvidia0")
    assert says(hw_lab, NODE, "cat /sys/bus/pci/devices/0000:21:00.0/vendor") == "0x10de"
    assert ssh(hw_lab, NODE, "test -e /sys/bus/pci/devices/0000:21:00.0/driver").returncode == 1


def test_nvml_memory_and_names(hw_lab: Lab) -> None:
    assert nvml(hw_lab, NODE, "nvmlDeviceGetMemoryInfo(h).total") == "85520809984"
    assert nvml(hw_lab, NODE, "nvmlDeviceGetPciInfo(h).busId") == "00000000:21:00.0"
    assert nvml(hw_lab, NODE, "nvmlDeviceGetCudaComputeCapability(h)") == "(9, 0)"


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda lab: lab.break_("node9", "drop"), "no node 'node9'.*node0 to node3"),
        (lambda lab: lab.break_(NODE, "frozn"), "did you mean frozen"),
        (lambda lab: lab.break_(NODE, "drop", prots="1"), "no parameter 'prots'.*ports=all"),
        (lambda lab: lab.break_(NODE, "drop", ports="99999"), "30000-60000"),
        (lambda lab: lab.break_(NODE, "drop", peers="noone"), "neither a node"),
        (lambda lab: lab.break_(NODE, "drop", dir="up"), "in, out or both"),
        (lambda lab: lab.break_(NODE, "hca-down"), "--hcas"),
        (lambda lab: lab.break_(NODE, "gpu-lost"), "--gpus"),
        (lambda lab: lab.break_(NODE, "env"), "at least one NAME=value"),
        (lambda lab: lab.break_(NODE, "env", **{"A-B": "1"}), "not the name of a variable"),
        (lambda lab: lab.break_(NODE, "slow-shell", seconds="1; reboot"), "not a number"),
        (lambda lab: lab.break_(NODE, "loss", percent="some"), "not a number"),
        (lambda lab: lab.heal(NODE, "nothing"), "no fault is called"),
        (lambda lab: up(1, state_dir=lab.state_dir), "already recorded.*netdoctor lab down"),
        (lambda lab: up(0), "1 to 1000"),
        (lambda lab: up(2, prefix="Bad_Name"), "cannot begin a host name"),
        (lambda lab: up(2, subnet="10.77"), "one such as 10.77.0.0/24"),
        (lambda lab: up(2, subnet="10.77.256.0/24"), "one such as 10.77.0.0/24"),
        (lambda lab: up(2, share=["/etc/passwd"]), "cannot share /etc/passwd: no folder"),
    ],
)
def test_mistakes_are_named(lab4: Lab, call: Callable[[Lab], object], words: str) -> None:
    with pytest.raises(LabError, match=words):
        call(lab4)
    assert load(lab4.state_dir).state.faults == []
    assert ssh(lab4, NODE, "true").returncode == 0


def test_second_lab_on_the_same_subnet(lab4: Lab, tmp_path: Path) -> None:
    taken = f"{lab4.state.subnet}.0/24"
    with pytest.raises(LabError, match=rf"{taken}.*--subnet"):
        up(1, state_dir=tmp_path / "s", subnet=taken)
    assert not (tmp_path / "s" / "state.json").exists()


def test_a_second_lab_takes_the_next_subnet_by_itself(
    lab4: Lab, make_lab: Maker, subnet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SUBNETS", (lab4.state.subnet, subnet))
    second = make_lab(1, subnet=None)
    assert second.state.subnet == subnet
    assert ssh(second, "node0", "true").returncode == 0


def test_state_directory_with_other_files(lab4: Lab, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(LabError, match="holds other files"):
        up(1, state_dir=tmp_path, subnet="10.250.1")
    assert (tmp_path / "diary.txt").read_text() == "mine"


def test_load_without_a_lab(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="netdoctor lab up 4"):
        load(tmp_path)


# --- nothing stays behind -------------------------------------------------------------------------


def test_down_leaves_nothing(make_lab: Maker, tmp_path: Path) -> None:
    own = {entry: os.stat(f"/etc/{entry}").st_mtime_ns for entry in os.listdir("/etc")}
    limit = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3").read_text()
    lab = make_lab(4, state_dir=tmp_path / "state", data_net=True, hcas=1)
    for node, fault in (("node0", "frozen"), ("node1", "port-busy"), ("node2", "not-ssh")):
        lab.break_(node, fault)
    pids = [pid for node in lab.nodes for pid in lab.pids(node)]
    lab.down()
    assert not lab.state_dir.exists()
    assert [pid for pid in pids if lab_state_of(pid) not in "ZX"] == []
    assert traces(lab.state.subnet, lab.state_dir) == NOTHING
    assert own == {entry: os.stat(f"/etc/{entry}").st_mtime_ns for entry in os.listdir("/etc")}
    assert limit == Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3").read_text()


def lab_state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def cli(*words: str) -> list[str]:
    code = (
        "import argparse, sys\nfrom netdoctor.lab.cli import add_parser\n"
        "p = argparse.ArgumentParser('netdoctor')\nadd_parser(p.add_subparsers(required=True))\n"
        "a = p.parse_args(sys.argv[1:])\nsys.exit(a.run(a))"
    )
    return [sys.executable, "-c", code, "lab", *words]


def stage(state: Path, name: str) -> bool:
    """How far an `up` has come, by the traces it leaves."""
    if name == "processes":
        try:
            return bool(json.loads((state / "state.json").read_text())["processes"])
        except (OSError, ValueError):
            return False
    return (state / name).exists()


# Every moment with a signal that is handled, and with the one that cannot be.
@pytest.mark.parametrize(
    ("when", "sig"),
    [
        ("keys", signal.SIGINT),
        ("scratch", signal.SIGHUP),
        ("processes", signal.SIGTERM),
        ("hosts.txt", signal.SIGINT),
        *((when, signal.SIGKILL) for when in ("keys", "scratch", "processes", "hosts.txt")),
    ],
)
def test_interrupted_up_leaves_nothing(
    lab4: Lab, tmp_path: Path, subnet: str, when: str, sig: signal.Signals
) -> None:
    state = tmp_path / "state"
    words = ("up", "6", "--state-dir", str(state), "--subnet", subnet, "--gpus", "1")
    child = subprocess.Popen(cli(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not stage(state, when) and child.poll() is None:
        time.sleep(0.002)
    child.send_signal(sig)
    _, said = child.communicate(timeout=60)
    if sig == signal.SIGKILL or child.returncode == 0:
        subprocess.run(cli("down", "--state-dir", str(state)), capture_output=True, timeout=60)
    else:
        assert b"Traceback" not in said, said
        assert child.returncode in (130, 143, 129), said
    assert traces(subnet, state) == NOTHING


def test_kill_9_of_up_ends_the_nodes_by_itself(lab4: Lab, tmp_path: Path, subnet: str) -> None:
    state = tmp_path / "state"
    words = ("up", "24", "--state-dir", str(state), "--subnet", subnet)
    child = subprocess.Popen(cli(*words), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    recorded: dict[str, dict[str, int]] = {}
    while not recorded and time.monotonic() < deadline:
        try:
            recorded = json.loads((state / "state.json").read_text())["processes"]
        except (OSError, ValueError):
            time.sleep(0.005)
    child.kill()
    child.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [p["pid"] for p in recorded.values() if lab_state_of(p["pid"]) not in "ZX"]
        if not left:
            break
        time.sleep(0.05)
    ready = json.loads((state / "state.json").read_text())["ready"]
    assert ready or left == []
    assert subprocess.run(cli("down", "--state-dir", str(state))).returncode == 0


# --- command line ---------------------------------------------------------------------------------


def run_cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(cli(*words), capture_output=True, text=True, timeout=60)


def test_command_line_from_up_to_down(lab4: Lab, tmp_path: Path, subnet: str) -> None:
    where = ("--state-dir", str(tmp_path / "s"))
    done = run_cli("up", "2", *where, "--subnet", subnet, "--prefix", "gpu")
    assert done.returncode == 0, done.stderr
    assert f"netdoctor scan --ssh-config {tmp_path}/s/ssh_config {tmp_path}/s/hosts.txt" in done.stdout
    done = run_cli("break", *where, "gpu1", "drop", "ports=29500", "peers=gpu0")
    assert "site_firewall" in done.stdout
    assert "drop dir=in peers=gpu0 ports=29500" in run_cli("status", *where).stdout
    assert "gpu1: drop repaired" in run_cli("heal", *where, "gpu1").stdout
    assert "nothing to repair" in run_cli("heal", *where).stdout
    assert (tmp_path / "s" / "hosts.txt").exists()
    assert run_cli("hosts", *where, str(tmp_path / "h")).returncode == 0
    assert (tmp_path / "h" / "id_ed25519").stat().st_mode & 0o777 == 0o600
    assert run_cli("down", *where).returncode == 0
    done = run_cli("down", *where)
    assert done.returncode == 2
    assert done.stderr.startswith("netdoctor lab: no lab in")
    assert done.stderr.count("\n") == 1


def test_command_line_lists_every_fault() -> None:
    done = run_cli("faults")
    assert all(name in done.stdout for name in FAULTS)


def test_importing_the_command_line_is_cheap() -> None:
    code = (
        "import sys, netdoctor.lab, netdoctor.lab.cli; "
        "print(sorted(m for m in sys.modules if m.startswith('netdoctor')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert eval(done.stdout) == ["netdoctor", "netdoctor.lab", "netdoctor.lab.cli"]


def test_parser_adds_itself_with_a_runner() -> None:
    parser = argparse.ArgumentParser()
    lab_cli.add_parser(parser.add_subparsers())
    args = parser.parse_args(["lab", "up", "4", "--hcas", "2"])
    assert (args.count, args.hcas, callable(args.run)) == (4, 2, True)


# --- without root ---------------------------------------------------------------------------------


def loopback_up(folder: Path, first_port: int) -> Lab:
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("sshd is not installed")
    return up(3, loopback=True, state_dir=folder / "state", ssh_port=first_port + os.getpid() % 500)


@pytest.fixture(scope="module")
def loopback_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = loopback_up(tmp_path_factory.mktemp("loopback"), 44300)
    yield lab
    lab.down()


@pytest.fixture
def loopback(loopback_lab: Lab) -> Iterator[Lab]:
    """Three nodes that share this machine; whatever the test breaks is healed after it."""
    yield loopback_lab
    loopback_lab.heal()


def test_loopback_nodes_answer(loopback: Lab) -> None:
    for node in loopback.nodes:
        assert says(loopback, node, "echo $NETDOCTOR_LAB_NODE") == node
    assert len({loopback.address(node) for node in loopback.nodes}) == 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("sshd-down", "refused"),
        ("not-ssh", "exchange_identification"),
        ("frozen", "timed out"),
        ("wrong-key", "Permission denied"),
        ("host-key", "HOST IDENTIFICATION HAS CHANGED"),
    ],
)
def test_loopback_faults(loopback: Lab, fault: str, words: str) -> None:
    loopback.break_(NODE, fault)
    assert words in ssh_error(loopback)
    loopback.heal()
    assert ssh_error(loopback) == ""


def test_loopback_says_what_it_cannot_do(loopback: Lab) -> None:
    with pytest.raises(LabError, match="needs the full lab"):
        loopback.break_(NODE, "drop")


def test_loopback_down_ends_open_sessions(tmp_path: Path) -> None:
    lab = loopback_up(tmp_path, 44800)
    argv = ["ssh", "-F", str(lab.ssh_config), NODE, "echo up; sleep 60"]
    session = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert session.stdout is not None
    assert session.stdout.readline() == b"up\n"
    pids = lab.pids(NODE)
    assert len(pids) > 2
    lab.down()
    session.wait(10)
    session.stdout.close()
    assert {lab_state_of(pid) for pid in pids} <= {"Z", "X"}


def test_loopback_lab_of_an_ordinary_user(lab4: Lab) -> None:
    source = Path(sys.modules["netdoctor"].__file__ or "").resolve().parent
    # By way of a pipe: the node has a /tmp of its own, and the checkout may lie in this machine's.
    packed = subprocess.run(
        ["tar", "-C", str(source.parent), "-ch", source.name], stdout=subprocess.PIPE, check=True
    )
    lab4.run(NODE, ["tar", "-C", "/opt", "-x"], input=packed.stdout, check=True)
    lab4.run(NODE, ["chown", "-R", "trainer", "/home/trainer"])
    program = """
import subprocess
from pathlib import Path
from netdoctor.lab import LabError, up
before = set(Path("/tmp").iterdir())
try:
    up(2)
except LabError as error:
    print(error)
lab = up(2, loopback=True, ssh_port=45999, state_dir=Path("/tmp/mine"))
for node in lab.nodes:
    print(subprocess.run(["ssh", "-F", lab.ssh_config, node, "id -un"], stdin=subprocess.DEVNULL,
        capture_output=True, text=True))
lab.down()
print(sorted(set(Path("/tmp").iterdir()) - before))
"""
    done = ssh(lab4, f"trainer@{NODE}", "cd /opt && python3 -", stdin=program)
    lines = done.stdout.splitlines()
    assert "not root" in lines[0], done.stderr
    assert "--loopback" in lines[0]
    assert all("stdout='trainer\\n'" in line for line in lines[1:3]), done.stdout
    assert lines[3] == "[]"


def test_loopback_port_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.10", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LabError, match="choose another --ssh-port"):
            up(2, loopback=True, state_dir=tmp_path / "s", ssh_port=port)


def test_without_root_it_says_so_and_offers_the_loopback_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert any("not root" in line for line in missing_requirements())
    with pytest.raises(LabError, match=r"not root.*--loopback"):
        up(2, state_dir=tmp_path / "s")
