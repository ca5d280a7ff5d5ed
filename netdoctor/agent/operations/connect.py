"""The `connect` operation: one TCP connection attempt per target, without a thread for each."""

import errno
import selectors
import socket
import time

from .. import runtime
from ..system import files, icmp
from . import listen as op_listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_TARGETS = 50000
MAX_PARALLEL = 512
DEFAULT_TIMEOUT_S = 3.0
ANSWER_CAP = 512
# What an open port may take to answer our token once the connection stands.
HANDSHAKE_S = 4.0


def judge(number: int, queued: "list[icmp.Report]", local: "Optional[str]", far: str) -> "tuple[str, str]":
    """Return (outcome, detail) for an errno of connect() and what the error queue held.

    local, far: the two addresses. The kernel reports a failed neighbour lookup as an ICMP "host unreachable"
    that it sends to itself, which is how it is told from one that a router or a firewall sent.
    """
    name = errno.errorcode.get(number, "errno %d" % number)
    report = next((r for r in queued if r.origin in (icmp.ORIGIN_ICMP, icmp.ORIGIN_ICMP6)), None)
    detail = name if report is None else name + ", " + report.text()
    if report is not None and report.unreachable:
        by_self = report.offender is not None and report.offender == local != far
        if report.prohibited:
            return "rejected", detail
        if report.port_unreachable:
            # TCP itself answers a closed port with a reset; only a filter sends this for TCP.
            where = " (a reject rule of this node)" if by_self else " (a reject rule)"
            return "rejected", detail + where
        if by_self:
            return "no_route", name + ", no answer to neighbour discovery for the next hop"
        if report.offender == far:
            return "rejected", detail + " (the node itself says so: a reject rule)"
        return "no_route", detail
    # ICMPv6 "prohibited" also reads EACCES, so that this comes after the queue.
    if number in (errno.EPERM, errno.EACCES):
        return "rejected", name + ", refused by a rule of this node"
    if number == errno.ECONNREFUSED:
        return "refused", name
    if number in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN):
        if number == errno.EHOSTUNREACH and report is None:
            # Kernels before 5.10 queue nothing for TCP.
            return "no_route", name + ", no answer to neighbour discovery, or a reject rule"
        return "no_route", detail
    if number == errno.ETIMEDOUT:
        return "filtered", name
    return "error", detail


class Attempt(object):
    """One target on its way from connect() to our own answer."""

    def __init__(self, target: "Any") -> None:
        row = target if isinstance(target, dict) else {}
        self.reply = {
            "dst": str(row.get("dst", "")),
            "address": str(row.get("address", "")),
            "port": row.get("port"),
            "purpose": str(row.get("purpose", "")),
            "source_port": row.get("source_port"),
            "outcome": "error",
            "detail": "",
            "elapsed_ms": 0.0,
        }  # type: dict[str, Any]
        if row.get("source"):
            self.reply["source"] = str(row["source"])
        self.socket = None  # type: Optional[socket.socket]
        self.started = time.monotonic()
        self.deadline = 0.0
        self.connected = False
        self.local = None  # type: Optional[str]
        self.answer = b""

    def end(self, outcome: str, detail: str = "") -> None:
        # Once connected the time is that of the connection, not of the answer.
        if not self.connected:
            self.reply["elapsed_ms"] = round((time.monotonic() - self.started) * 1000, 3)
        self.reply["outcome"] = outcome
        self.reply["detail"] = detail[:300]

    def fail(self, number: int) -> None:
        queued = icmp.reports(self.socket) if self.socket is not None else []
        self.end(*judge(number, queued, self.local, self.reply["address"]))

    def begin(self, timeout_s: float, names: "dict[str, str]") -> bool:
        """Start connecting; say whether there is something to wait for. names: interfaces by address."""
        self.started = time.monotonic()
        self.deadline = self.started + timeout_s
        try:
            family, where = op_listen.resolve(self.reply["address"], self.reply["port"], socket.SOCK_STREAM)
            self.reply["port"] = int(where[1])
            self.socket = s = socket.socket(family, socket.SOCK_STREAM)
            s.setblocking(False)
            icmp.enable(s)
            port = int(self.reply["source_port"] or 0)
            if "source" in self.reply:
                op_listen.bind_to(s, self.reply["source"], port, names)
            elif port:
                s.bind(("", port))
            number = s.connect_ex(where)
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE, None) or isinstance(e, socket.gaierror):
                self.end("error", "not an address" if e.errno is None else files.errno_name(e))
            else:
                self.fail(e.errno)
            return False
        except (ValueError, TypeError, OverflowError) as e:
            self.end("error", str(e))
            return False
        if number not in (0, errno.EINPROGRESS):
            self.fail(number)
            return False
        try:
            name = s.getsockname()
            self.local, self.reply["source_port"] = str(name[0]), int(name[1])
        except OSError:
            pass
        return True

    def writable(self, token: bytes) -> bool:
        """The connection stands or failed; say whether to go on and wait for the answer."""
        assert self.socket is not None
        number = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self.fail(number)
            return False
        self.end("open")
        self.connected = True
        self.deadline = time.monotonic() + HANDSHAKE_S
        try:
            self.socket.send(token + b"\n")
        except OSError as e:
            self.end("in_use", "connected, then " + files.errno_name(e))
            return False
        return True

    def readable(self, token: bytes) -> bool:
        """Something came; say whether to wait for more."""
        assert self.socket is not None
        try:
            part = self.socket.recv(ANSWER_CAP)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError as e:
            self.end("in_use", "connected, then " + files.errno_name(e))
            return False
        self.answer += part
        expected = b"ok " + token + b"\n"
        if self.answer.startswith(expected):
            self.end("open")
        elif not part:
            self.end("in_use", "connected, then closed without our token")
        elif expected.startswith(self.answer):
            return True
        else:
            self.end("in_use", "something else answers there")
        return False

    def late(self, timeout_s: float) -> None:
        if self.connected:
            self.end("in_use", "connected, but no answer within %g s" % HANDSHAKE_S)
        else:
            self.end("filtered", "no answer within %g s" % timeout_s)


