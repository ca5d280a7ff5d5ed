"""From an engine's outcome to the report object: verdict, cells, results, and who took part."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netdoctor.check import Check
from netdoctor.engine.assemble import accepted
from netdoctor.engine.assemble.accepted import Accepted
from netdoctor.engine.assemble.causes import cause_record
from netdoctor.engine.assemble.context import Context, Remote
from netdoctor.engine.assemble.families import families, header_facts
from netdoctor.engine.assemble.pairs import pairs
from netdoctor.engine.assemble.remarks import remarks
from netdoctor.engine.assemble.verdict import verdict_of
from netdoctor.engine.diagnose import Group, diagnose
from netdoctor.engine.judge import PROBLEMS, Judgement, ready_nodes
from netdoctor.engine.run import Outcome
from netdoctor.facts.base import Missing
from netdoctor.facts.clock import skews
from netdoctor.facts.host import Login, Node, Session
from netdoctor.inventory.nodeset import fold
from netdoctor.memo import keeping
from netdoctor.model import CLUSTER, Finding, Status, letters
from netdoctor.report.kept import Live
from netdoctor.report.model import (
    Cause,
    CheckRecord,
    EvidenceRecord,
    Gap,
    Matrix,
    MeasureRecord,
    Note,
    Report,
    Result,
    Suppressed,
    TargetRecord,
    Tool,
)
from netdoctor.report.moved import aimed

__all__ = ["Context", "Remote", "build"]

EVIDENCE_BYTES = 64 * 1024
SKEW = "time.skew"


@keeping()
def build(outcome: Outcome, context: Context) -> Report:
    """The report of a scan."""
    everything = outcome.judgement
    groups, accepted_parts, notes = accepted.accept(
        diagnose(everything), context.suppressions, context.today, everything
    )
    judgement = accepted.cleared(everything, groups, accepted_parts)
    outcome = replace(outcome, judgement=judgement)
    causes = tuple(
        aimed(cause_record(i, group, outcome, context), context.verify_prefix)
        for i, group in enumerate(groups, start=1)
    )
    suppressed = tuple(_suppressed(one, outcome, context) for one in accepted_parts)
    blocked = {cell for one in accepted_parts for cell in one.group.blocked}
    verdict = verdict_of(groups, outcome, context, suppressed, blocked)
    healthy, unhealthy, undecided = ready_nodes(judgement, verdict.required)
    owners = _owners(groups)
    heads = {node: header_facts(node, outcome) for node in judgement.nodes}
    return Report(
        tool=Tool(version=context.version, plugins=context.plugins),
        run=context.run,
        verdict=verdict,
        targets=tuple(_target(node, outcome, head) for node, head in heads.items()),
        checks=check_records(judgement.checks),
        matrix=Matrix(
            checks=tuple(c.id for c in judgement.checks),
            nodes=judgement.nodes,
            cells=tuple(
                letters(map(judgement.cells[c.id].__getitem__, judgement.nodes)) for c in judgement.checks
            ),
        ),
        results=tuple(_results(judgement, owners, causes, accepted.reasons(groups, accepted_parts))),
        pairs=tuple(pairs(outcome)),
        measures=(*_measures(judgement), *_clocks(outcome)),
        causes=causes,
        families=tuple(families(judgement, causes, heads)),
        launch=_launch(outcome),
        healthy_nodes=tuple(healthy),
        unhealthy_nodes=tuple(unhealthy),
        undecided_nodes=tuple(undecided),
        suppressed=suppressed,
        notes=(*context.notes, *notes, *_notes(outcome, verdict.gaps)),
        facts=Live(outcome.store) if context.keep_facts else {},
    )


def _suppressed(one: Accepted, outcome: Outcome, context: Context) -> Suppressed:
    cause = cause_record(0, one.group, outcome, context)
    return Suppressed(
        key=cause.key,
        fingerprint=cause.fingerprint,
        status=cause.status,
        title=cause.title,
        checks=cause.checks,
        nodes=cause.nodes,
        node_list=cause.node_list,
        reason=one.by.reason,
        until=one.by.until.isoformat() if one.by.until else None,
        place=one.by.position,
        seen=cause.seen,
        held=cause.held,
    )


def check_records(checks: Sequence[Check]) -> tuple[CheckRecord, ...]:
    return tuple(
        CheckRecord(
            id=c.id,
            title=c.title,
            family=c.family,
            scope=c.scope,
            cost=c.cost,
            profile=c.profile.value,
            required=c.required,
        )
        for c in checks
    )


def _owners(groups: Sequence[Group]) -> dict[tuple[str, str], int]:
    """Which cause a (check, target) belongs to, directly, as a symptom, or waiting for it."""
    owners: dict[tuple[str, str], int] = {}
    for number, group in enumerate(groups, start=1):
        for item in [*group.cells, *group.blocked]:
            owners[item] = number  # each cell has one
    for number, group in enumerate(groups, start=1):
        for check_id, finding in group.members:
            owners.setdefault((check_id, finding.target), number)
    for number, group in enumerate(groups, start=1):
        for item in group.explained:
            owners.setdefault(item, number)
    return owners


def _results(
    judgement: Judgement,
    owners: Mapping[tuple[str, str], int],
    causes: Sequence[Cause],
    reasons: Mapping[tuple[str, str], str],
) -> list[Result]:
    """Every result that is not a plain pass, one per (check, target), each trouble in a cell among them."""
    results: list[Result] = []
    for check in judgement.checks:
        by_target: dict[str, list[Finding]] = {}
        for finding in judgement.findings[check.id]:
            by_target.setdefault(finding.target, []).append(finding)
        cells, took_ms = judgement.cells[check.id], round(judgement.durations_ms.get(check.id, 0.0), 3)
        for target, findings in by_target.items():
            worst = findings[0] if len(findings) == 1 else max(findings, key=lambda f: f.status.rank)
            if target == CLUSTER and worst.status is Status.SKIP:
                continue  # said of each node below
            cell = check.id, target
            why = reasons.get(cell)
            results.append(
                Result(
                    check=check.id,
                    target=target,
                    # a pair or the cluster may say worse of a node than its own findings do
                    status=_WORDS[cells.get(target, Status.SKIP if why else worst.status)],
                    summary=(f"{why}; " if why else "") + worst.summary + _more(findings, worst),
                    cause=owners.get(cell),
                    observed=worst.observed,
                    expected=worst.expected,
                    expected_from=worst.expected_from.value if worst.expected_from else None,
                    evidence=tuple(_evidence(worst)) if worst.evidence else (),
                    duration_ms=took_ms,
                )
            )
        results += _of_cells(check.id, judgement, by_target, owners, causes)
    return results


_WORDS = {status: status.value for status in Status}


def _more(findings: Sequence[Finding], worst: Finding) -> str:
    """How much else there is to say of a target."""
    if len(findings) == 1:
        return ""
    more = {f.summary for f in findings if f.status in PROBLEMS} - {worst.summary}
    return f" (and {len(more)} more)" if more else ""


def _of_cells(
    check: str,
    judgement: Judgement,
    targets: Container[str],
    owners: Mapping[tuple[str, str], int],
    causes: Sequence[Cause],
) -> Iterator[Result]:
    """The results of nodes of which no finding is."""
    reasons = judgement.reasons.get(check, {})
    passes, skips, blocked = Status.PASS, Status.SKIP, Status.BLOCKED
    for node, status in judgement.cells[check].items():
        if status is passes or node in targets:
            continue
        word = _WORDS[status]
        if status is skips:
            yield Result(check=check, target=node, status=word, summary=reasons.get(node, ""))
            continue
        number = owners.get((check, node))
        if status is blocked:
            summary = f"not run: {judgement.blocked_by[check][node]} did not pass on {node}"
        else:  # coloured by what was said of a pair or of the cluster
            summary = causes[number - 1].title if number is not None else "see the pairs"
        yield Result(check=check, target=node, status=word, summary=summary, cause=number)


def _evidence(finding: Finding) -> list[EvidenceRecord]:
    return [
        EvidenceRecord(
            kind=e.kind,
            where=e.where,
            what=e.what,
            output=e.output[:EVIDENCE_BYTES],
            truncated=len(e.output) > EVIDENCE_BYTES,
        )
        for e in finding.evidence
    ]


def _target(node: str, outcome: Outcome, head: dict[str, Any]) -> TargetRecord:
    session = outcome.store.get("session", node)
    listed = outcome.store.get("node", node)
    reached = isinstance(session, Session) and session.outcome == Login.OK
    return TargetRecord(
        id=node,
        address=session.address if isinstance(session, Session) else None,
        port=session.port if isinstance(session, Session) else 22,
        user=session.user if isinstance(session, Session) else "",
        reached=reached,
        order=listed.order if isinstance(listed, Node) else 0,
        slots=listed.slots if isinstance(listed, Node) else None,
        line=listed.line if isinstance(listed, Node) else None,
        login_ms=round(session.login_ms, 1) if reached and session.login_ms is not None else None,
        facts=head if reached else {},
    )


def _measures(judgement: Judgement) -> list[MeasureRecord]:
    return [
        MeasureRecord(name=name, target=finding.target, value=m.value, unit=m.unit, error=m.error)
        for findings in judgement.findings.values()
        for finding in findings
        for name, m in (finding.measures or {}).items()
    ]


def _clocks(outcome: Outcome) -> list[MeasureRecord]:
    """How far off the clock of every node is that was measured; a check tells of those that are wrong."""
    clocks = outcome.store.present("clock", outcome.judgement.nodes)
    if len(clocks) < 2 or SKEW not in outcome.judgement.cells:
        return []
    return [
        MeasureRecord(name=SKEW, target=node, value=off * 1000, unit="ms", error=error * 1000)
        for node, (off, error) in skews(clocks)[0].items()
    ]


def _launch(outcome: Outcome) -> dict[str, Any]:
    job = outcome.store.cluster_fact("job")
    if isinstance(job, Missing):
        return {}
    return {
        "master_node": job.master_node,
        "master_addr": job.master_addr,
        "master_port": job.master_port,
        "data_addresses": dict(job.data_addresses),
    }


def _notes(outcome: Outcome, gaps: Sequence[Gap]) -> list[Note]:
    """True statements about the cluster that are no findings: a lab, and what it pretends; where we stand."""
    hosts = outcome.store.present("host", outcome.judgement.nodes)
    fakes = sorted({fake for h in hosts.values() for fake in h.pretended})
    notes = []
    if any(h.shares_machine for h in hosts.values()):
        text = "these nodes are netdoctor's own lab on one machine"
        if fakes:
            names = {"hca": "HCAs", "gpu": "GPUs", "clock": "wall-clock shift"}
            text += f"; simulated: {', '.join(names.get(f, f) for f in fakes)}"
        notes.append(Note(level="info", text=text))
    inside = [node for node, h in hosts.items() if h.container and not h.shares_machine]
    if inside and any(gap.family == "sw" for gap in gaps):
        text = f"scanned from inside a container: {fold(inside, 60)}; what is outside of it is not visible"
        notes.append(Note(level="info", text=text))
    notes += [Note(level="info", text=text) for text in remarks(outcome.store, outcome.judgement.nodes)]
    notes += [Note(level="warn", text=t.splitlines()[0]) for t in outcome.judgement.tracebacks]
    return notes
