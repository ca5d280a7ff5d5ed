"""The SSH transport as the engine sees it: worker processes that it starts, feeds and listens to."""

import contextlib
import os
import resource
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

import netdoctor
from netdoctor.errors import UnreadableReply
from netdoctor.facts.base import Why
from netdoctor.facts.host import Login, Session, Trouble
from netdoctor.inventory.model import Target
from netdoctor.text import clean
from netdoctor.transport import here
from netdoctor.transport.base import (
    CLOCK_AT_ONCE,
    OWN_WORKER,
    SLACK_S,
    Event,
    Limits,
    Reply,
    Request,
    SessionEvent,
    SshOptions,
    StartPlan,
    Transport,
    last_moment,
    missing_reply,
)
from netdoctor.transport.session import reader_of
from netdoctor.transport.ssh.messages import (
    LOOKUP_THREADS,
    Answer,
    Call,
    Ended,
    Endpoint,
    FromWorker,
    NodePlan,
    Note,
    Splitter,
    Start,
    WireRequest,
    framed,
)
from netdoctor.transport.ssh.sshconfig import Resolver

DEFAULT_PYTHON = "python3"
NODES_PER_WORKER = 256
WORKERS_MAX = 16
FDS_OF_A_WORKER = 40
FDS_OF_A_PROXY = 3
CLOSE_S = 1.5
# How soon `interrupt` is noticed.
INTERRUPT_S = 0.25
HANDSHAKES_PER_ENDPOINT = 8  # below sshd's MaxStartups 10:30:100, also where it is a ProxyCommand's

# A login that came so far had the right address, user and key.
LOGGED_IN = frozenset({"channel", "shell", "agent"})
# Of this machine, whatever stands in the user's ssh settings.
WHATEVER_IS_SET = frozenset({Trouble.NETWORK, Trouble.PROCESSES, Trouble.FILES, Trouble.MEMORY})

_decode = msgspec.json.Decoder(FromWorker).decode


def _is_name(host: str) -> bool:
    """Whether somebody may have to look it up; for a bound, so nearly is enough."""
    return ":" not in host and not host.replace(".", "").isdigit()


@dataclass(slots=True)
class _Worker:
    """A worker process and the nodes that it looks after."""

    process: subprocess.Popen[bytes]
    errors: int
    nodes: list[str] = field(default_factory=list)
    splitter: Splitter = field(default_factory=Splitter)
    alive: bool = True
    last_words: str = ""


# The current directory is not searched for modules.
_WORKER = "netdoctor.transport.ssh.ssh_worker"
_BEFORE_3_11 = (
    f"import sys; sys.path.remove(''); import runpy; runpy.run_module({_WORKER!r}, None, '__main__')"
)
_RUN_WORKER = ("-P", "-m", _WORKER) if sys.version_info >= (3, 11) else ("-c", _BEFORE_3_11)


