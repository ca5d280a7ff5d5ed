"""The command line: one small parser, filled only for the command that was typed."""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from itertools import pairwise

from netdoctor import __version__
from netdoctor.cli.crash import EXIT_BROKEN, broken
from netdoctor.cli.parser import EXIT_BAD_INPUT, NAGIOS_UNKNOWN, Parser, subcommands
from netdoctor.errors import InputError

# command: (module that defines it, help). A module's `add_parser(subparsers)` adds all its commands.
COMMANDS: dict[str, tuple[str, str]] = {
    "scan": ("netdoctor.cli.scan", "examine nodes over SSH, print the report, save it"),
    "facts": ("netdoctor.cli.facts", "in a task of a job: write this node's facts, for scan --facts"),
    "plan": ("netdoctor.cli.plan", "launch commands, environment and rank table for one launcher"),
    "gate": ("netdoctor.cli.gate", "scan, then start a command on nodes that are ready, or refuse"),
    "try": (
        "netdoctor.cli.launching.trying",
        "start the job for two minutes: do all ranks join, does it make steps?",
    ),
    "soak": (
        "netdoctor.cli.launching.soak",
        "load all nodes for half an hour: what comes up, when and where",
    ),
    "checks": ("netdoctor.cli.checks", "list and explain the checks, offline"),
    "explain": ("netdoctor.cli.explain", "from a log or a word to the cause and the check that decides"),
    "lint": ("netdoctor.cli.lint", "criticise launch scripts and configurations, offline"),
    "tui": ("netdoctor.cli.tui", "look at a report, or at a scan while it runs, in the terminal"),
    "report": ("netdoctor.report.cli", "show or convert a saved report"),
    "hosts": ("netdoctor.cli.hosts", "show and convert host lists; list usable or broken nodes"),
    "history": ("netdoctor.cli.nodes.history", "nodes that fail again: how often, by which cause"),
    "diff": ("netdoctor.cli.compare", "what got worse, was fixed or changed since an earlier report"),
    "expect": ("netdoctor.cli.expect", "write what nodes should have, from a healthy report"),
    "baseline": ("netdoctor.cli.compare", "named runs that later ones are compared with"),
    "schema": ("netdoctor.report.cli", "print the JSON schema of the report"),
    "lab": ("netdoctor.lab.cli", "make, break and repair real nodes on this machine"),
    "mcp": ("netdoctor.cli.agents.server", "tools for agents, over stdin and stdout (MCP); read-only"),
    "completion": ("netdoctor.cli.completion", "print the script that completes commands in a shell"),
}

# They read, judge and write once, and keep to the end what they make: nobody looks for garbage there. Others
# last, or read without end.
ONCE = frozenset({"scan", "gate", "plan", "report", "hosts", "diff", "baseline"})

EPILOG = """\
examples:
  netdoctor scan hosts.txt                    will a job on these nodes start, and be fast?
  netdoctor scan 'gpu[01-16]' -o junit=r.xml  text for people, JUnit for CI
  netdoctor checks explain net.ports          what a check looks at and why

exit codes:
  0 ready       1 not ready   2 bad input
  3 undecided   4 warnings (--fail-on warn)
  5 netdoctor broke   130, 143 interrupted
"""


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser with `command` filled in, and only a line of help for the others."""
    parser = Parser(
        prog="netdoctor",
        description="Preflight doctor for multi-node GPU training: will the job start, will it be fast, "
        "and if not, which node or link is at fault, and what fixes it.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"netdoctor {__version__}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    chosen = COMMANDS[command][0] if command in COMMANDS else None
    for name, (module, text) in COMMANDS.items():
        if module != chosen:
            sub.add_parser(name, help=text)
    if chosen is not None:
        importlib.import_module(chosen).add_parser(sub)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code. Anything unforeseen is 5, with the traceback in a file."""
    code = _run(argv)
    return min(code, NAGIOS_UNKNOWN) if _for_nagios(argv) else code


