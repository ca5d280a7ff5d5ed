"""The one small interface between the engine and whatever reaches the nodes."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdoctor.facts.base import Missing, Why
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


# Agents whose clocks are read at one time: an exchange that waits for others measures the wait.
CLOCK_AT_ONCE = 16
# How what went wrong with a process of ours begins, which says nothing of a node.
OWN_WORKER = "netdoctor's own worker"
# What is waited beyond all bounds of nodes, for what this machine does itself.
SLACK_S = 10.0
# A node that does not answer holds its place for seconds; and what this machine does for many nodes at once
# takes fewer steps: a thousand cost it a sixth less than 64 at a time.
LOGINS_AT_ONCE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a run."""

    parallel: int = LOGINS_AT_ONCE
    login_timeout_s: float = 15.0
    node_budget_s: float = 30.0  # of one node, from name lookup to the last reply of its first request


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to an agent."""

    op: str  # facts, clock, listen, unlisten, connect, udp_echo, path_mtu…
    args: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 30.0
    # Each member of the result may stay as it came, a `msgspec.Raw`: `store.decode` reads either.
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


Event = SessionEvent | Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """What `Transport.start` is to do."""

    targets: Sequence[Target]
    first: Mapping[str, Request]  # by target id
    keep_open: bool = False  # or a node's session ends after its first reply
    collectors: Mapping[str, str] = field(default_factory=dict)  # source text of plug-ins, by fact group
    deadline_s: float = 300.0  # an agent ends by itself so long after its start, whatever happens here


class Transport(ABC):
    """Reaches nodes. Methods are called from one thread, but for `interrupt`; iterators end when every node
    has answered or the bound has passed, and yield exactly one Reply per request."""

    _interruption: BaseException | None = None

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know about their settings, a line each; filled as it turns up."""
        return ()

    def start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        *,
        keep_open: bool,
        collectors: Mapping[str, str],
        deadline_s: float = 300.0,
    ) -> Iterator[Event]:
        """Log in everywhere, send each node its first request, yield events as they come.

        Per node: one SessionEvent, then one Reply if the session is ``ok``. Starting again ends what is left
        of the time before. Raises InputError at once, before any contact. The rest: see StartPlan.
        """
        return self._start(
            StartPlan(
                targets=targets,
                first=first,
                keep_open=keep_open,
                collectors=collectors,
                deadline_s=deadline_s,
            )
        )

    @abstractmethod
    def _start(self, plan: StartPlan) -> Iterator[Event]: ...

    @abstractmethod
    def bound_s(self, targets: Sequence[Target]) -> float:
        """The longest that `start` can take for these."""

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        """Send one request to each named node with an open session; all at once, no order.

        After within_s, nodes that have not answered are said to have timed out.
        """
        return self._call(requests, math.inf if within_s is None else time.monotonic() + within_s)

    @abstractmethod
    def _call(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        """finish: monotonic; math.inf for as long as the requests themselves may take."""

    def interrupt(self, error: BaseException) -> None:
        """From another thread, where signals do not go: let whoever waits for nodes raise this instead."""
        self._interruption = error

    def _raise_interruption(self) -> None:
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption

    @abstractmethod
    def close(self) -> None:
        """End all sessions and helper processes within two seconds. Safe to call twice."""

    @abstractmethod
    def describe(self, target: Target) -> dict[str, Any]:
        """What `start` would do for this target (address, port, user, jump), without any contact."""


def last_moment(requests: Mapping[str, Request], finish: float) -> float:
    """When the last answer may come, monotonic. Requests of one node take turns, clocks a few at a time."""
    longest = max((request.timeout_s for request in requests.values()), default=0.0)
    return min(finish, time.monotonic() + longest * (2 + len(requests) / CLOCK_AT_ONCE) + SLACK_S)


def missing_reply(node: str, why: Why, detail: str) -> Reply:
    """The answer of a node that gave none."""
    return Reply(node=node, missing=Missing(why, detail))
