"""`netdoctor plan`: launch commands, environment and rank table for one launcher."""

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from netdoctor.cli.options import add_host_arguments, add_option, count, host_words, reader_of
from netdoctor.errors import InputError
from netdoctor.options import PORT
from netdoctor.report import LAST
from netdoctor.text import clean, listing

if TYPE_CHECKING:
    from netdoctor.inventory import Target
    from netdoctor.launch import Evidence, Options

LAUNCHERS = ("torchrun", "sbatch", "srun", "deepspeed", "accelerate", "ray", "mpirun", "k8s", "verl", "roll")
FORMATS = ("shell", "json", "dotenv")
EPILOG = """\
examples:
  netdoctor plan hosts.txt                        torchrun, one text for all nodes
  netdoctor plan --last --script 'train.py --lr 1e-4' --write launch
  netdoctor plan hosts.txt --launcher sbatch > job.sbatch
  netdoctor plan hosts.txt --ranks                which rank runs where
  netdoctor plan hosts.txt --tp 8 --pp 2 --batch 4 --accum 8
  netdoctor plan --last -o dotenv > job.env       the variables alone
  netdoctor plan --gang job.yaml > gated.yaml     pods that all start, or none

Values are measured (by the newest report of these hosts), given (by you) or guessed, and say so.

exit codes:
  0 written   2 bad input, or what cannot be launched
"""
# What goes with --gang.
_OF_GANG = ("gang", "container", "env_glob", "nodes", "image", "port")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "plan",
        help="launch commands, environment and rank table for one launcher",
        usage="netdoctor plan [options] HOSTS ... | --last | --gang FILE",
        description="Write the launch of a job on these hosts, from what was measured of them.",
        epilog=EPILOG,
    )
    add_host_arguments(parser, "hosts files, - or names, in rank order")
    add_option(parser, "format")
    add_option(parser, "ssh_config", "for --from-ssh-config")
    add = parser.add_argument
    add("--last", action="store_true", help="the hosts of the last report")
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="take values from this report (default: the newest of the hosts)",
    )
    add(
        "--launcher",
        choices=LAUNCHERS,
        default="torchrun",
        metavar="NAME",
        help=f"what starts the job: {', '.join(LAUNCHERS)}",
    )
    add("--script", metavar="TEXT", help="the program with its options, as one word: 'train.py --cfg x'")
    add("--nproc", type=_nproc, metavar="auto|N", help="processes on each node (auto: its GPUs, or slots=)")
    add(
        "--port",
        type=_auto_port,
        metavar="auto|N",
        help="of the rendezvous (auto: one that the report found free; with --gang 29600)",
    )
    add("--rdzv", choices=("c10d", "static"), default="c10d", help="torchrun's rendezvous (c10d)")
    add(
        "--env",
        action="append",
        type=_assignment,
        metavar="NAME=VALUE",
        help="for the job; repeatable, and wins",
    )
    add("--debug", action="store_true", help="have NCCL and torch say what they do")
    add("--only-good", action="store_true", help="leave out nodes that the report does not call usable")
    add("--any-nodes", action="store_true", help="Slurm, k8s: as many nodes, not these")
    add("--image", metavar="NAME", help="k8s, --gang: the container's image")
    add("--job", metavar="NAME", default="job1", help="name of the job (job1)")
    _add_sizes_and_output(parser)
    _add_gang(parser)
    parser.set_defaults(run=run, parser=parser)


def _add_sizes_and_output(parser: argparse.ArgumentParser) -> None:
    sizes = parser.add_argument_group("sizes to multiply out")
    for name, text in (
        ("dp", "data parallel (default: what is left)"),
        ("tp", "tensor parallel"),
        ("pp", "pipeline parallel"),
        ("batch", "samples of a process"),
        ("accum", "steps of accumulation"),
    ):
        sizes.add_argument(f"--{name}", type=count, metavar="N", help=text)
    sizes.add_argument(
        "--fit",
        metavar="FILE,params=N,…",
        help="memory of a rank, by a model's files, against free GPU memory",
    )
    out = parser.add_argument_group("output")
    out.add_argument("--ranks", action="store_true", help="the table of ranks instead")
    out.add_argument(
        "--write", type=Path, metavar="DIR", help="write the files into this folder, whole or not at all"
    )
    out.add_argument(
        "-o", "--output", choices=FORMATS, default="shell", metavar="FORMAT", help="shell, json or dotenv"
    )


