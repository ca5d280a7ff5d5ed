"""What the bandwidth experiments measured, as records of pairs and as a table for the text report."""

import re
from collections.abc import Iterator, Sequence

from netdoctor.engine.run import Outcome
from netdoctor.facts.bandwidth import LossMatrix, PairRates, TcpRates
from netdoctor.facts.host import Node
from netdoctor.facts.localisation import Decision
from netdoctor.localise import decide
from netdoctor.report import words
from netdoctor.report.model import PairRecord, Report

# As the checks have it: below half of what is usual nobody wants to start a job (checks/_slow.py).
STOPS_BELOW = 0.5
LOSSY_PERCENT = 0.5

# Of pairs, as in the matrix of checks.
MARKS = {status: letter for letter, status in words.LETTERS.items() if status != "pass"}

_NAME = re.compile(r"bw\.allreduce\.(busbw|algbw|time)\.(\d+)")


def pairs(outcome: Outcome) -> Iterator[PairRecord]:
    """Directed pairs of bw.tcp, bw.pair and net.loss: the slowest rail, the last round."""
    chosen = {c.id for c in outcome.judgement.checks}
    listed = outcome.store.node.get("node", {})
    leaves = {n: one.leaf for n, one in listed.items() if isinstance(one, Node) and one.leaf is not None}
    tcp = outcome.store.whole("tcp_rates")
    if isinstance(tcp, TcpRates) and "bw.tcp" in chosen:
        values = {(r.src, r.dst): None if r.gbyte_s is None else 8 * r.gbyte_s for r in tcp.rates}
        yield from _records("bw.tcp", values, decide(tcp, leaves), "Gbit/s")
    torch = outcome.store.whole("pair_rates")
    if isinstance(torch, PairRates) and "bw.pair" in chosen:
        latest = {(r.src, r.dst): r.round for r in torch.rates}
        slowest: dict[tuple[str, str], float | None] = {}
        for r in torch.rates:
            if r.round == latest[r.src, r.dst]:
                before = slowest.get((r.src, r.dst))
                slowest[r.src, r.dst] = r.gbyte_s if before is None else min(before, r.gbyte_s)
        yield from _records("bw.pair", slowest, decide(torch, leaves), "GB/s")
    losses = outcome.store.whole("loss")
    if isinstance(losses, LossMatrix) and "net.loss" in chosen:
        for probe in losses.probes:
            if not probe.sent or not probe.arrived:
                continue
            percent = 100.0 * (probe.sent - min(probe.arrived, probe.sent)) / probe.sent
            yield PairRecord(
                check="net.loss",
                from_=probe.src,
                to=probe.dst,
                status="pass",
                class_="measured",
                value=round(percent, 3),
                unit="%",
            )


def _records(
    check: str, values: dict[tuple[str, str], float | None], decision: Decision, unit: str
) -> Iterator[PairRecord]:
    for (src, dst), value in values.items():
        factors = [c.factor for c in decision.culprits if c.holds_back(src, dst)]
        status = "pass"
        if value is None or (factors and min(factors) < STOPS_BELOW):
            status = "fail"
        elif factors:
            status = "warn"
        shown = "dead" if value is None else "slow" if factors else "ok"
        yield PairRecord(
            check=check,
            from_=src,
            to=dst,
            status=status,
            class_=shown,
            value=None if value is None else round(value, 5),
            unit=unit,
        )


def table(report: Report) -> list[str]:
    """Sizes of the all-reduce with time, algbw, busbw and spread; empty when none was measured."""
    rows: dict[int, dict[str, tuple[float, float | None]]] = {}
    for measure in report.measures:
        match = _NAME.fullmatch(measure.name)
        if match is not None and len(match[2]) < 16:
            rows.setdefault(int(match[2]), {})[match[1]] = (measure.value, measure.error)
    shown = []
    for size, row in sorted(rows.items()):
        if "busbw" not in row:
            continue
        busbw, error = row["busbw"]
        spread = f"{200 * error / busbw:.0f} %" if error is not None and busbw > 0 else ""
        time_ms = f"{_three(row['time'][0])} ms" if "time" in row else ""
        algbw = _three(row["algbw"][0]) if "algbw" in row else ""
        shown.append((_size(size), time_ms, algbw, _three(busbw), spread))
    if not shown:
        return []
    head = ("all-reduce", "time", "algbw GB/s", "busbw GB/s", "spread")
    widths = [max(len(row[i]) for row in [head, *shown]) for i in range(len(head))]
    return ["  " + "   ".join(_cells(row, widths)).rstrip() for row in [head, *shown]]


def matrix(report: Report, check: str, width: int) -> list[str]:
    """Rates of directed pairs as rows and columns, or the slowest ones where that is wider than `width`."""
    records = {(p.from_, p.to): p for p in report.pairs if p.check == check}
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
        row = [f"{i} {words.plain(src, 24)}"]
        for dst in nodes:
            record = records.get((src, dst))
            row.append("= " if src == dst else _rate(record) if record else "  ")
        rows.append(row)
    head = [f"{words.plain(check, 20)} {words.plain(unit, 12)}", *(f"{i} " for i in range(len(nodes)))]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    if sum(widths) + len(widths) + 2 > width:
        return _slowest(check, unit, list(records.values()))
    lines = []
    for first, *others in [head, *rows]:
        cells = " ".join(_cells(others, widths[1:]))
        lines.append(f"  {first:<{widths[0]}} {cells}".rstrip())
    legend = "  rows send to columns"
    if any(record.status in MARKS for record in records.values()):
        legend += "; X under half the usual, ! slow"
    if len(records) < len(nodes) * (len(nodes) - 1):
        legend += "; blank not measured"
    return [*lines, legend]


def _slowest(check: str, unit: str, records: Sequence[PairRecord]) -> list[str]:
    """One line each for the three slowest pairs, and the median."""
    known = sorted(r.value if r.value is not None else 0.0 for r in records)
    lines = [
        f"  {words.plain(check, 20)} {words.plain(unit, 12)}: {words.number(len(records), 'directed pair')}, "
        f"median {_three(known[len(known) // 2])}, slowest"
    ]
    for record in sorted(records, key=lambda r: r.value or 0.0)[:3]:
        ends = f"{words.plain(record.from_, 60)} -> {words.plain(record.to, 60)}"
        lines.append(f"    {_rate(record)} {ends}")
    return lines


def _rate(record: PairRecord) -> str:
    """A figure with two or three digits that count, and the letter of a status that is not green."""
    value = record.value or 0.0
    mark = MARKS.get(record.status, " ")
    shown = _three(value) if value >= 1 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
    return f"{shown}{mark}"


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for text, width in zip(row, widths, strict=True):
        yield f"{text:>{width}}"


def _three(value: float) -> str:
    """A figure with three digits that count."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}" if size % unit == 0 else f"{size / unit:.1f} {name}"
    return f"{size} B"
