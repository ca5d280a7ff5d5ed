"""Scans for the TUI, in a thread: the runner that its screens are handed. See netdoctor.tui.runner."""

import os
import shlex
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdoctor import scanning
from netdoctor.engine.run import Outcome, Progress, Scan
from netdoctor.errors import DeadlineReached, InputError
from netdoctor.facts.host import MEET
from netdoctor.inventory import InventoryError, Problem, Target
from netdoctor.inventory.readers import READERS
from netdoctor.inventory.reading import file_exists
from netdoctor.options import OPTIONS
from netdoctor.report import LAST
from netdoctor.report.model import Report
from netdoctor.report.save import save
from netdoctor.scanning import ScanRequest
from netdoctor.scanning.meeting import awaited
from netdoctor.text import clean
from netdoctor.transport.base import Transport
from netdoctor.tui.events import Began, Ended, Event, Failed, NodeDone, Phase
from netdoctor.tui.runner import Request
from netdoctor.tui.state import by_family

CLOSE_S = 4.0
# Settings that decide which programs run and who is trusted, and what they are called.
_TRUSTED = {name: one.decides for name, one in OPTIONS.items() if one.decides}
# Editors that go to a line with +N.
TAKE_A_LINE = frozenset(
    ["vi", "vim", "nvim", "nano", "pico", "emacs", "emacsclient", "micro", "kak", "joe", "mg", "ne"]
)


