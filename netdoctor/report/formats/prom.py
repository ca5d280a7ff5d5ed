"""The report for the node exporter's textfile collector: no time stamps, newline at the end."""

import math
import re
from collections import Counter
from collections.abc import Iterator

from netdoctor.compat import instant
from netdoctor.report import fmt, summary
from netdoctor.report.model import MeasureRecord, Report

# Base units as Prometheus asks for: factor and suffix.
_UNITS = {
    "s": (1.0, "seconds"),
    "ms": (1e-3, "seconds"),
    "us": (1e-6, "seconds"),
    "ns": (1e-9, "seconds"),
    "GB/s": (1e9, "bytes_per_second"),
    "MB/s": (1e6, "bytes_per_second"),
    "Gbit/s": (1e9, "bits_per_second"),
    "Mbit/s": (1e6, "bits_per_second"),
    "bytes": (1.0, "bytes"),
    "B": (1.0, "bytes"),
    "%": (1e-2, "ratio"),
}
_NAMES = {"time.skew": "clock_skew"}
# What a measure of a plug-in must not pass itself off as.
_RESERVED = tuple(
    f"netdoctor_{name}"
    for name in (
        "ready",
        "exit_code",
        "run_",
        "results",
        "check_nodes",
        "cause",
        "cell",
        "node_",
        "gaps",
        "not_tested",
        "absent",
    )
)

Series = dict[str, tuple[str, dict[str, float]]]


def render(report: Report, *, detail: bool = False) -> str:
    """Return the metrics. detail: also one series per check and node that did not pass."""
    series: Series = {}
    for name, help_text, labels, value in _samples(report, detail):
        if not math.isfinite(value):
            continue
        pairs = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
        _, values = series.setdefault(name, (help_text, {}))
        values[f"{{{pairs}}}" if pairs else ""] = value
    lines = []
    for name, (help_text, values) in series.items():
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {_number(value)}" for labels, value in values.items()]
    return "".join(f"{line}\n" for line in lines)


def _samples(report: Report, detail: bool) -> Iterator[tuple[str, str, dict[str, str], float]]:
    verdict = report.verdict
    yield "netdoctor_ready", "1 when the last scan ended READY.", {}, float(verdict.state == "ready")
    partial = float(verdict.part is not None)
    yield "netdoctor_run_partial", "1 when the last scan looked at a part of checks or nodes.", {}, partial
    yield "netdoctor_exit_code", "Exit code of the last scan.", {}, verdict.exit_code
    finished = _epoch(report.run.finished)
    if finished is not None:
        yield "netdoctor_run_timestamp_seconds", "When the last scan ended.", {}, finished
    yield (
        "netdoctor_run_duration_seconds",
        "How long the last scan took.",
        {},
        report.run.duration_ms / 1000,
    )
    yield "netdoctor_run_complete", "0 when the last scan was stopped.", {}, float(report.run.complete)
    for status in summary.STATUSES:
        results = summary.count(verdict.counts, status)
        yield "netdoctor_results", "Results by status.", {"status": status}, results
    unseen: dict[str, set[str]] = {check.family: set() for check in report.checks}
    for gap in verdict.gaps:
        unseen.setdefault(gap.family, set()).update(gap.nodes)
    for family, nodes in unseen.items():
        what = "Nodes on which something of a family was not tested."
        yield "netdoctor_gaps", what, {"family": family}, len(nodes)
    profile = fmt.plain(report.run.profile, 20)
    for one in verdict.not_tested:
        labels = {"profile": profile, "what": fmt.plain(one.what, 60)}
        yield "netdoctor_not_tested", "What the profile of the last scan leaves out.", labels, len(one.checks)
    for what in verdict.absent:
        yield "netdoctor_absent", "What no node has.", {"what": fmt.plain(what, 20)}, 1
    for check, cells in zip(report.matrix.checks, report.matrix.cells, strict=True):
        for letter, status in summary.LETTERS.items():
            found = cells.count(letter)
            if found:
                labels = {"check": check, "status": status}
                yield "netdoctor_check_nodes", "Nodes by check and status.", labels, found
    causes = Counter((cause.key, cause.status) for cause in report.causes)
    for (key, status), found in causes.items():
        yield "netdoctor_cause", "Causes found by the last scan.", {"key": key, "status": status}, found
    yield from _nodes(report)
    yield "netdoctor_suppressed", "Problems that somebody has accepted.", {}, len(report.suppressed)
    for measure in report.measures:
        yield from _measure(measure)
    if detail:
        for check, cells in zip(report.matrix.checks, report.matrix.cells, strict=True):
            for node, letter in zip(report.matrix.nodes, cells, strict=True):
                if letter != ".":
                    labels = {"check": check, "node": node, "status": summary.LETTERS.get(letter, "unknown")}
                    yield "netdoctor_cell", "Results other than pass, one by one.", labels, 1


def _nodes(report: Report) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """What is wrong where: a few series for a node, however many checks there are."""
    healthy = set(report.healthy_nodes)
    for node in report.matrix.nodes:
        if report.verdict.part is None:
            ready = float(node in healthy)
            yield "netdoctor_node_ready", "1 for a node that is healthy.", {"node": node}, ready
    for node, column in zip(report.matrix.nodes, zip(*report.matrix.cells, strict=True), strict=False):
        for letter, status in summary.LETTERS.items():
            found = column.count(letter)
            if found and status not in ("pass", "skip"):
                labels = {"node": node, "status": status}
                yield "netdoctor_node_results", "Results of a node that did not pass.", labels, found
    for cause in report.causes:
        for node in cause.node_list:
            labels = {"key": cause.key, "status": cause.status, "node": node}
            yield "netdoctor_cause_node", "Nodes of the causes found by the last scan.", labels, 1


def _measure(measure: MeasureRecord) -> Iterator[tuple[str, str, dict[str, str], float]]:
    factor, suffix = _UNITS.get(measure.unit, (1.0, _name(measure.unit)))
    stem = _NAMES.get(measure.name) or _name(measure.name)
    kind = "pair" if "->" in measure.target else "cluster" if measure.target == "cluster" else "node"
    label = {} if kind == "cluster" else {kind: measure.target}
    name = "_".join(filter(None, ["netdoctor", stem or "measure", suffix]))
    if name.startswith(_RESERVED):
        name = f"netdoctor_measure_{name.removeprefix('netdoctor_')}"
    what = f"Measured: {fmt.plain(measure.name, 60)}".replace("\\", "\\\\")
    yield name, what, label, measure.value * factor
    if measure.error is not None:
        yield f"{name}_error", f"{what}, error bound", label, measure.error * factor


def _name(text: str) -> str:
    """Return text as part of a metric name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()[:60]).strip("_")


def _label(text: str) -> str:
    return fmt.plain(text, 300).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def _epoch(text: str) -> float | None:
    try:
        return instant(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
