"""What a batch file asks Slurm for: the ``#SBATCH`` lines, as sbatch reads them.

sbatch stops at the first line that is neither blank nor a comment (src/sbatch/opt.c, _opt_batch_script).
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from netdoctor.lint.launches import Launch, Option, take
from netdoctor.lint.model import Position
from netdoctor.lint.options import PROGRAMS
from netdoctor.lint.values import Value, Word, text_value

NODE_COUNTS = frozenset({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"})
_LINE = re.compile(r"#SBATCH(?:[ \t]+(.*))?$")


@dataclass(frozen=True, slots=True)
class Late:
    """A directive behind the first command."""

    position: Position
    text: str
    behind: int  # the line of that command


@dataclass(frozen=True, slots=True)
class Request:
    """What the directives ask for; None where they do not say, or not in plain numbers."""

    options: tuple[Option, ...] = ()  # every option, in order
    late: tuple[Late, ...] = ()  # those that sbatch does not read
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    cpus_per_task: int | None = None

    @classmethod
    def of_options(cls, options: Sequence[Option], late: Sequence[Late]) -> "Request":
        words = {option.name: option.value for option in options}
        numbers = {name: word.value.number for name, word in words.items() if word is not None}
        return cls(
            options=tuple(options),
            late=tuple(late),
            nodes=numbers.get("nodes"),
            ntasks=numbers.get("ntasks"),
            ntasks_per_node=numbers.get("ntasks-per-node") or numbers.get("tasks-per-node"),
            gpus_per_node=_gpus(words.get("gpus-per-node"), words.get("gres")),
            gpus_per_task=_count(words.get("gpus-per-task")),
            cpus_per_task=numbers.get("cpus-per-task"),
        )

    def get(self, name: str) -> Option | None:
        return next((g for g in reversed(self.options) if g.name == name), None)

    @property
    def tasks_per_node(self) -> int | None:
        """How many tasks srun starts on a node by default; None where it is unknown."""
        if self.ntasks_per_node is not None and self.ntasks is None:
            return self.ntasks_per_node
        if self.ntasks is not None and self.nodes:
            return _each(self.ntasks, self.nodes)
        return None

    @property
    def tasks(self) -> int | None:
        if self.ntasks is not None:
            return self.ntasks
        if self.nodes is not None and self.ntasks_per_node is not None:
            return self.nodes * self.ntasks_per_node
        return None

    @property
    def variables(self) -> dict[str, Value]:
        """SLURM_* as the batch script will see them."""
        found = {
            ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"): self.nodes,
            ("SLURM_NTASKS", "SLURM_NPROCS"): self.tasks,
            ("SLURM_NTASKS_PER_NODE",): self.ntasks_per_node,
            ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"): self.gpus_per_node,
            ("SLURM_CPUS_PER_TASK",): self.cpus_per_task,
        }
        return {name: text_value(str(n)) for names, n in found.items() if n is not None for name in names}


@dataclass(frozen=True, slots=True)
class Step:
    """What one srun starts; None where it is unknown."""

    nodes: int | None
    tasks: int | None
    per_node: int | None
    gpus_per_task: int | None
    gpus_per_node: int | None


def read_request(lines: list[str], more: Sequence[Option] = ()) -> Request:
    """The directives of a batch file. more: what sbatch is given, which wins."""
    options: list[Option] = []
    late: list[Late] = []
    behind = 0
    for number, line in enumerate(lines, 1):
        if match := _LINE.match(line):
            if behind:
                late.append(Late(Position(number), line.strip(), behind))
            else:
                options += _options(match[1] or "", number, line)
        elif not behind and line.strip() and not line.startswith("#"):
            behind = number
    return Request.of_options([*options, *more], late)


def _options(text: str, number: int, line: str) -> tuple[Option, ...]:
    try:
        texts = shlex.split(text, comments=True)
    except ValueError:
        return ()
    start = line.find(text) + 1 if text else 1
    words = tuple(Word(text_value(t), Position(number, max(line.find(t) + 1, start)), raw=t) for t in texts)
    return take(words, PROGRAMS["sbatch"]).options


def _gpus(per_node: Word | None, gres: Word | None) -> int | None:
    """GPUs of a node: --gpus-per-node=a100:4, --gres=gpu:a100:4."""
    return _count(per_node) if per_node is not None else _gres_gpus(gres)


def _gres_gpus(word: Word | None) -> int | None:
    parts = ((word.text if word is not None else "") or "").split(",")
    counts = [
        _number(re.sub(r"^(gres[:/])?gpu[:=]?", "", part.partition("(")[0]) or "1")
        for part in parts
        if re.match(r"(gres[:/])?gpu\b", part)
    ]
    return sum(c for c in counts if c is not None) if counts and None not in counts else None


def _count(word: Word | None) -> int | None:
    return _number(word.text or "") if word is not None else None


def _number(text: str) -> int | None:
    """``8``, ``a100:8``; a type alone is one."""
    last = text.rpartition(":")[2]
    if last.isdecimal() and len(last) < 6:
        return int(last)
    return 1 if re.fullmatch(r"[A-Za-z][\w.-]*", text) else None


def _each(tasks: int, nodes: int | None) -> int | None:
    return tasks // nodes if nodes and tasks % nodes == 0 else None


def step(srun: Launch, request: Request) -> Step:
    """What `srun` starts within a job of `request`."""
    nodes_word, tasks_word, nodelist = srun.get("nodes"), srun.get("ntasks"), srun.has("nodelist")
    each_word = srun.get("ntasks-per-node") or srun.get("tasks-per-node")
    gres, gpus_word, task_gpus = srun.get("gres"), srun.get("gpus-per-node"), srun.get("gpus-per-task")
    gpus = _gres_gpus(gres) if gres else _count(gpus_word) if gpus_word else request.gpus_per_node
    nodes = nodes_word.value.number if nodes_word else None if nodelist else request.nodes
    tasks = per_node = None
    if tasks_word is not None:
        tasks = tasks_word.value.number
        same = nodes_word is not None and tasks_word.value == nodes_word.value
        if tasks is not None:
            per_node = _each(tasks, nodes)
        elif same or tasks_word.value.names & NODE_COUNTS:
            per_node = 1
    elif each_word is not None:
        per_node = each_word.value.number
        tasks = nodes * per_node if nodes and per_node else None
    elif not srun.open and (nodes_word is not None or nodelist):
        per_node = request.ntasks_per_node
    elif not srun.open:
        tasks, per_node = request.tasks, request.tasks_per_node
    return Step(
        nodes=nodes,
        tasks=tasks,
        per_node=per_node,
        gpus_per_task=_count(task_gpus) if task_gpus else request.gpus_per_task,
        gpus_per_node=gpus,
    )
