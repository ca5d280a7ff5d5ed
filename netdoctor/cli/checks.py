"""`netdoctor checks list` and `checks explain`: the catalogue, offline."""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from netdoctor.check import Check, Profile
from netdoctor.cli.options import count
from netdoctor.cli.parser import EXIT_BAD_INPUT, Listed, columns, fitting
from netdoctor.errors import InputError
from netdoctor.text import clean, comma_words, did_you_mean, hung


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("checks", help="list and explain the checks, offline")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    lister = verbs.add_parser(
        "list",
        help="one line per check",
        epilog="examples:\n  netdoctor checks list\n  netdoctor checks list --family net",
    )
    lister.add_argument(
        "--family", action=Listed, type=comma_words, metavar="FAMILY,...", help="only these: ssh, net, …"
    )
    explain = verbs.add_parser(
        "explain",
        help="a check's manual page",
        epilog="examples:\n  netdoctor checks explain net.ports\n  netdoctor checks explain time.skew",
    )
    explain.add_argument("id", help="check id, such as net.ports")
    for verb in (lister, explain):
        verb.add_argument(
            "--checks-dir",
            action="append",
            default=[],
            type=Path,
            metavar="DIR",
            help="folder with more checks; repeatable",
        )
        verb.add_argument("--width", type=count, metavar="N", help="columns (default: the terminal's)")
        verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from netdoctor.engine import registry

    try:
        known = registry.load(folders=args.checks_dir)
    except InputError as error:
        sys.stderr.write(f"netdoctor checks: {error}\n")
        return EXIT_BAD_INPUT
    for plugin in known.plugins:
        if plugin.error:
            sys.stderr.write(f"netdoctor: plug-in {clean(plugin.name)} is left out: {clean(plugin.error)}\n")
    if args.verb == "list":
        return _list(known.checks, args.family, columns(args.width))
    return _explain(known.checks, args.id, columns(args.width))


def _list(checks: dict[str, Check], selected: Sequence[str] | None, columns: int | None) -> int:
    families = sorted({check.family for check in checks.values()})
    for family in selected or ():
        if family not in families:
            hint = did_you_mean(family, families) or f"; there are: {', '.join(families)}"
            sys.stderr.write(f"netdoctor checks: no family {clean(family)!r}{hint}\n")
            return EXIT_BAD_INPUT
    checks = {i: c for i, c in checks.items() if c.family in (selected or families)}
    width = max((len(i) for i in checks), default=0)
    for check_id, check in checks.items():
        notes = ["on request" if check.profile is Profile.ON_REQUEST else check.profile.value]
        if check.cost != "read-only":
            notes.append(check.cost)
        if check.root:
            notes.append("root")
        text = f"{_inert(check.title)}  [{', '.join(notes)}]"
        rows = hung(text, f"{check_id:<{width}}  ", columns, " " * (width + 2))
        sys.stdout.write("".join(f"{row}\n" for row in rows))
    return 0


def _explain(checks: dict[str, Check], check_id: str, columns: int | None) -> int:
    check = checks.get(check_id)
    if check is None:
        hint = did_you_mean(check_id, checks, 0.4) or "; see: netdoctor checks list"
        sys.stderr.write(f"netdoctor checks: no check is called {clean(check_id)!r}{hint}\n")
        return EXIT_BAD_INPUT
    facts = [
        f"{clean(p.info.group)}{' of all nodes' if p.all_nodes else ''}"
        for p in check.needs
        if p.info.group != "wanted"
    ]
    lines = [
        f"{check.id}: {_inert(check.title)}",
        "",
        *_wrapped("\n".join(check.manual.splitlines()[1:]).strip("\n").splitlines(), columns),
        "",
        (
            "runs where --also or --only names it"
            if check.profile is Profile.ON_REQUEST
            else f"runs in profile {check.profile.value} and up"
        )
        + f"; {check.cost}"
        + ("; needs root on the nodes for all it can say" if check.root else "")
        + ("" if check.required else "; not required: what it cannot measure does not make a run undecided"),
        f"facts: {', '.join(facts) or 'none'}",
    ]
    if check.after:
        lines.append(f"runs after: {', '.join(check.after)}")
    if check.explains:
        lines.append(f"its failure explains: {', '.join(check.explains)}")
    if check.source:
        lines.append(f"source: {clean(check.source)}")
    fitted = [piece for line in lines for piece in (fitting(line, columns) if columns else [line])]
    sys.stdout.write("\n".join(fitted) + "\n")
    return 0


def _wrapped(manual: Sequence[str], columns: int | None) -> Iterator[str]:
    """The lines of a manual; a paragraph that has too long ones is wrapped anew, in its indentation."""
    lines = [_inert(line) for line in manual]
    for indent, found in itertools.groupby(lines, lambda line: len(line) - len(line.lstrip(" "))):
        paragraph = list(found)
        if columns is None or all(len(line) <= columns for line in paragraph):
            yield from paragraph
        else:
            yield from hung(" ".join(line.strip() for line in paragraph), " " * indent, columns)


def _inert(line: str) -> str:
    """A line of a docstring with its indentation, code in single backticks. A plug-in's is escaped."""
    line = line.replace("``", "`")
    return line if line.isprintable() else line[: len(line) - len(line.lstrip(" "))] + clean(line, 1000)
