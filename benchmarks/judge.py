"""What judging a cluster costs, from the nodes' answers to every format, and how that grows with the nodes.

    python benchmarks/judge.py                                   healthy, faulty; 100 to 10,000 nodes
    python benchmarks/judge.py --nodes 1000 10000 --shape different firewall --hcas 8

Synthetic clusters (tests/clusters.py) with every passive check; `firewall` with those of a launch scan, too,
and with what it measures between pairs. Each size is a process of its own. For each step: CPU seconds, how
many times those of the size before, how many times what Python's own json module takes to read the same
answers, and the peak of memory so far. `paths` is where peers dial each other; `to text` is everything up to
the first report that somebody reads. `save` writes all facts, too; `load` reads that file, `tui` is the first
picture of it, `expand` its facts and pairs, for what needs them.
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

# By step: CPU seconds, and the peak of memory in MB when it was done.
Row = dict[str, tuple[float, float]]
PLAIN, TO_TEXT = "json module", "to text"


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(nodes: int, shape: str, hcas: int, folder: Path) -> Row:
    """What each step takes, in order."""
    from netdoctor.check import Profile
    from netdoctor.engine import registry
    from netdoctor.engine.assemble.context import Context
    from netdoctor.engine.assemble.report import build
    from netdoctor.engine.gathering import Answers, addresses, all_paths, first_groups, put_control_facts
    from netdoctor.engine.run import judge_facts
    from netdoctor.facts.software import Job
    from netdoctor.report import kept
    from netdoctor.report.model import Run
    from netdoctor.report.output import FORMATS, render
    from netdoctor.report.save import load, save
    from netdoctor.store import Store
    from netdoctor.transport.base import Reply
    from netdoctor.transport.frames import decode_members
    from tests.checks import build as facts

    gc.disable()  # as the command line does, for all but the TUI
    profile = Profile.LAUNCH if shape == "firewall" else Profile.QUICK
    checks = registry.select(registry.load().checks, profile)
    listed = clusters.targets(nodes)
    found: Row = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = work()
        found[step] = found.get(step, (0.0, 0.0))[0] + time.process_time() - started, peak_mb()
        return result

    store, job, names = Store(), Job(master_node=listed[0].id), [target.id for target in listed]
    put_control_facts(store, listed, job, None)
    groups = first_groups({p.info.group for c in checks for p in c.needs}, listed, job, profile)

    unread = Answers(store, groups)

    def received(node: str, answer: bytes) -> None:
        unread.add(Reply(node=node, result=decode_members(answer)))

    for i, (node, answer) in enumerate(clusters.replies(nodes, shape, hcas)):
        timed(PLAIN, partial(json.loads, answer))
        timed("decode", partial(received, node, answer))
        store.put("session", node, facts.session(1, address=clusters.address(i)))
    timed("decode", unread.read)
    if profile is Profile.LAUNCH:
        clusters.measure(store, nodes)

    def paths() -> None:
        known = dict(addresses(store, names, job))
        store.cluster["job"] = ready = replace(job, data_addresses=known)
        store.cluster["paths"] = all_paths(store, names, ready)

    timed("paths", paths)
    outcome = timed("judge", lambda: judge_facts(store, checks))
    run = Run(
        id="bench", started="2026-01-01T00:00:00Z", finished="2026-01-01T00:00:10Z", duration_ms=10000,
        complete=True, ended_by="end", profile=profile.value,
    )  # fmt: skip
    report = timed("diagnose", lambda: build(outcome, Context(run=run)))
    timed("text", lambda: render(report, "text"))
    steps = ("decode", "paths", "judge", "diagnose", "text")
    found[TO_TEXT] = sum(found[step][0] for step in steps), peak_mb()
    for name in FORMATS:
        if name not in ("text", "none"):
            timed(name, partial(render, report, name))
    path = folder / "report.json"
    timed("save", lambda: save(report, path))
    report = timed("load", lambda: load(path))
    gc.enable()
    found["tui"] = first_picture(report), peak_mb()
    timed("expand", lambda: (kept.as_facts(report.facts).store(), len(report.pairs)))
    return found


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
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 4000, 10000])
    parser.add_argument("--shape", choices=clusters.SHAPES, nargs="+", default=["healthy", "faulty"])
    parser.add_argument("--hcas", type=int, default=clusters.HCAS, help="of each node (%(default)s)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(options.nodes[0], options.shape[0], options.hcas, Path(folder))))
        return
    for kind in options.shape:
        before: Row = {}
        for nodes in options.nodes:
            command = [sys.executable, __file__, "--one", "--nodes", str(nodes), "--shape", kind]
            command += ["--hcas", str(options.hcas)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            row: Row = json.loads(done.stdout)
            print(f"\n{f'{nodes} nodes, {kind}':26}{'s':>7}{'growth':>9}{'x json':>9}{'peak MB':>10}")
            for step, (value, mb) in row.items():
                growth = f"{value / before[step][0]:.1f} x" if before.get(step, (0,))[0] else ""
                print(f"  {step:24}{value:7.2f}{growth:>9}{value / row[PLAIN][0]:9.2f}{mb:10.0f}")
            before = row


if __name__ == "__main__":
    main()
