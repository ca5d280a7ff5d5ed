"""SSH servers that misbehave on purpose, on loopback, in threads: before login, after it, and as an agent.

A move is a function of a connection and random numbers. `SERVERS` are moves of a bare socket, `SESSIONS` of a
server that let its client in, `ANSWERS` what an agent of such a server says when it is asked.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import paramiko
from paramiko.common import (
    cMSG_CHANNEL_DATA,
    cMSG_CHANNEL_EXTENDED_DATA,
    cMSG_CHANNEL_WINDOW_ADJUST,
    cMSG_DEBUG,
    cMSG_DISCONNECT,
    cMSG_EXT_INFO,
    cMSG_GLOBAL_REQUEST,
    cMSG_IGNORE,
    cMSG_USERAUTH_BANNER,
)

from netdoctor.transport.frames import FrameReader, ProtocolError

IDENT = b"SSH-2.0-OpenSSH_9.9 hostile\r\n"
KEY = paramiko.ECDSAKey.generate()
LONG_S = 20.0
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
NASTY = (
    "\x1b[2J\x1b]0;owned\x07",
    "::error::x\n##vso[task]",
    "`touch OWNED`$(touch OWNED)",
    "\u202e\u0000",
    "\r\n" * 50,
)

Random = random.Random
Raw = Callable[[socket.socket, Random], None]


def u32(number: int) -> bytes:
    return struct.pack(">I", number & 0xFFFFFFFF)


def string(data: bytes) -> bytes:
    return u32(len(data)) + data


def packet(payload: bytes, length: int | None = None) -> bytes:
    """An unencrypted packet; `length` where it lies about itself."""
    padding = 8 - (len(payload) + 5) % 8 + 4
    size = len(payload) + padding + 1 if length is None else length
    return u32(size) + bytes([padding]) + payload + bytes(padding)


def kexinit(kex: bytes, *, keys: bytes = b"ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-512") -> bytes:
    cipher, mac = b"aes128-gcm@openssh.com,aes128-ctr", b"hmac-sha2-256"
    lists = [kex, keys, cipher, cipher, mac, mac, b"none", b"none", b"", b""]
    return b"\x14" + bytes(16) + b"".join(map(string, lists)) + b"\0" + u32(0)


def hold(sock: socket.socket) -> None:
    """Read and say nothing more."""
    while sock.recv(1 << 16):
        pass


# Bare sockets

CURVE, GEX = b"curve25519-sha256@libssh.org", b"diffie-hellman-group-exchange-sha256"


def silent(sock: socket.socket, rng: Random) -> None:
    hold(sock)


def closes(sock: socket.socket, rng: Random) -> None:
    if rng.random() < 0.5:
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def endless_banner(sock: socket.socket, rng: Random) -> None:
    line = rng.choice((b"x" * 100, b"hello\r\n", b"SSH-" + b"y" * 9000, b"\0\xff", NASTY[0].encode() + b"\n"))
    while True:
        sock.sendall(line * rng.choice((1, 100, 2000)))


def drip(sock: socket.socket, rng: Random) -> None:
    """One byte at a time, of everything a server says first."""
    for byte in IDENT + packet(kexinit(CURVE)):
        sock.sendall(bytes([byte]))
        time.sleep(rng.choice((0.05, 0.2, 1.0)))
    hold(sock)


def huge_length(sock: socket.socket, rng: Random) -> None:
    length = rng.choice((0x7FFFFFF4, 0xFFFFFFFC, 0xFFFFFFF4, (256 << 10) + 12, 0, 1, 4, 12, 0x80000004))
    sock.sendall(IDENT + u32(length))
    for _ in range(rng.choice((0, 120))):
        sock.sendall(bytes(1 << 20))
    hold(sock)


def garbage(sock: socket.socket, rng: Random) -> None:
    sock.sendall(IDENT + rng.randbytes(rng.choice((1, 8, 100, 5000))))
    hold(sock)


def half_a_packet(sock: socket.socket, rng: Random) -> None:
    whole = IDENT + packet(kexinit(CURVE))
    sock.sendall(whole[: rng.randrange(len(whole))])
    hold(sock)


def many_packets(sock: socket.socket, rng: Random) -> None:
    """Small valid ones without end: each is read, and means nothing."""
    text = string(rng.choice(NASTY).encode())
    kinds = (
        b"\x02" + text,
        b"\x04\x01" + text + string(b""),
        b"\x03" + u32(1),
        bytes([rng.randrange(256)]) + text,
    )
    sock.sendall(IDENT + (packet(kexinit(CURVE)) if rng.random() < 0.5 else b""))
    data = packet(rng.choice(kinds)) * 500
    while True:
        sock.sendall(data)


def odd_kexinit(sock: socket.socket, rng: Random) -> None:
    names = rng.choice((b"", b"\xff\xfe", b"a," * 30_000, b"ext-info-s," * 20_000, b"," * 100, CURVE * 100))
    payload = kexinit(names) if rng.random() < 0.7 else kexinit(CURVE, keys=names)
    if rng.random() < 0.3:
        payload = payload[: rng.randrange(17, len(payload))]
    sock.sendall(IDENT + packet(payload) * rng.choice((1, 50)))
    hold(sock)


def odd_numbers(sock: socket.socket, rng: Random) -> None:
    """A group of the server's choice, with numbers that nobody should compute with."""
    mpint = rng.choice(
        (b"\xff" * 128, b"\x7f" + b"\xff" * 127, b"\x7f" * 512, b"\x7f" * 1024, b"\x7f" * 200_000, b"", b"\1")
    )
    sock.sendall(IDENT + packet(kexinit(GEX)))
    sock.sendall(packet(b"\x1f" + string(mpint) + string(rng.choice((b"\2", b"", mpint)))))
    sock.sendall(packet(b"\x21" + string(b"\0" * 40) + string(mpint) + string(b"x")))
    hold(sock)


