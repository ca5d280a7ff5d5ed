"""Temporary listeners: only on addresses asked for, only for who knows the token, only for a while."""

import errno
import hashlib
import hmac
import os
import selectors
import socket
import threading
import time

from .. import runtime
from ..facts import port_holder as facts_port_holder
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional  # noqa: F401 - used in a type comment

MAX_LISTENERS = 256
MAX_WAITING = 512
MAX_COUNTED = 4096
HANDSHAKE_S = 1.0
MAX_TTL_S = 600.0
TOKEN_CAP = 256
ACK_BYTES = 64
BACKLOG = 1024
# Another scan's listeners are there for a second or two.
OTHER_SCAN_S = 4.0
# A counting datagram is answered within this, with those that came meanwhile.
COUNT_EVERY_S = 0.01


def check_token(args: "dict[str, Any]") -> bytes:
    """Return the token of a request. Raises ValueError."""
    token = args.get("token")
    if not isinstance(token, str) or not 8 <= len(token) <= TOKEN_CAP - 1:
        raise ValueError("a token has 8 to %d characters" % (TOKEN_CAP - 1))
    raw = token.encode("ascii")
    if b"\n" in raw:
        raise ValueError("a token is one line")
    return raw


def tag_of(token: bytes) -> bytes:
    """Return what stands for the token in datagrams: 32 hex digits."""
    return hashlib.sha256(b"netdoctor udp " + token).hexdigest()[:32].encode("ascii")


def resolve(address: "Any", port: "Any", kind: int) -> "tuple[int, Any]":
    """Return (family, sockaddr) of a literal address, never the wildcard. Raises OSError, ValueError."""
    number = int(port)
    if not 0 <= number < 65536:
        raise ValueError("no such port: %d" % number)
    row = socket.getaddrinfo(str(address), number, type=kind, flags=socket.AI_NUMERICHOST)[0]
    if row[4][0] in ("0.0.0.0", "::"):
        raise ValueError("not on the wildcard address")
    return row[0], row[4]


def bind_to(s: socket.socket, source: str, port: int, names: "dict[str, str]") -> None:
    """Send from an address and over its interface, as RDMA would, whatever the routing table prefers.

    names: interfaces by address. Raises OSError, ValueError.
    """
    keep_to(s, names.get(source))
    s.bind(resolve(source, port, socket.SOCK_STREAM)[1])


def keep_to(s: socket.socket, name: "Optional[str]") -> None:
    """Send, and answer, over this interface alone."""
    try:
        if name:
            s.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_BINDTODEVICE", 25), name.encode())
    except OSError:
        pass  # kernels before 5.7 let root alone do it; the address chooses as far as routes go by it


def interfaces(rows: "Any", key: str) -> "dict[str, str]":
    """Return interfaces by address, where a row asks for one by this key."""
    from ..facts import net as facts_net

    if not any(isinstance(row, dict) and row.get(key) for row in rows):
        return {}
    return {row.address: row.name for row in facts_net.getifaddrs() if row.address}


