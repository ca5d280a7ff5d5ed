"""Agents that call: listeners on this machine, who may come in, and what they send.

For ways to the nodes that start a task there and carry no conversation. One thread, one selector. A task has
shown that it knows the secret of this run before anything else of it is read; see agent/dial_back.py.
"""

import contextlib
import errno
import fcntl
import hmac
import math
import os
import random
import re
import resource
import secrets
import selectors
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdoctor.agent.dial_back import LET_IN, NO_RECORD, Altered, Signer, proof
from netdoctor.text import clean

# Connections that have not said who they are: so many, for so long, with so few bytes. Beside so many the
# kernel keeps whoever calls: where a thousand tasks call at once, none is sent away for others.
STRANGERS_MAX = 256
STRANGER_S = 10.0
CROWDED_S = 2.0
PAUSE_S = 0.1
HELLO_BYTES = 400
BACKLOG = 1024
READ_BYTES = 1 << 18
FDS_RESERVED = 64
OTHERS_MAX = 64
WHY_MAX = 200
ALTERED = "what came over its connection is not what the other end has sent: something on the way changes it"
_HELLO = re.compile(rb"netdoctor-task ([A-Za-z0-9_.:%/+-]{1,300}) ([0-9a-f]{32})")


@dataclass(eq=False, slots=True)
class Caller:
    """A connection."""

    socket: socket.socket
    address: str
    since: float
    node: str = ""  # until it has shown the secret
    claimed: tuple[str, str, str] = ("", "", "")  # how it calls itself, its nonce, ours
    expected: str = ""
    incoming: Signer = field(init=False)
    outgoing: Signer = field(init=False)
    received: bytearray = field(default_factory=bytearray)
    out: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class Joined:
    """A node's agent has called, from this address."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class Received:
    """A node's agent sent something."""

    node: str
    data: bytes
    at: float  # monotonic


@dataclass(frozen=True, slots=True)
class Left:
    """A node's agent is not to be had any more. altered: something between us and it is not to be trusted."""

    node: str
    altered: bool = False


