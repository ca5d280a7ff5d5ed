"""Saved facts judged again, and parts of a report measured again."""

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netdoctor import __version__, store
from netdoctor.check import Check, Profile
from netdoctor.engine import registry
from netdoctor.engine.run import Outcome
from netdoctor.engine.run import rejudge as judge_again
from netdoctor.errors import InputError
from netdoctor.report import LAST, baseline
from netdoctor.report.build import Context, Remote, build
from netdoctor.report.model import Note, Report
from netdoctor.scanning.plan import Plan, prepare
from netdoctor.scanning.reporting import SETTINGS, remote, rfc3339, told, verify_prefix
from netdoctor.scanning.request import ScanRequest

RERUN = "run again "
NOTES_AT_MOST = 20


def rejudge(report: Report, request: ScanRequest, source: Path) -> Report:
    """The report of a saved report's facts, judged now. Contacts nobody. source: its file."""
    known = registry.load(folders=request.checks_dir)
    checks = registry.select(known.checks, Profile(request.profile), request.only, request.skip)
    if not report.facts:
        raise InputError(f"{source}: holds no facts; use {LAST}, or save with --json-detail all")
    facts = store.load(report.facts)
    if request.baseline is not None:
        facts.cluster["baseline"] = baseline.read(request.baseline, list(facts.node.get("node", {})))
    outcome = judge_again(facts, checks, ended_by=report.run.ended_by)
    again = ("--baseline", str(request.baseline)) if request.baseline is not None else ()
    context = Context(
        run=replace(report.run, profile=request.profile, selected=request.only or ("*",)),
        fail_on=request.fail_on,
        strict=request.strict,
        remote=Remote(ssh=tuple(shlex.split(report.run.ssh_command))),
        root_here=os.geteuid() == 0,
        version=__version__,
        verify_prefix=("netdoctor", "scan", "--facts", str(source), *again),
        interrupted_code=3,  # that scan was interrupted, this command was not: undecided
    )
    return build(outcome, context)


def _kept(report: Report, prefix: str) -> list[Note]:
    """Notes that still hold, or tell what was done."""
    return [note for note in report.notes if note.text.startswith(prefix)][-NOTES_AT_MOST:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """Part of a report, to be measured again.

    checks: ids of those that run, on `nodes`. every: the checks of the report, which are judged again.
    """

    report: Report
    plan: Plan
    checks: tuple[str, ...]
    nodes: tuple[str, ...]
    every: tuple[Check, ...]

    def assemble(self, outcome: Outcome) -> Report:
        """The report with what was measured again in it."""
        report, request = self.report, self.plan.request
        merged = store.merge(store.load(report.facts), outcome.store)
        again = judge_again(merged, self.every, report.matrix.nodes, report.run.ended_by)
        now = rfc3339(time.time())
        shown = f"{len(self.nodes)} node{'s' if len(self.nodes) != 1 else ''}"
        what = ", ".join(self.checks) if len(self.checks) <= 6 else f"{len(self.checks)} checks"
        notes = list(dict.fromkeys([*_kept(report, SETTINGS), *told(self.plan.transport.notes)]))
        notes += _kept(report, RERUN)
        notes.append(Note(level="info", text=f"{RERUN}{now}: {what} on {shown}"))
        context = Context(
            run=replace(report.run, finished=now),
            fail_on=request.fail_on,
            strict=request.strict,
            remote=remote(request, self.plan.inventory.targets),
            root_here=os.geteuid() == 0,
            version=report.tool.version,
            plugins=report.tool.plugins,
            notes=tuple(notes),
            verify_prefix=verify_prefix(request),
        )
        return build(again, context)


def rerun(
    report: Report, request: ScanRequest, checks: Sequence[str] | None, nodes: Sequence[str] | None
) -> Rerun:
    """A plan for some checks of a report on some of its nodes, None for all of them. Contacts nobody.

    request: the report's own, see `replay`. What the checks wait for, and what waits for them, comes along.
    Raises InputError.
    """
    known = registry.load(folders=request.checks_dir)
    every = registry.ordered(known.checks[c] for c in report.matrix.checks if c in known.checks)
    wanted = widened(report, every, checks, nodes)
    chosen = tuple(c.id for c in every if wanted is None or c.id in wanted)
    judged = tuple(n for n in report.matrix.nodes if nodes is None or n in set(nodes))
    # With `only` a check of any profile runs when it is named.
    part = replace(request, only=chosen, skip=(), node=None)
    plan = prepare(part, known=known, judged=judged)
    return Rerun(report=report, plan=plan, checks=chosen, nodes=judged, every=tuple(every))


def widened(
    report: Report, every: Sequence[Check], checks: Sequence[str] | None, nodes: Sequence[str] | None
) -> frozenset[str] | None:
    """The checks to run again: with what they wait for and is not green, and what waits for them.

    None for all of them.
    """
    if checks is None:
        return None
    place = {node: i for i, node in enumerate(report.matrix.nodes)}
    here = [place[n] for n in nodes or report.matrix.nodes if n in place]
    rows = dict(zip(report.matrix.checks, report.matrix.cells, strict=True))
    by_id = {check.id: check for check in every}

    def shows(check: str, letters: str) -> bool:
        row = rows.get(check, "")
        return any(row[n] in letters for n in here) if row else False

    chosen = {c for c in checks if c in by_id}
    todo = list(chosen)
    while todo:
        check = by_id[todo.pop()]
        before = {a for a in check.after if a in by_id and shows(a, "X?b")}
        behind = {c.id for c in every if check.id in c.after and shows(c.id, "b")}
        if check.id == "ssh.login":  # everything waits for a login, also where that is not said
            behind |= {c.id for c in every if shows(c.id, "b")}
        new = (before | behind) - chosen
        chosen |= new
        todo += new
    return frozenset(chosen)
