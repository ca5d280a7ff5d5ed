"""What planning costs before anything is measured: rounds of pairs, follow-ups, the ranks of an all-reduce.

    python benchmarks/schedules.py                     1,024 and 10,240 nodes of 8 GPUs, 32 below each leaf

CPU seconds of each step of `tests/plans.py`, and how many times those of the size before: a step that does
not look at all nodes for each node grows as they do. For comparison: building as many tuples as the cluster
has ranks. `tests/localiser/test_schedule.py` holds the growth without a clock.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.plans import plans

GPUS = 8


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU seconds of the fastest of three."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def a_tuple_each(count: int) -> list[tuple[int, str]]:
    return [(i, str(i)) for i in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1024, 10240], metavar="N")
    counts = sorted(parser.parse_args().nodes)
    tables: list[dict[str, float]] = []
    for count in counts:
        found = {name: cpu_s(work) for name, work in plans(count).items()}
        found["all of it"] = sum(found.values())
        found["a tuple for each rank"] = cpu_s(partial(a_tuple_each, GPUS * count))
        tables.append(found)
    print(f"CPU seconds, load {os.getloadavg()[0]:.1f}")
    print(f"{'':34}" + "".join(f"{count:>9,} nodes{'times':>7}" for count in counts))
    for name in tables[0]:
        cells = ""
        for place, table in enumerate(tables):
            times = f"{table[name] / max(tables[place - 1][name], 1e-6):7.1f}" if place else " " * 7
            cells += f"{table[name]:15.3f}{times}"
        print(f"{name:34}{cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