class Client(object):
    """A connection that has not shown the token yet."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.received = b""


class Server(object):
    """Listeners and datagram echoes of one request, served by one thread."""

    def __init__(self, token: bytes, ttl_s: float) -> None:
        self.token = token
        self.tag = tag_of(token)
        self.expires = time.monotonic() + ttl_s
        self._closed = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._listeners = []  # type: list[socket.socket]
        self._echoes = []  # type: list[socket.socket]
        self._clients = {}  # type: dict[socket.socket, Client]
        self._counts = {}  # type: dict[Any, int]
        self._unhurried = False
        self._wake_r, self._wake_w = os.pipe()
        self._lock = threading.Lock()
        os.set_blocking(self._wake_r, False)
        self._selector.register(self._wake_r, selectors.EVENT_READ)

    def listen(self, address: "Any", port: "Any", name: "Optional[str]" = None) -> int:
        """Open a listener, return its port. name: of the interface to keep to. Raises OSError, ValueError."""
        return self._open(address, port, name, socket.SOCK_STREAM, self._listeners)

    def echo(self, address: "Any", port: "Any" = 0, name: "Optional[str]" = None) -> int:
        """Open a datagram echo, return its port. name: as of listen. Raises OSError, ValueError."""
        return self._open(address, port, name, socket.SOCK_DGRAM, self._echoes)

    def _open(
        self, address: "Any", port: "Any", name: "Optional[str]", kind: int, opened: "list[socket.socket]"
    ) -> int:
        family, where = resolve(address, port, kind)
        s = socket.socket(family, kind)
        try:
            if kind == socket.SOCK_DGRAM:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            else:
                if family == socket.AF_INET6:
                    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # As torch's store does: an old connection in TIME_WAIT does not count, a listener does.
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keep_to(s, name)
            s.bind(where)
            if kind == socket.SOCK_STREAM:
                s.listen(BACKLOG)
            s.setblocking(False)
        except BaseException:
            s.close()
            raise
        opened.append(s)
        self._selector.register(s, selectors.EVENT_READ)
        return int(s.getsockname()[1])

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def start(self) -> None:
        runtime.thread(self._serve)

    def close(self) -> None:
        """Close everything, from any thread, at once."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            for s in self._listeners + self._echoes + list(self._clients):
                try:
                    s.close()
                except OSError:
                    pass
            try:
                os.write(self._wake_w, b"x")
            except OSError:
                pass

    # The serving thread. Closing a socket under it is met as OSError or ValueError.

    def _serve(self) -> None:
        try:
            while not self._closed.is_set():
                now = time.monotonic()
                if now >= self.expires:
                    break
                ends = [self.expires] + [client.deadline for client in self._clients.values()]
                for key, _ in self._selector.select(max(0.0, min(ends) - now)):
                    with self._lock:
                        if self._closed.is_set():
                            return
                        self._handle(key.fileobj)
                if self._unhurried:
                    # Nobody waits for a count; to wake for each datagram costs more than to answer them.
                    self._unhurried = False
                    time.sleep(COUNT_EVERY_S)
                now = time.monotonic()
                for s in [s for s, client in self._clients.items() if client.deadline <= now]:
                    with self._lock:
                        self._dismiss(s)
        except (OSError, ValueError, KeyError):
            pass
        finally:
            self.close()
            self._selector.close()
            os.close(self._wake_r)
            os.close(self._wake_w)

    def _handle(self, what: "Any") -> None:
        if what in self._clients:
            self._hear(what)
        elif what in self._listeners:
            self._accept(what)
        elif what in self._echoes:
            self._answer(what)

    def _accept(self, listener: socket.socket) -> None:
        try:
            s, _ = listener.accept()
        except OSError:
            return
        if len(self._clients) >= MAX_WAITING:
            # Who has said nothing for longest goes: a peer shows its token at once, a stranger holds a place.
            self._dismiss(next(iter(self._clients)))
        s.setblocking(False)
        self._clients[s] = Client(time.monotonic() + HANDSHAKE_S)
        self._selector.register(s, selectors.EVENT_READ)

    def _hear(self, s: socket.socket) -> None:
        client = self._clients[s]
        try:
            part = s.recv(TOKEN_CAP + 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            part = b""
        client.received += part
        line, newline, _ = client.received.partition(b"\n")
        if newline and hmac.compare_digest(line, self.token):
            try:
                s.send(b"ok " + self.token + b"\n")
            except OSError:
                pass
            self._dismiss(s)
        elif newline or not part or len(client.received) > TOKEN_CAP:
            self._dismiss(s)

    def _dismiss(self, s: socket.socket) -> None:
        self._clients.pop(s, None)
        try:
            self._selector.unregister(s)
        except (KeyError, ValueError, OSError):
            pass
        s.close()

    def _count(self, sender: "Any") -> int:
        """How many datagrams of this sender have arrived, this one included."""
        if sender not in self._counts and len(self._counts) >= MAX_COUNTED:
            return 0
        self._counts[sender] = self._counts.get(sender, 0) + 1
        return self._counts[sender]

    def _answer(self, s: socket.socket) -> None:
        counted = False
        for _ in range(64):
            try:
                data, sender = s.recvfrom(65536)
            except (BlockingIOError, InterruptedError):
                self._unhurried = counted
                return
            except OSError:  # an ICMP error about an earlier answer
                continue
            # An answer is never larger than the question: nothing to gain for a forger of source addresses.
            if len(data) < ACK_BYTES or not hmac.compare_digest(data[:32], self.tag):
                continue
            answer = self.tag + b" " + data[33:41] + b" %d" % len(data)
            if data[41:42] == b"c":
                answer += b" %d" % self._count(sender)
                counted = True
            try:
                s.sendto(answer.ljust(ACK_BYTES), sender)
            except OSError:
                continue


_servers = []  # type: list[Any]
_servers_lock = threading.Lock()


def adopt(server: "Any") -> None:
    """Have `unlisten` and the agent's end close another kind of server: it has token, closed and close()."""
    with _servers_lock:
        _servers.append(server)


def _close_all() -> None:
    for server in list(_servers):
        server.close()


runtime.at_exit(_close_all)


def _new_server(args: "dict[str, Any]") -> Server:
    ttl_s = min(max(float(args.get("ttl_s") or 60.0), 0.1), MAX_TTL_S)
    server = Server(check_token(args), ttl_s)
    with _servers_lock:
        _servers[:] = [s for s in _servers if not s.closed]
        _servers.append(server)
    return server


def _listen_when_free(server: Server, address: "Any", port: int, name: "Optional[str]") -> int:
    """Open a listener, after another scan's on that port if need be. Raises OSError, ValueError."""
    end = time.monotonic() + OTHER_SCAN_S
    while True:
        try:
            return server.listen(address, port, name)
        except OSError as e:
            is_retried = e.errno == errno.EADDRINUSE and time.monotonic() < end
            if not is_retried or not facts_port_holder.is_free_soon(port):
                raise
        time.sleep(0.1)


def listen(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Open listeners. args: {"listeners": [{"address", "port", "purpose", "rail": true where they answer
    over the interface of the address alone}], "token", "ttl_s"}.

    Return [{"address", "port", "purpose", "error"}]; port 0 becomes a free one of the ephemeral range;
    error is None or an errno name such as EADDRINUSE.
    """
    server = _new_server(args)
    rows = []
    requests = list(args.get("listeners") or [])[:MAX_LISTENERS]
    names = interfaces(requests, "rail")
    for request in requests:
        name = names.get(str(request.get("address"))) if request.get("rail") else None
        port = request.get("port") or 0
        error = None  # type: Optional[str]
        try:
            port = _listen_when_free(server, request.get("address"), port, name)
        except (OSError, ValueError) as e:
            error = files.errno_name(e)
        rows.append(
            {
                "address": str(request.get("address")),
                "port": port,
                "purpose": str(request.get("purpose", "")),
                "error": error,
            }
        )
    server.start()
    return rows


def udp_echo(args: "dict[str, Any]") -> "dict[str, Any]":
    """Open a datagram echo. args: {"address", "token", "ttl_s", "port": 0, "rail": as of listen}.

    Return {"address", "port", "error"}. Each datagram that begins with the token's tag is answered with 64
    bytes that tell the size received.
    """
    server = _new_server(args)
    port = args.get("port") or 0
    error = None  # type: Optional[str]
    try:
        name = interfaces([args], "rail").get(str(args.get("address")))
        port = server.echo(args.get("address"), port, name)
    except (OSError, ValueError) as e:
        error = files.errno_name(e)
    server.start()
    return {"address": str(args.get("address")), "port": port, "error": error}


def unlisten(args: "dict[str, Any]") -> "dict[str, Any]":
    """Close listeners and echoes: those of args["token"], or all. Return {"closed": servers}."""
    token = args.get("token")
    closed = 0
    for server in list(_servers):
        selected = not isinstance(token, str) or server.token == token.encode("utf-8", "replace")
        if selected and not server.closed:
            server.close()
            closed += 1
    return {"closed": closed}
