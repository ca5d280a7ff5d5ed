"""The figures of an earlier report, for checks to compare with. Pure but for reading the file."""

import math
import re
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.facts.bandwidth import Baseline, BaselineRate
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.text import clean

_BUSBW = re.compile(r"bw\.allreduce\.busbw\.([0-9]{1,15})")


def read(path: Path) -> Baseline:
    """The bandwidths of a saved report. Raises InputError when it is no report or holds none."""
    found = baseline(load(path), path.name)
    if not (found.tcp or found.pairs or found.busbw_gbyte_s):
        raise InputError(
            f"--baseline {path}: holds no bandwidth; make one with: "
            "netdoctor scan HOSTS --profile full --save FILE"
        )
    return found


def baseline(report: Report, source: str) -> Baseline:
    """The bandwidths of a report, from its `pairs` and `measures`. source: its name, for people."""
    measures = {m.name: m.value for m in report.measures if math.isfinite(m.value)}
    sizes = {int(m[1]): value for name, value in measures.items() if (m := _BUSBW.fullmatch(name))}
    ranks = measures.get("bw.allreduce.ranks")
    return Baseline(
        source=clean(source, 200),
        finished=clean(report.run.finished, 40),
        tcp=_rates(report, "bw.tcp", "Gbit/s", 8.0),
        pairs=_rates(report, "bw.pair", "GB/s", 1.0),
        busbw_gbyte_s=tuple(sorted(sizes.items())),
        ranks=None if ranks is None else int(ranks),
    )


def _rates(report: Report, check: str, unit: str, per_gbyte: float) -> tuple[BaselineRate, ...]:
    return tuple(
        BaselineRate(src=p.from_, dst=p.to, gbyte_s=p.value / per_gbyte)
        for p in report.pairs
        if p.check == check and p.unit == unit and p.value is not None and 0 < p.value < math.inf
    )
