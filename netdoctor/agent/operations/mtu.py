"""The `path_mtu` operation: how large an unfragmented packet reaches each target, and who says so if not.

Datagrams with DF set go to a `udp_echo`. Sizes are those of the whole IP packet. A size counts as lost only
after three tries, each together with a small packet that has to come back: loss alone must not read as a
black hole.
"""

import errno
import select
import socket
import time

from .. import runtime
from ..facts import routes as facts_routes
from ..system import files, icmp
from ..system.sockets import netlink
from . import listen as op_listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

SMALL = 576
TRIES = 3
# Of the first small packet, before a path counts as closed: a busy node is slow to say anything at all.
FIRST_TRIES = 4
QUIET_ROUNDS = 3
MAX_TARGETS = 4096
PARALLEL = 16
# How long one answer may take, one target, and the whole request.
DEFAULT_WAIT_S = 1.0
MIN_WAIT_S = 0.2
TARGET_S = 12.0
DEFAULT_BUDGET_S = 45.0
# Sizes that real paths end at: IPv6 minimum, tunnels and overlays, PPPoE, Ethernet, IPoIB, clouds, jumbo
# frames.
COMMON = (1280, 1400, 1420, 1450, 1460, 1480, 1492, 1500, 2044, 4000, 4092, 8000, 8500, 8896, 9000)
FAN = 15

_IP_MTU_DISCOVER, _IP_MTU, _PMTUDISC_PROBE = 10, 14, 3
_IPV6_MTU_DISCOVER, _IPV6_MTU, _IPV6_DONTFRAG = 23, 24, 62


class PathErrors(object):
    """What somebody said: sizes that do not fit, and refusals."""

    def __init__(self) -> None:
        self.mtu = None  # type: Optional[int]
        self.too_big = False
        self.by = ""
        self.refusal = ""
        self.local = ""

    def size(self, mtu: int, by: str) -> None:
        self.too_big = True
        if mtu >= 68 and (self.mtu is None or mtu < self.mtu):
            self.mtu, self.by = mtu, by


