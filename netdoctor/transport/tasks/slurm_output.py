"""What Slurm's commands are asked, and what they say: nothing here runs one.

Text and not JSON: sinfo's fields (-o) have kept their meaning, and its JSON changes its shape with releases.
Sources: sinfo(1), srun(1), salloc(1) and slurm.conf(5) of 22.05 and 24.05.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from netdoctor.facts.host import Login
from netdoctor.inventory.nodeset import SyntaxFault, fold, write_out
from netdoctor.text import clean

SINFO = ("sinfo", "--noheader", "--Node")
# %P partition, * behind the default one, %l its time limit, %T state with its flags, %c CPUs, %G generic
# resources, %o address. The reason last: it is free text.
FORMAT = "%N|%P|%l|%T|%c|%G|%o|%E"
_ROW = re.compile(
    r"(?P<node>[A-Za-z0-9_.-]{1,253})\|[^|*]*(?P<default>\*?)\|(?P<limit>[^|]*)\|(?P<state>[a-z_]+)(?P<flag>[*~#!%$@^+-]?)\|(?P<cpus>\d{1,6})\|"
    r"(?P<gres>[^|]*)\|(?P<address>[^|]*)\|(?P<reason>.*)"
)
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,4})")

# States of sinfo(1) in which Slurm itself keeps jobs off a node, and in which somebody else has it.
KEPT_OFF = ("drained", "draining", "fail", "failing", "down", "error", "unknown", "inval", "blocked")
# A job that already has a node keeps it in these.
STILL_OURS = ("draining", "failing")
FREE = ("idle",)
# Behind the word for a node whose last job has ended.
COMPLETING = ": what ran there has ended and is cleaned up; it is free in a moment, unless its epilog hangs"


@dataclass(frozen=True, slots=True)
class Row:
    """A node in Slurm's books."""

    state: str  # as sinfo prints it
    responds: bool
    cpus: int
    gpus: int
    address: str
    reason: str  # '' where none is set
    minutes: int | None = None  # what a job there may take; None for as long as it likes

    @property
    def text(self) -> str:
        """Its state, for people."""
        silent = "" if self.responds else ", not responding"
        return f"{self.state}{silent}" + (f": {self.reason}" if self.reason else "")


def read_rows(text: str) -> dict[str, Row]:
    """The nodes of ``sinfo -o FORMAT``, in their default partition where they are in several.

    A line that is none, as behind a reason of several lines, is passed over. ::

        gpu03|train*|2-00:00:00|drained*|96|gpu:h100:8(S:0-1)|gpu03|DIMM B2
    """
    found = {}
    for line in text.splitlines():
        row = _ROW.fullmatch(line.rstrip())
        if row is None or (row["node"] in found and not row["default"]):
            continue
        reason = clean(row["reason"], 200)
        found[row["node"]] = Row(
            state=row["state"],
            responds=row["flag"] != "*",
            cpus=int(row["cpus"]),
            gpus=sum(map(int, _GPUS.findall(row["gres"]))),
            address=row["address"],
            reason="" if reason == "none" else reason,
            minutes=minutes(row["limit"]),
        )
    return found


def minutes(limit: str) -> int | None:
    """Whole minutes of ``2-00:00:00``, ``12:00:00`` or ``10:00``; None for ``infinite`` or no time."""
    found = re.fullmatch(r"(?:(\d{1,4})-)?(?:(\d{1,4}):)?(\d{1,4}):(\d\d)", limit)
    if found is None:
        return None
    days, hours, rest, _ = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + rest


def why_no_task(row: Row | None, *, ours: bool) -> tuple[Login, str] | None:
    """Why no task is started on a node, and None where one may. ours: our job has it already."""
    if row is None:
        return Login.NAME, "Slurm knows no node of this name"
    if row.state in KEPT_OFF and not (ours and row.state in STILL_OURS):
        down = row.state in ("down", "error", "unknown")
        return Login.DOWN if down else Login.DRAINED, row.text
    if not row.responds:
        return Login.DOWN, row.text
    if not ours and row.state not in FREE:
        soon = COMPLETING if row.state == "completing" else ""
        return Login.BUSY, f"Slurm has it as {row.text}{soon}"
    return None


# Reasons of squeue(1) why a job waits that others' jobs and reservations end; all others are limits.
_IN_TURN = ("Resources", "Priority", "ReqNodeNotAvail", "Nodes_required", "Reservation", "None", "BeginTime")


def in_turn(reason: str) -> bool:
    """Whether a job that waits for this will be started without anybody's doing."""
    return reason.startswith(_IN_TURN)


@dataclass(frozen=True, slots=True)
class Ask:
    """An allocation to be asked for. wait_s: the longest that is waited for it; minutes: its time limit."""

    nodes: tuple[str, ...]
    wait_s: int
    minutes: int
    partition: str | None = None
    gpus: int = 0

    def argv(self) -> list[str]:
        """Whole nodes, all of their memory, and the GPUs in Slurm's books: what a job would have."""
        return [
            "salloc",
            "--job-name=netdoctor",
            "--exclusive",
            "--mem=0",
            *([f"--partition={self.partition}"] if self.partition else []),
            *([f"--gres=gpu:{self.gpus}"] if self.gpus else []),
            f"--nodelist={fold(self.nodes, None)}",
            f"--nodes={len(self.nodes)}",
            f"--time={self.minutes}",
            f"--immediate={self.wait_s}",
        ]


