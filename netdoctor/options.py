"""Every option of a scan, once: a field of ScanRequest says its type, rule, help, group and what keeps it.

The command lines of `scan`, `gate` and `tui`, ``NETDOCTOR_<FLAG>``, completion, `--last`, the commands that
verify a fix, `netdoctor.toml` and docs/options.md are made of this table. CONTRIBUTING, "Add an option".
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from netdoctor.compat import StrEnum
from netdoctor.errors import InputError
from netdoctor.facts.host import VIAS
from netdoctor.facts.software import BACKENDS, LAUNCHERS
from netdoctor.inventory import Target
from netdoctor.inventory.names import python_fault, user_fault
from netdoctor.report import LAST
from netdoctor.text import clean, comma_words

PROFILES = ("quick", "launch", "full")
# Words behind an option that a report may hold: of --facts, of which a part would be another cluster, and of
# any other.
FACTS_MAX, MANY_MAX = 10_000, 1000


class Group(StrEnum):
    """The headings of the help."""

    HOSTS = "hosts"
    LOGIN = "logging in"
    LOOK = "what to look at"
    JOB = "the job"
    BOUNDS = "bounds"
    TASKS = "judging what tasks of a job see"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Rule:
    """What may stand behind an option, in a command line as in a saved report."""

    # The value of a text; a tuple stands for several values. Raises InputError.
    read: Callable[[str], Any]
    json_types: tuple[type, ...] = (str,)  # what a report keeps such a value as


def _text(text: str) -> str:
    if "\0" in text or len(text) > 1 << 16:
        raise InputError("that is not the text of an option")
    return text


def _file(text: str) -> Path:
    return Path(_text(text))


def port(text: str) -> int:
    """A TCP port."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InputError(f"{clean(text, 40)!r} is not a port; write 1 to 65535")
    return int(text)


