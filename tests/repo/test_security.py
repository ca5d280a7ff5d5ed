"""docs/security.md: each promise names a test that exists; those that no other test holds are held here."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

STARTS = re.compile("exec|spawn|posix_spawn|system|popen|fork")
# The lab, what travels to nodes, and what is linked into the package a second time.
ELSEWHERE = ("netdoctor/lab/", "netdoctor/agent/", "netdoctor/checks/", "netdoctor/tui/")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def test_every_test_that_is_named_exists() -> None:
    text = PAGE.read_text("utf-8")
    named = NAMED.findall(text)
    assert len(named) == text.count("::test_") > 30
    for file, name in named:
        path = ROOT / file
        assert path.is_file(), file
        found = {one.name for one in parsed(path).body if isinstance(one, ast.FunctionDef)}
        assert name in found, f"{file}::{name}"


def test_every_promise_names_its_test() -> None:
    promises = re.findall(r"^- (.*(?:\n  .*)*)", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(promises) > 15
    for promise in promises:
        assert NAMED.search(promise), promise


def imported(*names: str) -> dict[str, set[str]]:
    """Which files import these modules, without the lab and what travels to nodes."""
    found: dict[str, set[str]] = {}
    for folder in ("netdoctor", "checks", "tui"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            if not place.startswith(ELSEWHERE):
                for name in set(_imports(path)) & set(names):
                    found.setdefault(name, set()).add(place)
    return found


def _imports(path: Path) -> Iterator[str]:
    for one in ast.walk(parsed(path)):
        if isinstance(one, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and one.module and not one.level:
            yield one.module.partition(".")[0]
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "os":
            yield "os.exec" if STARTS.match(one.attr) else "os"


@pytest.mark.thorough
def test_programs_are_started_in_few_places() -> None:
    assert imported("subprocess", "os.exec", "pty", "multiprocessing", "invoke") == {
        "subprocess": {
            "netdoctor/transport/tasks/attending.py",  # the agent of netdoctor facts --meet
            "netdoctor/transport/ssh/dial.py",  # ProxyCommand
            "netdoctor/transport/ray/ray_driver.py",  # the agent, on nodes of a Ray cluster
            "netdoctor/transport/ray/rayhelper.py",  # the driver, under the cluster's Python
            "netdoctor/transport/tasks/slurm.py",  # srun, salloc, sinfo, scontrol, scancel
            "netdoctor/transport/ssh/transport.py",  # workers
            "netdoctor/transport/local.py",  # --local
            "tui/stage.py",  # the shell and the editor, when their keys are pressed
        },
        "os.exec": {"netdoctor/cli/gate.py"},  # the command that is typed behind it
    }


@pytest.mark.thorough
def test_sockets_are_opened_in_few_places() -> None:
    clients = ("urllib", "http", "ftplib", "smtplib", "requests", "httpx", "urllib3", "webbrowser")
    found = imported("socket", *clients)
    assert found.keys() == {"socket"}
    reading = {"netdoctor/rules/addresses.py"}  # inet_pton, which opens none
    assert all(place.startswith("netdoctor/transport/") for place in found["socket"] - reading)
