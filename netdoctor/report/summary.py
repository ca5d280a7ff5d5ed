"""A report in short: statuses, counts, verdict, header, and what to do next. No layout here."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from netdoctor.report.commands import quote_path
from netdoctor.report.fmt import FOLD_LIMIT, fold, ids, nodes_text, number, plain, seconds
from netdoctor.report.model import Counts, Gap, Part, Report, Verdict

STATUSES = ("pass", "warn", "fail", "blocked", "skip", "unknown")
LETTERS = {".": "pass", "!": "warn", "X": "fail", "b": "blocked", "-": "skip", "?": "unknown"}
WORDS = {
    "pass": "ok",
    "warn": "WARN",
    "fail": "FAIL",
    "blocked": "blocked",
    "skip": "skip",
    "unknown": "UNKNOWN",
}
VERDICTS = {"ready": "READY", "not_ready": "NOT READY", "undecided": "UNDECIDED", "partial_pass": "CHECKED"}
NAMED_MAX = 6
GAPS_MAX = 3
LAST = ".netdoctor/last.json"
_HBM = re.compile(r" HBM\d\w*$")


def word(status: str) -> str:
    """Return the status as the text report writes it."""
    return WORDS.get(status) or (plain(status, 12).upper() or "UNKNOWN")


def verdict(report: Report) -> str:
    """Return READY, NOT READY or UNDECIDED; CHECKED for a part that passes."""
    state = report.verdict.state
    return VERDICTS.get(state) or plain(state.replace("_", " "), 24).upper()


def limits(found: Verdict, profile: str) -> str:
    """Return ``quick: ports, clocks not tested; no GPU on any node``: what the verdict does not speak of."""
    names = _left_out(found)
    tested = f"{plain(profile, 40)}: {names} not tested" if names else ""
    return "; ".join(filter(None, [tested, *_absent(found)]))


def _left_out(found: Verdict) -> str:
    names = [plain(one.what, 40) for one in found.not_tested]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"


def _absent(found: Verdict) -> list[str]:
    return [f"no {plain(what, 20)} on any node" for what in found.absent]


def gaps(found: Sequence[Gap], nodes: int) -> str:
    """Return ``not tested: the job's Python, the all-reduce (no torch in /usr/bin/python3)``, or ''.

    nodes: how many were judged. What has one reason stands together.
    """
    by_reason: dict[str, list[str]] = {}
    for gap in found:
        where = "" if len(gap.nodes) >= nodes else f" on {len(gap.nodes)} of {nodes} nodes"
        by_reason.setdefault(plain(gap.reason, 300), []).append(plain(gap.what, 100) + where)
    parts = [f"{', '.join(whats)}{f' ({reason})' if reason else ''}" for reason, whats in by_reason.items()]
    more = [f"{len(parts) - GAPS_MAX} more"] if len(parts) > GAPS_MAX else []
    return f"not tested: {', '.join([*parts[:GAPS_MAX], *more])}" if parts else ""


def not_tested(report: Report) -> list[str]:
    """Return what the verdict does not speak of, a line each: what could not be tested, then the rest."""
    found = report.verdict
    lines = [gaps(found.gaps, len(report.matrix.nodes)).partition(": ")[2]]
    if found.state != "not_ready":
        names = _left_out(found)
        lines += [
            f"{names} (not in profile {plain(report.run.profile, 40)})" if names else "",
            *_absent(found),
        ]
    return list(filter(None, lines))


def verdict_in_scope(report: Report) -> str:
    """Return ``READY (quick: ports, clocks not tested)``: the verdict, and what it does not speak of."""
    scope = limits(report.verdict, report.run.profile) if report.verdict.state != "not_ready" else ""
    return f"{verdict(report)} ({scope})" if scope else verdict(report)


def count(counts: Counts, status: str) -> int:
    return int(getattr(counts, "pass_" if status == "pass" else status))


def total(counts: Counts) -> int:
    """Return the number of results."""
    return sum(count(counts, status) for status in STATUSES)


def counts_line(report: Report) -> str:
    """Return ``40 checks x 4 nodes = 160 results: 140 pass, …`` with all six statuses."""
    counts, checks, nodes = report.verdict.counts, len(report.matrix.checks), len(report.matrix.nodes)
    results = total(counts)
    product = f"{number(checks, 'check')} x {number(nodes, 'node')} = {number(results, 'result')}"
    if checks * nodes != results:
        product = f"{number(checks, 'check')}, {number(nodes, 'node')}, {number(results, 'result')}"
    return f"{product}: {', '.join(f'{count(counts, status)} {status}' for status in STATUSES)}"


def part_text(part: Part) -> str:
    """Return how much was looked at: ``1 of 43 checks on 1 of 6 nodes``."""
    checks = f"{part.checks} of {number(part.of_checks, 'check')}"
    nodes = f"{part.nodes} of {number(part.of_nodes, 'node')}"
    if part.checks == part.of_checks:
        checks = f"all {part.checks} checks"
    if part.nodes == part.of_nodes:
        nodes = f"all {part.nodes} nodes" if part.nodes > 1 else "the one node"
    in_parts = (part.checks, part.nodes) == (part.of_checks, part.of_nodes)
    return f"{checks} on {nodes}{', in parts' if in_parts else ''}"


def headline(report: Report, limit: int = 400) -> str:
    """Return the words after the verdict: those of the engine, or counts when it has none."""
    given = plain(report.verdict.headline, limit)
    if given:
        return given
    stops = sum(cause.status == "fail" for cause in report.causes)
    risks = sum(cause.status == "warn" for cause in report.causes)
    parts = [f"{number(stops, 'problem')} stop{'s' if stops == 1 else ''} the launch"] if stops else []
    parts += [risks_text(risks, parts)] if risks else []
    if report.verdict.state == "ready":
        passes = checks_pass(sum("." in cells for cells in report.matrix.cells), len(report.matrix.nodes))
        return ", ".join(parts) or passes
    if report.verdict.state == "not_ready":
        return ", ".join(parts) or "see the table"
    lost = report.undecided_nodes
    examined = len(report.matrix.nodes) - len(lost)
    where = f" on the {number(examined, 'node')} tested" if examined > 0 and lost else ""
    rest = f"; {nodes_text(report, lost)} could not be tested fully" if lost else ""
    return f"no problem proven{where}{rest}"


def risks_text(risks: int, before: Sequence[str]) -> str:
    """Return ``2 problems will cause trouble``, without the noun behind those that stop the launch."""
    follows = bool(before) and before[-1].endswith(" the launch")
    return f"{risks if follows else number(risks, 'problem')} will cause trouble"


def checks_pass(checks: int, nodes: int) -> str:
    """Return ``47 checks pass on 4 nodes``; checks: those that found something to judge."""
    return f"{number(checks, 'check')} {'passes' if checks == 1 else 'pass'} on {number(nodes, 'node')}"


def short_headline(report: Report) -> str:
    """Return the same without what was not tested, where that stands elsewhere."""
    scope = limits(report.verdict, report.run.profile)
    found = gaps(report.verdict.gaps, len(report.matrix.nodes))
    text = headline(report, 4_000)  # cut behind what is taken off its end
    for part in (found, scope):
        text = text.removesuffix(f"; {part}" if part else "")
    return plain(text, 400)


def stopped(report: Report) -> str | None:
    """Return one line about a run that did not end by itself, where the headline is not the engine's."""
    run = report.run
    if run.complete or report.verdict.headline:
        return None
    by = {"interrupt": "stopped by an interrupt", "deadline": "stopped by the deadline"}.get(run.ended_by)
    left = report.verdict.counts.unknown
    return (
        f"{by or 'not complete'} after {seconds(run.duration_ms)}: "
        f"{number(left, 'result')} unknown, the others are valid"
    )


