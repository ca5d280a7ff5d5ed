"""From an engine's outcome to the report object: verdict, cells, causes with their commands, header facts."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdoctor.check import Check
from netdoctor.engine.diagnose import Group, diagnose
from netdoctor.engine.judge import LOGIN, UNMEASURED, Judgement, count
from netdoctor.engine.run import Outcome, ready_nodes
from netdoctor.facts.base import Missing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, Login, Node, Session
from netdoctor.facts.net import PathMtus, PortMatrix
from netdoctor.facts.software import SoftwareFacts
from netdoctor.inventory import fold
from netdoctor.model import CLUSTER, CONTROL, Command, Evidence, ExpectedFrom, Finding, Fix, Status, nodes_of
from netdoctor.report import bandwidth, words
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
# What the text report shows of them; what was expected takes no place of what was seen.
SHOWN_LINES = 5
# Check ids or globs in a command that proves a fix.
MOST_VERIFY = 4
LOOP_ABOVE = 3
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
        results=tuple(_results(judgement, owners, causes)),
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
    # Causes and cells agree, but for a cause on the control host alone, which has no cell. Both are asked: a
    # defect in either must not turn a verdict green.
    statuses = {group.status for group in groups}
    required = [check.id for check in judgement.checks if check.required]
    open_question = outcome.ended_by != "end" or any(
        judgement.cells[c][n] is Status.UNKNOWN for c in required for n in judgement.nodes
    )
    strict = _strict(judgement) if context.strict else 0
    fails = Status.FAIL in statuses or counts.fail > 0 or strict > 0
    state = "not_ready" if fails else "undecided" if open_question else "ready"
    if outcome.ended_by == "interrupt":
        code = context.interrupted_code
    elif context.fail_on == "never":
        code = 0
    elif fails:
        code = 1
    elif open_question:
        code = 3
    elif context.fail_on == "warn" and (Status.WARN in statuses or counts.warn > 0):
        code = 4
    else:
        code = 0
    return Verdict(
        state=state,
        exit_code=code,
        fail_on=context.fail_on,
        counts=counts,
        headline=_headline(judgement, groups, outcome, state, counts, strict),
    )


def _strict(judgement: Judgement) -> int:
    """Results of required checks that `--strict` does not let pass."""
    return sum(
        status in (Status.UNKNOWN, Status.SKIP)
        for check in judgement.checks
        if check.required
        for status in judgement.cells[check.id].values()
    )


def _headline(
    judgement: Judgement,
    groups: Sequence[Group],
    outcome: Outcome,
    state: str,
    counts: Counts,
    strict: int,
) -> str:
    by_status = Counter(group.status for group in groups)
    parts = []
    if outcome.ended_by != "end":
        word = "interrupted" if outcome.ended_by == "interrupt" else "stopped by the deadline"
        parts.append(f"{word} before everything was measured")
    logins = set(judgement.cells.get(LOGIN, {}).values())
    if logins == {Status.FAIL}:
        n = len(judgement.nodes)
        parts.append(f"none of {n} nodes can be logged in to" if n > 1 else "the node cannot be logged in to")
    elif by_status[Status.FAIL]:
        n = by_status[Status.FAIL]
        parts.append(f"{n} problem{'s' if n > 1 else ''} stop{'' if n > 1 else 's'} the launch")
    if by_status[Status.UNKNOWN]:
        n = by_status[Status.UNKNOWN]
        parts.append(f"{n} question{'s' if n > 1 else ''} could not be answered")
    if by_status[Status.WARN]:
        parts.append(f"{by_status[Status.WARN]} will cause trouble")
    if strict:
        parts.append(f"--strict: {strict} required result{'s were' if strict > 1 else ' was'} not measured")
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
        for item in [*group.cells, *group.held]:
            owners[item] = number  # each cell has one
    for number, group in enumerate(groups, start=1):
        for check_id, finding in group.members:
            owners.setdefault((check_id, finding.target), number)
    for number, group in enumerate(groups, start=1):
        for item in group.explained:
            owners.setdefault(item, number)
    return owners


def _results(
    judgement: Judgement, owners: Mapping[tuple[str, str], int], causes: Sequence[Cause]
) -> list[Result]:
    """Every result that is not a plain pass, one per (check, target), each trouble in a cell among them."""
    results: list[Result] = []
    trouble = (Status.FAIL, Status.WARN, Status.UNKNOWN)
    for check in judgement.checks:
        by_target: dict[str, list[Finding]] = {}
        for finding in judgement.findings[check.id]:
            by_target.setdefault(finding.target, []).append(finding)
        for target, findings in by_target.items():
            worst = max(findings, key=lambda f: f.status.rank)
            if target == CLUSTER and worst.status is Status.SKIP:
                continue  # said of each node below
            more = len({f.summary for f in findings if f.status in trouble} - {worst.summary})
            results.append(
                Result(
                    check=check.id,
                    target=target,
                    # a pair or the cluster may say worse of a node than its own findings do
                    status=judgement.cells[check.id].get(target, worst.status).value,
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
            elif status in trouble:  # coloured by what was said of a pair or of the cluster
                number = owners.get((check.id, node))
                summary = causes[number - 1].title if number is not None else "see the pairs"
                results.append(
                    Result(check=check.id, target=node, status=status.value, summary=summary, cause=number)
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
        see=next((h.see for h in group.distinct if h.see), None),
        why=_why(group, outcome),
        settle_by=next((h.settle_by for h in group.distinct if h.settle_by), None),
    )


def _why(group: Group, outcome: Outcome) -> str | None:
    """What the manual of the cause's first check says under "Matters because", as one line."""
    manual = next((c.manual for c in outcome.judgement.checks if c.id == group.checks[0]), "")
    found = re.search(r"^Matters because:\n((?:[ \t]+\S.*\n?)+)", manual, re.MULTILINE)
    return " ".join(found.group(1).split()) if found and not group.key.startswith(UNMEASURED) else None


