"""Causes as the report shows them: title, what was seen, fixes, and the command that proves them."""

import re
import shlex
from collections.abc import Sequence

from netdoctor.engine.assemble.commands import fix_records
from netdoctor.engine.assemble.context import Context
from netdoctor.engine.diagnose import Group
from netdoctor.engine.judge import UNMEASURED
from netdoctor.engine.run import Outcome
from netdoctor.facts.host import fewer_at_once
from netdoctor.inventory import fold
from netdoctor.model import CLUSTER, CONTROL, Evidence, ExpectedFrom, Status, nodes_of
from netdoctor.report import fmt
from netdoctor.report.model import Cause, Explained, Verify

SEEN_LINES = 6
# What the text report shows of them; what was expected takes no place of what was seen.
SHOWN_LINES = 5
# Check ids or globs in a command that proves a fix.
MOST_VERIFY = 4


def cause_record(number: int, group: Group, outcome: Outcome, context: Context) -> Cause:
    nodes = [n for culprit in group.culprits for n in (nodes_of(culprit) or ())]
    node_list = tuple(dict.fromkeys(nodes))
    names = culprit_names(group.culprits)
    return Cause(
        id=number,
        key=group.key,
        fingerprint=group.fingerprint,
        status=group.status.value,
        title=_title(group.title, names, len(group.culprits) > 1),
        checks=group.checks,
        nodes=names,
        node_list=node_list,
        confidence=group.confidence.value,
        seen=tuple(_evidence_lines(group)),
        explains=tuple(
            Explained(check=c, target=t) for c, t in dict.fromkeys([*group.explained, *group.blocked])
        ),
        held=len(group.blocked),
        fixes=fix_records(group.fixes, outcome, context),
        verify=_verify(group, node_list, outcome, context),
        see=next((h.see for h in group.distinct if h.see), None) or _source(group, outcome),
        why=_why(group, outcome),
        action=group.action.value,
        settle_by=next((h.settle_by for h in group.distinct if h.settle_by), None),
    )


def _why(group: Group, outcome: Outcome) -> str | None:
    """What the manual of the cause's first check says under "Matters because", as one line."""
    manual = next((c.manual for c in outcome.judgement.checks if c.id == group.checks[0]), "")
    found = re.search(r"^Matters because:\n((?:[ \t]+\S.*\n?)+)", manual, re.MULTILINE)
    return " ".join(found.group(1).split()) if found and not group.key.startswith(UNMEASURED) else None


def _source(group: Group, outcome: Outcome) -> str | None:
    """Where the bound comes from that was broken, where no node and no file of the user's says it."""
    fixed = {check for check, one in group.members if one.expected_from is ExpectedFrom.CONSTANT}
    return next((c.source for c in outcome.judgement.checks if c.id in fixed), None)


def culprit_names(culprits: Sequence[str]) -> str:
    """Folded node names; pairs with equal ends folded; ``the cluster`` and ``the control host`` in words."""
    plain = [c for c in culprits if "->" not in c and c not in (CLUSTER, CONTROL)]
    parts = [fold(plain, fmt.FOLD_LIMIT)] if plain else []
    parts += fmt.pairs_text([c for c in culprits if "->" in c])
    if CLUSTER in culprits:
        parts.append("the cluster")
    if CONTROL in culprits:
        parts.append("the control host")
    return ", ".join(parts)


