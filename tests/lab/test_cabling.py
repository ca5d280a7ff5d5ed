"""What ports are connected to: lldpd, systemd-networkd and a simulated InfiniBand fabric say it."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.agent import runtime
from netdoctor.agent.facts import cabling
from netdoctor.facts.cabling import CabledPort, CablingFacts
from netdoctor.rules.switches import rail_ports
from netdoctor.store import decode
from tests.scan.harness import REPO

NETWORKD = "/lib/systemd/systemd-networkd"
# A host with two ports to two switches, each of them lldpd in a namespace; no udev, as /sys is read-only.
SPACES = """\
mount --make-rprivate / && mount -t tmpfs none /run && mount -t sysfs -o ro none /sys || exit
mkdir /run/lldpd /run/netns
ip link set lo up
for i in 1 2; do
    ip netns add leaf$i
    ip link add eth$i type veth peer name swp$i netns leaf$i
    ip link set eth$i up
    ip -n leaf$i link set swp$i up
    echo "configure system hostname leaf$i" > /run/leaf$i.conf
    ip netns exec leaf$i unshare -u lldpd -d -u /run/leaf$i.sock -O /run/leaf$i.conf > /dev/null 2>&1 &
done
"""
OF_LLDPD = 'lldpd -d -u /run/lldpd.socket > /dev/null 2>&1 & socket="-u /run/lldpd.socket"'
OF_NETWORKD = """\
mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp /run/systemd/network
chown -R systemd-network /run/systemd/netif
cat > /run/systemd/network/1.network <<X
[Match]
Name=eth*
[Network]
LinkLocalAddressing=no
LLDP=yes
X
/lib/systemd/systemd-networkd > /dev/null 2>&1 &
"""
# Asks until both ports are known: a switch sends every 30 s, and when it is asked to.
ASK = """
import json, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from netdoctor.agent.facts import cabling
end = time.monotonic() + 40
while True:
    found = cabling.collect({})
    if len(found["ports"]) == 2 or time.monotonic() > end:
        break
    for leaf in ("leaf1", "leaf2"):
        subprocess.run(["lldpcli", "-u", "/run/%s.sock" % leaf, "update"], capture_output=True)
    time.sleep(0.5)
