"""What the TUI costs: first paint, one cell, a stream of results, memory; each in a process of its own.

    python benchmarks/tui.py                    1,000 and 10,000 nodes by 40 checks, 5,000 results/s for 8 s
    python benchmarks/tui.py --nodes 1000 --seconds 3

The application runs without a terminal, in a window of 100 x 30: everything but the terminal's own drawing.
"""

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
CHECKS, RATE, SECONDS = 40, 5000, 8.0
WINDOW = (100, 30)


def make_report(nodes: int, path: Path) -> None:
    """A saved report: three causes, 40 checks."""
    from netdoctor.report.save import save
    from tests.report.build import sample_report

    save(sample_report(nodes=nodes), path)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def paint(path: Path) -> dict[str, float]:
    """Seconds from the start of the process to the first full picture, and milliseconds of one cell."""
    started = time.perf_counter()
    from netdoctor.report.save import load
    from netdoctor.tui.app import NetdoctorApp
    from netdoctor.tui.stage import screen_text
    from netdoctor.tui.state import opened

    imported = time.perf_counter()
    report = load(path)
    loaded = time.perf_counter()
    app = NetdoctorApp(opened(report))

    async def work() -> dict[str, float]:
        async with app.run_test(size=WINDOW):
            while not any("NOT READY" in line for line in screen_text(app)):
                await asyncio.sleep(0)
            first = time.perf_counter()
            app.act("matrix")
            app.where = replace(app.where, zoom="rows")
            app.draw()
            while not any("nodes" in line[:10] for line in screen_text(app)):
                await asyncio.sleep(0)
            matrix = time.perf_counter()
            cells = []
            row = app.matrix.rows.order[3]
            for n in range(200):
                before = time.process_time()
                app.take([(row, n % CHECKS, "X."[n % 2])])
                for _ in range(8):  # let the widget ask for its line
                    await asyncio.sleep(0)
                app.screen._on_timer_update()  # what the screen does 60 times a second
                cells.append((time.process_time() - before) * 1000)
            return {
                "import_s": imported - started,
                "load_s": loaded - imported,
                "first_paint_s": first - loaded,
                "from_start_s": first - started,
                "matrix_s": matrix - first,
                "cell_ms": statistics.median(cells),
            }

    return {**asyncio.run(work()), "peak_mb": peak_mb()}


def stream(nodes: int, rate: int, seconds: float) -> dict[str, float]:
    """CPU seconds, and how late the event loop is, while results come in from another thread."""
    from netdoctor.tui.app import NetdoctorApp
    from netdoctor.tui.events import Began, Event
    from netdoctor.tui.runner import Request

    names = tuple(f"gpu{n:05}" for n in range(nodes))
    checks = tuple((f"fam{n // 5}.check{n}", f"fam{n // 5}") for n in range(CHECKS))

    class Source:
        question = cannot = ""
        formats: tuple[str, ...] = ()

        def __init__(self) -> None:
            self.events: deque[Event] = deque()
            self.sent = 0
            self.ended = threading.Event()

        def begin(self, request: Request, report: object) -> None:
            self.events.append(Began(time.time(), names, checks, "hosts.txt", "launch"))
            threading.Thread(target=self.work, daemon=True).start()

        def work(self) -> None:
            choice = random.Random(1)
            begun = time.monotonic()
            while (passed := time.monotonic() - begun) < seconds:
                due = int(passed * rate) - self.sent
                letters = choice.choices(".!X-", (96, 2, 1, 1), k=due)
                self.events.extend(
                    (choice.randrange(nodes), choice.randrange(CHECKS), letter) for letter in letters
                )
                self.sent += due
                time.sleep(0.01)
            self.ended.set()

        def stop(self) -> None: ...
        def close(self) -> None: ...
        def ssh(self, node: str) -> None: ...
        def editor(self) -> None: ...
        def read_as(self, format: str) -> None: ...

    source = Source()
    app = NetdoctorApp(runner=source, begin=Request())
    late: list[float] = []

    async def watch() -> None:
        while not (source.ended.is_set() and late):
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            late.append((time.perf_counter() - before - 0.005) * 1000)

    async def work() -> tuple[float, float]:
        async with app.run_test(size=WINDOW):
            begun, cpu = time.monotonic(), time.process_time()
            await watch()
            return time.process_time() - cpu, time.monotonic() - begun

    cpu, wall = asyncio.run(work())
    late.sort()
    return {
        "results": source.sent,
        "wall_s": wall,
        "cpu_s": cpu,
        "lag_median_ms": statistics.median(late),
        "lag_p99_ms": late[int(len(late) * 0.99)],
        "lag_max_ms": late[-1],
        "peak_mb": peak_mb(),
    }


def child(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, action="append", help="default: 1000 and 10000")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--child", choices=("paint", "stream", "make"), help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child == "paint":
        print(json.dumps(paint(args.report)))
        return
    if args.child == "make":
        make_report(args.nodes[0], args.report)
        print("{}")
        return
    if args.child == "stream":
        print(json.dumps(stream(args.nodes[0], args.rate, args.seconds)))
        return
    for nodes in args.nodes or (1000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            child("--child", "make", "--nodes", str(nodes), "--report", str(path))
            found = child("--child", "paint", "--report", str(path))
        print(f"{nodes} nodes x {CHECKS} checks, window {WINDOW[0]} x {WINDOW[1]}")
        print(
            f"  saved report: first full paint {found['first_paint_s']:.3f} s after it is read "
            f"(reading {found['load_s']:.3f} s, imports {found['import_s']:.3f} s; "
            f"{found['from_start_s']:.3f} s in all), matrix {found['matrix_s']:.3f} s"
        )
        print(f"  one cell, to the bytes for the terminal: {found['cell_ms']:.2f} ms of CPU")
        print(f"  peak memory: {found['peak_mb']:.0f} MB")
        arguments = ("--nodes", str(nodes), "--seconds", str(args.seconds), "--rate", str(args.rate))
        live = child("--child", "stream", *arguments)
        print(
            f"  {live['results']:.0f} results in {live['wall_s']:.1f} s: {live['cpu_s']:.2f} CPU-s, "
            f"event loop late by {live['lag_median_ms']:.1f} ms median, {live['lag_p99_ms']:.1f} ms p99, "
            f"{live['lag_max_ms']:.1f} ms at most; peak memory {live['peak_mb']:.0f} MB"
        )


if __name__ == "__main__":
    main()
