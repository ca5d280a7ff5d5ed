"""`netdoctor report show` and `report convert`, `netdoctor schema report`."""

import argparse
import sys
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.report import LAST
from netdoctor.text import clean

EXIT_BAD_INPUT = 2

SHOW_EPILOG = """\
examples:
  netdoctor report show                          the last report, as it was printed
  netdoctor report show report.json -v           with reasons and what passed
"""
CONVERT_EPILOG = """\
examples:
  netdoctor report convert report.json -o junit=report.xml -o markdown=report.md
  netdoctor report convert -o json --json-detail all
"""


def _columns(text: str) -> int:
    if not text.isdecimal() or not 40 <= int(text[:6]) <= 4096:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is not a width; write 40 to 4096")
    return int(text)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands `report` and `schema`."""

    report = subparsers.add_parser("report", help="show or convert a saved report")
    verbs = report.add_subparsers(dest="verb", metavar="VERB", required=True)
    show = verbs.add_parser("show", help="print a saved report", epilog=SHOW_EPILOG)
    convert = verbs.add_parser("convert", help="write a saved report in other formats", epilog=CONVERT_EPILOG)
    for verb in (show, convert):
        _add_common(verb)
        verb.set_defaults(run=run)
    schema = subparsers.add_parser(
        "schema",
        help="print the JSON schema of the report",
        epilog="examples:\n  netdoctor schema report > report.schema.json",
    )
    schema.add_argument("name", nargs="?", choices=("report",), default="report", help="which (report)")
    schema.set_defaults(run=run_schema)


def _add_common(parser: argparse.ArgumentParser) -> None:
    from netdoctor.report.output import FORMATS

    add = parser.add_argument
    add("file", nargs="?", type=Path, default=LAST, metavar="FILE", help=f"saved report (default: {LAST})")
    add(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="FORMAT[=FILE]",
        help=f"{', '.join(FORMATS)}; repeatable",
    )
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument(
        "-v", "--verbose", action="count", default=0, help="passes too; twice: evidence, times"
    )
    volume.add_argument("-q", "--quiet", action="store_true", help="causes only")
    add("--all", action="store_true", help="all causes, not the first ten")
    add("--width", type=_columns, metavar="N", help="columns of the text report")
    add("--color", choices=("auto", "always", "never"), default="auto", help="colour in text")
    add("--json-detail", choices=("problems", "all"), default="problems", help="how much JSON holds")
    add("--pretty", action="store_true", help="indented JSON")


def run(args: argparse.Namespace) -> int:
    """Show or convert. 0: all was written, 2: a file or flag that cannot be used, 5: stdout cannot take it.

    The verdict in the report is not this command's verdict: what was bad then was told then.
    """
    from netdoctor.report.output import RenderOptions, emit, parse_outputs
    from netdoctor.report.places import opened
    from netdoctor.report.save import load

    try:
        if args.verb == "convert" and not args.output:
            raise InputError("convert to what? write: -o FORMAT[=FILE]")
        outputs = opened(parse_outputs(args.output), None, [(f"the report {args.file}", args.file)])
        report = load(args.file)
    except InputError as error:
        sys.stderr.write(f"netdoctor report: {clean(str(error), 1000)}\n")
        return EXIT_BAD_INPUT
    options = RenderOptions(
        width=args.width,
        color=args.color,
        verbosity=-1 if args.quiet else args.verbose,
        all_causes=args.all,
        json_detail=args.json_detail,
        pretty=args.pretty,
    )
    for output in outputs:
        try:
            emit(report, output, options)
        except BrokenPipeError:
            raise
        except OSError as error:
            suffix = f"={output.path}" if output.path else ""
            text = clean(f"-o {output.format}{suffix}: {error.strerror or error}", 1000)
            sys.stderr.write(f"netdoctor report: {text}\n")
            return EXIT_BAD_INPUT if output.path else 5
    return 0


def run_schema(args: argparse.Namespace) -> int:
    from netdoctor.report.output import put
    from netdoctor.report.schema import report_schema_text

    put(report_schema_text().encode())
    return 0
