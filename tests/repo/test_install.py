"""Every way to install that docs/install.md names ends in a netdoctor that runs, under each Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.harness import interpreters
from tests.repo.wheels import ROOT, copy_sources, download, once, pip

pytestmark = pytest.mark.interpreters

PAGE = (ROOT / "docs" / "install.md").read_text("utf-8")
WAYS, MAKE_WHEELS, OFFLINE = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:3]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


class Machine:
    """A home directory with nothing in it, one Python, and packages in place of an index."""

    def __init__(self, folder: Path, python: str, packages: Path, tools: Path) -> None:
        self.folder = folder
        for name in ("bin", "home"):
            (folder / name).mkdir()
        (folder / "bin" / "python3").symlink_to(python)
        for tool in ("pipx", "uv"):
            (folder / "bin" / tool).symlink_to(tools / "bin" / tool)
        self.sources = copy_sources(folder / "netdoctor")
        self.environment = {
            "HOME": str(folder / "home"),
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            # Nothing else is to be had: from an index, or from this machine's settings.
            "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(packages), "PIP_NO_INDEX": "1",
            "UV_FIND_LINKS": str(packages), "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never",
            "PIPX_DEFAULT_PYTHON": python, "UV_PYTHON": python,
            # Only what runs is compiled, a third of the time.
            "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }  # fmt: skip

    def run(self, line: str) -> str:
        argv = ["sh", "-euc", line]
        done = subprocess.run(
            argv, cwd=self.sources, env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def check(self, netdoctor: str) -> None:
        """What is installed starts and finds its parts, and a worker of its own."""
        assert self.run(f"{netdoctor} --version").startswith("netdoctor ")
        assert "gloo.ifname" in self.run(f"{netdoctor} checks list")
        assert "would log in to 2 nodes" in self.run(f"{netdoctor} scan 'node[1-2]' --plan")


def make_tools(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = pip(f"{folder}/bin/python", "install", "--quiet", "pipx", "uv")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "version", [PYTHONS[0], *(pytest.param(one, marks=pytest.mark.weekly) for one in PYTHONS[1:])]
)
def test_every_documented_way_installs_a_netdoctor_that_runs(
    version: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """The first one and that without an index; with --weekly all of them."""
    python = interpreters().get(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    packages = download(python, tmp_path / "packages")
    machine = Machine(tmp_path, python, packages, once(tmp_path_factory, "tools", make_tools))
    for way in WAYS.splitlines()[: None if request.config.getoption("--weekly") else 1]:
        machine.run(way)
        machine.check("~/netdoctor/bin/netdoctor" if "venv" in way else "~/.local/bin/netdoctor")
        machine.run("rm -rf ~/netdoctor ~/.local")
    machine.run(MAKE_WHEELS)
    machine.environment["PIP_FIND_LINKS"] = ""
    machine.run(OFFLINE)
    machine.check("~/netdoctor/bin/netdoctor")


def test_readme_names_the_same_ways() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [way for way in WAYS.splitlines() if way.partition("  ")[0] not in readme] == []
