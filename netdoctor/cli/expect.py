"""`netdoctor expect`: from a healthy report, what nodes should have, for scan --expect."""

import argparse
import sys
from pathlib import Path

from netdoctor.cli.parser import Listed
from netdoctor.errors import InputError
from netdoctor.report import LAST
from netdoctor.text import clean

EPILOG = """\
examples:
  netdoctor expect                              from the last scan, to look at
  netdoctor expect --from good.json -o expect.toml
  netdoctor scan hosts.txt --expect expect.toml
  netdoctor expect --by gpu.model               for clusters of several generations
  netdoctor expect --keys                       what may be expected, and which check compares it

Groups of the hosts file get parts of their own. A line expect = "expect.toml" in netdoctor.toml
beside the hosts file saves typing --expect.

exit codes:
  0 written   2 bad input
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "expect",
        help="write what nodes should have, from a healthy report",
        description="Write what the nodes of a saved report have, as a file for scan --expect: then that is "
        "expected of every node, in place of what most have; also of one node, and where all lack the same. "
        "What differs between nodes is left out, with a comment.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--from",
        dest="report",
        type=Path,
        default=LAST,
        metavar="REPORT",
        help=f"a saved report (default: {LAST})",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new file (default: stdout)")
    parser.add_argument("--by", metavar="KEY", help="a part for each value of this key, such as gpu.model")
    parser.add_argument("--anyway", action="store_true", help="also from a report that is NOT READY")
    parser.add_argument("--keys", action="store_true", help="list what may be expected")
    parser.add_argument(
        "--checks-dir", action=Listed, type=Path, metavar="DIR", help="more checks; repeatable"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    text = _text(args)
    if args.output is None:
        sys.stdout.write(text)
    else:
        _create(args.output, text)
    return 0


def _text(args: argparse.Namespace) -> str:
    from netdoctor.engine import registry
    from netdoctor.scanning import learning, load_own

    known = registry.load(folders=args.checks_dir or ())
    if args.keys:
        return "".join(f"{line}\n" for line in learning.listed_keys(known))
    report = load_own(args.report)
    if report.verdict.state == "not_ready" and not args.anyway:
        raise InputError(
            f"{args.report}: is NOT READY, so its faults would become the expectation; fix them "
            "first, or use --anyway"
        )
    return learning.write(report, known, args.report, args.by)


def _create(path: Path, text: str) -> None:
    """Write a new file: one that is there may have been edited. Raises InputError."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path}: is there already; name another file, or remove it") from None
    except OSError as error:
        raise InputError(f"{clean(str(path), 200)}: {error.strerror or error}") from None
