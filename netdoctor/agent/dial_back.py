"""Call the control host, where nothing carries stdin and stdout: one connection becomes both of them.

Whoever started this task gave it a secret on stdin. Each side proves to the other that it has the secret, and
neither sends it: anybody may answer on a port, and anybody may connect.

    task:     netdoctor-task NODE NONCE
    control:  NONCE PROOF         of "control NODE NONCE(task) NONCE(control)"
    task:     PROOF               of "task NODE NONCE(task) NONCE(control)"
    control:  in, or why not

A task that is shown another secret says so, and leaves.
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
LET_IN = "in"
OTHER_SECRET = b"another secret\n"
NOT_REACHED = 75  # EX_TEMPFAIL of sysexits.h
NOT_LET_IN = 77  # EX_NOPERM: by whoever has the secret and says why


class Refused(Exception):
    """The other side does not have our secret."""


class NotLetIn(Exception):
    """The control host does not want this task. args: the endpoint, and why."""


class Session:
    """A connection on which both sides prove that they have the secret."""

    def __init__(self, endpoint: str, connection: socket.socket, node: str, secret: str) -> None:
        """Raises OSError."""
        self.endpoint, self.connection, self.node, self.secret = endpoint, connection, node, secret
        self.nonce, self.peer_nonce, self.line = os.urandom(16).hex(), "", b""
        connection.setblocking(True)  # short lines; select says when there is something to read
        connection.sendall(("netdoctor-task %s %s\n" % (node, self.nonce)).encode("utf-8"))

    def hear(self) -> str:
        """Read one byte, and return the line that it ends. Raises Refused, OSError, ValueError."""
        more = self.connection.recv(1)
        if not more or len(self.line) > LINE_BYTES:
            raise Refused("the connection was closed" if not more else "somebody else answers there")
        self.line += more
        if more != b"\n":
            return ""
        line, self.line = self.line.decode("ascii").strip(), b""
        return line

    def believe(self, line: str) -> None:
        """Check the other side's proof. Raises Refused, OSError."""
        self.peer_nonce, _, digest = line.partition(" ")
        if not hmac.compare_digest(
            digest, proof(self.secret, "control", self.node, self.nonce, self.peer_nonce)
        ):
            self.connection.sendall(OTHER_SECRET)
            raise Refused("somebody else answers there, or has another secret")

    def enter(self, finish: float) -> None:
        """Prove that we have the secret, and wait. Raises NotLetIn, Refused, OSError, ValueError."""
        answer = proof(self.secret, "task", self.node, self.nonce, self.peer_nonce)
        self.connection.sendall((answer + "\n").encode("ascii"))
        line = ""
        while not line:
            self.connection.settimeout(max(0.1, finish - time.monotonic()))
            line = self.hear()
        if line != LET_IN:
            raise NotLetIn(self.endpoint, line)
        self.connection.setblocking(True)


def proof(secret: str, *words: str) -> str:
    """Return hex digits that prove knowledge of `secret`."""
    return hmac.new(secret.encode("ascii"), " ".join(words).encode("utf-8"), hashlib.sha256).hexdigest()


def call(dial: "dict[str, Any]", marker: str) -> None:
    """Make stdin and stdout a connection to the first endpoint that proves that it knows the secret.

    dial: places [[address, port], …], secret, node_from (variables that may name this node), within_s. Where
    none is reached, one line on stdout says why, and the process ends.
    """
    names = [os.environ.get(name, "") for name in dial["node_from"]]
    node = next((name for name in names if name), os.uname().nodename)
    tried, code = {}, NOT_REACHED  # type: dict[str, str], int
    try:
        connection = connect(dial["places"], node, dial["secret"], dial["within_s"], tried)
    except NotLetIn as e:
        connection, tried, code = None, dict([e.args]), NOT_LET_IN
    if connection is None:
        report = {"marker": marker, "node": node, "tried": tried}
        sys.stdout.write("netdoctor-task " + json.dumps(report)[:900] + "\n")
        sys.stdout.flush()
        os._exit(code)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in (0, 1):
        os.dup2(connection.fileno(), number)
    connection.close()


def connect(
    endpoints: "list[list[Any]]", node: str, secret: str, within_s: float, tried: "dict[str, str]"
) -> "socket.socket | None":
    """Return a connection that has let us in. tried: why others do not. Raises NotLetIn."""
    finish = time.monotonic() + within_s
    session = first_proven(endpoints, node, secret, finish, tried)
    if session is None:
        return None
    try:
        session.enter(finish)
    except (OSError, ValueError, Refused) as e:
        tried[session.endpoint] = str(e) or type(e).__name__
        session.connection.close()
        return None
    return session.connection


def first_proven(
    endpoints: "list[list[Any]]", node: str, secret: str, finish: float, tried: "dict[str, str]"
) -> "Session | None":
    """Return the first session whose other side proves that it has the secret. All are tried at once.

    Only to that one do we prove it in return: the others may be other addresses of it.
    """
    pending = start_dialling(endpoints, tried)
    sessions = {}  # type: dict[socket.socket, Session]
    try:
        while pending or sessions:
            left = max(0.0, finish - time.monotonic())
            readable, writable, _ = select.select(list(sessions), list(pending), [], left)
            if not (readable or writable):
                break
            for one in writable + readable:
                endpoint = pending.pop(one, "") or sessions[one].endpoint
                try:
                    if one not in sessions:
                        code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                        if code:
                            raise Refused(os.strerror(code))
                        tried[endpoint] = "it does not say who it is"
                        sessions[one] = Session(endpoint, one, node, secret)
                        continue
                    line = sessions[one].hear()
                    if line:
                        sessions[one].believe(line)
                        return sessions.pop(one)
                except (OSError, ValueError, Refused) as e:
                    tried[endpoint] = str(e) or type(e).__name__
                    sessions.pop(one, None)
                    one.close()
        return None
    finally:
        for one in [*pending, *sessions]:
            one.close()


def start_dialling(endpoints: "list[list[Any]]", tried: "dict[str, str]") -> "dict[socket.socket, str]":
    """Return a socket that connects to each endpoint. tried: why others do not."""
    pending = {}
    for address, port in endpoints:
        endpoint = "%s port %d" % (address, port)
        tried[endpoint] = "no answer"
        one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        one.setblocking(False)
        code = one.connect_ex((address, port))
        if code in (0, errno.EINPROGRESS):
            pending[one] = endpoint
        else:
            tried[endpoint] = os.strerror(code)
            one.close()
    return pending
