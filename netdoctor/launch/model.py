"""What a launch plan is: nodes with process counts, and values that each say where they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from netdoctor.compat import StrEnum
from netdoctor.errors import InputError
from netdoctor.launch.fit import Job
from netdoctor.store import Store


class Origin(StrEnum):
    """Where a value comes from."""

    MEASURED = "measured"  # on the nodes, by a scan
    GIVEN = "given"  # by the user
    GUESSED = "guessed"


@dataclass(frozen=True, slots=True)
class Value:
    """A value and where it comes from, in words for people: ``gpu1 has it, the other 3 nodes reach it``."""

    text: str
    origin: Origin
    source: str

    @property
    def why(self) -> str:
        """``measured: gpu1 has it``."""
        return f"{self.origin}: {self.source}"


def from_scan(text: object, source: str) -> Value:
    return Value(str(text), Origin.MEASURED, source)


def from_user(text: object, source: str) -> Value:
    return Value(str(text), Origin.GIVEN, source)


def guess(text: object, source: str) -> Value:
    return Value(str(text), Origin.GUESSED, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a saved report knows of the nodes that are planned for."""

    facts: Store  # as its scan found them, held to the rules for hosts files
    source: str
    finished: str  # RFC 3339, UTC
    age_s: float  # since then
    state: str  # of its verdict
    headline: str = ""
    causes: tuple[str, ...] = ()  # their titles, those that fail first
    good: frozenset[str] = frozenset()  # nodes that it calls healthy
    # What its scan used for nodes that say nothing of their own.
    ssh_port: int | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks of a plan."""

    launcher: str = "torchrun"
    script: tuple[str, ...] = ("train.py",)  # its words, the first a ``.py`` file or a command
    script_is_given: bool = True
    nproc: int | None = None  # processes on every node, None for what is there
    port: int | None = None  # of the rendezvous
    env: Mapping[str, str] = field(default_factory=dict)  # for the job
    debug: bool = False
    rdzv: str = "c10d"  # or static
    # Sizes to multiply out: data, tensor and pipeline parallel; batch per process, accumulation steps.
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    batch: int | None = None
    accum: int | None = None
    only_good: bool = False
    nodelist: bool = True  # Slurm is to take the listed nodes, and not any
    job: str = "job1"
    image: str | None = None  # of containers
    fit: Job | None = None  # whose memory is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """One node."""

    id: str
    # How ssh gets there.
    host: str
    port: int | None
    user: str | None
    rank: int
    processes: Value
    name: Value  # what it calls itself, or is taken to
    address: Value | None = None  # where its peers dial it, None where nobody looked
    gpus: int | None = None  # how many it has, None where unknown
    python: Value | None = None  # the interpreter of its ranks
    env: Mapping[str, Value] = field(default_factory=dict)  # what holds on this node alone

    @property
    def count(self) -> int:
        return int(self.processes.text)


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Everything that an emitter writes down."""

    options: Options
    nodes: tuple[PlanNode, ...]
    env: Mapping[str, Value]  # of every node
    left_out: Mapping[str, str] = field(default_factory=dict)  # variables that could not be known, and why
    head: str = ""  # the one line about size and report
    network: str = ""  # that holds the addresses of all nodes, empty where there is none or nobody looked
    remarks: tuple[str, ...] = ()  # what else the reader should know
    arithmetic: tuple[str, ...] = ()  # sizes multiplied out
    fit: Mapping[str, Any] | None = None  # memory of a rank against each node, where it was asked for

    # Asked for each node, and looked up once.
    @cached_property
    def world(self) -> int:
        return sum(node.count for node in self.nodes)

    @cached_property
    def has_addresses(self) -> bool:
        """Whether it is known where peers dial every node."""
        return all(node.address for node in self.nodes)

    @cached_property
    def has_python(self) -> bool:
        """Whether an interpreter is known of any node."""
        return any(node.python for node in self.nodes)

    @cached_property
    def pythons_differ(self) -> bool:
        """Whether nodes have different interpreters."""
        return len({node.python.text if node.python else None for node in self.nodes}) > 1

    @cached_property
    def is_even(self) -> bool:
        """Whether every node runs as many processes."""
        return len({node.count for node in self.nodes}) == 1

    def even(self, why: str) -> int:
        """Processes of each node. Raises InputError where they differ. why: what needs them equal."""
        if not self.is_even:
            counts = ", ".join(f"{node.id} {node.count}" for node in self.nodes[:8])
            raise InputError(
                f"nodes have different numbers of processes ({counts}), and {why}; take --nproc N, or a "
                "launcher that accepts it: torchrun, sbatch, deepspeed, mpirun, ray"
            )
        return self.nodes[0].count

    @property
    def is_numbered_by_address(self) -> bool:
        """Whether torchrun numbers the nodes by what each is called, and not in the order of the list.

        Its c10d rendezvous sorts them as text (dynamic_rendezvous.py, _NodeDesc).
        """
        return self.options.launcher == "torchrun" and self.options.rdzv == "c10d"

    def ranked(self) -> list[tuple[PlanNode, int, int]]:
        """(node, its rank, the global rank of its first process), in the order of ranks.

        Where torchrun numbers nodes whose addresses are not known, this is the order of the list.
        """
        nodes = list(self.nodes)
        if self.is_numbered_by_address and self.has_addresses:
            nodes.sort(key=lambda node: node.address.text if node.address else "")
        found, first = [], 0
        for rank, node in enumerate(nodes):
            found.append((node, rank, first))
            first += node.count
        return found

    def env_of(self, node: PlanNode) -> dict[str, Value]:
        return {**self.env, **node.env}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A text that an emitter writes."""

    name: str  # of its file with --write
    text: str
    purpose: str
    runs: bool = False


Parts = Sequence[Part]
