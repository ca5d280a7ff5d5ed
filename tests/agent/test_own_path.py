"""Where an agent, which starts without `site`, finds what is installed: as the interpreter itself would."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdoctor.facts.software import PythonStart
from netdoctor.transport import bundle
from tests.agent import harness, trees
from tests.agent.test_bootstrap import PYTHONS, SUPPORTED

INTERPRETERS = {**{version: PYTHONS.get(version, "") for version in SUPPORTED}, "system": "/usr/bin/python3"}
ASK = "import json, os, sys; p = filter(os.path.exists, sys.path); print(json.dumps([sys.prefix, *p]))"
RAN = "import os; open(os.path.join({folder!r}, {name!r}), 'w').close()\n"


def plain(python: str, folder: Path) -> str:
    return python


def venv(python: str, folder: Path, *options: str) -> str:
    subprocess.run([python, "-m", "venv", "--without-pip", *options, f"{folder}/env"], check=True)
    return f"{folder}/env/bin/python"


def open_venv(python: str, folder: Path) -> str:
    return venv(python, folder, "--system-site-packages")


def moved(python: str, folder: Path) -> str:
    """A prefix of its own around the same library, as conda's environments are."""
    home = Path(os.path.realpath(python)).parents[1]
    name = Path(os.path.realpath(python)).name
    if not (home / "lib" / name / "os.py").exists() or home == Path("/usr"):
        pytest.skip("a library elsewhere")
    (folder / "env/bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(python), folder / "env/bin/python3")
    shutil.copytree(home / "lib" / name, folder / "env/lib" / name, symlinks=True, ignore=_not_needed)
    return f"{folder}/env/bin/python3"


def _not_needed(folder: str, names: list[str]) -> set[str]:
    return {"site-packages", "test", "idlelib", "lib2to3", "ensurepip", "__pycache__"} & set(names)


def install(packages: Path, folder: Path) -> None:
    """What installers leave in site-packages: paths, code that changes none, and code that does."""
    finder = "__editable___own_1_0_finder"
    trees.make(
        packages,
        {
            "__editable__.own-1.0.pth": f"import {finder}; {finder}.install()",
            f"{finder}.py": RAN.format(folder=str(folder), name="finder") + "def install(): pass\n",
            "distutils-precedence.pth": "import os; var = 'SETUPTOOLS_USE_DISTUTILS'\n",
            "easy-install.pth": f"# eggs\n\n./One-1.0.egg\n{folder}/source\n/nowhere\n",
            "late.pth": f"import sys; sys.path.insert(0, {str(folder / 'first')!r})\n",
            "n-nspkg.pth": "import sys, types, os;has_mfs = sys._getframe(1).f_locals['sitedir']\n",
            "t.pth": "import sys; sys.path.append(sys._getframe(1).f_locals['sitedir'] + '/../by-frame')\n",
            "../by-frame": None,
            "One-1.0.egg/EGG-INFO/PKG-INFO": "Version: 1.0\n",
            "own-1.0.dist-info/METADATA": "Version: 1.0\n",
            "sitecustomize.py": f"import sys; sys.path.append({str(folder / 'custom')!r})\n",
        },
    )
    trees.make(folder, dict.fromkeys(("source", "first", "custom")))
    trees.make(folder, {"custom/custom-2.dist-info/METADATA": "Version: 2\n"})


def facts(python: str, *, whole: bool, **options: Any) -> Any:
    """What group software says; whole: of an agent that starts with `site`."""
    asked = {"packages": ["own", "one", "custom", "absent"]}
    start = bundle.FLAGS
    try:
        if whole:
            bundle.FLAGS = tuple(flag for flag in start if flag != "-S")
        with harness.agent(python, **options) as agent:
            return agent.facts(software=asked)["software"]["value"]
    finally:
        bundle.FLAGS = start


def packages_of(python: str) -> Path:
    code = "import site; print(site.getsitepackages()[0])"
    done = subprocess.run([python, "-E", "-s", "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


LAYOUTS = [plain, venv, open_venv, moved]


@pytest.mark.interpreters
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", INTERPRETERS)
def test_software_is_that_of_a_whole_start(
    version: str, layout: Callable[[str, Path], str], tmp_path: Path
) -> None:
    if not Path(INTERPRETERS[version] or "/none").exists():
        pytest.skip(f"no Python {version} on this machine")
    compare(layout(INTERPRETERS[version], tmp_path), tmp_path, ours=layout is not plain)


def test_software_is_that_of_a_whole_start_here(tmp_path: Path) -> None:
    compare(venv(sys.executable, tmp_path), tmp_path, ours=True)


def test_plug_ins_may_import_what_is_installed(tmp_path: Path) -> None:
    """Also what only a line that changes no path makes importable."""
    python = venv(sys.executable, tmp_path)
    packages = packages_of(python)
    install(packages, tmp_path)
    look = "import sys\ndef collect(args): return {'found': '__editable___own_1_0_finder' in sys.modules}"
    with harness.agent(python, collectors={"look": look}) as agent:
        assert agent.facts(look={})["look"]["value"] == {"found": True}
    assert (tmp_path / "finder").exists()


def compare(python: str, folder: Path, ours: bool) -> None:
    if ours:
        packages = packages_of(python)
        packages.mkdir(parents=True, exist_ok=True)
        install(packages, folder)
    env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    prefix, *path = json.loads(
        subprocess.run(
            [python, "-E", "-s", "-c", ASK], capture_output=True, text=True, check=True, env=env, cwd="/"
        ).stdout
    )
    whole = facts(python, whole=True, env=env)
    found = facts(python, whole=False, env=env)
    assert found == whole
    assert (found["prefix"], found["search_path"]) == (prefix, list(dict.fromkeys(path)))
    if ours:
        # Debian's own sitecustomize goes before that of an environment.
        custom = "2" if str(folder / "custom") in path else None
        assert found["packages"] == {"own": "1.0", "one": "1.0", "custom": custom, "absent": None}
        assert str(folder / "first") == found["search_path"][0]


ENDS = {
    "SystemExit": ("sitecustomize.py", "raise SystemExit(3)\n", 1, "SystemExit: 3"),
    "words": ("sitecustomize.py", "raise SystemExit('no licence')\n", 1, "SystemExit: no licence"),
    "_exit": ("a.pth", "import os; print('token=abc', flush=True); os._exit(5)\n", 5, "token=***"),
    "signal": ("a.pth", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n", -11, ""),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_start_that_ends_early_is_told_and_the_agent_lives_on(how: str, tmp_path: Path) -> None:
    """Also for the library that a plug-in or pynvml would be taken from."""
    name, text, code, words = ENDS[how]
    python = venv(sys.executable, tmp_path)
    trees.make(packages_of(python), {name: text})
    look = "from ndagent import runtime\ndef collect(args): return {'psutil': runtime.library('psutil')}"
    with harness.agent(python, collectors={"look": look}) as agent:
        found = agent.facts(python_start={}, software={}, look={}, limits={})
    start = msgspec.convert(found["python_start"]["value"], type=PythonStart)
    assert (start.starts, start.code, start.said) == (False, code, words)
    assert found["software"]["missing"]["why"] == "failed"
    assert found["software"]["missing"]["detail"] == f"{python} does not start"
    assert found["look"]["missing"]["why"] == "failed"
    assert "value" in found["limits"]


def test_variables_of_the_job_count(tmp_path: Path) -> None:
    trees.make(tmp_path, {"sitecustomize.py": "raise SystemExit(4)\n", "good/x-1.dist-info/METADATA": ""})
    with harness.agent(venv(sys.executable, tmp_path), cwd=tmp_path) as agent:
        assert agent.facts(python_start={})["python_start"]["value"]["starts"]
        assert (
            agent.facts(python_start={"env": {"PYTHONPATH": "."}})["python_start"]["value"]["said"]
            == "SystemExit: 4"
        )
        found = agent.facts(software={"packages": ["x"], "env": {"PYTHONPATH": "good"}})["software"]["value"]
    assert found["packages"] == {"x": "1"}


@pytest.mark.process
def test_a_start_that_never_ends_is_held_against_a_bare_one(tmp_path: Path) -> None:
    python = venv(sys.executable, tmp_path)
    trees.make(packages_of(python), {"sitecustomize.py": "import os; os.execlp('sleep', 'sleep', '1000')\n"})
    with harness.agent(python) as agent:
        start = msgspec.convert(agent.facts(python_start={})["python_start"]["value"], type=PythonStart)
    assert (start.starts, start.code) == (False, None)
    assert start.seconds > 5
    assert start.bare_s is not None
    assert start.bare_s < 1
