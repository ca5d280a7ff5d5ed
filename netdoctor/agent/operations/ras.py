"""The `ras` operation: ask NCCL's RAS on this node how the job is, as its own client does.

NVIDIA/nccl src/ras/client.cc: text lines over TCP, `CLIENT PROTOCOL`, `SET FORMAT` (since 2.28.7), `TIMEOUT`,
then `VERBOSE STATUS`, whose answer ends with the connection. Nothing in the job is changed by being asked.
"""

import socket
import time

from ..system import files
from . import listen as op_listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

ANSWER_CAP = 4 << 20
LINE_CAP = 4096
# As in NCCL: what it waits for its processes, twice, and a second.
DEFAULT_WAIT_S = 5
PROTOCOL = b"CLIENT PROTOCOL 2\n"


class Connection(object):
    """A connection with a deadline for all of it."""

    def __init__(self, address: str, port: int, timeout_s: float) -> None:
        self.finish = time.monotonic() + timeout_s
        family, where = op_listen.resolve(address, port, socket.SOCK_STREAM)
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.pending = b""
        try:
            self.arm(3.0)
            self.socket.connect(where)
        except OSError:
            self.socket.close()
            raise

    def arm(self, most: "Optional[float]" = None) -> None:
        left = self.finish - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self.socket.settimeout(left if most is None else min(left, most))

    def send(self, line: bytes) -> None:
        self.arm()
        self.socket.sendall(line)

    def line(self) -> bytes:
        while b"\n" not in self.pending:
            self.arm()
            more = self.socket.recv(LINE_CAP)
            if not more:
                raise ValueError("the connection ended after %r" % self.pending[-80:])
            self.pending += more
            if len(self.pending) > LINE_CAP:
                raise ValueError("not a RAS server: a long line of %r" % self.pending[:80])
        line, _, self.pending = self.pending.partition(b"\n")
        return line

    def rest(self) -> "tuple[bytes, str]":
        """What comes until the end, and why it is not all."""
        parts, size = [self.pending], len(self.pending)
        try:
            while size <= ANSWER_CAP:
                self.arm()
                more = self.socket.recv(65536)
                if not more:
                    return b"".join(parts), ""
                parts.append(more)
                size += len(more)
        except socket.timeout:
            return b"".join(parts), "no end within the time"
        return b"".join(parts)[:ANSWER_CAP], "longer than %d MiB" % (ANSWER_CAP >> 20)


def ras(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return {text, cut, protocol} or {error}. args: port, wait_s, timeout_s.

    Asked on this node alone: NCCL listens on localhost, which may mean either family.
    """
    reply = {}  # type: dict[str, Any]
    for address in ("127.0.0.1", "::1"):
        reply = ask(address, args)
        if reply.get("error") not in ("ECONNREFUSED", "EADDRNOTAVAIL", "EAFNOSUPPORT"):
            return reply
    return {"error": "ECONNREFUSED"}


def ask(address: str, args: "dict[str, Any]") -> "dict[str, Any]":
    """Return what `ras` does, of one address."""
    wait_s = min(max(int(args.get("wait_s") or DEFAULT_WAIT_S), 1), 60)
    connection = None  # type: Optional[Connection]
    try:
        connection = Connection(address, int(args.get("port") or 28028), float(args.get("timeout_s") or 25))
        connection.send(PROTOCOL)
        hello = connection.line()
        if not hello.upper().startswith(b"SERVER PROTOCOL "):
            return {"error": "another service answers there: %r" % hello[:80]}
        connection.send(b"SET FORMAT json\n")
        connection.line()  # OK, or an error of a release that knows only text
        connection.send(b"TIMEOUT %d\n" % wait_s)
        connection.line()
        connection.send(b"VERBOSE STATUS\n")
        data, cut = connection.rest()
        version = hello[16:40].decode("ascii", "replace")
        return {"text": data.decode("utf-8", "replace"), "cut": cut, "protocol": version}
    except socket.timeout:
        return {"error": "no answer in time"}
    except OSError as e:
        return {"error": files.errno_name(e)}
    except ValueError as e:
        return {"error": str(e)[:200]}
    finally:
        if connection is not None:
            connection.socket.close()
