"""SSH connections: Fabric opens them, this verifies them. Runs inside a worker process only."""

import contextlib
import math
import os
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, NoReturn

import fabric
import gevent
import paramiko
from gevent.event import AsyncResult
from gevent.lock import BoundedSemaphore

from netdoctor.facts.host import Login, Trouble
from netdoctor.text import clean
from netdoctor.transport import here
from netdoctor.transport.ssh.dial import (
    CLOSED_EARLY,
    CONTROL_ERRNOS,
    NO_NETWORK,
    Names,
    Proxy,
    dial,
    no_tunnel,
)
from netdoctor.transport.ssh.keys import ATTEMPTS_MAX, Identities, KeyRing, NotSigned
from netdoctor.transport.ssh.knownhosts import HostKey, Known, KnownHosts
from netdoctor.transport.ssh.link import PACKETS_PER_S, NodeTransport, Verify, Wire, key_algorithms
from netdoctor.transport.ssh.messages import Endpoint
from netdoctor.transport.ssh.record import LoginFailed, Record

HANDSHAKES_PER_JUMP = 16
HOP_ENDS_S = 0.5

# Words of OpenSSH that mean "not now": sshd.c, srclimit.c.
BUSY_WORDS = ("Exceeded MaxStartups", "Not allowed at this time", "Too many")


class NoSshConfig(paramiko.SSHConfig):  # type: ignore[misc]  # paramiko has no types
    """Tells Fabric nothing: endpoints come resolved, by a reader that runs nothing (see `sshconfig`)."""

    def lookup(self, hostname: str) -> Any:
        return paramiko.SSHConfigDict()


class Settings(fabric.Config):  # type: ignore[misc]  # fabric has no types
    """What all connections are told, as attributes: each look-up of a setting makes an object of its own."""

    connect_kwargs: Mapping[str, Any] = MappingProxyType({})
    timeouts = SimpleNamespace(connect=None)


class NodeConnection(fabric.Connection):  # type: ignore[misc]  # fabric has no types
    """A Fabric connection whose attributes are its own.

    Fabric looks through all names that it has before it sets one, and writes those without a class default
    into the configuration, which all connections share: a tenth of what a login cost.
    """

    authentication = SimpleNamespace(strategy_class=None)
    __setattr__ = object.__setattr__


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
        unsigned: list[str] = []
        methods: list[str] = []
        for identity in found.usable:
            if len(offered) == ATTEMPTS_MAX:
                break
            if not offered:
                name, public = identity.key.get_name(), b64encode(identity.key.asbytes()).decode()
                self._record.offered = f"{name} {public}"
            offered.append(identity.label)
            try:
                more = transport.auth_publickey(self._user, identity.key)
            except NotSigned as e:  # as with ssh, the others' turn
                unsigned.append(f"{offered.pop()}: its agent did not sign ({e})")
                continue
            except paramiko.BadAuthenticationType as e:
                methods = list(e.allowed_types)
                break
            except paramiko.AuthenticationException as e:
                if not transport.is_active():
                    words = transport.last_words
                    if "authentication failures" in words:
                        break
                    raise LoginFailed(
                        Login.LOST,
                        "the server closed the connection during authentication"
                        + (f": {words}" if words else ""),
                    ) from e
                continue
            if not more:
                return []
            methods = list(more)
            raise LoginFailed(
                Login.AUTH,
                f"the key {identity.label} was accepted, and the server asks for more: {', '.join(methods)}",
            )
        if unsigned and not offered:
            self._nothing_to_offer(unsigned)
        detail = f"user {self._user} was refused with " + ", ".join(offered)
        if methods:
            detail = f"the server takes no keys for user {self._user}, only {', '.join(methods)}"
        left_out = unsigned + found.faults
        untried = len(found.usable) - len(offered) - len(unsigned)
        if left_out:
            detail += "; not offered: " + "; ".join(left_out)
        elif untried and not methods:
            detail += f"; {untried} more keys were not tried"
        if unsigned and not methods:  # the node may take the one that it has not seen
            raise LoginFailed(Login.CONTROL, detail, Trouble.KEYS)
        raise LoginFailed(Login.AUTH, detail)

    def _nothing_to_offer(self, unsigned: Sequence[str] = ()) -> NoReturn:
        faults = [*unsigned, *self._identities.faults]
        detail = "no usable key: " + "; ".join(faults)
        if not faults:
            detail = "no key to offer: ssh config names none, no default key, none in an agent"
        raise LoginFailed(Login.CONTROL, detail, Trouble.KEYS)


