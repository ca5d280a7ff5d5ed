"""What judging a cluster costs, from the nodes' answers to every format, and how that grows with the nodes.

    python benchmarks/judge.py                                       healthy, faulty; 100, 1,000, 4,000 nodes
    python benchmarks/judge.py --nodes 100 1000 --shape different

Synthetic clusters (tests/clusters.py) with every passive check. Each size is a process of its own: CPU
seconds of each step and how many times those of the size before, and the peak of memory when judging and text
are done, and at the end. `paths` is where peers dial each other; `save` writes all facts, too; `load` reads
that file, `tui` is the first picture of it. A file above the size that is read again has neither.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import clusters


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(nodes: int, shape: str, folder: Path) -> dict[str, float]:
    """Seconds by step, and `judged MB`, `all MB`."""
    from netdoctor.check import Profile
    from netdoctor.engine import registry
    from netdoctor.engine.gathering import addresses, all_paths, first_groups, put_control_facts, take
    from netdoctor.engine.run import rejudge
    from netdoctor.facts.software import Job
    from netdoctor.report.build import build
    from netdoctor.report.context import Context
    from netdoctor.report.json_ import SIZE_MAX
    from netdoctor.report.model import Run
    from netdoctor.report.output import render
    from netdoctor.report.save import load, save
    from netdoctor.store import Store
    from tests.checks import build as facts

    checks = registry.select(registry.load().checks, Profile.QUICK)
    listed = clusters.targets(nodes)
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        gc.collect()
        started = time.process_time()
        result = work()
        seconds[step] = seconds.get(step, 0.0) + time.process_time() - started
        return result

    store, job, names = Store(), Job(master_node=listed[0].id), [target.id for target in listed]
    put_control_facts(store, listed, job, None)
    groups = set(first_groups({p.info.group for c in checks for p in c.needs}, listed, job, Profile.QUICK))

    for i, (node, said) in enumerate(clusters.replies(nodes, shape)):
        started = time.process_time()
        take(store, groups, node, said, None)
        seconds["decode"] = seconds.get("decode", 0.0) + time.process_time() - started
        store.put("session", node, facts.session(1, address=clusters.address(i)))
    known = timed("paths", lambda: dict(addresses(store, names, job)))
    store.cluster["job"] = job = replace(job, data_addresses=known)
    store.cluster["paths"] = timed("paths", lambda: all_paths(store, names, job))
    outcome = timed("judge", lambda: rejudge(store, checks))
    run = Run(
        id="bench", started="2026-01-01T00:00:00Z", finished="2026-01-01T00:00:10Z", duration_ms=10000,
        complete=True, ended_by="end", profile="quick",
    )  # fmt: skip
    report = timed("diagnose", lambda: build(outcome, Context(run=run)))
    timed("text", lambda: render(report, "text"))
    judged = peak_mb()
    for name in ("short", "junit", "html", "prom", "json"):
        timed(name, partial(render, report, name))
    path = folder / "report.json"
    timed("save", lambda: save(report, path))
    size = path.stat().st_size
    if size <= SIZE_MAX:
        report = timed("load", lambda: load(path))
        seconds["tui"] = first_picture(report)
    return {**seconds, "judged MB": judged, "all MB": peak_mb(), "file MB": size / 1e6}


def first_picture(report: Any) -> float:
    import asyncio

    from netdoctor.tui.app import NetdoctorApp
    from netdoctor.tui.stage import screen_text
    from netdoctor.tui.state import opened

    async def paint() -> float:
        started = time.process_time()
        app = NetdoctorApp(opened(report))
        async with app.run_test(size=(100, 30)):
            while not any("READY" in line for line in screen_text(app)):
                await asyncio.sleep(0)
            return time.process_time() - started

    return asyncio.run(paint())


def main() -> None:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 4000])
    parser.add_argument("--shape", choices=clusters.SHAPES, nargs="+", default=["healthy", "faulty"])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(options.nodes[0], options.shape[0], Path(folder))))
        return
    for kind in options.shape:
        before: dict[str, float] = {}
        for nodes in options.nodes:
            command = [sys.executable, __file__, "--one", "--nodes", str(nodes), "--shape", kind]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            row: dict[str, float] = json.loads(done.stdout)
            print(f"\n{nodes} nodes, {kind}")
            for step, value in row.items():
                growth = f"{value / before[step]:6.1f} x" if before.get(step) else ""
                print(f"  {step:10} {value:9.2f}{growth:>12}")
            before = row


if __name__ == "__main__":
    main()