def step(nodes: Sequence[str], command: Sequence[str], job: str | None, cpus: int) -> list[str]:
    """One task a node, beside whatever else the job runs. cpus: for each, 0 for as many as Slurm gives."""
    return [
        "srun",
        "--verbose",  # which tasks it has asked for
        *([f"--jobid={job}"] if job else []),
        "--overlap",
        f"--nodelist={fold(nodes, None)}",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        "--cpu-bind=none",
        "--mpi=none",
        "--label",
        "--input=all",
        "--kill-on-bad-exit=0",
        "--wait=0",
        *command,
    ]


# What decides which Slurm is meant, and who asks; every other SLURM_* variable would be an option of srun's.
_PASSED_ON = re.compile(r"SLURM_(CONF|CLUSTERS|JWT|CONF_SERVER)")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for our step: what a job script says for its own steps is not for ours."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("SLURM_", "SRUN_", "SALLOC_")) or _PASSED_ON.fullmatch(name)
    }


def cpus_of(counts: str) -> int:
    """The fewest CPUs of SLURM_JOB_CPUS_PER_NODE, ``96(x3),48``; 0 where it is none."""
    found = re.findall(r"(\d{1,6})(?:\(x\d+\))?(?:,|$)", counts)
    return min(map(int, found), default=0)


# srun: error: node[1-2]: tasks 0-1: Exited with exit code 2
_EXIT = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
# srun: error: Task launch for StepId=9.0 failed on node node3: Communication connection failure
_LAUNCH = re.compile(r"srun: error: Task launch for StepId=\S+ failed on node (\S+): (.+)")
# 0: slurmstepd-node1: error: *** STEP 9.0 ON node1 CANCELLED AT 2026-11-22T14:42:07 DUE TO TIME LIMIT ***
_CANCELLED = re.compile(
    r"(?:\d+: )?(?:srun|slurmstepd\S*): error: \*\*\* (?:STEP|JOB) .*CANCELLED AT \S+ ?(.*?) ?\*\*\*"
)
_TASK = re.compile(r"(\d+): ?(.*)")
_QUEUED = re.compile(r"salloc: Pending job allocation (\d+)")
_GRANTED = re.compile(r"salloc: Granted job allocation (\d+)")
# srun: Job 12 step creation temporarily disabled, retrying (Requested nodes are busy)
_WAITS = re.compile(r"srun: Job \d+ step creation temporarily disabled, retrying \((.+)\)")
_ERROR = re.compile(r"(?:srun|salloc): error: (.+)")


class _Tried(msgspec.Struct):
    node: str
    tried: dict[str, str]


# srun: launching StepId=9.0 on host node2, 1 tasks: 2
_LAUNCHING = re.compile(r"srun: launching (?:StepId=)?(\d+\.\d+)\S* on host (\S+), \d+ tasks: ([\d,-]+)")
# 2: netdoctor-task on node2
_RUNS = re.compile(r"netdoctor-task on ([A-Za-z0-9_.-]{1,253})")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of srun or salloc. kind: ``queued``, ``granted``, ``waits``, ``launching``, ``launch`` (which
    failed), ``runs``, ``tried``, ``task``, ``exit``, ``cancelled``, ``error``, ''.

    nodes, tasks: which it is about, in the same order; text: what it says of them.
    """

    kind: str
    text: str
    nodes: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()


def line(raw: str) -> Line:
    """What a line of srun's or salloc's output is."""
    text = clean(raw, 1200)
    if match := _GRANTED.match(text):
        return Line("granted", match[1])
    if match := _QUEUED.match(text):
        return Line("queued", match[1])
    if match := _CANCELLED.match(text):
        return Line("cancelled", match[1])
    if match := _LAUNCH.match(text):
        return Line("launch", match[2], names(match[1]))
    if match := _EXIT.match(text):
        return Line("exit", match[3], names(match[1]), numbers(match[2]))
    if match := _LAUNCHING.fullmatch(text):
        return Line("launching", match[1], names(match[2]), numbers(match[3]))
    if match := _WAITS.match(text):
        return Line("waits", match[1])
    if match := _ERROR.match(text):
        return Line("error", match[1])
    if match := _TASK.fullmatch(text):
        if runs := _RUNS.fullmatch(match[2]):
            return Line("runs", "", (runs[1],), (int(match[1]),))
        if match[2].startswith("netdoctor-task "):
            return _tried(match[2].removeprefix("netdoctor-task "))
        return Line("task", match[2], (), (int(match[1]),))
    return Line("", text)


def _tried(text: str) -> Line:
    """What a task says that could not call: ``{"node": "n1", "tried": {"10.0.0.1 port 40": "refused"}}``."""
    try:
        task = msgspec.json.decode(text, type=_Tried)
    except (msgspec.MsgspecError, RecursionError):
        return Line("", text)
    tried = "; ".join(f"{endpoint}: {why}" for endpoint, why in list(task.tried.items())[:4])
    return Line("tried", clean(tried, 300), (task.node,))


def names(text: str) -> tuple[str, ...]:
    """The nodes of Slurm's ``gpu[01-04,07]``; nothing where it is not that."""
    try:
        return tuple(
            name for piece in re.findall(r"[^,\[]+(?:\[[^\]]*\])?[^,\[]*", text) for name in write_out(piece)
        )
    except SyntaxFault:
        return ()


def numbers(text: str) -> tuple[int, ...]:
    """The task numbers of ``0-3,7``."""
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and len(piece) < 14:
            found += range(int(first), min(int(last or first), int(first) + 100_000) + 1)
    return tuple(found)


def port_range(config: str) -> range | None:
    """SrunPortRange of ``scontrol show config``: where nodes may call the machine that srun runs on."""
    found = re.search(r"^SrunPortRange\s*=\s*(\d{1,5})-(\d{1,5})\s*$", config, re.MULTILINE)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    return range(first, last + 1) if 0 < first <= last < 65536 else None
