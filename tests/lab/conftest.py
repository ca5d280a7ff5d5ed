"""Real labs for tests: made once, healed after each test, gone at the end."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab, load, missing_requirements, up

_numbers = itertools.count()


def _place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A state directory and a subnet that no other test run on this machine uses."""
    n = next(_numbers)
    return tmp_path_factory.mktemp("lab") / "state", f"10.{128 + os.getpid() % 96}.{n}"


def _needs_lab() -> None:
    missing = missing_requirements()
    if missing:
        pytest.skip("no lab on this machine: " + "; ".join(missing))


@pytest.fixture(scope="session")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Lab]]:
    """Makes labs as `netdoctor.lab.up` does, and ends them all at the end of the session."""
    _needs_lab()
    made: list[Lab] = []

    def make(count: int, **options: object) -> Lab:
        state_dir, subnet = _place(tmp_path_factory)
        lab = up(count, **{"state_dir": state_dir, "subnet": subnet, **options})  # type: ignore[arg-type]
        made.append(lab)
        return lab

    yield make
    for lab in made:
        if (lab.state_dir / "state.json").exists():
            load(lab.state_dir).down()


@pytest.fixture(scope="session")
def lab4_session(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(4)


@pytest.fixture(scope="session")
def hw_lab_session(make_lab: Callable[..., Lab]) -> Lab:
    # Two networks, so that each HCA has an interface of its own.
    return make_lab(4, hcas=2, gpus=2, data_net=True)


@pytest.fixture(name="lab4")
def _lab4(lab4_session: Lab) -> Iterator[Lab]:
    """Four healthy nodes; whatever the test breaks is healed after it."""
    yield lab4_session
    lab4_session.heal()


@pytest.fixture(name="lab")
def _lab(lab4: Lab) -> Lab:
    return lab4


@pytest.fixture(name="hw_lab")
def _hw_lab(hw_lab_session: Lab) -> Iterator[Lab]:
    """Four nodes with two pretended HCAs and GPUs each; healed after each test."""
    yield hw_lab_session
    hw_lab_session.heal()
