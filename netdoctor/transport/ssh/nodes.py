"""The nodes of one worker process: one greenlet each, from login to last answer."""

import contextlib
import os
import resource
import time
from typing import Protocol

import gevent
import msgspec
from gevent.lock import BoundedSemaphore

from netdoctor.errors import AgentLost, ProtocolError
from netdoctor.facts.base import Why
from netdoctor.facts.host import Login
from netdoctor.text import clean
from netdoctor.transport import bundle, session
from netdoctor.transport.ssh.agentlink import AgentLink
from netdoctor.transport.ssh.link import NodeTransport
from netdoctor.transport.ssh.login import Logins
from netdoctor.transport.ssh.messages import (
    Answer,
    Call,
    Ended,
    FromWorker,
    NodePlan,
    Note,
    Start,
    WireRequest,
)
from netdoctor.transport.ssh.record import LoginFailed, Record

FDS_RESERVED = 16


class Emit(Protocol):
    """What tells the main process something."""

    def __call__(self, message: FromWorker, result: bytes = b"") -> None: ...


class Worker:
    """All nodes of this process."""

    def __init__(self, start: Start, bundle: bytes, emit: Emit) -> None:
        self._start = start
        self._bundle = bundle
        self._emit = emit
        self._logins = Logins(start.login_timeout_s, start.per_endpoint, self._note)
        self._links: dict[int, AgentLink] = {}
        self._like_ours: set[str] = set()
        self._slots = BoundedSemaphore(self._room())
        self._clock_slots = BoundedSemaphore(start.clock_parallel)

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
        logged_in = False
        try:
            with self._logins.way(plan.endpoint, record) as through, self._slots:
                began = time.monotonic()
                budget = gevent.Timeout(self._start.node_budget_s)
                request = self._start.requests[plan.first]
                with budget:
                    link, pending = self._login(plan, record, through, request)
                    self._links[index] = link
                    self._emit(Ended(index, record.session(Login.OK)))
                    logged_in = True
                    if not self._start.keep_open:
                        self._reply(index, 0, link, request, pending=pending)
            if self._start.keep_open:
                # Outside the slots: what the agents do costs this machine nothing.
                left = began + self._start.node_budget_s - time.monotonic()
                request = msgspec.structs.replace(request, timeout_s=min(request.timeout_s, max(left, 0.1)))
                self._reply(index, 0, link, request, pending=pending)
        except LoginFailed as e:
            lost_hop = self._logins.lost_hop(plan.endpoint)
            if lost_hop and e.outcome != Login.CONTROL:
                e = LoginFailed(Login.JUMP, lost_hop)
            self._emit(Ended(index, record.session(e.outcome, e.detail, e.local_fault)))
        except gevent.Timeout:
            if logged_in:
                self._missing(index, 0, Why.TIMED_OUT, self._over_budget())
            else:
                self._emit(Ended(index, record.session(Login.TIMEOUT, self._over_budget())))
        except Exception as e:  # one node's surprise must not cost the others
            detail = f"netdoctor's own worker: {type(e).__name__}: {e}"
            if logged_in:
                self._missing(index, 0, Why.FAILED, detail)
            else:
                self._emit(Ended(index, record.session(Login.CONTROL, detail)))
        finally:
            if link is not None and (not logged_in or not self._start.keep_open):
                self._links.pop(index, None)
                link.close()

    def _over_budget(self) -> str:
        return f"not finished within the node's {self._start.node_budget_s:g} s"

    def _login(
        self, plan: NodePlan, record: Record, through: NodeTransport | None, request: WireRequest
    ) -> tuple[AgentLink, bool]:
        """(a link to a running agent, whether the first request went with it). Raises LoginFailed."""
        connection, wire = self._logins.connect(plan.endpoint, record, through)
        link = AgentLink(connection, connection.transport, wire, self._start.marker, self._start.anchor_s)
        try:
            first = self._bundle
            pending = request.op != "clock"
            if pending:
                # Nodes of a cluster have the same Python: no need to wait until each asks for its modules.
                if plan.python in self._like_ours:
                    first += bundle.pack(bundle.own_tag())
                first += link.conversation.ask(request.op, bytes(request.args), request.timeout_s, bytes)
            hello = link.start(bundle.command(plan.python, self._start.marker), first, record)
            record.python_version = clean(hello.old_python or hello.python, 20)
            if why := session.too_old(hello, plan.python):
                raise LoginFailed(Login.OLD_PYTHON, why)
            if hello.tag == bundle.own_tag():
                self._like_ours.add(plan.python)
        except gevent.Timeout as e:
            printed, full = link.silence, link.process_limit()
            link.close()
            if record.stage == "shell" and full:
                raise LoginFailed(Login.PROCESS_LIMIT, full) from e
            if record.stage == "shell" and printed:
                detail = f"no agent within the node's budget; the shell printed: {printed}"
                raise LoginFailed(Login.SHELL, detail) from e
            raise
        except BaseException:
            link.close()
            raise
        return link, pending

    # Requests

    def call(self, call: Call) -> None:
        """Send requests to open sessions; returns at once."""
        for index, request_index in call.to.items():
            gevent.spawn(self._call, index, call.number, call.requests[request_index])

    def _call(self, index: int, number: int, request: WireRequest) -> None:
        link = self._links.get(index)
        if link is None:
            self._missing(index, number, Why.LOST, "no open session")
            return
        self._reply(index, number, link, request)

    def _reply(
        self, index: int, number: int, link: AgentLink, request: WireRequest, *, pending: bool = False
    ) -> None:
        """Emit exactly one answer. A timeout that is not this request's own goes on to the caller."""
        limit = gevent.Timeout(request.timeout_s)
        try:
            turn = self._clock_slots if request.op == "clock" else contextlib.nullcontext()
            with turn, link.lock, limit:
                if pending:
                    answer = link.answer()
                else:
                    answer = link.call(request.op, bytes(request.args), request.timeout_s)
        except AgentLost as e:
            lost_hop = self._logins.lost_hop(self._start.nodes[index].endpoint)
            self._missing(index, number, Why.JUMP if lost_hop else Why.LOST, lost_hop or str(e))
        except ProtocolError as e:
            self._missing(index, number, Why.UNPARSABLE, str(e))
        except gevent.Timeout as e:
            if e is not limit:
                raise
            detail = f"no answer to {request.op} within {request.timeout_s:g} s"
            self._missing(index, number, Why.TIMED_OUT, detail)
        except Exception as e:  # exactly one answer, whatever happens
            detail = f"netdoctor's own worker: {type(e).__name__}: {e}"
            self._missing(index, number, Why.FAILED, detail)
        else:
            self._emit_answer(index, number, answer)

    def _missing(self, index: int, call: int, why: str, detail: str) -> None:
        self._emit(Answer(index, call, why=str(why), detail=clean(detail, 400)))

    def _emit_answer(self, index: int, number: int, answer: session.Answer) -> None:
        if answer.missing is not None:
            self._missing(index, number, answer.missing.why, answer.missing.detail)
        else:  # clocks are read here, all else as it came
            raw = answer.result if isinstance(answer.result, bytes) else msgspec.json.encode(answer.result)
            self._emit(Answer(index, number), raw)

    def _note(self, text: str) -> None:
        self._emit(Note(clean(text, 300)))

    def end(self) -> None:
        """Kill what would not end with this process."""
        self._logins.end()
