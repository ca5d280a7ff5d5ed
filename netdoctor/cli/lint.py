"""`netdoctor lint`: launch scripts and configurations criticised, offline."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from netdoctor.cli.options import count
from netdoctor.cli.parser import EXIT_BAD_INPUT, Listed, columns
from netdoctor.errors import InputError
from netdoctor.text import clean, comma_words, did_you_mean, hung, inert_line

if TYPE_CHECKING:
    from netdoctor.lint.files import Read
    from netdoctor.lint.model import Finding, Rule

FORMATS = ("text", "json", "github", "sarif")
KINDS = (
    "sbatch", "shell", "hostfile", "env", "deepspeed-env", "dockerfile", "compose", "kubernetes", "ray",
    "verl", "roll", "accelerate", "deepspeed", "python",
)  # fmt: skip
FAIL_ON = ("error", "warning", "note", "never")
STDIN = "<stdin>"

EPILOG = """\
examples:
  netdoctor lint job.sbatch                      what cannot work, before it waits in the queue
  netdoctor lint node*.sh hostfile train.env     files of one job, also compared with each other
  netdoctor lint -o github jobs/*.sbatch         annotations in a pull request
  netdoctor lint --ignore env.ifname-guess j.sh  without one rule
  generate | netdoctor lint --as sbatch -        from standard input
  netdoctor lint --explain slurm.shape           one rule's page; --list has them all

A line is left alone with a comment on it or above it: # netdoctor: ignore[env.port] why

exit codes:
  0 no findings (notes do not count)   1 findings   2 bad input
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "lint",
        help="criticise launch scripts and configurations, offline",
        description="Reads batch files, shell scripts, hostfiles, env files, Dockerfiles, compose files, "
        "manifests, Python programs and configurations of Ray, accelerate, DeepSpeed, verl and ROLL, and "
        "names what cannot work. Files that a script starts are read where they are given or lie beside it. "
        "Runs nothing, contacts nothing, and is silent about what it cannot know.",
        epilog=EPILOG,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="a file; - is standard input, with --as")
    parser.add_argument(
        "--as", dest="kind", choices=KINDS, metavar="KIND", help=f"read every file as {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--select", action=Listed, type=comma_words, metavar="RULE,...", help="only these rules or families"
    )
    parser.add_argument(
        "--ignore", action=Listed, type=comma_words, metavar="RULE,...", help="not these rules or families"
    )
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default="warning",
        help="least severity that makes the exit code 1 (default: %(default)s)",
    )
    parser.add_argument(
        "-o", "--output", choices=FORMATS, default="text", help="%(choices)s (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="the rules, one a line")
    parser.add_argument(
        "--explain", metavar="RULE", help="a rule's page: what happens, what to write, an example"
    )
    parser.add_argument("--width", type=count, metavar="N", help="columns (default: the terminal's)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from netdoctor.lint.engine import rules

    width = columns(args.width)
    if args.list:
        return _list(rules(), width)
    try:
        if args.explain is not None:
            return _explain(rules(), args.explain, width)
        selected = _select(list(rules()), args.select, args.ignore)
    except InputError as error:
        sys.stderr.write(f"netdoctor lint: {error}\n")
        return EXIT_BAD_INPUT
    if not args.files:
        sys.stderr.write("netdoctor lint: name at least one file\nnetdoctor lint -h shows how to use it\n")
        return EXIT_BAD_INPUT
    return _lint(args, selected, width)


def _lint(args: argparse.Namespace, selected: frozenset[str] | None, width: int | None) -> int:
    from netdoctor.lint import output
    from netdoctor.lint.engine import lint
    from netdoctor.lint.model import SEVERITIES, Severity

    files, errors = _read(args.files, args.kind)
    findings = lint(files, selected)
    for text in errors:
        sys.stderr.write(f"netdoctor lint: {inert_line(text)}\n")
    if args.output == "json":
        _write(output.as_json(findings, files, errors))
    elif args.output == "sarif":
        _write(output.as_sarif(findings, errors))
    elif args.output == "github":
        sys.stdout.write(output.as_github(findings))
    else:
        lines = [
            *(line for finding in findings for line in _lines(finding, width)),
            *(inert_line(row) for text in output.unread(files) for row in hung(text, "", width, "    ")),
            output.summary(findings, files),
        ]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if errors:
        return EXIT_BAD_INPUT
    if args.fail_on == "never":
        return 0
    counted = SEVERITIES[: SEVERITIES.index(Severity(args.fail_on)) + 1]
    return 1 if any(finding.severity in counted for finding in findings) else 0


def _write(content: bytes) -> None:
    sys.stdout.write(content.decode("utf-8"))


def _read(names: Sequence[str], kind: str | None) -> "tuple[list[Read], list[str]]":
    """(what could be read, what is to be said about the rest)."""
    from netdoctor.lint.files import FILE_MOST, read
    from netdoctor.lint.model import Kind

    files: list[Read] = []
    errors: list[str] = []
    for name in dict.fromkeys(names):
        try:
            if name == "-":
                if kind is None:
                    raise InputError("standard input has no name to go by: say --as sbatch, --as shell, …")
                stream = getattr(sys.stdin, "buffer", None)
                content = (
                    stream.read(FILE_MOST + 1)
                    if stream is not None
                    else sys.stdin.read(FILE_MOST + 1).encode()
                )
                files.append(read(STDIN, Kind(kind), content))
            else:
                files.append(read(name, Kind(kind) if kind else None, given=names))
        except InputError as error:
            errors.append(str(error))
    return files, errors


def _select(
    known: Sequence[str], select: Sequence[str] | None, ignore: Sequence[str] | None
) -> frozenset[str] | None:
    """The rules that are asked for, None for all. A family's name stands for its rules."""
    if not select and not ignore:
        return None
    found = frozenset(known)
    for names, keep in ((select, True), (ignore, False)):
        if names:
            chosen = frozenset(rule for name in names for rule in _matching_rules(name, known))
            found = found & chosen if keep else found - chosen
    return found


def _matching_rules(name: str, known: Sequence[str]) -> list[str]:
    chosen = [rule for rule in known if rule == name or rule.startswith(f"{name}.")]
    if not chosen:
        hint = did_you_mean(name, known, 0.5) or "; see: netdoctor lint --list"
        raise InputError(f"no rule is called {clean(name)!r}{hint}")
    return chosen


def _lines(finding: "Finding", width: int | None) -> Iterator[str]:
    from netdoctor.lint.output import location

    head = f"{location(finding)} {finding.rule} [{finding.severity}] "
    if width is not None and len(head) > width * 2 // 3:
        yield inert_line(head.rstrip())
        head = "    "
    yield from (inert_line(row) for row in hung(finding.message, head, width, "    "))
    if finding.instead:
        yield from (inert_line(row) for row in hung(finding.instead, "    write: ", width, "           "))


def _list(known: "dict[str, Rule]", width: int | None) -> int:
    longest = max(map(len, known))
    for name, rule in known.items():
        rows = hung(f"{rule.title}  [{rule.severity}]", f"{name:<{longest}}  ", width, " " * (longest + 2))
        sys.stdout.write("".join(f"{row}\n" for row in rows))
    return 0


def _explain(known: "dict[str, Rule]", name: str, width: int | None) -> int:
    if name not in known:
        hint = did_you_mean(name, known, 0.4) or "; see: netdoctor lint --list"
        raise InputError(f"no rule is called {clean(name)!r}{hint}")
    rule = known[name]
    lines = [f"{rule.id} [{rule.severity}]: {rule.title}", ""]
    for head, text in (("what happens", rule.happens), ("write instead", rule.instead)):
        lines += [f"{head}:", *hung(" ".join(text.split()), "  ", width), ""]
    for head, text in (("wrong", rule.wrong), ("right", rule.right)):
        lines += [f"{head}:", *(f"  {line}" for line in text.rstrip("\n").split("\n")), ""]
    if rule.source:
        lines.append(f"source: {rule.source}")
    sys.stdout.write("\n".join(lines).rstrip("\n") + "\n")
    return 0