class Prober(object):
    """A connected datagram socket towards one echo."""

    def __init__(self, address: str, port: int, token: bytes, wait_s: float) -> None:
        self.family, where = op_listen.resolve(address, port, socket.SOCK_DGRAM)
        self.overhead = 48 if self.family == socket.AF_INET6 else 28
        self.tag = op_listen.tag_of(token)
        self.socket = socket.socket(self.family, socket.SOCK_DGRAM)
        self.where = where
        self.sequence = 0
        self.longest_s = self.wait_s = wait_s
        self.errors = PathErrors()

    def connect(self, source: str, names: "dict[str, str]") -> None:
        """Raises OSError: ENETUNREACH and others. source, names: as in op_listen.bind_to; '' for none."""
        s = self.socket
        if source:
            op_listen.bind_to(s, source, 0, names)
        if self.family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
            s.setsockopt(socket.IPPROTO_IPV6, _IPV6_DONTFRAG, 1)
        else:
            s.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
        icmp.enable(s)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        s.connect(self.where)
        s.setblocking(False)

    def known_mtu(self) -> "Optional[int]":
        """Return the kernel's path MTU for this destination."""
        try:
            if self.family == socket.AF_INET6:
                return self.socket.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
            return self.socket.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        except OSError:
            return None

    def _send(self, size: int, waiting: "dict[bytes, int]") -> None:
        self.sequence += 1
        number = b"%08x" % (self.sequence & 0xFFFFFFFF)
        data = (self.tag + b" " + number + b" ").ljust(size - self.overhead, b".")
        for _ in range(3):
            try:
                self.socket.send(data)
                waiting[number] = size
                return
            except OSError as e:
                self._note(e)
                if e.errno not in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH):
                    return
                # An error of an earlier datagram, handed out by this call: once more.

    def _note(self, e: OSError) -> None:
        if e.errno == errno.EMSGSIZE:
            self.errors.size(0, "")
        elif e.errno not in (errno.EAGAIN, errno.EINTR):
            # ENOBUFS: a veth whose peer takes less; EPERM: an output rule.
            self.errors.local = files.errno_name(e)
        self._read_queue()

    def _read_queue(self) -> None:
        for report in icmp.reports(self.socket):
            is_local = report.origin == icmp.ORIGIN_LOCAL and report.errno == errno.EMSGSIZE
            if report.too_big or is_local:
                self.errors.size(report.info, report.text())
            elif report.unreachable:
                self.errors.refusal = report.text()

    def _receive(self, waiting: "dict[bytes, int]") -> "Optional[int]":
        """Return the size of a datagram that was answered, or None when nothing is left to read."""
        while True:
            try:
                data = self.socket.recv(2048)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError as e:
                self._note(e)
                continue
            part = data.split()
            if len(part) == 3 and part[0] == self.tag and part[1] in waiting:
                size = waiting.pop(part[1])
                # The far end tells what arrived; a cut datagram has not passed.
                if part[2] == b"%d" % (size - self.overhead):
                    return size

    def round(self, sizes: "list[int]", end: float, tries: int = TRIES) -> "set[int]":
        """Send each size up to `tries` times; return those that were answered.

        The wait follows the round trips seen; while nothing at all is answered it grows, up to twice the
        longest that was asked for.
        """
        passed = set()  # type: set[int]
        waiting = {}  # type: dict[bytes, int]
        for _ in range(tries):
            todo = [size for size in sizes if size not in passed]
            if not todo or time.monotonic() >= end:
                break
            sent = time.monotonic()
            for size in todo:
                self._send(size, waiting)
            until = min(sent + self.wait_s, end)
            while len(passed) < len(sizes):
                left = until - time.monotonic()
                if left <= 0:
                    break
                poll = select.poll()
                poll.register(self.socket, select.POLLIN)
                if not poll.poll(max(1, int(left * 1000))):
                    break
                self._read_queue()
                answered = self._receive(waiting)
                while answered is not None:
                    passed.add(answered)
                    took = time.monotonic() - sent
                    self.wait_s = min(self.longest_s, max(MIN_WAIT_S, 4 * took))
                    answered = self._receive(waiting)
            if not passed:
                self.wait_s = min(2 * self.longest_s, 2 * self.wait_s)
        self._read_queue()
        return passed

    def close(self) -> None:
        self.socket.close()


def candidates(low: int, high: int, well_known: bool) -> "list[int]":
    """Return sizes between two bounds, both excluded: those of COMMON, else even steps."""
    if well_known:
        # With its successor each well-known size is settled in the same round.
        found = {s for size in COMMON for s in (size, size + 1) if low < s < high}
        if found:
            return sorted(found)
    if high - low - 1 <= FAN:
        return list(range(low + 1, high))
    step = (high - low) / float(FAN + 1)
    return [low + int(step * (i + 1)) for i in range(FAN)]


def search(prober: Prober, dev_mtu: int, end: float) -> "dict[str, Any]":
    """Return small_ok, largest_ok, outcome, detail for one target."""
    errors = prober.errors

    def verdict(outcome: str, largest: "Optional[int]", detail: str = "") -> "dict[str, Any]":
        return {"small_ok": largest is not None, "largest_ok": largest, "outcome": outcome, "detail": detail}

    top = max(SMALL, min(dev_mtu, 65535))
    if not prober.round([SMALL], end, FIRST_TRIES):
        detail = errors.refusal or errors.local or "no small packet came back"
        return verdict("no_answer", None, detail)
    if top == SMALL or top in prober.round([SMALL, top], end):
        return verdict("ok", top)

    low, high = SMALL, top  # low passes, high does not
    tried_hint = None  # type: Optional[int]
    well_known = True
    quiet_rounds = 0
    while high - low > 1 and time.monotonic() < end:
        hint = errors.mtu
        if hint is not None and hint != tried_hint and low <= hint < high:
            tried_hint = hint
            sizes = [size for size in (hint, hint + 1) if low < size < high]
        else:
            sizes = candidates(low, high, well_known)
            well_known = False
        passed = prober.round([SMALL, *sizes], end)
        if not passed:
            # Not even the small one: this round says nothing about sizes.
            quiet_rounds += 1
            if quiet_rounds >= QUIET_ROUNDS:
                return verdict("error", low, "the path loses small packets too")
            continue
        low = max([low] + [size for size in passed if size < high])
        high = min([high] + [size for size in sizes if size not in passed and size > low])

    # Loss can have hidden the top in its first round: three more chances beside small ones.
    last = set()  # type: set[int]
    for _ in range(QUIET_ROUNDS):
        last = prober.round([SMALL, top], max(end, time.monotonic() + TRIES * prober.wait_s))
        if last:
            break
    if top in last:
        return verdict("ok", top, "the path loses packets")
    if not last:
        return verdict("error", low, "the path loses small packets too")
    if high - low <= 1:
        bound = "%d bytes pass, %d do not" % (low, high)
    else:
        bound = "the limit lies between %d and %d bytes" % (low, high)
    if errors.too_big:
        return verdict("small", low, bound + "; said by " + (errors.by or "this node's own kernel"))
    local = "; send() says " + errors.local if errors.local else ""
    return verdict("black_hole", low, bound + ", and nothing says so" + local)


