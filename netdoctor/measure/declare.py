"""The decorator that makes a function an experiment: what needs several nodes at once, or open sessions."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from netdoctor.facts.base import FACT_TYPES, FactInfo, Missing
from netdoctor.facts.software import Job
from netdoctor.measure.common import Caller, Participants
from netdoctor.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What an experiment has to go on."""

    # Asks nodes, until the experiment's time is over.
    transport: Caller
    # Who takes part, and where each is dialled.
    participants: Participants
    # The facts so far, those of earlier experiments among them.
    store: Store
    job: Job
    profile: str = "launch"
    # Of the bandwidth budget, by group that is requested.
    seconds: Mapping[str, float] = field(default_factory=dict)
    # When the engine ends it, from its start on.
    limit_s: float = 600.0


Function = Callable[[Context], Any]
Bound = float | Callable[[int, float], float]
F = TypeVar("F", bound=Function)

# Beside what an experiment says itself: answers are read and sorted here, with others' work on this machine.
READING_S = 5.0
READING_EACH_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One fact that an experiment makes."""

    fact: type
    info: FactInfo

    def fits(self, found: Any) -> bool:
        """Whether this is what was declared, or a Missing; of one fact per node, a mapping of such."""
        if self.info.scope == "node" and isinstance(found, Mapping):
            return all(isinstance(one, self.fact | Missing) for one in found.values())
        return isinstance(found, Missing) or (self.info.scope != "node" and isinstance(found, self.fact))


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A registered experiment."""

    name: str  # also that of its phase
    function: Function
    title: str  # the first line of its docstring; the rest is as `experiment` was told
    products: tuple[Product, ...]
    after: tuple[str, ...]
    needs: tuple[str, ...]
    shares: Mapping[str, float]
    spares: bool
    bound_s: Bound
    cost: str
    again: Callable[[Any, Any], Any] | None
    last: bool
    tells_lost: bool
    origin: str

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(one.info.group for one in self.products)

    def limit_s(self, nodes: int, seconds: float) -> float:
        """The longest it may take with so many nodes and so many seconds of the budget."""
        bound = self.bound_s(nodes, seconds) if callable(self.bound_s) else self.bound_s
        return bound + READING_S + READING_EACH_S * nodes


class ExperimentError(TypeError):
    """An experiment is declared wrongly; the message says how to put it right."""


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    *,
    bound_s: Bound,
    after: Sequence[str] = (),
    needs: Sequence[str] = (),
    shares: Mapping[str, float] | None = None,
    spares: bool = False,
    cost: str = "read-only",
    again: Callable[[Any, Any], Any] | None = None,
    last: bool = False,
    tells_lost: bool = False,
) -> Callable[[F], F]:
    """Register an experiment and return the function unchanged.

    The return type says what it makes: ``-> PortMatrix`` one fact of the run, ``-> dict[str, RouteFacts |
    Missing]`` one of each node, ``-> tuple[PairRates, AllReduce]`` two; all are fact types with the origin
    ``measure``. It runs when a check wants any of them.

    bound_s: the longest that its requests may take together, or a function of (nodes, seconds of the
    budget). after: fact groups that are measured before it where they are wanted. needs: groups that nodes
    are asked for at login, beside those that say where they are dialled (host, net, env). shares: its part
    of the bandwidth budget, by group, as a weight. spares: it measures nothing where nodes lack a program, so
    it runs before the others that share the budget, and they have what it leaves. cost: as a check's. again:
    run it once more at the end, and make one fact of each node's two. last: run it after all others, whatever
    they are. tells_lost: its fact speaks of nodes that were lost meanwhile, so that they take part in it.

    Raises ExperimentError when it makes no fact, or what another makes.
    """

    for option, value in (("after", after), ("needs", needs)):
        if isinstance(value, str):  # a sequence of letters, and so silently nothing
            raise ExperimentError(f"{option} is a list of fact groups: {option}=[{value!r}]")

    def register(function: F) -> F:
        spec = Experiment(
            name=function.__name__.replace("_", "-"),
            function=function,
            title=(inspect.getdoc(function) or "").partition("\n")[0],
            products=tuple(_products(function)),
            after=tuple(after),
            needs=tuple(needs),
            shares=dict(shares or {}),
            spares=spares,
            bound_s=bound_s,
            cost=cost,
            again=again,
            last=last,
            tells_lost=tells_lost,
            origin=function.__module__,
        )
        _hold(spec)
        EXPERIMENTS[spec.name] = spec
        return function

    return register


def _hold(spec: Experiment) -> None:
    """Raise ExperimentError for what the types cannot say."""
    if not spec.title:
        raise ExperimentError(f"{spec.name}: an experiment needs a docstring; --plan prints its first line")
    if set(spec.shares) - set(spec.groups):
        raise ExperimentError(f"{spec.name}: shares are of the groups it makes: {', '.join(spec.groups)}")
    if any(not 0 < share < math.inf for share in spec.shares.values()):
        raise ExperimentError(f"{spec.name}: a share is a weight above 0")
    if not 0 < spec.limit_s(2, 1.0) < math.inf:
        raise ExperimentError(f"{spec.name}: bound_s is a number of seconds")
    if spec.again is not None and any(one.info.scope != "node" for one in spec.products):
        raise ExperimentError(f"{spec.name}: again is for experiments that make a fact of each node")
    for other in EXPERIMENTS.values():
        same = set(spec.groups) & set(other.groups)
        if other.origin != spec.origin and (same or other.name == spec.name):
            what = f"makes {min(same)}" if same else "has that name"
            raise ExperimentError(f"experiment {spec.name} of {spec.origin}: that of {other.origin} {what}")


def _products(function: Function) -> Iterator[Product]:
    hint = typing.get_type_hints(function).get("return")
    for part in typing.get_args(hint) if typing.get_origin(hint) is tuple else (hint,):
        fact, scope = _fact_of(part), "cluster"
        if typing.get_origin(fact) in (dict, Mapping):
            fact, scope = _fact_of(typing.get_args(fact)[1]), "node"
        info = FACT_TYPES.get(fact) if isinstance(fact, type) else None
        if info is None or info.origin != "measure" or info.scope != scope:
            raise ExperimentError(
                f"{function.__name__}: returns {part!r}; write a fact of origin measure, dict[str, Fact] for "
                "one of each node, or a tuple of those"
            )
        assert isinstance(fact, type)
        yield Product(fact=fact, info=info)


def _fact_of(hint: Any) -> Any:
    """``Fact | Missing`` without the Missing."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arms = [arm for arm in typing.get_args(hint) if arm is not Missing]
        return arms[0] if len(arms) == 1 else None
    return hint


def _rank(one: Experiment) -> tuple[bool, bool, bool, str]:
    return bool(one.shares), not one.spares, one.again is None, one.name


def ordered(experiments: Iterable[Experiment]) -> list[Experiment]:
    """In order: what each comes after, before it; else first what runs again, last what fills the network.

    Raises ExperimentError when some wait for each other.
    """
    known = sorted(experiments, key=_rank)
    maker = {group: one for one in known for group in one.groups}
    found: dict[str, Experiment] = {}

    def append(one: Experiment, waiting: tuple[str, ...]) -> None:
        if one.name in waiting:
            raise ExperimentError(f"experiments wait for each other: {' -> '.join([*waiting, one.name])}")
        if one.name in found:
            return
        for group in one.after:
            if group in maker and maker[group] is not one:
                append(maker[group], (*waiting, one.name))
        found[one.name] = one

    for one in known:
        append(one, ())
    return list(found.values())
