"""What the repository promises about the TUI: light commands, screenshots that are drawn, true docs."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from netdoctor.tui.keys import ACTIONS, spelled

ROOT = Path(__file__).parents[2]
PURE = (
    "compare",
    "events",
    "export",
    "frame",
    "keys",
    "layout",
    "lines",
    "nodes",
    "pages",
    "pairs",
    "query",
    "rows",
    "runner",
    "square",
    "state",
    "where",
)


def modules(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize("name", ["netdoctor.cli", "netdoctor.cli.tui", "netdoctor.cli.scan"])
def test_commands_load_no_textual(name: str) -> None:
    assert not modules(f"import {name}") & {"textual", "rich", "asyncio"}


def test_what_the_tui_knows_loads_no_textual() -> None:
    program = "\n".join(f"import netdoctor.tui.{name}" for name in PURE)
    assert "textual" not in modules(program)


def test_screenshots_are_drawn_and_current_in_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "screenshots.py"), "--to", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.glob("*.svg")}
    assert made == {path.name for path in (ROOT / "docs" / "screens").glob("*.svg")}
    text = (tmp_path / "causes.svg").read_text("utf-8")
    assert "drops&#160;connections" in text
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)


def test_docs_show_every_screenshot_and_every_key() -> None:
    page = (ROOT / "docs" / "tui.md").read_text("utf-8")
    for path in (ROOT / "docs" / "screens").glob("*.svg"):
        assert f"screens/{path.name}" in page
    for action in ACTIONS:
        if action.keys:
            assert f"| `{spelled(action.keys[:1])}" in page, action.id


def test_benchmark_runs(tmp_path: Path) -> None:
    assert importlib.util.find_spec("textual")
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks" / "tui.py"),
            "--nodes",
            "50",
            "--seconds",
            "0.5",
            "--rate",
            "500",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "first full paint" in done.stdout
    assert "p99" in done.stdout
