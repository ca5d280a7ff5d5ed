"""What netdoctor holds paramiko by. A failure here after an upgrade says which hook has moved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Each runs in a process of its own, because the module belongs into a process that gevent has changed.
SCRIPTS = {
    "disconnect text reaches last_words": """
m = paramiko.Message(); m.add_int(2); m.add_string("Too many authentication failures"); m.add_string("")
m.rewind()
t._parse_disconnect(m)
assert t.last_words == "Too many authentication failures", t.last_words
""",
    "refusals are kept by channel": """
m = paramiko.Message(); m.add_int(7); m.add_int(2); m.add_string("Connection refused"); m.add_string("")
m.rewind()
t._parse_channel_open_failure(m)
assert t.refusals[7].startswith("Connection refused"), t.refusals
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
link.wait_without_polling()
u = link.NodeTransport(link.Wire(a))
assert isinstance(u.clear_to_send, link.Signal)
c = paramiko.Channel(1)
assert isinstance(c.event, link.Signal)
import pathlib, re
text = pathlib.Path(paramiko.transport.__file__).read_text()
assert set(re.findall(r"\\.wait\\(([0-9.]+)\\)", text)) == {"0.1"}
""",
    "a channel takes other buffers": """
c = paramiko.Channel(1)
link.Inbox.fit(c)
c._feed(b"out"); c.in_stderr_buffer.feed(b"err")
assert c.recv_ready() and c.recv_stderr_ready()
c.transport = t
assert c.in_buffer.read(2) == b"ou" and c.in_buffer.read(9) == b"t"
try:
    c.recv(5)
except TimeoutError:
    pass
else:
    raise AssertionError("stderr does not wake a reader of stdout")
c._handle_eof(None)
assert c.in_buffer.read(5) == b""
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


@pytest.mark.parametrize("name", SCRIPTS)
def test_hooks(name: str) -> None:
    script = (
        "from gevent import monkey; monkey.patch_all(ssl=False)\n"
        "import socket, threading, paramiko\n"
        "from netdoctor.transport import link\n"
        "a, b = socket.socketpair()\n"
        "t = link.NodeTransport(link.Wire(a))\n" + SCRIPTS[name]
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert result.returncode == 0, result.stderr
