"""What a batch file asks Slurm for: the ``#SBATCH`` lines, as sbatch reads them.

sbatch stops at the first line that is neither blank nor a comment (src/sbatch/opt.c, _opt_batch_script).
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.lint import options
from netdoctor.lint.launches import Given, Launch, take
from netdoctor.lint.model import Place
from netdoctor.lint.values import Value, Word, known

NODE_COUNTS = frozenset({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"})
_LINE = re.compile(r"#SBATCH(?:[ \t]+(.*))?$")


@dataclass(frozen=True, slots=True)
class Late:
    """A directive behind the first command."""

    place: Place
    text: str
    behind: int  # the line of that command


@dataclass(frozen=True, slots=True)
class Request:
    """What the directives ask for; None where they do not say, or not in plain numbers.

    given: every option in its place; late: those that sbatch does not read; unread: lines that no shell would
    split.
    """

    given: tuple[Given, ...] = ()
    late: tuple[Late, ...] = ()
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    variables: Mapping[str, Value] = field(default_factory=dict)

    def get(self, name: str) -> Given | None:
        return next((g for g in reversed(self.given) if g.name == name), None)

    @property
    def tasks_per_node(self) -> int | None:
        """How many tasks srun starts on a node, if nothing else is said; None where it cannot be told."""
        if self.ntasks_per_node is not None and self.ntasks is None:
            return self.ntasks_per_node
        if self.ntasks is not None and self.nodes:
            return self.ntasks // self.nodes if self.ntasks % self.nodes == 0 else None
        return None

    @property
    def tasks(self) -> int | None:
        if self.ntasks is not None:
            return self.ntasks
        if self.nodes is not None and self.ntasks_per_node is not None:
            return self.nodes * self.ntasks_per_node
        return None


@dataclass(frozen=True, slots=True)
class Step:
    """What one srun starts. per_node, nodes, tasks: None where it cannot be told."""

    nodes: int | None
    tasks: int | None
    per_node: int | None
    gpus_per_task: int | None
    gpus_per_node: int | None


def read_request(lines: list[str]) -> Request:
    """The directives of a batch file."""
    given: list[Given] = []
    late: list[Late] = []
    behind = 0
    for number, line in enumerate(lines, 1):
        if match := _LINE.match(line):
            if behind:
                late.append(Late(Place(number), line.strip(), behind))
            else:
                given += _given(match[1] or "", number, line)
        elif not behind and line.strip() and not line.startswith("#"):
            behind = number
    values = {g.name: g for g in given}

    def number_of(name: str) -> int | None:
        one = values.get(name)
        return one.value.value.number if one is not None and one.value is not None else None

    request = Request(
        given=tuple(given),
        late=tuple(late),
        nodes=number_of("nodes"),
        ntasks=number_of("ntasks"),
        ntasks_per_node=number_of("ntasks-per-node") or number_of("tasks-per-node"),
        gpus_per_node=_gpus(values),
        gpus_per_task=_count(_text(values, "gpus-per-task")),
    )
    from dataclasses import replace

    return replace(request, variables=_variables(request, number_of("cpus-per-task")))


def _given(text: str, number: int, line: str) -> tuple[Given, ...]:
    try:
        texts = shlex.split(text, comments=True)
    except ValueError:
        return ()
    start = line.find(text) + 1 if text else 1
    words = tuple(Word(known(t), Place(number, max(line.find(t) + 1, start)), raw=t) for t in texts)
    return take(words, options.SLURM).given


def _variables(request: Request, cpus: int | None) -> dict[str, Value]:
    """SLURM_* as the batch script will see them."""
    per_node = request.ntasks_per_node
    found = {
        ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"): request.nodes,
        ("SLURM_NTASKS", "SLURM_NPROCS"): request.tasks,
        ("SLURM_NTASKS_PER_NODE",): per_node,
        ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"): request.gpus_per_node,
        ("SLURM_CPUS_PER_TASK",): cpus,
    }
    return {name: known(str(n)) for names, n in found.items() if n is not None for name in names}


def _text(values: Mapping[str, Given], name: str) -> str | None:
    one = values.get(name)
    return one.value.text if one is not None and one.value is not None else None


def _gpus(values: Mapping[str, Given]) -> int | None:
    """GPUs of a node: --gpus-per-node=a100:4, --gres=gpu:a100:4."""
    text = _text(values, "gpus-per-node")
    if text is not None:
        return _count(text)
    return gres_gpus(_text(values, "gres") or "")


def gres_gpus(text: str) -> int | None:
    """GPUs that a --gres asks for on each node."""
    found = [part for part in text.split(",") if re.match(r"(gres[:/])?gpu\b", part)]
    counts = [
        _count(re.sub(r"\(.*\)", "", re.sub(r"^(gres[:/])?gpu[:=]?", "", part)) or "1") for part in found
    ]
    return sum(c for c in counts if c is not None) if counts and None not in counts else None


def _count(text: str | None) -> int | None:
    """``8``, ``a100:8``; a type alone is one."""
    if not text:
        return None
    last = text.rpartition(":")[2]
    if last.isdecimal() and len(last) < 6:
        return int(last)
    return 1 if re.fullmatch(r"[A-Za-z][\w.-]*", text) else None


def step(srun: Launch, request: Request) -> Step:
    """What `srun` starts within a job of `request`."""
    nodes_word, tasks_word = srun.get("nodes"), srun.get("ntasks")
    per_word = srun.get("ntasks-per-node") or srun.get("tasks-per-node")
    nodelist = srun.has("nodelist")
    nodes = nodes_word.value.number if nodes_word else None if nodelist else request.nodes
    gpus_task = _count(srun.get("gpus-per-task").text) if srun.get("gpus-per-task") else request.gpus_per_task  # type: ignore[union-attr]
    gres = srun.get("gres")
    gpus_node = (
        gres_gpus(gres.text or "") if gres else _count(w.text) if (w := srun.get("gpus-per-node")) else None
    )
    gpus_node = (
        gpus_node if gpus_node is not None or gres or srun.get("gpus-per-node") else request.gpus_per_node
    )
    per_node: int | None
    if tasks_word is not None:
        tasks = tasks_word.value.number
        same = nodes_word is not None and tasks_word.value == nodes_word.value
        if tasks is None and (same or tasks_word.value.names & NODE_COUNTS):
            per_node = 1
        elif tasks is not None and nodes:
            per_node = tasks // nodes if tasks % nodes == 0 else None
        else:
            per_node = None
        return Step(nodes, tasks, per_node, gpus_task, gpus_node)
    if per_word is not None:
        per_node = per_word.value.number
        return Step(nodes, nodes * per_node if nodes and per_node else None, per_node, gpus_task, gpus_node)
    if srun.open:
        return Step(nodes, None, None, gpus_task, gpus_node)
    if nodes_word is not None or nodelist:
        per_node = request.ntasks_per_node
        return Step(nodes, None, per_node, gpus_task, gpus_node)
    return Step(nodes, request.tasks, request.tasks_per_node, gpus_task, gpus_node)
