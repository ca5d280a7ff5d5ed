"""The example plug-in, installed: its check is listed, its collector runs in the agent, its fact judged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "netdoctor-example-plugin"

# Runs where the plug-in is installed: a scan of one node, which is this machine behind a local agent.
SCAN = """
import json
from netdoctor.engine import registry
from netdoctor.check import Profile
from netdoctor.engine.run import Options, Scan
from netdoctor.facts.software import Job
from netdoctor.inventory import Target
from netdoctor.transport.base import Limits
from netdoctor.transport.local import LocalTransport

known = registry.load()
checks = registry.select(known.checks, Profile.QUICK, only=["site.scratch"])
scan = Scan([Target(id="n0", host="n0")], checks, Job(), Options(profile=Profile.QUICK))
outcome = scan.run(LocalTransport(Limits()))
said = outcome.judgement
print(json.dumps({
    "status": said.cells["site.scratch"]["n0"],
    "summary": [f.summary for f in said.findings.get("site.scratch", [])],
    "reason": said.reasons.get("site.scratch"),
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in installed as pip installs it, entry points included."""
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    target = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*install, "--target", str(target), str(source)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode and "setuptools>=" in done.stderr:
        pytest.skip("no package index to get setuptools from")
    assert done.returncode == 0, done.stderr
    return target


def python(*arguments: str, path: Path | None = None, **environment: str) -> str:
    """Standard output of a Python with `path` and this checkout importable."""
    search = os.pathsep.join(str(folder) for folder in (path, ROOT) if folder is not None)
    done = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        env={**os.environ, "PYTHONPATH": search, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scan(site: Path, scratch: Path) -> Any:
    return json.loads(python("-c", SCAN, path=site, SCRATCH=str(scratch)))


def test_installed_check_is_listed(site: Path) -> None:
    assert "site.scratch" in python("-m", "netdoctor", "checks", "list", path=site)


def test_not_listed_where_it_is_not_installed() -> None:
    assert "site.scratch" not in python("-m", "netdoctor", "checks", "list")


def test_docstring_is_its_manual(site: Path) -> None:
    page = python("-m", "netdoctor", "checks", "explain", "site.scratch", path=site)
    assert "Every node has a scratch folder" in page


def test_missing_folder_is_found_on_the_node(site: Path, tmp_path: Path) -> None:
    result = scan(site, tmp_path / "nowhere")
    assert result["status"] == "fail", result
    assert result["summary"] == [f"{tmp_path}/nowhere does not exist"]


def test_free_space_is_measured_on_the_node(site: Path, tmp_path: Path) -> None:
    result = scan(site, tmp_path)
    enough = shutil.disk_usage(tmp_path).free >= 100 * 10**9
    assert result["status"] == ("pass" if enough else "fail"), result


def test_loose_folder_does_the_same(tmp_path: Path) -> None:
    for name in ("site_scratch.py", "collector.py"):
        shutil.copy(EXAMPLE / "netdoctor_example" / name, tmp_path / name)
    listed = python("-m", "netdoctor", "checks", "list", "--checks-dir", str(tmp_path))
    assert "site.scratch" in listed
