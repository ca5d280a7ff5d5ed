"""TCP throughput between two agents: one receives on the tested address, the other sends for a while."""

import functools
import hmac
import os
import resource
import socket
import struct
import threading
import time

from .. import runtime
from ..system import files
from . import listen as op_listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

BUFFER_BYTES = 256 * 1024
MAX_STREAMS = 16
MAX_SECONDS = 30.0
MAX_WAITING = 64
HANDSHAKE_S = 3.0
# How long the streams of one session may take to arrive after the first.
GATHER_S = 5.0
INTERVAL_S = 0.1
LINE_CAP = 512
# Experiments may be given a day; the agent's own deadline ends it sooner.
MAX_TTL_S = 4 * 86400.0
_TCP_INFO = getattr(socket, "TCP_INFO", 11)


def tcp_info(s: socket.socket) -> "Optional[dict[str, int]]":
    """Return retransmits, segments sent, round trip and how long the receiver's window held it back (both
    us).

    struct tcp_info of linux/tcp.h: eight bytes, then tcpi_rto, the first of 24 words; the last of them is
    tcpi_total_retrans. tcpi_segs_out follows at 136 (Linux 4.2), tcpi_rwnd_limited at 176 (Linux 4.10).
    """
    try:
        raw = s.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
    except OSError:
        return None
    if len(raw) < 104:
        return None
    words = struct.unpack_from("=24I", raw, 8)
    segments = struct.unpack_from("=I", raw, 136)[0] if len(raw) >= 140 else 0
    held_us = struct.unpack_from("=Q", raw, 176)[0] if len(raw) >= 184 else 0
    return {"retransmits": words[23], "segments": segments, "rtt_us": words[15], "held_us": held_us}


def busy_s() -> float:
    """Return how long this thread has run or wanted to run: a thread that waits for the network does neither.

    /proc/thread-self/schedstat: nanoseconds on a CPU, nanoseconds runnable and waiting for one, time slices.
    """
    text = files.text_or_none("/proc/thread-self/schedstat", 200)
    try:
        ran, waited = (text or "").split()[:2]
        return (int(ran) + int(waited)) / 1e9
    except ValueError:
        usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", 1))
        return usage.ru_utime + usage.ru_stime


def _read_line(s: socket.socket, at_once: int) -> bytes:
    """Read until a line ends, by so many bytes; nothing where it does not. Raises OSError."""
    line = b""
    while not line.endswith(b"\n"):
        part = s.recv(at_once)
        if not part or len(line) > LINE_CAP:
            return b""
        line += part
    return line


class Session(object):
    """The streams that belong to one measurement, on the receiving side."""

    def __init__(self, count: int, seconds: float, omit_s: float) -> None:
        self.count = count
        self.seconds = seconds
        self.omit_s = omit_s
        self.sockets = []  # type: list[socket.socket]
        self.done = threading.Event()
        self.received = [0] * count
        self.started = None  # type: Optional[float]
        self.result = {}  # type: dict[str, Any]

    def over(self) -> bool:
        return self.started is not None and time.monotonic() >= self.started + self.omit_s + self.seconds

    def drain(self, number: int, s: socket.socket) -> None:
        """Take what one stream brings until the time is over."""
        buffer = bytearray(BUFFER_BYTES)
        s.settimeout(INTERVAL_S)
        while not self.over() and not self.done.is_set():
            try:
                got = s.recv_into(buffer)
            except socket.timeout:
                continue
            except OSError:
                break
            if not got:
                break
            if self.started is None:
                self.started = time.monotonic()
            self.received[number] += got

    def measure(self) -> None:
        """Watch the counters; the thread that owns the session."""
        threads = [runtime.normal_thread(self.drain, n, s) for n, s in enumerate(self.sockets)]
        gave_up = time.monotonic() + GATHER_S
        samples = []  # type: list[tuple[float, int]]
        while True:
            now = time.monotonic()
            if self.started is None:
                if now > gave_up or not any(t.is_alive() for t in threads):
                    break
                time.sleep(0.002)
                continue
            samples.append((now, sum(self.received)))
            end = self.started + self.omit_s + self.seconds
            if now >= end or not any(t.is_alive() for t in threads):
                break
            time.sleep(max(0.0, min(INTERVAL_S, end - now)))
        for s in self.sockets:
            try:
                # What is still on its way is of no interest: a reset ends the sender at once.
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass
        self.done.set()
        end = time.monotonic() + 1.0
        for t in threads:
            runtime.join_until(t, end)
        for s in self.sockets:
            s.close()
        self.result = summary(samples, self.started, self.omit_s)