_WORD = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def _title(template: str, names: str, many: bool) -> str:
    """The template with the names of its culprits and verb endings in place.

    Not str.format: a title may quote what a node said, and ``{s:>999999999}`` is a gigabyte.
    """
    known = {
        "nodes": names,
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


def _evidence_lines(group: Group) -> list[str]:
    """What was observed, worst first: two summaries, evidence that adds to them, the other summaries.

    Equal lines of several targets are one line. Pairs are left out where their nodes speak for them.
    """
    summaries: dict[str, dict[str, None]] = {}
    expected: dict[str, None] = {}
    evidence: dict[str, None] = {}
    findings = [f for _, f in sorted(group.members, key=lambda m: -m[1].status.rank)]
    spoken_for = {f.target for f in findings if f.evidence}.intersection(group.culprits)
    for finding in findings:
        if finding.expected:
            source = ORIGINS.get(finding.expected_from) if finding.expected_from else None
            origin = f" ({source})" if source else ""
            expected.setdefault(f"expected {finding.expected}{origin}")
        if not ("->" in finding.target and spoken_for.intersection(nodes_of(finding.target))):
            summaries.setdefault(finding.summary, {}).setdefault(finding.target)
        for one in finding.evidence[:4]:
            if len(evidence) < SEEN_LINES:
                evidence.setdefault(_evidence_line(one))
    lines = []
    for text, found in list(summaries.items())[: SEEN_LINES + 2]:
        targets = list(found)
        named_already = len(targets) <= 4 and all(_mentions(text, target) for target in targets)
        plain = named_already or targets in ([CLUSTER], [CONTROL])
        lines.append(text if plain else f"{culprit_names(targets)}: {text}")
    adds = [e for e in evidence if not any(e in line or e.partition(": ")[2] in line for line in lines)]
    adds = [e for e in adds if not any(e != other and e in other for other in adds)]
    lines = [*lines[:2], *adds[:3], *lines[2:]]
    rest = len(summaries) + len(adds[:3]) - SEEN_LINES
    if rest > 1:
        lines = [*lines[:SEEN_LINES], f"and {rest} more; -v shows all results"]
    return [*lines, *list(expected)[: max(0, min(2, SHOWN_LINES - len(lines)))]]


def _evidence_line(evidence: Evidence) -> str:
    first = evidence.output.strip().split("\n", 1)[0][:200]
    where = evidence.where in ("", CLUSTER, CONTROL) or evidence.where in evidence.what
    start = evidence.what if where or evidence.kind == "probe" else f"{evidence.where}, {evidence.what}"
    return f"{start}: {first}" if first else start


ORIGINS = {
    ExpectedFrom.PEERS: "what other nodes have",
    ExpectedFrom.DERIVED: "derived from what was seen",
    ExpectedFrom.BASELINE: "from the baseline",
    ExpectedFrom.CONFIG: "from what you have set",
}


def _mentions(text: str, target: str) -> bool:
    return all(
        re.search(rf"(?<![\w.-]){re.escape(n)}(?![\w-])", text) for n in (nodes_of(target) or (target,))
    )


def _verify(group: Group, nodes: Sequence[str], outcome: Outcome, context: Context) -> Verify | None:
    """The scan that shows the cause healed; all checks again where the scan could not look."""
    verifying = dict.fromkeys(check_id for hint in group.distinct for check_id in hint.verify)
    checks = tuple(verifying)[:MOST_VERIFY] or group.checks[:2]
    argv = [*context.verify_prefix]
    if not group.key.startswith(UNMEASURED):
        for check_id in checks:
            argv += ["--only", check_id]
    # A scan of a part may have contacted no other node than these; those that are listed count.
    part, contacted = context.part, len(outcome.store.node.get("node", {}))
    if not context.verify_all_nodes and nodes and len(nodes) < max(contacted, part.of_nodes if part else 0):
        argv += ["--node", fold(list(nodes))]
    if group.key in (f"{UNMEASURED}timed-out", "ssh-timeout"):
        sessions, hosts = (outcome.store.present(g, outcome.judgement.nodes) for g in ("session", "host"))
        if fewer := fewer_at_once(sessions, hosts):
            argv += ["-j", str(fewer)]
    # It is to end with 0 when the cause is gone, and not before.
    least = "warn" if group.status is Status.WARN else "fail"
    if least == "warn" or context.fail_on == "never":
        argv += ["--fail-on", least]
    return Verify(argv=tuple(argv), shell=shlex.join(argv))
