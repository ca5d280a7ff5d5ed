"""What `scan` and `tui` have in common: the options that make a request, and how they are read."""

import argparse
import math
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from netdoctor.cli.parser import Joined, Listed, words
from netdoctor.errors import InputError
from netdoctor.facts.host import FILED, MEET, VIAS
from netdoctor.facts.software import BACKENDS, LAUNCHERS
from netdoctor.files import read_regular
from netdoctor.report import LAST
from netdoctor.text import clean


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is no port; write 1 to 65535")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and 0 < value <= 86400):
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is no time; write seconds, such as 30")
    return value


def count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is no count; write 1 to 4096")
    return int(text)


def place(text: str) -> str:
    """A path on the nodes."""
    from netdoctor.scanning.request import PLACE

    if not re.match(PLACE, text):
        raise argparse.ArgumentTypeError(f"{clean(text, 60)!r} is no path on the nodes; write /data or ~/run")
    if text.startswith(("/proc", "/sys/")):
        raise argparse.ArgumentTypeError(f"{clean(text, 60)!r} holds nothing of a job")
    return text.rstrip("/") or "/"


def url(text: str) -> str:
    """A URL of --reach without what may be secret in it, which goes nowhere and is not told either."""
    from netdoctor.scanning.request import URL, URL_LENGTH

    parts = re.match(r"(https?://)([^/?#]*)([^?#]*)", text)
    kept = f"{parts[1]}{parts[2].rpartition('@')[2]}{parts[3]}" if parts else ""
    known = re.match(URL, kept) if len(kept) <= URL_LENGTH else None
    if known is None or not 0 < int((known[2] or ":443")[1:]) < 65536:
        raise argparse.ArgumentTypeError("that is no URL; write https://host/path")
    return kept


