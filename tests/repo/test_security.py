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


# What opens files beside netdoctor/files.py, and what they are. Files of others are opened there.
OWN_DATA = "a file of the package"
KERNEL = "/proc, /sys or /dev"
OPENS = {
    "netdoctor/cli/__init__.py": KERNEL,
    "netdoctor/cli/expect.py": "made new (x)",
    "netdoctor/engine/registry.py": "collectors of plug-ins",
    "netdoctor/explain/glossary/__init__.py": OWN_DATA,
    "netdoctor/explain/knowledge.py": OWN_DATA,
    "netdoctor/explain/reading.py": "logs, which steer nothing",
    "netdoctor/launch/folder.py": "a plan, replaced where its sums are right",
    "netdoctor/measure/gpu_work.py": OWN_DATA,
    "netdoctor/measure/imports.py": OWN_DATA,
    "netdoctor/measure/ranks.py": OWN_DATA,
    "netdoctor/report/formats/html.py": OWN_DATA,
    "netdoctor/report/save.py": "by descriptors of folders, without links",
    "netdoctor/report/schema.py": OWN_DATA,
    "netdoctor/tables.py": OWN_DATA,
    "netdoctor/transport/bundle.py": OWN_DATA,
    "netdoctor/transport/here.py": KERNEL,
    "netdoctor/transport/provide.py": OWN_DATA,
    "netdoctor/transport/ray/ray_driver.py": KERNEL,
    "netdoctor/transport/ray/raycluster.py": KERNEL,
    "netdoctor/transport/ray/rayhelper.py": "Ray's program, and a file of the package",
    "netdoctor/transport/ssh/knownhosts.py": "the user's known_hosts",
    "netdoctor/transport/ssh/transport.py": KERNEL,
}
OPEN = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
NOT_FILES = {"netdoctor/transport/ssh/login.py"}  # connections


def _opens(path: Path) -> bool:
    for one in ast.walk(parsed(path)):
        if isinstance(one, ast.Call):
            name = one.func.id if isinstance(one.func, ast.Name) else getattr(one.func, "attr", "")
            if name in OPEN:
                return True
    return False


def test_files_that_others_may_have_written_are_opened_in_one_place() -> None:
    found = {
        place
        for folder in ("netdoctor", "checks", "tui")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not (place := path.relative_to(ROOT).as_posix()).startswith(ELSEWHERE) and _opens(path)
    }
    assert found - NOT_FILES == {*OPENS, "netdoctor/files.py"}