@dataclass(slots=True)
class Hop:
    """A way through jump hosts that several nodes share."""

    result: AsyncResult = field(default_factory=AsyncResult)
    slots: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(HANDSHAKES_PER_JUMP))


class Logins:
    """Opens connections for the nodes of one process, and shares what they have in common."""

    def __init__(self, login_timeout_s: float, per_endpoint: int, note: Callable[[str], None]) -> None:
        self._timeout_s = login_timeout_s
        self._note = note
        self._config = Settings(ssh_config=NoSshConfig(), lazy=True)
        self._ring = KeyRing()
        self._known = KnownHosts()
        self._notes_passed_on = 0
        self._names = Names()
        self._proxies: set[Proxy] = set()
        self._hops: dict[tuple[Endpoint, ...], Hop] = {}
        self._slots: dict[Hashable, BoundedSemaphore] = defaultdict(lambda: BoundedSemaphore(per_endpoint))

    @contextlib.contextmanager
    def way(self, endpoint: Endpoint, record: Record) -> Iterator[Any]:
        """Wait for a place at the endpoint, for the jump host if there is one, and for the resolver's turn.

        Raises LoginFailed.
        """
        if endpoint.jump:
            record.via = ",".join(hop.name for hop in endpoint.jump)
            hop = self._hop(endpoint.jump)
            with hop.slots:
                yield self._through(hop, record)
        else:
            if endpoint.proxy:
                record.via = clean(" ".join(endpoint.proxy), 80)
            else:
                self._names.begin(endpoint)
            with self._slots[endpoint.door]:
                yield None

    def connect(self, endpoint: Endpoint, record: Record, through: Any) -> tuple[Any, Wire]:
        """Return an authenticated Fabric connection and its wire. Raises LoginFailed."""
        limit = gevent.Timeout(self._timeout_s)
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
                    addresses = self._names.addresses(endpoint)
                    record.stage = "connect"
                    began = time.monotonic()
                    wire = Wire(dial(endpoint, addresses, self._timeout_s, record))
                record.stage = "banner"
                connection = self._handshake(endpoint, record, wire, known, identities)
                record.login_ms = (time.monotonic() - began) * 1e3
                return connection, wire
        except BaseException as e:
            if wire is not None:
                wire.close()
            slow = isinstance(e, gevent.Timeout)
            failed = self._slow_login(record, wire, through) if slow else e
            if proxy is not None:
                failed = self._no_proxy(proxy, record, failed)
            if failed is e:
                raise
            raise failed from e

    def _no_proxy(self, proxy: Proxy, record: Record, failed: BaseException) -> BaseException:
        """End the ProxyCommand of a login that failed, and let it say why, where no server was reached."""
        self._proxies.discard(proxy)
        proxy.kill()
        if not isinstance(failed, LoginFailed) or record.stage not in ("connect", "banner"):
            return failed
        if here.is_cut_off():
            return LoginFailed(Login.CONTROL, NO_NETWORK, Trouble.NETWORK)
        message = proxy.last_error() or failed.detail
        if message.startswith("No user exists for uid"):  # main() of OpenSSH's ssh.c
            way_out = "use ProxyJump, or in a container give it a passwd entry: -v /etc/passwd:/etc/passwd:ro"
            return LoginFailed(Login.CONTROL, f"the ssh of the ProxyCommand says '{message}'; {way_out}")
        return LoginFailed(Login.JUMP, f"the ProxyCommand gave no SSH server: {message}")

    def _slow_login(self, record: Record, wire: Wire | None, through: Any) -> LoginFailed:
        """Say what a login that took too long was waiting for."""
        seconds = f"{self._timeout_s:g} s"
        if through is not None and not through.is_active():
            return LoginFailed(Login.JUMP, "the connection to the jump host was lost")
        if record.stage == "banner" and wire is not None and wire.banner:
            record.stage = "kex"
        if record.stage == "resolve":
            detail = f"no name server answers this machine: the lookup did not end within {seconds}"
            return LoginFailed(Login.CONTROL, detail, Trouble.NAMES)
        if record.stage == "connect":
            return LoginFailed(Login.NO_ANSWER, f"no answer to the connection within {seconds}")
        if record.stage == "banner":
            if wire is not None and wire.prelude:
                return LoginFailed(
                    Login.NOT_SSH, f"no SSH version line within {seconds}: {_first_line(wire)}"
                )
            if wire is not None and (begun := wire.unread):
                if not b"SSH-".startswith(begun[:4]):
                    detail = f"no SSH version line within {seconds}: {clean(begun, 120)}"
                    return LoginFailed(Login.NOT_SSH, detail)
                detail = f"it speaks too slowly: {len(begun)} bytes of its SSH version line within {seconds}"
                return LoginFailed(Login.TIMEOUT, detail)
            return LoginFailed(
                Login.NO_ANSWER,
                f"the port is open, and nothing was said within {seconds} (server frozen or overloaded)",
            )
        if record.stage in ("kex", "host_key"):
            return LoginFailed(Login.KEX_BROKEN, f"the key exchange did not end within {seconds}")
        others = self._ring.owed()
        slow = f"; others wait for the SSH agent, too ({others}): -j 8 asks less at once" if others else ""
        return LoginFailed(Login.TIMEOUT, f"authentication did not end within {seconds}{slow}")

    def _handshake(
        self, endpoint: Endpoint, record: Record, wire: Wire, known: Known, identities: Identities
    ) -> Any:
        """Do the SSH handshake over a wire. Raises LoginFailed."""
        types = [key.type for key in known.trusted or known.without_port]

        def transport(sock: Wire, **options: Any) -> NodeTransport:
            return NodeTransport(sock, key_algorithms(types), **options)

        def judge(kind: str, blob: bytes) -> None:
            record.stage = "host_key"
            self._judge(endpoint, record, known, HostKey(kind, blob))

        connection = NodeConnection(
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
        except (LoginFailed, gevent.Timeout):
            raise
        except Exception as e:  # paramiko lets its own, socket, struct and cryptography's errors through
            raise self._no_handshake(record, wire, connection, e) from e
        finally:
            if wire.banner:
                record.server_version = clean(wire.banner, 100)
        return connection

    def _no_handshake(self, record: Record, wire: Wire, connection: Any, error: Exception) -> LoginFailed:
        """Say why a handshake failed, from what the wire saw."""
        code = getattr(wire.error, "errno", None) or getattr(error, "errno", None)
        if code in CONTROL_ERRNOS:
            return LoginFailed(
                Login.CONTROL, f"this machine: {os.strerror(code or 0)}", here.trouble_of(error)
            )
        if not wire.banner:
            first_line = _first_line(wire)
            if any(word in first_line for word in BUSY_WORDS):
                return LoginFailed(Login.TOO_MANY, f"the server refuses for now: {first_line}")
            if wire.strange:
                return LoginFailed(Login.NOT_SSH, f"{wire.strange}: {first_line}")
            if wire.prelude:
                return LoginFailed(Login.NOT_SSH, f"something else than SSH answers: {first_line}")
            return LoginFailed(Login.TOO_MANY, CLOSED_EARLY)
        if record.stage == "banner":
            record.stage = "kex"
        if record.stage in ("kex", "host_key"):
            transport = connection.client.get_transport()
            words = wire.strange or (transport.last_words if transport is not None else "")
            if any(word in words for word in BUSY_WORDS):
                return LoginFailed(Login.TOO_MANY, words)
            if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
                return LoginFailed(Login.KEX, str(error))
            if wire.ended or isinstance(error, EOFError):
                return LoginFailed(
                    Login.KEX_BROKEN,
                    "the server closed the connection during the key exchange"
                    + (f": {words}" if words else ""),
                )
            return LoginFailed(Login.KEX_BROKEN, str(error) or type(error).__name__)
        if wire.ended:
            return LoginFailed(Login.LOST, "the server closed the connection during authentication")
        if isinstance(error, paramiko.AuthenticationException):
            return LoginFailed(Login.AUTH, str(error) or type(error).__name__)
        return LoginFailed(Login.LOST, f"authentication broke off: {error or type(error).__name__}")

    def _lookup_keys(self, endpoint: Endpoint) -> Known:
        files = (*endpoint.user_known_hosts, *endpoint.global_known_hosts)
        known = self._known.lookup(endpoint.known_as, files)
        # Here, and so before this login ends: nobody may be listening after the last one.
        for text in self._known.notes[self._notes_passed_on :]:
            self._note(text)
        self._notes_passed_on = len(self._known.notes)
        return known

    def _judge(self, endpoint: Endpoint, record: Record, known: Known, key: HostKey) -> None:
        """Accept the server's key or raise LoginFailed."""
        record.fingerprint, record.key_type = key.fingerprint, key.type
        files = (*endpoint.user_known_hosts, *endpoint.global_known_hosts)
        where = ", ".join(files) or "no known_hosts file"
        key_text = f"{key.type} {key.fingerprint}"
        if key in known.revoked:
            record.known_hosts = where
            raise LoginFailed(Login.HOST_KEY_REVOKED, f"the server shows a revoked key: {key_text}")
        if key in known.trusted or (not known.trusted and key in known.without_port):
            return
        record.known_hosts, record.host_key = where, f"{key.type} {b64encode(key.blob).decode()}"
        if known.trusted:
            listed = known.trusted[0]
            record.known_hosts = listed.source or where
            raise LoginFailed(
                Login.HOST_KEY_CHANGED,
                f"{endpoint.known_as} shows {key_text}, and {listed.type} {listed.fingerprint} is known"
                + (f" ({listed.source})" if listed.source else ""),
            )
        if endpoint.strict == "record":
            self._remember(endpoint, key)
            return
        if endpoint.strict == "accept":
            self._note(
                f"{endpoint.known_as}: unknown key {key_text} accepted (StrictHostKeyChecking in ssh config)"
            )
            return
        for file in files:
            if barred := here.denied(file):
                # The key may be known there.
                raise LoginFailed(Login.CONTROL, f"known host keys were not read: {barred}", Trouble.SETTINGS)
        also = "; host certificates are not supported" if known.any_certificates else ""
        raise LoginFailed(
            Login.HOST_KEY_UNKNOWN, f"{endpoint.known_as} shows {key_text}, not found in {where}{also}"
        )

    def _remember(self, endpoint: Endpoint, key: HostKey) -> None:
        if not endpoint.user_known_hosts:
            self._note(f"{endpoint.known_as}: unknown key accepted, and no known_hosts file to record it in")
            return
        file = endpoint.user_known_hosts[0]
        try:
            self._known.add(endpoint.known_as, key, file, hashed=endpoint.hash_known_hosts)
        except OSError as e:
            self._note(f"{file}: the key of {endpoint.known_as} was not written: {e.strerror}")

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
            connection, wire = self.connect(last, record, through)
            # What comes through is counted once more, on the wire of each node.
            wire.allow(math.inf)
            connection.transport.packetizer.per_second = PACKETS_PER_S * HANDSHAKES_PER_JUMP
            result.set(connection)
        except LoginFailed as e:
            if (e.outcome == Login.JUMP and before) or e.outcome == Login.CONTROL:
                result.set((e, record))
                return
            result.set((LoginFailed(Login.JUMP, f"jump host {last.name}: {e.outcome}: {e.detail}"), record))
        except Exception as e:
            result.set(
                (LoginFailed(Login.CONTROL, f"netdoctor's own worker: {type(e).__name__}: {e}"), record)
            )

    def _through(self, hop: Hop, record: Record) -> NodeTransport:
        """Return the transport of the last jump host. Raises LoginFailed with its stage and key."""
        outcome = hop.result.get()
        if isinstance(outcome, tuple):
            failed, hop_record = outcome
            record.stage = hop_record.stage
            record.fingerprint, record.key_type = hop_record.fingerprint, hop_record.key_type
            record.known_hosts = hop_record.known_hosts
            raise LoginFailed(failed.outcome, failed.detail, failed.local_fault)
        transport: NodeTransport = outcome.transport
        if not transport.is_active():
            record.stage = "connect"
            raise LoginFailed(Login.JUMP, f"jump host {outcome.host}: the connection was lost")
        return transport

    def lost_hop(self, endpoint: Endpoint) -> str:
        """Return which jump host on the way there was lost, in words; nothing where all stand.

        One that dies may close what goes through it a moment before its own connection ends.
        """
        lost = self._lost_hop(endpoint)
        if endpoint.jump and not lost:
            gevent.sleep(HOP_ENDS_S)
            lost = self._lost_hop(endpoint)
        return lost

    def _lost_hop(self, endpoint: Endpoint) -> str:
        for number, last in enumerate(endpoint.jump, start=1):
            hop = self._hops.get(endpoint.jump[:number])
            opened = hop.result.get() if hop is not None and hop.result.ready() else ()
            if not isinstance(opened, tuple) and not opened.transport.is_active():
                return f"jump host {last.name}: the connection was lost"
        return ""

    def _tunnel(self, endpoint: Endpoint, transport: NodeTransport) -> Wire:
        """Return a wire through a jump host. Raises LoginFailed."""
        try:
            channel, refusal = transport.open_tunnel((endpoint.host, endpoint.port))
        except (paramiko.SSHException, EOFError, OSError) as e:
            raise LoginFailed(Login.JUMP, f"the connection to the jump host was lost: {e}") from e
        if channel is not None:
            return Wire(channel)
        raise no_tunnel(refusal, endpoint)

    def end(self) -> None:
        """Kill what would not end with this process."""
        gevent.joinall([gevent.spawn(proxy.kill) for proxy in self._proxies])


def _first_line(wire: Wire) -> str:
    return clean(b" ".join(wire.prelude[:3]), 120)
