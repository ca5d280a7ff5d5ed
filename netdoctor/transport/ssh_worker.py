"""A worker process: logs in to its share of the nodes and carries requests to their agents.

Speaks with the main process over stdin and stdout (`messages`). Ends, and with it every connection and so every agent,
when stdin ends: nothing is left when the main process is killed. gevent replaces sockets and threads before anything
else is imported, and only here.
"""

from gevent import monkey

monkey.patch_all(ssl=False)

import contextlib  # noqa: E402
import errno  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import ipaddress  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import socket  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
from collections import defaultdict, deque  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

import fabric  # noqa: E402
import gevent  # noqa: E402
import gevent.os  # noqa: E402
import msgspec  # noqa: E402
import paramiko  # noqa: E402
from gevent.event import AsyncResult, Event  # noqa: E402
from gevent.lock import BoundedSemaphore, RLock  # noqa: E402

from netdoctor.agent import bootstrap  # noqa: E402
from netdoctor.facts.base import Why  # noqa: E402
from netdoctor.facts.host import Session  # noqa: E402
from netdoctor.text import clean  # noqa: E402
from netdoctor.transport import frames  # noqa: E402
from netdoctor.transport.keys import ATTEMPTS_MAX, Identities, KeyRing  # noqa: E402
from netdoctor.transport.knownhosts import HostKey, Known, KnownHosts  # noqa: E402
from netdoctor.transport.link import NodeTransport, Verify, Wire, key_algorithms, no_delay  # noqa: E402
from netdoctor.transport.messages import (  # noqa: E402
    Answer,
    Call,
    Ended,
    Endpoint,
    FromWorker,
    NodePlan,
    Note,
    Splitter,
    Start,
    ToWorker,
    WireRequest,
    framed,
)

HANDSHAKES_PER_ENDPOINT = 8  # below sshd's MaxStartups 10:30:100
HANDSHAKES_PER_JUMP = 16
STDERR_KEPT_BYTES = 4096
STDERR_LOOK_S = 1.0
FDS_RESERVED = 16
LOOKUP_THREADS = 64

# Words of OpenSSH that mean "not now": sshd.c, srclimit.c.
BUSY_WORDS = ("Exceeded MaxStartups", "Not allowed at this time", "Too many")
CONTROL_ERRNOS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EACCES}
    | {errno.EPERM, errno.EAFNOSUPPORT, errno.EADDRINUSE}
)
UNREACHABLE_ERRNOS = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


class Failed(Exception):
    """A login ended badly: failure class of `Session.outcome`, and one line about it."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class Lost(Exception):
    """The channel to an agent ended."""


@dataclass(slots=True)
class Record:
    """What is known about a login while it goes on."""

    endpoint: Endpoint
    interpreter: str = ""
    stage: str = "resolve"
    address: str | None = None
    via: str | None = None
    server_version: str | None = None
    fingerprint: str | None = None
    key_type: str | None = None
    known_hosts: str | None = None
    python_version: str | None = None
    login_ms: float | None = None
    first_byte_ms: float | None = None
    noise: str = ""

    def session(self, outcome: str, detail: str = "") -> Session:
        return Session(
            outcome=outcome,
            stage=self.stage,
            detail=clean(detail, 400),
            address=self.address,
            port=self.endpoint.port,
            user=self.endpoint.user,
            via=self.via,
            server_version=self.server_version,
            fingerprint=self.fingerprint,
            key_type=self.key_type,
            known_hosts=self.known_hosts,
            interpreter=self.interpreter,
            python_version=self.python_version,
            login_ms=self.login_ms,
            first_byte_ms=self.first_byte_ms,
            noise=self.noise,
        )


class NoSshConfig(paramiko.SSHConfig):  # type: ignore[misc]  # paramiko has no types
    """Tells Fabric nothing: endpoints come resolved, and paramiko's reader is not trusted (see `sshconfig`)."""

    def lookup(self, hostname: str) -> Any:
        return paramiko.SSHConfigDict()