def _ours(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(netdoctor's own words, those of the command that gate or try starts)."""
    words = list(argv)
    end = words.index("--") if words[:1] in (["gate"], ["try"]) and "--" in words else len(words)
    return words[:end], words[end + 1 :]


def _for_nagios(argv: Sequence[str]) -> bool:
    """Whether --exit-style nagios is asked for, also where the options could not be read."""
    if argv[:1] == ["gate"]:
        return False
    styles = [value for flag, value in pairwise(argv) if flag == "--exit-style"]
    styles += [word.partition("=")[2] for word in argv if word.startswith("--exit-style=")]
    styles = styles or [os.environ.get("NETDOCTOR_EXIT_STYLE", "")]
    return "scan" in argv and styles[-1] == "nagios"


def _spoken(argv: Sequence[str]) -> Sequence[str]:
    """``help [COMMAND]`` and ``version``, which other tools have as commands, as options."""
    if argv[:1] == ["help"]:
        return [*argv[1:], "-h"]
    return ["--version"] if list(argv) == ["version"] else argv


def _run(argv: Sequence[str]) -> int:
    argv = _spoken(argv)
    command = next((word for word in argv if not word.startswith("-")), None)
    _replace_closed()
    try:
        parser = build_parser(command)
        if not argv:
            return _status_page(parser)
        words, started = _ours(argv)
        remarks = _from_environment(parser, command, words)
        args = parser.parse_args(words, argparse.Namespace(remarks=remarks, started=started))
        if args.command is None:
            parser.error("a command is needed")
        if args.command not in ONCE or getattr(args, "tui", False):
            gc.enable()
        code = int(args.run(args))
        sys.stdout.flush()  # here, where it can still change the exit code
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output is gone. The commands that have a verdict handle this themselves.
        _drop_stdout()
        return EXIT_BROKEN
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else EXIT_BAD_INPUT
        return NAGIOS_UNKNOWN if code == EXIT_BAD_INPUT and _for_nagios(argv) else code
    except InputError as error:
        from netdoctor.cli.options import one_per_line

        sys.stderr.write(one_per_line(str(error)))
        return NAGIOS_UNKNOWN if _for_nagios(argv) else EXIT_BAD_INPUT
    except OSError as error:
        if not _is_output(error):
            return broken(error)
        _drop_stdout()
        sys.stderr.write(f"netdoctor: standard output: {error.strerror or error}\n")
        return EXIT_BROKEN
    except Exception as error:
        # Before 3.12 Python wraps a Ctrl-C that comes while a class is made. [cpython Objects/typeobject.c
        # type_new_set_names]
        return 130 if isinstance(error.__cause__, KeyboardInterrupt) else broken(error)
    finally:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # the interpreter's own last flush would exit with 120
            _drop_stdout()


def _from_environment(parser: argparse.ArgumentParser, command: str | None, argv: Sequence[str]) -> list[str]:
    """What is to be told of NETDOCTOR_<FLAG>, which scan, gate and tui read."""
    read = command in ("scan", "gate", "tui")
    if command is None or not read or not any(name.startswith("NETDOCTOR_") for name in os.environ):
        return []
    from netdoctor.cli import environ

    chosen = subcommands(parser)[command]
    try:
        return environ.take(chosen, argv, os.environ)
    except InputError as error:
        chosen.error(str(error))


def _replace_closed() -> None:
    """Stand-ins for streams that were closed before we began (``>&-``), where Python has None.

    Writing to the one for stdout fails with an OSError, as on a full disk: nobody got the report.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, encoding="utf-8")  # noqa: SIM115  lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  the same


def _is_output(error: OSError) -> bool:
    """Whether this is what a write to stdout raises; errors about a file carry its name."""
    import errno
    import io

    full = error.errno in (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT, errno.EFBIG)
    return error.filename is None and (full or isinstance(error, io.UnsupportedOperation))


def _status_page(parser: argparse.ArgumentParser) -> int:
    from pathlib import Path

    last = Path(".netdoctor/last.json")
    if last.exists():
        sys.stdout.write(f"last report: {last}    netdoctor report show {last}\n\n")
    parser.print_help()
    return 0


def _drop_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's final flush does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None  # no descriptor left to point elsewhere
