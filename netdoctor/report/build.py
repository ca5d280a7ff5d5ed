"""From an engine's outcome to the report object: verdict, cells, causes with their commands, header facts."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdoctor.check import Check
from netdoctor.diagnose import Group, diagnose
from netdoctor.engine import Outcome, ready_nodes
from netdoctor.facts.base import Missing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, Node, Session
from netdoctor.facts.net import PathMtus, PortMatrix
from netdoctor.facts.software import SoftwareFacts
from netdoctor.inventory import fold
from netdoctor.judge import Judgement, count
from netdoctor.model import CLUSTER, CONTROL, Command, ExpectedFrom, Finding, Fix, Status, nodes_of
from netdoctor.report.model import (
    Cause,
    CheckRecord,
    CommandRecord,
    Counts,
    EvidenceRecord,
    Explained,
    FamilyRow,
    FixRecord,
    Matrix,
    MeasureRecord,
    Note,
    PairRecord,
    Report,
    Result,
    Run,
    TargetRecord,
    Tool,
    Verdict,
    Verify,
)
from netdoctor.store import dump

EVIDENCE_BYTES = 64 * 1024
SEEN_LINES = 6
FOLD_AT = 60
# Families in the order in which trouble travels; others follow by name.
FAMILY_ORDER = ("ssh", "host", "time", "net", "rdzv", "sw", "gpu", "rdma", "nccl", "gloo", "bw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """How a person reaches a node by hand, for the commands of fixes.

    ssh: argv of the client with the options of this scan, e.g. ``("ssh", "-F", "lab/ssh_config")``.
    destination[node]: arguments after that, e.g. ``("-p", "44222", "ml@gpu7")``. user[node]: login user.
    """

    ssh: tuple[str, ...] = ("ssh",)
    destination: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the report says about the run beside its results."""

    run: Run
    fail_on: str = "fail"
    strict: bool = False
    remote: Remote = field(default_factory=Remote)
    version: str = ""
    plugins: tuple[dict[str, str], ...] = ()
    notes: tuple[Note, ...] = ()
    verify_prefix: tuple[str, ...] = ("netdoctor", "scan", "--last")
    keep_facts: bool = True
    interrupted_code: int = 130


def build(outcome: Outcome, context: Context) -> Report:
    """The report of a scan."""
    judgement = outcome.judgement
    groups = diagnose(judgement)
    causes = tuple(_cause(i, group, outcome, context) for i, group in enumerate(groups, start=1))
    counts = _counts(judgement)
    healthy, unhealthy, undecided = ready_nodes(judgement)
    verdict = _verdict(judgement, counts, groups, outcome, context)
    owners = _owners(groups)
    return Report(
        tool=Tool(version=context.version, plugins=context.plugins),
        run=context.run,
        verdict=verdict,
        targets=tuple(_target(n, outcome) for n in judgement.nodes),
        checks=tuple(
            CheckRecord(
                id=c.id,
                title=c.title,
                family=c.family,
                scope=c.scope,
                cost=c.cost,
                profile=c.profile.value,
                required=c.required,
            )
            for c in judgement.checks
        ),
        matrix=Matrix(
            checks=tuple(c.id for c in judgement.checks),
            nodes=judgement.nodes,
            cells=tuple(
                "".join(judgement.cells[c.id][n].letter for n in judgement.nodes) for c in judgement.checks
            ),
        ),
        results=tuple(_results(judgement, owners)),
        pairs=tuple(_pairs(outcome)),
        measures=tuple(_measures(judgement)),
        causes=causes,
        families=tuple(_families(judgement, causes, outcome)),
        launch=_launch(outcome),
        healthy_nodes=tuple(healthy),
        unhealthy_nodes=tuple(unhealthy),
        undecided_nodes=tuple(undecided),
        notes=(*context.notes, *_notes(outcome)),
        facts=dump(outcome.store) if context.keep_facts else {},
    )


def _counts(judgement: Judgement) -> Counts:
    by_status = count(judgement.cells)
    return Counts(
        pass_=by_status[Status.PASS],
        warn=by_status[Status.WARN],
        fail=by_status[Status.FAIL],
        blocked=by_status[Status.BLOCKED],
        skip=by_status[Status.SKIP],
        unknown=by_status[Status.UNKNOWN],
    )


