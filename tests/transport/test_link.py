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
assert not client.get_host_keys() and not client._system_host_keys
asked = []
client.set_missing_host_key_policy(link.Verify(lambda kind, blob: asked.append(kind)))
client._policy.missing_host_key(client, "n", paramiko.ECDSAKey.generate())
assert asked == ["ecdsa-sha2-nistp256"]
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
    "keys are made again, and nothing waits for a thread": """
server = link.NodeTransport(link.Wire(b))
server.add_server_key(paramiko.ECDSAKey.generate())
server.start_server(server=paramiko.ServerInterface(), event=threading.Event())
t.start_client()
for _ in range(2):
    first = t.H
    t.renegotiate_keys()
    assert t.H != first
assert threading.current_thread() is not t and t.daemon and not t.is_alive()
t.close(); server.close()
""",
    "a key that is not signed is followed by others, and a command goes ahead of its answer": """
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
known = paramiko.ECDSAKey.generate()
held.set()
def refuses(data, algorithm=None):
    raise link.NotSigned("locked")
locked, other = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
locked.sign_ssh_data = refuses
unsigned, refused_key = link.NotSigned, paramiko.AuthenticationException
for key, error in ((locked, unsigned), (other, refused_key), (paramiko.RSAKey.generate(2048), refused_key)):
    try:
        t.auth_publickey("who", key)
    except error:
        assert t.is_active()
    else:
        raise AssertionError("let in")
assert t.auth_publickey("who", known) == []
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