def header(report: Report) -> list[str]:
    """Return the parts of the first line: tool, hosts, nodes and GPUs, profile."""
    source = report.run.hosts_source
    job = plain(source.get("job", ""), 60)
    parts = [
        f"{plain(report.tool.name, 40)} {plain(report.tool.version, 40)}".rstrip(),
        plain(source.get("path") or source.get("format") or "", 60) + (f" ({job})" if job else ""),
        ", ".join(filter(None, [number(len(report.targets), "node"), gpus(report)])),
        f"profile {plain(report.run.profile, 40)}",
    ]
    return [part for part in parts if part]


def gpus(report: Report) -> str:
    """Return ``32 GPUs (8 x H100 80GB each)``, or '' when no node's GPUs are known."""
    counted = [found for target in report.targets if (found := _gpu(target.facts)) is not None]
    amount = sum(n for n, _ in counted)
    if not amount:
        return ""
    known = (
        "" if len(counted) == len(report.targets) else f" on {len(counted)} of {len(report.targets)} nodes"
    )
    kinds = set(counted)
    if len(kinds) == 1:
        n, model = kinds.pop()
        each = " each" if len(counted) > 1 else ""
        return f"{number(amount, 'GPU')}{known}" + (f" ({n} x {model}{each})" if model else "")
    models = sorted({model for n, model in kinds if n and model})
    return f"{number(amount, 'GPU')}{known}" + (f" ({', '.join(models[:3])})" if models else "")


