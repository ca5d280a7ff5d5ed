"""TCP connections, ProxyCommands, and the failure classes they end in. Runs inside a worker process only."""

import contextlib
import errno
import ipaddress
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import gevent
import gevent.os
from gevent.event import AsyncResult
from gevent.lock import BoundedSemaphore

from netdoctor.facts.host import Login, Trouble
from netdoctor.text import clean
from netdoctor.transport import here
from netdoctor.transport.ssh.link import no_delay
from netdoctor.transport.ssh.messages import LOOKUP_THREADS, Endpoint
from netdoctor.transport.ssh.record import LoginFailed, Record

CONTROL_ERRNOS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EACCES}
    | {errno.EPERM, errno.EAFNOSUPPORT, errno.EADDRINUSE}
)
UNREACHABLE_ERRNOS = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
CLOSED_EARLY = "the server closed the connection before its version line"
PROXY_TAIL_BYTES = 4096
PROXY_END_S = 0.5
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
# getaddrinfo(3): nobody could be asked. EAI_NONAME and its like are an answer, and it is no.
UNASKED = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY, socket.EAI_SYSTEM})
NO_NETWORK = "no interface of this machine but loopback has a network"


class Names:
    """Name lookups, each name asked once. They run in threads, because the resolver knows no timeout."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], AsyncResult] = {}
        self._threads = BoundedSemaphore(LOOKUP_THREADS)

    def begin(self, endpoint: Endpoint) -> None:
        """Wait for a thread, and have it look the name up: others' names cost this one none of its time."""
        key = _name(endpoint)
        if key is None or key in self._lookups:
            return
        self._threads.acquire()
        if key in self._lookups:  # by now
            self._threads.release()
            return
        result = self._lookups[key] = AsyncResult()
        gevent.spawn(_look_up, *key, result).link(lambda _: self._threads.release())

    def addresses(self, endpoint: Endpoint) -> list[Any]:
        """Return addresses to dial. Raises LoginFailed."""
        key = _name(endpoint)
        if key is None:
            family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
            return [(family, (endpoint.host, endpoint.port))]
        self.begin(endpoint)
        found = self._lookups[key].get()
        if isinstance(found, LoginFailed):
            raise LoginFailed(found.outcome, found.detail, found.local_fault)
        return [(family, (address[0], endpoint.port, *address[2:])) for family, address in found]


