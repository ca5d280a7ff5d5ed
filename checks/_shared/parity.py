"""The word for a property that should be equal on all nodes."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from netdoctor.checks._shared.majority import Majority, majority_among
from netdoctor.checks._shared.text import listing, title_text
from netdoctor.facts.expected import ABSENT, Expectation, Expectations
from netdoctor.model import (
    CONFIG,
    CONTROL,
    DERIVED,
    LIKELY,
    PEERS,
    Cause,
    Evidence,
    Expected,
    Finding,
    Fix,
    Status,
    ok,
    run,
    unknown,
)
from netdoctor.model import seen as evidence

# A name that fewer than one node in so many has is taken for its own.
FEW = 8
# No command: nothing says which side is right.
_DECIDE = run("choose one of them, and use it on all nodes", effect="next launch")

T = TypeVar("T")
Fixes = Fix | Sequence[Fix]


@dataclass(frozen=True, slots=True)
class Property(Generic[T]):
    """One property that should be equal on all nodes: a row of a check's table."""

    key: str  # under which it may be expected, ``host.kernel``; empty where it may not
    noun: str
    read: Callable[[T], object]  # of a node; None where it could not be read
    source: str = ""  # the file, command or probe that shows it; empty for no evidence
    kind: str = "file"  # of the evidence
    fix: Fixes | Callable[[str], Fixes] = ()  # takes the value that is right
    why: str = ""
    status: Status = Status.WARN
    peers: bool = True  # whether nodes are compared where nothing is expected

    def values(self, nodes: Mapping[str, T]) -> dict[str, str | None]:
        found = {node: self.read(one) for node, one in nodes.items()}
        return {node: None if value is None else str(value) for node, value in found.items()}

    def differing(
        self, values: Mapping[str, str | None], cause: Cause, expect: Expectations | None, **more: Any
    ) -> Iterator[Finding]:
        """The findings of `differing` for these values. more: its other parameters."""

        def fixes(_: str, right: str) -> Fixes:
            return self.fix(right) if callable(self.fix) else self.fix

        def evidence_of(node: str) -> Sequence[Evidence]:
            return [evidence(self.source, values[node] or "", self.kind)] if self.source else ()

        return differing(
            values, more.pop("noun", self.noun), cause, key=self.key, expect=expect, status=self.status,
            why=self.why, peers=self.peers, fixes=fixes, evidence_of=evidence_of, **more,
        )  # fmt: skip


def expected_of_lacking(value: str, having: Collection[str], nodes: Collection[str]) -> Expected:
    """What is expected of nodes that have none, in the words that fit how many of `nodes` have one."""
    if 2 * len(having) > len(nodes):
        return PEERS(value)
    return DERIVED(f"{value}, as on {listing(having, 3)}, or on no node")