def _named(culprits: Sequence[str]) -> str:
    """Folded node names; pairs with equal ends folded; ``the cluster`` and ``the control host`` in words."""
    plain = [c for c in culprits if "->" not in c and c not in (CLUSTER, CONTROL)]
    parts = [fold(plain, FOLD_AT)] if plain else []
    parts += words.pairs_text([c for c in culprits if "->" in c])
    if CLUSTER in culprits:
        parts.append("the cluster")
    if CONTROL in culprits:
        parts.append("the control host")
    return ", ".join(parts)


_WORD = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def _title(template: str, culprits: Sequence[str]) -> str:
    """The template with names and verb endings in place.

    Not str.format: a title may quote what a node said, and ``{s:>999999999}`` is a gigabyte.
    """
    many = len(culprits) > 1
    known = {
        "nodes": _named(culprits),
        "s": "" if many else "s",
        "es": "" if many else "es",
        "is": "are" if many else "is",
        "has": "have" if many else "has",
        "does": "do" if many else "does",
        "its": "their" if many else "its",
        "was": "were" if many else "was",
    }
    doubled = {"{{": "{", "}}": "}"}
    return _WORD.sub(lambda m: doubled.get(m[0]) or known.get(m[1], m[0]), template)


def _seen(group: Group) -> list[str]:
    """What was observed, worst first: two summaries, evidence that adds to them, the other summaries.

    Equal lines of several targets are one line. Pairs are left out where their nodes speak for them.
    """
    said: dict[str, dict[str, None]] = {}
    expected: dict[str, None] = {}
    evidence: dict[str, None] = {}
    findings = [f for _, f in sorted(group.members, key=lambda m: -m[1].status.rank)]
    spoken_for = {f.target for f in findings if f.evidence}.intersection(group.culprits)
    for finding in findings:
        if finding.expected:
            source = _ORIGINS.get(finding.expected_from) if finding.expected_from else None
            origin = f" ({source})" if source else ""
            expected.setdefault(f"expected {finding.expected}{origin}")
        if not ("->" in finding.target and spoken_for.intersection(nodes_of(finding.target))):
            said.setdefault(finding.summary, {}).setdefault(finding.target)
        for one in finding.evidence[:4]:
            if len(evidence) < SEEN_LINES:
                evidence.setdefault(_evidence_line(one))
    lines = []
    for text, found in list(said.items())[: SEEN_LINES + 2]:
        targets = list(found)
        named_already = len(targets) <= 4 and all(_mentions(text, target) for target in targets)
        plain = named_already or targets in ([CLUSTER], [CONTROL])
        lines.append(text if plain else f"{_named(targets)}: {text}")
    adds = [e for e in evidence if not any(e in line or e.partition(": ")[2] in line for line in lines)]
    lines = [*lines[:2], *adds[:3], *lines[2:]]
    rest = len(said) + len(adds[:3]) - SEEN_LINES
    if rest > 1:
        lines = [*lines[:SEEN_LINES], f"and {rest} more; -v shows all results"]
    return [*lines, *list(expected)[: max(0, min(2, SHOWN_LINES - len(lines)))]]


