"""The words of a verdict: status, finding, cause, fix. Plain data; nothing here reads, runs or draws."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from netdoctor.compat import StrEnum

CLUSTER = "cluster"
CONTROL = "control"
JOB = "job"
# Whatever is judged: the node of a check that is asked node by node, the cluster for one that sees all nodes.
# As a place (of evidence, of a command) and as a culprit it is the node that the finding is about; of a pair,
# its source. The engine puts the name in.
HERE = ""


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

    @property
    def meaning(self) -> str:
        """What it says, for people."""
        return _MEANINGS[self]


_LETTERS = {
    Status.PASS: ".",
    Status.WARN: "!",
    Status.FAIL: "X",
    Status.BLOCKED: "b",
    Status.SKIP: "-",
    Status.UNKNOWN: "?",
}
_MEANINGS = {
    Status.PASS: "Measured, as expected.",
    Status.WARN: "Measured; works, but slower or at risk.",
    Status.FAIL: "Measured; the launch will fail, hang or be wrong.",
    Status.BLOCKED: "Not run, because a named cause makes it pointless.",
    Status.SKIP: "Does not apply, or was deselected; the reason stands with it.",
    Status.UNKNOWN: "Could not be measured: never green, and never the node's fault.",
}
_RANKS = {
    Status.SKIP: 0,
    Status.PASS: 1,
    Status.BLOCKED: 2,
    Status.WARN: 3,
    Status.UNKNOWN: 4,
    Status.FAIL: 5,
}


def letters(statuses: Iterable[Status]) -> str:
    """One letter each, in a row."""
    return "".join(map(_LETTERS.__getitem__, statuses))


BY_LETTER = {letter: status for status, letter in _LETTERS.items()}


class ExpectedFrom(StrEnum):
    """Where an expectation comes from. ``PEERS("2.6.0")`` is what the other nodes let expect."""

    PEERS = "peers"
    DERIVED = "derived"
    BASELINE = "baseline"
    CONFIG = "config"
    CONSTANT = "constant"

    def __call__(self, what: str) -> "Expected":
        return Expected(what, self)


class Expected(NamedTuple):
    what: str
    source: ExpectedFrom


PEERS, DERIVED, BASELINE, CONFIG, CONSTANT = ExpectedFrom


class Confidence(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    SUSPECTED = "suspected"


CERTAIN, LIKELY, SUSPECTED = Confidence


class Action(StrEnum):
    """What has to be done about a cause, in one word for schedulers; the gravest last."""

    IGNORE = "ignore"  # nothing heals it, nothing needs to
    RETRY = "retry"  # it was not measured, or may be gone by itself
    RECONFIGURE = "reconfigure"  # a setting, a file, a package, a service
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    DRAIN = "drain"  # hands on the machine, a cable or a switch: no job until then
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Something seen. kind: ``command``, ``file``, ``probe``; where: node id; what: command or path."""

    kind: str
    where: str
    what: str
    output: str = ""


class Kind(StrEnum):
    """What a fix is, and so where its lines go. Whether a console is needed, the report works out."""

    LOOK = "look"  # reads; heals nothing by itself
    DO = "do"
    JOB = "job"  # lines for the job's environment or script
    HOSTS = "hosts"  # an edit of the hosts file, in words
    CONSOLE = "console"  # as `do`, on a node that ssh does not reach
    OWNER = "owner"  # words alone, for whoever owns the network or the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A POSIX shell command. run_on: a node id, ``control``, or ``job`` (goes into the job's environment or
    script). `shell` is what runs there, without ssh or sudo; renderers add those."""

    run_on: str
    shell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A way to fix a cause. netdoctor never runs it.

    kind: what it is; None for what its commands say. Looking and acting are two fixes, never one.
    effect: when it takes effect: ``at once``, ``next login``, ``next launch``, ``after reboot``; empty for a
        command that only looks.
    persistent: survives a reboot. widens: what it opens or trusts beyond before, or None.
    loses: what is gone while or after it runs (sessions, a job, a route), or None.
    undo: commands that revert it.
    risk: low; medium where something may be lost; high where somebody has to decide.
    text: one line, what it does.
    """

    text: str
    kind: Kind | None = None
    commands: tuple[Command, ...] = ()
    undo: tuple[Command, ...] = ()
    root: bool = False
    reboot: bool = False
    effect: str = "at once"
    persistent: bool = True
    widens: str | None = None
    loses: str | None = None
    risk: str = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check has to say about one target (node id, ``a->b``, ``cluster``, ``control``).

    pairs: the directed pairs that it is about, ``a->b``, where these are not the target: those that a slow
        node holds back, one by one. They get its status in the report's list of pairs, and nothing else.
    gap: of a skip, in few words, why nobody looked at what could have been looked at; None where it does not
        apply. Of a pass, what it does not speak of. The verdict names it.
    path: the id of the job's path that it is about, where that is not the main one.
    """

    target: str
    status: Status
    summary: str
    observed: str | None = None
    expected: str | None = None
    expected_from: ExpectedFrom | None = None
    evidence: tuple[Evidence, ...] = ()
    cause: "Cause | None" = None
    measures: "Mapping[str, Measure] | None" = None
    pairs: tuple[str, ...] = ()
    gap: str | None = None
    path: str = ""


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


def fail(target: str, summary: str, **details: Any) -> Finding:
    """Measured; the launch will fail, hang or be wrong. `details` are Finding's other fields.

    For what has no cause of its own; everything else says it through a Cause.
    """
    return Finding(target=target, status=Status.FAIL, summary=summary, **details)


def warn(target: str, summary: str, **details: Any) -> Finding:
    """Measured; works, but slower or at risk."""
    return Finding(target=target, status=Status.WARN, summary=summary, **details)


def ok(target: str, summary: str, **details: Any) -> Finding:
    """Measured, as expected, and worth a line (a value that people ask for)."""
    return Finding(target=target, status=Status.PASS, summary=summary, **details)


def unknown(target: str, summary: str, **details: Any) -> Finding:
    """Could not be measured; never the node's fault."""
    return Finding(target=target, status=Status.UNKNOWN, summary=summary, **details)


