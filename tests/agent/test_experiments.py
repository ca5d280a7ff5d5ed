"""Listening, connecting and path MTU between real agents: on loopback, and across real links."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from netdoctor.facts.net import MtuProbe, PortProbe
from tests.agent import harness

TOKEN = "0123456789abcdef"


@pytest.fixture
def agent() -> Iterator[harness.AgentProcess]:
    with harness.agent() as running:
        yield running


def connect(agent: harness.AgentProcess, *targets: tuple[str, int], **args: Any) -> list[Any]:
    rows = [
        {"dst": f"n{i}", "address": address, "port": port, "purpose": "rendezvous"}
        for i, (address, port) in enumerate(targets)
    ]
    reply = agent.request("connect", {"targets": rows, "token": TOKEN, "timeout_s": 1.0} | args)
    return [msgspec.convert({"src": "me", **row}, type=PortProbe) for row in reply]


def listen(agent: harness.AgentProcess, *where: tuple[str, int], ttl_s: float = 30) -> list[Any]:
    listeners = [{"address": a, "port": p, "purpose": "ephemeral"} for a, p in where]
    reply: list[Any] = agent.request("listen", {"listeners": listeners, "token": TOKEN, "ttl_s": ttl_s})
    return reply


def test_a_source_port_that_is_asked_for_is_taken(agent: harness.AgentProcess) -> None:
    (row,) = listen(agent, ("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    target = {"dst": "n", "address": "127.0.0.1", "port": row["port"], "source_port": free}
    (found,) = agent.request("connect", {"targets": [target], "token": TOKEN, "timeout_s": 1.0})
    assert (found["outcome"], found["source_port"]) == ("open", free)


@contextlib.contextmanager
def stranger(answer: bytes | None) -> Iterator[int]:
    """A program that is not ours: sends `answer` to whoever connects, or keeps silent (None)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    s, _ = server.accept()
                    kept.append(s)
                    if answer is not None:
                        s.sendall(answer)
                        s.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(2)
        for s in kept:
            s.close()


def test_open_port_answers_our_token(agent: harness.AgentProcess) -> None:
    (row,) = listen(agent, ("127.0.0.1", 0))
    assert row["error"] is None
    assert 1024 < row["port"] < 65536
    (probe,) = connect(agent, ("127.0.0.1", row["port"]))
    assert probe.outcome == "open"
    assert (probe.dst, probe.purpose) == ("n0", "rendezvous")


def test_listens_on_the_given_address_only(agent: harness.AgentProcess) -> None:
    (row,) = listen(agent, ("127.0.0.1", 0))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", row["port"]), 1)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "", "localhost", "no-such", None])
def test_refuses_wildcards_and_names(agent: harness.AgentProcess, address: str | None) -> None:
    (row,) = listen(agent, (address, 0))  # type: ignore[arg-type]
    assert row["error"]


def test_port_in_use_is_named(agent: harness.AgentProcess) -> None:
    with stranger(b"") as port:
        (row,) = listen(agent, ("127.0.0.1", port))
    assert row["error"] == "EADDRINUSE"
    assert row["port"] == port


def test_another_scan_on_the_port_is_waited_for(agent: harness.AgentProcess) -> None:
    with harness.agent() as other:
        (theirs,) = listen(other, ("127.0.0.1", 0))
        holder = agent.facts(port_holder={"port": theirs["port"]})["port_holder"]["value"]
        assert (holder["listeners"], holder["other_scan"]) == ([], True)
        threading.Timer(0.5, other.process.kill).start()
        (row,) = listen(agent, ("127.0.0.1", theirs["port"]))
    assert row["error"] is None


def test_closed_port_is_refused(agent: harness.AgentProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    (probe,) = connect(agent, ("127.0.0.1", port))
    assert (probe.outcome, probe.detail) == ("refused", "ECONNREFUSED")


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        pytest.param(b"SSH-2.0-x\r\n", "something else answers", id="talks first"),
        pytest.param(b"", "closed without our token", id="closes"),
        pytest.param(None, "no answer within", id="silent"),
        pytest.param(b"ok " + b"f" * 16 + b"\n", "something else answers", id="other run"),
    ],
)
def test_stranger_on_the_port_is_in_use(
    agent: harness.AgentProcess, answer: bytes | None, detail: str
) -> None:
    with stranger(answer) as port:
        (probe,) = connect(agent, ("127.0.0.1", port))
    assert probe.outcome == "in_use"
    assert detail in probe.detail or "ECONNRESET" in probe.detail


