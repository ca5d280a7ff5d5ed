"""What the commands that scan have in common: the request, the run, and the signals that end it."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from netdoctor.errors import DeadlineReached, InputError
from netdoctor.files import nearest_file, read_regular
from netdoctor.report import LAST
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.engine.run import Outcome
    from netdoctor.report.model import Report
    from netdoctor.report.output import Output
    from netdoctor.scanning import Plan, ScanRequest
    from netdoctor.scanning.gate import Rules
    from netdoctor.transport.base import Transport


def request_of(args: argparse.Namespace, fields: dict[str, Any]) -> "tuple[ScanRequest, Report | None]":
    """What is asked for: with --last the last scan once more, whose report comes along."""
    from netdoctor.scanning import ScanRequest, kept_request, load_own, reread

    if not args.last:
        return ScanRequest(**fields), None
    if args.hosts:
        raise InputError("--last takes the hosts of the last report; leave the host list out")
    path = args.save or LAST
    report = load_own(path)
    return reread(kept_request(report, fields, path), report.run.replay), report


def saved_report(words: "Sequence[str] | None") -> Path | None:
    """The report that --facts names; None for what tasks have written, and where --facts is not given."""
    from netdoctor.scanning.pool import is_filed

    if not words or len(words) > 1 or is_filed(words[0]):
        return None
    word = words[0]
    if not os.path.lexists(word):
        raise InputError(f"--facts {clean(word, 200)}: no such file or folder{nearest_file(word)}")
    if first_byte(Path(word)) not in (b"{", b""):
        raise InputError(
            f"--facts {clean(word, 200)}: it has no line of netdoctor facts and is not a saved report; write "
            "it with netdoctor facts -o, or name a report of netdoctor scan"
        )
    return Path(word)


def first_byte(path: Path) -> bytes:
    """Of a file, behind white space; empty where it cannot be read, or is no regular one."""
    try:
        return read_regular(path, 64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    except OSError:
        return b""


def facts_asked(args: argparse.Namespace, fields: dict[str, Any]) -> dict[str, Any]:
    """What is asked of a saved report behind --facts. Raises InputError where hosts are named."""
    if args.hosts or args.last:
        raise InputError("--facts judges a saved report; leave the host list out")
    return {name: value for name, value in fields.items() if name not in ("facts", "via")}


def scanned(
    args: argparse.Namespace, plan: "Plan", outputs: "Sequence[Output]"
) -> "tuple[Outcome, int | None]":
    """(outcome, signal number that stopped the scan or None)."""
    from netdoctor.cli.progress import Progress  # which loads the engine, and --help does not
    from netdoctor.scanning import live

    with (
        Progress(sys.stderr, [target.id for target in plan.targets], enabled=not args.quiet) as progress,
        signals(plan.left_s) as stopped,
    ):
        outcome = plan.scan(live.listener(progress.update, outputs)).run(plan.transport)
    return outcome, stopped[0] if stopped else None


@contextmanager
def examined(
    args: argparse.Namespace, plan: "Plan", outputs: "Sequence[Output]", begun: "Report | None" = None
) -> "Iterator[tuple[Report, Outcome, list[int]]]":
    """Run a scan; inside, its report is written: (report, outcome, signals that came meanwhile)."""
    from netdoctor.scanning import assemble

    started = time.monotonic()
    outcome, stopped = scanned(args, plan, outputs)
    with signals_noted() as late:
        took, code = time.monotonic() - started, 128 + (stopped or signal.SIGINT)
        yield assemble(plan, outcome, took, interrupted_code=code, begun=begun), outcome, late


def scan_now(args: argparse.Namespace, plan: "Plan") -> "Report":
    """The report of a scan now. Raises KeyboardInterrupt where a signal stopped it."""
    from netdoctor.scanning import assemble

    started = time.monotonic()
    outcome, stopped = scanned(args, plan, ())
    if stopped:
        raise KeyboardInterrupt
    code = 128 + signal.SIGINT
    return assemble(plan, outcome, time.monotonic() - started, interrupted_code=code)


def standing_report(
    plan: "Plan", path: Path, max_age_s: float, rules: "Rules"
) -> "tuple[Report | None, str]":
    """(the saved report that may stand for the scan that is planned, or None; why it may not).

    One that lets nothing start is measured again: somebody may have mended what it found.
    """
    from netdoctor.report.save import load
    from netdoctor.scanning import reads
    from netdoctor.scanning.gate import Act, decide, stale

    # Logins are not what a job does: who may be trusted with a password is no part of its verdict.
    files = [(name, file) for name, file in reads(plan.request) if "known_hosts" not in name]
    touched = {name: file.stat().st_mtime for name, file in files if file.exists()}
    try:
        report = load(path)
    except InputError as error:
        return None, str(error)
    why = stale(report, plan, now=time.time(), max_age_s=max_age_s, touched=touched)
    if not why and decide(report, rules).act is not Act.START:
        why = "it lets nothing start"
    return (None, why) if why else (report, "")


def prepared(request: "ScanRequest", *, quiet: bool, profile_alone: str | None = None) -> "Plan":
    """The plan of a request. Where it waits for tasks it says so; whatever ends it leaves nothing behind."""
    from netdoctor.facts.host import MEET
    from netdoctor.scanning import prepare

    def announce(transport: "Transport") -> None:
        if request.via == MEET and not quiet and not request.are_members:
            from netdoctor.scanning.meeting import awaited

            sys.stderr.write(f"netdoctor: {awaited(request)}\n")

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {n: signal.signal(n, leave) for n in _ending()}
    try:
        return prepare(request, profile_alone=profile_alone, on_transport=announce)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending() -> list[signal.Signals]:
    """What ends a scan. A hang-up does not where it is ignored already, as under nohup."""
    ending = [signal.SIGINT, signal.SIGTERM]
    return ending if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*ending, signal.SIGHUP]


@contextmanager
def signals(deadline_s: float | None) -> Iterator[list[int]]:
    """First SIGINT, SIGTERM or SIGHUP: stop and report what is known. Second: leave at once.

    The list yielded holds the number of the signal that came. --deadline arrives as SIGALRM.
    """
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if came:
            os._exit(128 + number)  # the SSH workers end by themselves when our pipes close
        came.append(number)
        raise KeyboardInterrupt

    def late(number: int, frame: FrameType | None) -> None:
        raise DeadlineReached

    def lost(ignored: "sys.UnraisableHookArgs") -> None:
        if ignored.exc_type is not KeyboardInterrupt:  # that one is in the list
            hook(ignored)

    hook, sys.unraisablehook = sys.unraisablehook, lost
    before = {n: signal.signal(n, stop) for n in _ending()}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, late)
    if deadline_s is not None:
        signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        yield came
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """While the report is written a signal only counts: the report is whole first. A second one ends all."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)

    before = {n: signal.signal(n, note) for n in _ending()}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
