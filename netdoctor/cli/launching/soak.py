"""`netdoctor soak`: rounds of all that profile full loads nodes with; what came up, when and where."""

import argparse
import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from netdoctor.cli import environ
from netdoctor.cli.options import add_save_arguments, add_scan_arguments, count, request_fields, show_briefly
from netdoctor.cli.parser import columns
from netdoctor.cli.running import prepared, request_of, scan_now, signals
from netdoctor.text import clean, columns_of

if TYPE_CHECKING:
    from netdoctor.report.model import Report
    from netdoctor.scanning import ScanRequest
    from netdoctor.trial.soak import Soak, State

FOLDER = Path(".netdoctor/soak")
FOR_S = 1800.0
WIDTH = 100
_TIME = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|min|h)?")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
EPILOG = """\
examples:
  netdoctor soak hosts.txt                 half an hour
  netdoctor soak hosts.txt --for 8h -o json=soak.json
  netdoctor soak --via slurm --for 10m --only 'bw.*' --only 'gpu.*'

exit codes:
  0 steady   1 something failed or came up   3 undecided   2 bad input   5 netdoctor broke
  130, 143 interrupted

netdoctor soak --help-all shows all options.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "soak",
        help="load all nodes for half an hour: what comes up, when and where",
        usage="netdoctor soak [options] HOSTS...",
        description="Load nodes and network round after round, with all that profile full has, read counters "
        "before and after each, and say what came up, in which round and on which node.",
        epilog=EPILOG + environ.EPILOG,
    )
    add_scan_arguments(parser, hosts="as for scan: a file, '-', or names such as gpu[01-16]")
    before = {action.dest for action in parser._actions}
    group = parser.add_argument_group("the soak")
    group.add_argument(
        "--for", dest="seconds", type=_duration, default=FOR_S, metavar="TIME", help="90s, 30m, 8h (30m)"
    )
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="json[=FILE]", type=_output, help="the result for programs")
    out.add_argument("--width", type=count, metavar="N", help="columns (default: the terminal's)")
    out.add_argument("-q", "--quiet", action="store_true", help="the result alone, no progress")
    options = {action.dest for action in parser._actions} - before
    add_save_arguments(parser.add_argument_group("scan"))
    show_briefly(parser, [*options, "hosts", "last"])
    parser.set_defaults(run=run, parser=parser)


def _duration(text: str) -> float:
    found = _TIME.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not 0 < seconds <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is not a time; write 90s, 30m or 8h")
    return seconds


def _output(text: str) -> Path:
    name, equals, path = text.partition("=")
    if name != "json" or (equals and not path):
        raise argparse.ArgumentTypeError(f"{clean(text, 60)!r}; write json, or json=FILE")
    return Path(path) if path else Path("-")


def run(args: argparse.Namespace) -> int:
    from netdoctor.trial.soak import EXIT_CODES, Soak

    request, _ = request_of(args, request_fields(args))
    if request.profile == "launch":
        request = replace(request, profile="full")
    began = time.time()
    soak = Soak()
    code = 0
    with signals(None) as stopped:
        try:
            _run_rounds(args, request, soak)
        except KeyboardInterrupt:
            code = 128 + (stopped[0] if stopped else signal.SIGINT)
        except SystemExit as end:  # while a round is prepared
            code = int(end.code or 0)
    state = soak.state(interrupted=code != 0)
    _write(args, soak, state, began)
    return code or EXIT_CODES[state]


def _run_rounds(args: argparse.Namespace, request: "ScanRequest", soak: "Soak") -> None:
    """Rounds until the time is over; one that has begun is finished."""
    started = time.monotonic()
    longest = 0.0
    first: Path | None = None
    over = False  # the time is over, and one round more is to say whether a rate was low by chance
    # Their addresses and logins are read anew each time: what changes meanwhile is what a soak is for.
    while True:
        began_s = time.monotonic() - started
        was_over, over = over, bool(soak.rounds) and began_s + longest / 2 > args.seconds
        if over and (was_over or not soak.needs_another):
            return
        plan = prepared(replace(request, baseline=first or request.baseline), quiet=args.quiet)
        soak.begin([target.id for target in plan.inventory.targets])
        report = scan_now(args, plan)
        ended_s = time.monotonic() - started
        longest = max(longest, ended_s - began_s)
        if first is None and request.baseline is None:
            first = _keep_first(args, report)
        for one in soak.add(report, began_s, ended_s):
            nodes = ", ".join(sorted(one.at)[:8])
            _say(args, f"round {soak.rounds}: {one.status}: {one.title.replace('{nodes}', nodes)}")
        _save(args, request, report)
        _say(args, f"round {soak.rounds}: {ended_s / 60:.1f} of {args.seconds / 60:.1f} min")


def _keep_first(args: argparse.Namespace, report: "Report") -> Path | None:
    """The folder with the first round's report: rates of later ones are compared with its."""
    from netdoctor.report.save import keep

    folder = FOLDER / time.strftime("%Y%m%d-%H%M%S")
    try:
        keep(report, folder, "first.json")
    except OSError as error:
        _say(args, f"{folder}: {error.strerror}; later rounds are not compared with the first", True)
        return None
    return folder


def _save(args: argparse.Namespace, request: "ScanRequest", report: "Report") -> None:
    """Each round's report is the last one, as of any scan."""
    from netdoctor.report.save import save

    if request.save is not None:
        try:
            save(report, request.save)
        except OSError as error:
            _say(args, f"--save {request.save}: {error.strerror or error}", True)


def _say(args: argparse.Namespace, text: str, always: bool = False) -> None:
    if not args.quiet or always:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"netdoctor soak: {clean(text, 2000)}\n")


def _write(args: argparse.Namespace, soak: "Soak", state: "State", began: float) -> None:
    from netdoctor.report.save import write_whole
    from netdoctor.trial.soak import lines, to_json

    text = json.dumps(to_json(soak, state, began), indent=1) + "\n"
    if args.output is not None and str(args.output) == "-":
        sys.stdout.write(text)
        return
    if args.output is not None:
        try:
            write_whole(args.output, text.encode())
        except OSError as error:
            _say(args, f"{args.output}: {error.strerror or error}", True)
    width = columns(args.width) or columns_of(os.environ) or WIDTH
    sys.stdout.write("".join(f"{line}\n" for line in lines(soak, state, began, width)))