class OfferKeys:
    """Offers keys, one attempt each; never a password, never a prompt."""

    def __init__(self, user: str, identities: Identities, record: Record) -> None:
        self._user = user
        self._identities = identities
        self._record = record

    def authenticate(self, transport: NodeTransport) -> list[str]:
        self._record.stage = "auth"
        found = self._identities
        if not found.usable:
            self._nothing_to_offer()
        offered: list[str] = []
        methods: list[str] = []
        for identity in found.usable[:ATTEMPTS_MAX]:
            offered.append(identity.label)
            try:
                more = transport.auth_publickey(self._user, identity.key)
            except paramiko.BadAuthenticationType as e:
                methods = list(e.allowed_types)
                break
            except paramiko.AuthenticationException as e:
                if not transport.is_active():
                    words = transport.last_words
                    if "authentication failures" in words:
                        break
                    raise Failed(
                        "lost",
                        "the server closed the connection during authentication"
                        + (f": {words}" if words else ""),
                    ) from e
                continue
            if not more:
                return []
            methods = list(more)
            raise Failed(
                "auth",
                f"the key {identity.label} was accepted, and the server asks for more: {', '.join(methods)}",
            )
        detail = f"user {self._user} was refused with " + ", ".join(offered)
        if methods:
            detail = f"the server takes no keys for user {self._user}, only {', '.join(methods)}"
        left_out = found.locked + found.faults
        if left_out:
            detail += "; not offered: " + "; ".join(left_out)
        elif len(found.usable) > ATTEMPTS_MAX:
            detail += f"; {len(found.usable) - ATTEMPTS_MAX} more keys were not tried"
        raise Failed("auth", detail)

    def _nothing_to_offer(self) -> NoReturn:
        found = self._identities
        if found.locked:
            raise Failed("auth", "no usable key: " + "; ".join(found.locked + found.faults))
        if found.faults:
            raise Failed("control", "no usable key: " + "; ".join(found.faults))
        raise Failed("auth", "no key to offer: ssh config names none, no default key, no agent")


class AgentLink:
    """An agent at the other end of a channel: requests go out, frames come back."""

    def __init__(self, connection: Any, transport: NodeTransport, wire: Wire, marker: str) -> None:
        self._connection = connection
        self._transport = transport
        self.wire = wire
        self._channel: Any = None
        self._reader = frames.FrameReader(marker)
        self._payloads: deque[bytes] = deque()
        self._stderr = bytearray()
        self._number = 0
        self._sending = False
        self.broken = ""
        self.lock = RLock()

    def start(self, command: str, first: bytes, record: Record) -> frames.Hello:
        """Run the command and return the agent's hello. Raises Failed."""
        try:
            record.stage = "channel"
            self._channel = self._connection.create_session()
            record.stage = "shell"
            self._channel.settimeout(STDERR_LOOK_S)
            self._channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as e:
            if not self._transport.is_active():
                raise Failed("lost", self._gone()) from e
            what = "open a session" if record.stage == "channel" else "run a command"
            raise Failed("shell", f"the server refuses to {what}: {e}") from e
        sent = time.monotonic()
        try:
            self.send(first)
            while True:
                frame = self.next_frame()
                if frame.hello is not None:
                    break
        except Lost as e:
            raise self._no_agent() from e
        except frames.AgentTrouble as e:
            raise Failed("shell", f"the agent did not start: {e}") from e
        finally:
            record.noise = self._reader.noise
        record.stage = "agent"
        record.first_byte_ms = (time.monotonic() - sent) * 1e3
        return frame.hello

    def _gone(self) -> str:
        words = self._transport.last_words
        return "the connection was cut" + (f": {words}" if words else "")

    def _no_agent(self) -> Failed:
        """Say why a channel ended before the agent spoke."""
        if self._channel.closed or self._transport.is_active():
            # The exit status may come after the end of output.
            self._channel.status_event.wait(1.0)
        if not self._transport.is_active() and not self._channel.exit_status_ready():
            return Failed("lost", self._gone())
        status = self._channel.exit_status
        errors = clean(bytes(self._stderr), 200)
        said = errors or self._reader.tail
        if status in (126, 127) or (status == 1 and "not found" in errors.lower()):
            return Failed("interpreter", said or f"the shell ended with status {status}")
        if status < 0:
            if not self._transport.is_active():
                return Failed("lost", self._gone())
            how = "was killed or gave no status"
        else:
            how = f"ended with status {status}"
        return Failed(
            "shell", f"the login shell {how} before the agent spoke" + (f": {said}" if said else "")
        )

    @property
    def silence(self) -> str:
        """What was printed instead of a frame so far."""
        return clean(bytes(self._stderr), 200) or self._reader.tail

    def send(self, data: bytes) -> None:
        """Send all of it. Raises Lost."""
        self._sending = True
        try:
            self._channel.sendall(data)
        except (OSError, EOFError, paramiko.SSHException) as e:
            # What the agent said before it ended is still there to be read.
            self.broken = self._gone()
            if not self._channel.closed and not self._channel.eof_received:
                raise Lost(self.broken) from e
        self._sending = False

    def next_frame(self) -> frames.Frame:
        """Return the next message. Raises Lost and AgentTrouble."""
        while not self._payloads:
            try:
                data = self._channel.recv(1 << 18)
            except TimeoutError:
                self._drain()
                continue
            self._drain()
            if not data:
                self.broken = self._gone() if not self._transport.is_active() else "the agent ended"
                raise Lost(self.broken)
            self._payloads.extend(self._reader.feed(data))
        return frames.decode_frame(self._payloads.popleft())

    def _drain(self) -> None:
        """Empty stderr, which shares the channel's window with stdout: left alone, it stalls the agent."""
        while self._channel.recv_stderr_ready():
            data = self._channel.recv_stderr(1 << 16)
            if not data:
                return
            self._stderr += data
            del self._stderr[:-STDERR_KEPT_BYTES]

    def frame_for(self, op: str, args: bytes) -> bytes:
        """Return the next request as bytes; its answer is what `answer` waits for."""
        self._number += 1
        return frames.request_frame(self._number, op, args)

    def answer(self, provide: Callable[[str], bytes]) -> frames.Frame:
        """Return the reply to the last request, providing what the agent asks for meanwhile."""
        while True:
            frame = self.next_frame()
            if frame.need is not None:
                self.send(provide(frame.need))
            elif frame.id == self._number:
                return frame
            elif frame.id is None and frame.hello is None:
                raise frames.AgentTrouble(f"the agent gave up: {clean(frame.detail, 200)}")

    def call(self, op: str, args: bytes, provide: Callable[[str], bytes]) -> frames.Frame:
        """Send a request and return its reply."""
        self.usable()
        self.send(self.frame_for(op, args))
        return self.answer(provide)

    def usable(self) -> None:
        """Raise Lost when there is no use in sending."""
        if self._sending and not self.broken:
            self.broken = "a request was cut short"
        if not self.broken and not self._transport.is_active():
            self.broken = self._gone()
        if self.broken:
            raise Lost(self.broken)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()
        self.wire.close()