def worker_process(environment: Mapping[str, str], errors: int) -> subprocess.Popen[bytes]:
    """A new process of `ssh_worker`, its streams unbuffered, its stderr in `errors`. Raises OSError."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, *_RUN_WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        cwd="/",
        start_new_session=True,  # Ctrl-C reaches the main process only
        bufsize=0,
    )


class SshTransport(Transport):
    """Reaches nodes over SSH."""

    def __init__(self, options: SshOptions, limits: Limits) -> None:
        """Read the user's ssh settings. Raises TransportInputError."""
        self._limits = limits
        self._resolver = Resolver(options)
        self._notes: dict[str, None] = dict.fromkeys(self._resolver.notes)
        self._workers: list[_Worker] = []
        self._home: dict[str, tuple[_Worker, int]] = {}
        self._calls = 0
        self._closed = False

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    # What would happen

    def describe(self, target: Target) -> dict[str, Any]:
        """Return where and how `start` would log in, without contact. Raises TransportInputError."""
        endpoint = self._resolver.resolve(target)
        return {
            "transport": "ssh",
            "host": endpoint.host,
            "address": endpoint.host,
            "port": endpoint.port,
            "user": endpoint.user,
            "jump": [f"{hop.user}@{hop.host}:{hop.port}" for hop in endpoint.jump],
            "proxy_command": list(endpoint.proxy),
            "keys": list(endpoint.keys),
            "agent": endpoint.agent is not None and not (endpoint.keys_only and not endpoint.keys),
            "known_as": endpoint.known_as,
            "known_hosts": [*endpoint.user_known_hosts, *endpoint.global_known_hosts],
            "unknown_host_keys": {"yes": "refused", "accept": "accepted", "record": "accepted and written"}[
                endpoint.strict
            ],
            "python": target.python or DEFAULT_PYTHON,
        }

    def bound_s(self, targets: Sequence[Target]) -> float:
        """Return the longest that `start` can take. Raises TransportInputError."""
        return self._bound_s(self._resolver.resolve_all(targets))

    def _bound_s(self, endpoints: Sequence[Endpoint]) -> float:
        """Return what the last node may wait for: the resolver's turn, jump hosts, its turn among those that
        share a door, a place among all, and itself."""
        workers = self._worker_count(endpoints, keep_open=True)
        at_once = max(1, self._limits.parallel // workers) * workers
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            each = FDS_OF_A_PROXY if any(e.proxy for e in endpoints) else 1
            at_once = max(1, min(at_once, (files - FDS_OF_A_WORKER) // each * workers))
        sharing = Counter(e.door for e in endpoints)
        turns = -(-max(sharing.values(), default=1) // max(1, HANDSHAKES_PER_ENDPOINT // workers))
        rounds = turns + (-(-len(endpoints) // at_once) if len(endpoints) > at_once else 0)
        names = sum(not e.proxy and not e.jump and _is_name(e.host) for e in endpoints)
        lookups = max(0, names - 1) // (LOOKUP_THREADS * workers)
        before = lookups + max((len(e.jump) for e in endpoints), default=0)
        return rounds * self._limits.node_budget_s + before * self._limits.login_timeout_s + SLACK_S

    # Logging in

    def _start(self, plan: StartPlan) -> Iterator[Event]:
        """Raises TransportInputError at once, before any contact, naming everything that is wrong."""
        return self._log_in(plan, self._resolver.resolve_all(plan.targets))

    def _log_in(self, plan: StartPlan, endpoints: Sequence[Endpoint]) -> Iterator[Event]:
        targets = plan.targets
        if not targets:
            return
        self._begin_again()
        try:
            self._staff(self._worker_count(endpoints, plan.keep_open))
        except (OSError, MemoryError) as e:
            if not self._workers:
                local_fault, detail = here.no_process(e)
                session = Session(
                    outcome=Login.CONTROL, stage="resolve", detail=clean(detail, 400), trouble=local_fault
                )
                yield from (SessionEvent(node=target.id, session=session) for target in targets)
                return
        # The nodes are shared among those that could be started.
        count = len(self._workers)
        shares = [range(i, len(targets), count) for i in range(count)]
        for worker, share in zip(self._workers, shares, strict=True):
            worker.nodes = [targets[i].id for i in share]
            self._home.update({node: (worker, index) for index, node in enumerate(worker.nodes)})
        # The workers import while this process compresses the agent.
        from netdoctor.transport.bundle import build_bundle

        marker = secrets.token_hex(8)
        bundle = build_bundle(marker=marker, deadline_s=plan.deadline_s, collectors=plan.collectors)
        anchor = time.time() - time.monotonic()
        for worker, share in zip(self._workers, shares, strict=True):
            table = _Table()
            nodes = [
                NodePlan(
                    endpoints[i], targets[i].python or DEFAULT_PYTHON, table.index(plan.first[targets[i].id])
                )
                for i in share
            ]
            message = Start(
                nodes=nodes,
                requests=table.requests,
                keep_open=plan.keep_open,
                marker=marker,
                anchor_s=anchor,
                parallel=max(1, self._limits.parallel // count),
                login_timeout_s=self._limits.login_timeout_s,
                node_budget_s=self._limits.node_budget_s,
                clock_parallel=max(1, CLOCK_AT_ONCE // count),
                per_endpoint=max(1, HANDSHAKES_PER_ENDPOINT // count),
            )
            self._send(worker, framed(message) + len(bundle).to_bytes(4, "big") + bundle)
        first = {target.id: plan.first[target.id] for target in targets}
        yield from self._gather_logins(first, self._bound_s(endpoints))

    def _begin_again(self) -> None:
        """End what an earlier start has left."""
        if self._workers:
            self.close()
            self._workers, self._home, self._closed = [], {}, False

    def _worker_count(self, endpoints: Sequence[Endpoint], keep_open: bool) -> int:
        """Return how many processes to use: by load, and by what their file descriptors allow."""
        nodes = len(endpoints)
        count = min(os.cpu_count() or 1, -(-nodes // NODES_PER_WORKER))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if keep_open and hard != resource.RLIM_INFINITY:
            each = FDS_OF_A_PROXY if any(e.proxy for e in endpoints) else 1
            count = max(count, -(-nodes * each // max(8, hard - FDS_OF_A_WORKER)))
        # Three descriptors for each worker here.
        return max(1, min(count, WORKERS_MAX, nodes, (soft - 20) // 4))

    def _staff(self, count: int) -> None:
        """Start workers. Raises OSError or MemoryError where this machine has no room for all of them."""
        environment = dict(os.environ)
        # A checkout is found where this process found it.
        home = str(Path(netdoctor.__file__).resolve().parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (home, environment.get("PYTHONPATH", "")) if p)
        while len(self._workers) < count:
            errors = _scratch_file()
            try:
                process = worker_process(environment, errors)
            except BaseException:
                os.close(errors)
                raise
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self._workers.append(_Worker(process, errors))

    def _gather_logins(self, waiting: dict[str, Request], bound_s: float) -> Iterator[Event]:
        """Yield one SessionEvent per node, and one Reply where the session is ok."""
        reached: set[str] = set()
        finish = time.monotonic() + bound_s

        def lost(node: str, detail: str) -> Event:
            waiting.pop(node, None)
            if node in reached:
                return missing_reply(node, Why.FAILED, detail)
            session = Session(outcome=Login.CONTROL, stage="resolve", detail=detail)
            return SessionEvent(node=node, session=session)

        for worker, message, result in self._messages(lambda: bool(waiting), finish):
            if isinstance(message, Ended):
                node = worker.nodes[message.node]
                if message.session.outcome == Login.OK:
                    reached.add(node)
                else:
                    waiting.pop(node, None)
                yield SessionEvent(node=node, session=self._as_meant(message.session))
            elif isinstance(message, Answer):
                request = waiting.pop(worker.nodes[message.node], None) if message.call == 0 else None
                if request is not None:
                    yield _reply(worker.nodes[message.node], message, result, request.by_group)
            else:
                for node in [n for n in worker.nodes if n in waiting]:
                    yield lost(node, message)
        for node in sorted(waiting):
            yield lost(node, f"{OWN_WORKER} did not answer in time")

    def _as_meant(self, session: Session) -> Session:
        """What a failed login says: nothing of the node, where the settings that lead to it were not read."""
        unread = self._resolver.unread
        if unread is None or session.outcome == Login.OK or session.stage in LOGGED_IN:
            return session
        if session.trouble in WHATEVER_IS_SET:
            return session
        detail = f"your ssh settings were not read: {unread}"
        return replace(session, outcome=Login.CONTROL, trouble=Trouble.SETTINGS, detail=clean(detail, 400))

    # Requests

    def _call(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        self._calls += 1
        number = self._calls
        waiting: set[str] = set()
        batches: dict[int, tuple[_Worker, dict[int, int], _Table]] = {}
        unknown = []
        for node, request in requests.items():
            if node not in self._home or not self._home[node][0].alive:
                unknown.append(node)
                continue
            worker, index = self._home[node]
            _, to, table = batches.setdefault(id(worker), (worker, {}, _Table()))
            to[index] = table.index(request)
            waiting.add(node)
        for worker, to, table in batches.values():
            self._send(worker, framed(Call(number, to, table.requests)))
        return self._answers(number, unknown, waiting, last_moment(requests, finish))

    def _answers(
        self, number: int, unknown: Sequence[str], waiting: set[str], finish: float
    ) -> Iterator[Reply]:
        for node in unknown:
            yield missing_reply(node, Why.LOST, "no open session")
        for worker, message, result in self._messages(lambda: bool(waiting), finish):
            if isinstance(message, str):
                for node in [n for n in worker.nodes if n in waiting]:
                    waiting.discard(node)
                    yield missing_reply(node, Why.FAILED, message)
            elif isinstance(message, Answer) and message.call == number:
                node = worker.nodes[message.node]
                if node in waiting:
                    waiting.discard(node)
                    yield _reply(node, message, result)
        for node in sorted(waiting):
            yield missing_reply(node, Why.TIMED_OUT, f"{OWN_WORKER} did not answer in time")

    # Workers

    def _messages(
        self, more: Callable[[], bool], finish: float
    ) -> Iterator[tuple[_Worker, Ended | Answer | str, bytes]]:
        """Yield what workers say, and the result behind it; a text when one is gone.

        Ends where there is no more to wait for.
        """
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                if worker.alive and worker.process.stdout is not None:
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
                elif not worker.alive:
                    yield worker, worker.last_words, b""
            while more() and selector.get_map():
                self._raise_interruption()
                left = finish - time.monotonic()
                if left <= 0:
                    return
                for key, _ in selector.select(min(left, INTERRUPT_S)):
                    worker = key.data
                    for message, result in self._read(worker):
                        yield worker, message, result
                    if not worker.alive:
                        selector.unregister(key.fileobj)
                        yield worker, worker.last_words, b""

    def _read(self, worker: _Worker) -> list[tuple[Ended | Answer, bytes]]:
        """Return the messages that are there; marks the worker when it is gone."""
        assert worker.process.stdout is not None
        try:
            data = os.read(worker.process.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._take_leave(worker)
            return []
        found: list[tuple[Ended | Answer, bytes]] = []
        try:
            for body in worker.splitter.feed(data):
                head, _, result = body.partition(b"\n")
                message = _decode(head)
                if isinstance(message, Note):
                    self._notes[message.text] = None
                else:
                    found.append((message, result))
        except (ValueError, msgspec.MsgspecError):  # not reached unless the worker's memory is damaged
            self._take_leave(worker)
        return found

    def _take_leave(self, worker: _Worker) -> None:
        """Take leave of a worker that died, and keep its last words."""
        worker.alive = False
        with contextlib.suppress(OSError):
            worker.process.kill()
        code = worker.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        lines = os.pread(worker.errors, 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
        worker.last_words = f"{OWN_WORKER} {how}" + (f": {clean(lines[-1], 200)}" if lines else "")

    def _send(self, worker: _Worker, data: bytes) -> None:
        """Write to a worker, which always reads; one that is gone is noticed where its output is read."""
        assert worker.process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(worker.process.stdin.fileno(), view) :]
        except BrokenPipeError:
            pass

    def close(self) -> None:
        """End all sessions and worker processes within two seconds. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            if worker.process.stdin is not None:
                with contextlib.suppress(OSError):
                    worker.process.stdin.close()
        finish = time.monotonic() + CLOSE_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, finish - time.monotonic()))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.kill(worker.process.pid, signal.SIGKILL)
                worker.process.wait()
            if worker.process.stdout is not None:
                worker.process.stdout.close()
            if worker.alive:
                worker.last_words = "the transport was closed"
            worker.alive = False
            os.close(worker.errors)


class _Table:
    """Distinct requests, each encoded once: most nodes are asked the same."""

    def __init__(self) -> None:
        self.requests: list[WireRequest] = []
        self._entered: dict[int, tuple[int, Request]] = {}  # the request, so that no other one gets its id

    def index(self, request: Request) -> int:
        """Return the index of a request, entering it when it is new."""
        if id(request) not in self._entered:
            self._entered[id(request)] = len(self.requests), request
            raw = msgspec.Raw(msgspec.json.encode(dict(request.args)))
            self.requests.append(WireRequest(request.op, raw, request.timeout_s))
        return self._entered[id(request)][0]


def _reply(node: str, answer: Answer, result: bytes, by_group: bool = False) -> Reply:
    """Return an answer as the engine wants it. Here its result is read, for the first time."""
    if answer.why is not None:
        return missing_reply(node, Why(answer.why), answer.detail)
    try:
        return Reply(node=node, result=reader_of(by_group)(result))
    except UnreadableReply as e:
        return missing_reply(node, Why.UNPARSABLE, clean(str(e), 400))


def _scratch_file() -> int:
    """Return a descriptor to write to that is nowhere on disk, or the null device."""
    try:
        return os.memfd_create("netdoctor-worker")
    except (OSError, AttributeError):
        return os.open(os.devnull, os.O_RDWR)