def add_host_arguments(parser: argparse.ArgumentParser, hosts: str) -> None:
    """What names the hosts; `host_words` puts it together."""
    add = parser.add_argument
    add("hosts", nargs="*", metavar="HOSTS", help=hosts)
    add("--format", metavar="FORMAT", help="how to read the host list (default: detect it)")
    add("--from-env", action="store_true", help="the nodes of the Slurm, PBS, LSF or Grid Engine job around")
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
    add = parser.add_argument
    add(
        "--last",
        action="store_true",
        help="the hosts and options of the last saved report; what is said now wins, and --only, --skip and "
        "--node hold for this run alone",
    )
    add("--local", action="store_true", default=None, help="this machine only, without SSH")
    add("--via", choices=VIAS, help="what reaches the nodes (default: ssh); slurm: srun; ray: a Ray cluster")
    add("--ray-address", metavar="H:P", help="the Ray cluster (default: RAY_ADDRESS, or the one around)")
    add("--ray-python", metavar="PATH", help="an interpreter with the cluster's Ray (default: that of `ray`)")
    add("--partition", metavar="P", help="of Slurm: where --via slurm asks for nodes")
    add("-w", "--nodelist", action=Joined, metavar="EXPR", help="as HOSTS, in the words of srun: gpu[01-16]")
    ssh = parser.add_argument_group("logging in")
    ssh.add_argument("--ssh-config", type=Path, metavar="FILE", help="instead of ~/.ssh/config")
    ssh.add_argument("--ssh-user", metavar="U", help="login user")
    ssh.add_argument("--ssh-port", type=port, metavar="N", help="SSH port")
    ssh.add_argument("--ssh-key", type=Path, metavar="F", help="private key file")
    ssh.add_argument(
        "--known-hosts", type=Path, metavar="FILE", help="instead of the known_hosts of the config"
    )
    ssh.add_argument("--jump", metavar="H", help="jump host: [user@]host[:port], several with commas")
    ssh.add_argument(
        "--accept-new",
        action="store_true",
        default=None,
        help="learn unknown host keys (never changed ones)",
    )
    ssh.add_argument(
        "--python",
        metavar="PATH",
        help="the job's interpreter on the nodes (default: python3); auto: one with torch that they have",
    )
    what = parser.add_argument_group("what to look at")
    what.add_argument(
        "-p",
        "--profile",
        choices=("quick", "launch", "full"),
        help="quick: passive; launch (default): + ports, clock, path MTU, packet loss, and a short "
        "all-reduce, for which torch starts on idle GPUs; full: + TCP and torch rates of pairs",
    )
    listed: dict[str, Any] = {"action": Listed, "type": words, "metavar": "GLOB,..."}
    what.add_argument("-c", "--only", help="checks to run; repeatable", **listed)
    what.add_argument("--skip", help="checks to leave out; repeatable", **listed)
    also = "checks beside those of the profile: ssh.mesh, env.login; repeatable"
    what.add_argument("--also", help=also, **listed)
    what.add_argument(
        "--reach",
        action=Listed,
        type=url,
        metavar="URL",
        help="every node asks this for its head, by its name, proxy and CAs; repeatable, no password is sent",
    )
    what.add_argument(
        "-n",
        "--node",
        action=Joined,
        metavar="EXPR",
        help="judge only these nodes (their peers are still contacted): gpu[01-04],gpu09; repeatable",
    )
    what.add_argument("--env-file", type=Path, metavar="F", help="environment that the job will get")
    what.add_argument(
        "--master-port", type=port, metavar="N", help="rendezvous port (default: MASTER_PORT, 29500)"
    )
    what.add_argument(
        "--launcher",
        choices=LAUNCHERS,
        metavar="NAME",
        help=f"what starts the job ({', '.join(LAUNCHERS)}): trouble that it does not meet becomes a warning",
    )
    what.add_argument("--image", metavar="NAME", help="the job's container image: one digest on all nodes")
    what.add_argument("--backend", choices=BACKENDS, help="the job's only backend (default: any may be)")
    what.add_argument(
        "--packages",
        action=Joined,
        metavar="LIST",
        help="distributions that must be equal, and their versions: 'torch==2.6.0,vllm>=0.8'; @FILE is "
        "--requirements FILE",
    )
    what.add_argument(
        "--requirements", type=Path, metavar="FILE", help="a requirements file of pip's that nodes must meet"
    )
    what.add_argument(
        "--path",
        action=Listed,
        type=place,
        metavar="PATH",
        help="code, data or a model on the nodes: that it is there, the same, and shared; repeatable",
    )
    what.add_argument(
        "--write-test",
        action=Listed,
        type=place,
        metavar="DIR",
        help="a folder that all nodes share and write to: each writes a hidden file of 4 KiB there, others "
        "read it, and it is removed; repeatable",
    )
    what.add_argument(
        "--baseline",
        type=Path,
        metavar="NAME",
        help="a baseline (netdoctor baseline), or a saved report, to hold bandwidths and causes against",
    )
    what.add_argument(
        "--expect",
        type=Path,
        metavar="FILE",
        help="what nodes should have, instead of what most have (netdoctor expect writes one); '' for none",
    )
    what.add_argument(
        "--suppress",
        type=Path,
        metavar="FILE",
        help="what is accepted, and why (default: netdoctor.toml beside the hosts file); '' accepts nothing",
    )
    what.add_argument("--checks-dir", action=Listed, type=Path, metavar="DIR", help="more checks; repeatable")
    bounds = parser.add_argument_group("bounds")
    bounds.add_argument("-j", "--parallel", type=count, metavar="N", help="logins at once (512)")
    bounds.add_argument("--timeout", type=seconds, metavar="S", help="seconds per node (30)")
    bounds.add_argument("--deadline", type=seconds, metavar="S", help="seconds for the whole run")
    bounds.add_argument(
        "--budget", type=seconds, metavar="S", help="seconds for bandwidth experiments (launch 20, full 120)"
    )


def _whole(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text[:12]) > most:
            raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is no number of up to {most}")
        return int(text[:12])

    return number


# The title of the options by which a job's own tasks say what they see.
BY_TASKS = "judging what tasks of a job see"