class Ping(msgspec.Struct):
    """An agent's reply to ``ping``: its wall clock, seconds."""

    recv_s: float
    send_s: float


@dataclass(slots=True)
class Hop:
    """A way through jump hosts that several nodes share."""

    result: AsyncResult = field(default_factory=AsyncResult)
    slots: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(HANDSHAKES_PER_JUMP))


class Worker:
    """All nodes of this process."""

    def __init__(self, start: Start, bundle: bytes, emit: Callable[[FromWorker], None]) -> None:
        self._start = start
        self._bundle = bundle
        self._emit = emit
        self._config = fabric.Config(ssh_config=NoSshConfig(), lazy=True)
        self._ring = KeyRing()
        self._known = KnownHosts()
        self._told = 0
        self._links: dict[int, AgentLink] = {}
        self._wires: set[Wire] = set()
        self._proxies: set[Any] = set()
        self._lookups: dict[tuple[str, int], AsyncResult] = {}
        self._hops: dict[tuple[Endpoint, ...], Hop] = {}
        self._endpoint_slots: dict[tuple[str, int], BoundedSemaphore] = defaultdict(
            lambda: BoundedSemaphore(HANDSHAKES_PER_ENDPOINT)
        )
        self._slots = BoundedSemaphore(self._room())
        self._clock_slots = BoundedSemaphore(start.clock_parallel)
        self._library: dict[str, bytes] = {}

    def _room(self) -> int:
        """Return how many logins may go on at once."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 16
        each = 3 if any(plan.endpoint.proxy for plan in self._start.nodes) else 1
        room = (soft - used - FDS_RESERVED) // each
        return max(1, min(self._start.parallel, room))

    # Nodes

    def run(self) -> None:
        """Log in everywhere; returns at once."""
        for index, plan in enumerate(self._start.nodes):
            gevent.spawn(self._node, index, plan)

    def _node(self, index: int, plan: NodePlan) -> None:
        record = Record(plan.endpoint, plan.python)
        link: AgentLink | None = None
        told = False
        try:
            with self._way(plan.endpoint, record) as through, self._slots:
                began = time.monotonic()
                budget = gevent.Timeout(self._start.node_budget_s)
                request = self._start.requests[plan.first]
                with budget:
                    link, pending = self._login(plan, record, through, request)
                    self._links[index] = link
                    self._emit(Ended(index, time.monotonic(), record.session("ok")))
                    told = True
                    if not self._start.keep_open:
                        self._reply(index, 0, link, request, began, pending=pending)
            if self._start.keep_open:
                # Outside the slots: what the agents do costs this machine nothing.
                left = began + self._start.node_budget_s - time.monotonic()
                request = msgspec.structs.replace(request, timeout_s=min(request.timeout_s, max(left, 0.1)))
                self._reply(index, 0, link, request, began, pending=pending)
        except Failed as e:
            self._emit(Ended(index, time.monotonic(), record.session(e.outcome, e.detail)))
        except gevent.Timeout:
            if told:
                self._missing(index, 0, began, Why.TIMED_OUT, self._over_budget())
            else:
                self._emit(Ended(index, time.monotonic(), self._too_slow(record, link)))
        except Exception as e:  # one node's surprise must not cost the others
            detail = f"netdoctor's own worker: {type(e).__name__}: {e}"
            if told:
                self._missing(index, 0, began, Why.FAILED, detail)
            else:
                self._emit(Ended(index, time.monotonic(), record.session("control", detail)))
        finally:
            if link is not None and (not told or not self._start.keep_open):
                self._links.pop(index, None)
                link.close()
            self._tell()

    def _over_budget(self) -> str:
        return f"not finished within the node's {self._start.node_budget_s:g} s"

    def _too_slow(self, record: Record, link: AgentLink | None) -> Session:
        return record.session("timeout", self._over_budget())

    @contextlib.contextmanager
    def _way(self, endpoint: Endpoint, record: Record) -> Iterator[Any]:
        """Wait for a place at the endpoint, and for the jump host if there is one. Raises Failed."""
        if endpoint.jump:
            record.via = ",".join(hop.name for hop in endpoint.jump)
            hop = self._hop(endpoint.jump)
            with hop.slots:
                yield self._through(hop, record)
        elif endpoint.proxy:
            record.via = clean(" ".join(endpoint.proxy), 80)
            yield None
        else:
            with self._endpoint_slots[endpoint.host, endpoint.port]:
                yield None

    def _login(
        self, plan: NodePlan, record: Record, through: Any, request: WireRequest
    ) -> tuple[AgentLink, bool]:
        """Return a link to a running agent, and whether the first request went with it. Raises Failed."""
        connection, wire = self._connect(plan.endpoint, record, through)
        link = AgentLink(connection, connection.transport, wire, self._start.marker)
        try:
            first = self._bundle
            pending = request.op != "clock"
            if pending:
                first += link.frame_for(request.op, bytes(request.args))
            hello = link.start(bootstrap.command(plan.python, self._start.marker), first, record)
            if hello.old_python is not None:
                record.python_version = clean(hello.old_python, 20)
                raise Failed(
                    "old_python",
                    f"{plan.python} is Python {record.python_version}, 3.6 or newer is needed",
                )
            record.python_version = clean(hello.python, 20)
        except gevent.Timeout as e:
            said = link.silence
            link.close()
            if record.stage == "shell" and said:
                raise Failed("shell", f"no agent within the node's budget; the shell printed: {said}") from e
            raise
        except BaseException:
            link.close()
            raise
        return link, pending

    # Connections

    def _connect(self, endpoint: Endpoint, record: Record, through: Any) -> tuple[Any, Wire]:
        """Return an authenticated Fabric connection and its wire. Raises Failed."""
        limit = gevent.Timeout(self._start.login_timeout_s)
        wire: Wire | None = None
        proxy: Proxy | None = None
        try:
            with limit:
                known = self._lookup_keys(endpoint)
                identities = self._ring.identities(endpoint)
                if through is not None:
                    record.stage = "connect"
                    began = time.monotonic()
                    wire = self._tunnel(endpoint, through)
                elif endpoint.proxy:
                    record.stage = "connect"
                    began = time.monotonic()
                    proxy = Proxy(endpoint.proxy)
                    self._proxies.add(proxy)
                    wire = Wire(proxy.sock)
                else:
                    addresses = self._resolve(endpoint)
                    record.stage = "connect"
                    began = time.monotonic()
                    wire = Wire(self._dial(endpoint, addresses, record))
                record.stage = "banner"
                connection = self._handshake(endpoint, record, wire, known, identities)
                record.login_ms = (time.monotonic() - began) * 1e3
                return connection, wire
        except gevent.Timeout as e:
            if wire is not None:
                wire.close()
            raise self._slow_login(record, wire, through) from e
        except BaseException as e:
            if wire is not None:
                wire.close()
            if proxy is not None:
                self._proxies.discard(proxy)
                proxy.kill()
                if isinstance(e, Failed) and record.stage in ("connect", "banner"):
                    said = proxy.said()
                    raise Failed("jump", f"the ProxyCommand gave no SSH server: {said or e.detail}") from e
            raise

    def _slow_login(self, record: Record, wire: Wire | None, through: Any) -> Failed:
        """Say what a login that took too long was waiting for."""
        seconds = f"{self._start.login_timeout_s:g} s"
        if through is not None and not through.is_active():
            return Failed("jump", "the connection to the jump host was lost")
        if record.stage == "resolve":
            return Failed("name", f"the name lookup did not end within {seconds}")
        if record.stage == "connect":
            return Failed("no_answer", f"no answer to the connection within {seconds}")
        if record.stage == "banner":
            if wire is not None and wire.prelude:
                return Failed("not_ssh", f"no SSH version line within {seconds}: {_first_line(wire)}")
            return Failed(
                "no_answer",
                f"the port is open, and nothing was said within {seconds} (server frozen or overloaded)",
            )
        if record.stage in ("kex", "host_key"):
            return Failed("kex", f"the key exchange did not end within {seconds}")
        return Failed("timeout", f"authentication did not end within {seconds}")

    def _handshake(
        self, endpoint: Endpoint, record: Record, wire: Wire, known: Known, identities: Identities
    ) -> Any:
        """Do the SSH handshake over a wire. Raises Failed."""
        types = [key.type for key in known.trusted or known.without_port]

        def transport(sock: Wire, **options: Any) -> NodeTransport:
            return NodeTransport(sock, key_algorithms(types), **options)

        def judge(kind: str, blob: bytes) -> None:
            record.stage = "host_key"
            self._judge(endpoint, record, known, HostKey(kind, blob))

        connection = fabric.Connection(
            endpoint.host,
            user=endpoint.user,
            port=endpoint.port,
            config=self._config,
            gateway=False,
            forward_agent=False,
            connect_timeout=None,
            inline_ssh_env=False,
            connect_kwargs={
                "sock": wire,
                "transport_factory": transport,
                "auth_strategy": OfferKeys(endpoint.user, identities, record),
                "allow_agent": False,
                "look_for_keys": False,
            },
        )
        connection.client.set_missing_host_key_policy(Verify(judge))
        try:
            connection.open()
        except (Failed, gevent.Timeout):
            raise
        except Exception as e:  # paramiko lets its own, socket, struct and cryptography's errors through
            raise self._no_handshake(record, wire, connection, e) from e
        finally:
            if wire.banner:
                record.server_version = clean(wire.banner, 100)
        return connection

    def _no_handshake(self, record: Record, wire: Wire, connection: Any, error: Exception) -> Failed:
        """Say why a handshake failed, from what the wire saw."""
        code = getattr(wire.error, "errno", None) or getattr(error, "errno", None)
        if code in CONTROL_ERRNOS:
            return Failed("control", f"this machine: {os.strerror(code or 0)}")
        if not wire.banner:
            said = _first_line(wire)
            if any(word in said for word in BUSY_WORDS):
                return Failed("too_many", f"the server refuses for now: {said}")
            if wire.strange:
                return Failed("not_ssh", f"{wire.strange}: {said}")
            if wire.prelude:
                return Failed("not_ssh", f"something else than SSH answers: {said}")
            return Failed("too_many", "the server closed the connection before its version line")
        if record.stage == "banner":
            record.stage = "kex"
        if record.stage in ("kex", "host_key"):
            transport = connection.client.get_transport()
            words = transport.last_words if transport is not None else ""
            if any(word in words for word in BUSY_WORDS):
                return Failed("too_many", words)
            if wire.ended:
                return Failed(
                    "kex",
                    "the server closed the connection during the key exchange"
                    + (f": {words}" if words else ""),
                )
            return Failed("kex", str(error) or type(error).__name__)
        if wire.ended:
            return Failed("lost", "the server closed the connection during authentication")
        return Failed("auth", str(error) or type(error).__name__)

    def _lookup_keys(self, endpoint: Endpoint) -> Known:
        return self._known.lookup(
            endpoint.known_as, (*endpoint.user_known_hosts, *endpoint.global_known_hosts)
        )

    def _judge(self, endpoint: Endpoint, record: Record, known: Known, key: HostKey) -> None:
        """Accept the server's key or raise Failed."""
        record.fingerprint, record.key_type = key.fingerprint, key.type
        files = (*endpoint.user_known_hosts, *endpoint.global_known_hosts)
        where = ", ".join(files) or "no known_hosts file"
        shown = f"{key.type} {key.fingerprint}"
        if key in known.revoked:
            record.known_hosts = where
            raise Failed("host_key_revoked", f"the server shows a revoked key: {shown}")
        if key in known.trusted or (not known.trusted and key in known.without_port):
            return
        record.known_hosts = where
        if known.trusted:
            listed = known.trusted[0]
            record.known_hosts = listed.source or where
            raise Failed(
                "host_key_changed",
                f"{endpoint.known_as} shows {shown}, and {listed.type} {listed.fingerprint} is known"
                + (f" ({listed.source})" if listed.source else ""),
            )
        if endpoint.strict == "record":
            self._remember(endpoint, key)
            return
        if endpoint.strict == "accept":
            self._note(
                f"{endpoint.known_as}: unknown host key {shown} accepted, as ssh config says (StrictHostKeyChecking)"
            )
            return
        also = "; host certificates are not supported" if known.any_certificates else ""
        raise Failed("host_key_unknown", f"{endpoint.known_as} shows {shown}, not found in {where}{also}")

    def _remember(self, endpoint: Endpoint, key: HostKey) -> None:
        if not endpoint.user_known_hosts:
            return
        file = endpoint.user_known_hosts[0]
        try:
            self._known.add(endpoint.known_as, key, file, hashed=endpoint.hash_known_hosts)
        except OSError as e:
            self._note(f"{file}: the key of {endpoint.known_as} was not written: {e.strerror}")

    def _resolve(self, endpoint: Endpoint) -> list[Any]:
        """Return addresses to dial. Raises Failed."""
        wanted = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(endpoint.family, socket.AF_UNSPEC)
        bare = endpoint.host.partition("%")[0]
        try:
            literal = ipaddress.ip_address(bare)
        except ValueError:
            pass
        else:
            if bare == endpoint.host:
                family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
                return [(family, (endpoint.host, endpoint.port))]
        key = (endpoint.host, wanted)
        if key not in self._lookups:
            self._lookups[key] = AsyncResult()
            gevent.spawn(_look_up, endpoint.host, wanted, self._lookups[key])
        found = self._lookups[key].get()
        if isinstance(found, str):
            raise Failed("name", f"{endpoint.host}: {found}")
        return [(family, (address[0], endpoint.port, *address[2:])) for family, address in found]

    def _dial(self, endpoint: Endpoint, addresses: list[Any], record: Record) -> socket.socket:
        """Return a connected socket: the first address that answers. Raises Failed."""
        limit = min(endpoint.connect_timeout_s or 1e9, self._start.login_timeout_s)
        finish = time.monotonic() + limit
        failure: Failed | None = None
        for place, (family, address) in enumerate(addresses):
            record.address = address[0]
            left = finish - time.monotonic()
            share = left / (len(addresses) - place)
            try:
                return _open_socket(family, address, endpoint.bind, share)
            except TimeoutError:
                failed = Failed(
                    "no_answer", f"no answer from {address[0]} port {endpoint.port} within {share:.0f} s"
                )
            except OSError as e:
                failed = _no_connection(e, address[0], endpoint.port)
            # Refused is the better news: a machine is there.
            if failure is None or failed.outcome == "refused":
                failure = failed
        assert failure is not None
        raise failure

    # Jump hosts

    def _hop(self, hops: tuple[Endpoint, ...]) -> Hop:
        """Return the shared way through `hops`, begun by whoever needs it first."""
        if hops not in self._hops:
            self._hops[hops] = Hop()
            gevent.spawn(self._open_hop, hops, self._hops[hops].result)
        return self._hops[hops]

    def _open_hop(self, hops: tuple[Endpoint, ...], result: AsyncResult) -> None:
        *before, last = hops
        record = Record(last)
        try:
            through = self._through(self._hop(tuple(before)), record) if before else None
            connection, _ = self._connect(last, record, through)
            result.set(connection)
        except Failed as e:
            if e.outcome == "jump" and before:
                result.set((e, record))
                return
            result.set((Failed("jump", f"jump host {last.name}: {e.outcome}: {e.detail}"), record))
        except Exception as e:
            result.set((Failed("control", f"netdoctor's own worker: {type(e).__name__}: {e}"), record))

    def _through(self, hop: Hop, record: Record) -> NodeTransport:
        """Return the transport of the last jump host. Raises Failed, with the jump host's stage and key."""
        outcome = hop.result.get()
        if isinstance(outcome, tuple):
            failed, seen = outcome
            record.stage = seen.stage
            record.fingerprint, record.key_type = seen.fingerprint, seen.key_type
            record.known_hosts = seen.known_hosts
            raise Failed(failed.outcome, failed.detail)
        transport: NodeTransport = outcome.transport
        if not transport.is_active():
            record.stage = "connect"
            raise Failed("jump", f"jump host {outcome.host}: the connection was lost")
        return transport

    def _tunnel(self, endpoint: Endpoint, transport: NodeTransport) -> Wire:
        """Return a wire through a jump host. Raises Failed."""
        try:
            channel, refusal = transport.open_tunnel((endpoint.host, endpoint.port))
        except (paramiko.SSHException, EOFError, OSError) as e:
            raise Failed("jump", f"the connection to the jump host was lost: {e}") from e
        if channel is not None:
            return Wire(channel)
        raise _no_tunnel(refusal, endpoint)

    # Requests

    def call(self, call: Call) -> None:
        """Send requests to open sessions; returns at once."""
        for index, which in call.to.items():
            gevent.spawn(self._call, index, call.number, call.requests[which])

    def _call(self, index: int, number: int, request: WireRequest) -> None:
        began = time.monotonic()
        link = self._links.get(index)
        if link is None:
            self._missing(index, number, began, Why.LOST, "no open session")
            return
        self._reply(index, number, link, request, began)

    def _reply(
        self,
        index: int,
        number: int,
        link: AgentLink,
        request: WireRequest,
        began: float,
        *,
        pending: bool = False,
    ) -> None:
        """Emit exactly one answer. A timeout that is not this request's own goes on to the caller."""
        limit = gevent.Timeout(request.timeout_s)
        try:
            if request.op == "clock":
                with self._clock_slots, link.lock, limit:
                    result = self._clock(link, bytes(request.args))
            else:
                with link.lock, limit:
                    if pending:
                        frame = link.answer(self._provide)
                    else:
                        frame = link.call(request.op, bytes(request.args), self._provide)
                if not frame.ok:
                    why = frame.why if frame.why in set(Why) else Why.FAILED
                    self._missing(index, number, began, why, clean(frame.detail, 400))
                    return
                result = frame.result
        except Lost as e:
            self._missing(index, number, began, Why.LOST, str(e))
        except frames.AgentTrouble as e:
            link.broken = link.broken or "the agent was out of step"
            self._missing(index, number, began, Why.UNPARSABLE, str(e))
        except gevent.Timeout as e:
            if e is not limit:
                raise
            self._missing(
                index,
                number,
                began,
                Why.TIMED_OUT,
                f"no answer to {request.op} within {request.timeout_s:g} s",
            )
        except Exception as e:  # exactly one answer, whatever happens
            detail = f"netdoctor's own worker: {type(e).__name__}: {e}"
            self._missing(index, number, began, Why.FAILED, detail)
        else:
            elapsed = (time.monotonic() - began) * 1e3
            self._emit(Answer(index, number, elapsed, result=result))

    def _missing(self, index: int, call: int, began: float, why: str, detail: str) -> None:
        elapsed = (time.monotonic() - began) * 1e3
        self._emit(Answer(index, call, elapsed, why=str(why), detail=clean(detail, 400)))

    def _clock(self, link: AgentLink, args: bytes) -> msgspec.Raw:
        """Exchange pings: [[sent, received there, sent there, received], …], seconds."""
        exchanges = msgspec.json.decode(args).get("exchanges", 8)
        anchor = self._start.anchor_s
        samples = []
        for _ in range(max(1, min(int(exchanges), 64))):
            sent = time.monotonic()
            frame = link.call("ping", b"{}", self._provide)
            back = link.wire.last_receive_s
            if not frame.ok:
                raise frames.AgentTrouble(f"the agent refused a ping: {clean(frame.detail, 100)}")
            try:
                there = msgspec.json.decode(frame.result, type=Ping)
            except msgspec.MsgspecError as e:
                raise frames.AgentTrouble(f"the reply to a ping cannot be read: {e}") from e
            samples.append([anchor + sent, there.recv_s, there.send_s, anchor + max(sent, back)])
        return msgspec.Raw(msgspec.json.encode({"samples": samples}))

    def _provide(self, name: str) -> bytes:
        """Return the message that carries a library to an agent; one without files when there is none."""
        if name not in self._library:
            files: Any = {}
            if name in ("psutil", "pynvml"):
                with contextlib.suppress(Exception):  # the agent then says what it misses
                    files = importlib.import_module("netdoctor.agent.provide").library_files(name)
            self._library[name] = frames.length_prefixed({"provide": name, "files": files})
        return self._library[name]

    # Notes

    def _note(self, text: str) -> None:
        self._emit(Note(clean(text, 300)))

    def _tell(self) -> None:
        """Pass on what known_hosts had to say since the last time."""
        notes = self._known.notes
        while self._told < len(notes):
            self._note(notes[self._told])
            self._told += 1

    def end(self) -> None:
        """Kill what would not end with this process."""
        for proxy in list(self._proxies):
            proxy.kill()


