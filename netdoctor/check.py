"""The decorators that make a function a check, or what several checks derive from the same facts."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, TypeVar

from netdoctor.compat import StrEnum, Unpack
from netdoctor.facts.base import FACT_TYPES, FactInfo
from netdoctor.model import Finding

CheckFunction = Callable[..., Iterable[Finding]]


# By each of these something reaches the nodes; whatever is asked of a node stands on the one that runs.
LOGINS = ("ssh.login", "slurm.node", "ray.nodes", "facts.file", "meet.task")


class Profile(StrEnum):
    """When a check runs: each profile includes the ones before it.

    ON_REQUEST is none that a scan can have: its checks run where --also or --only names them, in full.
    """

    QUICK = "quick"
    LAUNCH = "launch"
    FULL = "full"
    ON_REQUEST = "asked"

    def includes(self, other: "Profile") -> bool:
        order = list(Profile)
        return order.index(other) <= order.index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a check: its fact type, and whether it wants all nodes (a Mapping by node id)."""

    name: str
    fact: type
    info: FactInfo
    all_nodes: bool
    optional: bool


class Options(TypedDict, total=False):
    """What `check` may be told of a check; `Check` has the defaults."""

    after: Sequence[str]  # checks that must not have failed on the same node, else the result is ``blocked``
    explains: Sequence[str]  # globs of check ids whose failures on the same nodes this one accounts for
    profile: str
    required: bool  # an ``unknown`` of it makes the verdict UNDECIDED
    cost: str  # ``read-only``, ``opens-port``, ``writes-file``, ``loads-gpu``
    root: bool
    source: str | None
    via: str | None  # what has to reach the nodes for this check to apply, one of VIAS; None for any
    # Keys of what users may expect of nodes (``{"gpu.driver": str}``: str, int, float or bool), which the
    # check compares by `Expectations.for_values` or `differing`; a key belongs to one check. ``net.mtu.*`` is
    # a key of things with names, compared by `unlike_expected_by_name`.
    expects: Mapping[str, type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A registered check."""

    id: str
    function: CheckFunction
    title: str
    manual: str
    parameters: tuple[Parameter, ...]
    needs: tuple[Parameter, ...]  # facts to collect or measure, once each: of a derived one those behind it
    scope: str  # ``node`` (called once per node), ``cluster`` (called once)
    origin: str
    after: tuple[str, ...] = ("ssh.login",)
    explains: tuple[str, ...] = ()
    profile: Profile = Profile.QUICK
    required: bool = True
    cost: str = "read-only"
    root: bool = False
    source: str | None = None
    via: str | None = None
    expects: Mapping[str, type] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.id.split(".", 1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """How a derived fact is worked out; parameters as of a check that sees all nodes."""

    function: Callable[..., object]
    parameters: tuple[Parameter, ...]


class CheckError(TypeError):
    """A check is declared wrongly; the message says how to put it right."""


REGISTERED: dict[str, Check] = {}
DERIVED_FACTS: dict[type, Derived] = {}
D = TypeVar("D", bound=Callable[..., object])
_FAMILY = re.compile(r"^[a-z0-9]+$")
_KEY = re.compile(r"^[a-z0-9]+(\.[a-z0-9]+(-[a-z0-9]+)*)+(\.\*)?$")


def check(**options: Unpack[Options]) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check and return the function unchanged.

    The id comes from the function's name: ``rdma_rate`` is ``rdma.rate``, ``net_path_mtu`` is
    ``net.path-mtu``. Which facts it needs comes from its parameter types: ``limits: LimitFacts`` is this
    node's, ``nodes: Mapping[str, HcaFacts]`` is every node's, ``ports: PortMatrix`` is the run's. A parameter
    typed ``X | None`` gets None where the fact is missing instead of ending the check as unknown; what has to
    be measured between nodes is missing in a quick scan for a check of that profile.

    Raises CheckError when a parameter is no fact, the name has no family, or the docstring is missing.
    """

    def register(function: CheckFunction) -> CheckFunction:
        spec = describe(function, **options)
        known = REGISTERED.get(spec.id)
        if known is not None and known.origin != spec.origin:
            raise CheckError(f"check {spec.id} of {spec.origin} is already defined by {known.origin}")
        REGISTERED[spec.id] = spec
        return function

    return register


def describe(function: CheckFunction, **options: Unpack[Options]) -> Check:
    """The Check that `function` and its options amount to."""
    name = function.__name__
    family, _, rest = name.partition("_")
    if not rest or not _FAMILY.match(family):
        raise CheckError(f"{name}: a check's name is family_property, such as rdma_rate")
    for option in ("after", "explains"):
        if isinstance(value := options.get(option), str):  # a sequence of letters, and so silently nothing
            raise CheckError(f"{name}: {option} is a list of check ids: {option}=[{value!r}]")
    manual = inspect.getdoc(function)
    if not manual:
        raise CheckError(f"{name}: a check needs a docstring; it is its manual page")
    parameters = tuple(_parameters(function))
    for key in options.get("expects", {}):
        if not _KEY.match(key):
            raise CheckError(f"{name}: {key!r} is not a key such as gpu.driver")
    # What the user typed is the same for every node.
    facts = [p for p in parameters if p.info.group not in ("job", "wanted")]
    check_id = f"{family}.{rest.replace('_', '-')}"
    spec = Check(
        id=check_id,
        function=function,
        title=manual.splitlines()[0].strip(),
        manual=manual,
        parameters=parameters,
        needs=_needs(parameters),
        scope="cluster" if any(p.all_nodes or p.info.scope == "cluster" for p in facts) else "node",
        origin=function.__module__,
        **options,  # type: ignore[arg-type]  # lists and texts are converted below
    )
    return replace(
        spec,
        profile=Profile(spec.profile),
        after=tuple(a for a in spec.after if a != check_id),
        explains=tuple(spec.explains),
        expects=dict(spec.expects),
    )


def derived(function: D) -> D:
    """Register what several checks derive from the same facts, and return the function unchanged.

    Its parameter types say what it needs, as those of a check over all nodes; its return type, a frozen
    dataclass, is what checks name in theirs. It is worked out once a judgement, when the first check asks,
    and is no part of a saved report. A check that names it waits for the same facts.

    Raises CheckError when a parameter is no fact, or is one node's.
    """
    name = function.__name__
    fact = typing.get_type_hints(function).get("return")
    if not isinstance(fact, type) or fact is type(None):
        raise CheckError(f"{name}: the return type of a derived fact is the dataclass that it makes")
    parameters = tuple(_parameters(function))
    for parameter in parameters:
        if not parameter.all_nodes and parameter.info.scope == "node":
            kind = parameter.fact.__name__
            raise CheckError(f"{name}: {parameter.name} is one node's; write Mapping[str, {kind}]")
    FACT_TYPES[fact] = FactInfo(group=name, scope="cluster", origin="derived")
    DERIVED_FACTS[fact] = Derived(function=function, parameters=parameters)
    return function


def _needs(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    found: dict[tuple[type, bool], Parameter] = {}
    for one in _inputs(parameters):
        key = (one.fact, one.all_nodes)
        if key not in found or not one.optional:
            found[key] = one
    return tuple(found.values())


def _inputs(parameters: Iterable[Parameter], optional: bool = False) -> Iterator[Parameter]:
    for parameter in parameters:
        if parameter.info.origin == "derived":
            yield from _inputs(DERIVED_FACTS[parameter.fact].parameters, optional or parameter.optional)
        else:
            yield replace(parameter, optional=True) if optional else parameter


def _parameters(function: Callable[..., object]) -> Iterator[Parameter]:
    hints = typing.get_type_hints(function)
    for name in inspect.signature(function).parameters:
        hint = hints.get(name)
        optional = False
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
            optional = len(arms) < len(typing.get_args(hint))
            hint = arms[0] if len(arms) == 1 else None
        all_nodes = typing.get_origin(hint) is Mapping
        if all_nodes:
            hint = typing.get_args(hint)[1]
        if not isinstance(hint, type) or hint not in FACT_TYPES:
            raise CheckError(
                f"{function.__name__}: parameter {name} has type {hint!r}, which is not a fact; "
                f"use a fact dataclass, Mapping[str, Fact] for all nodes, or Fact | None"
            )
        yield Parameter(name=name, fact=hint, info=FACT_TYPES[hint], all_nodes=all_nodes, optional=optional)