def _verdict(
    judgement: Judgement, counts: Counts, groups: Sequence[Group], outcome: Outcome, context: Context
) -> Verdict:
    """The state and exit code of design sections 3 and 4. Bad input and broken runs never get here."""
    statuses = {group.status for group in groups}
    required = {check.id for check in judgement.checks if check.required}
    open_question = outcome.ended_by != "end" or any(
        judgement.cells[c][n] is Status.UNKNOWN for c in required for n in judgement.nodes
    )
    strict_fail = context.strict and any(
        judgement.cells[c][n] in (Status.UNKNOWN, Status.SKIP) for c in required for n in judgement.nodes
    )
    fails = Status.FAIL in statuses or strict_fail
    state = "not_ready" if fails else "undecided" if open_question else "ready"
    if outcome.ended_by == "interrupt":
        code = context.interrupted_code
    elif context.fail_on == "never":
        code = 0
    elif fails:
        code = 1
    elif open_question:
        code = 3
    elif context.fail_on == "warn" and Status.WARN in statuses:
        code = 4
    else:
        code = 0
    return Verdict(
        state=state,
        exit_code=code,
        fail_on=context.fail_on,
        counts=counts,
        headline=_headline(judgement, groups, outcome, state, counts),
    )


def _headline(
    judgement: Judgement, groups: Sequence[Group], outcome: Outcome, state: str, counts: Counts
) -> str:
    by_status = Counter(group.status for group in groups)
    parts = []
    if outcome.ended_by != "end":
        word = "interrupted" if outcome.ended_by == "interrupt" else "stopped by the deadline"
        parts.append(f"{word} before everything was measured")
    if by_status[Status.FAIL]:
        n = by_status[Status.FAIL]
        parts.append(f"{n} problem{'s' if n > 1 else ''} stop{'' if n > 1 else 's'} the launch")
    if by_status[Status.UNKNOWN]:
        n = by_status[Status.UNKNOWN]
        parts.append(f"{n} question{'s' if n > 1 else ''} could not be answered")
    if by_status[Status.WARN]:
        parts.append(f"{by_status[Status.WARN]} will cause trouble")
    if state == "ready" and not parts:
        total = sum(count(judgement.cells).values())
        parts.append(f"{total} results: {counts.pass_} pass, {counts.skip} skip")
    if state == "undecided" and not by_status[Status.FAIL]:
        parts.insert(0, "no problem proven")
    return ", ".join(parts)


def _owners(groups: Sequence[Group]) -> dict[tuple[str, str], int]:
    """Which cause a (check, target) belongs to, directly, as a symptom, or waiting for it."""
    owners: dict[tuple[str, str], int] = {}
    for number, group in enumerate(groups, start=1):
        for check_id, finding in group.members:
            owners.setdefault((check_id, finding.target), number)
    for number, group in enumerate(groups, start=1):
        for item in [*group.explained, *group.held]:
            owners.setdefault(item, number)
    return owners


def _results(judgement: Judgement, owners: Mapping[tuple[str, str], int]) -> list[Result]:
    """Every result that is not a plain pass, one per (check, target)."""
    results: list[Result] = []
    for check in judgement.checks:
        by_target: dict[str, list[Finding]] = {}
        for finding in judgement.findings[check.id]:
            by_target.setdefault(finding.target, []).append(finding)
        for target, findings in by_target.items():
            if target == CLUSTER and findings[0].status is Status.SKIP:
                continue
            worst = max(findings, key=lambda f: f.status.rank)
            more = len(findings) - 1
            results.append(
                Result(
                    check=check.id,
                    target=target,
                    status=worst.status.value,
                    summary=worst.summary + (f" (and {more} more)" if more else ""),
                    cause=owners.get((check.id, target)),
                    observed=worst.observed,
                    expected=worst.expected,
                    expected_from=worst.expected_from.value if worst.expected_from else None,
                    evidence=tuple(_evidence(worst)),
                    duration_ms=round(judgement.durations_ms.get(check.id, 0.0), 3),
                )
            )
        reasons = judgement.reasons.get(check.id, {})
        for node, status in judgement.cells[check.id].items():
            if node in by_target:
                continue
            if status is Status.BLOCKED:
                before = judgement.blocked_by[check.id][node]
                results.append(
                    Result(
                        check=check.id,
                        target=node,
                        status=status.value,
                        summary=f"not run: {before} did not pass on {node}",
                        cause=owners.get((check.id, node)),
                    )
                )
            elif status is Status.SKIP:
                results.append(
                    Result(check=check.id, target=node, status=status.value, summary=reasons.get(node, ""))
                )
    return results


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


