"""The options of `netdoctor.options` as arguments of scan, gate and tui, and what was typed as a request."""

import argparse
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from netdoctor.cli.parser import Joined, Listed, Parser
from netdoctor.errors import InputError
from netdoctor.facts.host import FILED, MEET
from netdoctor.files import read_regular
from netdoctor.options import COUNT, FILE, OPTIONS, TEXT, Group, Option, Rule
from netdoctor.report import LAST
from netdoctor.text import clean


def reader_of(rule: Rule) -> Callable[[str], Any]:
    """What argparse reads a value with, so that an error says what to write."""
    if rule is TEXT:
        return str
    if rule is FILE:
        return Path

    def read(text: str) -> Any:
        try:
            return rule.read(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


count = reader_of(COUNT)


def add_option(
    group: "argparse._ActionsContainer", option: Option | str, help: str = "", **more: Any
) -> argparse.Action:
    """One option of the table. help, more: other words for it, and what else argparse is told."""
    option = OPTIONS[option] if isinstance(option, str) else option
    how: dict[str, Any] = {"help": help or option.help, "dest": option.name}
    if option.rule is None:
        negatable = argparse.BooleanOptionalAction
        how |= {"action": negatable} if option.negatable else {"action": "store_true", "default": None}
    else:
        how |= {"metavar": option.metavar, "type": reader_of(option.rule)}
        how |= {"choices": option.choices} if option.choices else {}
        how |= {"action": Listed} if option.many else {"action": Joined} if option.joined else {}
        how |= {"nargs": "+"} if option.open_ended else {}
    return group.add_argument(*filter(None, [option.short, option.flag]), **{**how, **more})


def add_options(parser: argparse.ArgumentParser, *groups: Group) -> None:
    """The options of some groups, each under its heading."""
    for group in groups:
        add_group(parser if group is Group.HOSTS else parser.add_argument_group(group), group)


def add_group(into: "argparse._ActionsContainer", group: Group) -> None:
    """The options of one group."""
    for one in OPTIONS.values():
        if one.group is group:
            add_option(into, one)


def add_host_arguments(parser: argparse.ArgumentParser, hosts: str) -> None:
    """What names the hosts; `host_words` puts it together."""
    add = parser.add_argument
    add("hosts", nargs="*", metavar="HOSTS", help=hosts)
    add("--from-env", action="store_true", help="inside a Slurm, PBS, LSF or Grid Engine job: its nodes")
    add("--from-ssh-config", metavar="GLOB", help="the hosts of the ssh config that match: 'gpu-*'")


def host_words(args: argparse.Namespace) -> list[str]:
    """What names the hosts, as arguments for `inventory.load`. Raises InputError."""
    found = list(args.hosts)
    if getattr(args, "nodelist", None):
        found.append(f"{args.nodelist},")
    if getattr(args, "from_env", False):
        from netdoctor.inventory import surroundings

        found += surroundings.words(os.environ)
    if getattr(args, "from_ssh_config", None):
        from netdoctor.inventory.readers.sshconfig import aliases

        config = getattr(args, "ssh_config", None)
        found += [f"{alias}," for alias in aliases(args.from_ssh_config, str(config) if config else None)]
    return found


def lists_hosts(path: Path) -> bool:
    """Whether a JSON file is a list of hosts by its first lines, and no report. Raises OSError."""
    head = read_regular(path, 4096)
    marks = (b'"apiVersion"', b'"netdoctor.hosts/', b'"_meta"', b'"hosts"', b'"children"')
    return b'"netdoctor.report/' not in head and any(mark in head for mark in marks)


def add_scan_arguments(parser: argparse.ArgumentParser, hosts: str) -> None:
    """The hosts, how to reach them, what to look at, bounds. None stands for what was not said."""
    add_host_arguments(parser, hosts)
    parser.add_argument(
        "--last",
        action="store_true",
        help="the hosts and options of the last saved report; what this command line has wins, and "
        "--only, --skip and --node hold for this run alone",
    )
    nodelist = "as HOSTS, in the words of srun: gpu[01-16]"
    parser.add_argument("-w", "--nodelist", action=Joined, metavar="EXPR", help=nodelist)
    add_options(parser, Group.HOSTS, Group.LOGIN, Group.LOOK, Group.JOB, Group.BOUNDS)


def add_save_arguments(group: "argparse._ActionsContainer") -> None:
    add_option(group, "save")
    group.add_argument("--no-save", action="store_true", help="do not save the report")


def show_briefly(parser: argparse.ArgumentParser, everyday: Collection[str]) -> None:
    """-h shows the options of every day, those of the table and `everyday`; --help-all shows all."""
    assert isinstance(parser, Parser)
    parser.everyday = {"help", "help_all", *everyday, *(o.name for o in OPTIONS.values() if o.everyday)}
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options and exit")


class _HelpAll(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, **{**more, "default": argparse.SUPPRESS})
        self.dest = "help_all"

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        assert isinstance(parser, Parser)
        parser.everyday = None
        parser.print_help()
        parser.exit()


def option_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of a ScanRequest that options give; what was not typed is left out."""
    values = {name: getattr(args, name, None) for name in OPTIONS}
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }
    if "@" in fields.get("packages", ""):
        fields.update(_files_apart(fields))
    return fields


def request_fields(args: argparse.Namespace) -> dict[str, Any]:
    """What the command line says of a ScanRequest; what it leaves open is left out."""
    fields = option_fields(args)
    if "baseline" in fields:
        from netdoctor.report.baselines import resolve

        fields["baseline"] = resolve(args.baseline)
    args.hosts, args.from_env, args.from_ssh_config = host_words(args), False, None
    if args.hosts:
        fields["hosts"] = tuple(args.hosts)
    fields["remarks"] = tuple(getattr(args, "remarks", ()))
    if "facts" in fields:
        if "via" in fields:
            raise InputError("--facts judges written facts, and contacts no node; leave --via out")
        if "" in fields["facts"]:
            raise InputError("--facts is empty; is a variable unset?")
        fields["via"] = FILED
    if "meet" in fields:
        if "via" in fields or fields.get("local"):
            raise InputError("--meet waits for tasks that call; leave --via, --facts and --local out")
        fields["via"] = MEET
    elif "tasks" in fields:
        raise InputError("--tasks goes with --meet")
    if getattr(args, "are_members", False):
        fields["are_members"] = True
    return {**fields, "environ": dict(os.environ), "save": None if args.no_save else args.save or LAST}


def _files_apart(fields: dict[str, Any]) -> dict[str, Any]:
    """--packages without ``@FILE``, and that file as --requirements. Raises InputError for a second one."""
    parts = fields["packages"].split(",")
    files = [Path(part[1:]) for part in parts if part.startswith("@")]
    if len(files) + ("requirements" in fields) > 1:
        raise InputError("more than one requirements file; name one that includes the others: -r FILE")
    rest = {"packages": ",".join(part for part in parts if not part.startswith("@"))}
    return {**rest, "requirements": files[0]} if files else rest


def one_per_line(text: str) -> str:
    """A message about bad input as it is told on stderr."""
    return "".join(f"netdoctor: {clean(line, 1000)}\n" for line in text.splitlines() if line.strip())
