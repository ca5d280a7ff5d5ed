"""The tools: what each takes, and what it does. None writes but the report of a scan, and none runs a fix."""

import inspect
import io
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from netdoctor.cli.agents.answers import (
    CAUSES_MAX,
    LIST_MAX,
    Answer,
    CheckAnswer,
    CheckLine,
    ChecksAnswer,
    DiffAnswer,
    LintAnswer,
    LogAnswer,
    LogCause,
    PlanAnswer,
    ReportAnswer,
    Room,
    WordAnswer,
    report_answer,
)
from netdoctor.engine.registry import load_builtin
from netdoctor.errors import InputError
from netdoctor.files import reason
from netdoctor.report import LAST
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.runner import ScanRunner
from netdoctor.scanning import ScanRequest
from netdoctor.text import clean, did_you_mean
from netdoctor.tui.runner import Request

# Reports of this server that can be run again; bytes of the logs of one question.
RUNS_KEPT = 4
LOGS_MAX = 256 << 20
# For a whole scan, where the person who starts the server says no other.
DEADLINE_S = 900.0

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
PathName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=1000, description="Of a file under the server's folder")
]
Text = Annotated[str, msgspec.Meta(max_length=1 << 20)]
Files = Annotated[list[PathName], msgspec.Meta(max_length=64)]