def _cause(number: int, group: Group, outcome: Outcome, context: Context) -> Cause:
    nodes = [n for culprit in group.culprits for n in (nodes_of(culprit) or ())]
    node_list = tuple(dict.fromkeys(nodes))
    named = _named(group.culprits)
    return Cause(
        id=number,
        key=group.key,
        fingerprint=group.fingerprint,
        status=group.status.value,
        title=_title(group.title, group.culprits),
        checks=group.checks,
        nodes=named,
        node_list=node_list,
        confidence=group.confidence.value,
        seen=tuple(_seen(group)),
        explains=tuple(
            Explained(check=c, target=t) for c, t in dict.fromkeys([*group.explained, *group.held])
        ),
        held=len(group.held),
        fixes=tuple(_fix(fixes, outcome, context) for fixes in _same_text(group.fixes)),
        verify=_verify(group, node_list, outcome, context),
        see=next((h.see for h in group.hints if h.see), None),
        settle_by=next((h.settle_by for h in group.hints if h.settle_by), None),
    )


def _named(culprits: Sequence[str]) -> str:
    """Folded node names; pairs one by one; ``the cluster`` and ``the control host`` in words."""
    plain = [c for c in culprits if "->" not in c and c not in (CLUSTER, CONTROL)]
    pairs = [c for c in culprits if "->" in c]
    parts = [fold(plain, FOLD_AT)] if plain else []
    parts += [" -> ".join(pair.split("->", 1)) for pair in pairs[:3]]
    if len(pairs) > 3:
        parts.append(f"{len(pairs) - 3} more pairs")
    if CLUSTER in culprits:
        parts.append("the cluster")
    if CONTROL in culprits:
        parts.append("the control host")
    return ", ".join(parts)