def add_secret_file(group: "argparse._ActionsContainer") -> None:
    text = "file with the secret that both sides have (default: NETDOCTOR_MEET_SECRET)"
    group.add_argument("--secret-file", type=Path, metavar="FILE", help=text)


def add_facts_arguments(parser: argparse.ArgumentParser) -> None:
    """What tasks have seen, or see when they are asked, instead of hosts that are reached."""
    facts = parser.add_argument_group(BY_TASKS)
    facts.add_argument(
        "--facts",
        nargs="+",
        action=Listed,
        metavar="PLACE",
        help="a saved report, judged again offline; or what netdoctor facts wrote in a job's tasks: folders, "
        "files, 'patterns*'; hosts, named before it, say who must have written",
    )
    facts.add_argument("--facts-age", type=seconds, metavar="S", help="older facts do not count (3600)")
    facts.add_argument(
        "--facts-nodes", type=_whole(100_000), metavar="N", help="so many nodes have to have written"
    )
    facts.add_argument(
        "--facts-uid", type=_whole((1 << 32) - 1), metavar="UID", help="take files of this user, too"
    )
    facts.add_argument("--facts-job", metavar="JOB", help="of several that wrote (default: the newest)")

    facts.add_argument(
        "--meet",
        metavar="PLACE",
        help="wait for tasks that run netdoctor facts --meet: at a PORT, or by a folder that all see",
    )
    facts.add_argument("--tasks", type=_whole(100_000), metavar="N", help="how many of them, one a node")
    add_secret_file(facts)


def list_briefly(parser: argparse.ArgumentParser, titles: Collection[str]) -> None:
    """Only name the options in groups with these titles: the help of scan explains them."""
    groups = [group for group in parser._action_groups if group.title in titles]
    actions = [action for group in groups for action in group._group_actions]
    names = [next(name for name in action.option_strings if name.startswith("--")) for action in actions]
    parser._action_groups = [group for group in parser._action_groups if group not in groups]
    parser.add_argument_group("as for scan", " ".join(names))


def add_save_arguments(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--save", type=Path, metavar="FILE", help=f"save the report here (default: {LAST})")
    group.add_argument("--no-save", action="store_true", help="do not save the report")


# Fields of ScanRequest that options give.
_FIELDS = (
    "format", "local", "via", "ray_address", "ray_python", "partition", "ssh_config", "ssh_user",
    "ssh_port", "ssh_key", "known_hosts", "jump", "accept_new", "python", "profile", "only", "skip", "node",
    "checks_dir", "env_file", "master_port", "packages", "requirements", "path", "launcher", "backend",
    "image", "baseline", "suppress", "expect", "parallel", "timeout", "deadline", "budget", "strict",
    "require", "fail_on", "facts", "facts_age", "facts_nodes", "facts_uid", "facts_job", "also",
    "reach", "write_test", "meet", "tasks", "secret_file",
)  # fmt: skip


def given(args: argparse.Namespace) -> dict[str, Any]:
    """What the command line says of a ScanRequest; what it leaves open is left out."""
    said = {name: getattr(args, name, None) for name in _FIELDS}
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in said.items()
        if value is not None
    }
    if "@" in fields.get("packages", ""):
        fields.update(_files_apart(fields))
    if "baseline" in fields:
        from netdoctor.report.baselines import place

        fields["baseline"] = place(args.baseline)
    args.hosts, args.from_env, args.from_ssh_config = host_words(args), False, None
    if args.hosts:
        fields["hosts"] = tuple(args.hosts)
    fields["remarks"] = tuple(getattr(args, "remarks", ()))
    if "facts" in fields:
        if "via" in fields:
            raise InputError("--facts judges what was written, and reaches nobody; leave --via out")
        if "" in fields["facts"]:
            raise InputError("--facts names nothing; was a variable to stand there?")
        fields["via"] = FILED
    if "meet" in fields:
        if "via" in fields or fields.get("local"):
            raise InputError("--meet waits for tasks that call; leave --via, --facts and --local out")
        fields["via"] = MEET
    elif "tasks" in fields:
        raise InputError("--tasks goes with --meet")
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
