"""Call the control host, where nothing carries stdin and stdout: one connection stands for both of them.

Whoever started this task gave it a secret on stdin. Each side proves to the other that it has the secret, and
neither sends it: anybody may answer on a port, and anybody may connect.

    task:     netdoctor-task NODE NONCE
    control:  NONCE PROOF         of "control NODE NONCE(task) NONCE(control)"
    task:     PROOF               of "task NODE NONCE(task) NONCE(control)"
    control:  in, or why not, and a PROOF of that

A task that is shown another secret says so, and leaves. What follows comes in records, each with an HMAC over
its number and its bytes, under a key of the secret, both nonces and the direction: who has no secret can pass
records on and hold them back, and nothing else. The first that does not fit ends the connection. Nothing is
encrypted.
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
ALTERED = 79  # what came was not sent by whoever has the secret
# A record is the number of its bytes, an HMAC, and so many bytes at most.
SIZE_BYTES, MAC_BYTES, RECORD_BYTES = 4, 32, 1 << 16
# What no record looks like tells the other side that something on the way is not to be trusted.
NO_RECORD = bytes(SIZE_BYTES + MAC_BYTES)


class Refused(Exception):
    """The other side does not have our secret."""


class NotLetIn(Exception):
    """The control host does not want this task. args: the endpoint, and why."""


class Altered(Exception):
    """What came is not what the other side has sent."""


class Signer(object):
    """One direction of a connection, at one of its ends: bytes become records, or records bytes."""

    def __init__(self, side: str, secret: str, *words: str) -> None:
        """side: who sends, task or control. words: the node, the task's nonce, the control host's."""
        key = proof(secret, side + "-sends", *words).encode("ascii")
        self.empty, self.count, self.received = hmac.new(key, b"", hashlib.sha256), 0, bytearray()

    def mac(self, body: bytes) -> bytes:
        """Return the HMAC of the next record."""
        self.count += 1
        found = self.empty.copy()
        found.update(b"%d " % self.count)
        found.update(body)
        return found.digest()

    def records(self, data: bytes) -> bytes:
        """Return these bytes as the next records."""
        parts = []
        for start in range(0, len(data), RECORD_BYTES):
            body = data[start : start + RECORD_BYTES]
            parts += [len(body).to_bytes(SIZE_BYTES, "big"), self.mac(body), body]
        return b"".join(parts)

    def feed(self, data: bytes) -> bytes:
        """Take what has come, and return the bytes of records that are whole by now. Raises Altered."""
        self.received += data
        parts = []
        while len(self.received) >= len(NO_RECORD):
            size = int.from_bytes(self.received[:SIZE_BYTES], "big")
            end = len(NO_RECORD) + size
            if size > RECORD_BYTES:
                raise Altered
            if len(self.received) < end:
                break
            body = bytes(self.received[len(NO_RECORD) : end])
            if not hmac.compare_digest(self.mac(body), bytes(self.received[SIZE_BYTES : len(NO_RECORD)])):
                raise Altered
            del self.received[:end]
            parts.append(body)
        return b"".join(parts)


class Stream(object):
    """The signed connection, in place of stdin and stdout."""

    def __init__(self, connection: socket.socket, incoming: Signer, outgoing: Signer) -> None:
        self.connection, self.incoming, self.outgoing = connection, incoming, outgoing
        self.received = bytearray()

    def read(self, size: int) -> bytes:
        """Return so many bytes, or what there is before the end. Raises SystemExit(ALTERED), OSError."""
        while len(self.received) < size:
            data = self.connection.recv(RECORD_BYTES)
            if not data:
                break
            try:
                self.received += self.incoming.feed(data)
            except Altered:
                try:
                    self.connection.send(NO_RECORD, socket.MSG_DONTWAIT)
                except OSError:  # it does not read, or is gone
                    pass
                sys.exit(ALTERED)
        found = bytes(self.received[:size])
        del self.received[:size]
        return found

    def write(self, data: bytes) -> int:
        """Send all of it, from one thread at a time. Raises OSError."""
        self.connection.sendall(self.outgoing.records(data))
        return len(data)


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

    def enter(self, finish: float) -> Stream:
        """Prove that we have the secret, and wait. Raises NotLetIn, Refused, OSError, ValueError."""
        words = (self.node, self.nonce, self.peer_nonce)
        self.connection.sendall((proof(self.secret, "task", *words) + "\n").encode("ascii"))
        line = ""
        while not line:
            self.connection.settimeout(max(0.1, finish - time.monotonic()))
            line = self.hear()
        answer, _, digest = line.rpartition(" ")
        if not hmac.compare_digest(digest, proof(self.secret, "answer", *words, answer)):
            raise Refused("somebody on the way changed the answer that came from there")
        if answer != LET_IN:
            raise NotLetIn(self.endpoint, answer)
        self.connection.setblocking(True)
        signers = [Signer(side, self.secret, *words) for side in ("control", "task")]
        return Stream(self.connection, *signers)


def proof(secret: str, *words: str) -> str:
    """Return hex digits that prove knowledge of `secret`."""
    return hmac.new(secret.encode("ascii"), " ".join(words).encode("utf-8"), hashlib.sha256).hexdigest()


def call(dial: "dict[str, Any]", marker: str) -> Stream:
    """Return a connection to the first endpoint that proves that it knows the secret.

    dial: places [[address, port], …], secret, node_from (variables that may name this node), within_s. Where
    none is reached, one line on stdout says why, and the process ends.
    """
    names = [os.environ.get(name, "") for name in dial["node_from"]]
    node = next((name for name in names if name), os.uname().nodename)
    tried, code = {}, NOT_REACHED  # type: dict[str, str], int
    try:
        stream = connect(dial["places"], node, dial["secret"], dial["within_s"], tried)
    except NotLetIn as e:
        stream, tried, code = None, dict([e.args]), NOT_LET_IN
    if stream is None:
        report = {"marker": marker, "node": node, "tried": tried}
        sys.stdout.write("netdoctor-task " + json.dumps(report)[:900] + "\n")
        sys.stdout.flush()
        os._exit(code)
    stream.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def connect(
    endpoints: "list[list[Any]]", node: str, secret: str, within_s: float, tried: "dict[str, str]"
) -> "Stream | None":
    """Return a connection that has let us in. tried: why others do not. Raises NotLetIn."""
    finish = time.monotonic() + within_s
    session = first_proven(endpoints, node, secret, finish, tried)
    if session is None:
        return None
    try:
        return session.enter(finish)
    except (OSError, ValueError, Refused) as e:
        tried[session.endpoint] = str(e) or type(e).__name__
        session.connection.close()
        return None


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