def odd_key(sock: socket.socket, rng: Random) -> None:
    """A reply of the key exchange whose key, point or signature is none."""
    blob = rng.choice(
        (b"", string(b"ssh-rsa") + string(b"\x7f" * 100_000) * 2, rng.randbytes(100), KEY.asbytes())
    )
    point = rng.choice((bytes(32), rng.randbytes(32), b"", rng.randbytes(5000)))
    sign = string(b"ecdsa-sha2-nistp256") + string(string(b"\x7f" * 60_000) * 2)
    sock.sendall(IDENT + packet(kexinit(CURVE)))
    sock.sendall(
        packet(b"\x1f" + string(blob) + string(point) + string(rng.choice((sign, rng.randbytes(64), b""))))
    )
    hold(sock)


def counts_without_end(sock: socket.socket, rng: Random) -> None:
    sock.sendall(
        IDENT + packet(kexinit(CURVE)) + packet(b"\x07" + u32(0xFFFFFFFF)) + packet(b"\x50" + u32(0x7FFFFFFF))
    )
    hold(sock)


def disconnects(sock: socket.socket, rng: Random) -> None:
    sock.sendall(
        IDENT + packet(b"\x01" + u32(2) + string(rng.choice(NASTY).encode() * rng.choice((1, 3000))))
    )


SERVERS: tuple[Raw, ...] = (
    *(silent, closes, endless_banner, drip, huge_length, garbage, half_a_packet, many_packets, odd_kexinit),
    *(odd_numbers, odd_key, counts_without_end, disconnects),
)


# Servers that let one in