def test_full_backlog_reads_as_filtered(agent: harness.AgentProcess) -> None:
    # Linux drops the SYN when the queue of a listener is full: silence, as behind a dropping filter.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as stack:
        port = server.getsockname()[1]
        for _ in range(4):
            s = stack.enter_context(socket.socket())
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
        (probe,) = connect(agent, ("127.0.0.1", port), timeout_s=0.3)
    assert probe.outcome == "filtered"
    assert probe.elapsed_ms > 250


@pytest.mark.parametrize(
    ("address", "port"),
    [("not-an-address", 1), ("127.0.0.1", 70000), ("127.0.0.1", "x"), ("", None), ("1.2.3.4.5", 9)],
)
def test_bad_target_costs_only_itself(agent: harness.AgentProcess, address: str, port: Any) -> None:
    (row,) = listen(agent, ("127.0.0.1", 0))
    targets = [
        {"dst": "bad", "address": address, "port": port, "purpose": "x"},
        {"dst": "good", "address": "127.0.0.1", "port": row["port"], "purpose": "x"},
        "nonsense",
    ]
    reply = agent.request("connect", {"targets": targets, "token": TOKEN})
    assert [r["outcome"] for r in reply] == ["error", "open", "error"]


def test_many_targets_keep_their_order(agent: harness.AgentProcess) -> None:
    rows = listen(agent, *[("127.0.0.1", 0)] * 8)
    targets = [("127.0.0.1", row["port"]) for row in rows] * 40
    probes = connect(agent, *targets, parallel=32)
    assert [(p.address, p.port) for p in probes] == targets
    assert {p.outcome for p in probes} == {"open"}


def test_wrong_or_no_token_is_closed_silently(agent: harness.AgentProcess) -> None:
    (row,) = listen(agent, ("127.0.0.1", 0))
    for said in (b"wrong token here\n", b"x" * 1000, b""):
        with socket.create_connection(("127.0.0.1", row["port"]), 5) as s:
            s.sendall(said)
            start = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                assert s.recv(100) == b""
            assert time.monotonic() - start < 3


def test_thousands_of_strangers_change_nothing(agent: harness.AgentProcess) -> None:
    """Some come and go, others hold every place that there is."""
    (row,) = listen(agent, ("127.0.0.1", 0))
    where = ("127.0.0.1", row["port"])
    for _ in range(4200):
        socket.create_connection(where, 5).close()
    with contextlib.ExitStack() as held:
        for _ in range(600):
            held.enter_context(socket.create_connection(where, 5))
        assert [probe.outcome for probe in connect(agent, *[where] * 8)] == ["open"] * 8


def test_unlisten_and_ttl_close(agent: harness.AgentProcess) -> None:
    (row,) = listen(agent, ("127.0.0.1", 0))
    assert agent.request("unlisten") == {"closed": 1}
    assert connect(agent, ("127.0.0.1", row["port"]))[0].outcome == "refused"
    (row,) = listen(agent, ("127.0.0.1", 0), ttl_s=0.3)
    time.sleep(0.8)
    assert connect(agent, ("127.0.0.1", row["port"]))[0].outcome == "refused"


def test_listeners_die_with_the_agent() -> None:
    with harness.agent() as agent:
        (row,) = listen(agent, ("127.0.0.1", 0))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", row["port"]), 1)


@pytest.mark.parametrize("token", ["", "short", "x" * 300, "tök" * 9, 5, None, "a\nb" * 9])
def test_bad_token_is_an_error(agent: harness.AgentProcess, token: Any) -> None:
    for op in ("listen", "connect", "udp_echo", "path_mtu"):
        reply = agent.finish(agent.start(op, {"token": token, "targets": [], "listeners": []}))
        assert reply["ok"] is False