def differing(
    values: Mapping[str, str | None],
    noun: str,
    cause: Cause,
    *,
    key: str = "",
    expect: Expectations | None = None,
    item: str = "",
    status: Status = Status.FAIL,
    why: str = "",
    report_equal: bool = False,
    peers: bool = True,
    at_least: bool = False,
    counted: Mapping[str, str] | None = None,
    evidence_of: Callable[[str], Evidence | Sequence[Evidence]] = lambda _: (),
    fixes: Callable[[str, str], Fixes] = lambda _, __: (),
) -> Iterator[Finding]:
    """A finding for each node whose value is not the majority's; without one, for every node. What the user
    expects of `key` takes the majority's place: then one node alone is judged, and what all nodes have.

    values: node id to value; a node without one is unknown, so leave out those that need none. noun:
    ``torch``. cause: its title is for no majority, ``torch differs between {nodes}``;
    where most nodes agree, a title that names their value takes its place. key, item: as in
    `Expectations.for_values`. why: what follows, put behind the summary. report_equal: whether nodes that are
    all alike get a line with the value. peers: whether nodes are compared where nothing is expected.
    at_least: whether more than what is expected will do. counted: where no value has a majority, the nodes
    whose majority counts, each with what they have in common, ``torch 2.6.0``. fixes(node, right): how `node`
    gets that value.
    """
    known = {node: value for node, value in values.items() if value}
    expectations = expect.for_values(key, values, item) if expect and key else {}
    for node in (node for node in values if node not in known and (peers or node in expectations)):
        yield unknown(node, f"{noun} cannot be compared: nothing could be read here")
    for node, expectation in expectations.items():
        if node in known and not expectation.is_met_by(known[node], at_least):
            fix = fixes(node, expectation.exact) if expectation.exact else ()
            yield unlike_expected(
                expectation, node, known[node], noun, cause, status, seen=evidence_of(node), fixes=fix
            )
        elif node in known and report_equal:
            yield ok(node, f"{noun} {known[node]}, as {expectation.place} has it", observed=known[node])
    if not peers:
        return
    compared = {node: value for node, value in known.items() if node not in expectations}
    spread = majority_among(compared, counted or {})
    if spread.equal:
        for node, value in known.items() if report_equal else ():
            if node not in expectations:
                yield ok(node, f"{noun} {value}", observed=value)
        return
    typical, most = spread.value, "most nodes"
    if typical is not None and 2 * len(spread.groups[typical]) <= len(compared):
        most += f" with {next(iter((counted or {}).values()))}"
    cause = cause.but(title=_title(cause, spread, noun, most))
    cause = cause.but(confidence=LIKELY) if spread.is_split else cause
    sides = "; ".join(f"{value} on {listing(nodes)}" for value, nodes in list(spread.groups.items())[:4])
    tail = f": {why}" if why else ""
    # Of two sides one hint serves all: each names every node.
    tie = cause.hint(tuple(spread.minority), _DECIDE) if len(spread.groups) == 2 and not typical else None
    for node, value in spread.minority.items():
        finding = cause.say(
            status,
            f"{noun} {f'{value} here, {typical} on {most}' if typical else sides}{tail}",
            at=node,
            observed=value,
            expected=PEERS(typical or "the same on all nodes"),
            seen=evidence_of(node),
            fixes=fixes(node, typical) if typical else _DECIDE,
        )
        yield replace(finding, cause=tie) if tie else finding


def _title(cause: Cause, spread: Majority[str], noun: str, most: str) -> str:
    """As of `differing`. most: who has the value of the majority, in words."""
    others = sorted(set(spread.minority.values()))
    if spread.value is None:
        return f"{cause.title}, {spread.words}"
    if len(others) == 1:
        return "{nodes} {has} " + title_text(f"{noun} {others[0]} where {most} have {spread.value}")
    return "{nodes} {has} " + title_text(f"another {noun} than {most} ({spread.value})")


def unlike_expected_by_name(
    have: Mapping[str, Mapping[str, str | None]],
    noun: str,
    cause: Cause,
    key: str,
    expect: Expectations | None,
    **more: Any,
) -> Iterator[Finding]:
    """Compare what nodes have under names, such as the MTU of each interface, with what is expected of these.

    Nodes are not compared with each other. A node that lacks a name has not what is expected.

    have: values by node and name, None where one could not be read. noun: ``MTU``. key:
    ``net.mtu.*``. more: as of `differing`.
    """
    if expect is None:
        return
    counts = Counter(name for values_of in have.values() for name in values_of)
    # What few have is not what nodes have, and 10,000 nodes may have 10,000 names.
    common = {name for name, count in counts.items() if FEW * count >= len(have)}
    for name in sorted(common | expect.names(key)):
        values = {node: values_of.get(name, ABSENT) for node, values_of in have.items()}
        what = f"{noun} of {name}"
        yield from differing(values, what, cause, key=key, expect=expect, item=name, peers=False, **more)


def unlike_expected(
    expectation: Expectation,
    node: str,
    value: str,
    noun: str,
    cause: Cause,
    status: Status = Status.FAIL,
    **details: Any,
) -> Finding:
    """The finding of a node that has another value than the user expects. details: as of `Cause.say`."""
    local = details.pop("seen", ())
    origin = evidence(expectation.place, f"{expectation.name} = {expectation.text}", "file", at=CONTROL)
    title = "{nodes} {has} another " + title_text(
        f"{noun} than {expectation.place} expects ({expectation.text})"
    )
    return cause.but(title=title).say(
        status,
        f"{noun} {value} here, {expectation.place} expects {expectation.text}",
        at=node,
        observed=value,
        expected=CONFIG(expectation.text),
        seen=(*((local,) if isinstance(local, Evidence) else local), origin),
        **details,
    )
