"""The figures of an earlier report, for checks to compare with. Pure but for reading the file."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.facts.bandwidth import Baseline, BaselineRate
from netdoctor.report import bands, baselines
from netdoctor.report.kept import pair_checks, pairs_of
from netdoctor.report.model import Report
from netdoctor.text import clean

# Unit of the rates of a check, and how many of it make a GB/s.
RATES = {"bw.tcp": ("Gbit/s", 8.0), "bw.pair": ("GB/s", 1.0)}
UNITS = ("nccl ranks", "gloo ranks")
MOST_RANKS = 1_000_000

_BUSBW = re.compile(r"bw\.allreduce\.busbw\.([0-9]{1,15})")


def read(path: Path, nodes: Iterable[str]) -> Baseline | None:
    """The bandwidths of a saved report between these nodes; of a named baseline the medians of its runs.

    Raises InputError when a report holds none at all. A named baseline without any is none of bandwidth.
    """
    runs = baselines.runs(path)
    if any(run.run.redacted for run in runs):
        raise InputError(f"--baseline {path}: is redacted, so that its nodes have other names than yours")
    if path.is_dir():
        found = baseline(_middle(runs), path.name, nodes)
        return found if found.tcp or found.pairs or found.busbw_gbyte_s else None
    report = runs[0]
    if not RATES.keys() & set(pair_checks(report)) and not any(
        _BUSBW.fullmatch(m.name) for m in report.measures
    ):
        raise InputError(
            f"--baseline {path}: holds no bandwidth; make one with: "
            "netdoctor scan HOSTS --profile full --save FILE"
        )
    return baseline(report, path.name, nodes)


def _middle(runs: Sequence[Report]) -> Report:
    """The newest run, its values the medians of all runs."""
    learnt = bands.learn(runs)
    newest = runs[0]

    def value(key: bands.Key, default: float) -> float:
        return learnt[key].middle if key in learnt else default

    measures = (replace(m, value=value((m.name, m.target), m.value)) for m in newest.measures)
    pairs = (
        p if p.value is None else replace(p, value=value((p.check, f"{p.from_} -> {p.to}"), p.value))
        for p in newest.pairs
    )
    return replace(newest, measures=tuple(measures), pairs=tuple(pairs))


def baseline(report: Report, source: str, nodes: Iterable[str]) -> Baseline:
    """The bandwidths of a report, from its `pairs` and `measures`. source: its name, for people.

    A report is a stranger's file: what is no rate, no size or no count of ranks is left out.
    """
    known = frozenset(nodes)
    sizes: dict[int, float] = {}
    ranks, backend = None, ""
    for measure in report.measures:
        size = _BUSBW.fullmatch(measure.name)
        if size is not None and 0 < measure.value < math.inf:
            sizes[int(size[1])] = measure.value
        elif measure.name in ("bw.allreduce.ranks", "bw.pair.ranks") and 0 < measure.value <= MOST_RANKS:
            backend = measure.unit.partition(" ")[0] if measure.unit in UNITS else ""
            ranks = int(measure.value) if measure.name == "bw.allreduce.ranks" else ranks
    return Baseline(
        source=clean(source, 200),
        finished=clean(report.run.finished, 40),
        tcp=_rates(report, "bw.tcp", known),
        pairs=_rates(report, "bw.pair", known),
        busbw_gbyte_s=tuple(sorted(sizes.items())),
        ranks=ranks,
        backend=backend,
    )


def _rates(report: Report, check: str, nodes: frozenset[str]) -> tuple[BaselineRate, ...]:
    unit, per_gbyte = RATES[check]
    pairs = [p for p in pairs_of(report, check) if p.unit == unit]
    # Of several paths the first is the main one, which is what a baseline is held against.
    values = {(p.from_, p.to): p.paths[0].value if p.paths else p.value for p in pairs}
    found = {
        ends: value / per_gbyte
        for ends, value in values.items()
        if value is not None and 0 < value < math.inf
    }
    return tuple(
        BaselineRate(src=src, dst=dst, gbyte_s=rate)
        for (src, dst), rate in found.items()
        if src in nodes and dst in nodes
    )
