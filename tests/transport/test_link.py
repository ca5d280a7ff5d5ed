"""What netdoctor holds paramiko by. A failure here after an upgrade says which hook has moved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPTS = {
    "disconnect text reaches last_words": """
m = paramiko.Message(); m.add_int(2); m.add_string("Too many authentication failures"); m.add_string("")
m.rewind()
t._parse_disconnect(m)
assert t.last_words == "Too many authentication failures", t.last_words
""",
    "refusals are kept by channel": """
number = t._next_channel()
m = paramiko.Message(); m.add_int(number); m.add_int(2); m.add_string("Connection refused"); m.add_string("")
m.rewind()
t._parse_channel_open_failure(m)
assert t.refusals[number].startswith("Connection refused"), t.refusals
m = paramiko.Message(); m.add_int(77); m.add_int(2); m.add_string("nobody asked"); m.add_string("")
m.rewind()
t._parse_channel_open_failure(m)
assert set(t.refusals) == {number}
""",
    "channel numbers are noted": """
n = t._next_channel()
assert t._numbers == {threading.get_ident(): n}
""",
    "no timer thread": """
before = threading.active_count()
t.packetizer.start_handshake(60)
assert threading.active_count() == before
assert not t.packetizer.handshake_timed_out()
""",
    "cheap algorithms first, weak ones not offered": """
assert t.preferred_kex[0] == "curve25519-sha256@libssh.org"
assert t.preferred_ciphers[0] == "aes128-gcm@openssh.com"
assert not {"3des-cbc", "hmac-md5"} & {*t.preferred_ciphers, *t.preferred_macs}
assert "diffie-hellman-group14-sha1" not in t.preferred_kex
""",
    "known key types first": """
u = link.NodeTransport(link.Wire(a), link.key_algorithms(["ssh-rsa", "ecdsa-sha2-nistp256"]))
assert u.preferred_keys[:3] == ("rsa-sha2-512", "rsa-sha2-256", "ecdsa-sha2-nistp256"), u.preferred_keys
""",
    "no store answers before the judge": """
client = paramiko.SSHClient()
assert hasattr(client, "_system_host_keys") and hasattr(client, "_host_keys")
link.Verify.all_keys(client, lambda kind, blob: None)
assert isinstance(client._policy, link.Verify)
""",
    "nothing polls": """
u = link.NodeTransport(link.Wire(a))
assert isinstance(u.clear_to_send, link.Signal)
c = paramiko.Channel(1)
assert isinstance(c.event, link.Signal)
import pathlib, re
text = pathlib.Path(paramiko.transport.__file__).read_text()
assert set(re.findall(r"\\.wait\\(([0-9.]+)\\)", text)) == {"0.1"}
""",
    "a channel's buffers share a signal, and end at the window": """
c = paramiko.transport.Channel(1)
c.in_buffer.feed(b"out"); c.in_stderr_buffer.feed(b"err")
assert c.recv_ready() and c.recv_stderr_ready()
c.transport = t
assert c.in_buffer.read(2) == b"ou" and c.in_buffer.read(9) == b"t"
try:
    c.recv(5)
except TimeoutError:
    pass
else:
    raise AssertionError("stderr does not wake a reader of stdout")
for _ in range(64):
    c._feed(bytes(32768))
refused(lambda: c._feed(b"x"), "more than the window allows")
assert len(c.in_buffer) == paramiko.common.DEFAULT_WINDOW_SIZE
c._handle_eof(None)
assert c.in_buffer.read(5) == bytes(5)
""",
    "packets are not longer than OpenSSH's": """
t.sock.banner = b"SSH-2.0-x"
b.sendall((0x7ffffff4).to_bytes(4, "big") + bytes(60))
refused(t.packetizer.read_message, "a packet of")
""",
    "messages end where they end": """
def message(*parts):
    return link.PeerMessage(b"".join(parts))