class LetsIn(paramiko.ServerInterface):  # type: ignore[misc]  # paramiko has no types
    """Takes every key; `command` is set once the client has asked for it."""

    def __init__(self) -> None:
        self.command = b""
        self.asked = threading.Event()

    def check_auth_publickey(self, username: str, key: Any) -> int:
        return int(paramiko.AUTH_SUCCESSFUL)

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(paramiko.OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        self.command = command
        self.asked.set()
        return True


class Session:
    """The server's side of one login. marker: what the client wants frames to begin with."""

    def __init__(self, sock: socket.socket, server: LetsIn | None = None, **settings: Any) -> None:
        self.server = server or LetsIn()
        self.transport = paramiko.Transport(sock, **settings)
        self.transport.local_version = IDENT.decode().strip()
        self.transport.add_server_key(KEY)
        self.transport.start_server(server=self.server)
        self.channel: Any = None

    def accept(self) -> bytes:
        """Wait for the command, and return the marker in it."""
        self.channel = self.transport.accept(LONG_S)
        if self.channel is None or not self.server.asked.wait(LONG_S):
            raise OSError("nobody asked for anything")
        return self.server.command.rsplit(None, 1)[-1]

    def send(self, kind: bytes, *parts: bytes) -> None:
        """Send a message as it is, whatever window there may be."""
        message = paramiko.Message()
        message.add_bytes(kind + b"".join(parts))
        self.transport._send_message(message)

    def frame(self, payload: bytes) -> bytes:
        return b"\x1e" + self.server.command.rsplit(None, 1)[-1] + b" %d\n" % len(payload) + payload + b"\n"

    def number(self) -> bytes:
        return u32(self.channel.remote_chanid)

    def wait(self) -> None:
        with contextlib.suppress(Exception):
            while self.transport.is_active() and self.channel.recv(1 << 16):
                pass


Move = Callable[[Session, Random], None]
HELLO = {
    "hello": {
        "python": "3.11.2",
        "executable": "/usr/bin/python3",
        "pid": 7,
        "uid": 0,
        "machine": "x86_64",
        "bits": 64,
    }
}


def encoded(message: object) -> bytes:
    return json.dumps(message).encode()


def never_opens(session: Session, rng: Random) -> None:
    session.server.check_channel_request = lambda kind, chanid: time.sleep(LONG_S) or 1  # type: ignore[method-assign]
    time.sleep(LONG_S)


def refuses(session: Session, rng: Random) -> None:
    if rng.random() < 0.5:
        session.server.check_channel_request = lambda kind, chanid: rng.randint(1, 4)  # type: ignore[method-assign]
    else:
        session.server.check_channel_exec_request = lambda channel, command: False  # type: ignore[method-assign]
    time.sleep(LONG_S)


def refuses_keys(session: Session, rng: Random) -> None:
    code = rng.choice((paramiko.AUTH_FAILED, paramiko.AUTH_PARTIALLY_SUCCESSFUL))
    session.server.check_auth_publickey = lambda username, key: code  # type: ignore[method-assign]
    names = rng.choice(("publickey", "", "password," * 20_000, NASTY[0]))
    session.server.get_allowed_auths = lambda username: names  # type: ignore[method-assign]
    time.sleep(LONG_S)


def banners(session: Session, rng: Random) -> None:
    """Text at login, much of it, and lists without end."""
    session.server.check_auth_publickey = lambda username, key: time.sleep(LONG_S) or 0  # type: ignore[method-assign]
    while True:
        session.send(
            cMSG_USERAUTH_BANNER, string(rng.choice(NASTY).encode() * rng.choice((1, 3000))), string(b"")
        )
        session.send(cMSG_EXT_INFO, u32(rng.choice((0, 5, 0xFFFFFFFF))))


def noise(session: Session, rng: Random) -> None:
    session.accept()
    for _ in range(rng.choice((3, 100_000))):
        session.channel.sendall(rng.choice(NASTY).encode() * rng.choice((1, 500)))
    if rng.random() < 0.5:
        session.channel.send_exit_status(rng.choice((0, 1, 127, 2**31)))
        session.channel.close()
    session.wait()


def no_window(session: Session, rng: Random) -> None:
    session.accept()
    time.sleep(LONG_S)  # nothing is read, so that nothing more may be sent


def beyond_the_window(session: Session, rng: Random) -> None:
    session.accept()
    if rng.random() < 0.5:
        session.channel.sendall(session.frame(encoded(HELLO)))
    number, data = session.number(), string(bytes(30_000))
    for _ in range(5000):  # 150 MB
        if rng.random() < 0.5:
            session.send(cMSG_CHANNEL_DATA, number, data)
        else:
            session.send(cMSG_CHANNEL_EXTENDED_DATA, number, u32(1), data)


def floods(session: Session, rng: Random) -> None:
    """Messages that are answered or ignored, without end."""
    session.accept()
    if rng.random() < 0.5:
        session.channel.sendall(session.frame(encoded(HELLO)))
    text = string(rng.choice(NASTY).encode())
    kind, *parts = rng.choice(
        (
            (cMSG_IGNORE, text), (cMSG_DEBUG, b"\1", text, string(b"")), (cMSG_GLOBAL_REQUEST, text, b"\1"),
            (cMSG_CHANNEL_WINDOW_ADJUST, session.number(), u32(0xFFFFFFFF)), (b"\xc0", text),
            (cMSG_CHANNEL_DATA, u32(99), text), (b"\x5a", string(b"x11"), u32(1), u32(9), u32(9)),
            (b"\x5c", u32(5), u32(1), text, string(b"")),
        )
    )  # fmt: skip
    while True:
        session.send(kind, *parts)


def new_keys(session: Session, rng: Random) -> None:
    session.accept()
    while session.transport.is_active():
        session.transport._send_kex_init()
        time.sleep(0.02)


def words_at_the_end(session: Session, rng: Random) -> None:
    session.accept()
    session.send(
        cMSG_DISCONNECT, u32(rng.choice((2, 11, 999))), string(rng.choice(NASTY).encode()), string(b"")
    )


def odd_frame(session: Session, rng: Random) -> None:
    marker = session.accept()
    head = b"\x1e" + marker + b" "
    session.channel.sendall(
        rng.choice(
            (
                head + b"99999999\n", head + b"-1\n{}", head + b"x" * 50, head + b"8388608\n" + bytes(1000),
                head + b"2\n[]\n", session.frame(b'{"hello": {"python": 3}}'), session.frame(b"\xff\xfe"),
                session.frame(encoded({"hello": {"old_python": NASTY[0] * 1000}})), head * 100_000,
                session.frame(b'{"hello": ' + b"[" * 99_999), session.frame(encoded({"need": "psutil"})) * 99,
                session.frame(b'{"hello": {"python": "\\ud800"}}'), session.frame(b"{}") * 10_000,
                session.frame(encoded({"id": None, "ok": False, "detail": NASTY[1] * 100})),
            )
        )
    )  # fmt: skip
    session.wait()


def half_a_frame(session: Session, rng: Random) -> None:
    session.accept()
    answer = {"id": 1, "ok": True, "result": {"facts": {}, "x": "y" * 500}}
    whole = session.frame(encoded(HELLO)) + session.frame(encoded(answer))
    session.channel.sendall(whole[: rng.randrange(len(whole))])
    session.wait()


def answers(session: Session, rng: Random) -> None:
    """An agent that says one of ANSWERS to its first request, and to every later one."""
    session.accept()
    hello: dict[str, Any] = json.loads(json.dumps(HELLO))
    if rng.random() < 0.2:
        hello["hello"].update(
            rng.choice(({"python": NASTY[0] * 99}, {"machine": "m" * 10**6}, {"bits": -1, "pid": 2**62}))
        )
    session.channel.sendall(session.frame(encoded(hello)))
    number = 1
    wrong = rng.choice(ANSWERS)
    with contextlib.suppress(ProtocolError):
        while session.transport.is_active() and number < 200:
            said = wrong(number, rng)
            session.channel.sendall(b"".join(map(session.frame, said)))
            number += 1
            time.sleep(0.05)
    session.wait()


def result(number: object, value: bytes, **more: object) -> bytes:
    rest = "".join(f', "{key}": {json.dumps(word)}' for key, word in more.items())
    return f'{{"id": {json.dumps(number)}, "ok": true{rest}, "result": '.encode() + value + b"}"


Answer = Callable[[int, Random], list[bytes]]


def deep(number: int, rng: Random) -> list[bytes]:
    depth = rng.choice((65, 500, 970, 978, 982, 985, 5000, 200_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return [result(number, opening * depth + b"1" + closing * depth)]


def many_rows(number: int, rng: Random) -> list[bytes]:
    count = rng.choice((100_000, 1_000_000))
    row = rng.choice((b"[]", b"{}", b"1", b'{"name":"a","speed":1}', b'"x"'))
    row = row[: (7 << 20) // count] if len(row) * count > 7 << 20 else row
    group = rng.choice(("links", "addresses", "hosts"))
    rows = b"[" + b",".join([b"[]" if len(row) < 2 and row != b"1" else row] * count) + b"]"
    return [result(number, b'{"net": {"value": {"%s": ' % group.encode() + rows + b"}}}")]


def not_a_number(number: int, rng: Random) -> list[bytes]:
    word = rng.choice(
        (
            b"NaN",
            b"Infinity",
            b"1e999",
            b"9" * 400,
            b"-0",
            b"1e308",
            b"18446744073709551616",
            b'"\\ud800"',
            b'"\xff"',
        )
    )
    return [
        result(
            number,
            rng.choice(
                (b"%s", b'{"host": {"value": {"cpu_count": %s}}}', b'{"recv_s": %s, "send_s": %s}')
            ).replace(b"%s", word),
        )
    ]


def wrong_ids(number: int, rng: Random) -> list[bytes]:
    other = rng.choice((number - 1, number + 1, -number, "1", None, 2**63, 1.5, 0))
    return [result(other, b"{}")] * rng.choice((1, 3)) + [result(number, b"{}")] * rng.choice((0, 1))


def twice(number: int, rng: Random) -> list[bytes]:
    return [result(number, b"{}"), result(number, b"[1]"), result(number + 1, b"[2]")]


def nothing(number: int, rng: Random) -> list[bytes]:
    return []


def asks(number: int, rng: Random) -> list[bytes]:
    name = rng.choice(("psutil", "os", "../../etc/passwd", "n" * 3_500_000, NASTY[0]))
    return [encoded({"id": number, "need": name})] * rng.choice((1, 9))


def refuses_to(number: int, rng: Random) -> list[bytes]:
    why = rng.choice(("failed", "no_permission", "", "nonsense", NASTY[0]))
    detail = rng.choice((*NASTY, "d" * 7_000_000))
    return [encoded({"id": number, "ok": False, "why": why, "detail": detail})]


def odd_shape(number: int, rng: Random) -> list[bytes]:
    groups = ("host", "limits", "net", "software", "gpu", "rdma", "clock", "nccl", "storage", "resolve")
    values = (
        None,
        [],
        {},
        3,
        "x",
        {"value": None},
        {"value": []},
        {"missing": {"why": 1}},
        {"missing": {"why": "failed", "detail": NASTY[0]}},
    )
    return [result(number, encoded({group: rng.choice(values) for group in groups}))]


ANSWERS: tuple[Answer, ...] = (
    deep,
    many_rows,
    not_a_number,
    wrong_ids,
    twice,
    nothing,
    asks,
    refuses_to,
    odd_shape,
)


# A real agent whose words change on the way

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1e308, -1e308, 1e-320, "", "x", [], {}, [[]], [None]),
    *(
        *NASTY,
        "a" * 5000,
        "fe80::1%lo",
        "0.0.0.0",
        "255.255.255.255",
        "::",
        "127.0.0.1",
        "-oProxyCommand=touch OWNED",
    ),
)


def changed(value: Any, rng: Random, rate: float) -> Any:
    """A copy in which some values are others: replaced, doubled, left out, renamed."""
    if rng.random() < rate:
        return rng.choice(ODD_VALUES)
    if isinstance(value, dict):
        return {
            (rng.choice(("x", key + "x", NASTY[0])) if rng.random() < rate / 3 else key): changed(
                inner, rng, rate
            )
            for key, inner in value.items()
            if rng.random() >= rate / 3
        }
    if isinstance(value, list):
        items = [changed(inner, rng, rate) for inner in value]
        return items * rng.choice((2, 50, 3000)) if items and rng.random() < rate / 3 else items
    return value


def lies(session: Session, rng: Random) -> None:
    """Run the agent that was sent, and change what it says; sometimes end in the middle of it."""
    session.accept()
    process = subprocess.Popen(
        ["/bin/sh", "-c", session.server.command.decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    given = process.stdin

    def up() -> None:
        with contextlib.suppress(Exception):
            while data := session.channel.recv(1 << 16):
                given.write(data)
        given.close()

    threading.Thread(target=up, daemon=True).start()
    rate = rng.choice((0.0, 0.002, 0.01, 0.05))
    cut = rng.choice((None, None, rng.randrange(200_000)))
    reader = FrameReader(session.server.command.rsplit(None, 1)[-1].decode())
    sent = 0
    try:
        while data := process.stdout.read(1 << 16):
            for payload in reader.feed(data):
                message = json.loads(payload)
                if "result" in message:
                    message["result"] = changed(message["result"], rng, rate)
                whole = session.frame(encoded(message))
                if cut is not None and sent + len(whole) > cut:
                    session.channel.sendall(whole[: cut - sent])
                    if rng.random() < 0.5:
                        session.wait()
                    return
                session.channel.sendall(whole)
                sent += len(whole)
    finally:
        process.kill()
        process.wait()


SESSIONS: tuple[Move, ...] = (
    *(never_opens, refuses, refuses_keys, banners, noise, no_window, beyond_the_window, floods, new_keys),
    *(words_at_the_end, odd_frame, half_a_frame, answers, answers, answers, lies, lies, lies),
)
MOVES: tuple[Raw | Move, ...] = (*SERVERS, *SESSIONS)


def behave(sock: socket.socket, move: Raw | Move, rng: Random) -> None:
    """Do one move on one connection, until either side has had enough."""
    sock.settimeout(LONG_S)
    session: Session | None = None
    try:
        if move in SERVERS:
            move(sock, rng)  # type: ignore[arg-type]
            return
        window = (
            rng.choice((paramiko.common.DEFAULT_WINDOW_SIZE, 0, 1, 2**31)) if rng.random() < 0.2 else None
        )
        session = Session(sock, **({"default_window_size": window} if window is not None else {}))
        move(session, rng)  # type: ignore[arg-type]
    except Exception:  # the client went away, which ends the move
        pass
    finally:
        with contextlib.suppress(Exception):
            if session is not None:
                session.transport.close()
        sock.close()


@contextlib.contextmanager
def serving(move: Raw | Move, seed: str) -> Iterator[int]:
    """Make one move at every connection; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def accept() -> None:
        for number in range(1000):
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            rng = random.Random(f"{seed}:{number}")
            threading.Thread(target=behave, args=(sock, move, rng), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