def _add_gang(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a gang of pods").add_argument
    add(
        "--gang",
        metavar="FILE",
        help="put an init container into the pods of a job's manifests (-: standard input), in which all "
        "meet before any of them starts",
    )
    add("--container", metavar="GLOB", help="which container of a pod trains (default: its only one)")
    add(
        "--env-glob",
        action="append",
        metavar="GLOB",
        help="variables of that container to copy; repeatable (default: all)",
    )
    add(
        "--nodes",
        metavar="FILE",
        help="what kubectl get nodes,pods -A -o json wrote: do the pods find nodes, and what is missing",
    )


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(_text(args) if args.gang is None else _gang_text(args))
    return 0


def _gang_text(args: argparse.Namespace) -> str:
    """Manifests with a gang in them: by what is in the file alone, whatever is known of hosts."""
    from netdoctor.files import read_regular, reason
    from netdoctor.launch.gang import add_gang
    from netdoctor.launch.gang_kinds import PORT as GANG_PORT
    from netdoctor.launch.gang_kinds import GangOptions
    from netdoctor.launch.gang_room import FILE_MAX as NODES_MAX
    from netdoctor.launch.manifests import FILE_MAX

    options = args.parser._actions
    present = [one for one in options if getattr(args, one.dest, one.default) not in ([], one.default)]
    if foreign := [(one.option_strings or ["HOSTS"])[-1] for one in present if one.dest not in _OF_GANG]:
        raise InputError(f"--gang takes the pods of its file; leave {listing(foreign)} out")
    is_stdin = args.gang == "-"
    name = "<stdin>" if is_stdin else clean(args.gang, 300)

    def content_of(path: str, most: int) -> bytes:
        try:
            return read_regular(path, most)
        except (OSError, ValueError) as error:
            raise InputError(f"{clean(path, 300)}: {reason(error)}") from None

    content = sys.stdin.buffer.read(FILE_MAX + 1) if is_stdin else content_of(args.gang, FILE_MAX)
    nodes = None if args.nodes is None else (args.nodes, content_of(args.nodes, NODES_MAX))
    if len(content) > FILE_MAX:
        raise InputError(f"{name}: larger than {FILE_MAX >> 20} MiB; name a file of fewer objects")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: not UTF-8 text") from None
    globs = tuple(args.env_glob or "*")
    return add_gang(name, text, GangOptions(args.container, globs, args.image, args.port or GANG_PORT), nodes)


def _text(args: argparse.Namespace) -> str:
    if args.container is not None or args.env_glob is not None or args.nodes is not None:
        raise InputError("--container, --env-glob and --nodes go with --gang FILE")
    from netdoctor import launch

    targets, evidence, hosts = _hosts(args)
    default_port = launch.LAUNCHERS[args.launcher].port
    plan = launch.plan(targets, evidence, _options(args), hosts=hosts, default_port=default_port)
    if args.write is not None:
        launch.write(plan, args.write)
        lines = [plan.head, *plan.arithmetic, *(f"note: {text}" for text in plan.remarks)]
        parts = launch.parts(plan)
        lines += [f"{args.write / part.name}: {part.purpose}" for part in parts[:20]]
        lines += [f"and {len(parts) - 20} more"] if parts[20:] else []
        return "".join(f"{clean(line, 1000)}\n" for line in lines)
    if args.ranks:
        return launch.rank_table(plan)
    return {"shell": launch.text, "json": launch.json_text, "dotenv": launch.dotenv}[args.output](plan)


def _hosts(args: argparse.Namespace) -> "tuple[tuple[Target, ...], Evidence | None, str]":
    """(nodes in rank order, what a report knows of them, what names them)."""
    from netdoctor import scanning
    from netdoctor.cli.launch_evidence import evidence_of, newest_evidence
    from netdoctor.inventory import load

    hosts = host_words(args)
    if args.last:
        if hosts:
            raise InputError("--last takes the hosts of the last report; leave the host list out")
        path = args.report or LAST
        report = scanning.load_own(path)
        targets = scanning.kept_request(report, {}, path).targets or ()
        return targets, evidence_of(report, path), str(path)
    if not hosts:
        raise InputError("no hosts: name a hosts file, hosts, or --last (see netdoctor plan -h)")
    found = load(hosts, environ=os.environ, format=args.format or "auto")
    return found.targets, newest_evidence(found.targets, args.report), found.source


def _options(args: argparse.Namespace) -> "Options":
    from netdoctor.launch import LAUNCHERS as KNOWN
    from netdoctor.launch import Options
    from netdoctor.launch.fit import job_of

    default_script = KNOWN[args.launcher].script
    try:
        words = tuple(shlex.split(args.script)) if args.script is not None else default_script
    except ValueError as error:
        raise InputError(f"--script: {str(error).lower()}; write 'train.py --its options'") from None
    if not words or "\0" in "".join(words):
        raise InputError("--script: names no program; write 'train.py --its options'")
    return Options(
        launcher=args.launcher,
        script=words,
        script_is_given=args.script is not None,
        nproc=args.nproc or None,
        port=args.port or None,
        env=dict(args.env or ()),
        debug=args.debug,
        rdzv=args.rdzv,
        dp=args.dp,
        tp=args.tp,
        pp=args.pp,
        batch=args.batch,
        accum=args.accum,
        only_good=args.only_good,
        nodelist=not args.any_nodes,
        job=args.job,
        image=args.image,
        fit=job_of(args.fit) if args.fit is not None else None,
    )


def _nproc(text: str) -> int:
    return 0 if text == "auto" else count(text)


def _auto_port(text: str) -> int:
    return 0 if text == "auto" else int(reader_of(PORT)(text))


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or "\0" in value or "\n" in value:
        raise argparse.ArgumentTypeError(f"{clean(text, 60)!r}; write NAME=value")
    return name, value
