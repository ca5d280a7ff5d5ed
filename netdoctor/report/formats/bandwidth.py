"""Bandwidth in the text report: the all-reduce by size, a ladder with bars, pairs as rows and columns."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from netdoctor.report import fmt, summary
from netdoctor.report.kept import pairs_of
from netdoctor.report.model import PairRecord, Report

# Of pairs, as in the matrix of checks.
MARKS = {status: letter for letter, status in summary.LETTERS.items() if status != "pass"}

_NAME = re.compile(r"bw\.allreduce\.(busbw|algbw|time)\.(\d+)")
_RUNG = re.compile(r"bw\.ladder\.(rate|step)\.(\d{1,7})")
BAR = 40


def rows(report: Report) -> list[tuple[int, dict[str, tuple[float, float | None]]]]:
    """(size in bytes, busbw, algbw and time with their errors) of the all-reduce, by size."""
    found: dict[int, dict[str, tuple[float, float | None]]] = {}
    for measure in report.measures:
        match = _NAME.fullmatch(measure.name)
        if match is not None and len(match[2]) < 16:
            found.setdefault(int(match[2]), {})[match[1]] = (measure.value, measure.error)
    return [(size, row) for size, row in sorted(found.items()) if "busbw" in row]


def table(report: Report) -> list[str]:
    """Sizes of the all-reduce with time, algbw, busbw and spread; empty when none was measured."""
    lines = []
    for size, row in rows(report):
        busbw, error = row["busbw"]
        spread = f"{200 * error / busbw:.0f} %" if error is not None and busbw > 0 else ""
        time_ms = f"{_three(row['time'][0])} ms" if "time" in row else ""
        algbw = _three(row["algbw"][0]) if "algbw" in row else ""
        lines.append((size_text(size), time_ms, algbw, _three(busbw), spread))
    if not lines:
        return []
    head = ("all-reduce", "time", "algbw GB/s", "busbw GB/s", "spread")
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]
    return ["  " + "   ".join(_cells(row, widths)).rstrip() for row in [head, *lines]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A training on some nodes: rate as of facts.bandwidth.LadderRun, and its shares of the rung below, None
    for the first, and of the best rung."""

    nodes: int
    rate: float
    step_ms: float | None
    of_below: float | None
    of_best: float


def rungs(report: Report) -> list[Rung]:
    """Of bw.ladder, the smallest first; at most 32, and none without a rate."""
    found: dict[str, dict[int, float]] = {"rate": {}, "step": {}}
    for measure in report.measures:
        match = _RUNG.fullmatch(measure.name)
        if match is not None:
            found[match[1]][int(match[2])] = max(measure.value, 0.0)
    rates = sorted(found["rate"].items())[:32]
    best = max((rate for _, rate in rates), default=0.0)
    return [
        Rung(
            nodes=nodes,
            rate=rate,
            step_ms=found["step"].get(nodes),
            of_below=rate / rates[n - 1][1] if n and rates[n - 1][1] else None,
            of_best=rate / best if best else 0.0,
        )
        for n, (nodes, rate) in enumerate(rates)
    ]


def ladder(report: Report, width: int) -> list[str]:
    """Rungs of bw.ladder with bars where there is room for them; empty when none was measured."""
    rows = [("training", "GB/s", "of below", "a step")]
    known = rungs(report)
    for rung in known:
        below = f"{rung.of_below:.0%}" if rung.of_below is not None else ""
        step = f"{_three(rung.step_ms)} ms" if rung.step_ms is not None else ""
        rows.append((f"{rung.nodes} nodes", _three(rung.rate), below, step))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    room = min(BAR, width - sum(widths) - 3 * len(widths) - 2)
    bars = ["", *("#" * round(room * rung.of_best) if room >= 8 else "" for rung in known)]
    lines = [
        f"  {'   '.join(_cells(row, widths))}   {bar}".rstrip() for row, bar in zip(rows, bars, strict=True)
    ]
    return lines if known else []


def matrix(report: Report, check: str, width: int) -> list[str]:
    """Rates of directed pairs as rows and columns, or the slowest ones where that is wider than `width`."""
    records = {(p.from_, p.to): p for p in pairs_of(report, check)}
    if not records:
        return []
    unit = next((p.unit for p in records.values() if p.unit), "")
    ends = dict.fromkeys(node for two in records for node in two)
    if 3 * len(ends) > width:
        return _slowest(check, unit, list(records.values()))
    listed = [n for n in report.matrix.nodes if n in ends]
    nodes = list(dict.fromkeys([*listed, *ends]))
    rows = []
    for i, src in enumerate(nodes):
        row = [f"{i} {fmt.plain(src, 24)}"]
        for dst in nodes:
            record = records.get((src, dst))
            row.append("= " if src == dst else _rate(record) if record else "  ")
        rows.append(row)
    head = [f"{fmt.plain(check, 20)} {fmt.plain(unit, 12)}", *(f"{i} " for i in range(len(nodes)))]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for first, *others in [head, *rows]:
        cells = " ".join(_cells(others, widths[1:]))
        lines.append(f"  {first:<{widths[0]}} {cells}".rstrip())
    if max(map(len, lines)) > width:
        return _slowest(check, unit, list(records.values()))
    legend = "  rows send to columns"
    if any(record.status in MARKS for record in records.values()):
        legend += "; X under half the usual, ! slow"
    if len(records) < len(nodes) * (len(nodes) - 1):
        legend += "; blank not measured"
    return [*lines, legend, *_paths(records.values())]


def _paths(records: Iterable[PairRecord]) -> Iterator[str]:
    """Which path the rates are of, where there are several: that of most, and which pairs are of others."""
    by_path: dict[str, list[str]] = {}
    for record in records:
        if record.path:
            by_path.setdefault(record.path, []).append(f"{record.from_}->{record.to}")
    typical = max(by_path, key=lambda path: len(by_path[path]), default="")
    for path, pairs in by_path.items():
        exceptions = "" if path == typical else f": {'; '.join(fmt.pairs_text(pairs))}"
        yield f"  over {fmt.plain(path, 80)}{exceptions}"


def _slowest(check: str, unit: str, records: Sequence[PairRecord]) -> list[str]:
    """One line each for the three slowest pairs, and the median."""
    known = sorted(r.value if r.value is not None else 0.0 for r in records)
    lines = [
        f"  {fmt.plain(check, 20)} {fmt.plain(unit, 12)}: {fmt.number(len(records), 'directed pair')}, "
        f"median {_three(known[len(known) // 2])}, slowest"
    ]
    for record in sorted(records, key=lambda r: r.value or 0.0)[:3]:
        ends = f"{fmt.plain(record.from_, 60)} -> {fmt.plain(record.to, 60)}"
        lines.append(f"    {_rate(record)} {ends}")
    return [*lines, *_paths(records)]


def _rate(record: PairRecord) -> str:
    """A figure with two or three digits that count, and the letter of a status that is not green."""
    value = record.value or 0.0
    mark = MARKS.get(record.status, " ")
    figure = _three(value) if value >= 1 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
    return f"{figure}{mark}"


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for text, width in zip(row, widths, strict=True):
        yield f"{text:>{width}}"


def _three(value: float) -> str:
    """A figure with three digits that count."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def size_text(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}" if size % unit == 0 else f"{size / unit:.1f} {name}"
    return f"{size} B"