class ScanRunner:
    """Scans in a thread and tells what happens in `events`. See netdoctor.tui.runner.Runner."""

    def __init__(
        self,
        first: ScanRequest | None,
        given: Mapping[str, Any],
        opened: Path | None = None,
        ready: scanning.Plan | None = None,
    ) -> None:
        """`first`: the scan to begin with, None where a report was opened, from the file `opened`.

        given: fields of a ScanRequest that were said now; they win over those of reports. ready: the plan of
        `first`, where it was made already.
        """
        self._ready = ready
        self.events: deque[Event] = deque()
        self.question = ""
        self.cannot = ""
        self._first = first
        self._given = dict(given)
        self._source = opened or self._given.get("save")
        self._is_last = opened is None or opened == LAST
        self._thread: threading.Thread | None = None
        self._transport: Transport | None = None
        self._closing = False
        self._request = first
        self._targets: dict[str, Target] = {}
        self._position: tuple[Path, int] | None = None
        self.formats = _formats(first.format if first is not None else "auto")

    def adopt(self, report: Report) -> None:
        """Learn from a saved report how it was made; its word is checked like a hosts file."""
        try:
            request = self._replayed(report)
        except InputError as error:
            self.cannot = str(error)
            return
        self._know(request, request.targets or ())
        brought = self._brought(request)
        if not self._is_last or brought:
            users = ", ".join(sorted({t.user for t in self._targets.values() if t.user})) or "your user"
            names = ", ".join(list(self._targets)[:4]) + (", ..." if len(self._targets) > 4 else "")
            self.question = (
                "This report came from a file. Running it again logs in to the "
                f"{len(self._targets)} nodes that it names ({names}) as {users}"
                f"{f', with {brought} that it says' if brought else ''}. Do you trust it?"
            )

    def _brought(self, request: ScanRequest) -> str:
        """What a request has from its report alone, and decides which programs run and who is trusted."""
        settings = {name: getattr(request, name) for name in _TRUSTED if name not in self._given}
        pythons = [t.python for t in request.targets or () if t.python]
        if pythons and "python" not in self._given:
            settings["python"] = settings.get("python") or pythons[0]
        words = [f"the {_TRUSTED[name]} {value}" for name, value in settings.items() if value is not None]
        return ", ".join(words)

    def _replayed(self, report: Report) -> ScanRequest:
        return scanning.kept_request(report, self._given, self._source)

    def _know(self, request: ScanRequest, targets: Sequence[Target]) -> None:
        self._request = request
        self._targets = {target.id: target for target in targets}

    # Runner

    def begin(self, request: Request, report: Report | None) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._work, args=(request, report), name="scan", daemon=True)
        self._thread.start()

    def will_run(self, request: Request, report: Report) -> dict[str, str]:
        if not report.facts:
            request = Request()
        try:
            return scanning.costs(report, self._given, checks=request.checks, nodes=request.nodes)
        except InputError:
            return {}  # it cannot begin, and says why when it is to

    def stop(self) -> None:
        self._interrupt(KeyboardInterrupt())

    def _interrupt(self, error: BaseException) -> None:
        transport = self._transport
        if transport is not None:
            transport.interrupt(error)

    def close(self) -> None:
        self._closing = True
        self.stop()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def ssh(self, node: str) -> list[str] | None:
        target = self._targets.get(node)
        if target is None or self._request is None:
            return None
        return [*scanning.ssh_argv(self._request), *scanning.destination(target, self._request)]

    def editor(self) -> tuple[str, list[str]] | None:
        if self._position is None:
            return None
        path, number = self._position
        command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        try:
            argv = shlex.split(command)
        except ValueError:
            return None
        if not argv or shutil.which(argv[0]) is None:
            return None
        at = [f"+{number}"] if Path(argv[0]).name in TAKE_A_LINE else []
        return f"{clean(path.name, 60)}:{number}", [*argv, *at, str(path)]

    def read_as(self, format: str) -> None:
        if self._first is not None:
            self._first = replace(self._first, format=format)
        self.formats = _formats(format)

    # In the thread

    def _work(self, request: Request, report: Report | None) -> None:
        self._position = None
        try:
            if report is None or not report.facts or request == Request():
                self._full(report)
            else:
                self._partial(request, report)
        except KeyboardInterrupt:  # while tasks were waited for
            self.events.append(Failed(time.time(), "stopped: nobody was asked anything"))
        except InputError as error:
            if isinstance(error, InventoryError):
                self._position = self._find(error)
            self.events.append(Failed(time.time(), str(error)))
        except Exception as error:  # the screens stay, with what they had
            text = clean(f"{type(error).__name__}: {error}", 300)
            self.events.append(Failed(time.time(), f"netdoctor broke ({text})"))
        finally:
            self._transport = None

    def _set_transport(self, transport: Transport) -> None:
        self._transport = transport

    def _find(self, error: InventoryError) -> tuple[Path, int] | None:
        """The file and line of the first problem that stands in one of the files that were named."""
        files = [word for word in (self._first.hosts if self._first else ()) if file_exists(word)]
        for problem in error.problems:
            for word in files:
                # A problem holds its source as it is shown.
                if problem.line is not None and Problem(word, None, "", "").source == problem.source:
                    return Path(word).absolute(), problem.line
        return None

    def _full(self, report: Report | None) -> None:
        request = self._first if report is None else self._replayed(report)
        if request is None:
            raise InputError("there is nothing to scan")
        if (
            report is not None and self._is_last
        ):  # whoever was asked about a report's nodes was asked about those
            request = scanning.reread(request, report.run.replay)
        if report is not None and request.via == MEET and request.targets is None:
            nodes, now = tuple(report.matrix.nodes), time.time()
            self.events.append(Began(now, nodes, (), partial=True, text=awaited(request)))
        plan, self._ready = self._ready or scanning.prepare(request, on_transport=self._set_transport), None
        self._know(request, plan.inventory.targets)
        started = time.monotonic()
        scan = plan.scan()
        self._began(scan, scan.options.judged or scan.nodes, [c.id for c in plan.checks], plan)
        outcome = self._run(scan, plan)
        self._ended(scanning.assemble(plan, outcome, time.monotonic() - started), request)

    def _partial(self, request: Request, report: Report) -> None:
        part = scanning.plan_part(
            report, self._given, self._source, checks=request.checks, nodes=request.nodes
        )
        scan = part.plan.scan()
        self._began(scan, part.nodes, part.checks, part.plan, partial=True, requested=request.checks or ())
        self._ended(part.assemble(self._run(scan, part.plan)), part.plan.request)

    def _began(
        self,
        scan: Scan,
        nodes: Sequence[str],
        checks: Sequence[str],
        plan: scanning.Plan,
        *,
        partial: bool = False,
        requested: tuple[str, ...] = (),
    ) -> None:
        """Tell what begins, and listen to it."""
        families = {c.id: c.family for c in scan.checks}
        order = by_family([(c, families.get(c, c.partition(".")[0])) for c in checks])
        source = "" if partial else plan.inventory.source
        profile = plan.request.profile
        # Who names the nodes has tasks waited for only now.
        text = awaited(plan.request) if MEET == plan.request.via != plan.inventory.format else ""
        began = Began(time.time(), tuple(nodes), tuple(order), source, profile, partial, requested, text)
        self.events.append(began)
        scan.listener = self._listener(scan, nodes, [c for c, _ in order], live=not partial)

    def _run(self, scan: Scan, plan: scanning.Plan) -> Outcome:
        self._transport = plan.transport
        timer = None
        if plan.left_s:
            timer = threading.Timer(plan.left_s, self._interrupt, (DeadlineReached(),))
            timer.daemon = True
            timer.start()
        if self._closing:
            self.stop()
        try:
            return scan.run(plan.transport)
        finally:
            if timer is not None:
                timer.cancel()

    def _ended(self, report: Report, request: ScanRequest) -> None:
        """Save the report and tell it."""
        failure = ""
        if request.save is not None:
            try:
                report = save(report, request.save)
            except OSError as error:
                failure = f"the report was not saved to {request.save}: {error.strerror or error}"
        self.events.append(Ended(time.time(), report, failure))

    def _listener(
        self, scan: Scan, nodes: Sequence[str], checks: Sequence[str], *, live: bool
    ) -> Callable[[Progress], None]:
        rows = {node: row for row, node in enumerate(nodes)}
        columns = {check: column for column, check in enumerate(checks)}

        def report_progress(progress: Progress) -> None:
            now = time.time()
            left = None if progress.ends is None else progress.ends - time.monotonic()
            self.events.append(Phase(now, progress.phase, progress.done, progress.total, left))
            if progress.node is None:
                return
            self.events.append(NodeDone(now, progress.node, progress.text))
            row = rows.get(progress.node)
            if live and row is not None:
                for check, status in scan.preview(progress.node).items():
                    if check in columns:
                        self.events.append((row, columns[check], status.letter))

        return report_progress


def _formats(used: str) -> tuple[str, ...]:
    """Ways to read a host list, the one in use first."""
    return tuple(dict.fromkeys([used, "auto", *READERS]))