def probe(
    target: "Any", token: bytes, wait_s: float, end: float, names: "dict[str, str]"
) -> "dict[str, Any]":
    """Return facts.net.MtuProbe without `src`. names: interfaces by address."""
    row = target if isinstance(target, dict) else {}
    reply = {
        "dst": str(row.get("dst", "")),
        "address": str(row.get("address", "")),
        "dev": None,
        "dev_mtu": 0,
        "small_ok": False,
        "largest_ok": None,
        "outcome": "error",
        "learned_mtu": None,
        "detail": "",
    }  # type: dict[str, Any]
    source = str(row.get("source") or "")
    if source:
        reply["source"] = source
    if time.monotonic() >= end:
        reply["detail"] = "not probed: the request's time was used up"
        return reply
    try:
        prober = Prober(reply["address"], int(row.get("port") or 0), token, wait_s)
    except (OSError, ValueError, TypeError) as e:
        reply["detail"] = files.errno_name(e)
        return reply
    try:
        prober.connect(source, names)
        try:
            with netlink() as link:
                found = facts_routes.device_and_gateway(link, prober.family, prober.where)
                reply["dev"] = found[0]
        except OSError:
            pass
        reply["dev"] = names.get(source, reply["dev"])
        mtu = files.number("/sys/class/net/%s/mtu" % reply["dev"]) if reply["dev"] else None
        reply["dev_mtu"] = mtu or prober.known_mtu() or 1500
        reply.update(search(prober, reply["dev_mtu"], min(end, time.monotonic() + TARGET_S)))
        known = prober.known_mtu()
        learned = [m for m in (prober.errors.mtu, known) if m and m < reply["dev_mtu"]]
        reply["learned_mtu"] = min(learned) if learned else None
    except OSError as e:
        reply["outcome"] = "no_answer" if e.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH) else "error"
        reply["detail"] = files.errno_name(e)
    finally:
        prober.close()
    return reply


def path_mtu(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Probe every target; rows in the order of the targets.

    args: {"targets": [{"dst", "address", "port": of a udp_echo, "source": as of connect}], "token",
    "timeout_s": how long one answer may take, "budget_s": bound for all targets together}.
    """
    token = op_listen.check_token(args)
    wait_s = min(max(float(args.get("timeout_s") or DEFAULT_WAIT_S), MIN_WAIT_S), 5.0)
    end = time.monotonic() + min(max(float(args.get("budget_s") or DEFAULT_BUDGET_S), 0.1), 300.0)
    targets = list(args.get("targets") or [])[:MAX_TARGETS]
    rows = [None] * len(targets)  # type: list[Optional[dict[str, Any]]]
    waiting = list(range(len(targets)))[::-1]
    names = op_listen.interfaces(targets, "source")

    def work() -> None:
        while True:
            try:
                at = waiting.pop()
            except IndexError:
                return
            rows[at] = probe(targets[at], token, wait_s, end, names)

    threads = [runtime.thread(work) for _ in range(min(PARALLEL, len(targets)))]
    for started in threads:
        started.join()
    return [row for row in rows if row is not None]
