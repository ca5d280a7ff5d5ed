"""CONTRIBUTING's walk-through: patches that add a check, a fact, an option and a format, and their tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = {path.stem: path for path in (Path(__file__).parent / "newcomer").glob("*.patch")}
# Beside the tests that a patch brings: those that hold what it joins.
SUITES = {
    "check": ("tests/checks/host", "tests/repo/test_docs.py"),
    "fact": ("tests/agent/test_bootstrap.py", "tests/repo/test_docs.py"),
    "option": (
        *("tests/core/test_options.py", "tests/core/test_parser.py", "tests/core/test_jobenv.py"),
        *("tests/scanning/test_replay.py", "tests/scanning/test_again.py", "tests/repo/test_docs.py"),
    ),
    "format": ("tests/report/test_files.py", "tests/report/test_hostile.py", "tests/report/test_foreign.py"),
}


def touched(patch: Path) -> list[str]:
    return re.findall(r"^diff --git a/(\S+) b/\1$", patch.read_text("utf-8"), re.MULTILINE)


def named(what: str) -> list[str]:
    """The files that CONTRIBUTING names for it, as patterns."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    found = re.search(rf"^## Add an? {what}\n\nFiles: (.+)$", text, re.MULTILINE)
    assert found is not None
    return re.findall(r"`([^`]+)`", found[1])


def matches(file: str, pattern: str) -> bool:
    return re.fullmatch(re.sub(r"<\w+>", r"[a-z_]+", re.escape(pattern)), file) is not None


def test_there_is_a_patch_for_each() -> None:
    assert PATCHES.keys() == SUITES.keys()


@pytest.mark.parametrize("what", SUITES)
def test_a_patch_touches_the_files_that_are_named_and_no_other(what: str) -> None:
    files, patterns = touched(PATCHES[what]), named(what)
    assert [one for one in files if not any(matches(one, pattern) for pattern in patterns)] == []
    assert [one for one in patterns if not any(matches(file, one) for file in files)] == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """All that git tracks, elsewhere."""
    known = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in known.decode().split("\0")[:-1]:
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name, follow_symlinks=False)
    return tmp_path


@pytest.mark.process
@pytest.mark.skipif(shutil.which("git") is None, reason="no git on this machine")
@pytest.mark.parametrize(
    "what",
    [pytest.param(one, marks=pytest.mark.weekly if one in ("format", "option") else ()) for one in SUITES],
)
def test_the_suite_of_a_patch_holds(what: str, checkout: Path) -> None:
    def run(*argv: str) -> None:
        environ = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(argv, cwd=checkout, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"

    run("git", "apply", str(PATCHES[what]))
    run(sys.executable, "scripts/gen_docs.py")
    own = [file for file in touched(PATCHES[what]) if Path(file).name.startswith("test_")]
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *dict.fromkeys([*own, *SUITES[what]]))
