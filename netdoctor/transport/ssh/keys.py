"""The keys to offer: each file read once, each agent asked once. Runs inside a worker process only."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import paramiko
from gevent import Timeout
from gevent.lock import RLock
from gevent.queue import LifoQueue
from paramiko.agent import AgentSSH

from netdoctor.files import read_regular
from netdoctor.inventory.names import printable
from netdoctor.transport import here
from netdoctor.transport.ssh.messages import Endpoint

AGENT_TIMEOUT_S = 5.0
CONNECTIONS_PER_AGENT = 16
KEY_BYTES_MAX = 1 << 20
ATTEMPTS_MAX = 5  # sshd's MaxAuthTries is 6 by default, and one is left for the user's own mistakes


@dataclass(frozen=True, slots=True)
class Identity:
    """A key that can sign. label: what the user calls it."""

    label: str
    key: Any


@dataclass(slots=True)
class Identities:
    """What can be offered to a server, and why some of what was named cannot."""

    usable: list[Identity] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class NotSigned(paramiko.SSHException):  # type: ignore[misc]  # paramiko has no types
    """An agent made no signature: locked, asked and denied, restricted to other hosts, or gone."""


class AgentConnection(AgentSSH):  # type: ignore[misc]  # paramiko has no types
    """A connection to an SSH agent, with the keys that it has. Raises what sockets and paramiko raise."""

    def __init__(self, path: str) -> None:
        super().__init__()
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
            self._connect(sock)
        except BaseException:
            sock.close()
            raise

    def sign(self, public: bytes, data: bytes, algorithm: str | None) -> Any:
        key = next((key for key in self.get_keys() if key.asbytes() == public), None)
        if key is None:
            raise paramiko.SSHException("the SSH agent has given the key away")
        return key.sign_ssh_data(data, algorithm)


class AgentQueue:
    """Signatures of one SSH agent, some beside each other.

    A forwarded agent is as far away as its user: one connection would take that long for each node in turn.
    owed: signatures that logins wait for.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._open = 0
        # A connection that nobody uses, those used last first; None: room for another one.
        self._turns: LifoQueue[AgentConnection | None] = LifoQueue()
        for _ in range(CONNECTIONS_PER_AGENT):
            self._turns.put(None)
        self.owed = 0

    def keys(self) -> tuple[Any, ...]:
        with self._turn() as connection:
            return tuple(connection.get_keys())

    def sign(self, public: bytes, data: bytes, algorithm: str | None) -> Any:
        """Return a signature. Raises NotSigned."""
        self.owed += 1
        try:
            with self._turn() as connection:
                return connection.sign(public, data, algorithm)
        except Exception as e:  # paramiko lets socket, struct and its own errors through
            raise NotSigned(printable(str(e), 100) or type(e).__name__) from e
        finally:
            self.owed -= 1

    @contextlib.contextmanager
    def _turn(self) -> Iterator[AgentConnection]:
        connection = self._take()
        try:
            yield connection
        except BaseException:  # an answer may still be on its way, and would be taken for the next one's
            connection._close()
            self._open -= 1
            self._turns.put(None)
            raise
        self._turns.put(connection)

    def _take(self) -> AgentConnection:
        while True:
            free: AgentConnection | None = self._turns.get()
            if free is not None:
                return free
            try:
                opened = AgentConnection(self.path)
            except BaseException as e:
                if self._open and isinstance(e, Exception):  # it takes no more than those
                    continue
                self._turns.put(None)
                raise
            self._open += 1
            return opened


class AgentSignature(paramiko.PKey):  # type: ignore[misc]  # paramiko has no types
    """A key of the SSH agent."""

    def __init__(self, key: Any, agent: AgentQueue) -> None:
        self._key = key
        self._agent = agent
        self.public_blob = None

    def get_name(self) -> str:
        return str(self._key.get_name())

    def asbytes(self) -> bytes:
        return bytes(self._key.asbytes())

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> Any:
        return self._agent.sign(self.asbytes(), data, algorithm)


