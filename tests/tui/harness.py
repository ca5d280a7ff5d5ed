"""Reports, a runner and a way to press keys for the tests of the TUI."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any
from unittest import mock

from netdoctor.report.kept import Squeezed, as_facts
from netdoctor.report.model import (
    Cause,
    Counts,
    MeasureRecord,
    PairRecord,
    Report,
    Result,
    TargetRecord,
    Verdict,
)
from netdoctor.store import Store, dump
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.events import Began, Ended, Event, Failed
from netdoctor.tui.runner import Request
from netdoctor.tui.stage import screen_text
from netdoctor.tui.state import by_family, opened
from tests.checks import build_hw
from tests.report.build import sample_report, with_evidence

SIZES = {"small": (60, 20), "80": (80, 24), "100": (100, 30), "160": (160, 50)}
NOON = datetime.fromisoformat("2026-01-02T14:03:20+00:00").timestamp()

Step = str | Callable[[NetdoctorApp, Any], Awaitable[None] | None]


class FakeRunner:
    """Notes what it is asked; `answer` says which events a scan writes, `along` which checks come along."""

    def __init__(self, answer: Callable[[Request, Report | None], Sequence[Event]] | None = None) -> None:
        self.events: deque[Event] = deque()
        self.question = ""
        self.cannot = ""
        self.answer = answer or (lambda request, report: [])
        self.along: dict[str, str] = {}
        self.asked: list[Request] = []
        self.stopped = 0
        self.closed = 0
        self.formats: tuple[str, ...] = ("auto", "plain", "deepspeed")
        self.place: tuple[str, list[str]] | None = None

    def editor(self) -> tuple[str, list[str]] | None:
        return self.place

    def read_as(self, format: str) -> None:
        self.formats = tuple(dict.fromkeys([format, *self.formats]))

    def begin(self, request: Request, report: Report | None) -> None:
        self.asked.append(request)
        self.events.extend(self.answer(request, report))

    def will_run(self, request: Request, report: Report) -> dict[str, str]:
        costs = {check.id: check.cost for check in report.checks}
        will = {check: costs.get(check, "read-only") for check in request.checks or report.matrix.checks}
        return {**will, **self.along}

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None:
        self.closed += 1

    def ssh(self, node: str) -> list[str] | None:
        return ["true", node] if node.startswith("gpu") else None


def application(
    report: Report | None = None, *, runner: FakeRunner | None = None, **options: Any
) -> NetdoctorApp:
    options.setdefault("now", lambda: NOON)
    return NetdoctorApp(
        opened(report) if report is not None else None,
        runner=runner,
        **options,
    )


@contextlib.contextmanager
def no_waiting(app: NetdoctorApp) -> Iterator[None]:
    """Let Textual's pilot go on as soon as nothing is left to do.

    It knows no better than to sleep until the process uses little CPU, some 60 ms per key; the event loop and
    the screen know at once, and more reliably, whether a message waits or a line has yet to be drawn.
    """

    async def done(*bounds: float) -> None:
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # no public way to ask
        for _ in range(1000):
            await asyncio.sleep(0)
            while ready:
                await asyncio.sleep(0)
            screen = app.screen_stack[-1] if app.screen_stack else None
            if screen is None or app._exit or not (
                screen._layout_required or screen._scroll_required or screen._repaint_required
                or screen._dirty_widgets or screen._callbacks
            ):  # fmt: skip
                return
            screen._on_timer_update()  # what the screen does 60 times a second
        raise AssertionError("the screens are drawn again and again")

    with mock.patch("textual.app.wait_for_idle", done), mock.patch("textual.pilot.wait_for_idle", done):
        yield


def drive(app: NetdoctorApp, size: tuple[int, int], *steps: Step) -> list[str]:
    """Run the application without a terminal, do the steps, and return the last picture."""

    async def work() -> list[str]:
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            for step in steps:
                if isinstance(step, str):
                    await pilot.press(step)
                else:
                    done = step(app, pilot)
                    if done is not None:
                        await done
                await settle(app, pilot)
            return screen_text(app) if app.is_running else []

    with no_waiting(app):
        return asyncio.run(work())


def settle(app: NetdoctorApp, pilot: Any) -> Awaitable[None]:
    """Let the queue be emptied, as it is ten times a second, and the picture be drawn."""
    app.drain()
    return pilot.pause()  # type: ignore[no-any-return]  # a coroutine


def type_text(text: str) -> list[str]:
    """Keys for a text."""
    names = {
        " ": "space", ".": "full_stop", "*": "asterisk", "!": "exclamation_mark", "[": "left_square_bracket",
        "]": "right_square_bracket", "~": "tilde", "=": "equals_sign", "-": "minus", ":": "colon",
    }  # fmt: skip
    return [names.get(char, char) for char in text]


def rich_report(nodes: int = 4, state: str = "not_ready") -> Report:
    """The sample report with every pair of ports, rated pairs, a curve, evidence and facts that differ."""
    report = with_evidence(sample_report(state, nodes=nodes))
    names = report.matrix.nodes
    victim = names[min(2, nodes - 1)]
    pairs = [
        PairRecord(
            check="net.ports",
            from_=a,
            to=b,
            status="fail" if b == victim and state == "not_ready" else "pass",
            class_="filtered" if b == victim and state == "not_ready" else "open",
            ports=(29500, 40211) if b == victim else (),
        )
        for a, b in itertools.permutations(names[:64], 2)
    ]
    pairs += [
        PairRecord(
            check="bw.pair",
            from_=a,
            to=b,
            status="warn" if (i, j) == (0, 1) else "pass",
            class_="slow" if (i, j) == (0, 1) else "ok",
            value=46.1 - 3.1 * i - 7.5 * ((i, j) == (0, 1)),
            unit="GB/s",
        )
        for (i, a), (j, b) in itertools.permutations(list(enumerate(names[:8])), 2)
    ]
    measures = [
        *report.measures,
        *(
            MeasureRecord(
                name=f"bw.allreduce.busbw.{2**n}MiB",
                target="cluster",
                value=48.0 * n / (n + 2),
                unit="GB/s",
                error=0.4,
            )
            for n in range(1, 9)
        ),
    ]
    targets = tuple(
        dataclasses.replace(
            t,
            facts={"gpus": 8, "gpu_model": "NVIDIA H100 80GB HBM3", "torch": "2.5.1" if i == 1 else "2.6.0"},
        )
        for i, t in enumerate(report.targets)
    )
    return dataclasses.replace(report, pairs=tuple(pairs), measures=tuple(measures), targets=targets)


def with_hardware(report: Report, *, packed: bool = False) -> Report:
    """With facts of GPUs and RDMA devices: on the second node one GPU and one port are in trouble.

    packed: as in the file of a report of many nodes.
    """
    facts = Store()
    for n, name in enumerate(report.matrix.nodes):
        odd = {3: {"pcie_width": 8, "ecc_uncorrected": 2, "temperature_c": 91}} if n == 1 else {}
        devices = tuple(build_hw.gpu(i, **{"temperature_c": 40 + i, **odd.get(i, {})}) for i in range(8))
        state = {"state": "DOWN", "rate_gbit_s": None} if n == 1 else {}
        hcas = (
            build_hw.hca("mlx5_0", netdevs=("ib0",)),
            build_hw.hca("mlx5_1", netdevs=("eth1",), ports=(build_hw.roce_port("mlx5_1", n + 1, **state),)),
        )
        facts.put("gpu", name, build_hw.gpus(devices=devices))
        facts.put("rdma", name, build_hw.rdma(*hcas))
    kept = as_facts(dump(facts))
    if packed:
        kept = Squeezed(kept.packed("0.1.0", "2026-01-02T14:03:20.000Z"), "report.json")
    return dataclasses.replace(report, facts=kept)


def unreachable(nodes: int = 4) -> Report:
    """A report of a cluster that nobody can log in to: one cause."""
    report = sample_report("ready", nodes=nodes)
    names = report.matrix.nodes
    cells = tuple(("X" if c == "ssh.login" else "b") * nodes for c in report.matrix.checks)
    cause = Cause(
        id=1, key="ssh-refused", fingerprint="sha256:9", status="fail",
        title=f"gpu-a[01-{nodes:02}]: SSH connections to port 22 are refused", checks=("ssh.login",),
        nodes="all", node_list=names, confidence="certain", held=nodes * (len(cells) - 1),
    )  # fmt: skip
    counts = Counts(fail=nodes, blocked=nodes * (len(cells) - 1))
    return dataclasses.replace(
        report,
        verdict=Verdict(
            state="not_ready", exit_code=1, fail_on="fail", counts=counts,
            headline=f"none of {nodes} nodes can be logged in to",
        ),
        targets=tuple(
            TargetRecord(id=n, address=None, port=22, user="ml", reached=False, order=i)
            for i, n in enumerate(names)
        ),
        matrix=dataclasses.replace(report.matrix, cells=cells),
        causes=(cause,),
        results=tuple(
            Result(check="ssh.login", target=n, status="fail", summary="refused", cause=1) for n in names
        ),
        families=(),
        healthy_nodes=(),
        unhealthy_nodes=names,
    )  # fmt: skip


def began(report: Report, at: float = NOON, *, partial: bool = False) -> Began:
    checks = by_family([(c.id, c.family) for c in report.checks])
    return Began(at, report.matrix.nodes, tuple(checks), "hosts.txt", "full", partial)


def healing(after: Report) -> Callable[[Request, Report | None], Sequence[Event]]:
    """A scan that ends with another report."""
    return lambda request, report: [began(after, partial=report is not None), Ended(NOON + 3, after)]


def failing(text: str) -> Callable[[Request, Report | None], Sequence[Event]]:
    return lambda request, report: [Failed(NOON, text)]
