"""Pairs as a heat map, and the bandwidth of an all-reduce by size as a plot, in the HTML report."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from netdoctor.report import fmt, summary
from netdoctor.report.formats import bandwidth
from netdoctor.report.formats.elements import add, bar, hidden, table
from netdoctor.report.kept import pair_checks, pairs_of
from netdoctor.report.model import PairRecord, Report
from netdoctor.report.results import Index

# Nodes that a heat map has room for; of more only the worst pairs are told.
MOST_ENDS = 48
WORST_PAIRS = 25
# A share of the median from which on a rate is this warm, the worst first; and percent lost, the same.
_SHARES = (0.25, 0.5, 0.8, 0.95)
_LOST = (5.0, 1.0, 0.1, 0.0)

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 320, 64, 120, 16, 48


def pairs(section: ET.Element, report: Report, index: Index) -> None:
    """A heat map for each check of pairs; for large clusters its worst pairs."""
    for check in pair_checks(report):
        records = pairs_of(report, check)
        name = fmt.plain(check, 60)
        unit = fmt.plain(next((p.unit for p in records if p.unit), "") or "", 20)
        listed = dict.fromkeys(end for p in records for end in (p.from_, p.to))
        ends = list(dict.fromkeys([*(n for n in report.matrix.nodes if n in listed), *listed]))
        add(section, "h3", f"{name} {f'in {unit}' if unit else ''}".rstrip())
        add(section, "p", _summary(records, unit))
        if len(ends) <= MOST_ENDS:
            _heat(section, name, ends, records)
        else:
            _worst(section, name, records)


def _summary(records: Sequence[PairRecord], unit: str) -> str:
    by_status = [
        f"{n} {status}"
        for status in summary.STATUSES
        if (n := sum(record.status == status for record in records))
    ]
    values = [p.value for p in records if p.value is not None]
    spread = ""
    if values:
        low, middle, high = min(values), statistics.median(values), max(values)
        spread = f"; least {fmt.figure(low)}, median {fmt.figure(middle)}, most {fmt.figure(high)} {unit}"
    return f"{fmt.number(len(records), 'directed pair')}: {', '.join(by_status)}{spread}".rstrip()


def _heat(section: ET.Element, name: str, ends: Sequence[str], records: Sequence[PairRecord]) -> None:
    by_pair = {(p.from_, p.to): p for p in records}
    values = [p.value for p in records if p.value is not None]
    typical = statistics.median(values) if values else None
    if values:
        legend = add(section, "p")
        for level, text in enumerate(("worst", "", "", "", "usual or better")):
            add(legend, "span", text or "\u00a0", class_=f"key h{level}").tail = " "
        hidden(legend, "Each cell also says its value, and a letter where it is not a pass.")
    head, body = table(section, f"{name}: rows send to columns", ("from \\ to",), class_="heat")
    for end in ends:
        add(add(head, "th", scope="col", class_="check"), "span", fmt.plain(end, 60))
    for src in ends:
        line = add(body, "tr")
        add(line, "th", fmt.plain(src, 60), scope="row")
        for dst in ends:
            record = by_pair.get((src, dst))
            if record is None:
                add(line, "td", "" if src != dst else "=", class_="none")
                continue
            cell = add(line, "td", _cell_text(record), class_=f"h{_level(record, typical)}")
            hidden(cell, f" {fmt.plain(record.status, 12)}")


def _worst(section: ET.Element, name: str, records: Sequence[PairRecord]) -> None:
    """Pairs that do not pass, those of one node together, then the worst of those that pass."""
    rank = {"fail": 0, "unknown": 1, "warn": 2, "blocked": 3}
    bad = [record for record in records if record.status in rank]
    passing = [record for record in records if record.status not in rank and record.value is not None]
    lossy = any(record.unit == "%" for record in records)
    passing.sort(key=lambda record: record.value or 0.0, reverse=lossy)
    rows = sorted(_by_node(bad), key=lambda group: (rank[group[0].status], -len(group)))
    rows = [*rows, *([record] for record in passing)][:WORST_PAIRS]
    if not rows:
        return
    _, body = table(section, f"{name}: the worst pairs", ("from", "to", "value", "status", "class"))
    for group in rows:
        line = add(body, "tr")
        for ends in ([record.from_ for record in group], [record.to for record in group]):
            names = list(dict.fromkeys(ends))
            add(line, "td", fmt.fold(names) + (f" ({len(names)})" if len(names) > 1 else ""))
        values = sorted(record.value for record in group if record.value is not None)
        spread = dict.fromkeys(map(fmt.figure, (*values[:1], *values[-1:])))
        add(line, "td", " to ".join(spread), class_="number")
        add(line, "td", fmt.plain(group[0].status, 12))
        add(line, "td", fmt.plain(group[0].class_, 40))


def _by_node(records: Sequence[PairRecord]) -> list[list[PairRecord]]:
    """Pairs that came to the same and share an end: of both ends the one that more of them share."""

    def keys(record: PairRecord) -> tuple[tuple[str, ...], ...]:
        same = (record.status, record.class_)
        return (*same, "to", record.to), (*same, "from", record.from_)

    counts = Counter(key for record in records for key in keys(record))
    groups: dict[tuple[str, ...], list[PairRecord]] = {}
    for record in records:
        groups.setdefault(max(keys(record), key=counts.__getitem__), []).append(record)
    return list(groups.values())


def _cell_text(record: PairRecord) -> str:
    """The value with three digits, or what became of it, and the letter of a status that is no pass."""
    mark = bandwidth.MARKS.get(record.status, "")
    if record.value is None:
        return f"{fmt.plain(record.class_, 12)} {mark}".rstrip()
    return f"{record.value:.3g}{mark}" if record.unit != "bytes" else f"{record.value:.0f}{mark}"


def _level(record: PairRecord, typical: float | None) -> int:
    """0 for the worst to 4 for the usual and better."""
    by_status = {"pass": 4, "warn": 2, "skip": 4}.get(record.status, 0)
    if record.value is None or typical is None or not math.isfinite(record.value):
        return by_status
    if record.unit == "%":
        level = next((i for i, bound in enumerate(_LOST) if record.value > bound), 4)
    elif typical <= 0:
        return by_status
    else:
        level = sum(record.value >= share * typical for share in _SHARES)
    # What the check found stands above what the spread of values looks like.
    return level if record.status == "pass" else min(level, by_status)


def sizes(section: ET.Element, report: Report, index: Index) -> None:
    """The bandwidth of the all-reduce by message size: a plot, and its figures as a table."""
    rows = bandwidth.rows(report)
    if not rows:
        return
    series = {
        name: [(size, row[name][0]) for size, row in rows if name in row] for name in ("busbw", "algbw")
    }
    _plot(section, {name: points for name, points in series.items() if points})
    _, body = table(section, "Figures of the plot", ("size", "time ms", "algbw GB/s", "busbw GB/s"))
    for size, row in rows:
        line = add(body, "tr")
        add(line, "th", bandwidth.size_text(size), scope="row")
        for key in ("time", "algbw", "busbw"):
            add(line, "td", f"{row[key][0]:.3g}" if key in row else "", class_="number")


def ladder(section: ET.Element, report: Report, index: Index) -> None:
    """A training on two nodes, four, all: a bar each. A climb that found something slow ends with it."""
    rungs = bandwidth.rungs(report)
    if not rungs:
        return
    is_slow = any("bw.ladder" in cause.checks for cause in report.causes)
    names = ("nodes", "GB/s", "of the rung below", "ms a step", "")
    _, body = table(section, "The same training on more and more nodes", names)
    for rung in rungs:
        row = add(body, "tr")
        add(row, "th", str(rung.nodes), scope="row")
        below = f"{rung.of_below:.0%}" if rung.of_below is not None else ""
        step = f"{rung.step_ms:.3g}" if rung.step_ms is not None else ""
        for text in (f"{rung.rate:.3g}", below, step):
            add(row, "td", text, class_="number")
        bad = is_slow and rung is rungs[-1]
        bar(add(row, "td"), rung.of_best, f"{rung.rate:.3g} GB/s", bad=bad)


def _plot(section: ET.Element, series: dict[str, list[tuple[int, float]]]) -> None:
    points = [point for line in series.values() for point in line]
    low, high = (f(math.log2(max(size, 1)) for size, _ in points) for f in (min, max))
    top = _nice(max(value for _, value in points))

    def position(size: int, value: float) -> tuple[float, float]:
        across = (math.log2(max(size, 1)) - low) / (high - low) if high > low else 0.5
        x = _LEFT + across * (_WIDTH - _LEFT - _RIGHT)
        return round(x, 1), round(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM), 1)

    svg = add(
        section,
        "svg",
        class_="plot",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_labelledby="plot-title plot-text",
    )
    add(svg, "title", "Bandwidth of the all-reduce by message size", id="plot-title")
    best = [f"{name} at most {fmt.figure(max(v for _, v in line))} GB/s" for name, line in series.items()]
    add(svg, "desc", f"{'; '.join(best)}. The table below has the figures.", id="plot-text")
    for step in range(5):
        value = top * step / 4
        y = position(1, value)[1]
        add(svg, "line", x1=str(_LEFT), x2=str(_WIDTH - _RIGHT), y1=str(y), y2=str(y), class_="grid")
        add(svg, "text", f"{value:.3g}", x=str(_LEFT - 8), y=str(y + 4), class_="end")
    add(svg, "text", "GB/s", x="4", y=str(_TOP + 4))
    ticks = sorted({size for size, _ in points})
    for size in ticks[:: max(1, math.ceil(len(ticks) / 8))]:
        add(
            svg,
            "text",
            bandwidth.size_text(size),
            x=str(position(size, 0)[0]),
            y=str(_HEIGHT - 20),
            class_="mid",
        )
    for number, (name, line) in enumerate(series.items()):
        at = [position(size, value) for size, value in line]
        joined = " ".join(f"{x},{y}" for x, y in at)
        add(svg, "polyline", points=joined, class_=f"line l{number}")
        for x, y in at:
            if number == 0:
                add(svg, "circle", cx=str(x), cy=str(y), r="4", class_=f"dot l{number}")
            else:
                add(svg, "rect", x=str(x - 3), y=str(y - 3), width="6", height="6", class_=f"dot l{number}")
        x, y = at[-1]
        add(svg, "text", name, x=str(x + 10), y=str(y + 4), class_=f"name l{number}")


def _nice(value: float) -> float:
    """The next figure above that is easy to read."""
    if not (0 < value < math.inf):
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 4, 5, 8, 10) if step * unit >= value)
