"""The one small interface between the engine and whatever reaches the nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from netdoctor.facts.base import Missing
from netdoctor.facts.host import Session
from netdoctor.inventory import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """What the command line says about logging in; None leaves it to the user's ssh config."""

    ssh_config: Path | None = None
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    jump: str | None = None
    accept_new: bool = False


# A node that does not answer holds its place for seconds; and what this machine does for many nodes at once
# takes fewer steps: a thousand cost it a sixth less than 64 at a time.
LOGINS_AT_ONCE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a run, seconds and counts. node_budget_s covers one node from name lookup to last reply of
    its first request."""

    parallel: int = LOGINS_AT_ONCE
    login_timeout_s: float = 15.0
    node_budget_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to an agent.

    op: ``facts``, ``clock``, ``listen``, ``unlisten``, ``connect``, ``udp_echo``, ``path_mtu``…
    by_group: of the first answer, which holds most of what is ever said, the transport may leave each member
        as it came, a `msgspec.Raw`: `store.decode` reads either.
    """

    op: str
    args: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 30.0
    by_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """A login ended, well or badly."""

    node: str
    session: Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a request: `result` (plain JSON data, untrusted), or `missing` with the reason."""

    node: str
    result: Any = None
    missing: Missing | None = None


class Interruptible:
    """What another thread may interrupt, and who waits in a transport looks at."""

    _interruption: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """From another thread, where signals do not go: let whoever waits for nodes raise this instead."""
        self._interruption = error

    def _raise_interruption(self) -> None:
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption


class Transport(Protocol):
    """Reaches nodes. Methods are called from one thread, but for `interrupt`; iterators end when every node
    has answered or the bound has passed, and yield exactly one Reply per request."""

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know about their settings, a line each; filled as it turns up."""
        ...

    def start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        *,
        keep_open: bool,
        collectors: Mapping[str, str],
        deadline_s: float = 300.0,
    ) -> Iterator[SessionEvent | Reply]:
        """Log in everywhere, send each node its first request, yield events as they come.

        Per node: one SessionEvent, then one Reply if the session is ``ok``. With keep_open False a node's
        session ends after its reply. Starting again ends what is left of the time before. collectors: source
        text of plug-in collectors by fact group. deadline_s: an agent ends by itself so long after its start,
        whatever happens here.
        """
        ...

    def bound_s(self, targets: Sequence[Target]) -> float:
        """The longest that `start` can take for these."""
        ...

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        """Send one request to each named node with an open session; all at once, no order.

        After within_s, nodes that have not answered are said to have timed out.
        """
        ...

    def interrupt(self, error: BaseException) -> None:
        """From another thread, where signals do not go: let whoever waits for nodes raise this instead."""
        ...

    def close(self) -> None:
        """End all sessions and helper processes within two seconds. Safe to call twice."""
        ...

    def describe(self, target: Target) -> dict[str, Any]:
        """What `start` would do for this target (address, port, user, jump), without any contact."""
        ...
