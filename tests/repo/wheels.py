"""What an installation needs, from a package index, once for all that install from it."""

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What `pip install` reads; the rest of a checkout stays out of the way.
BUILD_INPUTS = ("LICENSE", "README.md", "pyproject.toml")


def copy_sources(to: Path) -> Path:
    """Copy what a wheel is built from, so that no build folder is left in the checkout."""
    to.mkdir(parents=True)
    for name in BUILD_INPUTS:
        shutil.copy(ROOT / name, to / name)
    for name in ("netdoctor", "checks", "tui"):
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return to


def pip(python: str, *argv: str | Path) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "--disable-pip-version-check", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@functools.cache
def _index_error(python: str) -> str:
    asked = pip(python, "--retries", "0", "--timeout", "20", "index", "versions", "packaging")
    return asked.stderr.strip() if asked.returncode else ""


def wheelhouse(python: str, folder: Path) -> Path:
    """Make the folder of docs/install.md, "Without a network", for this Python. Skips without an index."""
    if error := _index_error(python):
        pytest.skip(f"no package index is reached: {error[-200:]}")
    done = pip(python, "wheel", "--quiet", "-w", folder / "wheelhouse", copy_sources(folder / "source"))
    assert done.returncode == 0, done.stderr
    return folder / "wheelhouse"
