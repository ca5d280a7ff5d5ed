"""`netdoctor explain`: from a log, or from a word, to what it means and the check that decides."""

import argparse
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING

from netdoctor.cli.options import add_option, count, one_per_line
from netdoctor.cli.parser import EXIT_BAD_INPUT, Parser, columns
from netdoctor.errors import InputError
from netdoctor.facts.host import VIAS
from netdoctor.text import comma_words

if TYPE_CHECKING:
    from netdoctor.explain.model import Reason

EXIT_UNRECOGNISED = 3
WIDTH = 100
FORMATS = ("text", "json", "markdown")

EPILOG = """\
examples:
  netdoctor explain log train.log
  netdoctor explain log 'out/rank_*.log' -o json
  kubectl logs trainer-0 | netdoctor explain log -
  netdoctor explain log train.log --scan hosts.txt  and measure what decides
  netdoctor explain log train.log --scan --via slurm   inside a Slurm job, without SSH
  netdoctor explain log out/ --ras gpu03           and ask NCCL itself, while the job hangs
  netdoctor explain hang hosts.txt                 a job that hangs now: where is each rank?
  netdoctor explain MASTER_ADDR --nproc-per-node  variables, options
  netdoctor explain Xid 79 vendor err 129 -9      codes, exit codes, signals
  netdoctor explain                               all words, by groups

exit codes:
  0 a cause was recognised, a rank is named, all words are known   2 bad input
  3 nothing was recognised, which says nothing about the job; a word is not known
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "explain",
        help="from a log or a word to the cause and the check that decides",
        description="explain log FILE...|-: read the logs of a failed job and name the cause. "
        "explain hang HOSTS: which rank blocks a job that hangs. "
        "explain WORD...: what a variable, option, check or error means.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "words", nargs="*", metavar="log FILE...|hang HOSTS|WORD", help="logs, hosts as for scan, or words"
    )
    parser.add_argument("-o", "--output", choices=FORMATS, default="text", help="format (default: text)")
    parser.add_argument("--width", type=count, metavar="N", help="columns (default: the terminal's)")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help=(
            "log: a saved scan to combine with it; WORD: the scan whose values are shown (default: the last)"
        ),
    )
    # No names here that options of launchers have: `explain --master-port` asks for a word.
    scan = parser.add_argument_group("the checks that decide")
    scan.add_argument(
        "--scan",
        nargs="?",
        const="",
        metavar="HOSTS",
        help="with log: run exactly the checks that decide, on these hosts (as for netdoctor scan), and join",
    )
    scan.add_argument(
        "--via", choices=VIAS, default="ssh", help="what reaches them (default: ssh); slurm, ray: as for scan"
    )
    scan.add_argument(
        "--ras",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="with log: ask NCCL's RAS on this node of a job that hangs, over SSH (port: 28028); repeatable",
    )
    scan.add_argument("--no-scan", action="store_true", help="with hang: without a scan of the node at fault")
    for name in ("env_file", "ssh_config", "known_hosts"):
        add_option(scan, name)
    scan.add_argument("--quiet", action="store_true", help="without the progress of the scan")
    parser.set_defaults(run=run, parser=parser)
    if isinstance(parser, Parser):
        parser.leftover = _take_options


def _take_options(found: argparse.Namespace, left: list[str]) -> bool:
    """``explain --nnodes``: an option that is none of ours is a word."""
    if found.words[:1] in (["log"], ["hang"]):
        return False
    found.words = [*found.words, *left]
    return True


def run(args: argparse.Namespace) -> int:
    try:
        if args.words[:1] == ["log"]:
            return _log(args, args.words[1:])
        if args.words[:1] == ["hang"]:
            from netdoctor.cli.explain_scan import hang

            return hang(args.words[1:], args)
        if args.scan is not None or args.ras or args.no_scan:
            raise InputError(
                "explain: --scan and --ras go with log FILE..., --no-scan with hang HOSTS; a word needs none"
            )
        return _word(args)
    except InputError as error:
        message = str(error)
        sys.stderr.write(f"netdoctor {message}\n" if message.startswith("explain") else one_per_line(message))
        return EXIT_BAD_INPUT


def _word(args: argparse.Namespace) -> int:
    from netdoctor.cli import glossary

    return glossary.run(args.words, args.output, args.report, args.width)


def _log(args: argparse.Namespace, names: Sequence[str]) -> int:
    from netdoctor.explain import rendering
    from netdoctor.explain.engine import explain

    # What is wrong with the command line is told before gigabytes are read or a node is asked.
    if args.scan is not None and args.report is not None:
        raise InputError("explain log: --scan measures now, --report was measured before; give one of them")
    if args.scan is None and args.via != "ssh":
        raise InputError("explain log: --via says what reaches the nodes of --scan; name it too")
    if args.scan == "" and args.via == "ssh":
        raise InputError("explain log: --scan HOSTS; without hosts --via slurm or --via ray knows the nodes")
    report = None
    if args.report is not None:
        from netdoctor.report.save import load

        report = load(args.report)
    elif args.scan and "-" not in (hosts := comma_words(args.scan)):
        from netdoctor.inventory import load as load_hosts

        load_hosts(hosts)
    ras_answers: dict[str, str] = {}
    if args.ras:
        from netdoctor.cli.explain_scan import ask_ras

        ras_answers = ask_ras(args.ras, args)
    explanation = explain(names, ras=ras_answers)
    if explanation.sources and not any(source.lines for source in explanation.sources):
        unread = [f"{source.name}: {source.remarks[0]}" for source in explanation.sources if source.remarks]
        if len(unread) == len(explanation.sources):
            raise InputError("explain log: " + "\n  ".join(unread))
    if args.scan is not None:
        from netdoctor.cli.explain_scan import scanned

        explanation = scanned(explanation, args)
    elif report is not None:
        from netdoctor.cli.explain_scan import joined

        explanation = joined(explanation, report)
    manuals = _manuals({check for reason in explanation.reasons for check in reason.known.fix_from})
    if args.output == "json":
        sys.stdout.write(rendering.json_text(explanation, manuals))
    elif args.output == "markdown":
        from netdoctor.report.formats.markdown import escape

        sys.stdout.write(rendering.markdown(explanation, manuals, escape))
    else:
        sys.stdout.write(rendering.text(explanation, manuals, columns(args.width) or WIDTH))
    return EXIT_UNRECOGNISED if explanation.is_guess or not explanation.reasons else 0


def _manuals(checks: set[str]) -> Mapping[str, Sequence[str]]:
    """What the manuals of these checks say under "Fix:", by check."""
    from netdoctor.check import REGISTERED

    for name in checks:  # not all there are, which take longer than most logs
        family, _, file = name.replace("-", "_").partition(".")
        importlib.import_module(f"netdoctor.checks.{family}.{file}{'_' * iskeyword(file)}")
    return {name: fix_of(REGISTERED[name].manual) for name in checks}


def fix_texts(reason: "Reason") -> list[str]:
    """What to do about a cause: its own words, and those of the checks that find it."""
    from netdoctor.explain.rendering import fixes

    return fixes(reason, _manuals(set(reason.known.fix_from)))


def fix_of(manual: str) -> list[str]:
    """The paragraph of a manual under "Fix:", as one line."""
    found = re.search(r"^Fix:\n((?:[ ]+\S.*\n?)+)", manual, re.MULTILINE)
    return [" ".join(found[1].replace("``", "`").split())] if found else []