def _evidence_line(evidence: Evidence) -> str:
    first = evidence.output.strip().split("\n", 1)[0][:200]
    where = evidence.where in ("", CLUSTER, CONTROL) or evidence.where in evidence.what
    start = evidence.what if where or evidence.kind == "probe" else f"{evidence.where}, {evidence.what}"
    return f"{start}: {first}" if first else start


_ORIGINS = {
    ExpectedFrom.PEERS: "what most nodes have",
    ExpectedFrom.DERIVED: "derived from what was seen",
    ExpectedFrom.BASELINE: "from the baseline",
    ExpectedFrom.CONFIG: "from what the job is told to use",
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
    known = {CONTROL: "here", "job": "in the job's environment or script"}
    nodes = [p for p in places if p not in known]
    parts = [known[p] for p in places if p in known]
    if nodes:
        sessions = [outcome.store.get("session", n) for n in nodes]
        away = all(isinstance(s, Session) and s.outcome != Login.OK for s in sessions)
        parts.insert(0, f"on {'the console of ' if away else ''}{fold(nodes, FOLD_AT)}")
    return ", ".join(parts)


def _commands(
    shell: str, where: Sequence[str], root: bool, outcome: Outcome, context: Context
) -> list[CommandRecord]:
    """Lines to paste here: as they are for control and job, over ssh for nodes; a loop above three nodes."""
    records: list[CommandRecord] = []
    consoles: list[str] = []
    remote: dict[str, list[str]] = {}
    for place in where:
        session = outcome.store.get("session", place)
        user = session.user if isinstance(session, Session) else ""
        here = place == CONTROL or (isinstance(session, Session) and session.transport == "local")
        if here or place == "job":
            line = _sudo(_login(shell, context), here and root and not _am_root())
            records.append(CommandRecord(run_on=(place,), shell=line, inner=shell))
        elif isinstance(session, Session) and session.outcome != Login.OK:
            consoles.append(place)
        else:
            remote.setdefault(_sudo(shell, root and user != "root"), []).append(place)
    if consoles:
        # ssh does not get there: this is for the node's own console, so it is printed as it is typed there
        records.append(CommandRecord(run_on=tuple(consoles), shell=shell, inner=shell))
    ssh = shlex.join(context.remote.ssh)
    for inner, nodes in remote.items():
        alike: dict[str, dict[str, str]] = {}
        for node in nodes:
            *options, host = context.remote.destination.get(node, (node,))
            if host.startswith("-"):  # from a saved report only: an inventory has no such name
                options.append("--")
            alike.setdefault(" ".join([ssh, *map(shlex.quote, options)]), {})[node] = host
        for client, hosts in alike.items():
            if len(hosts) > LOOP_ABOVE:
                names = " ".join(shlex.quote(host) for host in hosts.values())
                line = f'for n in {names}; do {client} "$n" {_quote(inner)}; done'
                records.append(CommandRecord(run_on=tuple(hosts), shell=line, inner=inner))
                continue
            for node, host in hosts.items():
                line = f"{client} {shlex.quote(host)} {_quote(inner)}"
                records.append(CommandRecord(run_on=(node,), shell=line, inner=inner))
    return records


def _login(shell: str, context: Context) -> str:
    """A command that begins with ``ssh NODE`` logs in as this scan did."""
    client, _, rest = shell.partition(" ")
    node, _, rest = rest.partition(" ")
    if client != "ssh" or node not in context.remote.destination:
        return shell
    return f"{shlex.join((*context.remote.ssh, *context.remote.destination[node]))} {rest}"


def _am_root() -> bool:
    import os

    return os.geteuid() == 0


_PLAIN = re.compile(r"[\w@%+=:,./ \"'{}*?\[\]-]*")
# What sudo cannot run, because only a shell knows it.
_SHELL_WORDS = (
    *(".", ":", "alias", "break", "cd", "command", "continue", "eval", "exec", "exit", "export", "hash"),
    *("read", "return", "set", "shift", "source", "sudo", "times", "trap", "type", "ulimit", "umask"),
    *("unalias", "unset", "wait", "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done"),
    *("case", "esac", "function", "{", "}", "!", "[["),
)


def _sudo(shell: str, needed: bool) -> str:
    """The command under sudo: each simple part of an `&&` chain, anything else through one root shell."""
    if not needed:
        return shell
    parts = shell.split(" && ")
    if all(_is_simple(part) for part in parts):
        return " && ".join(f"sudo {part}" for part in parts)
    return f"sudo sh -c {_quote(shell)}"


def _is_simple(part: str) -> bool:
    """One program with its arguments: nothing that the shell itself does, no quotes torn by the split."""
    try:
        said = shlex.split(part)
    except ValueError:
        return False
    return bool(said) and bool(_PLAIN.fullmatch(part)) and said[0] not in _SHELL_WORDS


def _quote(text: str) -> str:
    """shlex.quote, with double quotes around single ones where those would expand nothing."""
    if "'" in text and not set(text) & set('"$`\\!'):
        return f'"{text}"'
    return shlex.quote(text)


def _verify(group: Group, nodes: Sequence[str], outcome: Outcome, context: Context) -> Verify | None:
    """The scan that shows the cause healed; all checks again where the scan could not look."""
    named = dict.fromkeys(check_id for hint in group.distinct for check_id in hint.verify)
    checks = tuple(named)[:MOST_VERIFY] or group.checks[:2]
    argv = [*context.verify_prefix]
    if not group.key.startswith(UNMEASURED):
        for check_id in checks:
            argv += ["--only", check_id]
    every = outcome.store.node.get("node", {})
    if nodes and len(nodes) < len(every):
        argv += ["--node", fold(list(nodes))]
    return Verify(argv=tuple(argv), shell=shlex.join(argv))


def _target(node: str, outcome: Outcome) -> TargetRecord:
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
        facts=_header_facts(node, outcome) if reached else {},
    )