def test_echo_answers_less_than_it_gets(agent: harness.AgentProcess) -> None:
    import hashlib

    reply = agent.request("udp_echo", {"address": "127.0.0.1", "token": TOKEN, "ttl_s": 10})
    tag = hashlib.sha256(b"netdoctor udp " + TOKEN.encode()).hexdigest()[:32].encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.5)
        s.connect(("127.0.0.1", reply["port"]))
        s.send(tag + b" 00000001 ".ljust(500, b"."))
        answer = s.recv(2000)
        assert len(answer) == 64
        assert answer.split() == [tag, b"00000001", b"532"]
        for stray in (b"", b"x" * 600, tag):
            s.send(stray)
        with pytest.raises(TimeoutError):
            s.recv(2000)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_path_mtu_of_loopback(agent: harness.AgentProcess, address: str) -> None:
    if address == "::1" and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 on this machine")
    reply = agent.request("udp_echo", {"address": address, "token": TOKEN, "ttl_s": 10})
    if reply["error"]:
        pytest.skip(f"cannot bind {address}: {reply['error']}")
    (row,) = agent.request(
        "path_mtu",
        {"targets": [{"dst": "n", "address": address, "port": reply["port"]}], "token": TOKEN},
    )
    probe = msgspec.convert({"src": "me", **row}, type=MtuProbe)
    assert (probe.outcome, probe.dev, probe.small_ok) == ("ok", "lo", True)
    assert probe.largest_ok == min(probe.dev_mtu, 65535)


def test_path_mtu_without_an_echo(agent: harness.AgentProcess) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    start = time.monotonic()
    (row,) = agent.request(
        "path_mtu",
        {"targets": [{"dst": "n", "address": "127.0.0.1", "port": port}], "token": TOKEN},
    )
    assert row["outcome"] == "no_answer"
    assert "port unreachable" in row["detail"]
    assert time.monotonic() - start < 8


def test_path_mtu_names_targets_that_it_did_not_reach(agent: harness.AgentProcess) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        target = {"dst": "n", "address": "127.0.0.1", "port": silent.getsockname()[1]}
        args = {"targets": [target] * 40, "token": TOKEN, "timeout_s": 0.3, "budget_s": 1.0}
        start = time.monotonic()
        rows = agent.request("path_mtu", args)
    assert time.monotonic() - start < 8
    assert len(rows) == 40
    assert {row["outcome"] for row in rows} == {"no_answer", "error"}
    assert "time was used up" in rows[-1]["detail"]


# --- across links -----------------------------------------------------------------------------------------


# Without duplicate address detection IPv6 works at once.
SWITCHES = (
    "ipv4/ip_forward=1",
    "ipv6/conf/all/forwarding=1",
    "ipv6/conf/default/accept_dad=0",
    "ipv6/conf/all/accept_dad=0",
)


class Wire:
    """a --- r --- b: two nodes and a router, each a network namespace."""

    count = itertools.count()

    def __init__(self) -> None:
        base = f"nda{os.getpid()}x{next(self.count)}"
        self.names = {n: base + n for n in "arb"}

    def ip(self, node: str, *args: str) -> None:
        run("ip", "-n", self.names[node], *args)

    def nft(self, node: str, rule: str, hook: str = "input") -> None:
        chain = f"add chain inet t c {{ type filter hook {hook} priority 0; }}"
        text = f"add table inet t; {chain}; add rule inet t c {rule}"
        run("ip", "netns", "exec", self.names[node], "nft", text)

    def up(self, mtu: int = 9000) -> None:
        for name in self.names.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            for switch in SWITCHES:
                path, _, value = switch.partition("=")
                run("ip", "netns", "exec", name, "sh", "-c", f"echo {value} > /proc/sys/net/{path}")
        for i, node in enumerate("ab"):
            self.ip("r", "link", "add", f"to{node}", "mtu", str(mtu), "type", "veth", "peer",
                    "name", "eth0", "netns", self.names[node])  # fmt: skip
            self.ip(node, "link", "set", "eth0", "mtu", str(mtu), "up")
            self.ip("r", "link", "set", f"to{node}", "up")
            for v4, v6 in ((f"10.9.{i}.", f"fd09:{i}::"),):
                self.ip(node, "addr", "add", v4 + "2/24", "dev", "eth0")
                self.ip("r", "addr", "add", v4 + "1/24", "dev", f"to{node}")
                self.ip(node, "addr", "add", v6 + "2/64", "dev", "eth0", "nodad")
                self.ip("r", "addr", "add", v6 + "1/64", "dev", f"to{node}", "nodad")
                self.ip(node, "route", "add", "default", "via", v4 + "1")
                self.ip(node, "-6", "route", "add", "default", "via", v6 + "1")
            run("ip", "netns", "exec", self.names[node], "ethtool", "-K", "eth0", "tso", "off",
                "gso", "off", "gro", "off", check=False)  # fmt: skip

    def down(self) -> None:
        for name in self.names.values():
            run("ip", "netns", "del", name, check=False)

    def agent(self, node: str) -> contextlib.AbstractContextManager[harness.AgentProcess]:
        return harness.agent(prefix=["ip", "netns", "exec", self.names[node]])