class Proxy:
    """A ProxyCommand: an argument list, no shell, its stderr kept."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.sock, theirs = socket.socketpair()
        self._errors, errors = os.pipe()
        os.set_blocking(self._errors, False)
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user's own command, split, never a shell
                argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=errors, process_group=0
            )
        except OSError as e:
            self.sock.close()
            os.close(self._errors)
            raise Failed("jump", f"ProxyCommand {argv[0]}: {e.strerror}") from e
        finally:
            theirs.close()
            os.close(errors)

    def said(self) -> str:
        """Return the last line of what it wrote to stderr."""
        try:
            text = os.read(self._errors, 4096)
        except (BlockingIOError, OSError):
            return ""
        finally:
            os.close(self._errors)
        lines = text.strip().splitlines()
        return clean(lines[-1], 200) if lines else ""

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, 15)


def _first_line(wire: Wire) -> str:
    return clean(b" ".join(wire.prelude[:3]), 120)


def _look_up(host: str, family: int, result: AsyncResult) -> None:
    """Set the addresses of a name, or what is wrong with it."""
    try:
        found = socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)
    except socket.gaierror as e:
        result.set(e.strerror or "not found")
    except (UnicodeError, OSError) as e:
        result.set("not a name that can be looked up" if isinstance(e, UnicodeError) else str(e))
    else:
        # In the resolver's order, each address once.
        unique = dict.fromkeys((entry[0], entry[4]) for entry in found)
        result.set(list(unique) or "no address")


def _open_socket(family: int, address: Any, bind: str | None, timeout_s: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if bind is not None:
            sock.bind((bind, 0))
        sock.settimeout(max(timeout_s, 0.1))
        sock.connect(address)
        sock.settimeout(None)
        no_delay(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _no_connection(error: OSError, address: str, port: int) -> Failed:
    """Return the failure class of a TCP connection that was not made."""
    where = f"{address} port {port}"
    if error.errno in (errno.ECONNREFUSED, errno.ECONNRESET):
        return Failed("refused", f"{where}: {os.strerror(error.errno).lower()}")
    if error.errno in UNREACHABLE_ERRNOS:
        return Failed("unreachable", f"{where}: {os.strerror(error.errno).lower()}")
    if error.errno == errno.ETIMEDOUT:
        return Failed("no_answer", f"{where}: no answer")
    if error.errno in CONTROL_ERRNOS:
        return Failed("control", f"this machine, dialling {where}: {os.strerror(error.errno).lower()}")
    return Failed("unreachable", f"{where}: {error.strerror or error}")


def _no_tunnel(refusal: str, endpoint: Endpoint) -> Failed:
    """Return the failure class of a connection that a jump host did not make. The words are OpenSSH's."""
    words = refusal.lower()
    where = f"{endpoint.host} port {endpoint.port}, dialled by the jump host"
    for outcome, signs in (
        ("refused", ("connection refused", "connection reset")),
        ("no_answer", ("timed out",)),
        ("unreachable", ("no route", "unreachable")),
        ("name", ("name or service", "not known", "resolution", "no address", "unknown host")),
        ("jump", ("prohibited", "unknown channel", "resource")),
    ):
        if any(sign in words for sign in signs):
            return Failed(outcome, f"{where}: {refusal}")
    return Failed("jump", f"{where}: {refusal or 'refused'}")


