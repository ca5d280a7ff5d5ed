"""The line that says what goes on."""

import io
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from netdoctor.cli.progress import DOES, Progress
from netdoctor.engine.experiments import EXPERIMENTS, Asker, plan
from netdoctor.engine.run import Progress as Event
from netdoctor.transport.base import Reply, Request


def shown(*events: Event) -> str:
    progress = Progress(io.StringIO(), ["n1", "n2", "n3", "n4"])
    for event in events:
        progress.update(event)
    return progress._line()


def heard(*nodes: str) -> list[Event]:
    return [Event(phase="connect", done=i, total=4, node=node) for i, node in enumerate(nodes, 1)]


def test_the_last_few_are_named() -> None:
    assert shown() == "scan 00:00  logging in, asking for facts 0/4"
    assert shown(*heard("n2")) == "scan 00:00  logging in, asking for facts 1/4  waiting for n1, n3, n4"
    assert shown(*heard("n2", "n4", "n1")) == "scan 00:00  logging in, asking for facts 3/4  waiting for n3"
    assert shown(*heard("n2", "n4", "n1", "n3")) == "scan 00:00  logging in, asking for facts 4/4"


def test_everybody_who_is_waited_for_is_a_number() -> None:
    progress = Progress(io.StringIO(), [f"n{i}" for i in range(100)])
    progress.update(Event(phase="connect", done=10, total=100, node="n7"))
    assert progress._line() == "scan 00:00  logging in, asking for facts 10/100"


def test_an_experiment_says_what_it_does_and_whom_it_waits_for() -> None:
    began = Event(phase="loss", total=6)
    assert shown(began) == "scan 00:00  counting packets that get lost"
    asked = replace(began, requested=6, left=6, waiting=("n1", "n2", "n3", "n4"))
    assert shown(asked) == "scan 00:00  counting packets that get lost 0/6"
    asked = replace(began, requested=6, left=2, waiting=("n3", "n4"))
    assert shown(asked) == "scan 00:00  counting packets that get lost 4/6  waiting for n3, n4"
    assert shown(Event(phase="site_burst", total=6)) == "scan 00:00  site_burst"


def test_every_experiment_of_ours_has_words() -> None:
    made = [one for one in EXPERIMENTS.values() if one.function.__module__.startswith("netdoctor.measure.")]
    assert made
    assert {one.name for one in made} <= set(DOES)


def test_each_answer_to_an_experiment_is_told() -> None:
    class Nodes:
        def call(self, requests: dict[str, Request], within_s: float) -> Iterator[Reply]:
            yield from (Reply(node=node, result={}) for node in requests)

    (step, *_) = plan({"losses"} | set(EXPERIMENTS["loss"].groups), 6, 20.0)
    told: list[tuple[int, int, tuple[str, ...]]] = []
    transport: Any = Nodes()
    asker = Asker(transport, step, math.inf, tell=lambda *event: told.append(event))
    requests = {f"n{i}": Request(op="ping", timeout_s=1.0) for i in range(6)}
    assert len(list(asker.call(requests))) == 6
    assert told[0] == (6, 6, ("n0", "n1", "n2", "n3"))
    assert [left for _, left, _ in told] == [6, 5, 4, 3, 2, 1, 0]
    assert told[5] == (6, 1, ("n5",))


def test_experiments_with_a_budget_count_down() -> None:
    event = Event(phase="tcp", total=4, ends=time.monotonic() + 12.5)
    assert shown(event) == "scan 00:00  measuring TCP rates  at most 13 s left"
    assert shown(replace(event, ends=time.monotonic() - 1)) == "scan 00:00  measuring TCP rates"


def test_a_log_hears_soon_that_something_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line after two seconds, the others every ten."""
    waits: list[float] = []
    progress = Progress(io.StringIO(), ["n1"])

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > 3

    monkeypatch.setattr(progress.stop, "wait", wait)
    progress._beat()
    assert waits == [2.0, 10.0, 10.0, 10.0]


def test_trouble_of_strangers_steers_no_terminal() -> None:
    progress = Progress(io.StringIO(), [f"n{number}\x1b[2J" for number in range(9)])
    for number in range(7):
        progress.update(
            Event(phase="connect", done=number, total=9, node=f"n{number}\x1b[2J", text="re\rfused")
        )
    progress.update(Event(phase="connect", done=7, total=9, node="n7\x1b[2J"))
    line = progress._line()
    assert line.isprintable()
    assert line.endswith("and 4 more")
