"""The words of a verdict: status, finding, cause, fix. Plain data; nothing here reads, runs or draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

CLUSTER = "cluster"
CONTROL = "control"


class Status(StrEnum):
    """Outcome of one check on one target."""

    PASS = "pass"  # noqa: S105  a status, no password
    WARN = "warn"
    FAIL = "fail"
    BLOCKED = "blocked"
    SKIP = "skip"
    UNKNOWN = "unknown"

    @property
    def letter(self) -> str:
        return _LETTERS[self]

    @property
    def rank(self) -> int:
        """Badness, for picking the one letter of a cell: fail > unknown > warn > blocked > pass > skip."""
        return _RANKS[self]


_LETTERS = {
    Status.PASS: ".",
    Status.WARN: "!",
    Status.FAIL: "X",
    Status.BLOCKED: "b",
    Status.SKIP: "-",
    Status.UNKNOWN: "?",
}
_RANKS = {
    Status.SKIP: 0,
    Status.PASS: 1,
    Status.BLOCKED: 2,
    Status.WARN: 3,
    Status.UNKNOWN: 4,
    Status.FAIL: 5,
}

BY_LETTER = {letter: status for status, letter in _LETTERS.items()}


class ExpectedFrom(StrEnum):
    """Where an expectation comes from."""

    PEERS = "peers"
    DERIVED = "derived"
    BASELINE = "baseline"
    CONFIG = "config"
    CONSTANT = "constant"


class Confidence(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    SUSPECTED = "suspected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Something seen. kind: ``command``, ``file``, ``probe``; where: node id; what: command or path."""

    kind: str
    where: str
    what: str
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A POSIX shell command. run_on: a node id, ``control``, or ``job`` (goes into the job's environment or
    script). `shell` is what runs there, without ssh or sudo; renderers add those."""

    run_on: str
    shell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A way to heal a cause. netdoctor never runs it.

    effect: when it takes effect: ``at once``, ``next login``, ``next launch``, ``after reboot``; empty for a
        command that only looks.
    persistent: survives a reboot. widens: what it opens or trusts beyond before, or None. risk: low, medium,
    high. text: one line, what it does.
    """

    text: str
    commands: tuple[Command, ...] = ()
    root: bool = False
    reboot: bool = False
    effect: str = "at once"
    persistent: bool = True
    widens: str | None = None
    risk: str = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseHint:
    """What a finding says about its cause. Findings with the same key become one cause.

    key: ``firewall-inbound``, ``hosts-loopback``…; stable over runs, no values in it.
    title: one sentence with ``{nodes}`` for the folded culprits and ``{s}``, ``{is}``, ``{has}`` for
        the verb's number: ``{nodes} drop{s} connections from the other nodes``.
    culprits: node ids, ``a->b`` pairs, ``cluster`` or ``control``.
    verify: check ids or globs whose green proves the fix; the check itself when empty.
    explains: False when this finding accounts for none of what its check's ``explains=`` names.
    follows: check ids whose failure on the same node accounts for this finding, though they do not explain
        all that its check finds: NCCL is old where torch is old.
    """

    key: str
    title: str
    culprits: tuple[str, ...]
    confidence: Confidence = Confidence.CERTAIN
    fixes: tuple[Fix, ...] = ()
    verify: tuple[str, ...] = ()
    see: str | None = None
    settle_by: str | None = None
    explains: bool = True
    follows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check has to say about one target (node id, ``a->b``, ``cluster``, ``control``)."""

    target: str
    status: Status
    summary: str
    observed: str | None = None
    expected: str | None = None
    expected_from: ExpectedFrom | None = None
    evidence: tuple[Evidence, ...] = ()
    cause: CauseHint | None = None
    measures: Mapping[str, "Measure"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number worth keeping: name ``time.skew``, unit ``ms``, error in the same unit."""

    value: float
    unit: str
    error: float | None = None


def pair(src: str, dst: str) -> str:
    """The target name of a directed pair."""
    return f"{src}->{dst}"


def nodes_of(target: str) -> tuple[str, ...]:
    """Node ids that a target involves; empty for ``cluster`` and ``control``."""
    if target in (CLUSTER, CONTROL):
        return ()
    if "->" in target:
        src, dst = target.split("->", 1)
        return (src, dst)
    return (target,)


def _finding(
    status: Status,
    target: str,
    summary: str,
    *,
    observed: str | None = None,
    expected: str | None = None,
    expected_from: ExpectedFrom | None = None,
    evidence: Sequence[Evidence] = (),
    cause: CauseHint | None = None,
    measures: Mapping[str, Measure] | None = None,
) -> Finding:
    return Finding(
        target=target,
        status=status,
        summary=summary,
        observed=observed,
        expected=expected,
        expected_from=expected_from,
        evidence=tuple(evidence),
        cause=cause,
        measures=measures,
    )


def fail(target: str, summary: str, **details: object) -> Finding:
    """Measured; the launch will fail, hang or be wrong. `details` are Finding's other fields."""
    return _finding(Status.FAIL, target, summary, **details)  # type: ignore[arg-type]  # checked by _finding


def warn(target: str, summary: str, **details: object) -> Finding:
    """Measured; works, but slower or at risk."""
    return _finding(Status.WARN, target, summary, **details)  # type: ignore[arg-type]  # checked by _finding


def ok(target: str, summary: str, **details: object) -> Finding:
    """Measured, as expected, and worth a line (a value that people ask for)."""
    return _finding(Status.PASS, target, summary, **details)  # type: ignore[arg-type]  # checked by _finding


def unknown(target: str, summary: str, **details: object) -> Finding:
    """Could not be measured; never the node's fault."""
    return _finding(Status.UNKNOWN, target, summary, **details)  # type: ignore[arg-type]  # checked by _finding


def skip(summary: str, target: str = CLUSTER) -> Finding:
    """Does not apply, with the reason. With target ``cluster`` it holds for every node."""
    return _finding(Status.SKIP, target, summary)
