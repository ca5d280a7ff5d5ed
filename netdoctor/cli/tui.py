"""`netdoctor tui`: the report, and the scan, as screens. The scanning for them happens here, in a thread."""

import argparse
import copy
import os
import shlex
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdoctor.cli import EXIT_BAD_INPUT
from netdoctor.cli import scan as scan_
from netdoctor.errors import DeadlineReached, InputError
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.check import Check
    from netdoctor.engine.run import Progress, Scan
    from netdoctor.inventory import InventoryError, Target
    from netdoctor.report.model import Report
    from netdoctor.tui.events import Event
    from netdoctor.tui.runner import Request

CLOSE_S = 4.0
RERUN = "run again "
# Editors that go to a line with +N.
TAKE_A_LINE = frozenset(
    ["vi", "vim", "nvim", "nano", "pico", "emacs", "emacsclient", "micro", "kak", "joe", "mg", "ne"]
)

EPILOG = """\
examples:
  netdoctor tui hosts.txt            scan, and watch
  netdoctor tui --last               the last saved report
  netdoctor tui report.json          any report
  netdoctor tui --last > fixes.sh    E writes fixes to standard output when that is no terminal
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "tui",
        help="look at a report, or at a scan while it runs, in the terminal",
        description="Causes, matrix, pairs, nodes and changes as screens; ? shows the keys.",
        epilog=EPILOG,
    )
    scan_.add_scan_arguments(parser, hosts="a report (.json), or what scan takes: a hosts file, '-', names")
    out = parser.add_argument_group("output")
    out.add_argument(
        "--save", type=Path, metavar="FILE", help=f"save the report here (default: {scan_.LAST})"
    )
    out.add_argument("--no-save", action="store_true", help="do not save the report")
    out.add_argument("--base", type=Path, metavar="REPORT", help="the report that screen 6 compares with")
    add_tui_arguments(out)
    parser.set_defaults(
        run=run, parser=parser, facts=None, plan=False, strict=False, fail_on="fail", redact=False
    )


def add_tui_arguments(group: "argparse._ArgumentGroup") -> None:
    """The flags that `scan --tui` has, too."""
    group.add_argument("--export", type=Path, metavar="FILE", help="where E writes fixes in the TUI")
    group.add_argument(
        "--theme",
        choices=("auto", "dark", "light"),
        default="auto",
        help="background of the TUI (auto: COLORFGBG, else dark)",
    )


def no_terminal() -> str | None:
    """Why there can be no screens here, or None."""
    for name, stream in (("standard input", sys.stdin), ("standard error", sys.stderr)):
        if stream is None or not stream.isatty():
            return f"{name} is no terminal"
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return "TERM says that this terminal cannot draw"
    return None


def run(args: argparse.Namespace) -> int:
    """The whole command. Bad input in a report is told at once; in a hosts file, on the screen."""

    if why := no_terminal():
        sys.stderr.write(f"netdoctor tui: {why}; use: netdoctor scan, or netdoctor report show FILE\n")
        return EXIT_BAD_INPUT
    try:
        saved = _saved(args)
        if saved is None:
            if not (args.hosts or args.local):
                raise InputError("nothing to show: name a hosts file, hosts, a report, or --last")
            return show(args, None, None)
        from netdoctor.report.save import load

        return show(args, load(saved), saved)
    except InputError as error:
        sys.stderr.write("".join(f"netdoctor: {clean(x, 1000)}\n" for x in str(error).splitlines() if x))
        return EXIT_BAD_INPUT


def _saved(args: argparse.Namespace) -> Path | None:
    """The report that is asked for, None where hosts are."""
    if args.last:
        if args.hosts:
            raise InputError("--last shows the last report; leave the rest out")
        return args.save or scan_.LAST
    if len(args.hosts) != 1:
        return None
    path = Path(args.hosts[0])
    try:
        if path.suffix == ".json" or (path.is_file() and _first_byte(path) == b"{"):
            return path
    except OSError:
        return None
    return None


def _first_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1]


def show(args: argparse.Namespace, report: "Report | None", path: Path | None) -> int:
    """Run the application on a report, or on a scan that begins now, and return the exit code."""
    if why := no_terminal():
        raise InputError(f"the TUI: {why}; netdoctor scan without --tui prints the report")
    from netdoctor import cli
    from netdoctor.report.save import load
    from netdoctor.tui.app import NetdoctorApp
    from netdoctor.tui.runner import Request
    from netdoctor.tui.state import opened

    runner = ScanRunner(args, path)
    if report is not None:
        runner.adopt(report)
    app = NetdoctorApp(
        opened(report) if report is not None else None,
        runner=runner,
        begin=None if report is not None else Request(),
        path=path,
        export=args.export,
        export_to_stdout=not sys.stdout.isatty(),
        light=_light(args.theme),
    )
    base = getattr(args, "base", None)
    if base is not None:
        app.base, app.base_name = load(base), str(base)
    try:
        app.run()
    finally:
        runner.close()
    if app.crash is not None:
        return cli._broken(app.crash)
    for text in app.exported:
        sys.stdout.write(text)
    for line in app.left_behind:
        sys.stderr.write(f"{line}\n")
    args.shown = app.state.report
    if app.signal:
        return 128 + app.signal
    if app.state.report is None:
        return EXIT_BAD_INPUT if app.state.message else 130
    return app.state.report.verdict.exit_code


def _light(theme: str) -> bool:
    """Whether to draw for a light background; some terminals say so in COLORFGBG."""
    if theme != "auto":
        return theme == "light"
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


class ScanRunner:
    """Scans in a thread and tells what happens in `events`. See netdoctor.tui.runner.Runner."""

    def __init__(self, args: argparse.Namespace, path: Path | None) -> None:
        self.events: deque[Event] = deque()
        self.question = ""
        self.cannot = ""
        self._args = args
        self._path = None if getattr(args, "no_save", False) else (path or args.save or scan_.LAST)
        self._own = path is None or path == scan_.LAST
        self._thread: threading.Thread | None = None
        self._transport: Any = None
        self._closing = False
        self._targets: dict[str, Target] = {}
        self._replayed: argparse.Namespace | None = None
        self._place: tuple[Path, int] | None = None
        self.formats: tuple[str, ...] = ()
        self.read_as(getattr(args, "format", "auto"))

    def adopt(self, report: "Report") -> None:
        """Learn from a saved report how it was made; its word is checked like a hosts file."""
        try:
            self._replayed = self._args_of(report)
        except InputError as error:
            self.cannot = str(error)
            return
        self._targets = {t.id: t for t in self._replayed.last_targets}
        if not self._own:
            users = ", ".join(sorted({t.user for t in self._targets.values() if t.user})) or "your user"
            config = self._replayed.ssh_config
            names = ", ".join(list(self._targets)[:4]) + (", ..." if len(self._targets) > 4 else "")
            self.question = (
                "This report came from a file. Running it again logs in to the "
                f"{len(self._targets)} nodes that it names ({names}) as {users}"
                f"{f', with the ssh config {config}' if config else ''}. Do you trust it?"
            )

    def _args_of(self, report: "Report") -> argparse.Namespace:
        args = copy.copy(self._args)
        args.hosts, args.last, args.local = [], False, False
        scan_.apply_replay(args, report.run.replay, self._path or Path("the report"))
        return args

    # Runner

    def begin(self, request: "Request", report: "Report | None") -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._work, args=(request, report), name="scan", daemon=True)
        self._thread.start()

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
        if target is None:
            return None
        args = self._replayed or self._args
        return [*scan_._ssh_argv(args), *scan_._destination(target)]

    def editor(self) -> tuple[str, list[str]] | None:
        if self._place is None:
            return None
        path, number = self._place
        wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        try:
            argv = shlex.split(wanted)
        except ValueError:
            return None
        if not argv or shutil.which(argv[0]) is None:
            return None
        at = [f"+{number}"] if Path(argv[0]).name in TAKE_A_LINE else []
        return f"{clean(path.name, 60)}:{number}", [*argv, *at, str(path)]

    def read_as(self, format: str) -> None:
        from netdoctor.inventory.formats import DIALECTS

        self._args = copy.copy(self._args)
        self._args.format = format
        self.formats = tuple(dict.fromkeys([format, "auto", *DIALECTS]))

    def save(self, report: "Report", path: Path) -> None:
        from netdoctor.report.save import save

        save(report, path)

    # In the thread

    def _work(self, request: "Request", report: "Report | None") -> None:
        from netdoctor.inventory import InventoryError
        from netdoctor.tui.events import Failed

        self._place = None
        try:
            if report is None or not report.facts or (request.checks is None and request.nodes is None):
                self._full(report)
            else:
                self._partial(request, report)
        except InputError as error:
            if isinstance(error, InventoryError):
                self._place = self._find(error)
            self.events.append(Failed(time.time(), str(error)))
        except Exception as error:  # the screens stay, with what they had
            text = clean(f"{type(error).__name__}: {error}", 300)
            self.events.append(Failed(time.time(), f"netdoctor broke ({text})"))
        finally:
            self._transport = None

    def _find(self, error: "InventoryError") -> tuple[Path, int] | None:
        """The file and line of the first problem that stands in one of the files that were named."""
        from netdoctor.inventory import Problem
        from netdoctor.inventory.reading import file_exists

        files = [word for word in self._args.hosts if file_exists(word)]
        for problem in error.problems:
            for word in files:
                # A problem holds its source as it is shown.
                if problem.line is not None and Problem(word, None, "", "").source == problem.source:
                    return Path(word).absolute(), problem.line
        return None

    def _full(self, report: "Report | None") -> None:
        from netdoctor.tui.events import Ended

        args = copy.copy(self._args) if report is None else self._args_of(report)
        args.last_targets = None if report is None else args.last_targets
        plan = scan_.prepare(args)
        self._targets = {t.id: t for t in plan.inventory.targets}
        self._replayed = args
        started = time.time()
        scan = plan.scan(args, lambda progress: None)
        outcome = self._run(scan, plan.transport, args, plan.inventory.source, partial=None)
        new = scan_._report(args, outcome, plan.known, plan.inventory, started, None, plan.targets)
        self.events.append(Ended(time.time(), *self._saved(new)))

    def _partial(self, request: "Request", report: "Report") -> None:
        from netdoctor import store
        from netdoctor.check import Profile
        from netdoctor.engine import registry
        from netdoctor.engine.run import rejudge
        from netdoctor.inventory import Inventory
        from netdoctor.report.build import Context, Remote, build
        from netdoctor.report.model import Note
        from netdoctor.tui.events import Ended

        args = self._args_of(report)
        known = registry.load(folders=getattr(args, "checks_dir", ()))
        every = registry.ordered(known.checks[c] for c in report.matrix.checks if c in known.checks)
        wanted = widened(request, report, every)
        # With --only a check of any profile runs when it is named.
        only = [c.id for c in every if c.id in wanted] if wanted is not None else [c.id for c in every]
        chosen = registry.select(known.checks, Profile(args.profile), only)
        inventory = Inventory(targets=args.last_targets, format="last", source=str(self._path))
        judged = tuple(n for n in report.matrix.nodes if request.nodes is None or n in set(request.nodes))
        plan = scan_.prepare(args, known=known, checks=chosen, inventory=inventory, judged=judged)
        scan = plan.scan(args, lambda progress: None)
        outcome = self._run(scan, plan.transport, args, "", partial=(judged, only))
        merged = store.merge(store.load(report.facts), outcome.store)
        again = rejudge(merged, every, report.matrix.nodes, report.run.ended_by)
        shown = f"{len(judged)} node{'s' if len(judged) != 1 else ''}"
        what = ", ".join(only) if len(only) <= 6 else f"{len(only)} checks"
        notes = [n for n in report.notes if n.text.startswith(RERUN)][-20:]
        notes.append(Note(level="info", text=f"{RERUN}{scan_._rfc3339(time.time())}: {what} on {shown}"))
        prefix = ["netdoctor", "scan", "--last"]
        if self._path is not None and self._path != scan_.LAST:
            prefix += ["--save", str(self._path)]
        context = Context(
            run=replace(report.run, finished=scan_._rfc3339(time.time())),
            fail_on=report.verdict.fail_on,
            remote=Remote(
                ssh=scan_._ssh_argv(args),
                destination={t.id: scan_._destination(t) for t in args.last_targets},
            ),
            root_here=os.geteuid() == 0,
            version=report.tool.version,
            plugins=report.tool.plugins,
            notes=tuple(notes),
            verify_prefix=tuple(prefix),
        )
        self.events.append(Ended(time.time(), *self._saved(build(again, context))))

    def _saved(self, report: "Report") -> "tuple[Report, str]":
        from netdoctor.report.save import save

        if self._path is None:
            return report, ""
        try:
            return save(report, self._path), ""
        except OSError as error:
            return report, f"the report was not saved to {self._path}: {error.strerror or error}"

    def _run(
        self,
        scan: "Scan",
        transport: Any,
        args: argparse.Namespace,
        source: str,
        *,
        partial: tuple[Sequence[str], Sequence[str]] | None,
    ) -> Any:
        from netdoctor.tui.events import Began
        from netdoctor.tui.state import by_family

        self._transport = transport
        judged = scan.options.judged or scan.nodes
        nodes, checks = partial if partial is not None else (judged, [c.id for c in scan.checks])
        families = {c.id: c.family for c in scan.checks}
        order = by_family([(c, families.get(c, c.partition(".")[0])) for c in checks])
        self.events.append(
            Began(
                time.time(),
                tuple(nodes),
                tuple(order),
                str(source),
                args.profile,
                partial=partial is not None,
            )
        )
        scan.listener = self._listener(scan, tuple(nodes), [c for c, _ in order], live=partial is None)
        timer = None
        if getattr(args, "deadline", None):
            timer = threading.Timer(args.deadline, self._interrupt, (DeadlineReached(),))
            timer.daemon = True
            timer.start()
        if self._closing:
            self.stop()
        try:
            return scan.run(transport)
        finally:
            if timer is not None:
                timer.cancel()

    def _listener(
        self, scan: "Scan", nodes: Sequence[str], checks: Sequence[str], *, live: bool
    ) -> "Callable[[Progress], None]":
        from netdoctor.tui.events import NodeDone, Phase

        rows = {node: row for row, node in enumerate(nodes)}
        columns = {check: column for column, check in enumerate(checks)}

        def told(progress: "Progress") -> None:
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

        return told


def widened(request: "Request", report: "Report", checks: "Sequence[Check]") -> frozenset[str] | None:
    """The checks to run again: with what they wait for and is not green, and what waits for them.

    None for all of them.
    """
    if request.checks is None:
        return None
    place = {node: i for i, node in enumerate(report.matrix.nodes)}
    nodes = [place[n] for n in request.nodes or report.matrix.nodes if n in place]
    rows = dict(zip(report.matrix.checks, report.matrix.cells, strict=True))
    by_id = {check.id: check for check in checks}

    def shows(check: str, letters: str) -> bool:
        row = rows.get(check, "")
        return any(row[n] in letters for n in nodes) if row else False

    chosen = {c for c in request.checks if c in by_id}
    todo = list(chosen)
    while todo:
        check = by_id[todo.pop()]
        before = {a for a in check.after if a in by_id and shows(a, "X?b")}
        behind = {c.id for c in checks if check.id in c.after and shows(c.id, "b")}
        if check.id == "ssh.login":  # everything waits for a login, also where that is not said
            behind |= {c.id for c in checks if shows(c.id, "b")}
        new = (before | behind) - chosen
        chosen |= new
        todo += new
    return frozenset(chosen)