four = (2**32 - 1).to_bytes(4, "big")
refused(lambda: t._parse_ext_info(message(four)), "ends before")
refused(lambda: message(four).get_string(), "ends before")
refused(lambda: message((4096).to_bytes(4, "big"), bytes(4096)).get_mpint(), "4096 bytes")
refused(lambda: message((1).to_bytes(4, "big"), b"\\xff").get_mpint(), "negative")
assert message((2).to_bytes(4, "big"), b"\\1\\2").get_mpint() == 258
assert message(b"\\1").get_int() == 1 << 24  # as paramiko has it, a few times
u = paramiko.packet.Packetizer(a)
b.sendall(b"\\0\\0\\0\\x0c\\x0a\\x02" + bytes(10))
assert type(u.read_message()[1]) is type(paramiko.ecdsakey.Message()) is link.PeerMessage
""",
    "new keys are made a few times": """
t._send_kex_init = t._parse_kex_init = lambda *_: None
t.kex_engine = type("Engine", (), {"start_kex": staticmethod(lambda: None)})
for _ in range(link.KEX_MAX):
    t._handler_table[paramiko.common.MSG_KEXINIT](None)
refused(lambda: t._handler_table[paramiko.common.MSG_KEXINIT](None), "without end")
assert paramiko.kex_gex.KexGexSHA256(t).max_bits == 4096
""",
    "who sends without end is cut off, and nobody waits for it": """
