"""Calling the control host: where nothing carries stdin and stdout, one connection becomes both of them.

Whoever started this task gave it a secret on stdin. Each side shows the other that it has it, and neither
sends it: what answers on a port may be anybody, and so may whoever connects.

    task:     netdoctor-task NODE NONCE
    control:  NONCE PROOF         of "control NODE NONCE(task) NONCE(control)"
    task:     PROOF               of "task NODE NONCE(task) NONCE(control)"
"""

import errno
import hashlib
import hmac
import json
import os
import select
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINE_BYTES = 300
NOT_REACHED = 75  # EX_TEMPFAIL of sysexits.h


class Refused(Exception):
    """Whoever answered is not who gave us the secret."""


def proof(secret: str, *words: str) -> str:
    """Shows that `secret` is known, without it: hex digits."""
    return hmac.new(secret.encode("ascii"), " ".join(words).encode("utf-8"), hashlib.sha256).hexdigest()


def call(dial: "dict[str, Any]", marker: str) -> None:
    """Let stdin and stdout be a connection to the first place that shows that it knows the secret.

    dial: places [[address, port], …], secret, node_from (variables that may name this node), within_s. Where
    none is reached one line on stdout says why, and the process ends.
    """
    named = [os.environ.get(name, "") for name in dial["node_from"]]
    node = next((name for name in named if name), os.uname().nodename)
    finish = time.monotonic() + dial["within_s"]
    tried = {}  # type: dict[str, str]
    for place, connection in _connected(dial["places"], finish, tried):
        try:
            _introduce(connection, node, dial["secret"], finish)
        except (OSError, ValueError, Refused) as e:
            tried[place] = str(e) or type(e).__name__
            connection.close()
            continue
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in (0, 1):
            os.dup2(connection.fileno(), number)
        connection.close()
        return
    said = {"marker": marker, "node": node, "tried": tried}
    sys.stdout.write("netdoctor-task " + json.dumps(said)[:900] + "\n")
    sys.stdout.flush()
    os._exit(NOT_REACHED)


def _connected(places: "list[list[Any]]", finish: float, tried: "dict[str, str]") -> "Any":
    """Yield (place, socket) of each place that answers, all dialled at once. tried: why others do not."""
    pending = {}
    for address, port in places:
        place = "%s port %d" % (address, port)
        tried[place] = "no answer"
        one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        one.setblocking(False)
        code = one.connect_ex((address, port))
        if code in (0, errno.EINPROGRESS):
            pending[one] = place
        else:
            tried[place] = os.strerror(code)
            one.close()
    while pending:
        _, ready, _ = select.select([], list(pending), [], max(0.0, finish - time.monotonic()))
        if not ready:
            break
        for one in ready:
            place = pending.pop(one)
            code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                tried[place] = os.strerror(code)
                one.close()
            else:
                yield place, one
    for one in pending:
        one.close()


def _introduce(connection: socket.socket, node: str, secret: str, finish: float) -> None:
    """Show that we know the secret, once the other side has. Raises Refused, OSError or ValueError."""
    connection.settimeout(max(0.1, finish - time.monotonic()))
    mine = os.urandom(16).hex()
    connection.sendall(("netdoctor-task %s %s\n" % (node, mine)).encode("utf-8"))
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_BYTES:
        more = connection.recv(1)  # not a byte of what follows
        if not more:
            raise Refused("the connection was closed")
        line += more
    theirs, _, shown = line.decode("ascii").strip().partition(" ")
    if not hmac.compare_digest(shown, proof(secret, "control", node, mine, theirs)):
        raise Refused("somebody else answers there")
    connection.sendall((proof(secret, "task", node, mine, theirs) + "\n").encode("ascii"))