def _name(endpoint: Endpoint) -> tuple[str, int] | None:
    """Return what to ask for, and which family of addresses; None for an address, but with a zone."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(endpoint.host.partition("%")[0])
        if "%" not in endpoint.host:
            return None
    return endpoint.host, FAMILIES.get(endpoint.family, socket.AF_UNSPEC)


def _look_up(host: str, family: int, result: AsyncResult) -> None:
    """Set the addresses of a name, or a LoginFailed that says what is wrong with it."""
    try:
        found = socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)
    except socket.gaierror as e:
        result.set(_no_address(host, e))
    except UnicodeError:
        result.set(LoginFailed(Login.NAME, f"{host}: not a name that can be looked up"))
    except (OSError, RuntimeError) as e:  # RuntimeError: no thread for it
        result.set(LoginFailed(Login.CONTROL, f"nothing could be looked up: {e}", here.trouble_of(e)))
    else:
        # In the resolver's order, each address once.
        unique = dict.fromkeys((entry[0], entry[4]) for entry in found)
        result.set(list(unique) or LoginFailed(Login.NAME, f"{host}: no address"))


def _no_address(host: str, error: socket.gaierror) -> LoginFailed:
    """Return the failure class of a lookup. Silence of the resolver says nothing of the name."""
    if error.errno not in UNASKED:
        return LoginFailed(Login.NAME, f"{host}: {error.strerror or 'not found'}")
    if here.is_cut_off():
        return LoginFailed(Login.CONTROL, NO_NETWORK, Trouble.NETWORK)
    message = (error.strerror or "no answer").lower()
    return LoginFailed(Login.CONTROL, f"no name server answers this machine: {message}", Trouble.NAMES)


def dial(
    endpoint: Endpoint, addresses: Sequence[tuple[int, Any]], limit_s: float, record: Record
) -> socket.socket:
    """Return a socket connected to the first address that answers. Raises LoginFailed."""
    finish = time.monotonic() + min(endpoint.connect_timeout_s or limit_s, limit_s)
    failure: LoginFailed | None = None
    dead: list[str] = []
    for index, (family, address) in enumerate(addresses):
        share = (finish - time.monotonic()) / (len(addresses) - index)
        before = record.address
        record.address = address[0]
        try:
            opened = _open_socket(family, address, endpoint.bind, share)
            record.passed_over = "; ".join(dead)
            return opened
        except TimeoutError:
            where = f"{address[0]} port {endpoint.port}"
            failed = LoginFailed(Login.NO_ANSWER, f"{where}: no answer within {share:.0f} s")
        except ConnectionResetError:
            # Whoever turns a connection away says "refused"; this one was taken, and ended before a word.
            failed = LoginFailed(Login.TOO_MANY, CLOSED_EARLY)
        except OSError as e:
            failed = _no_connection(e, address[0], endpoint.port)
        if failed.outcome != Login.CONTROL:  # a family that this machine does not speak is no dead address
            dead.append(failed.detail if address[0] in failed.detail else f"{address[0]}: {failed.detail}")
        # Refused says more than silence: a machine is there.
        if failure is None or failed.outcome == Login.REFUSED:
            failure = failed
        else:
            record.address = before
    assert failure is not None
    if failure.outcome == Login.TOO_MANY:
        record.stage = "banner"
    raise failure


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


def _no_connection(error: OSError, address: str, port: int) -> LoginFailed:
    """Return the failure class of a TCP connection that was not made."""
    where = f"{address} port {port}"
    if error.errno == errno.ECONNREFUSED:
        return LoginFailed(Login.REFUSED, f"{where}: {os.strerror(error.errno).lower()}")
    if error.errno in UNREACHABLE_ERRNOS:
        if here.is_cut_off():
            return LoginFailed(Login.CONTROL, NO_NETWORK, Trouble.NETWORK)
        return LoginFailed(Login.UNREACHABLE, f"{where}: {os.strerror(error.errno).lower()}")
    if error.errno == errno.ETIMEDOUT:
        return LoginFailed(Login.NO_ANSWER, f"{where}: no answer")
    if error.errno in CONTROL_ERRNOS:
        detail = f"this machine, dialling {where}: {os.strerror(error.errno).lower()}"
        return LoginFailed(Login.CONTROL, detail, here.trouble_of(error))
    return LoginFailed(Login.UNREACHABLE, f"{where}: {error.strerror or error}")


def no_tunnel(refusal: str, endpoint: Endpoint) -> LoginFailed:
    """Return the failure class of a connection that a jump host did not make. The words are OpenSSH's."""
    words = refusal.lower()
    where = f"{endpoint.host} port {endpoint.port}, dialled by the jump host"
    for outcome, signs in (
        (Login.REFUSED, ("connection refused", "connection reset")),
        (Login.NO_ANSWER, ("timed out",)),
        (Login.UNREACHABLE, ("no route", "unreachable")),
        (Login.NAME, ("name or service", "not known", "resolution", "no address", "unknown host")),
        (Login.JUMP, ("prohibited", "unknown channel", "resource")),
    ):
        if any(sign in words for sign in signs):
            return LoginFailed(outcome, f"{where}: {refusal}")
    return LoginFailed(Login.JUMP, f"{where}: {refusal or 'refused'}")


class Proxy:
    """A ProxyCommand: an argument list, no shell. Its stderr is read all the time, and the end of it kept."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.sock, child_end = socket.socketpair()
        self._errors, errors = os.pipe()
        os.set_blocking(self._errors, False)
        self._tail = b""
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user's own command, split, never a shell
                argv,
                stdin=child_end.fileno(),
                stdout=child_end.fileno(),
                stderr=errors,
                start_new_session=True,
            )
        except OSError as e:
            self.sock.close()
            os.close(self._errors)
            raise LoginFailed(Login.JUMP, f"ProxyCommand {argv[0]}: {e.strerror}") from e
        finally:
            child_end.close()
            os.close(errors)
        self._drain = gevent.spawn(self._read_errors)

    def _read_errors(self) -> None:
        try:
            while data := gevent.os.nb_read(self._errors, 1 << 16):
                self._tail = (self._tail + data)[-PROXY_TAIL_BYTES:]
        finally:
            os.close(self._errors)

    def last_error(self) -> str:
        """Return the last line of what it wrote to stderr; it has ended, or does so within a moment."""
        self._drain.join(PROXY_END_S)
        lines = self._tail.strip().splitlines()
        return clean(lines[-1], 200) if lines else ""

    def kill(self) -> None:
        """End it and what it has started: what ignores the asking is killed within PROXY_END_S."""
        finish = time.monotonic() + PROXY_END_S
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGTERM)
            while time.monotonic() < finish:  # until nobody of its group is left, which is an OSError
                gevent.sleep(0.02)
                os.killpg(self._process.pid, 0)
            os.killpg(self._process.pid, signal.SIGKILL)
