"""Healthy clusters that are not one IPv4 subnet are silent too."""

import ipaddress
from collections.abc import Callable
from pathlib import Path

from netdoctor.lab import Lab
from netdoctor.lab.links import BRIDGES, in_fabric
from netdoctor.lab.system import command
from tests.scan.harness import scan
from tests.scan.test_healthy import quiet

NODE_SSHD = "/etc/ssh/sshd_config"


def in_node(lab: Lab, node: str, script: str) -> None:
    lab.run(node, ["sh", "-euc", script], check=True, capture_output=True)


def test_nodes_with_ipv6_only(make_lab: Callable[..., Lab], folder: Path) -> None:
    lab = make_lab(3, gpus=1)
    addresses = {node: f"fd00:77::{10 + i}" for i, node in enumerate(lab.nodes)}
    names = "\n".join(f"{address} {node}" for node, address in addresses.items())
    leg = lab.state.leg
    command(["sh", "-c", f"echo 0 >/proc/sys/net/ipv6/conf/{leg}/disable_ipv6"])
    command(["ip", "-6", "address", "add", "fd00:77::1/64", "dev", leg, "nodad"])
    for node, address in addresses.items():
        in_node(
            lab,
            node,
            f"""
            for scope in all default eth0 lo; do echo 0 >/proc/sys/net/ipv6/conf/$scope/disable_ipv6; done
            ip -6 address replace ::1/128 dev lo
            ip -6 address add {address}/64 dev eth0 nodad
            ip -4 address flush dev eth0
            printf '127.0.0.1 localhost\\n::1 localhost\\n{names}\\n' >/etc/hosts
            /usr/sbin/sshd -f {NODE_SSHD} -o ListenAddress=:: -o Port=2222
            """,
        )
    config, known = folder / "ssh_config", folder / "known_hosts"
    text = lab.ssh_config.read_text().replace(f"Port {lab.ssh_port}", "Port 2222")
    text = text.replace(str(lab.known_hosts), str(known))
    keys = lab.known_hosts.read_text().replace(f"]:{lab.ssh_port}", "]:2222")
    for node, address in addresses.items():
        text = text.replace(f"HostName {lab.address(node)}\n", f"HostName {address}\n")
        keys = keys.replace(f"[{lab.address(node)}]", f"[{address}]")
    config.write_text(text)
    known.write_text(keys)
    scanned = scan(lab, folder, "--ssh-config", str(config))
    quiet(scanned)
    assert [target["address"] for target in scanned.report["targets"]] == list(addresses.values())
    assert {p["check"] for p in scanned.report["pairs"]} >= {"net.ports", "net.loss"}


def test_nodes_behind_routers(make_lab: Callable[..., Lab], folder: Path) -> None:
    """Each in a network of its own, as on some clouds: whatever a node says to another goes over a router."""
    lab = make_lab(3, gpus=1)
    subnet = ipaddress.ip_network(f"{lab.state.control_address()}/{lab.state.prefix_length}", strict=False)
    router = str(subnet[-2])
    in_fabric(lab.state, ["ip", "address", "add", f"{router}/{subnet.prefixlen}", "dev", BRIDGES[0]])
    redirects = "echo 0 >/proc/sys/net/ipv4/conf/all/send_redirects"
    forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"
    in_fabric(
        lab.state,
        [
            "sh",
            "-euc",
            f"{redirects}; {forward}; echo 0 >/proc/sys/net/ipv4/conf/{BRIDGES[0]}/send_redirects",
        ],
    )
    for node in lab.nodes:
        in_node(
            lab,
            node,
            f"""
            ip address flush dev eth0
            ip address add {lab.address(node)}/32 dev eth0
            ip route add {router} dev eth0
            ip route add {subnet} via {router}
            """,
        )
    scanned = scan(lab, folder)
    quiet(scanned)
    assert scanned.cell("net.route", "node0") == scanned.cell("gloo.ifname", "node0") == "."