def parallelism(requested: "Any") -> int:
    """Return how many sockets to have open at once, leaving room under the limit on descriptors."""
    soft = runtime.session_limits.get("NOFILE", (1024, 1024))[0]
    room = soft - len(files.names("/proc/self/fd")) - 16 if soft > 0 else MAX_PARALLEL
    return max(1, min(int(requested or 64), MAX_PARALLEL, room))


def connect(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Try every target once; rows in the order of the targets.

    args: {"targets": [{"dst", "address", "port", "purpose", "source": local address (optional), over whose
    interface it is tried, "source_port": likewise; the kernel picks one without}],
    "timeout_s", "token", "parallel"}. Outcomes as in facts.net.PortProbe.
    """
    token = op_listen.check_token(args)
    timeout_s = min(max(float(args.get("timeout_s") or DEFAULT_TIMEOUT_S), 0.05), 60.0)
    attempts = [Attempt(target) for target in list(args.get("targets") or [])[:MAX_TARGETS]]
    names = op_listen.interfaces(list(args.get("targets") or []), "source")
    waiting = attempts[::-1]
    parallel = parallelism(args.get("parallel"))
    running = set()  # type: set[Attempt]

    with selectors.DefaultSelector() as selector:

        def close(attempt: Attempt) -> None:
            running.discard(attempt)
            if attempt.socket is not None:
                try:
                    selector.unregister(attempt.socket)
                except (KeyError, ValueError):
                    pass
                attempt.socket.close()
                attempt.socket = None

        while waiting or running:
            while waiting and len(running) < parallel:
                attempt = waiting.pop()
                if attempt.begin(timeout_s, names) and attempt.socket is not None:
                    running.add(attempt)
                    selector.register(attempt.socket, selectors.EVENT_WRITE, attempt)
                else:
                    close(attempt)
            if not running:
                continue
            now = time.monotonic()
            nearest = min(attempt.deadline for attempt in running)
            for key, _ in selector.select(max(0.0, nearest - now)):
                attempt = key.data
                if attempt.connected:
                    more = attempt.readable(token)
                else:
                    more = attempt.writable(token)
                    if more and attempt.socket is not None:
                        selector.modify(attempt.socket, selectors.EVENT_READ, attempt)
                if not more:
                    close(attempt)
            now = time.monotonic()
            for attempt in [a for a in running if a.deadline <= now]:
                attempt.late(timeout_s)
                close(attempt)
    return [attempt.reply for attempt in attempts]