def run(*argv: str, check: bool = True) -> None:
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(argv, check=check, capture_output=True, timeout=20)


@pytest.fixture
def wire() -> Iterator[Wire]:
    if os.getuid() != 0:
        pytest.skip("needs root to make network namespaces")
    for tool in ("ip", "nft"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    made = Wire()
    try:
        try:
            made.up()
        except subprocess.CalledProcessError as e:
            pytest.skip(f"no network namespaces here: {e.stderr.decode()[:200]}")
        yield made
    finally:
        made.down()


PORT = 29500


@pytest.mark.lab
@pytest.mark.parametrize("address", ["10.9.1.2", "fd09:1::2"])
@pytest.mark.parametrize(
    ("node", "hook", "rule", "outcome", "detail"),
    [
        pytest.param(None, "", "", "open", "", id="open"),
        pytest.param("b", "input", "tcp dport 29500 drop", "filtered", "no answer", id="drop"),
        pytest.param("r", "forward", "tcp dport 29500 drop", "filtered", "no answer", id="drop on the way"),
        pytest.param("b", "output", "tcp sport 29500 drop", "filtered", "no answer", id="drop of answers"),
        pytest.param("b", "input", "tcp dport 29500 reject with icmpx admin-prohibited", "rejected",
                     "prohibited", id="reject"),
        pytest.param("b", "input", "tcp dport 29500 reject", "rejected", "port unreachable",
                     id="reject default"),
        pytest.param("r", "forward", "tcp dport 29500 reject with icmpx admin-prohibited", "rejected",
                     "prohibited", id="reject on the way"),
        pytest.param("b", "input", "tcp dport 29500 reject with icmpx host-unreachable", "rejected",
                     "the node itself", id="host unreachable by rule"),
        pytest.param("r", "forward", "tcp dport 29500 reject with icmpx host-unreachable", "no_route",
                     "unreachable", id="router says unreachable"),
        pytest.param("b", "input", "tcp dport 29500 reject with tcp reset", "refused", "ECONNREFUSED",
                     id="reset"),
        pytest.param("a", "output", "tcp dport 29500 reject with icmpx admin-prohibited", "rejected",
                     "prohibited", id="own output rule"),
    ],
)  # fmt: skip
def test_outcomes_across_a_router(
    wire: Wire, address: str, node: str | None, hook: str, rule: str, outcome: str, detail: str
) -> None:
    with wire.agent("a") as a, wire.agent("b") as b:
        (row,) = listen(b, (address, PORT))
        assert row["error"] is None
        if node:
            wire.nft(node, rule, hook)
        (probe,) = connect(a, (address, PORT), timeout_s=1.5)
    assert (probe.outcome, detail in probe.detail) == (outcome, True), probe


@pytest.mark.lab
@pytest.mark.parametrize("address", ["10.9.0.77", "fd09:0::77"])
def test_absent_neighbour_is_no_route(wire: Wire, address: str) -> None:
    with wire.agent("a") as a:
        (probe,) = connect(a, (address, PORT), timeout_s=5)
    assert probe.outcome == "no_route", probe
    assert "neighbour" in probe.detail


@pytest.mark.lab
@pytest.mark.parametrize("address", ["10.9.1.77", "fd09:1::77"])
def test_absent_node_behind_a_router_is_no_route(wire: Wire, address: str) -> None:
    with wire.agent("a") as a:
        (probe,) = connect(a, (address, PORT), timeout_s=5)
    assert probe.outcome == "no_route", probe
    assert "ICMP" in probe.detail


@pytest.mark.lab
def test_no_route_at_all(wire: Wire) -> None:
    wire.ip("a", "route", "del", "default")
    with wire.agent("a") as a:
        (probe,) = connect(a, ("10.9.1.2", PORT))
        routes = a.facts(routes={"destinations": {"b": "10.9.1.2", "r": "10.9.0.1"}})["routes"]
    assert (probe.outcome, probe.detail) == ("no_route", "ENETUNREACH")
    assert routes["value"]["routes"]["b"]["error"] == "ENETUNREACH"
    assert routes["value"]["routes"]["r"]["dev"] == "eth0"


@pytest.mark.lab
def test_routes_that_only_a_rule_leads_to(wire: Wire) -> None:
    """Without a default route in the main table, as on hosts with a table for each of their NICs."""
    wire.ip("a", "route", "del", "default")
    wire.ip("a", "route", "add", "default", "via", "10.9.0.1", "table", "101")
    wire.ip("a", "rule", "add", "to", "10.9.1.0/24", "lookup", "101")
    with wire.agent("a") as a:
        net = a.facts(net={})["net"]["value"]
        routes = a.facts(routes={"destinations": {"b": "10.9.1.2"}})["routes"]["value"]["routes"]
    assert (routes["b"]["dev"], routes["b"]["gateway"]) == ("eth0", "10.9.0.1")
    assert "0.0.0.0/0" in net["routed"]


def path_mtu(wire: Wire, address: str) -> MtuProbe:
    with wire.agent("a") as a, wire.agent("b") as b:
        echo = b.request("udp_echo", {"address": address, "token": TOKEN, "ttl_s": 60})
        assert echo["error"] is None
        (row,) = a.request(
            "path_mtu",
            {
                "targets": [{"dst": "b", "address": address, "port": echo["port"]}],
                "token": TOKEN,
            },
        )
    return msgspec.convert({"src": "a", **row}, type=MtuProbe)


@pytest.mark.lab
@pytest.mark.parametrize("address", ["10.9.1.2", "fd09:1::2"])
def test_path_mtu_of_a_good_path(wire: Wire, address: str) -> None:
    probe = path_mtu(wire, address)
    assert (probe.outcome, probe.largest_ok, probe.dev, probe.dev_mtu) == ("ok", 9000, "eth0", 9000)


@pytest.mark.lab
@pytest.mark.parametrize("address", ["10.9.1.2", "fd09:1::2"])
@pytest.mark.parametrize("mtu", [1500, 1433])
def test_small_path_is_learnt_from_icmp(wire: Wire, address: str, mtu: int) -> None:
    wire.ip("r", "link", "set", "tob", "mtu", str(mtu))
    probe = path_mtu(wire, address)
    assert (probe.outcome, probe.largest_ok, probe.learned_mtu) == ("small", mtu, mtu), probe
    assert "ICMP" in probe.detail


@pytest.mark.lab
@pytest.mark.parametrize("address", ["10.9.1.2", "fd09:1::2"])
@pytest.mark.parametrize("limit", [1500, 1433, 8950])
def test_black_hole_is_told_from_small(wire: Wire, address: str, limit: int) -> None:
    wire.nft("r", f"meta length > {limit} drop", "forward")
    probe = path_mtu(wire, address)
    assert (probe.outcome, probe.largest_ok) == ("black_hole", limit), probe
    assert (probe.small_ok, probe.learned_mtu) == (True, None)


@pytest.mark.lab
def test_loss_is_no_black_hole(wire: Wire) -> None:
    wire.nft("r", "numgen random mod 100 < 8 drop", "forward")
    outcomes = {path_mtu(wire, "10.9.1.2").outcome for _ in range(5)}
    assert outcomes == {"ok"}


@pytest.mark.lab
def test_filtered_datagrams_are_no_answer(wire: Wire) -> None:
    wire.nft("r", "meta l4proto udp drop", "forward")
    probe = path_mtu(wire, "10.9.1.2")
    assert (probe.outcome, probe.small_ok, probe.largest_ok) == ("no_answer", False, None)