def seconds(text: str) -> float:
    """A time above 0, up to a day."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and 0 < value <= 86400):
        raise InputError(f"{clean(text, 40)!r} is not a time; write seconds, such as 30")
    return value


def count(text: str) -> int:
    """1 to 4096."""
    if not text.isdecimal() or not 0 < int(text) <= 4096:
        raise InputError(f"{clean(text, 40)!r} is not a count; write 1 to 4096")
    return int(text)


def _number(least: int, most: int, what: str) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text[:12]) <= most:
            raise InputError(f"{clean(text, 40)!r} is not a number of {what}; write {least} to {most}")
        return int(text[:12])

    return number


def _globs(text: str) -> tuple[str, ...]:
    found = comma_words(_text(text))
    if any(len(word) > 200 for word in found):
        raise InputError("no check has so long a name")
    return found


def node_path(text: str) -> str:
    """A path on the nodes."""
    if not re.match(r"\A(/|~/|~\Z)[^\x00-\x1f\x7f]{0,1000}\Z", text):
        raise InputError(f"{clean(text, 60)!r} is not a path on the nodes; write /data or ~/run")
    if text.startswith(("/proc", "/sys/")):
        raise InputError(f"{clean(text, 60)!r} holds nothing of a job")
    return text.rstrip("/") or "/"


_URL = re.compile(
    r"https?://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})(:[0-9]{1,5})?(/[!-\"$->A-~]*)?"
)


def url(text: str) -> str:
    """A URL without user, password and query, where secrets would be: they go nowhere and are not told."""
    parts = re.match(r"(https?://)([^/?#]*)([^?#]*)", text)
    bare = f"{parts[1]}{parts[2].rpartition('@')[2]}{parts[3]}" if parts else ""
    known = _URL.fullmatch(bare) if len(bare) <= 1000 else None
    if known is None or not 0 < int((known[2] or ":443")[1:]) < 65536:
        raise InputError("that is not a URL; write https://host/path")
    return bare


def _user(text: str) -> str:
    if fault := user_fault(text):
        raise InputError(f"{clean(text, 60)!r}: {fault.message}")
    return text


def _python(text: str) -> str:
    if fault := python_fault(text):
        raise InputError(f"{clean(text, 60)!r}: {fault.message}")
    return text


def _jump(text: str) -> str:
    # What is in it reaches a shell by way of ssh, which runs another ssh for each hop.
    safe = re.fullmatch(r"[A-Za-z0-9_.@:%,/\[\] -]{0,4096}", text)
    if not safe or any(hop.strip().startswith("-") for hop in text.split(",")):
        raise InputError(f"{clean(text, 60)!r} is not a jump host; write [user@]host[:port]")
    return text


def _partition(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,-]{0,200}", text):
        raise InputError(f"{clean(text, 60)!r} is not a partition of Slurm's")
    return text


def _groups(text: str) -> str:
    from netdoctor.localise.groups import parse

    try:
        return ",".join(f"{name}={size}" for name, size in parse(text).items())
    except ValueError as error:
        raise InputError(f"{clean(str(error), 120)}; write tp=8,pp=2") from None


TEXT = Rule(_text)
FILE = Rule(_file)
PORT = Rule(port, (int,))
SECONDS = Rule(seconds, (int, float))
COUNT = Rule(count, (int,))
NODES = Rule(_number(1, 100_000, "nodes"), (int,))
USER_ID = Rule(_number(0, (1 << 32) - 1, "a user"), (int,))
GLOBS = Rule(_globs)
NODE_PATH = Rule(node_path)
GROUPS = Rule(_groups)
URL = Rule(url)
USER = Rule(_user)
PYTHON = Rule(_python)
JUMP = Rule(_jump)
PARTITION = Rule(_partition)

# Why a report does not keep an option, or a command that verifies a fix does not repeat it.
NAMED_EACH_TIME = "code is loaded only from folders that are named now"
TRUST = "trust has to be given each time"
LISTED = "a report holds the hosts themselves"
NAMES_CHECKS = "the command names its checks and nodes"
ONE_CHECK = "the command runs one check, within the usual bounds"
OWN_VERDICT = "the command's verdict is that of its one check"
FILE_ITSELF = "it says where the report goes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, which is called as its field: ``--write-test`` is `write_test`."""

    name: str
    group: Group
    help: str
    short: str = ""  # ``-p``
    rule: Rule | None = TEXT  # what may stand behind it; None for a switch
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    many: bool = False  # it is given again for further values
    joined: bool = False  # also, and they make one text with commas
    open_ended: bool = False  # several words may follow at once
    negatable: bool = False  # ``--no-…`` takes it back
    everyday: bool = False  # `scan -h` shows it
    not_kept: str = ""  # why --last asks for it no more
    not_repeated: str = ""  # why the command that verifies a fix leaves it out where no report was saved
    reaches: bool = False  # it says how nodes are reached
    decides: str = ""  # what it is called where it decides which programs run and who is trusted
    asks_nodes: bool = False  # it needs an answer of nodes, which a saved report may not hold
    in_settings: bool = False  # netdoctor.toml has it too

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"NETDOCTOR_{self.name.upper()}"

    def from_report(self, value: object) -> Any:
        """What a report says of it, held to the rule of the command line. Raises InputError."""
        if self.many:
            if not isinstance(value, list | tuple) or len(value) > (
                FACTS_MAX if self.open_ended else MANY_MAX
            ):
                raise InputError("that is not a list")
            found = [self._one(one) for one in value]
            return tuple(x for one in found for x in (one if isinstance(one, tuple) else (one,)))
        return self._one(value)

    def _one(self, value: object) -> Any:
        if self.rule is None:
            if type(value) is not bool:
                raise InputError(f"{clean(str(value), 40)!r} is neither true nor false")
            return value
        if type(value) not in self.rule.json_types:
            raise InputError(f"{clean(str(value), 40)!r} is of another type")
        if self.choices and value not in (*self.choices, *_BY_OTHERS.get(self.name, ())):
            raise InputError(f"{clean(str(value), 40)!r} is none of {', '.join(self.choices)}")
        return self.rule.read(str(value))

    def to_report(self, value: Any) -> Any:
        """A value as a report keeps it: paths absolute, so that `--last` works from elsewhere."""
        if self.rule is FILE:
            return [str(one.absolute()) for one in value] if self.many else str(value.absolute())
        if self.name == "facts":
            return [str(Path(word).absolute()) for word in value] if len(value) <= FACTS_MAX else []
        return list(value) if isinstance(value, tuple) else value

    def argv(self, value: Any) -> list[str]:
        """The words of a command line that say `value`; none for a switch that is off."""
        if self.rule is None:
            return [self.flag] if value else []
        if self.open_ended:
            return [self.flag, *map(str, value)] if value else []
        found = value if self.many else (value,)
        return [word for one in found for word in (self.flag, str(one))]


