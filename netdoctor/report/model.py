"""The report: one object that every renderer, the gate, the diff and the TUI read.

Field names are the JSON names (design contract, section 7). Within schema major 1 fields are only added.
Strings that came from nodes are stored as received (capped); each renderer escapes for its own medium.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "netdoctor.report/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str = "netdoctor"
    version: str = ""
    plugins: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the run: ``connect``, an experiment, ``judge``."""

    name: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One scan. started, finished: RFC 3339 UTC. complete: False after an interrupt or the deadline; ended_by
    says which: ``end``, ``interrupt``, ``deadline``. replay: what `scan --last` needs (hosts and options, no
    secrets). redacted: names and addresses are aliases, which nobody can log in to. foreign: whose it is, if
    it was read from somebody else's file; its commands are then comments."""

    id: str
    started: str
    finished: str
    duration_ms: int
    complete: bool
    ended_by: str
    profile: str
    selected: tuple[str, ...] = ("*",)
    skipped: tuple[str, ...] = ()
    hosts_source: dict[str, str] = field(default_factory=dict)
    control_host: dict[str, str] = field(default_factory=dict)
    ssh_command: str = "ssh"
    saved_to: str | None = None
    replay: dict[str, Any] = field(default_factory=dict)
    redacted: bool = False
    phases: tuple[Phase, ...] = ()
    foreign: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Results by status. The field for pass is spelled ``pass`` in JSON."""

    pass_: int = 0
    warn: int = 0
    fail: int = 0
    blocked: int = 0
    skip: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What could have been examined and was not, though no check calls it trouble.

    family: of the checks that did not judge; what --require takes. what: it in words, ``the job's Python``;
    reason: why, in few words; nodes: where, all of them where nobody asked for the family at all.
    """

    family: str
    what: str
    reason: str
    nodes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Untested:
    """What the profile leaves out, and the verdict says nothing of: ``ports``, and the ids of its checks."""

    what: str
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How much was looked at where somebody asked for less than everything: checks of the profile's, nodes of
    those listed."""

    checks: int
    of_checks: int
    nodes: int
    of_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """state: ``ready``, ``not_ready``, ``undecided``; ``partial_pass`` where a part of the checks or nodes
    passes and nobody asked for the rest. headline: the words after it in the text report.

    gaps: what READY does not speak of. required: the families in which a gap leaves the verdict open. part:
    what was looked at, None for everything. not_tested: what a larger profile would have tested, the
    weightiest first. absent: ``GPU`` where no node has any.
    """

    state: str
    exit_code: int
    fail_on: str
    counts: Counts
    headline: str = ""
    gaps: tuple[Gap, ...] = ()
    required: tuple[str, ...] = ()
    part: Part | None = None
    not_tested: tuple[Untested, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """One node as listed. login_ms: from TCP connect to authenticated. facts: the few that headers show
    (gpus, gpu_model, driver, torch, nccl, python)."""

    id: str
    address: str | None
    port: int
    user: str
    reached: bool
    order: int = 0
    slots: int | None = None
    line: int | None = None
    login_ms: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    id: str
    title: str
    family: str
    scope: str
    cost: str
    profile: str = "quick"
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """cells[i][j] is the status letter of checks[i] on nodes[j]."""

    checks: tuple[str, ...]
    nodes: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    kind: str
    where: str
    what: str
    output: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One (check, target) with exactly one status. cause: id of the cause it belongs to or waits for."""

    check: str
    target: str
    status: str
    summary: str
    cause: int | None = None
    observed: str | None = None
    expected: str | None = None
    expected_from: str | None = None
    evidence: tuple[EvidenceRecord, ...] = ()
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRecord:
    """A directed pair on one of the job's paths. path: its name; the rest as in PairRecord."""

    path: str
    status: str
    class_: str
    ports: tuple[int, ...] = ()
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """One directed pair of a pair check. class_ (JSON ``class``): open, refused, filtered, ok, black_hole…

    path: the name of the path of the job that it speaks of, where there are several: the worst of those in
    `paths`. paths: all on which the pair was tried, the main one first, where there is more than one.
    """

    check: str
    from_: str
    to: str
    status: str
    class_: str
    ports: tuple[int, ...] = ()
    value: float | None = None
    unit: str | None = None
    path: str = ""
    paths: tuple[PathRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRecord:
    name: str
    target: str
    value: float
    unit: str
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """shell: one line ready to paste; run_on: node ids, ``control`` or ``job``; inner: what runs there.

    via: how it gets there. ``ssh`` and ``control``: pasted on the control machine; ``job``: into the job's
    environment or script; ``console``: on the console of the node, and `shell` does nothing on any other.
    """

    run_on: tuple[str, ...]
    shell: str
    inner: str = ""
    via: str = ""

    def __post_init__(self) -> None:
        if not self.via:  # of a report from before there was `via`
            place = self.run_on[0] if len(self.run_on) == 1 else ""
            console = "console" if self.inner == self.shell else "ssh"
            object.__setattr__(self, "via", place if place in ("control", "job") else console)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixRecord:
    """A way to heal; the first of a cause is to be preferred. Looking and acting are never one fix.

    kind: ``look`` (reads, heals nothing by itself), ``do``, ``job`` (lines for the job's environment or
    script), ``hosts`` (an edit of the hosts file, in words), ``console`` (as ``do``, on the node's console),
    ``owner`` (words, for whoever owns the network or the machine). undo: takes it back. loses: what is gone
    while or after it runs. needs: its tools that not every machine has, each with the package that brings it,
    ``lspci (pciutils)``. script: a file that does the same, where the commands are long; "" for none.
    """

    text: str
    commands: tuple[CommandRecord, ...] = ()
    needs_root: bool = False
    needs_reboot: bool = False
    effect: str = "at once"
    persistent: bool = True
    widens: str | None = None
    risk: str = "low"
    where: str = ""
    kind: str = ""
    undo: tuple[CommandRecord, ...] = ()
    loses: str | None = None
    needs: tuple[str, ...] = ()
    script: str = ""

    def __post_init__(self) -> None:
        if not self.kind:  # of a report from before there was `kind`
            ways = {command.via for command in self.commands}
            alike = ways.pop() if len(ways) == 1 else "do" if ways else "owner"
            kind = alike if alike in ("job", "console", "owner") else "do"
            object.__setattr__(self, "kind", "look" if self.commands and not self.effect else kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    argv: tuple[str, ...]
    shell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    check: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Results that share a reason. nodes: folded; node_list: all. status: fail, warn or unknown.

    seen: lines for people, worst first (from summaries and evidence). held: number of blocked results.
    why: one line, why it matters (the check's manual); shown with -v. settle_by: a command or a sentence.
    baseline: ``new`` or ``known`` to the baseline that the scan was held against, if any. action: ``ignore``,
    ``retry``, ``reconfigure``, ``reset-gpu``, ``reboot``, ``drain`` or ``replace``, for schedulers.
    """

    id: int
    key: str
    fingerprint: str
    status: str
    title: str
    checks: tuple[str, ...]
    nodes: str
    node_list: tuple[str, ...]
    confidence: str
    seen: tuple[str, ...] = ()
    explains: tuple[Explained, ...] = ()
    held: int = 0
    fixes: tuple[FixRecord, ...] = ()
    verify: Verify | None = None
    see: str | None = None
    why: str | None = None
    settle_by: str | None = None
    baseline: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """A cause that somebody has accepted in `netdoctor.toml`. until: RFC 3339 date, None for no end.

    place: file and line that accept it. held: number of results that were not run behind it.
    """

    key: str
    fingerprint: str
    status: str
    title: str
    checks: tuple[str, ...]
    nodes: str
    node_list: tuple[str, ...]
    reason: str
    until: str | None
    place: str
    seen: tuple[str, ...] = ()
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Healed:
    """A cause of the baseline that is put right."""

    key: str
    status: str
    title: str
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """The baseline that a scan was held against: its name or file, its runs, and when the newest ended."""

    name: str
    runs: int
    finished: str
    healed: tuple[Healed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A true statement about the run that is no finding. level: ``info`` or ``warn``."""

    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCause:
    """Why a tried job failed. confidence: ``certain``, ``likely``, ``possible``; source: what says so."""

    title: str
    confidence: str
    source: str = ""
    nodes: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRung:
    """The job on the first `nodes` nodes. steps_per_s: of its slowest rank, None where it made none."""

    nodes: int
    ranks: int
    state: str
    steps_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLadder:
    """The same job on 1, 2, 4 and so on of the nodes. from_nodes: the rung from which it is slow or broken,
    None where all is well; headline: that in a sentence, or ""; nodes_at_fault: where known."""

    rungs: tuple[TrialRung, ...] = ()
    from_nodes: int | None = None
    nodes_at_fault: tuple[str, ...] = ()
    headline: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """The job itself, tried on the nodes of the report by `netdoctor try`; what a verdict says of nodes does
    not change by it.

    state: ``started``, ``failed``, ``undecided``, ``interrupted``. finished: RFC 3339 UTC. ended_by:
    ``time``, ``steps``, ``job``, ``interrupt``. seconds: how long it ran. nodes: on how many; a ladder may
    have ended on fewer, and then the rest is about its last rung. world_size: by the ranks that
    joined, None before any has; joined: how many. first_step_s: since the start. steps, steps_per_s: of the
    slowest rank. over: what ranks talk over. logs: the folder of their output, beside which is all of it.
    """

    state: str
    headline: str
    finished: str
    seconds: float
    command: tuple[str, ...]
    ended_by: str = ""
    nodes: int = 0
    world_size: int | None = None
    joined: int = 0
    first_step_s: float | None = None
    steps: int = 0
    steps_per_s: float | None = None
    over: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    nodes_at_fault: tuple[str, ...] = ()
    causes: tuple[TrialCause, ...] = ()
    ladder: TrialLadder | None = None
    logs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRow:
    """One line of the text report's table: family, number of checks, worst status word, causes, remark."""

    family: str
    checks: int
    status: str
    causes: tuple[int, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    schema: str = SCHEMA
    schema_minor: int = 0
    tool: Tool = field(default_factory=Tool)
    run: Run
    verdict: Verdict
    targets: tuple[TargetRecord, ...] = ()
    checks: tuple[CheckRecord, ...] = ()
    matrix: Matrix = field(default_factory=lambda: Matrix(checks=(), nodes=(), cells=()))
    results: tuple[Result, ...] = ()
    pairs: Sequence[PairRecord] = ()
    measures: tuple[MeasureRecord, ...] = ()
    causes: tuple[Cause, ...] = ()
    families: tuple[FamilyRow, ...] = ()
    launch: dict[str, Any] = field(default_factory=dict)
    healthy_nodes: tuple[str, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()
    undecided_nodes: tuple[str, ...] = ()
    baseline: Against | None = None
    suppressed: tuple[Suppressed, ...] = ()
    notes: tuple[Note, ...] = ()
    trial: TrialRecord | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprints(self) -> frozenset[str]:
        """Of all its causes, those that are accepted among them."""
        return frozenset(c.fingerprint for c in self.causes) | {s.fingerprint for s in self.suppressed}
