"""What a bare `pytest` runs, and the labs: each brought up once, healed after each test, gone at the end.

`pytest` alone runs the pure and in-process tests. `pytest --all`, or a path, runs whatever this machine can:
real labs, OpenSSH servers, pseudo-terminals, other Pythons, torch.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from netdoctor.lab import Lab, load, missing_requirements, up

HERE = Path(__file__).parent
# Left out of a bare `pytest`: what meets the real thing, and what takes seconds a case. See pyproject.toml.
SLOW = ("lab", "ssh", "gpu", "interpreters", "pty", "process", "pilot", "thorough")
# What every test of a folder or file meets.
KIND_OF = {
    "scan": "lab", "lab": "lab", "bandwidth": "lab", "truth": "lab", "slurm": "lab", "ray": "lab",
    "oracle": "lab", "agent": "process",
    "core/test_cli.py": "process", "repo/test_packaging.py": "process", "repo/test_plugin.py": "process",
    "transport/test_link.py": "process", "transport/test_calls.py": "process",
    "tui/test_repo.py": "process", "report/test_hostile.py": "thorough",
    "report/test_browser.py": "process", "tui/test_hostile.py": "pilot", "tui/test_keys.py": "pilot",
    "tui/test_mouse.py": "pilot", "tui/test_screens.py": "pilot", "tui/test_states.py": "pilot",
    "tui/test_terminal.py": "pty",
}  # fmt: skip

# pytest loads readline, which gives a COLUMNS to all that is started from then on, its workers among them.
os.environ.pop("COLUMNS", None)
# What a test writes belongs to it alone, also where a user's group has its name and may write.
os.umask(0o022)

_numbers = itertools.count()
Maker = Callable[..., Lab]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="every test, not the quick ones alone")
    parser.addoption(
        "--weekly", action="store_true", help="also the slow tests that others cover for the most part"
    )
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


def is_quick(config: pytest.Config) -> bool:
    """Nobody asked for more: whoever names a file, a marker or a test means it."""
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return not (named or config.option.markexpr or config.getoption("--all"))


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile("quick", max_examples=20)
    if is_quick(config):
        settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(HERE)
        kind = KIND_OF.get(place.as_posix()) or KIND_OF.get(place.parts[0])
        if kind is not None and not _is_slow(item):
            item.add_marker(kind)
        if item.get_closest_marker("weekly") and not config.getoption("--weekly"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --weekly"))
    if is_quick(config):
        config.hook.pytest_deselected(items=[item for item in items if _is_slow(item)])
        items[:] = [item for item in items if not _is_slow(item)]


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in SLOW)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a scan runs, saves its report and writes its files."""
    place = tmp_path / "run"
    place.mkdir()
    return place


def _free_subnet() -> str:
    """Three numbers that no other lab of a test run on this machine has."""
    return f"10.{128 + os.getpid() % 96}.{next(_numbers)}"


@pytest.fixture
def subnet() -> str:
    """For a lab that the test brings up by itself."""
    return _free_subnet()


@pytest.fixture(scope="session")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    """Makes labs as `netdoctor.lab.up` does, and ends them all at the end of the session."""
    missing = missing_requirements()
    if missing:
        pytest.skip("no lab on this machine: " + "; ".join(missing))
    made: list[Lab] = []

    def make(count: int, **options: object) -> Lab:
        place = {"state_dir": tmp_path_factory.mktemp("lab") / "state", "subnet": _free_subnet()}
        lab = up(count, **{**place, **options})  # type: ignore[arg-type]
        made.append(lab)
        return lab

    yield make
    for lab in made:
        if (lab.state_dir / "state.json").exists():
            load(lab.state_dir).down()


KINDS: dict[str, dict[str, object]] = {
    "lab4": {},
    "two_networks": {"data_net": True},
    # Two networks, so that each HCA has an interface of its own.
    "hw_lab": {"hcas": 2, "gpus": 2, "data_net": True},
    # NCCL's data would go over sockets, and over both networks.
    "socket_lab": {"gpus": 1, "data_net": True},
    "ib_lab": {"hcas": 2, "link_layer": "InfiniBand"},
}


@pytest.fixture(scope="session")
def labs(make_lab: Maker) -> Callable[[str], Lab]:
    """The lab of four nodes of this kind, brought up when the first test asks for it."""
    known: dict[str, Lab] = {}

    def lab(kind: str) -> Lab:
        if kind not in known:
            known[kind] = make_lab(4, **KINDS[kind])
        return known[kind]

    return lab


def _healed(labs: Callable[[str], Lab], kind: str) -> Iterator[Lab]:
    lab = labs(kind)
    yield lab
    lab.heal()


@pytest.fixture
def lab4(labs: Callable[[str], Lab]) -> Iterator[Lab]:
    """Four healthy nodes; whatever the test breaks is healed after it."""
    yield from _healed(labs, "lab4")


@pytest.fixture
def lab(lab4: Lab) -> Lab:
    return lab4


@pytest.fixture
def two_networks(labs: Callable[[str], Lab]) -> Iterator[Lab]:
    """Four nodes with a second network."""
    yield from _healed(labs, "two_networks")


@pytest.fixture
def hw_lab(labs: Callable[[str], Lab]) -> Iterator[Lab]:
    """Four nodes with two pretended HCAs and GPUs each."""
    yield from _healed(labs, "hw_lab")


@pytest.fixture
def socket_lab(labs: Callable[[str], Lab]) -> Iterator[Lab]:
    """Four nodes with a pretended GPU and two networks, and no HCA."""
    yield from _healed(labs, "socket_lab")


@pytest.fixture
def ib_lab(labs: Callable[[str], Lab]) -> Iterator[Lab]:
    """Four nodes with two pretended HCAs each on InfiniBand."""
    yield from _healed(labs, "ib_lab")


@pytest.fixture
def torch_lab(hw_lab: Lab) -> Iterator[Lab]:
    """The hardware lab with the same torch on every node."""
    hw_lab.install_torch("2.6.0+cu124", "12.4", "2.21.5")
    yield hw_lab
    hw_lab.heal()
    hw_lab.remove_torch()