def _header_facts(node: str, outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {}
    host = outcome.store.get("host", node)
    if isinstance(host, HostFacts):
        if host.hostname != node:
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
        # What could not be tried is worse than good and better than anything measured bad.
        order = ("open", "in_use", "error", "refused", "no_route", "rejected", "filtered")
        by_pair: dict[tuple[str, str], list[Any]] = {}
        for probe in matrix.probes:
            by_pair.setdefault((probe.src, probe.dst), []).append(probe)
        for (src, dst), probes in by_pair.items():
            worst = max((p.outcome for p in probes), key=lambda o: order.index(o) if o in order else 2)
            bad = tuple(sorted({p.port for p in probes if p.outcome == worst}))
            tried = worst in order and worst != "error"
            records.append(
                PairRecord(
                    check="net.ports",
                    from_=src,
                    to=dst,
                    status="unknown" if not tried else "pass" if worst in order[:2] else "fail",
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
                status={"ok": "pass", "small": "fail", "black_hole": "fail"}.get(m.outcome, "unknown"),
                class_=m.outcome,
                value=m.largest_ok,
                unit="bytes",
            )
            for m in mtus.probes
        ]
    records += bandwidth.pairs(outcome)
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
            names = {"hca": "HCAs", "gpu": "GPUs", "clock": "wall-clock shift"}
            text += f"; pretended: {', '.join(names.get(f, f) for f in fakes)}"
        notes.append(Note(level="info", text=text))
    notes += [Note(level="warn", text=t.splitlines()[0]) for t in outcome.judgement.tracebacks]
    return notes


__all__ = ["Command", "Context", "Remote", "build"]