# The process


class Output:
    """Writes messages to the main process without ever blocking a node."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._parts: list[bytes] = []
        self._ready = Event()
        gevent.os.make_nonblocking(fd)

    def emit(self, message: FromWorker) -> None:
        self._parts.append(framed(message))
        self._ready.set()

    def run(self) -> None:
        while True:
            self._ready.wait()
            self._ready.clear()
            data = memoryview(b"".join(self._parts))
            self._parts.clear()
            while data:
                data = data[gevent.os.nb_write(self._fd, data) :]


def _end_process() -> NoReturn:
    """Leave at once; the kernel closes every connection, and each agent sees its stdin end."""
    os._exit(0)


def main() -> None:
    """Serve the main process until it closes our stdin."""
    logging.disable(logging.CRITICAL)
    # Sessions are long-lived and made of cycles: collecting young objects all the time finds nothing.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gevent.get_hub().threadpool_size = LOOKUP_THREADS
    output = Output(1)
    gevent.spawn(output.run)
    gevent.os.make_nonblocking(0)
    splitter = Splitter()
    decode = msgspec.json.Decoder(ToWorker).decode
    worker: Worker | None = None
    start: Start | None = None
    try:
        while data := gevent.os.nb_read(0, 1 << 20):
            for body in splitter.feed(data):
                if start is not None and worker is None:
                    worker = Worker(start, body, output.emit)
                    worker.run()
                    continue
                message = decode(body)
                if isinstance(message, Start):
                    start = message
                elif worker is not None:
                    worker.call(message)
    except OSError:
        pass
    if worker is not None:
        worker.end()
    _end_process()


if __name__ == "__main__":
    main()