class _Words(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def _title(template: str, culprits: Sequence[str]) -> str:
    many = len(culprits) > 1
    words = _Words(
        nodes=_named(culprits),
        s="" if many else "s",
        es="" if many else "es",
        has="have" if many else "has",
        does="do" if many else "does",
        its="their" if many else "its",
        was="were" if many else "was",
    )
    words["is"] = "are" if many else "is"
    try:
        return template.format_map(words)
    except (ValueError, IndexError, KeyError, AttributeError):
        return template  # a plug-in's braces; better raw than lost


def _seen(group: Group) -> list[str]:
    """What was observed, equal lines of several targets folded into one."""
    said: dict[str, list[str]] = {}
    expected: dict[str, None] = {}
    for _, finding in sorted(group.members, key=lambda m: -m[1].status.rank):
        text = finding.summary
        if finding.expected:
            origin = f" ({_ORIGINS[finding.expected_from]})" if finding.expected_from else ""
            expected.setdefault(f"expected {finding.expected}{origin}")
        said.setdefault(text, [])
        if finding.target not in said[text]:
            said[text].append(finding.target)
    lines = []
    for text, targets in said.items():
        where = _named(targets)
        named_already = all(_mentions(text, target) for target in targets)
        lines.append(text if named_already or targets == [CLUSTER] else f"{where}: {text}")
    rest = len(lines) - SEEN_LINES
    if rest > 1:
        lines = [*lines[:SEEN_LINES], f"and {rest} more; -v shows all results"]
    return lines + list(expected)[:2]


_ORIGINS = {
    ExpectedFrom.PEERS: "what most nodes have",
    ExpectedFrom.DERIVED: "derived from what was seen",
    ExpectedFrom.BASELINE: "from the baseline",
    ExpectedFrom.CONFIG: "from what the job is told to use",
    ExpectedFrom.CONSTANT: "a fixed limit",
}


def _mentions(text: str, target: str) -> bool:
    return all(
        re.search(rf"(?<![\w.-]){re.escape(n)}(?![\w-])", text) for n in (nodes_of(target) or (target,))
    )


def _same_text(fixes: Sequence[Fix]) -> list[list[Fix]]:
    """Fixes that differ only in where they run, together."""
    by_text: dict[tuple[Any, ...], list[Fix]] = {}
    for fix in fixes:
        key = (fix.text, fix.root, fix.reboot, fix.effect, fix.persistent, fix.widens, fix.risk)
        by_text.setdefault(key, []).append(fix)
    return list(by_text.values())


def _fix(fixes: Sequence[Fix], outcome: Outcome, context: Context) -> FixRecord:
    first = fixes[0]
    places: dict[str, list[str]] = {}
    for fix in fixes:
        for command in fix.commands:
            where = places.setdefault(command.shell, [])
            if command.run_on not in where:
                where.append(command.run_on)
    order: dict[str, None] = {}
    for where in places.values():
        order.update(dict.fromkeys(where))
    commands = [
        record
        for shell, where in places.items()
        for record in _commands(shell, where, first.root, outcome, context)
    ]
    return FixRecord(
        text=first.text,
        commands=tuple(commands),
        needs_root=first.root,
        needs_reboot=first.reboot,
        effect=first.effect,
        persistent=first.persistent,
        widens=first.widens,
        risk=first.risk,
        where=_where(tuple(order), outcome),
    )


def _where(places: Sequence[str], outcome: Outcome) -> str:
    if not places:
        return ""
    words = {CONTROL: "here", "job": "in the job's environment or script"}
    nodes = [p for p in places if p not in words]
    parts = [words[p] for p in places if p in words]
    if nodes:
        sessions = [outcome.store.get("session", n) for n in nodes]
        away = all(isinstance(s, Session) and s.outcome != "ok" for s in sessions)
        parts.insert(0, f"on {'the console of ' if away else ''}{fold(nodes, FOLD_AT)}")
    return ", ".join(parts)


def _commands(
    shell: str, where: Sequence[str], root: bool, outcome: Outcome, context: Context
) -> list[CommandRecord]:
    """Lines to paste here: as they are for control and job, over ssh for nodes; a loop above three nodes."""
    records = [
        CommandRecord(
            run_on=(place,),
            shell=_sudo(shell, root and not _am_root()) if place == CONTROL else shell,
            inner=shell,
        )
        for place in where
        if place in (CONTROL, "job")
    ]
    nodes = [place for place in where if place not in (CONTROL, "job")]
    by_inner: dict[str, list[str]] = {}
    for node in nodes:
        session = outcome.store.get("session", node)
        if isinstance(session, Session) and session.outcome != "ok":
            # ssh does not get there: this is for the node's own console, so it is printed as it is typed there
            if not any(record.shell == shell for record in records):
                records.append(CommandRecord(run_on=(node,), shell=shell, inner=shell))
            continue
        user = session.user if isinstance(session, Session) else ""
        by_inner.setdefault(_sudo(shell, root and user != "root"), []).append(node)
    for inner, some in by_inner.items():
        plain = all(context.remote.destination.get(n, (n,)) == (n,) for n in some)
        if len(some) > 3 and plain:
            names = " ".join(shlex.quote(n) for n in some)
            ssh = shlex.join(context.remote.ssh)
            line = f'for n in {names}; do {ssh} "$n" {_quote(inner)}; done'
            records.append(CommandRecord(run_on=tuple(some), shell=line, inner=inner))
            continue
        for node in some:
            argv = (*context.remote.ssh, *context.remote.destination.get(node, (node,)))
            line = f"{shlex.join(argv)} {_quote(inner)}"
            records.append(CommandRecord(run_on=(node,), shell=line, inner=inner))
    return records


def _am_root() -> bool:
    import os

    return os.geteuid() == 0


_PLAIN = re.compile(r"^[\w@%+=:,./ \"'{}*?\[\]-]*$")


def _sudo(shell: str, needed: bool) -> str:
    """The command under sudo: each simple part of an `&&` chain, anything else through one root shell."""
    if not needed:
        return shell
    parts = shell.split(" && ")
    if all(_PLAIN.match(part) and not part.startswith(("cd ", "sudo ")) for part in parts):
        return " && ".join(f"sudo {part}" for part in parts)
    return f"sudo sh -c {_quote(shell)}"


def _quote(text: str) -> str:
    """shlex.quote, with double quotes where the text holds single ones and nothing that those would expand."""
    if "'" in text and not set(text) & set('"$`\\!'):
        return f'"{text}"'
    return shlex.quote(text)


def _verify(group: Group, nodes: Sequence[str], outcome: Outcome, context: Context) -> Verify | None:
    checks = next((h.verify for h in group.hints if h.verify), ()) or group.checks[:2]
    argv = [*context.verify_prefix]
    for check_id in checks:
        argv += ["--only", check_id]
    if nodes and len(nodes) < len(outcome.judgement.nodes):
        argv += ["--node", fold(list(nodes))]
    return Verify(argv=tuple(argv), shell=shlex.join(argv))


def _target(node: str, outcome: Outcome) -> TargetRecord:
    session = outcome.store.get("session", node)
    listed = outcome.store.get("node", node)
    reached = isinstance(session, Session) and session.outcome == "ok"
    return TargetRecord(
        id=node,
        address=session.address if isinstance(session, Session) else None,
        port=session.port if isinstance(session, Session) else 22,
        user=session.user if isinstance(session, Session) else "",
        reached=reached,
        order=listed.order if isinstance(listed, Node) else 0,
        slots=listed.slots if isinstance(listed, Node) else None,
        line=listed.line if isinstance(listed, Node) else None,
        facts=_header_facts(node, outcome) if reached else {},
    )


def _header_facts(node: str, outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {}
    host = outcome.store.get("host", node)
    if isinstance(host, HostFacts):
        found["hostname"] = host.hostname
        found["kernel"] = host.kernel
        found["memory_bytes"] = host.memory_total_bytes
        if host.container:
            found["container"] = host.container
    gpu = outcome.store.get("gpu", node)
    if isinstance(gpu, GpuFacts) and gpu.devices:
        found["gpus"] = len(gpu.devices)
        found["gpu_model"] = Counter(d.name for d in gpu.devices).most_common(1)[0][0]
        found["driver"] = gpu.driver_version
    software = outcome.store.get("software", node)
    if isinstance(software, SoftwareFacts):
        found["python"] = software.version
        if software.torch:
            found["torch"] = software.torch.version
        if software.nccl and software.nccl[0].version:
            found["nccl"] = software.nccl[0].version
    return found


def _pairs(outcome: Outcome) -> list[PairRecord]:
    """Directed pairs: ports by their worst outcome, path MTU by its own."""
    records: list[PairRecord] = []
    chosen = {c.id for c in outcome.judgement.checks}
    matrix = outcome.store.whole("ports")
    if isinstance(matrix, PortMatrix) and "net.ports" in chosen:
        order = ("open", "in_use", "refused", "error", "no_route", "rejected", "filtered")
        by_pair: dict[tuple[str, str], list[Any]] = {}
        for probe in matrix.probes:
            by_pair.setdefault((probe.src, probe.dst), []).append(probe)
        for (src, dst), probes in by_pair.items():
            worst = max((p.outcome for p in probes), key=lambda o: order.index(o) if o in order else 3)
            bad = tuple(sorted({p.port for p in probes if p.outcome == worst}))
            good = worst in ("open", "in_use")
            records.append(
                PairRecord(
                    check="net.ports",
                    from_=src,
                    to=dst,
                    status="pass" if good else "fail",
                    class_=worst,
                    ports=bad,
                )
            )
    mtus = outcome.store.whole("path_mtu")
    if isinstance(mtus, PathMtus) and "net.path-mtu" in chosen:
        records += [
            PairRecord(
                check="net.path-mtu",
                from_=m.src,
                to=m.dst,
                status="pass" if m.outcome == "ok" else "unknown" if m.outcome == "no_answer" else "fail",
                class_=m.outcome,
                value=m.largest_ok,
                unit="bytes",
            )
            for m in mtus.probes
        ]
    return records


def _measures(judgement: Judgement) -> list[MeasureRecord]:
    return [
        MeasureRecord(name=name, target=finding.target, value=m.value, unit=m.unit, error=m.error)
        for findings in judgement.findings.values()
        for finding in findings
        for name, m in (finding.measures or {}).items()
    ]


def _families(judgement: Judgement, causes: Sequence[Cause], outcome: Outcome) -> list[FamilyRow]:
    by_family: dict[str, list[Check]] = {}
    for check in judgement.checks:
        by_family.setdefault(check.family, []).append(check)

    def place(family: str) -> tuple[int, str]:
        known = family in FAMILY_ORDER
        return (FAMILY_ORDER.index(family) if known else len(FAMILY_ORDER), family)

    rows = []
    for family in sorted(by_family, key=place):
        checks = by_family[family]
        ids = {c.id for c in checks}
        statuses = [s for c in checks for s in judgement.cells[c.id].values()]
        held = {c.id for c in causes if any(e.check in ids for e in c.explains)}
        own = {c.id for c in causes if ids & set(c.checks)}
        rows.append(
            FamilyRow(
                family=family,
                checks=len(checks),
                status=_family_status(statuses),
                causes=tuple(sorted(own | held)),
                remark=_remark(family, checks, judgement, outcome),
            )
        )
    return rows


def _family_status(statuses: Sequence[Status]) -> str:
    """The worst status by name, ``blocked`` only when nothing was judged, ``skip`` when nothing applied."""
    found = set(statuses)
    for status in (Status.FAIL, Status.UNKNOWN, Status.WARN):
        if status in found:
            return status.value
    if Status.PASS in found:
        return Status.PASS.value
    return Status.BLOCKED.value if Status.BLOCKED in found else Status.SKIP.value


def _remark(family: str, checks: Sequence[Check], judgement: Judgement, outcome: Outcome) -> str:
    """Versions and the like that people look for, when all reached nodes agree; why a family was skipped."""
    facts = [_header_facts(n, outcome) for n in judgement.nodes]
    facts = [f for f in facts if f]

    def common(key: str) -> str | None:
        values = {f.get(key) for f in facts}
        return str(next(iter(values))) if len(values) == 1 and None not in values else None

    wanted = {
        "sw": (("torch", "torch {}"), ("nccl", "NCCL {}"), ("python", "Python {}")),
        "gpu": (("driver", "driver {}"),),
    }.get(family, ())
    parts = [text.format(value) for key, text in wanted if (value := common(key))]
    cells = [s for c in checks for s in judgement.cells[c.id].values()]
    if not parts and cells and all(s is Status.SKIP for s in cells):
        reasons = Counter(r for c in checks for r in judgement.reasons.get(c.id, {}).values() if r)
        parts = [reasons.most_common(1)[0][0]] if reasons else []
    return ", ".join(parts)


def _launch(outcome: Outcome) -> dict[str, Any]:
    job = outcome.store.whole("job")
    if isinstance(job, Missing):
        return {}
    return {
        "master_node": job.master_node,
        "master_addr": job.master_addr,
        "master_port": job.master_port,
        "data_addresses": dict(job.data_addresses),
    }


def _notes(outcome: Outcome) -> list[Note]:
    """True statements about the cluster that are no findings: a lab, and what it pretends."""
    hosts = outcome.store.present("host", outcome.judgement.nodes)
    fakes = sorted({fake for h in hosts.values() for fake in h.lab_fakes})
    notes = []
    if any(h.in_lab for h in hosts.values()):
        text = "these nodes are netdoctor's own lab on one machine"
        if fakes:
            names = {"hca": "HCAs", "gpu": "GPUs"}
            text += f"; its {' and '.join(names.get(f, f) for f in fakes)} are pretended"
        notes.append(Note(level="info", text=text))
    notes += [Note(level="warn", text=t.splitlines()[0]) for t in outcome.judgement.tracebacks]
    return notes


__all__ = ["Command", "Context", "Remote", "build"]
