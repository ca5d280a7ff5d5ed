"""A job's own command as each node starts it: what a launcher needs to know of the nodes is put in. Pure."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from netdoctor.errors import InputError
from netdoctor.launch.model import LaunchPlan, Origin, PlanNode

# Of torchrun, in all its spellings. Who gives one of the first gives all that they mean to give.
_RENDEZVOUS = re.compile(
    r"--?(nnodes|node[-_]rank|rdzv[-_]\w+|master[-_](addr|port)|local[-_]addr|standalone)\b"
)
_PROCESSES = re.compile(r"--?nproc([-_]per[-_]node)?\b")
# Of accelerate.
_MACHINES = re.compile(
    r"--(num[-_]machines|machine[-_]rank|main[-_]process[-_](ip|port)|config[-_]file|deepspeed[-_]hostfile)\b"
)
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
# They reach the other nodes by themselves.
_ONCE = frozenset(
    ("deepspeed", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "horovodrun", "srun", "ray")
)
_PYTHON = re.compile(r"python[0-9.]*")
_FILLED = re.compile(r"\{(rank|node|master|port|nnodes|nproc|world)\}")


class Where(Enum):
    """Where a command is started."""

    NODE = "node"  # once on every node: a launcher that starts the node's ranks
    PROCESS = "process"  # once for every rank
    FIRST = "first"  # on the first node alone: a launcher that reaches the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process to start. env: on top of the node's."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """What every node starts. added: the options that were put in, as on the first node."""

    where: Where
    runs: Mapping[str, tuple[Run, ...]]  # by node, in rank order; nothing where the first starts all
    env: Mapping[str, Mapping[str, str]]  # of each node
    added: tuple[str, ...] = ()


def commands_of(
    plan: LaunchPlan, words: Sequence[str], where: Where | None = None, guessed: bool = True
) -> Commands:
    """What every node starts for a command. where: None for what the command itself says.

    ``{rank}``, ``{node}``, ``{master}``, ``{port}``, ``{nnodes}``, ``{nproc}`` and ``{world}`` in its words
    are the node's rank, its name, and what they say. guessed: False leaves variables that nobody measured or
    gave out. Raises InputError for a launcher that cannot have what the nodes have.
    """
    where = where or _where(words)
    env = {node.id: _env(plan, node, guessed) for node in plan.nodes}
    runs: dict[str, tuple[Run, ...]] = {}
    added: tuple[str, ...] = ()
    for rank, node in enumerate(plan.nodes):
        at, more = _added(plan, node, words)
        filled = [*words[:at], *more, *words[at:]]
        added = added or tuple(more)
        argv = tuple(_filled(plan, node, word) for word in filled)
        if where is Where.PROCESS:
            runs[node.id] = tuple(Run(argv=argv, env=one) for one in _ranks(plan, node))
        elif where is Where.NODE:
            one = {"NODE_RANK": str(rank), "NNODES": str(len(plan.nodes))}
            runs[node.id] = (Run(argv=argv, env=one),)
        else:
            runs[node.id] = () if rank else (Run(argv=argv),)
    return Commands(where=where, runs=runs, env=env, added=added)


def _where(words: Sequence[str]) -> Where:
    name = os.path.basename(words[0])
    if name in _ONCE and "--no_ssh" not in words:
        return Where.FIRST
    if _launcher(words) or not (_PYTHON.fullmatch(name) or name.endswith(".py")):
        return Where.NODE
    return Where.PROCESS


def _launcher(words: Sequence[str]) -> tuple[str, int] | None:
    """(``torchrun`` or ``accelerate``, where its options begin); None for anything else."""
    name = os.path.basename(words[0])
    if name == "torchrun":
        return "torchrun", 1
    if name == "accelerate" and list(words[1:2]) == ["launch"]:
        return "accelerate", 2
    if _PYTHON.fullmatch(name) and "-m" in words[:4]:
        at = list(words).index("-m") + 2
        module = words[at - 1] if at <= len(words) else ""
        if module in _MODULES:
            return "torchrun", at
        if module == "accelerate.commands.launch":
            return "accelerate", at
    return None


def _options(words: Sequence[str], at: int) -> list[str]:
    """The launcher's own words: up to the program."""
    found = []
    for word in words[at:]:
        if word.endswith(".py") or word in ("-m", "--module"):
            break
        found.append(word)
    return found


def _added(plan: LaunchPlan, node: PlanNode, words: Sequence[str]) -> tuple[int, list[str]]:
    """(where, the options that a launcher lacks there)."""
    launcher = _launcher(words)
    if launcher is None:
        return 0, []
    name, at = launcher
    options = _options(words, at)
    if name == "accelerate":
        given = any(_MACHINES.match(word) for word in options)
        return at, [] if given else _accelerate(plan, node)
    more = [] if any(_PROCESSES.match(word) for word in options) else [f"--nproc-per-node={node.count}"]
    if any(_RENDEZVOUS.match(word) for word in options):
        return at, more
    more = [f"--nnodes={len(plan.nodes)}", *more, "--rdzv-backend=c10d", f"--rdzv-id={plan.options.job}"]
    more.append(f"--rdzv-endpoint={_host(_value(plan, node, 'master'))}:{_value(plan, node, 'port')}")
    if plan.has_addresses and node.address:
        more += [f"--rdzv-conf=is_host={int(node.rank == 0)}", f"--local-addr={node.address.text}"]
    return at, more


def _filled(plan: LaunchPlan, node: PlanNode, word: str) -> str:
    return _FILLED.sub(lambda found: _value(plan, node, found[1]), word)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _accelerate(plan: LaunchPlan, node: PlanNode) -> list[str]:
    plan.even("accelerate divides --num_processes evenly over --num_machines")
    if any(one.gpus == 0 for one in plan.nodes):
        raise InputError("accelerate starts nodes without GPUs by MPI alone; take torchrun")
    return [
        "--multi_gpu",
        f"--num_machines={len(plan.nodes)}",
        f"--num_processes={plan.world}",
        f"--machine_rank={node.rank}",
        "--rdzv_backend=static",
        "--same_network",
        f"--main_process_ip={_value(plan, node, 'master')}",
        f"--main_process_port={_value(plan, node, 'port')}",
        "--mixed_precision=no",
        "--dynamo_backend=no",
    ]


def _value(plan: LaunchPlan, node: PlanNode, name: str) -> str:
    return {
        "rank": str(node.rank),
        "node": node.host,
        "master": plan.env["MASTER_ADDR"].text,
        "port": plan.env["MASTER_PORT"].text,
        "nnodes": str(len(plan.nodes)),
        "nproc": str(node.count),
        "world": str(plan.world),
    }[name]


def _env(plan: LaunchPlan, node: PlanNode, guessed: bool) -> dict[str, str]:
    """The variables of a node. MASTER_ADDR and MASTER_PORT are among them even where guessed."""
    return {
        name: value.text
        for name, value in plan.env_of(node).items()
        if guessed or value.origin is not Origin.GUESSED or name.startswith("MASTER_")
    }


def _ranks(plan: LaunchPlan, node: PlanNode) -> list[dict[str, str]]:
    """The variables of each of a node's ranks, as torch's env:// reads them."""
    if plan.world > 100_000:
        raise InputError("more than 100,000 ranks")
    first = sum(one.count for one in plan.nodes[: node.rank])
    return [
        {
            "RANK": str(first + local),
            "WORLD_SIZE": str(plan.world),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(node.count),
            "NODE_RANK": str(node.rank),
            "NNODES": str(len(plan.nodes)),
        }
        for local in range(node.count)
    ]