class KeyRing:
    """Loads keys for endpoints; all endpoints with the same settings share one answer."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._files: dict[str, list[Identity] | str] = {}
        self._agents: dict[str, Identities] = {}
        self._queues: dict[str, AgentQueue] = {}
        self._answers: dict[tuple[Any, ...], Identities] = {}

    def identities(self, endpoint: Endpoint) -> Identities:
        """Return what to offer, best first."""
        settings = (endpoint.keys, endpoint.certificates, endpoint.agent, endpoint.keys_only)
        with self._lock:
            if settings not in self._answers:
                self._answers[settings] = self._collect(endpoint)
            return self._answers[settings]

    def owed(self) -> int:
        """Return how many signatures agents are still waited for."""
        return sum(queue.owed for queue in self._queues.values())

    def _collect(self, endpoint: Endpoint) -> Identities:
        found = Identities()
        chosen: list[Identity] = []
        agent: list[Identity] | None = None
        for path in endpoint.keys:
            loaded = self._file(path, endpoint.certificates)
            if isinstance(loaded, list):
                chosen += loaded
                continue
            # The agent may hold what the file alone does not give.
            public = _public_blob(path)
            if public is not None and endpoint.agent:
                if agent is None:
                    agent = self._agent(endpoint.agent, found)
                same = [i for i in agent if i.key.asbytes() == public]
                if same:
                    chosen += same
                    continue
            found.faults.append(f"{printable(path, 200)}: {loaded}")
        others: list[Identity] = []
        if endpoint.agent and not endpoint.keys_only:
            others = self._agent(endpoint.agent, found) if agent is None else agent
        # Keys that someone named come first; defaults come after the agent's.
        ordered = chosen + others if endpoint.keys_named else others + chosen
        marks: set[tuple[bytes, bool]] = set()
        for identity in ordered:
            mark = (identity.key.asbytes(), getattr(identity.key, "public_blob", None) is not None)
            if mark not in marks:
                marks.add(mark)
                found.usable.append(identity)
        return found

    def _agent(self, path: str, found: Identities) -> list[Identity]:
        if path not in self._agents:
            self._queues[path] = AgentQueue(path)
            self._agents[path] = _ask_agent(self._queues[path])
        answer = self._agents[path]
        found.faults += [fault for fault in answer.faults if fault not in found.faults]
        return answer.usable

    def _file(self, path: str, certificates: tuple[str, ...]) -> list[Identity] | str:
        if path not in self._files:
            self._files[path] = _load(path, certificates)
        return self._files[path]


LOCKED = "encrypted, and no agent holds it: run ssh-add"


def _load(path: str, certificates: tuple[str, ...]) -> list[Identity] | str:
    """Return the identities in a private key file, or why there are none."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            return "not a file"
        if info.st_uid == os.getuid() and info.st_mode & 0o077:
            # OpenSSH ignores such a key, and so the launch that follows would fail with it.
            return f"permissions {stat.S_IMODE(info.st_mode):04o} are too open: chmod 600"
        if info.st_size > KEY_BYTES_MAX:
            return "not a private key (too large)"
        key = paramiko.PKey.from_path(path)
    except OSError as e:
        return f"not readable: {here.denied(path) or e.strerror}"
    except paramiko.PasswordRequiredException:
        return LOCKED
    except TypeError as e:
        # cryptography's way to say that a password is needed.
        return LOCKED if "password" in str(e).lower() else "not a private key"
    except paramiko.UnknownKeyType:
        return "a type of key that is not supported here"
    except Exception as e:  # parsers of several libraries, with errors of their own
        return f"not a private key that can be read ({type(e).__name__})"
    label = printable(path, 200)
    plain = Identity(label, key)
    found = []
    if getattr(key, "public_blob", None) is not None:
        found.append(Identity(label + "-cert.pub", key))
        plain = Identity(label, type(key).from_private_key_file(path))
    for certificate in certificates:
        try:
            twin = type(key).from_private_key_file(path)
            twin.load_certificate(certificate)
        except Exception:  # noqa: S112  # a certificate of another key: nothing to offer with this one
            continue
        found.append(Identity(printable(certificate, 200), twin))
    return [*found, plain]


def _public_blob(path: str) -> bytes | None:
    """Return the key in `path`.pub, or in `path` itself when that is a public key."""
    for candidate in (path + ".pub", path):
        try:
            fields = read_regular(candidate, KEY_BYTES_MAX).split()
            if len(fields) >= 2 and fields[1].startswith(b"AAAA"):
                import base64

                return base64.b64decode(fields[1])
        except (OSError, ValueError):
            continue
    return None


def _ask_agent(agent: AgentQueue) -> Identities:
    """Return the agent's keys, or why there are none."""
    path = agent.path
    where = f"SSH agent at {printable(path, 100)}"
    fault = _no_agent(path)
    if fault is not None:
        return Identities(faults=[f"{where}: {fault}"])
    try:
        with Timeout(AGENT_TIMEOUT_S):
            keys = agent.keys()
    except Timeout:
        return Identities(faults=[f"{where}: no answer"])
    except Exception as e:  # paramiko lets socket, struct and its own errors through
        return Identities(faults=[f"{where}: {_hung_up(path) or type(e).__name__}"])
    found = Identities()
    for key in keys:
        label = f"agent key {printable(key.comment or key.get_name(), 60)}"
        if key.get_name().startswith("sk-"):
            found.faults.append(f"{label}: a security key, which asks to be touched for each node")
        else:
            found.usable.append(Identity(label, AgentSignature(key, agent)))
    return found


def _no_agent(path: str) -> str | None:
    """Return why nobody can be asked at a socket: paramiko takes that for an agent without keys."""
    barred = here.denied(path, os.R_OK | os.W_OK)
    if barred is not None:
        return barred
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.settimeout(AGENT_TIMEOUT_S)
            sock.connect(path)
        except FileNotFoundError:
            return "there is no socket; in a container it has to be mounted"
        except OSError as e:
            return str(e.strerror or e).lower()
    return None


def _hung_up(path: str) -> str | None:
    """Return why an agent ended the conversation: ssh-agent.c talks to its own user and to root alone."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return None
    if os.geteuid() in (owner, 0):
        return None
    return f"it answers uid {owner} alone, and netdoctor runs as uid {os.geteuid()}"