def summary(
    samples: "list[tuple[float, int]]", started: "Optional[float]", omit_s: float
) -> "dict[str, Any]":
    """Return bytes, seconds and per-interval rates (bytes per second) of counter samples (time, bytes)."""
    if started is None or len(samples) < 2:
        return {"bytes": 0, "seconds": 0.0, "rates": []}
    counted = [row for row in samples if row[0] >= started + omit_s - INTERVAL_S / 2]
    if len(counted) < 2:
        counted = samples[-2:]
    pairs = [(row, later) for row, later in zip(counted, counted[1:]) if later[0] > row[0]]  # noqa: B905,RUF007
    rates = [(later[1] - row[1]) / (later[0] - row[0]) for row, later in pairs]
    return {
        "bytes": counted[-1][1] - counted[0][1],
        "seconds": counted[-1][0] - counted[0][0],
        "rates": [round(rate) for rate in rates[:600]],
    }


class Receiver(object):
    """A listener for streams that show the token. Has what `unlisten` needs: token, closed, close()."""

    def __init__(self, token: bytes, ttl_s: float) -> None:
        self.token = token
        self.expires = time.monotonic() + ttl_s
        self.sessions = {}  # type: dict[str, Session]
        self.lock = threading.Lock()
        self.waiting = threading.BoundedSemaphore(MAX_WAITING)
        self._listener = None  # type: Optional[socket.socket]
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def open(self, address: "Any") -> int:
        """Listen on a port that the kernel picks and return it. Raises OSError, ValueError."""
        family, where = op_listen.resolve(address, 0, socket.SOCK_STREAM)
        s = socket.socket(family, socket.SOCK_STREAM)
        try:
            s.bind(where)
            s.listen(64)
            s.settimeout(0.25)
        except BaseException:
            s.close()
            raise
        self._listener = s
        runtime.thread(self._accept)
        return int(s.getsockname()[1])

    def close(self) -> None:
        self._closed.set()
        if self._listener is not None:
            try:
                self._listener.close()
            except OSError:
                pass
        for session in list(self.sessions.values()):
            session.done.set()

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._closed.is_set() and time.monotonic() < self.expires:
            try:
                s, _ = self._listener.accept()
            except socket.timeout:
                continue
            except OSError:
                break
            if not self.waiting.acquire(False):
                s.close()
                continue
            try:
                runtime.thread(functools.partial(self._greet, s))
            except RuntimeError:  # no thread to be had
                self.waiting.release()
                s.close()
        self.close()

    def _greet(self, s: socket.socket) -> None:
        try:
            owner = self._admit(s)
        except (OSError, ValueError):
            owner = None
            s.close()
        finally:
            self.waiting.release()
        if owner is not None:
            try:
                owner.measure()
            finally:
                owner.done.set()

    def _admit(self, s: socket.socket) -> "Optional[Session]":
        """Take a stream into its session; return the session where this stream completed it."""
        s.settimeout(HANDSHAKE_S)
        words = _read_line(s, 1).split()
        if len(words) != 5 or not hmac.compare_digest(words[0], self.token):
            raise ValueError("a stranger")
        name, count = words[1].decode("ascii"), int(words[2])
        seconds, omit_s = float(words[3]), float(words[4])
        if not (1 <= count <= MAX_STREAMS and 0 < seconds <= MAX_SECONDS and 0 <= omit_s <= MAX_SECONDS):
            raise ValueError("over the limits")
        with self.lock:
            session = self.sessions.get(name)
            if session is None:
                if len(self.sessions) >= 4096:
                    raise ValueError("too many sessions")
                session = self.sessions[name] = Session(count, seconds, omit_s)
            if len(session.sockets) >= session.count:
                raise ValueError("one stream too many")
            session.sockets.append(s)
            last = len(session.sockets) == session.count
        if not last:
            return None
        for one in session.sockets:
            one.sendall(b"go " + self.token + b"\n")
        return session


_receivers = {}  # type: dict[str, Receiver]


def serve(args: "dict[str, Any]") -> "dict[str, Any]":
    """Open a receiver. args: {"address", "token", "ttl_s"}. Return {"address", "port", "error"}."""
    token = op_listen.check_token(args)
    ttl_s = min(max(float(args.get("ttl_s") or 60.0), 0.1), MAX_TTL_S)
    receiver = Receiver(token, ttl_s)
    port = 0
    error = None  # type: Optional[str]
    try:
        port = receiver.open(args.get("address"))
    except (OSError, ValueError) as e:
        error = files.errno_name(e)
    else:
        _receivers[token.decode("ascii")] = receiver
        op_listen.adopt(receiver)
    return {"address": str(args.get("address")), "port": port, "error": error}


def receive(args: "dict[str, Any]") -> "dict[str, Any]":
    """Wait for a session to end and return what arrived. args: {"token", "session", "wait_s"}.

    Return {"bytes", "seconds": of the part that counts, "rates": bytes per second in each tenth of a second,
    "error": None or a reason}.
    """
    token = op_listen.check_token(args)
    name = runtime.session_name(args)
    end = time.monotonic() + min(max(float(args.get("wait_s") or 10.0), 0.1), 2 * MAX_SECONDS)
    receiver = _receivers.get(token.decode("ascii"))
    if receiver is None:
        raise runtime.Unavailable("failed", "no receiver is open")
    while time.monotonic() < end:
        session = receiver.sessions.get(name)
        if session is not None and session.done.is_set() and session.result:
            return dict(session.result, error=None)
        time.sleep(0.01)
    session = receiver.sessions.get(name)
    if session is None:
        return {"error": "no stream arrived"}
    if len(session.sockets) < session.count:
        return {"error": "%d of %d streams arrived" % (len(session.sockets), session.count)}
    return {"error": "the streams did not end in time"}


