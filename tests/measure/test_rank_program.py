"""The receiver of a pair against a link of known speed and a clock of our own."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from netdoctor.measure.ranks import program

BYTES_PER_S = 6.25e6  # 50 Mbit/s


class Link:
    """Stands in for torch, torch.distributed and time: messages arrive at the link's speed from the question
    on, the first `burst` bytes at once, and after each the receiver may have to wait for a CPU."""

    def __init__(self, stalls: random.Random | None = None, burst: float = 0.0) -> None:
        self.now = 0.0
        self.stalls = stalls
        self.burst = burst
        self.next = 0.0
        self.asked: tuple[int, int] = (0, 0)
        self.float32 = self.int64 = None

    def perf_counter(self) -> float:
        return self.now

    def empty(self, count: int, device: Any) -> None:
        pass

    def tensor(self, values: list[int], dtype: Any, device: Any) -> tuple[int, int]:
        return (values[0], values[1])

    def send(self, command: tuple[int, int], dst: int) -> None:
        self.asked = command
        self.next = self.now

    def recv(self, buffer: None, src: int) -> None:
        free = min(self.burst, self.asked[0])
        self.burst -= free
        self.next += 1e-4 + (self.asked[0] - free) / BYTES_PER_S
        self.now = max(self.now, self.next)
        if self.stalls is not None and self.stalls.random() < 0.3:
            self.now += self.stalls.uniform(0.0, 0.3)


def take(link: Link, seconds: float) -> dict[str, float]:
    own: dict[str, Any] = {"__name__": "rank"}
    exec(compile(program(), "rank_program", "exec"), own)
    own["time"] = SimpleNamespace(perf_counter=link.perf_counter)
    rank = own["Rank"].__new__(own["Rank"])
    rank.torch = rank.dist = link
    rank.cuda, rank.device = False, "cpu"
    took: dict[str, float] = rank.take(0, seconds, 4 << 20)
    return took


@pytest.mark.parametrize("seed", range(20))
def test_waiting_for_a_cpu_makes_no_slow_path_look_fast(seed: int) -> None:
    took = take(Link(random.Random(seed)), 1.0)
    assert 0 < took["least"] <= took["median"] <= took["most"] <= BYTES_PER_S


@pytest.mark.parametrize("burst", [0.0, 64e3, 1e6, 8e6, 30e6])
def test_a_shaper_that_lets_the_first_bytes_pass_costs_little_time(burst: float) -> None:
    link = Link(burst=burst)
    took = take(link, 1.0)
    # What is asked for when the shaper shows is twice the last question at most.
    assert link.now < 1.0 + max(2.0 * burst, 4 << 20) / BYTES_PER_S
    assert took["least"] < 2.0 * BYTES_PER_S