# What options stand for that have a field of their own: --via is "facts" where --facts is given.
_BY_OTHERS = {"via": ("facts", "meet")}


def option(group: Group, help: str, default: Any = None, **how: Any) -> Any:
    """A field of ScanRequest that is an option. how: as of Option."""
    return field(default=default, metadata={"option": (group, help, how)})


hosts_option, login_option, look_option, job_option, bounds_option, tasks_option, output_option = (
    partial(option, group) for group in Group
)


class Selection(NamedTuple):
    """Which checks, by globs on their ids, and which nodes, by a node-set expression; None for all."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What a scan is asked for, whoever asks. What a field of an option means its help says."""

    # What names the nodes: files, "-", names.
    hosts: tuple[str, ...] = ()
    # Instead of them the nodes of an earlier report, that report's file, and what is to be told of them.
    targets: tuple[Target, ...] | None = None
    source: Path | None = None
    remarks: tuple[str, ...] = ()
    # What --last shall ask for the next time, where only, skip and node hold for this run alone.
    default_selection: Selection | None = None
    # The tasks that call are those of a gang, and have the numbers 0 to tasks - 1.
    are_members: bool = False
    # Of the shell that the job would be launched from.
    environ: Mapping[str, str] = field(default_factory=dict)

    format: str = hosts_option(
        "how to read the host list (default: detect it)", "auto", metavar="FORMAT", not_kept=LISTED
    )
    local: bool = hosts_option("this machine only, without SSH", default=False, rule=None, everyday=True)
    via: str = hosts_option(
        "what reaches the nodes (default: ssh); slurm: srun; ray: a Ray cluster",
        "ssh",
        choices=VIAS,
        everyday=True,
        reaches=True,
    )
    ray_address: str | None = hosts_option(
        "the Ray cluster (default: RAY_ADDRESS, or the one around)", metavar="H:P", reaches=True
    )
    ray_python: str | None = hosts_option(
        "an interpreter with the cluster's Ray (default: that of `ray`)",
        rule=PYTHON,
        metavar="PATH",
        reaches=True,
    )
    partition: str | None = hosts_option(
        "of Slurm: where --via slurm asks for nodes", rule=PARTITION, metavar="P"
    )

    ssh_config: Path | None = login_option(
        "instead of ~/.ssh/config", rule=FILE, metavar="FILE", reaches=True, decides="ssh config"
    )
    ssh_user: str | None = login_option("login user", rule=USER, metavar="U", everyday=True, reaches=True)
    ssh_port: int | None = login_option("SSH port", rule=PORT, metavar="N", reaches=True)
    ssh_key: Path | None = login_option(
        "private key file", rule=FILE, metavar="F", everyday=True, reaches=True, decides="key"
    )
    known_hosts: Path | None = login_option(
        "instead of the known_hosts of the config",
        rule=FILE,
        metavar="FILE",
        reaches=True,
        decides="known hosts",
    )
    jump: str | None = login_option(
        "jump host: [user@]host[:port], several with commas",
        rule=JUMP,
        metavar="H",
        everyday=True,
        reaches=True,
        decides="jump host",
    )
    accept_new: bool = login_option(
        "learn unknown host keys (never changed ones)",
        default=False,
        rule=None,
        everyday=True,
        reaches=True,
        not_kept=TRUST,
        not_repeated="the keys have been learned by then",
    )
    python: str | None = login_option(
        "the job's interpreter on the nodes (default: python3); auto: one with torch that they have",
        rule=PYTHON,
        metavar="PATH",
        everyday=True,
        decides="interpreter",
    )

    profile: str = look_option(
        "quick: passive; launch (default): + ports, clock, path MTU, packet loss, and a short all-reduce, "
        "for which torch starts on idle GPUs; full: + TCP and torch rates of pairs",
        "launch",
        short="-p",
        choices=PROFILES,
        everyday=True,
        not_repeated=NAMES_CHECKS,
    )
    only: tuple[str, ...] = look_option(
        "checks to run; repeatable",
        (),
        short="-c",
        rule=GLOBS,
        metavar="GLOB,...",
        many=True,
        everyday=True,
        not_repeated=NAMES_CHECKS,
    )
    skip: tuple[str, ...] = look_option(
        "checks to leave out; repeatable",
        (),
        rule=GLOBS,
        metavar="GLOB,...",
        many=True,
        everyday=True,
        not_repeated=NAMES_CHECKS,
    )
    also: tuple[str, ...] = look_option(
        "checks beside those of the profile: ssh.mesh, env.login; repeatable",
        (),
        rule=GLOBS,
        metavar="GLOB,...",
        many=True,
        not_repeated=NAMES_CHECKS,
    )
    node: str | None = look_option(
        "judge only these nodes (their peers are still contacted): gpu[01-04],gpu09; repeatable",
        short="-n",
        metavar="EXPR",
        joined=True,
        everyday=True,
        not_repeated=NAMES_CHECKS,
    )
    baseline: Path | None = look_option(
        "a baseline (netdoctor baseline), or a saved report, to hold bandwidths and causes against",
        rule=FILE,
        metavar="NAME",
    )
    expect: Path | None = look_option(
        "what nodes should have, instead of what most have (netdoctor expect writes one); '' for none",
        rule=FILE,
        metavar="FILE",
        in_settings=True,
    )
    suppress: Path | None = look_option(
        "what is accepted, and why (default: netdoctor.toml beside the hosts file); '' accepts nothing",
        rule=FILE,
        metavar="FILE",
    )
    checks_dir: tuple[Path, ...] = look_option(
        "more checks; repeatable", (), rule=FILE, metavar="DIR", many=True, not_kept=NAMED_EACH_TIME
    )

    env_file: Path | None = job_option(
        "environment that the job will get", rule=FILE, metavar="F", everyday=True, asks_nodes=True
    )
    master_port: int | None = job_option(
        "rendezvous port (default: MASTER_PORT, 29500)", rule=PORT, metavar="N"
    )
    launcher: str | None = job_option(
        f"what starts the job ({', '.join(LAUNCHERS)}): trouble that it does not meet becomes a warning",
        choices=LAUNCHERS,
        metavar="NAME",
        everyday=True,
    )
    image: str | None = job_option("the job's container image: one digest on all nodes", metavar="NAME")
    backend: str | None = job_option("the job's only backend (default: any may be)", choices=BACKENDS)
    packages: str = job_option(
        "distributions that must be equal, and their versions: 'torch==2.6.0,vllm>=0.8'; @FILE is "
        "--requirements FILE",
        "",
        metavar="LIST",
        joined=True,
        asks_nodes=True,
    )
    requirements: Path | None = job_option(
        "a requirements file of pip's that nodes must meet", rule=FILE, metavar="FILE", asks_nodes=True
    )
    path: tuple[str, ...] = job_option(
        "code, data or a model on the nodes: that it is there, the same, and shared; repeatable",
        (),
        rule=NODE_PATH,
        metavar="PATH",
        many=True,
        asks_nodes=True,
    )
    write_test: tuple[str, ...] = job_option(
        "a folder that all nodes share and write to: each writes a hidden file of 4 KiB there, others read "
        "it, and it is removed; repeatable",
        (),
        rule=NODE_PATH,
        metavar="DIR",
        many=True,
        asks_nodes=True,
    )
    rate_test: str | None = job_option(
        "a folder or file whose rates are measured, on one node at a time and on all at once: a node takes "
        "at most 256 MiB in a folder, and removes it; a file is only read",
        rule=NODE_PATH,
        metavar="PATH",
        asks_nodes=True,
    )
    groups: str | None = job_option(
        "measure the groups that the job makes of its ranks, all of a kind at once: tp=8,pp=2,ep=4 "
        "(tp, cp, pp, dp, ep, etp)",
        rule=GROUPS,
        metavar="NAME=N,…",
        asks_nodes=True,
    )
    reach: tuple[str, ...] = job_option(
        "every node sends an HTTP HEAD request to URL, with its own proxy and CAs; repeatable, no "
        "password is sent",
        (),
        rule=URL,
        metavar="URL",
        many=True,
        asks_nodes=True,
    )

    parallel: int = bounds_option(
        "logins at once (512)", 512, short="-j", rule=COUNT, metavar="N", not_repeated=ONE_CHECK
    )
    timeout: float = bounds_option(
        "seconds per node (30)", 30.0, rule=SECONDS, metavar="S", not_repeated=ONE_CHECK
    )
    deadline: float | None = bounds_option(
        "seconds for the whole run", rule=SECONDS, metavar="S", everyday=True, not_repeated=ONE_CHECK
    )
    budget: float | None = bounds_option(
        "seconds for bandwidth experiments (launch 20, full 120)",
        rule=SECONDS,
        metavar="S",
        not_repeated=ONE_CHECK,
    )

    facts: tuple[str, ...] = tasks_option(
        "a saved report, judged again offline; or what netdoctor facts wrote in a job's tasks: folders, "
        "files, 'patterns*'; hosts, named before it, say who must have written",
        (),
        metavar="PLACE",
        many=True,
        open_ended=True,
        everyday=True,
    )
    facts_age: float = tasks_option("older facts do not count (3600)", 3600.0, rule=SECONDS, metavar="S")
    facts_nodes: int | None = tasks_option("so many nodes have to have written", rule=NODES, metavar="N")
    facts_uid: int | None = tasks_option(
        "take files of this user, too", rule=USER_ID, metavar="UID", not_kept=TRUST
    )
    facts_job: str | None = tasks_option("of several that wrote (default: the newest)", metavar="JOB")
    meet: str | None = tasks_option(
        "wait for tasks that run netdoctor facts --meet: at a PORT, or by a folder that all see",
        metavar="PLACE",
    )
    tasks: int | None = tasks_option("how many of them, one a node", rule=NODES, metavar="N")
    secret_file: Path | None = tasks_option(
        "file with the secret that both sides have, of mode 0600 (default: NETDOCTOR_MEET_SECRET)",
        rule=FILE,
        metavar="FILE",
    )

    fail_on: str = output_option(
        "what makes the exit code",
        "fail",
        choices=("fail", "warn", "never"),
        everyday=True,
        not_repeated=OWN_VERDICT,
    )
    strict: bool = output_option(
        "READY only where nothing was left out that could have been examined: --require of all families",
        default=False,
        rule=None,
        negatable=True,
        everyday=True,
        not_repeated=OWN_VERDICT,
    )
    require: tuple[str, ...] = output_option(
        "families of checks (sw, gpu, bw, ...): what was not tested there makes the "
        "verdict UNDECIDED; '' cancels it",
        (),
        rule=GLOBS,
        metavar="FAMILY,...",
        many=True,
        not_repeated=OWN_VERDICT,
    )
    save: Path | None = output_option(
        f"save the report here (default: {LAST})",
        LAST,
        rule=FILE,
        metavar="FILE",
        not_kept=FILE_ITSELF,
        not_repeated=FILE_ITSELF,
    )


def _declared() -> dict[str, Option]:
    found = {}
    for one in fields(ScanRequest):
        if "option" in one.metadata:
            group, text, how = one.metadata["option"]
            found[one.name] = Option(name=one.name, group=group, help=text, **how)
    return found


# Every option by its name, in the order of the help.
OPTIONS: Mapping[str, Option] = _declared()


def of_group(*groups: Group) -> frozenset[str]:
    """The names of the options in some groups."""
    return frozenset(name for name, one in OPTIONS.items() if one.group in groups)
