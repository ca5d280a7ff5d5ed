"""Jobs of torch and gloo that are broken in many ways: FAILED, the right cause first, and nothing left."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.bandwidth.conftest import torch_python
from tests.scan.faults import put
from tests.scan.harness import changed
from tests.trial.situations import SITUATIONS, Situation
from tests.trial.test_lab import CLEAN_S, Tried, is_clean, job

__all__ = ["job"]
ALL = "NETDOCTOR_TEST_TRIALS" in os.environ
LIMIT_BYTES = 300 << 20  # less than what the rank then takes


@contextlib.contextmanager
def memory_group() -> Iterator[Path]:
    """A control group with little memory; skips where there is none."""
    old = Path("/sys/fs/cgroup/memory")
    place = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"netdoctor-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if old.is_dir() else "memory.max"
    try:
        place.mkdir()
        (place / limit).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group for memory: {error}")
    try:
        yield place
    finally:
        place.rmdir()


def bound(tried: Tried, program: Path, group: Path) -> None:
    """Put the rank that asks for it into the group: nodes see no control groups."""
    tried.until("step")
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            env = Path("/proc", name, "environ").read_bytes().split(b"\0")
            if os.fsencode(program) in words and b"RANK=" + words[-2] in env:
                (group / "cgroup.procs").write_text(name)
                os.kill(int(name), signal.SIGUSR1)


@contextlib.contextmanager
def broken(lab: Lab, situation: Situation) -> Iterator[Path | None]:
    """The lab as the situation has it, and a control group where it asks for one."""
    make = "mkdir /tmp/ndparts; touch /tmp/ndparts/ndparts.py /tmp/ndparts/train-00000.bin"
    with contextlib.ExitStack() as stack:
        if situation.do.startswith(("module", "data")):
            for i in situation.parts:
                stack.enter_context(changed(lab, f"node{i}", make, "rm -r /tmp/ndparts"))
        group = stack.enter_context(memory_group()) if situation.do.startswith("memory") else None
        put(lab, situation.faults)
        yield group
        lab.heal()


def complaints(situation: Situation, tried: Tried) -> list[str]:
    """What is not as the table has it."""
    found, causes = tried.found, tried.found["causes"]
    first = causes[0]["key"] if causes else ""
    nodes = (causes[0]["nodes"] if causes else ()) or found["nodes_at_fault"]
    wrong = []
    if (tried.code, found["state"]) != (1, "failed"):
        wrong.append(f"{found['state']}, code {tried.code}")
    if first not in (situation.keys or ("",)):
        wrong.append(f"the first cause is {first!r}")
    if situation.text not in found["headline"]:
        wrong.append(f"the headline is {found['headline']!r}")
    if situation.nodes and sorted(nodes) != sorted(situation.nodes):
        wrong.append(f"it names {nodes}")
    return wrong


@pytest.mark.lab
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_right_cause_first(lab: Lab, folder: Path, job: Path, situation: Situation) -> None:
    python, why = torch_python()
    if why:
        pytest.skip(why)
    if not (ALL or situation.often):
        pytest.skip("NETDOCTOR_TEST_TRIALS asks for it")
    program = job.parent.parent / "training" / "training.py"
    program.parent.mkdir(exist_ok=True)
    shutil.copy(Path(__file__).with_name("training.py"), program)
    (folder / "env").write_text("".join(f"{name}={value}\n" for name, value in situation.env.items()))
    with broken(lab, situation) as group:
        # Rates are left out: another test has the same processors.
        options = ["--no-scan", "--skip", "bw.*", "--python", python, "--env-file", "env"]
        options += ["--for", str(situation.seconds), "--steps", "30"]
        words = situation.words or ("python3", str(program), *situation.do.split())
        tried = Tried(lab, folder, *options, "--", *words)
        if group is not None:
            bound(tried, program, group)
        tried.wait()
    assert is_clean(lab, program, CLEAN_S)
    wrong = complaints(situation, tried)
    if wrong and situation.why:
        pytest.xfail(f"{situation.why}: {'; '.join(wrong)}")
    assert not wrong, tried.text


def test_the_table_has_enough_and_few_are_known_to_be_wrong() -> None:
    assert len({situation.name for situation in SITUATIONS}) == len(SITUATIONS) >= 30
    assert sum(bool(situation.why) for situation in SITUATIONS) <= len(SITUATIONS) // 10
