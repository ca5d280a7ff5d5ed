"""`netdoctor facts`: one task of a job writes what it sees of its node, for `scan --facts` to judge."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from netdoctor.cli.options import add_option, one_per_line, option_fields
from netdoctor.errors import InputError
from netdoctor.options import ScanRequest

if TYPE_CHECKING:
    from netdoctor.inventory.task import Task

EXIT_NOTHING = 3

EPILOG = """\
examples:
  srun --ntasks-per-node=1 netdoctor facts -o /shared/facts
  mpirun --map-by ppr:1:node netdoctor facts -o /shared/facts
  netdoctor facts > gpu01.jsonl
  netdoctor scan --facts /shared/facts
  mpirun --map-by ppr:1:node netdoctor facts --meet /shared/meet

exit codes:
  0 written, or left to the first task of this node   2 bad input
  3 nothing could be collected; what was written says why; --meet: it was not asked, and stderr says why
"""


JOB = ("env_file", "master_port", "packages", "requirements", "path")
OPTIONS = ("python", "profile", "checks_dir", "timeout")
# Of options that say another thing here than of a scan.
WORDS = {
    "python": "the job's interpreter (default: the one that runs netdoctor)",
    "profile": "which facts (launch)",
    "packages": "distributions to look for: torch,vllm",
    "requirements": "more of them, in a requirements file of pip's",
    "path": "of code, data; repeatable",
    "timeout": "seconds (30)",
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "facts",
        help="in a task of a job: write this node's facts, for scan --facts",
        description="Read this machine as its task sees it, and write one line of facts. No port "
        "is opened, and nothing is judged. If a node has several tasks, the first one writes.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add(
        "-o",
        "--output",
        default="-",
        metavar="FOLDER|FILE",
        help="a folder gets a file named after the node (written completely, or not at all); - is stdout",
    )
    add(
        "--meet",
        metavar="HOST:PORT|FOLDER",
        help="write nothing, and answer netdoctor scan --meet, which tries ports and rates between nodes too",
    )
    add_option(parser, "secret_file")
    add("--name", metavar="NODE", help="name of the node (default: its name in the launcher)")
    add("--all-tasks", action="store_true", help="every task writes, not only the first one of each node")
    for name in (*OPTIONS, *JOB):
        add_option(parser, name, WORDS.get(name, ""))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from netdoctor.inventory.task import is_first_of_node, node_name, task
    from netdoctor.scanning.writing import collected

    this_task = task(os.environ)
    if not (args.all_tasks or is_first_of_node(this_task)):
        return 0
    node = args.name or node_name(os.environ)
    request = ScanRequest(**option_fields(args), environ=dict(os.environ))
    if args.meet is not None:
        return _meet(args, request, node, this_task)
    line, found = collected(node, this_task, request)
    _write(args.output, node, line)
    return 0 if found else EXIT_NOTHING


def _meet(args: argparse.Namespace, request: ScanRequest, node: str, this_task: "Task") -> int:
    from netdoctor.scanning.meeting import attend
    from netdoctor.transport.tasks import meeting

    for number in (signal.SIGTERM, signal.SIGHUP):  # its agent ends with the task
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    why = attend(
        node,
        this_task,
        rendezvous=meeting.parse_rendezvous(args.meet),
        key=meeting.secret(os.environ, request.secret_file),
        request=request,
    )
    if why:
        sys.stderr.write(one_per_line(f"{node}: {why}"))
    return EXIT_NOTHING if why else 0


def _write(output: str, node: str, line: bytes) -> None:
    """Write the line to stdout, to a file, or to a file in a folder. Raises InputError, BrokenPipeError."""
    from netdoctor.report.output import put
    from netdoctor.report.save import write_into, write_whole
    from netdoctor.scanning.factfile import name_of

    if output == "-":
        put(line)
        return
    path = Path(output)
    try:
        if output.endswith(".jsonl"):
            write_whole(path, line)
            return
        # Tasks begin together: whoever comes first makes it.
        path.mkdir(mode=0o700, exist_ok=True)
        write_into(path, name_of(node), line)
    except FileExistsError:
        raise InputError(f"-o {output}: is not a folder, and the name of a file ends in .jsonl") from None
    except OSError as error:
        raise InputError(f"-o {output}: {error.strerror or error}") from None
