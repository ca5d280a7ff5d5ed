"""Verdicts held against real torchrun jobs on the lab: a few of the situations that `make truth` plays."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.bandwidth.conftest import torch_python
from tests.truth.job import Launcher
from tests.truth.play import play
from tests.truth.situations import SITUATIONS, Situation

# What starts, and mostly what ends soon where it does not: a job that hangs is waited for. Sorted by lab.
STARTS = {
    "whole, c10d": True,
    "another port dropped": True,
    "a peer's name missing": True,
    "64 MB of /dev/shm": True,
    "drop in": False,
    "reject in": False,
    "rendezvous port in use, static": False,
    "renamed interface that is named": False,
    "whole, two networks, static over eth1": True,
    "eth1 dropped and not used": True,
    "eth1 dropped and named": False,
    "eth1 down and named": False,
}
# The gate is asked as well.
GATED = ("whole, c10d", "drop in")
LIMIT_S = 6.0


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    python, why = torch_python()
    if why:
        pytest.skip(why)
    with Launcher(python) as running:
        yield running


def of(name: str) -> Situation:
    (found,) = (s for s in SITUATIONS if s.name == name)
    return found


@pytest.mark.parametrize("name", STARTS)
def test_the_verdict_is_what_the_job_does(
    name: str, labs: Callable[[str], Lab], launcher: Launcher, folder: Path
) -> None:
    situation, starts = of(name), STARTS[name]
    lab = labs({"one": "lab4", "two": "two_networks"}[situation.lab])
    try:
        played = play(lab, launcher, situation, folder, 60.0 if starts else LIMIT_S, name in GATED)
    finally:
        lab.heal()
    assert (played.state, played.outcome.started) == ("ready" if starts else "not_ready", starts), played
    assert played.gated in (None, starts)


def test_situations_have_names_of_their_own() -> None:
    names = [s.name for s in SITUATIONS]
    assert len(set(names)) == len(names)
    assert sum(not s.faults for s in SITUATIONS) >= 10
    assert len(names) >= 60