class Listener:
    """Listening sockets, and the agents that came in by them."""

    def __init__(
        self,
        nodes: Iterable[str] | int,
        addresses: Sequence[str],
        ports: range | None,
        secret: str | None = None,
        admit: Callable[[str, str], str] | None = None,
    ) -> None:
        """Listen on these addresses of this machine. Raises OSError.

        nodes: who may come in, or how many, whatever they call themselves. ports: to take one of, None for
        any. secret: in hex digits, None for one of this run. admit: of what calls itself so, from this
        address, and has shown the secret: why it may not come in, for it to read; '' where it may.
        """
        self.secret = secret or secrets.token_hex(32)
        self.notes: dict[str, None] = {}
        self.selector = selectors.DefaultSelector()
        self._nodes = None if isinstance(nodes, int) else frozenset(nodes)
        self._max_callers = nodes if isinstance(nodes, int) else len(self._nodes or ())
        self._admit = admit or self._expected
        # Whoever began to speak as a task does and has another secret, by address.
        self.others: dict[str, None] = {}
        self._sockets: list[socket.socket] = []
        self._strangers: dict[Caller, None] = {}  # the oldest first
        self._callers: dict[str, Caller] = {}
        try:
            for address in addresses:
                self._sockets.append(_listening_socket(address, ports))
        except BaseException:
            self.close()
            raise
        self._room = math.inf
        self._hearing = False
        self._deaf_until = 0.0

    @property
    def endpoints(self) -> list[list[Any]]:
        """[[address, port], …] for those who are to call."""
        return [list(one.getsockname()[:2]) for one in self._sockets]

    def room(self) -> None:
        """Raise the soft limit of descriptors to what all nodes need at once, and leave this process some."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        need = self._max_callers + STRANGERS_MAX + FDS_RESERVED
        if soft != resource.RLIM_INFINITY and soft < need:
            limit = need if hard == resource.RLIM_INFINITY else min(need, hard)
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = math.inf if soft == resource.RLIM_INFINITY else max(1, soft - FDS_RESERVED)

    def send(self, node: str, data: bytes) -> None:
        """Send as soon as the node reads; nothing is waited for here."""
        caller = self._callers.get(node)
        if caller is not None:
            caller.out += caller.outgoing.records(data)
            self._write(caller)

    def drop(self, node: str) -> None:
        """End a node's session; its agent leaves when it sees the end."""
        caller = self._callers.pop(node, None)
        if caller is not None:
            self._end(caller)

    def close(self) -> None:
        """End all sessions and listeners."""
        for one in self._sockets:
            one.close()
        self._sockets.clear()
        for caller in self._callers.values():
            _give_up_unsent(caller.socket)
        for caller in (*self._strangers, *self._callers.values()):
            self._end(caller)
        self._strangers.clear()
        self._callers.clear()
        self.selector.close()

    def events(self, wait_s: float) -> Iterator[Joined | Received | Left | Any]:
        """What happened within so long; whatever else is registered at `selector` is given as its data."""
        self._late()
        self._hear(not self._is_crowded() and time.monotonic() >= self._deaf_until)
        for key, mask in self.selector.select(max(0.0, wait_s if self._hearing else min(wait_s, PAUSE_S))):
            if isinstance(key.data, Caller):
                if mask & selectors.EVENT_WRITE:
                    self._write(key.data)
                if mask & selectors.EVENT_READ:
                    yield from self._read(key.data)
            elif key.data is None:
                self._accept(key.fileobj)
            else:
                yield key.data

    def _is_crowded(self) -> bool:
        if len(self._callers) + len(self._strangers) >= self._room:
            self.notes[f"no more than {self._room} calls were taken at once: ulimit -Hn is too low"] = None
            return True
        return len(self._strangers) >= STRANGERS_MAX

    def _hear(self, hearing: bool) -> None:
        """Take calls, or leave them to the kernel for now."""
        if hearing == self._hearing:
            return
        self._hearing = hearing
        for one in self._sockets:
            if hearing:
                self.selector.register(one, selectors.EVENT_READ, None)
            else:
                self.selector.unregister(one)

    def _accept(self, listener: Any) -> None:
        try:
            connection, peer = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # it waits, and is taken when another leaves
                self._deaf_until = time.monotonic() + PAUSE_S
                self.notes[f"not all calls were taken at once: {os.strerror(error.errno)} (ulimit -n)"] = None
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        caller = Caller(connection, str(peer[0]), time.monotonic())
        self._strangers[caller] = None
        self.selector.register(connection, selectors.EVENT_READ, caller)

    def _late(self) -> None:
        """Send strangers away who do not say who they are."""
        late = time.monotonic() - (CROWDED_S if self._is_crowded() else STRANGER_S)
        while self._strangers and (oldest := next(iter(self._strangers))).since < late:
            del self._strangers[oldest]
            self._end(oldest)

    def _end(self, caller: Caller) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(caller.socket)
        caller.socket.close()

    def _write(self, caller: Caller) -> None:
        try:
            while caller.out:
                del caller.out[: caller.socket.send(memoryview(caller.out)[:READ_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            caller.out.clear()  # what it said before it ended is still there to be read
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.out else 0)
        with contextlib.suppress(KeyError, ValueError):
            self.selector.modify(caller.socket, events, caller)

    def _read(self, caller: Caller) -> Iterator[Joined | Received | Left]:
        try:
            data = caller.socket.recv(READ_BYTES if caller.node else HELLO_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not caller.node:
            yield from self._identify(caller, data)
            return
        at, content, is_altered = time.monotonic(), b"", False
        try:
            content = caller.incoming.feed(data)
        except Altered:
            is_altered = True
            self.notes[f"{clean(caller.node.rpartition('/')[2], 60)}: {ALTERED}"] = None
            caller.out[:] = NO_RECORD
            self._write(caller)
        if content:
            yield Received(caller.node, content, at)
        elif is_altered or not data:
            self._end(caller)
            self._callers.pop(caller.node, None)
            yield Left(caller.node, is_altered)

    def _identify(self, caller: Caller, data: bytes) -> Iterator[Joined | Received | Left]:
        """Hear who it is; anybody who is not one of ours is not answered twice."""
        caller.received += data
        line, newline, rest = caller.received.partition(b"\n")
        if not newline and data and len(caller.received) < HELLO_BYTES:
            return
        if newline and not caller.expected and not rest and (hello := _HELLO.fullmatch(line)):
            words = (hello[1].decode("ascii"), hello[2].decode("ascii"), secrets.token_hex(16))
            caller.claimed, caller.expected = words, proof(self.secret, "task", *words)
            caller.received.clear()
            caller.out += f"{words[2]} {proof(self.secret, 'control', *words)}\n".encode("ascii")
            self._write(caller)
            return
        self._strangers.pop(caller, None)
        is_proven = newline and not rest and hmac.compare_digest(bytes(line), caller.expected.encode("ascii"))
        if not (is_proven and caller.expected):
            if newline and caller.expected and len(self.others) < OTHERS_MAX:
                self.others[caller.address] = None
            self._end(caller)
            return
        words = caller.claimed
        why = self._admit(words[0], caller.address)
        if not why:
            caller.node = words[0]
            caller.incoming, caller.outgoing = (Signer(s, self.secret, *words) for s in ("task", "control"))
            self._callers[caller.node] = caller
        answer = clean(why, WHY_MAX) or LET_IN
        caller.out += f"{answer} {proof(self.secret, 'answer', *words, answer)}\n".encode()
        self._write(caller)
        if why:
            self._end(caller)
        else:
            yield Joined(caller.node, caller.address)

    def _expected(self, node: str, _: str) -> str:
        """Why one may not come in where it is known who is to come."""
        if self._nodes is not None and node not in self._nodes:
            why = "though nobody asked it to"
        elif node in self._callers:
            why = "twice"
        else:
            return ""
        self.notes[f"a task called as {clean(node, 60)} {why}; it was not let in"] = None
        return f"it called {why}"


def _give_up_unsent(one: socket.socket) -> None:
    """Let closing end a connection whose bytes do not arrive: the other end would wait for them, and its end
    comes after them. What a path with too small an MTU drops is repeated for minutes."""
    with contextlib.suppress(OSError):
        if int.from_bytes(fcntl.ioctl(one, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _listening_socket(address: str, ports: range | None) -> socket.socket:
    """A listening socket. Raises OSError where the address is not ours, or no port is free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Tasks of several scans want ports of the same few: not all begin with the first.
    tries = random.sample(ports, min(len(ports), 200)) if ports else [0]
    failure: OSError = OSError(f"no port of {ports} is free")
    for port in tries:
        one = socket.socket(family, socket.SOCK_STREAM)
        try:
            if ports:  # connections of the run before do not keep a port
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address, port))
            one.listen(BACKLOG)
            one.setblocking(False)
        except OSError as error:
            one.close()
            failure = error
            continue
        return one
    raise failure


def own_addresses(hosts: Iterable[str]) -> list[str]:
    """The addresses of this machine from which these are reached, each once. Sends nothing.

    hosts: names or addresses; those that have no way are passed over.
    """
    found: dict[str, None] = {}
    for host in hosts:
        try:
            known = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError):
            continue
        for family, kind, number, _, address in known[:1]:
            with contextlib.suppress(OSError), socket.socket(family, kind, number) as probe:
                probe.connect(address)
                found.setdefault(str(probe.getsockname()[0]))
    return list(found)
