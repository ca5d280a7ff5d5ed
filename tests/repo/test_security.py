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


# The functions that open files beside those of netdoctor/files.py, and what these files are. What others may
# have written, or put a link in the place of, is opened there.
OWN_DATA = "files of the package"
KERNEL = "/proc, /sys or /dev"
OPENS = {
    "netdoctor/cli/__init__.py": ("_drop_stdout _replace_closed", KERNEL),
    "netdoctor/cli/expect.py": ("_create", "made new (x)"),
    "netdoctor/engine/registry.py": ("collectors", "of plug-ins; of --checks-dir after require_own"),
    "netdoctor/explain/glossary/__init__.py": ("entries", OWN_DATA),
    "netdoctor/explain/knowledge.py": ("load", OWN_DATA),
    "netdoctor/explain/reading.py": ("_opened", "logs, which steer nothing"),
    "netdoctor/launch/folder.py": ("_put _replaces _sums", "a plan, replaced where its sums are right"),
    "netdoctor/measure/gpu_work.py": ("program", OWN_DATA),
    "netdoctor/measure/imports.py": ("program", OWN_DATA),
    "netdoctor/measure/ranks.py": ("program", OWN_DATA),
    "netdoctor/report/formats/html.py": ("render", OWN_DATA),
    "netdoctor/trial/logs.py": ("_append", "in a folder that it made new, without links"),
    "netdoctor/trial/running.py": ("_start", OWN_DATA),
    "netdoctor/report/save.py": ("_append _replace own_folder", "by descriptors of folders, without links"),
    "netdoctor/report/schema.py": ("report_schema_text", OWN_DATA),
    "netdoctor/tables.py": ("table", OWN_DATA),
    "netdoctor/explain/literals.py": ("_letters_table", OWN_DATA),
    "netdoctor/transport/bundle.py": ("_source", OWN_DATA),
    "netdoctor/transport/here.py": ("_is_up _routed", KERNEL),
    "netdoctor/transport/provide.py": ("_encode", OWN_DATA),
    "netdoctor/transport/ray/ray_driver.py": ("environment", KERNEL),
    "netdoctor/transport/ray/raycluster.py": ("_raylet", KERNEL),
    "netdoctor/transport/ray/rayhelper.py": (
        "__init__ interpreter",
        "Ray's program, and a file of the package",
    ),
    "netdoctor/transport/ssh/knownhosts.py": ("add", "the user's known_hosts"),
    "netdoctor/transport/ssh/login.py": ("_handshake", "a connection, and no file"),
    "netdoctor/transport/ssh/transport.py": ("_scratch_file", KERNEL),
}
OPEN = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}


def _opens(node: ast.AST, function: str = "") -> Iterator[str]:
    """The innermost function around each call that opens a file."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.Call):
            name = one.func.id if isinstance(one.func, ast.Name) else getattr(one.func, "attr", "")
            if name in OPEN:
                yield function
        yield from _opens(one, one.name if isinstance(one, ast.FunctionDef) else function)


def test_files_that_others_may_have_written_are_opened_in_one_place() -> None:
    found = {
        place: functions
        for folder in ("netdoctor", "checks", "tui")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not (place := path.relative_to(ROOT).as_posix()).startswith((*ELSEWHERE, "netdoctor/files.py"))
        and (functions := set(_opens(parsed(path))))
    }
    assert found == {place: set(functions.split()) for place, (functions, _) in OPENS.items()}
