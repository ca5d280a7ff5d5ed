"""What a fact is: a frozen dataclass, the group it travels under, and why it may be missing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from netdoctor.compat import StrEnum

T = TypeVar("T", bound=type)


class Why(StrEnum):
    """Why a fact is missing. The first three end as `skip`, the rest as `unknown`."""

    NOT_APPLICABLE = "not_applicable"
    NOT_COLLECTED = "not_collected"
    NOT_EXAMINED = "not_examined"  # nothing is wrong, but it could have been looked at: a gap of the verdict
    NO_PERMISSION = "no_permission"
    TIMED_OUT = "timed_out"
    UNPARSABLE = "unparsable"
    FAILED = "failed"
    LOST = "lost"
    JUMP = "jump"  # the jump host was lost, and with it everybody behind
    STOPPED = "stopped"  # an interrupt or the deadline ended the scan first

    @property
    def is_skip(self) -> bool:
        return self in (Why.NOT_APPLICABLE, Why.NOT_COLLECTED, Why.NOT_EXAMINED)


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands where a fact should be. `detail` is one line for people."""

    why: Why
    detail: str


@dataclass(frozen=True, slots=True)
class FactInfo:
    """How a fact type is obtained."""

    group: str  # key in the agent's reply, or name of the measurement
    scope: str  # ``node`` (one value per node) or ``cluster`` (one value for the run)
    # ``agent`` (passive, one request), ``transport`` (known from the session itself), ``control`` (from the
    # command line and inventory), ``measure`` (several nodes at once), ``derived`` (by checks from other
    # facts, see netdoctor.check.derived).
    origin: str
    # For a plug-in's own fact, the file beside its module whose text travels to the nodes and defines
    # ``collect(args) -> dict`` (standard library, Python 3.6 and up); None for built-in facts.
    collector: str | None = None
    # Whether a machine may have nothing of the kind, so that a node's word for that is taken. Every machine
    # has limits: who says that they do not apply to it has not looked.
    absent: bool = False
    # Absent only where the collector is told of nothing by name: of a launcher that a job has named, a node
    # cannot say that it need not look.
    named: bool = False


FACT_TYPES: dict[type, FactInfo] = {}


def fact(
    group: str,
    *,
    scope: str = "node",
    origin: str = "agent",
    collector: str | None = None,
    absent: bool = False,
    named: bool = False,
) -> Callable[[T], T]:
    """Register a frozen dataclass as the type of a fact group.

    It may have a method ``missing_field() -> str`` that says what every machine has and this answer has not,
    empty where nothing is missing. Such an answer is unreadable: nobody has looked, or it was cut short.
    """

    def register(cls: T) -> T:
        FACT_TYPES[cls] = FactInfo(group, scope, origin, collector, absent or collector is not None, named)
        return cls

    return register