def skip(summary: str, target: str = HERE, *, gap: str | None = None) -> Finding:
    """Does not apply, with the reason. With target ``cluster`` it holds for every node.

    gap: as in Finding, for what does apply and was not looked at all the same.
    """
    return Finding(target=target, status=Status.SKIP, summary=summary, gap=gap)


def seen(what: str, output: str = "", kind: str = "probe", *, at: str = HERE) -> Evidence:
    """Something seen on a node. what: the command, file or probe; kind: ``command``, ``file``, ``probe``."""
    return Evidence(kind=kind, where=at, what=what, output=output)


def run(text: str, *shell: str, on: str = HERE, undo: str = "", **more: Any) -> Fix:
    """A way to heal by commands on the node. `text` says what it does; `more` are Fix's other fields.

    An empty command is left out: what cannot be quoted safely is said in words alone. undo: the command that
    takes it back, at the same place.
    """
    there, back = (tuple(Command(run_on=on, shell=one) for one in lines if one) for lines in (shell, [undo]))
    return Fix(text=text, commands=there, undo=back if there else (), **more)


def look(text: str, *shell: str, on: str = HERE, **more: Any) -> Fix:
    """Commands that only look, on the node: nothing takes effect. What heals is a fix of its own."""
    return run(text, *shell, on=on, **{"kind": Kind.LOOK, "effect": "", **more})


def in_job(text: str, *shell: str, **more: Any) -> Fix:
    """Goes into the job's environment or script: from the next launch on, while it stands there."""
    usual = {"kind": Kind.JOB, "effect": "next launch", "persistent": False}
    return run(text, *shell, on=JOB, **{**usual, **more})


def in_hosts(text: str) -> Fix:
    """What is to be written into the hosts file that netdoctor was given; the next scan reads it."""
    return Fix(text=text, kind=Kind.HOSTS, effect="next scan")


