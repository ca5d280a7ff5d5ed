"""What an installation needs of a package index, and sources to install from."""

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What `pip install` reads, and the image; the rest of a checkout stays out of the way.
BUILD_INPUTS = ("LICENSE", "README.md", "pyproject.toml", "requirements.lock")


def copy_sources(to: Path) -> Path:
    """Copy what a wheel is built from, so that no build folder is left in the checkout."""
    to.mkdir(parents=True)
    for name in BUILD_INPUTS:
        shutil.copy(ROOT / name, to / name)
    for name in ("netdoctor", "checks", "tui"):
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return to


def once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` filled, one for all workers of this run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def pip(python: str, *argv: str | Path) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "--disable-pip-version-check", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@functools.cache
def _index_error(python: str) -> str:
    asked = pip(python, "--retries", "0", "--timeout", "20", "index", "versions", "pip")
    return asked.stderr.strip() if asked.returncode else ""


def download(python: str, folder: Path) -> Path:
    """Get what the lock names for this Python, and what builds and installs it. Skips without an index."""
    if error := _index_error(python):
        pytest.skip(f"no package index is reached: {error[-200:]}")
    for what in (("--require-hashes", "-r", ROOT / "requirements.lock"), ("pip", "setuptools>=77")):
        done = pip(python, "download", "--quiet", "-d", folder, *what)
        assert done.returncode == 0, done.stderr
    return folder
