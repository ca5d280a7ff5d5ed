"""`netdoctor tui`: the report, and the scan, as screens."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdoctor.cli import environ
from netdoctor.cli.crash import broken
from netdoctor.cli.options import (
    add_save_arguments,
    add_scan_arguments,
    lists_hosts,
    request_fields,
    show_briefly,
)
from netdoctor.cli.parser import EXIT_BAD_INPUT
from netdoctor.cli.running import first_byte, prepared
from netdoctor.errors import InputError
from netdoctor.facts.host import MEET
from netdoctor.report import LAST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netdoctor.report.model import Cause, Report
    from netdoctor.scanning import ScanRequest

EPILOG = """\
examples:
  netdoctor tui hosts.txt            scan, and watch
  netdoctor tui --last               the last saved report
  netdoctor tui report.json          any report
  netdoctor tui --last --log out/    with the causes that logs name
  netdoctor tui --last > fixes.sh    E writes fixes to standard output when that is not a terminal

netdoctor tui --help-all shows all options.
"""
EVERYDAY = ("hosts", "last", "log", "base", "export", "theme")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "tui",
        help="look at a report, or at a scan while it runs, in the terminal",
        usage="netdoctor tui [options] HOSTS ... | REPORT | --last",
        description="Causes, matrix, pairs, nodes and changes as screens; ? shows the keys.",
        epilog=EPILOG + environ.EPILOG,
    )
    add_scan_arguments(parser, hosts="a report (.json), or what scan takes: a hosts file, '-', names")
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="FILE",
        help="a log, or a folder of logs, whose causes are listed too (see explain log); repeatable",
    )
    out = parser.add_argument_group("output")
    add_save_arguments(out)
    out.add_argument("--base", type=Path, metavar="REPORT", help="the report that screen 5 compares with")
    out.add_argument("--export", type=Path, metavar="FILE", help="where E writes fixes in the TUI")
    out.add_argument(
        "--theme",
        choices=("auto", "dark", "light"),
        default="auto",
        help="background of the TUI (auto: COLORFGBG, else dark)",
    )
    out.add_argument(
        "--glyphs",
        choices=("auto", "ascii", "box"),
        default="auto",
        help="how frames are drawn (auto: lines of boxes where the terminal has them in one column)",
    )
    show_briefly(parser, EVERYDAY)
    parser.set_defaults(run=run, parser=parser)


def no_terminal() -> str | None:
    """Why there can be no screens here, or None."""
    for name, stream in (("standard input", sys.stdin), ("standard error", sys.stderr)):
        if stream is None or not stream.isatty():
            return f"{name} is not a terminal"
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return "TERM says that this terminal cannot draw"
    return None


def run(args: argparse.Namespace) -> int:
    """The whole command. Bad input in a report is told at once; in a hosts file, on the screen."""
    if why := no_terminal():
        sys.stderr.write(f"netdoctor tui: {why}; use: netdoctor scan, or netdoctor report show FILE\n")
        return EXIT_BAD_INPUT
    saved = _saved(args)
    fields = request_fields(args)
    if saved is None:
        from netdoctor.scanning import ScanRequest

        if not (args.hosts or args.local or args.via):
            raise InputError("nothing to show: name a hosts file, hosts, a report, or --last")
        return show(args, fields, ScanRequest(**fields))[0]
    from netdoctor.report.save import load

    fields.pop("hosts", None)  # the report itself
    if not args.no_save:
        fields["save"] = saved
    return show(args, fields, None, load(saved), saved)[0]


def _saved(args: argparse.Namespace) -> Path | None:
    """The report that is asked for, None where hosts are."""
    if args.last:
        if args.hosts:
            raise InputError("--last shows the last report; leave the rest out")
        return args.save or LAST
    if len(args.hosts) != 1:
        return None
    path = Path(args.hosts[0])
    try:
        if path.suffix == ".json" or (path.is_file() and first_byte(path) == b"{"):
            return None if lists_hosts(path) else path
    except OSError:
        return None
    return None


def show(
    args: argparse.Namespace,
    fields: dict[str, Any],
    first: "ScanRequest | None",
    report: "Report | None" = None,
    path: Path | None = None,
) -> "tuple[int, Report | None]":
    """Run the application on the scan `first`, or on the report in `path`: (exit code, report at the end).

    fields: those of a ScanRequest that were given now. Of `args` only what the screens need is read.
    """
    if why := no_terminal():
        raise InputError(f"the TUI: {why}; netdoctor scan without --tui prints the report")
    from netdoctor.report.save import load

    _check_places(args, fields, first, path)
    _check_expected(fields)
    from netdoctor.runner import ScanRunner
    from netdoctor.tui.app import NetdoctorApp
    from netdoctor.tui.glyphs import boxes
    from netdoctor.tui.runner import Request
    from netdoctor.tui.state import State, opened

    base = getattr(args, "base", None)
    before = State(log=_causes(getattr(args, "log", ())))
    # Tasks call once: whoever came is who is shown.
    met = prepared(first, quiet=False) if first is not None and first.via == MEET else None
    runner = ScanRunner(first, fields, path, met)
    if report is not None:
        runner.adopt(report)
    box, keys = (args.glyphs == "box", "") if args.glyphs != "auto" else boxes()
    app = NetdoctorApp(
        opened(report, before) if report is not None else before,
        runner=runner,
        begin=None if report is not None else Request(),
        path=path,
        export=args.export,
        export_to_stdout=not sys.stdout.isatty(),
        light=is_light(args.theme),
        box=box,
        keys=keys,
    )
    if base is not None:
        app.base, app.base_name, app.base_chosen = load(base), str(base), True
    try:
        app.run()
    finally:
        runner.close()
    if app.crash is not None:
        return broken(app.crash), None
    for text in app.exported:
        sys.stdout.write(text)
    for line in app.left_behind:
        sys.stderr.write(f"{line}\n")
    report_shown = app.state.report
    if not app.left_behind:
        sys.stderr.write(_last_line(report_shown))
    if app.signal:
        return 128 + app.signal, report_shown
    if report_shown is None:
        return EXIT_BAD_INPUT if app.state.message else 130, None
    return report_shown.verdict.exit_code, report_shown


def _causes(names: "Sequence[str]") -> "tuple[Cause, ...]":
    """The causes that logs name. Raises InputError."""
    if not names:
        return ()
    from netdoctor.cli.tui_log import causes

    return causes(names)


def _last_line(report: "Report | None") -> str:
    """What stays in the terminal when the screens are gone: the verdict, and where the report is."""
    if report is None:
        return ""
    from netdoctor.report import fmt, summary

    causes = f", {fmt.number(len(report.causes), 'cause')}" if report.causes else ""
    saved = fmt.plain(report.run.saved_to or "", 300)
    return f"{summary.verdict(report)}{causes}{f'; {saved}' if saved else ''}\n"


def _check_places(
    args: argparse.Namespace, fields: dict[str, Any], first: "ScanRequest | None", path: Path | None
) -> None:
    """Raise InputError where what is written cannot be, or would replace what is read."""
    from netdoctor.report.places import check, keep_apart
    from netdoctor.scanning import reads

    save, base = fields.get("save"), getattr(args, "base", None)
    by_flag = {"--save": save, "--export": args.export}
    writes = [(f"{flag} {file}", file) for flag, file in by_flag.items() if file is not None]
    read = [*(reads(first) if first is not None else ()), *([(f"--base {base}", base)] if base else ())]
    if path is not None and path != save:
        read.append((f"the report {path}", path))
    keep_apart(writes, read)
    for name, file in writes:
        if file != path:  # a report that is only looked at may lie where nothing can be written
            check(name, file)


def _check_expected(fields: dict[str, Any]) -> None:
    """Raise InputError where --expect names a file with mistakes: no screen is needed to say that."""
    expect = fields.get("expect")
    if expect is not None and expect.name:
        from netdoctor.engine import registry
        from netdoctor.scanning import expecting

        expecting.read(expect, registry.load(folders=fields.get("checks_dir", ())).checks.values(), ())


def is_light(theme: str = "auto") -> bool:
    """Whether to draw for a light background; some terminals say so in COLORFGBG."""
    if theme != "auto":
        return theme == "light"
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
