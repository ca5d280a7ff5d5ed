"""What judging a folder of facts files costs, beside nothing but reading the same files with json.loads.

    python benchmarks/facts.py                              healthy, faulty; 100, 1,000 and 10,000 nodes
    python benchmarks/facts.py --nodes 1000 --shape faulty

Each node of a synthetic cluster (tests/clusters.py) has a file of its own, as tasks of a job write them.
`json` reads and parses them all and keeps nothing; `merge` finds one line for each node, `judge` decodes them
and runs every passive check, `text` makes the report and draws it. CPU seconds, how many times those of json
and of the size before, and the peak of memory so far. Each size is a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import clusters

STEPS = ("json", "merge", "judge", "text")


def write(folder: Path, nodes: int, shape: str) -> int:
    """The files of all tasks, and how many bytes they are."""
    from netdoctor import __version__
    from netdoctor.factlines import now
    from netdoctor.inventory.task import Task
    from netdoctor.scanning.factfile import encode, name_of

    size = 0
    everybody = f"gpu[00000-{nodes - 1:05d}]"
    for i, (node, facts) in enumerate(clusters.replies(nodes, shape)):
        line = encode(
            node,
            version=__version__,
            collected_at=now(),
            task=Task(launcher="slurm", job="slurm 1", rank=i, node_rank=i, nodes=nodes, nodelist=everybody),
            job={"MASTER_ADDR": clusters.name(0)},
            session={"interpreter": "/usr/bin/python3", "python": "3.11.7"},
            facts=msgspec.json.decode(facts),
        )
        (folder / name_of(node)).write_bytes(line)
        size += len(line)
    return size


def measured(folder: Path) -> dict[str, tuple[float, float]]:
    """(CPU seconds, peak of memory in MB at its end) by step."""
    from netdoctor.facts.host import FILED
    from netdoctor.report.output import render
    from netdoctor.scanning import ScanRequest, assemble, prepare

    found: dict[str, tuple[float, float]] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = work()
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found[step] = time.process_time() - started, peak_mb
        return result

    def plainly() -> None:
        for path in folder.iterdir():
            json.loads(path.read_bytes())

    timed("json", plainly)
    request = ScanRequest(facts=(str(folder),), via=FILED, profile="quick", save=None)
    plan = timed("merge", lambda: prepare(request))
    outcome = timed("judge", lambda: plan.scan().run(plan.transport))
    timed("text", lambda: render(assemble(plan, outcome, 1.0), "text"))
    return found


def main() -> None:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--shape", choices=clusters.SHAPES, nargs="+", default=["healthy", "faulty"])
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(measured(options.read)))
        return
    for kind in options.shape:
        before: dict[str, tuple[float, float]] = {}
        for nodes in options.nodes:
            with tempfile.TemporaryDirectory() as folder:
                size = write(Path(folder), nodes, kind)
                command = [sys.executable, __file__, "--read", folder]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            row = json.loads(done.stdout)
            title = f"{nodes} files, {kind}, {size / 1e6:.0f} MB"
            print(f"\n{title:34}{'s':>7}{'x json':>8}{'growth':>9}{'peak MB':>10}")
            steps = {**row, "all but json": (sum(row[s][0] for s in STEPS[1:]), row["text"][1])}
            for step, (seconds, peak_mb) in steps.items():
                growth = f"{seconds / before[step][0]:.1f} x" if before else ""
                times = seconds / row["json"][0]
                print(f"  {step:32}{seconds:7.2f}{times:8.1f}{growth:>9}{peak_mb:10.0f}", flush=True)
            before = steps


if __name__ == "__main__":
    main()