def after_reboot(text: str, *shell: str, on: str = HERE, **more: Any) -> Fix:
    """Changes the node's system as root, and holds once it has been restarted."""
    gone = "whatever runs there, at the restart"
    usual = {"root": True, "reboot": True, "effect": "after reboot", "risk": "medium", "loses": gone}
    return run(text, *shell, on=on, **{**usual, **more})


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason for trouble: a constant of its check, and in a Finding what that says about it.

    Findings with the same key become one cause. What depends on the case goes in with `but`:
    ``SLOW.but(confidence=LIKELY).warn(...)``.
    """

    key: str  # ``firewall-inbound``, ``hosts-loopback``: stable over runs, no values in it
    # One sentence with ``{nodes}`` for the folded culprits and ``{s}``, ``{is}``, ``{has}`` for the verb's
    # number: ``{nodes} drop{s} connections from the other nodes``.
    title: str
    confidence: Confidence = Confidence.CERTAIN
    verify: tuple[str, ...] = ()  # check ids or globs whose green proves the fix; the check itself when empty
    see: str | None = None
    settle_by: str | None = None
    explains: bool = True  # False when it accounts for none of what its check's ``explains=`` names
    # Check ids whose failure on the same node accounts for this finding, though they do not explain all that
    # its check finds: NCCL is old where torch is old.
    follows: tuple[str, ...] = ()
    action: Action | None = None  # where it is not what status and fixes make of it
    # Node ids, ``a->b`` pairs, ``cluster`` or ``control``; what the finding is about when empty.
    culprits: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()

    def but(self, **changes: Any) -> "Cause":
        """The same cause, with some fields as this case has them."""
        return replace(self, **changes)

    def hint(self, culprits: tuple[str, ...] = (), fixes: Fix | Sequence[Fix] = ()) -> "Cause":
        """The cause with culprits and fixes, as a Finding has it; one may serve thousands of pairs."""
        return replace(self, culprits=culprits, fixes=(fixes,) if isinstance(fixes, Fix) else tuple(fixes))

    def fail(self, summary: str, **details: Any) -> Finding:
        """Measured; the launch will fail, hang or be wrong. `details` as in `say`."""
        return self.say(Status.FAIL, summary, **details)

    def warn(self, summary: str, **details: Any) -> Finding:
        """Measured; works, but slower or at risk. `details` as in `say`."""
        return self.say(Status.WARN, summary, **details)

    def unknown(self, summary: str, **details: Any) -> Finding:
        """Could not be measured, for this reason. `details` as in `say`."""
        return self.say(Status.UNKNOWN, summary, **details)

    def say(
        self,
        status: Status,
        summary: str,
        *,
        at: str = HERE,
        culprits: tuple[str, ...] = (),
        observed: str | None = None,
        expected: str | Expected | None = None,
        expected_from: ExpectedFrom | None = None,
        seen: Evidence | Sequence[Evidence] = (),
        fixes: Fix | Sequence[Fix] = (),
        measures: Mapping[str, Measure] | None = None,
        pairs: tuple[str, ...] = (),
    ) -> Finding:
        """A finding with this cause.

        at: the target, the node that is judged when left out. culprits: who is to blame, what the finding is
        about when left out (both ends of a pair). expected: ``PEERS("2.6.0")``, or a text that holds
        everywhere. seen, fixes: one or several. pairs: as in Finding.
        """
        text, source = (expected, CONSTANT) if isinstance(expected, str) else expected or (None, None)
        finding = Finding(
            target=at,
            status=status,
            summary=summary,
            observed=observed,
            expected=text,
            expected_from=expected_from or source,
            evidence=(seen,) if isinstance(seen, Evidence) else tuple(seen),
            cause=replace(
                self, culprits=culprits, fixes=(fixes,) if isinstance(fixes, Fix) else tuple(fixes)
            ),
            measures=measures,
            pairs=pairs,
        )
        return placed(finding, at) if at else finding


CauseHint = Cause  # as plug-ins may know it


def at(node: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """What is said of HERE, said of this node: for the part of a check over all nodes that looks at one."""
    return (placed(finding, node) for finding in findings)


def placed(finding: Finding, here: str) -> Finding:
    """The finding with a name wherever it says HERE, and with culprits; `here` is what was judged."""
    hint, evidence = finding.cause, finding.evidence
    if hint is None and not evidence and finding.target:
        return finding
    is_open = [one for one in evidence if not one.where]
    if hint is None and not is_open and finding.target:
        return finding
    target = finding.target or here
    ends = nodes_of(target)
    node = ends[0] if ends else target
    if is_open:
        evidence = tuple([one if one.where else replace(one, where=node) for one in evidence])
    if hint is not None:
        hint = _placed_hint(hint, node, ends or (target,))
    if hint is finding.cause and evidence is finding.evidence and target == finding.target:
        return finding
    return replace(finding, target=target, evidence=evidence, cause=hint)


def _placed_hint(hint: Cause, node: str, ends: tuple[str, ...]) -> Cause:
    culprits = hint.culprits or ends
    if HERE in culprits:
        culprits = tuple(one or node for one in culprits)
    fixes = hint.fixes
    if any(not command.run_on for fix in fixes for command in (*fix.commands, *fix.undo)):
        fixes = tuple(
            replace(fix, commands=_at(node, fix.commands), undo=_at(node, fix.undo)) for fix in fixes
        )
    if culprits is hint.culprits and fixes is hint.fixes:
        return hint
    return replace(hint, culprits=culprits, fixes=fixes)


def _at(node: str, commands: tuple[Command, ...]) -> tuple[Command, ...]:
    return tuple(replace(command, run_on=command.run_on or node) for command in commands)
