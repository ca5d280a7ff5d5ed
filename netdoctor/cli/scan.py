"""`netdoctor scan`: from a host list to a verdict, an exit code and a saved report."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdoctor.cli import environ
from netdoctor.cli.options import (
    add_group,
    add_options,
    add_scan_arguments,
    count,
    request_fields,
    show_briefly,
)
from netdoctor.cli.parser import Listed, columns
from netdoctor.cli.running import examined, facts_asked, prepared, request_of, saved_report
from netdoctor.errors import InputError
from netdoctor.facts.host import MEET
from netdoctor.options import Group
from netdoctor.text import clean, columns_of

if TYPE_CHECKING:
    from netdoctor.report.model import Report
    from netdoctor.report.output import Output
    from netdoctor.scanning import ScanRequest

EPILOG = """\
examples:
  netdoctor scan hosts.txt
  netdoctor scan 'gpu[01-16]' --env-file train.env -o text -o junit=report.xml
  netdoctor scan --last --only net.ports --node gpu03

netdoctor scan --help-all shows all options; so does docs/options.md.
"""
# Of the options that are declared here; those of netdoctor.options say it themselves.
EVERYDAY = ("hosts", "last", "tui", "output", "plan", "verbose")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from netdoctor.report.output import FORMATS

    parser = subparsers.add_parser(
        "scan",
        help="examine nodes over SSH, print the report, save it",
        usage="netdoctor scan [options] HOSTS ... | --last | --local",
        description="Log in to every node, measure, and say whether a multi-node job will start and be fast.",
        epilog=EPILOG + environ.EPILOG,
    )
    add_scan_arguments(
        parser, hosts="a file, '-', or names such as gpu[01-16] or user@host:port; several are joined"
    )
    add_options(parser, Group.TASKS)
    parser.add_argument("--tui", action="store_true", help="watch the scan, and its report, in the TUI")
    out = parser.add_argument_group(Group.OUTPUT)
    out.add_argument(
        "-o",
        "--output",
        action=Listed,
        default=[],
        metavar="FORMAT[=FILE]",
        help=f"{', '.join(FORMATS)}; repeatable",
    )
    add_group(out, Group.OUTPUT)
    out.add_argument("--no-save", action="store_true", help="do not save the report")
    out.add_argument(
        "--exit-style",
        choices=("default", "nagios", "npd"),
        default="default",
        help="nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN, also where there is no verdict; npd: 0 fine, "
        "1 problem, other unknown",
    )
    out.add_argument("--plan", action="store_true", help="print what would run where, and contact nothing")
    out.add_argument(
        "--redact",
        action="store_true",
        help="aliases for hosts, addresses and users in what is printed; the saved report keeps them",
    )
    out.add_argument("-v", "--verbose", action="count", default=0, help="passes too; twice: timings")
    out.add_argument("-q", "--quiet", action="store_true", help="causes only")
    out.add_argument("--all", action="store_true", help="all causes, not the first ten")
    out.add_argument(
        "--json-detail", choices=("problems", "all"), default="problems", help="how much JSON holds"
    )
    out.add_argument("--pretty", action="store_true", help="indented JSON")
    out.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour in text")
    out.add_argument("--width", type=count, metavar="N", help="columns of the text report, and of --plan")
    out.add_argument("--export", type=Path, metavar="FILE", help="with --tui: where E writes fixes")
    out.add_argument(
        "--theme", choices=("auto", "dark", "light"), default="auto", help="with --tui: its background"
    )
    out.add_argument(
        "--glyphs", choices=("auto", "ascii", "box"), default="auto", help="with --tui: how frames are drawn"
    )
    show_briefly(parser, EVERYDAY)
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """The whole command. Bad input is told before anything is contacted: InputError."""
    from netdoctor import scanning
    from netdoctor.report.output import parse_outputs
    from netdoctor.report.places import opened
    from netdoctor.scanning import live

    fields = request_fields(args)
    outputs = parse_outputs(args.output)
    if (saved := saved_report(args.facts)) is not None:
        return _judge_saved(args, fields, saved, opened(outputs, args.save, [(f"--facts {saved}", saved)]))
    request, before = request_of(args, fields)
    outputs = opened(outputs, request.save, scanning.reads(request))
    if args.plan and request.via == MEET:
        raise InputError("--plan contacts nobody, and tasks say who they are when they call; leave it out")
    if args.tui and request.via == MEET:
        return _show_tui(args, fields, request, outputs)  # tasks call once
    plan = prepared(request, quiet=args.quiet)
    if args.plan:
        from netdoctor.cli.scan_plan import lines

        width = columns(args.width) or columns_of(os.environ)
        sys.stdout.write("".join(f"{line}\n" for line in lines(plan, width)))
        return 0
    if args.tui:
        return _show_tui(args, fields, request, outputs)
    begun = scanning.opening(plan)
    outputs = live.begin(outputs, begun, redact=args.redact)
    with examined(args, plan, outputs, begun) as (scanned, outcome, late):
        pair = (scanned, scanned) if before is None else scanning.into(before, plan, outcome, scanned)
        report, to_save = pair
        code = _deliver(args, report, outputs, request.save if to_save else None, to_save)
    return 128 + late[0] if late else code


def _show_tui(
    args: argparse.Namespace, fields: dict[str, Any], request: "ScanRequest", outputs: "Sequence[Output]"
) -> int:
    """The scan in the TUI, and its report in what was asked for beside that."""
    from netdoctor.cli import tui

    code, report = tui.show(args, fields, request)
    if args.output and report is not None:
        _deliver(args, report, outputs, None)
    return code


def _judge_saved(
    args: argparse.Namespace, fields: dict[str, Any], source: Path, outputs: "Sequence[Output]"
) -> int:
    from netdoctor.report.save import load
    from netdoctor.scanning import judge_saved

    report = judge_saved(load(source), facts_asked(args, fields), source)
    return _deliver(args, report, outputs, args.save)


def _deliver(
    args: argparse.Namespace,
    report: "Report",
    outputs: "Sequence[Output]",
    save: Path | None,
    saved: "Report | None" = None,
) -> int:
    """Save and print, and tell what could not be written. Returns the exit code. saved: as of deliver()."""
    from netdoctor.report.output import RenderOptions, deliver

    options = RenderOptions(
        width=args.width,
        color=args.color,
        verbosity=-1 if args.quiet else args.verbose,
        all_causes=args.all,
        json_detail=args.json_detail,
        pretty=args.pretty,
    )
    code, failures = deliver(report, outputs, options, save=save, saved=saved, redact=args.redact)
    for failure in failures:
        try:
            sys.stderr.write(f"netdoctor: {clean(failure, 400)}\n")
        except OSError:
            break
    if args.exit_style != "default":
        from netdoctor.report.formats import nagios, npd

        found = (nagios if args.exit_style == "nagios" else npd).exit_code(report)
        return found if code in nagios.VERDICT_CODES else code
    return code
