"""Where the bytes of a server come in: a socket and a transport with limits and without polls.

What a server may send is limited here, before and after login: the size of a packet (`PACKET_BYTES_MAX`), the
bytes in all (`Wire.allow`), packets a second (`NodePacketizer`), what waits to be read (the channel's window,
`Inbox`), numbers and lists in a message (`PeerMessage`), key exchanges (`KEX_MAX`). How long all of it may
take is the node's budget. What an agent says in those bytes has limits of its own, in `frames`.

Some of what is replaced are no public hooks of paramiko: tests fail when it changes them, and its next major
release is shut out until somebody has looked. Runs inside a worker process only, where gevent has replaced
sockets and threads.
"""

import inspect
import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import gevent
import paramiko
from gevent.event import Event
from gevent.lock import BoundedSemaphore
from paramiko.buffered_pipe import PipeTimeout
from paramiko.common import DEFAULT_WINDOW_SIZE, MSG_CHANNEL_FAILURE, cMSG_CHANNEL_REQUEST
from paramiko.packet import Packetizer

from netdoctor.transport.ssh.keys import NotSigned

PACKET_BYTES_MAX = 256 << 10  # OpenSSH's PACKET_MAX_SIZE
INTEGER_BYTES_MAX = 2 << 10 | 1  # a modulus of 16,384 bits, OpenSSL's limit for RSA, and its sign
READS_PAST_END_MAX = 16
RECEIVE_BYTES = 1 << 18
PRELUDE_LINES_MAX = 32
PRELUDE_BYTES_MAX = 16 << 10
LINE_BYTES_MAX = 4 << 10
MODULUS_BITS_MAX = 4096  # of a group that the server chooses; 8192 bits hold up a whole worker for 3 s
KEX_MAX = 16  # in one connection: OpenSSH's servers ask again after a GiB or an hour
PACKETS_A_TURN = 64
# A login takes some 20 packets, the largest answer 256. A flood of small ones is read no faster: with
# an equal share of the worker it made every other login late.
PACKETS_AT_ONCE = 512
PACKETS_PER_S = 512.0
LOGIN_BYTES_MAX = 4 << 20
POLL_S = 0.1  # the only interval at which paramiko polls