print(json.dumps(found))
"""


def ask(script: str, *tools: str) -> CablingFacts:
    lacking = [one for one in tools if shutil.which(one) is None and not os.path.exists(one)]
    if os.geteuid() != 0 or lacking:
        pytest.skip(f"not here: {', '.join(lacking) or 'root'}")
    # In processes of their own, which end with it, however it ends.
    words = ["unshare", "-n", "-m", "-p", "-f", "--mount-proc", "--kill-child", "bash", "-c"]
    done = subprocess.run(
        [*words, f'{SPACES}\n{script}\n"$@"', "bash", sys.executable, "-c", ASK, str(REPO)],
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = decode("cabling", {"value": json.loads(done.stdout)})
    assert isinstance(found, CablingFacts)
    return found


@pytest.mark.lab
@pytest.mark.parametrize(
    ("script", "by", "tool"),
    [(OF_LLDPD, "lldpd", "lldpd"), (OF_NETWORKD, "systemd-networkd", NETWORKD)],
    ids=["lldpd", "networkd"],
)
def test_a_switch_at_each_port(script: str, by: str, tool: str) -> None:
    found = ask(script, "unshare", "ip", "lldpd", "lldpcli", tool)
    ports = {one.port: (one.switch_name, one.at, one.by) for one in found.ports}
    assert ports == {"eth1": ("leaf1", "swp1", by), "eth2": ("leaf2", "swp2", by)}
    assert all(one.switch.count(":") == 5 for one in found.ports)


# --- InfiniBand: the fabric of ibsim, asked by smpquery itself ---------------------------------------------

# Two HCAs of one port each for every host, which ibsim takes for hosts; those of gpu3 are crossed.
LEAVES = {
    "leaf1": {1: "gpu1-0", 2: "gpu2-0", 4: "gpu3-1", 5: "gpu4-0"},
    "leaf2": {1: "gpu1-1", 2: "gpu2-1", 3: "gpu3-0", 5: "gpu4-1"},
}


def fabric_text() -> str:
    """As ibsim reads it: a block for each switch and HCA."""
    blocks = []
    for leaf, ports in LEAVES.items():
        blocks.append([f'Switch 8 "{leaf}"', *(f'[{port}] "{hca}"[1]' for port, hca in ports.items())])
        blocks += [[f'Hca 1 "{hca}"', f'[1] "{leaf}"[{port}]'] for port, hca in ports.items()]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Path]:
    """A folder with a smpquery that asks the simulated fabric, as the host of $SIM_HOST."""
    if not (shutil.which("ibsim") and shutil.which("smpquery")):
        pytest.skip("it takes ibsim-utils and infiniband-diags")
    (tmp_path / "net").write_text(fabric_text())
    tool = tmp_path / "smpquery"
    tool.write_text(f'#!/bin/sh\nexec ibsim-run {shutil.which("smpquery")} "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            ["ibsim", "-s", "-n", str(tmp_path / "net")], stdin=subprocess.PIPE, stdout=out, stderr=out
        )
    try:
        end = time.monotonic() + 20
        while "MaxLinearCap" not in log.read_text() and time.monotonic() < end:
            time.sleep(0.1)
        yield tmp_path
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.lab
def test_the_switch_at_the_other_end_of_an_infiniband_port(
    fabric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for host in sorted(hca for ports in LEAVES.values() for hca in ports.values()):
        monkeypatch.setenv("SIM_HOST", host)
        (row,), why = cabling.of_infiniband(str(fabric / "smpquery"), [("ibsim0", "1")])
        assert why == ""
        assert row["switch"].startswith("0x")
        assert (row["port"], row["by"]) == ("ibsim0:1", "smpquery")
        found[host] = (row["switch_name"], row["at"])
    assert found == {hca: (leaf, str(port)) for leaf, ports in LEAVES.items() for port, hca in ports.items()}
    ports = {}
    for host in ("gpu1", "gpu2", "gpu3", "gpu4"):  # with the HCA names that hosts with two have
        rows = {f"mlx5_{n}:1": found[f"{host}-{n}"] for n in (0, 1)}
        ports[host] = {name: CabledPort(port=name, switch=leaf, at=at) for name, (leaf, at) in rows.items()}
    odd = {(one.node, one.found.port): (one.found.where, one.expected.name) for one in rail_ports(ports).odd}
    assert odd == {
        ("gpu3", "mlx5_0:1"): ("leaf2 port 3", "leaf1"), ("gpu3", "mlx5_1:1"): ("leaf1 port 4", "leaf2"),
    }  # fmt: skip
    rows, why = cabling.of_infiniband(str(fabric / "smpquery"), [("ibsim0", "7")])
    assert (rows, why[:19]) == ([], "smpquery ibsim0:7: ")


# --- What cannot be read ----------------------------------------------------------------------------------


def machine(tmp_path: Path, *tools: str) -> str:
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "link_layer").write_text("InfiniBand\n")
    (port / "phys_state").write_text("5: LinkUp\n")
    for tool in tools:
        (tmp_path / "usr/bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/bin" / tool).touch(0o755)
    return str(tmp_path)


def test_why_a_switch_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(tmp_path)
    assert cabling.infiniband_ports(root) == [("mlx5_0", "1")]
    assert cabling.collect({}, root) == {
        "ports": [], "unread": "smpquery of infiniband-diags is not installed",
    }  # fmt: skip
    root = machine(tmp_path / "more", "smpquery", "lldpcli")
    (tmp_path / "more/run").mkdir()
    (tmp_path / "more/run/lldpd.socket").touch()
    denied = runtime.ToolResult(1, "", "can't open UMAD port (mlx5_0:1)\n")
    monkeypatch.setattr(runtime, "run_tool", lambda *_: denied)
    found = cabling.collect({}, root)
    assert found["unread"] == (
        "lldpcli: can't open UMAD port (mlx5_0:1); smpquery mlx5_0:1: can't open UMAD port (mlx5_0:1)"
    )


def frame(*values: tuple[int, bytes]) -> bytes:
    head = bytes(12) + b"\x88\xcc"
    return head + b"".join((kind << 9 | len(text)).to_bytes(2, "big") + text for kind, text in values)


MAC = b"\x04\x02\x00\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (((1, MAC), (2, b"\x05Ethernet1/7"), (5, b"leaf1"), (7, b"\0\x14\0\x14"), (0, b"")),
         ("02:00:00:00:00:01", "leaf1", "Ethernet1/7", True)),
        # A port that is a MAC address is named by its description.
        (((1, MAC), (2, b"\x03\x02\0\0\0\0\x09"), (4, b"swp7")), ("02:00:00:00:00:01", "", "swp7", False)),
        (((1, b"\x07\xff\xfe"), (2, b"")), ("\ufffd\ufffd", "", "", False)),
        (((5, b"x" * 300),), ("", "x" * 120, "", False)),
    ],
)  # fmt: skip
def test_a_frame(values: tuple[tuple[int, bytes], ...], expected: tuple[str, str, str, bool]) -> None:
    is_switch, one = cabling.of_frame("eth0", frame(*values))
    assert (one["switch"], one["switch_name"], one["at"], is_switch) == expected
    for length in range(40):  # one that is cut anywhere is read as far as it goes
        cabling.of_frame("eth0", frame(*values)[:length])


def test_of_several_neighbours_the_switch_counts() -> None:
    def one(switch: str) -> dict[str, str]:
        return cabling.row("eth0", switch, "", "", "lldpd")

    assert cabling.one_each([(False, one("host")), (True, one("leaf"))]) == [one("leaf")]
    assert cabling.one_each([(True, one("leaf")), (True, one("other"))]) == []
    assert cabling.one_each([(False, one("host"))]) == [one("host")]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "3", '{"lldp": []}', '{"lldp": {"interface": {"eth0": 3}}}', "[" * 5000]
)
def test_what_lldpcli_says_in_another_form_is_nothing(text: str) -> None:
    assert cabling.of_lldpd(text) == []


def test_a_neighbour_without_a_name() -> None:
    chassis = {"id": {"type": "mac", "value": "02:00:00:00:00:01"}, "descr": "a switch"}
    port = {"id": {"type": "mac", "value": "02:00:00:00:00:09"}, "descr": "Ethernet8"}
    text = json.dumps({"lldp": {"interface": {"eth0": {"chassis": chassis, "port": port}}}})
    assert cabling.of_lldpd(text) == [cabling.row("eth0", "02:00:00:00:00:01", "", "Ethernet8", "lldpd")]


def test_a_port_says_where_it_is() -> None:
    assert CabledPort(port="eth0", switch="02:00", switch_name="leaf1", at="7").where == "leaf1 port 7"
    assert CabledPort(port="eth0", switch="02:00").where == "02:00"
