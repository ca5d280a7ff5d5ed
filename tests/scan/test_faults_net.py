"""Faults of networks, names, ports, packet sizes and clocks: one cause each, and what is printed heals it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.lab import node as nodes
from tests.scan.faults import JOB_FILE, Case, case, found, hold, put, together, write_job
from tests.scan.harness import apply_fix, scan, verify

ALL = ("node0", "node1", "node2", "node3")
FILTERED = frozenset({"net.path-mtu"})

FIREWALL = [
    case(
        "node2 drop", "firewall-inbound", "net.ports", said="node2 drops connections", fix="nft insert rule",
        hidden=FILTERED,
    ),
    case(
        "node2 drop dir=out", "firewall-outbound", "net.ports", said="Connections from node2",
        fix="nft insert rule inet site_firewall output", hidden=FILTERED,
    ),
    case("node2 drop dir=both", "firewall-isolated", "net.ports", said="neither", fix="nft"),
    case(
        "node2 drop peers=node0", "firewall-inbound", "net.ports", confidence="likely",
        said="node2 drops connections from node0", fix="nft insert rule",
    ),
    case(
        "node2 drop peers=node0,node1", "firewall-inbound", "net.ports", confidence="likely",
        said="node2 drops connections from node0 and node1", fix="nft insert rule",
    ),
    case(
        "node0 drop ports=29500", "firewall-rendezvous-inbound", "net.ports", nodes=("node0",),
        said="to the rendezvous port", fix="nft insert rule",
    ),
    case(
        "node0 drop peers=node3 ports=29500", "firewall-rendezvous-inbound", "net.ports", nodes=("node0",),
        confidence="likely", said="node3", fix="nft insert rule",
    ),
    # The lab's SSH port lies inside the range from which the kernel picks.
    case(
        "node2 drop ports=32768-44221,44223-60999", "firewall-ephemeral", "net.ports",
        said="accepts connections on the rendezvous port only", fix="nft insert rule",
    ),
    case(
        "node2 reject", "firewall-reject-inbound", "net.ports", said="rejected by a firewall",
        fix="nft insert rule",
    ),
    case(
        "node2 reject with=port-unreachable", "firewall-reject-inbound", "net.ports",
        said="rejects connections", fix="nft insert rule",
    ),
    case(
        "node2 reject with=reset", "port-refused-inbound", "net.ports",
        said="refused, though netdoctor listens there", fix="nft insert rule",
    ),
]  # fmt: skip

FABRIC = [
    case(
        "node2 fabric-drop", "fabric-inbound", "net.ports", said="before they reach node2",
        fix="ACL of the switch ports", hidden=FILTERED,
    ),
    case(
        "node2 fabric-drop from=all to=node0,node1,node2,node3", "fabric-everywhere", "net.ports",
        nodes=ALL, said="none of their rule sets explains it", fix="ask the owner of the network",
    ),
    # What gets through differs from run to run; the sample of ports and of source ports meets it in each.
    case(
        "node2 fabric-acl", "fabric-stateless", "net.ports", said="answers included", hidden=FILTERED,
        fix="ACL of the switch ports",
    ),
    case(
        "node0 fabric-drop from=all to=node0 ports=29500", "fabric-rendezvous-inbound", "net.ports",
        nodes=("node0",), said="to the rendezvous port", fix="TCP 29500",
    ),
]  # fmt: skip

NAMES = [
    case(
        "node2 own-name-loopback", "hosts-loopback", "net.resolve", said="127.0.1.1", fix="/etc/hosts",
    ),
    case(
        "node2 own-name-loopback address=127.0.0.1", "hosts-loopback", "net.resolve", said="127.0.0.1",
        fix="/etc/hosts",
    ),
    case(
        "node2 peer-name-missing peer=node1", "peer-name-unknown", "net.resolve",
        said="cannot resolve node1", fix="/etc/hosts",
    ),
    case(
        "node2 peer-name-wrong peer=node1", "peer-name-wrong", "net.resolve",
        said="resolves node1 to 192.0.2.77", fix="/etc/hosts",
    ),
    case(
        "node0 port-busy port=31000", "master-port-busy", "rdzv.port-free", nodes=("node0",),
        said="port 31000 is used", args=("--master-port", "31000"), fix="see whose process it is",
    ),
]  # fmt: skip

PACKETS = [
    case(
        "node2 mtu", "mtu-differs", "net.mtu", status="warn", said="eth0 has MTU 1400; most nodes have 1500",
        fix="mtu 1500",
    ),
    case("node2 mtu mtu=9000", "mtu-differs", "net.mtu", status="warn", said="9000", fix="1500"),
    case("node2 clock", "clock-skew", "time.skew", said="7.0", fix="chrony"),
    case("node2 clock offset=-90s", "clock-skew", "time.skew", said="90.00 s behind", fix="chrony"),
]  # fmt: skip

# Away from the other packet sizes: it gives every node large packets.
BLACK_HOLE = (
    case(
        "node0 port-busy", "master-port-busy", "rdzv.port-free", nodes=("node0",), said="of user nobody",
        fix="see whose process it is",
    ).values[0],
    case(
        "node2 mtu-blackhole", "mtu-black-hole", "net.path-mtu", said="packets of 9000 bytes vanish",
        fix="switch port of node2",
    ).values[0],
)  # fmt: skip

ONE_WAY = case(
    "node2 fabric-drop from=node1 to=node2", "fabric-path", "net.ports", nodes=("node1", "node2"),
    confidence="likely", said="node1 -> node2", fix="ACL of the switch ports",
).values[0]  # fmt: skip

INTERFACES = [
    case(
        "node2 if-rename", "nccl-ifname-nomatch", "nccl.ifname", job={"NCCL_SOCKET_IFNAME": "eth0"},
        said="node2 has no interface eth0", fix="=eth0,ens10f0np0",
    ),
    case(
        "node2 if-rename", "gloo-ifname-nomatch", "gloo.ifname", job={"GLOO_SOCKET_IFNAME": "eth0"},
        said="GLOO_SOCKET_IFNAME", fix="unset GLOO_SOCKET_IFNAME", id="if-rename, gloo",
    ),
    case(
        "node2 if-extra", "nccl-ifname-nomatch", "nccl.ifname", nodes=("node0", "node1", "node3"),
        job={"NCCL_SOCKET_IFNAME": "docker0"}, said="no interface docker0", fix="=eth0",
    ),
]  # fmt: skip


@pytest.mark.parametrize("one", [*FIREWALL, *FABRIC])
def test_ports(lab4: Lab, folder: Path, one: Case) -> None:
    scanned = hold(lab4, folder, one)
    failed = {(p["from"], p["to"]) for p in scanned.report["pairs"] if p["status"] == "fail"}
    assert failed, "the pairs are in the report, directed"


def test_a_firewall_rule_that_is_kept_is_there_after_the_next_load(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node2 drop",))
    load = "(echo flush ruleset; nft list ruleset) > /tmp/now && cp /tmp/now /etc/nftables.conf"
    lab4.run("node2", ["sh", "-c", load], check=True)
    scanned = scan(lab4, folder, "--only", "net.*")
    cause = scanned.cause("firewall-inbound")
    for _ in range(2):  # pasting twice does no harm
        apply_fix(scanned, cause, 1)
    kept = lab4.run("node2", ["cat", "/etc/nftables.conf"], capture_output=True, text=True).stdout
    assert kept.count("comment netdoctor") == 1
    assert verify(scanned, cause).returncode != 0, "it is for the next boot"
    lab4.run("node2", ["nft", "-f", "/etc/nftables.conf"], check=True)
    assert verify(scanned, cause).returncode == 0


@pytest.mark.parametrize("cases", [*together([*NAMES, *PACKETS]), pytest.param(BLACK_HOLE, id="black hole")])
def test_names_packet_sizes_and_clocks(lab4: Lab, folder: Path, cases: tuple[Case, ...]) -> None:
    hold(lab4, folder, *cases)


def test_lower_mtus_around_a_black_hole_leave_nothing_behind(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node2 mtu-blackhole",))
    scanned = scan(lab4, folder, "--only", "net.*")
    apply_fix(scanned, scanned.cause("mtu-black-hole"), 1)
    after = scan(lab4, folder, "--only", "net.*")
    assert (after.code, found(after)) == (0, {}), after.summary()


@pytest.mark.parametrize("one", INTERFACES)
def test_interfaces_that_the_job_names(lab4: Lab, folder: Path, one: Case) -> None:
    hold(lab4, folder, one, args=("--profile", "quick"))


def test_interfaces_that_nobody_names_are_no_matter(lab4: Lab, folder: Path) -> None:
    extra = ((0, "tailscale0"), (1, "cni0"), (2, "docker0"), (3, "virbr0"))
    put(lab4, ("node1 if-rename", *(f"node{i} if-extra name={name}" for i, name in extra)))
    scanned = scan(lab4, folder)
    assert (scanned.state, scanned.code, found(scanned)) == ("ready", 0, {}), scanned.summary()


def test_a_directed_pair_is_named_as_such(lab4: Lab, folder: Path) -> None:
    scanned = hold(lab4, folder, ONE_WAY)
    assert scanned.cause("fabric-path")["nodes"] == "node1 -> node2"
    ports = [p for p in scanned.report["pairs"] if p["check"] == "net.ports" and p["status"] == "fail"]
    assert [(p["from"], p["to"], p["class"]) for p in ports] == [("node1", "node2", "filtered")]


# Three with one address, as Docker gives it on each machine, and one with an address that no other has.
CONTAINERS = case(
    (*(f"{node} container" for node in ALL[:3]), "node3 container address=172.19.0.2/16"),
    "container-bridge", "net.container", nodes=ALL, said="eth0 172.17.0.2", fix="--network host",
    hidden=frozenset({"net.ports", "net.route", "net.resolve", "gloo.ifname"}),
    args=("--only", "net.container,net.ports,net.route,net.resolve,gloo.ifname"),
    excuse="how a container is started is said in words, to whoever starts it",
).values[0]  # fmt: skip


def test_containers_on_a_bridge_are_named_as_such(lab4: Lab, folder: Path) -> None:
    hold(lab4, folder, CONTAINERS)


QUEUE = case(
    "node0 sysctl name=net.core.somaxconn value=3", "accept-queue-short", "net.capacity", status="warn",
    nodes=("node0",), confidence="likely", said="4 ranks connect to it at once",
    fix="sysctl -qw net/core/somaxconn=4", args=("--only", "net.capacity,net.local-ports,net.parity"),
).values[0]  # fmt: skip
PORTS = case(
    "node1 sysctl name=net.ipv4.ip_local_port_range value=45000 45000", "local-ports-short",
    "net.local-ports", nodes=("node1",), fix="ip_local_port_range=32768 60999",
    said="assign 1 of the ports 45000-45000; 1 rank may need at least 2",
).values[0]  # fmt: skip


OFFLOAD = case(
    ("node2 offload-off", "node2 offload-off feature=gso"), "nic-offload-off", "net.parity", status="warn",
    said="TCP segmentation off", fix="ethtool -K eth0 tso on",
).values[0]  # fmt: skip


def test_settings_of_kernel_and_driver(lab4: Lab, folder: Path) -> None:
    hold(lab4, folder, QUEUE, PORTS, OFFLOAD)


SERVE = """
import http.server, ssl
server = http.server.ThreadingHTTPServer(("0.0.0.0", 8443), http.server.BaseHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/etc/ssl/lab-server.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
"""
CA = "/etc/ssl/lab-ca.pem"


@pytest.fixture
def https_on_node0(lab4: Lab) -> Iterator[Lab]:
    """An HTTPS server on node0, which answers 501, and its own CA on all nodes but node2."""
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=node0"
    make = f"{new} -addext subjectAltName=DNS:node0 -keyout /tmp/k -out {CA}"
    make += f" && cat /tmp/k {CA} >/etc/ssl/lab-server.pem"
    lab4.run("node0", ["sh", "-c", make], check=True, capture_output=True)
    ca = lab4.run("node0", ["cat", CA], check=True, capture_output=True).stdout
    for node in ("node1", "node3"):
        nodes.write(lab4.state, node, {CA: ca})
    argv = nodes.enter(lab4.state, "node0", ["python3", "-c", SERVE])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield lab4
        server.kill()
    for node in ALL:
        nodes.write(lab4.state, node, {CA: None, "/etc/ssl/lab-server.pem": None})


def test_a_url_that_some_nodes_do_not_reach(https_on_node0: Lab, folder: Path) -> None:
    lab = https_on_node0
    put(lab, ("node3 peer-name-missing peer=node0",))
    write_job(folder, {"REQUESTS_CA_BUNDLE": CA})
    url = "https://me:hidden@node0:8443/x?key=hidden"
    scanned = scan(lab, folder, "--only", "net.reach", "--reach", url, "--env-file", JOB_FILE)
    # The server knows neither HEAD nor GET: an answer all the same, and its own trouble.
    assert found(scanned) == {
        "reach-tls": ("node2",), "reach-dns": ("node3",), "reach-status": ("node0", "node1"),
    }, scanned.summary()  # fmt: skip
    assert "hidden" not in scanned.text + json.dumps(scanned.report)
    lab.heal()
    assert verify(scanned, scanned.cause("reach-dns")).returncode == 0


IF_DOWN = case(
    "node2 if-down if=eth1", "net-down", "net.interface", job={"NCCL_SOCKET_IFNAME": "eth1"}, said="eth1",
    fix="eth1 up",
).values[0]  # fmt: skip


def test_an_interface_that_is_down(two_networks: Lab, folder: Path) -> None:
    hold(two_networks, folder, IF_DOWN)


TWO = [
    (
        ("node1 drop", "node2 clock", "node3 mtu"),
        {"firewall-inbound": ("node1",), "clock-skew": ("node2",), "mtu-differs": ("node3",)},
    ),
    (
        ("node1 sshd-down", "node2 peer-name-wrong peer=node0", "node3 own-name-loopback"),
        {"ssh-refused": ("node1",), "peer-name-wrong": ("node2",), "hosts-loopback": ("node3",)},
    ),
    (
        ("node1 drop dir=in", "node2 drop dir=out"),
        {"firewall-inbound": ("node1",), "firewall-outbound": ("node2",)},
    ),
    (
        ("node1 fabric-drop", "node3 drop dir=out"),
        {"fabric-inbound": ("node1",), "firewall-outbound": ("node3",)},
    ),
]


@pytest.mark.parametrize(("faults", "causes"), TWO, ids=[" + ".join(faults) for faults, _ in TWO])
def test_faults_on_different_nodes_are_causes_of_their_own(
    lab4: Lab, folder: Path, faults: tuple[str, ...], causes: dict[str, tuple[str, ...]]
) -> None:
    put(lab4, faults)
    scanned = scan(lab4, folder)
    assert (scanned.state, scanned.code) == ("not_ready", 1), scanned.summary()
    assert found(scanned) == causes, scanned.summary()
    assert all(cause["fixes"] and cause["verify"] for cause in scanned.report["causes"])


def test_the_same_fault_on_two_nodes_is_one_cause_that_names_both(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node1 drop", "node3 drop"))
    scanned = scan(lab4, folder)
    assert found(scanned) == {"firewall-inbound": ("node1", "node3")}, scanned.summary()
    assert scanned.cause("firewall-inbound")["nodes"] == "node[1,3]"
