"""Who sets up interfaces: from files, and from NetworkManager and systemd-networkd themselves."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netdoctor.agent.facts import net_setup
from netdoctor.facts.net_setup import InterfaceSetup, NetSetupFacts
from netdoctor.store import decode
from tests.scan.harness import REPO

NETWORKD = "/lib/systemd/systemd-networkd"
ALONE = """
mount --make-rprivate / && mount -t tmpfs none /run && mount -t sysfs -o ro none /sys || exit
ip link set lo up
for i in 0 1 2 3; do ip link add fab$i type veth peer name far$i; ip link set far$i up; done
ip address add 192.168.100.10/24 dev fab0; ip link set fab0 up mtu 9000
"""
# Without udev and polkit, which a namespace has not; veth is left alone by default.
MANAGER = """
mkdir -p /run/dbus /run/NetworkManager && mount -t tmpfs none /etc/NetworkManager || exit
mkdir -p /etc/NetworkManager/system-connections
cat > /etc/NetworkManager/NetworkManager.conf <<X
[main]
plugins=keyfile
auth-polkit=false
no-auto-default=*
[device-fab]
match-device=interface-name:fab*
managed=1
X
dbus-daemon --system --nofork --nopidfile > /dev/null 2>&1 & dbus=$!
for _ in $(seq 50); do [ -S /run/dbus/system_bus_socket ] && break; sleep 0.1; done
NetworkManager -n > /dev/null 2>&1 & manager=$!
for _ in $(seq 100); do nmcli -t general status > /dev/null 2>&1 && break; sleep 0.1; done
add() { nmcli connection add type ethernet ifname "$1" con-name "$1" ipv4.method manual "${@:2}"; }
add fab1 ipv4.addresses 192.168.101.10/24 ethernet.mtu 9000 > /dev/null
add fab2 ipv4.addresses 192.168.102.10/24 autoconnect no > /dev/null
nmcli connection up fab1 > /dev/null; nmcli connection up fab2 > /dev/null
"""
NETWORK = """
mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp /run/systemd/network
chown -R systemd-network /run/systemd/netif
cat > /run/systemd/network/10-netplan-fab1.network <<X
[Match]
Name=fab1
[Link]
MTUBytes=9000
[Network]
LinkLocalAddressing=no
Address=192.168.101.10/24
X
/lib/systemd/systemd-networkd > /dev/null 2>&1 & manager=$!
for _ in $(seq 100); do
    grep -qs "^ADMIN_STATE=configured" /run/systemd/netif/links/* && break
    sleep 0.1
done
"""
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from netdoctor.agent.facts import net_setup
names = ["fab0", "fab1", "fab2", "fab3"]
found = net_setup.by_network_manager(names) if sys.argv[2] == "nm" else {
    name: net_setup.networkd(name, "/") for name in names}
print(json.dumps(found))
"""


def ask(kind: str, script: str, *tools: str) -> dict[str, dict[str, object]]:
    lacking = [one for one in tools if shutil.which(one) is None and not os.path.exists(one)]
    if os.geteuid() != 0 or lacking:
        pytest.skip(f"not here: {', '.join(lacking) or 'root'}")
    words = [sys.executable, "-c", ASK, str(REPO), kind]
    end = 'code=$?; kill $manager $dbus; wait; exit "$code"'
    # In processes of their own, which end with it, however it ends.
    alone = ["unshare", "-n", "-m", "-p", "-f", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*alone, "bash", "-c", f'{ALONE}\n{script}\n"$@"\n{end}', "bash", *words],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


@pytest.mark.lab
def test_networkmanager_itself() -> None:
    """An address by hand, a profile with all, and one that is not used by itself and has no MTU."""
    found = ask("nm", MANAGER, "unshare", "NetworkManager", "nmcli", "dbus-daemon", "ip")
    assert found["fab0"]["state"] == "connected (externally)"
    assert found["fab1"] == {
        "by": "NetworkManager", "state": "connected", "method": "manual", "mtu": 9000,
        "addresses": ["192.168.101.10"], "autoconnect": True,
    }  # fmt: skip
    assert (found["fab2"]["mtu"], found["fab2"]["autoconnect"]) == (0, False)
    assert found["fab3"]["state"] in ("disconnected", "unavailable")


@pytest.mark.lab
def test_networkd_itself() -> None:
    found = ask("networkd", NETWORK, "unshare", NETWORKD, "ip")
    assert found["fab0"] == {"by": "systemd-networkd", "state": "unmanaged"}
    assert found["fab1"] == {
        "by": "systemd-networkd", "state": "configured", "method": "manual", "mtu": 9000,
        "addresses": ["192.168.101.10"], "autoconnect": True,
        "file": "/run/systemd/network/10-netplan-fab1.network",
    }  # fmt: skip


def test_fields_of_a_terse_line() -> None:
    assert net_setup.fields(r"enp1s0:connected:Wired\: one\\:") == ["enp1s0", "connected", "Wired: one\\", ""]
    rows = [["ipv4.addresses", "10.0.0.1/24, 10.0.1.1/24"], ["802-3-ethernet.mtu", "auto"]]
    assert net_setup.profile_of(rows) == {
        "method": "", "addresses": ["10.0.0.1", "10.0.1.1"], "mtu": 0, "autoconnect": True,
    }  # fmt: skip


def test_a_name_is_not_a_part_of_another_one() -> None:
    for text in ("eth1", "dev eth1\n", "auto eth10 eth1", "[eth1]", "eth1.100", "'eth1'"):
        assert net_setup.has_word(text, "eth1"), text
    for text in ("", "eth10", "veth1", "my-eth1", "eth1_old", "br.eth1", "eth1-2"):
        assert not net_setup.has_word(text, "eth1"), text


def test_files_that_name_an_interface(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    for index, name in enumerate(("eth1", "eth10", "eth2"), 2):
        write(f"sys/class/net/{name}/ifindex", f"{index}\n")
        (tmp_path / f"sys/class/infiniband/mlx5_{index}/device/net/{name}").mkdir(parents=True)
    write("sys/class/net/lo/ifindex", "1\n")
    write("sys/class/net/veth0/ifindex", "9\n")
    write("etc/network/interfaces", "auto eth10\niface eth10 inet static\n")
    write("etc/systemd/system/fabric.service", "ExecStart=/sbin/ip address add 10.0.0.1/24 dev eth2\n")
    write("etc/netplan/50.yaml", "network: {ethernets: {eth1: {addresses: [10.1.0.1/24]}}}\n")
    write(
        "run/systemd/network/10-netplan-eth1.network", "[Match]\nName=eth1\n[Network]\nAddress=10.1.0.1/24\n"
    )
    write("run/systemd/netif/links/2",
          "ADMIN_STATE=configured\nNETWORK_FILE=/run/systemd/network/10-netplan-eth1.network\n")  # fmt: skip
    found = decode("net_setup", {"value": net_setup.collect({}, str(tmp_path))})
    assert found == NetSetupFacts(
        interfaces=(
            InterfaceSetup(ifname="lo"),
            InterfaceSetup(ifname="eth1", by="systemd-networkd", state="configured", method="manual",
                           addresses=("10.1.0.1",), mtu=0, autoconnect=True),
            InterfaceSetup(ifname="eth10", files=("/etc/network/interfaces",)),
            InterfaceSetup(ifname="eth2", files=("/etc/systemd/system/fabric.service",)),
        )
    )  # fmt: skip