def _gpu(facts: Mapping[str, Any]) -> tuple[int, str] | None:
    amount, name = facts.get("gpus"), facts.get("gpu_model")
    if not isinstance(amount, int):
        return None
    model = plain(name, 40) if isinstance(name, str) else ""
    return amount, _HBM.sub("", model.removeprefix("NVIDIA "))


def logins(report: Report) -> list[str]:
    """Return how long logging in took: the middle of all, and the slowest three."""
    times = sorted((t.login_ms, t.id) for t in report.targets if t.login_ms is not None)
    if not times:
        return []
    slowest = ", ".join(f"{plain(node, 60)} {ms:.0f} ms" for ms, node in reversed(times[-3:]))
    return [f"median {times[len(times) // 2][0]:.0f} ms; slowest {slowest}"]


def accepted(report: Report) -> list[str]:
    """Return a line for each problem that is accepted: what, where, until when and why."""
    return [
        f"{word(one.status)} {plain(' '.join(one.checks[:1]), 60)} {plain(one.title)} "
        f"({f'until {plain(one.until, 20)}' if one.until else 'without an end'}: {plain(one.reason, 300)}; "
        f"{plain(one.place, 80)})"
        for one in report.suppressed
    ]


def healed(report: Report) -> list[str]:
    """Return a line for each cause of the baseline that is put right."""
    found = report.baseline.healed if report.baseline is not None else ()
    return [f"{word(one.status)} {plain(' '.join(one.checks[:1]), 60)} {plain(one.title)}" for one in found]


def usable(report: Report, limit: int | None = FOLD_LIMIT) -> str:
    """Return ``27 of 32   node[0-4,6-8,...]`` where not all nodes are; of a part nothing can be said."""
    good, every = report.healthy_nodes, report.matrix.nodes
    if report.verdict.part is not None or len(good) >= len(every):
        return ""
    return f"{len(good)} of {len(every)}   {fold(good, limit) if good else 'none'}"


def next_step(report: Report) -> tuple[str, str] | None:
    """Return (what to do, the command after it), or None when nothing is left to do."""
    if report.verdict.state == "ready":
        return None
    fails = [cause.id for cause in report.causes if cause.status == "fail"]
    warns = [cause.id for cause in report.causes if cause.status == "warn"]
    saved = report.run.saved_to
    again = f"netdoctor scan --last{'' if saved == LAST else f' --save {quote_path(saved)}'}" if saved else ""
    if report.verdict.state == "partial_pass":
        return ("look at everything:" if again else "scan everything"), again
    todo = fails or (warns if report.verdict.state == "not_ready" else [])
    if todo:
        return f"fix {ids(todo)}, then" if again else f"fix {ids(todo)}, then scan again", again
    if report.verdict.gaps and not report.verdict.counts.unknown and report.run.complete:
        return (
            "resolve what was not tested, then" if again else "resolve what was not tested, then scan again",
            again,
        )
    return ("examine again what is unknown:" if again else "scan again"), again


def report_command(report: Report) -> str | None:
    """Return the command that shows the saved report again."""
    saved = report.run.saved_to
    if not saved:
        return None
    return "netdoctor report show -v" if saved == LAST else f"netdoctor report show -v {quote_path(saved)}"