# curve25519 costs a client about a millisecond, the post-quantum exchange far more; AES-GCM is one pass in
# hardware.
KEX_FIRST = ("curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
CIPHERS_FIRST = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")
MACS_FIRST = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-256")
NOT_OFFERED = frozenset({"3des-cbc", "hmac-md5", "hmac-md5-96", "hmac-sha1-96"})


class PeerMessage(paramiko.Message):  # type: ignore[misc]  # paramiko has no types
    """A message whose reader stops at its end, and takes no number that nobody could compute with."""

    _past_end = 0

    def get_bytes(self, n: int) -> bytes:
        """Return n bytes. Beyond the end paramiko goes on with zeros, as often as a count says."""
        found: bytes = self.packet.read(n)
        if len(found) == n:
            return found
        self._past_end += 1
        if n > PACKET_BYTES_MAX or self._past_end > READS_PAST_END_MAX:
            raise paramiko.SSHException("a message ends before what it announces")
        return found.ljust(n, b"\0")

    def get_mpint(self) -> int:
        """Return a number. Over one that fills a packet paramiko computes for six seconds; with a negative
        modulus it looks for an exponent for ever."""
        data: bytes = self.get_string()
        if len(data) > INTEGER_BYTES_MAX or data[:1] > b"\x7f":
            raise paramiko.SSHException(f"a negative number or one of {len(data)} bytes")
        return int.from_bytes(data, "big")


# Of all wires of this process: room for so much is a system call or two each time that it is asked for.
_room = memoryview(bytearray(RECEIVE_BYTES))


class Wire:
    """What paramiko takes for a socket: a connected one, or a channel through a jump host.

    paramiko polls its socket ten times a second; this one waits. It also sees what comes before the version
    line, so that a server that is not SSH, or refuses for lack of room, can be told from one that is broken.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._is_socket = isinstance(sock, socket.socket)
        self._data = b""
        self._at = 0
        self._shut = False
        self.prelude: list[bytes] = []  # lines before the version line
        self.banner = b""  # the version line
        self.strange = ""  # why this is not SSH, or why nothing more is read
        self.ended = False
        self.error: OSError | None = None
        self.last_receive_s = 0.0  # monotonic
        self.allow(LOGIN_BYTES_MAX)

    def allow(self, count: float) -> None:
        """From now on take `count` bytes; what sends more is cut off."""
        self._allowed = self._left = count

    @property
    def unread(self) -> bytes:
        """What has come and was not taken: until the version line ends, its beginning."""
        return self._data[self._at :]

    @property
    def _closed(self) -> bool:
        # paramiko asks sockets for it under this name.
        return self._shut

    def settimeout(self, timeout: float | None) -> None:
        """Do nothing: the time of a whole node is bounded from outside."""

    def gettimeout(self) -> None:
        return None

    def getpeername(self) -> Any:
        return self._sock.getpeername()

    def recv(self, count: int) -> bytes:
        if self._at >= len(self._data):
            self._data, self._at = self._more(), 0
            if not self.banner and not self._find_banner():
                return b""
        piece = self._data[self._at : self._at + count]
        self._at += len(piece)
        return piece

    def send(self, data: bytes) -> int:
        return int(self._sock.send(data))  # the rest of a part is sent by whoever called

    def close(self) -> None:
        if not self._shut:
            self._shut = True
            self._sock.close()

    def _receive(self) -> bytes:
        """What has come in. No one else runs between the call that fills the buffer and the copy."""
        if not self._is_socket:
            return bytes(self._sock.recv(RECEIVE_BYTES))
        return bytes(_room[: self._sock.recv_into(_room)])

    def _more(self) -> bytes:
        try:
            data = self._receive()
        except OSError as e:
            if self._shut:
                return b""
            self.error = e
            data = b""
        self.last_receive_s = time.monotonic()
        self._left -= len(data)
        if self._left < 0:
            self.strange = f"more than {self._allowed / (1 << 20):.0f} MiB were sent unasked"
            data = b""
        if not data:
            self.ended = True
        return data

    def _find_banner(self) -> bool:
        """Read up to the version line, which stays the next thing to read.

        False at the end, or if it is not SSH.
        """
        total = 0
        while True:
            start = 0
            while (end := self._data.find(b"\n", start)) >= 0:
                line = self._data[start:end].rstrip(b"\r")
                if line.startswith(b"SSH-") and len(line) <= LINE_BYTES_MAX:
                    self.banner = line
                    self._at = start
                    return True
                self.prelude.append(line[:LINE_BYTES_MAX])
                total += end + 1 - start
                start = end + 1
                if (
                    len(line) > LINE_BYTES_MAX
                    or len(self.prelude) > PRELUDE_LINES_MAX
                    or total > PRELUDE_BYTES_MAX
                ):
                    self.strange = "much text and no SSH version line"
                    return False
            rest = self._data[start:]
            if len(rest) > LINE_BYTES_MAX or (b"\0" in rest and not rest.startswith(b"SSH-")):
                self.prelude.append(rest[:LINE_BYTES_MAX])
                self.strange = "bytes that are not a line of text"
                return False
            more = self._more()
            if not more:
                if rest:
                    self.prelude.append(rest)
                self._data, self._at = b"", 0
                return False
            self._data = rest + more


class Signal(Event):  # type: ignore[misc]  # gevent has no types
    """An event that waits, where paramiko wakes up ten times a second to look whether it should go on.

    It need not look: a transport that ends sets its events, and every wait here is inside a node's budget.
    """

    def wait(self, timeout: float | None = None) -> bool:
        return bool(super().wait(None if timeout == POLL_S else timeout))


class Inbox:
    """Stands in for a channel's BufferedPipe, whose lock costs several greenlet switches for each packet.

    Both of a channel's share one signal, so that a reader of stdout wakes up for stderr, too: it then gets
    PipeTimeout, which a channel turns into TimeoutError. Holds what the window allows, and no more.
    """

    def __init__(self, wake: Event, urgent: "Inbox | None" = None) -> None:
        self._wake = wake
        self._urgent = urgent
        self._data = bytearray()
        self._closed = False

    def __len__(self) -> int:
        return len(self._data)

    def read_ready(self) -> bool:
        return bool(self._data)

    def feed(self, data: bytes) -> None:
        """Take what has come in. Raises SSHException, which ends the transport, beyond the window."""
        if len(self._data) + len(data) > DEFAULT_WINDOW_SIZE:
            raise paramiko.SSHException("the server sends more than the window allows")
        self._data += data
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def empty(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data

    def read(self, count: int, timeout: float | None = None) -> bytes:
        if not self._data and not self._closed:
            if not self._urgent:
                self._wake.clear()
                self._wake.wait(timeout)
            if not self._data and not self._closed:
                raise PipeTimeout
        data = bytes(memoryview(self._data)[:count])
        del self._data[:count]
        return data


class NodeChannel(paramiko.Channel):  # type: ignore[misc]  # paramiko has no types
    """A channel whose buffers are bounded."""

    refused = False  # the server did not take a request, and the channel is closed

    def __init__(self, chanid: int) -> None:
        super().__init__(chanid)
        wake = Event()
        self.in_stderr_buffer = Inbox(wake)
        self.in_buffer = Inbox(wake, self.in_stderr_buffer)

    def begin(self, command: str) -> None:
        """Ask for a command and wait for nothing: what it is to read may follow at once.

        Where the server refuses, the channel ends, as it does after `exec_command`.
        """
        m = PeerMessage()
        m.add_byte(cMSG_CHANNEL_REQUEST)
        m.add_int(self.remote_chanid)
        m.add_string("exec")
        m.add_boolean(True)
        m.add_string(command)
        self.transport._send_user_message(m)

    def _request_failed(self, m: Any) -> None:
        self.refused = True
        super()._request_failed(m)

    def sendall(self, s: bytes) -> None:
        """Send all of it; paramiko copies what is left after each packet."""
        left = memoryview(s)
        while left:
            left = left[self.send(left) :]


def fence_paramiko() -> None:
    """Make paramiko wait without polling, and read within limits, for this whole process.

    Measured with 256 nodes on a busy machine: half of a worker's CPU time was spent on waking up.
    """
    for module in (paramiko.transport, paramiko.channel, paramiko.packet):
        # A lock of threading's is this semaphore in a wrapper, and nobody asks it for more: a packetizer's is
        # taken once for each packet. Transports are greenlets (`NodeTransport.start`).
        no_thread = SimpleNamespace(__init__=lambda _: None)
        words = {**vars(threading), "Event": Signal, "Thread": no_thread}
        words |= {"Lock": BoundedSemaphore, "RLock": BoundedSemaphore}
        module.threading = SimpleNamespace(**words)
    for module in list(vars(paramiko).values()):
        if inspect.ismodule(module) and hasattr(module, "Message"):
            setattr(module, "Message", PeerMessage)  # noqa: B010  a type checker knows no such attribute
    paramiko.transport.Channel, paramiko.transport.AuthHandler = NodeChannel, KeyAuth
    paramiko.channel.BufferedPipe = object  # an Inbox takes the place of each
    paramiko.kex_gex.KexGexSHA256.max_bits = MODULUS_BITS_MAX


class NodePacketizer(Packetizer):  # type: ignore[misc]  # paramiko has no types
    """Takes packets in: none that is too large, and not many without a turn for the other nodes.

    Starts no timer thread per handshake: the node's own budget is the bound.
    """

    per_second = PACKETS_PER_S  # packets, in the long run
    _packets = 0
    _credit = float(PACKETS_AT_ONCE)
    _turn_s = math.inf

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        # Lengths are checked here, before anything is read for them: the ciphers' own checks come after it.
        if n > PACKET_BYTES_MAX:
            raise paramiko.SSHException(f"a packet of {n} bytes, the limit is {PACKET_BYTES_MAX}")
        return bytes(super().read_all(n, check_rekey))

    def read_message(self) -> Any:
        self._packets += 1
        if self._packets % PACKETS_A_TURN == 0:
            self._give_way()
        return super().read_message()

    def _give_way(self) -> None:
        """Let others go on: a socket that always has data never does so by itself."""
        now = time.monotonic()
        earned = max(0.0, now - self._turn_s) * self.per_second
        self._credit = min(PACKETS_AT_ONCE, self._credit + earned) - PACKETS_A_TURN
        self._turn_s = now
        gevent.sleep(max(0.0, -self._credit / self.per_second))

    def start_handshake(self, timeout: float) -> None:
        """Do nothing."""

    def complete_handshake(self) -> None:
        """Do nothing."""


@lru_cache(maxsize=64)
def _first(preferred: tuple[str, ...], available: tuple[str, ...]) -> tuple[str, ...]:
    """Return `available` with the preferred ones in front, less what is too weak to offer."""
    front = [name for name in preferred if name in available]
    return (*front, *(n for n in available if n not in front and n not in NOT_OFFERED))


class KeyAuth(paramiko.auth_handler.AuthHandler):  # type: ignore[misc]  # paramiko has no types
    """Where an SSH agent does not sign, that key is refused, and the connection stays for the others."""

    def _parse_service_accept(self, m: Any) -> None:
        try:
            super()._parse_service_accept(m)
        except NotSigned as e:
            self.transport.saved_exception = e
            self.auth_event.set()


class NodeTransport(paramiko.Transport):  # type: ignore[misc]  # paramiko has no types
    """A transport with cheap algorithms first, whose server's last words are kept."""

    _channel_handler_table = {  # noqa: RUF012  paramiko's name, and shared by all
        **paramiko.Transport._channel_handler_table,
        MSG_CHANNEL_FAILURE: NodeChannel._request_failed,
    }
    _preferred_kex = _first(KEX_FIRST, paramiko.Transport._preferred_kex)
    _preferred_ciphers = _first(CIPHERS_FIRST, paramiko.Transport._preferred_ciphers)
    _preferred_macs = _first(MACS_FIRST, paramiko.Transport._preferred_macs)
    _preferred_keys: tuple[str, ...] = paramiko.Transport._preferred_keys

    def __init__(self, sock: Wire, key_types: Sequence[str] = (), **options: Any) -> None:
        self.last_words = ""  # of the server's disconnect message
        self.refusals: dict[int, str] = {}  # why a channel was not opened, by number
        self._numbers: dict[int, int] = {}
        self._exchanges = 0
        super().__init__(sock, packetizer_class=NodePacketizer, **options)
        if key_types:
            self._preferred_keys = _first(tuple(key_types), self._preferred_keys)

    daemon = True

    def start(self) -> None:
        """Run. A thread would be a greenlet, too, with locks, events and a list of all threads around it."""
        gevent.spawn(self.run)

    def is_alive(self) -> bool:
        return False  # nobody waits for its end

    def open_tunnel(self, to: tuple[str, int]) -> tuple[Any, str]:
        """Return a channel to an address beyond this server, or (None, why not). Raises SSHException if cut.

        Many tunnels are opened at once, and paramiko keeps one exception for all of them: the refusal is
        found by the number of the channel.
        """
        me = threading.get_ident()
        try:
            return self.open_channel("direct-tcpip", to, ("127.0.0.1", 0)), ""
        except paramiko.SSHException as e:
            if not self.is_active():
                raise
            text = str(e.text) if isinstance(e, paramiko.ChannelException) else str(e)
            return None, self.refusals.pop(self._numbers.get(me, -1), text)
        finally:
            self._numbers.pop(me, None)

    def _negotiate_keys(self, m: Any) -> None:
        self._exchanges += 1
        if self._exchanges > KEX_MAX:
            raise paramiko.SSHException("the server asks for new keys without end")
        super()._negotiate_keys(m)

    def _next_channel(self) -> int:
        number: int = super()._next_channel()
        self._numbers[threading.get_ident()] = number
        return number

    def _log(self, level: int, msg: Any, *args: Any) -> None:
        # paramiko tells some things only to its log, which costs more than it is worth here. Private, and
        # proven by tests/transport/test_link.py: without it only the wording of details becomes poorer.
        if isinstance(msg, str):
            if msg.startswith("Disconnect (code "):
                self.last_words = msg.partition("): ")[2][:LINE_BYTES_MAX]
            elif msg.startswith("Secsh channel ") and " open FAILED: " in msg:
                number, _, reason = msg[len("Secsh channel ") :].partition(" open FAILED: ")
                if number.isdigit() and int(number) in self._numbers.values():
                    self.refusals[int(number)] = reason[:LINE_BYTES_MAX]


def key_algorithms(types: Sequence[str]) -> tuple[str, ...]:
    """Return the signature algorithms for key types as known_hosts names them."""
    found: list[str] = []
    for kind in types:
        found += ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)
    return tuple(dict.fromkeys(found))


class Verify(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
    """Hands every server key to a function, which raises unless it is the right one.

    Every one, as nothing has made the client read a known_hosts file.
    """

    def __init__(self, judge: Callable[[str, bytes], None]) -> None:
        self._judge = judge

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        self._judge(key.get_name(), key.asbytes())


def no_delay(sock: socket.socket) -> None:
    """Send small packets at once; a handshake is nothing else."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