class Stream(object):
    """One connection of the sending side."""

    def __init__(self, s: socket.socket) -> None:
        self.socket = s
        self.sent = 0
        self.busy = 0.0
        self.took = 0.0
        self.info = None  # type: Optional[dict[str, int]]
        self.error = ""

    def push(self, payload: memoryview, end: float) -> None:
        before, began = busy_s(), time.monotonic()
        size = 0
        try:
            while time.monotonic() < end:
                size += self.socket.send(payload)
                self.sent = size
        except socket.timeout:
            self.error = "stalled"
        except OSError as e:
            # The receiver resets the stream when it has seen enough.
            if time.monotonic() < end - 1.0:
                self.error = files.errno_name(e)
        self.busy, self.took = busy_s() - before, time.monotonic() - began


def _connect(args: "dict[str, Any]", greeting: bytes, token: bytes, streams: int) -> "list[Stream]":
    """Open the streams and wait for the receiver's word. Raises OSError, Unavailable."""
    family, where = op_listen.resolve(args.get("address"), args.get("port"), socket.SOCK_STREAM)
    found = []  # type: list[Stream]
    try:
        for _ in range(streams):
            s = socket.socket(family, socket.SOCK_STREAM)
            found.append(Stream(s))
            s.settimeout(HANDSHAKE_S)
            if args.get("source"):
                s.bind(op_listen.resolve(args["source"], 0, socket.SOCK_STREAM)[1])
            s.connect(where)
            s.sendall(greeting)
        expected = b"go " + token + b"\n"
        for stream in found:
            stream.socket.settimeout(GATHER_S)
            answer = _read_line(stream.socket, LINE_CAP)
            if not answer:
                raise runtime.Unavailable("failed", "the receiver closed the connection")
            if answer != expected:
                raise runtime.Unavailable("failed", "something else answers there")
    except BaseException:
        for stream in found:
            stream.socket.close()
        raise
    return found


def send(args: "dict[str, Any]") -> "dict[str, Any]":
    """Send as fast as it goes. args: {"address", "port", "token", "session", "streams", "seconds",
    "omit_s", "source": own address (optional)}.

    Return {"bytes", "seconds", "retransmits", "segments", "rtt_us": least over the streams, "busy": share of
    the time that the sending threads ran or wanted to, "held": share that the receiver's window held the
    streams back, "error": None or a reason}. The rate that counts is the receiver's.
    """
    token = op_listen.check_token(args)
    name = runtime.session_name(args)
    streams = min(max(int(args.get("streams") or 1), 1), MAX_STREAMS)
    seconds = min(max(float(args.get("seconds") or 1.0), 0.05), MAX_SECONDS)
    omit_s = min(max(float(args.get("omit_s") or 0.0), 0.0), MAX_SECONDS)
    text = "%s %d %.3f %.3f\n" % (name, streams, seconds, omit_s)
    try:
        found = _connect(args, token + b" " + text.encode("ascii"), token, streams)
    except OSError as e:
        late = isinstance(e, socket.timeout)
        return {"bytes": 0, "error": "no answer" if late else files.errno_name(e)}
    payload = memoryview(os.urandom(64 * 1024) * (BUFFER_BYTES // (64 * 1024)))
    started = time.monotonic()
    # A little longer than the receiver counts, so that its last interval is a full one.
    end = started + omit_s + seconds + 1.0
    try:
        for stream in found:
            stream.socket.settimeout(omit_s + seconds + 2.0)
        threads = [runtime.normal_thread(stream.push, payload, end) for stream in found]
        while any(t.is_alive() for t in threads) and time.monotonic() < end + 2.0:
            # Read while it lasts: after the receiver's reset there is nothing left to read.
            for stream in found:
                info = tcp_info(stream.socket)
                if info is not None and (stream.info is None or info["segments"] >= stream.info["segments"]):
                    stream.info = info
            time.sleep(INTERVAL_S / 2)
    finally:
        for stream in found:
            stream.socket.close()
    infos = [stream.info for stream in found if stream.info is not None]
    errors = [stream.error for stream in found if stream.error]
    return {
        "bytes": sum(stream.sent for stream in found),
        "seconds": time.monotonic() - started,
        "retransmits": sum(info["retransmits"] for info in infos) if infos else None,
        "segments": sum(info["segments"] for info in infos) if infos else None,
        "rtt_us": min(info["rtt_us"] for info in infos) if infos else None,
        "busy": sum(stream.busy for stream in found) / sum(max(stream.took, 1e-3) for stream in found),
        "held": sum(info["held_us"] for info in infos)
        / 1e6
        / sum(max(stream.took, 1e-3) for stream in found),
        "error": errors[0] if errors else None,
    }