import gevent, time
ignore = b"\\0\\0\\0\\x0c\\x0a\\x02" + bytes(10)
gevent.spawn(lambda: b.sendall(ignore * (link.LOGIN_BYTES_MAX // 16 + 2)))
w = link.Wire(a); w.banner = b"x"
p = link.NodePacketizer(w)
p.per_second = 1e6
turns = []
def other():
    while True:
        turns.append(1)
        gevent.sleep(0)
g = gevent.spawn(other)
read = 0
try:
    while True:
        p.read_message()
        read += 1
except EOFError:
    pass
assert read <= link.LOGIN_BYTES_MAX // 16 and "4 MiB" in w.strange, (read, w.strange)
assert len(turns) > read // link.PACKETS_A_TURN > 1000, (len(turns), read)
""",
    "sealed packets are paramiko's": """
import os, random
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
def under_gcm(packetizer, in_iv, out_iv):
    common = dict(block_engine=AESGCM(bytes(16)), block_size=16, mac_engine=None, mac_size=16, mac_key=None)
    packetizer.set_inbound_cipher(**common, aead=True, iv_in=in_iv)
    packetizer.set_outbound_cipher(**common, aead=True, iv_out=out_iv)
    return packetizer
def pair(sock, other):
    wire = link.Wire(sock); wire.banner = b"x"; wire.allow(1e9)
    ours = link.NodePacketizer(wire)
    last = b"abcd" + bytes(4) + bytes([255] * 4)
    return under_gcm(ours, bytes(12), last), under_gcm(paramiko.packet.Packetizer(other), last, bytes(12))
ours, theirs = pair(a, b)
chance = random.Random(1)
for number, size in enumerate([*range(1, 40), *(chance.randrange(40, 33_000) for _ in range(8))]):
    payload = bytes([94]) + chance.randbytes(size)
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        sender.send_message(link.PeerMessage(payload))
        kind, message = receiver.read_message()
        assert (kind, message.asbytes(), message.seqno) == (94, payload[1:], number), (size, sender)
ours.reset_seqno_in(); theirs.send_message(link.PeerMessage(payload))
assert ours.read_message()[1].seqno == 0
for size in (8, 20, link.PACKET_BYTES_MAX + 16):
    b.sendall(size.to_bytes(4, "big"))
    refused(ours.read_message, f"a packet of {size} bytes")
b.sendall((16).to_bytes(4, "big") + bytes(32))
try:
    ours.read_message()
except InvalidTag:
    pass
else:
    raise AssertionError("a forged packet was taken")
assert not ours.need_rekey()
ours.REKEY_BYTES = ours._out.bytes
ours.send_message(link.PeerMessage(payload[:30]))
assert ours.need_rekey()
ours.REKEY_BYTES = 0
refused(lambda: ours.send_message(link.PeerMessage(payload[:30])), "wish for new keys")
b.close()
try:
    ours.read_message()
except EOFError:
    pass
else:
    raise AssertionError("the end was not seen")
""",
    "a login seals its packets, and again under new keys": """
server = link.NodeTransport(link.Wire(b))
server.add_server_key(paramiko.ECDSAKey.generate())
server.start_server(server=paramiko.ServerInterface(), event=threading.Event())
t.start_client()
for _ in range(2):
    assert t.packetizer._in and t.packetizer._out
    first = t.packetizer._out
    t.renegotiate_keys()
    assert t.packetizer._out is not first
assert threading.current_thread() is not t and t.daemon and not t.is_alive()
t.close(); server.close()
""",
    "messages are packed as paramiko packs them": """
import inspect
Theirs = link.PeerMessage.__mro__[1]
for name, method in vars(Theirs).items():
    if callable(method) and "self.packet" in inspect.getsource(method):
        assert name in vars(link.PeerMessage), name
key = paramiko.ECDSAKey.generate()
fields = [("bytes", b"raw"), ("byte", b"x"), ("boolean", True), ("boolean", False), ("int", 7),
          ("int64", 1 << 40), ("string", b"bytes"), ("string", "t\u00e4xt"), ("string", bytearray(b"array")),
          ("string", memoryview(b"view")), ("list", ["a", "b"]), ("adaptive_int", 5)]
fields += [("mpint", n) for n in (0, 1, 127, 128, 255, 256, 1 << 31, (1 << 255) + 3, (1 << 256) - 1)]
fields += [("adaptive_int", n) for n in (0xfeffffff, 0xff000000, 1 << 40)]
ours, theirs = link.PeerMessage(), Theirs()
for kind, value in fields:
    for m in (ours, theirs):
        assert getattr(m, "add_" + kind)(value) is m
ours.add("a", b"b", 3, True, ["c"]); theirs.add("a", b"b", 3, True, ["c"])
ours.add_string(key); theirs.add_string(key)
assert ours.asbytes() == theirs.asbytes() == bytes(ours) == bytes(ours.buffer())
ours, theirs = link.PeerMessage(ours.asbytes()), Theirs(theirs.asbytes())
for kind, value in fields:
    got = [getattr(m, "get_" + kind)(len(value)) if kind == "bytes" else getattr(m, "get_" + kind)()
           for m in (ours, theirs)]
    assert got[0] == got[1] and type(got[0]) is type(got[1]), (kind, value, got)
    assert ours.get_remainder() == theirs.get_remainder()
for get in ("get_text", "get_binary"):
    assert getattr(ours, get)() == getattr(theirs, get)()
before = theirs.get_so_far()
theirs.get_bytes(len(before))
assert ours.get_so_far() == before
ours.rewind()
assert ours.get_remainder() == ours.asbytes()
""",
    "what is agreed is remembered, and as paramiko has it": """
import os
from netdoctor.transport.ssh import agreement
base = paramiko.Transport
server = link.NodeTransport(link.Wire(b))
server.add_server_key(paramiko.ECDSAKey.generate()); server.server_mode = True
server._send_message = lambda m: None
def fresh():
    u = link.NodeTransport(link.Wire(a), ["ssh-ed25519", "ecdsa-sha2-nistp256"])
    u.sent = []
    u._send_message = lambda m: u.sent.append(m.asbytes())
    return u
def state(u):
    own = {"kex_engine", "packetizer", "sent", "_send_message", "_handler_table", "logger", "_log_lock"}
    return {name: value for name, value in vars(u).items()
            if name not in own and isinstance(value, (str, bytes, bool, int, tuple, list, type(None)))}
agreement._announced.clear(); agreement._agreed.clear()
urandom, os.urandom = os.urandom, lambda n: bytes([n]) * n
first, again, plain = fresh(), fresh(), fresh()
first._send_kex_init(); assert len(agreement._announced) == 1
again._send_kex_init(); base._send_kex_init(plain)
os.urandom = urandom
assert first.sent == again.sent == plain.sent and len(plain.sent) == 1
assert state(first) == state(again) == state(plain) and plain.in_kex and plain.local_kex_init
assert not again.clear_to_send.is_set() and not plain.clear_to_send.is_set()
said = []
server._send_kex_init()  # from the second on without algorithms that it cannot do
for _ in range(2):
    server._send_kex_init()
    said.append(server.local_kex_init[1:] + b"\\0")  # a byte too many, as from some servers
def told(data, seqno=0):
    m = link.PeerMessage(data); m.seqno = seqno
    return m
first._parse_kex_init(told(said[0])); assert len(agreement._agreed) == 1
again._parse_kex_init(told(said[1])); assert len(agreement._agreed) == 1
base._parse_kex_init(plain, told(said[1]))
assert state(again) == state(plain) and again.agreed_on_strict_kex and again.host_key_type
assert again.remote_kex_init == b"\\x14" + said[1][:-1] != first.remote_kex_init
assert type(again.kex_engine) is type(plain.kex_engine) is paramiko.kex_curve25519.KexCurve25519
assert again.kex_engine is not first.kex_engine and again.kex_engine.transport is again
for u in (fresh(), fresh()):
    refused(lambda: u._parse_kex_init(told(said[0], 1)), "not the first packet")
asked = []
other = fresh(); other.initial_kex_done = True
kept, base._parse_kex_init = base._parse_kex_init, lambda *_: asked.append(1)
other._parse_kex_init(told(said[0])); base._parse_kex_init = kept
assert asked == [1], asked
fresh()._parse_kex_init(told(said[0] + bytes(agreement.ANNOUNCED_BYTES_MAX)))
assert len(agreement._agreed) == 1
for n in range(2 * agreement.KINDS_MAX):
    fresh()._parse_kex_init(told(said[0] + bytes(n)))
assert len(agreement._agreed) == agreement.KINDS_MAX, len(agreement._agreed)
info = link.PeerMessage().add_int(1).add_string("server-sig-algs").add_string("rsa-sha2-256").asbytes()
agreement._extended.clear()
for u in (first, again):
    u._parse_ext_info(told(info))
base._parse_ext_info(plain, told(info))
assert first.server_extensions == again.server_extensions == plain.server_extensions != {}
assert list(agreement._extended) == [info]
""",
    "what cannot be sent ends the transport, and a part is followed by the rest": """
w = link.Wire(a)
p = link.NodePacketizer(w)
parts = []
w.send = lambda data: (parts.append(data[:3]), len(data[:3]))[1]
p.write_all(b"12345678")
assert parts == [b"123", b"456", b"78"]
def broken(data):
    raise BrokenPipeError(32, "Broken pipe")
w.send = broken
try:
    p.write_all(b"x")
except EOFError:
    pass
else:
    raise AssertionError("nobody was told")
""",
    "keys are derived as paramiko derives them": """
import hashlib
for k in (12345 << 200, (1 << 255) + 9, b"a hybrid's K is bytes"):
    t._set_K_H(k, hashlib.sha256(repr(k).encode()).digest())
    t.kex_engine = paramiko.kex_curve25519.KexCurve25519(t)
    for size in (12, 16, 32, 33, 64, 100):
        for letter in "ABCDEF":
            assert t._compute_key(letter, size) == paramiko.Transport._compute_key(t, letter, size)
""",
    "a key and a command go ahead of what they wait for": """
import gevent
class Gate(paramiko.ServerInterface):
    def check_auth_publickey(self, user, key):
        return paramiko.AUTH_SUCCESSFUL if key == known else paramiko.AUTH_FAILED
    def get_allowed_auths(self, user):
        return "publickey"
    def check_channel_request(self, kind, number):
        return paramiko.OPEN_SUCCEEDED
    def check_channel_exec_request(self, channel, command):
        return command == b"good"
server = link.NodeTransport(link.Wire(b))
server.add_server_key(paramiko.ECDSAKey.generate())
server.start_server(server=Gate(), event=threading.Event())
t.start_client()
sent, held, open_ = [], threading.Event(), server.packetizer.read_message
send = t._send_message
t._send_message = lambda m: (sent.append(m.asbytes()[0]), send(m))
def slowly():
    found = open_()
    held.wait()
    return found
server.packetizer.read_message = slowly
def offered(key):
    sent.clear(); held.clear()
    g = gevent.spawn(t.offer, "who", key)
    gevent.sleep(0.05)
    ahead = list(sent)
    held.set()
    return ahead, g
known = paramiko.ECDSAKey.generate()
ahead, g = offered(paramiko.ECDSAKey.generate())
assert ahead == [5, 50], ahead
g.join(5); assert isinstance(g.exception, paramiko.AuthenticationException), g.exception
ahead, g = offered(paramiko.RSAKey.generate(2048))
assert ahead == [5], ahead
g.join(5); assert isinstance(g.exception, paramiko.AuthenticationException), g.exception
ahead, g = offered(known)
assert ahead == [5, 50] and g.get(timeout=5) == [], ahead
good, bad = t.open_session(), t.open_session()
sent.clear(); held.clear()
good.begin("good"); good.sendall(bytes(70_000))
assert set(sent[1:]) == {94} and sent[0] == 98, sent
held.set()
theirs = server.accept(5)
got = b""
while len(got) < 70_000:
    got += theirs.recv(100_000)
assert not good.refused and got == bytes(70_000)
bad.begin("bad")
got = bad.recv(5)
assert got == b"" and bad.refused and bad.closed, (got, bad.refused, bad.closed)
t.close(); server.close()
""",
    "a flood of packets is read slowly": """
import gevent
naps = []
gevent_sleep, link.gevent.sleep = gevent.sleep, naps.append
p = link.NodePacketizer(link.Wire(a))
for _ in range(12):
    p._give_way()
link.gevent.sleep = gevent_sleep
assert naps[:8] == [0.0] * 8 and 0.1 < naps[8] < naps[11] <= 0.5, naps
""",
    "a version line is a line": """
b.sendall(b"SSH-2.0-" + b"x" * 5000 + b"\\n")
w = link.Wire(a)
assert w.recv(7) == b"" and not w.banner and w.strange
""",
    "the banner is found behind other lines": """
b.sendall(b"hello\\r\\nthere\\nSSH-2.0-x y\\r\\nrest")
w = link.Wire(a)
assert w.recv(7) == b"SSH-2.0"
assert w.recv(100) == b"-x y\\r\\nrest"
assert w.prelude == [b"hello", b"there"] and w.banner == b"SSH-2.0-x y"
""",
    "closing wakes the reader": """
import gevent
w = link.Wire(a); w.banner = b"x"
g = gevent.spawn(w.recv, 10); gevent.sleep(0.05); w.close()
assert g.get(timeout=2) == b""
""",
}


PRELUDE = """
from gevent import monkey; monkey.patch_all(ssl=False)
import json, socket, sys, threading, traceback, paramiko
from netdoctor.transport.ssh import link
link.fence_paramiko()
def refused(call, why):
    try:
        call()
    except paramiko.SSHException as e:
        assert why in str(e), e
    else:
        raise AssertionError("not refused: " + why)
failures = {}
for name, script in json.load(sys.stdin).items():
    a, b = socket.socketpair()
    room = {**globals(), "a": a, "b": b, "t": link.NodeTransport(link.Wire(a))}
    try:
        exec(script, room)
    except BaseException:
        failures[name] = traceback.format_exc()
print(json.dumps(failures))
"""


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    """What went wrong in each script; all run in one process of their own, which gevent changes."""
    found: dict[str, str] = run_json([sys.executable, "-c", PRELUDE], SCRIPTS)
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_hooks(failures: dict[str, str], name: str) -> None:
    assert name not in failures, failures[name]


def run_json(argv: list[str], given: object) -> Any:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        argv, input=json.dumps(given), capture_output=True, text=True, env=env, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