class Takes(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a tool takes."""


class ScanTakes(Takes, kw_only=True):
    hosts: PathName
    profile: Literal["quick", "launch", "full"] = "launch"


class RerunTakes(Takes, kw_only=True):
    run: Annotated[str, msgspec.Meta(max_length=64, description="Of a scan's answer; empty: the newest")] = ""
    checks: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=64)]
    nodes: Annotated[list[Name], msgspec.Meta(max_length=1000, description="None given: all")] = []


class LogTakes(Takes, kw_only=True):
    text: Annotated[Text, msgspec.Meta(description="A log itself, or its end")] = ""
    files: Files = []
    report: PathName | None = None


class WordTakes(Takes, kw_only=True):
    words: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=20)]


class ChecksTakes(Takes, kw_only=True):
    family: Name | None = None


class CheckTakes(Takes, kw_only=True):
    id: Name


class PlanTakes(Takes, kw_only=True):
    hosts: PathName
    launcher: Literal[
        "torchrun", "sbatch", "srun", "deepspeed", "accelerate", "ray", "mpirun", "k8s", "verl", "roll"
    ] = "torchrun"
    only_good: bool = False


class LintTakes(Takes, kw_only=True):
    files: Files = []
    text: Text = ""
    kind: Name | None = None


class ReportTakes(Takes, kw_only=True):
    report: PathName | None = None
    check: Name | None = None
    node: Name | None = None


class DiffTakes(Takes, kw_only=True):
    old: PathName | None = None
    new: PathName | None = None


@dataclass
class Desk:
    """Where the tools work. folder: resolved; outside of it only the files in `hosts` are opened.

    fields: of a ScanRequest, as the person who started the server said them. full: that profile is allowed.
    """

    folder: Path
    hosts: frozenset[Path] = frozenset()
    fields: Mapping[str, Any] = field(default_factory=dict)
    full: bool = False
    runs: "OrderedDict[str, Report]" = field(default_factory=OrderedDict)

    def file(self, name: str, *, hosts: bool = False) -> Path:
        """The file that an agent names, with links followed. Raises InputError for one that is elsewhere."""
        try:
            path = (self.folder / name).resolve()
            found = path.is_file()
        except (OSError, ValueError, RuntimeError) as error:
            text = reason(error) if isinstance(error, OSError) else "no name of a file"
            raise InputError(f"{clean(name, 200)}: {text}") from None
        if not path.is_relative_to(self.folder) and not (hosts and path in self.hosts):
            raise InputError(f"{clean(name, 200)}: is outside of the folder that this server was started in")
        if not found:
            raise InputError(f"{clean(name, 200)}: no such file")
        return path

    def base(self) -> dict[str, Any]:
        """The fields of every scan."""
        return {"deadline": DEADLINE_S, **self.fields, "environ": dict(os.environ), "save": self.last}

    @property
    def last(self) -> Path:
        """Where scans are saved; relative, as every command that reads the last one has it."""
        return LAST if Path.cwd() == self.folder else self.folder / LAST

    def keep(self, report: Report) -> None:
        self.runs[report.run.id] = report
        self.runs.move_to_end(report.run.id)
        while len(self.runs) > RUNS_KEPT:
            self.runs.popitem(last=False)

    def answer(self, report: Report, **more: Any) -> ReportAnswer:
        """A report as an answer."""
        ours = report.run.id in self.runs
        return report_answer(report, load_builtin().keys(), ours=ours, **more)


def scan(desk: Desk, takes: ScanTakes) -> ScanRunner:
    """Examine the nodes of a hosts file over SSH and say whether a multi-node GPU job would start: verdict,
    causes and fixes. quick asks passive questions only; launch (default) also tests ports, clocks, path MTU
    and a short all-reduce on idle GPUs. Nothing is changed on nodes. Fixes are text for a person.
    """

    if takes.profile == "full" and not desk.full:
        raise InputError("profile full loads network and GPUs; whoever starts this server allows it: --full")
    hosts = (str(desk.file(takes.hosts, hosts=True)),)
    runner = ScanRunner(ScanRequest(**{**desk.base(), "hosts": hosts, "profile": takes.profile}), desk.base())
    runner.begin(Request(), None)
    return runner


def rerun(desk: Desk, takes: RerunTakes) -> ScanRunner:
    """Run some checks of a scan again, to see whether a fix helped. The answer is the whole report, brought
    up to date.
    """
    # Of scans that this server made: a report says whom to log in to.
    name = takes.run or next(reversed(desk.runs), "")
    report = desk.runs.get(name)
    if report is None:
        raise InputError("this server made no such scan; call scan first")
    for names, known, what in (
        (takes.checks, report.matrix.checks, "check"),
        (takes.nodes, report.matrix.nodes, "node"),
    ):
        for one in names:
            if one not in known:
                raise InputError(f"{clean(one, 80)}: no {what} of that scan{did_you_mean(one, known)}")
    runner = ScanRunner(None, desk.base())
    runner.adopt(report)
    if runner.cannot:
        raise InputError(runner.cannot)
    runner.begin(Request(checks=tuple(takes.checks), nodes=tuple(takes.nodes) or None), report)
    return runner


def explain_log(desk: Desk, takes: LogTakes) -> LogAnswer:
    """From the logs of a failed job to the cause, who failed first and the checks that decide."""
    from netdoctor.cli.explain import fix_texts
    from netdoctor.explain import rendering
    from netdoctor.explain.engine import explain

    if not takes.text and not takes.files:
        raise InputError("give text, or files")
    names = [str(desk.file(name)) for name in takes.files]
    if sum(os.stat(name).st_size for name in names) > LOGS_MAX:
        raise InputError(f"more than {LOGS_MAX >> 20} MiB of logs; give fewer, or the end of one as text")
    data = takes.text.encode("utf-8", "replace")
    found = explain([*names, *(["-"] if takes.text else [])], stdin=io.BytesIO(data))
    if takes.report is not None:
        from netdoctor.cli.explain_scan import joined

        found = joined(found, load(desk.file(takes.report)))
    known, room = load_builtin(), Room()
    content = rendering.to_json(found, {})
    for cause, reason_ in zip(content["causes"], found.reasons, strict=True):
        cause["fix"] = fix_texts(reason_)
    causes = [
        LogCause(
            label=one.known.label,
            confidence=one.confidence.value,
            checks=[check for check in one.known.checks if check in known],
        )
        for one in found.reasons[:CAUSES_MAX]
    ]
    return LogAnswer(causes=causes, untrusted=room.inert(content) or {}, cut=room.cut)


def explain_word(desk: Desk, takes: WordTakes) -> WordAnswer:
    """What a variable, option, error code, check or term means: NCCL_IB_GID_INDEX, Xid 79, -9."""
    from netdoctor.explain import pages

    glossary = pages.Glossary(load_builtin())
    entries = list(glossary.split(takes.words))
    missing = [text for text, words in entries if not words]
    found = [pages.data(word) for _, words in entries for word in words]
    return WordAnswer(
        pages=msgspec.to_builtins(found[:LIST_MAX]),
        near=list(dict.fromkeys(name for text in missing for name in glossary.near(text))),
        untrusted={"unknown": Room().inert(missing)},
        cut=len(found) > LIST_MAX,
    )


def checks_list(desk: Desk, takes: ChecksTakes) -> ChecksAnswer:
    """The catalogue of checks, or one family of it."""
    known = load_builtin().values()
    families = sorted({check.family for check in known})
    if takes.family is not None and takes.family not in families:
        raise InputError(f"no such family; there are: {', '.join(families)}")
    lines = [
        CheckLine(id=one.id, title=one.title, profile=one.profile.value, cost=one.cost)
        for one in known
        if takes.family in (None, one.family)
    ]
    return ChecksAnswer(checks=lines, untrusted={}, cut=False)


def checks_explain(desk: Desk, takes: CheckTakes) -> CheckAnswer:
    """The manual page of a check: what it looks at, why that matters, what fixes it."""
    known = load_builtin()
    check = known.get(takes.id)
    if check is None:
        raise InputError(f"no check is called {clean(takes.id, 80)!r}{did_you_mean(takes.id, known, 0.4)}")
    return CheckAnswer(
        id=check.id,
        profile=check.profile.value,
        cost=check.cost,
        manual=check.manual.replace("``", "`"),
        source=check.source or "",
        untrusted={},
        cut=False,
    )


def plan(desk: Desk, takes: PlanTakes) -> PlanAnswer:
    """The launch script of a job on these hosts, with what the newest report of them measured."""
    from netdoctor import launch
    from netdoctor.cli.launch_evidence import newest_evidence
    from netdoctor.inventory import load

    found = load([str(desk.file(takes.hosts, hosts=True))], environ=os.environ, format="auto")
    evidence = newest_evidence(found.targets)
    default = launch.LAUNCHERS[takes.launcher]
    options = launch.Options(
        launcher=takes.launcher, script=default.script, script_is_given=False, only_good=takes.only_good
    )
    written = launch.plan(found.targets, evidence, options, hosts=found.source, default_port=default.port)
    room = Room()
    return PlanAnswer(
        launcher=takes.launcher,
        nodes=len(written.nodes),
        measured=evidence is not None,
        untrusted={"text": room.inert(launch.text(written)), "remarks": room.inert(written.remarks)},
        cut=room.cut,
    )


def lint(desk: Desk, takes: LintTakes) -> LintAnswer:
    """What cannot work in launch scripts and configurations, found without running them."""
    from netdoctor.lint import engine, output
    from netdoctor.lint.files import read
    from netdoctor.lint.model import Kind, Severity

    if not takes.text and not takes.files:
        raise InputError("give files, or text with its kind")
    kind = None
    if takes.kind is not None or takes.text:
        if takes.kind not in list(Kind):
            raise InputError(f"say its kind: {', '.join(Kind)}")
        kind = Kind(takes.kind)
    names = [str(desk.file(name)) for name in takes.files]
    files = [read(name, kind, given=names) for name in names]
    files += [read("<text>", kind, takes.text.encode("utf-8", "replace"))] if takes.text else []
    findings = engine.lint(files, None)
    room, counts = Room(), output.counts(findings)
    rules: dict[str, int] = {}
    for one in findings:
        rules[one.rule] = rules.get(one.rule, 0) + 1
    return LintAnswer(
        errors=counts[Severity.ERROR],
        warnings=counts[Severity.WARNING],
        notes=counts[Severity.NOTE],
        rules=rules,
        untrusted=room.inert(json.loads(output.as_json(findings, files, []))) or {},
        cut=room.cut,
    )


def report(desk: Desk, takes: ReportTakes) -> ReportAnswer:
    """A saved report, the last one without a name; with check or node their results but passes."""
    if takes.report is not None:
        found = load(desk.file(takes.report))
    else:
        newest = next(reversed(desk.runs.values()), None)
        found = newest or load(desk.file(str(LAST)))
    return desk.answer(found, check=takes.check, node=takes.node)


def diff(desk: Desk, takes: DiffTakes) -> DiffAnswer:
    """What became worse, was fixed or changed between two reports; without names the last two."""
    from netdoctor.report import changes, history
    from netdoctor.report.diff import diff as compare

    new = desk.file(takes.new or str(LAST))
    now = load(new)
    old = desk.file(takes.old) if takes.old is not None else history.before(now, desk.folder / LAST)
    if old is None:
        raise InputError("no earlier report is there; name old")
    before = load(old)
    if before.run.redacted != now.run.redacted:
        raise InputError("one of the reports is redacted and the other is not: their nodes have other names")
    found, room = compare(before, now, []), Room()
    content = json.loads(changes.as_json(found, before, now, names=(old.name, new.name)))
    return DiffAnswer(
        worse=found.is_worse,
        new=len(found.new),
        healed=len(found.healed),
        open=len(found.open),
        same=len(found.same),
        untrusted=room.inert(content) or {},
        cut=room.cut,
    )


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. work: answers, or begins a scan in a thread, whose end whoever calls waits for."""

    text: str
    takes: type[Takes]
    gives: type[Answer]
    work: Callable[[Desk, Any], Any]
    begins: bool


def _tool(work: Callable[[Desk, Any], Any]) -> Tool:
    hints = get_type_hints(work)
    begins = not issubclass(hints["return"], Answer)
    gives = ReportAnswer if begins else hints["return"]
    return Tool(inspect.getdoc(work) or "", hints["takes"], gives, work, begins)


# A tool is its function: name, docstring, what it takes and answers.
_FUNCTIONS: tuple[Callable[[Desk, Any], Any], ...] = (
    scan, rerun, explain_log, explain_word, checks_list, checks_explain, plan, lint, report, diff
)  # fmt: skip
TOOLS: Mapping[str, Tool] = {work.__name__: _tool(work) for work in _FUNCTIONS}


def schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a struct, an object at its root."""
    written = msgspec.json.schema(kind)
    parts = written["$defs"]
    root = parts.pop(kind.__name__)
    return {**root, "$defs": parts} if parts else dict(root)
