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

# Runs where the plug-in is installed: a scan of nodes that are all this machine, each behind its own agent.
SCAN = """
import json, sys
from netdoctor.engine import registry
from netdoctor.check import Profile
from netdoctor.engine.run import Options, Scan
from netdoctor.facts.software import Job
from netdoctor.inventory import Target
from netdoctor.store import dump
from netdoctor.transport.base import Limits
from netdoctor.transport.local import LocalTransport

check, count = sys.argv[1], int(sys.argv[2])
known = registry.load()
checks = registry.select(known.checks, Profile.FULL, only=[check])
targets = [Target(id=f"n{i}", host=f"n{i}", order=i) for i in range(count)]
scan = Scan(targets, checks, Job(env={"NCCL_SOCKET_IFNAME": "lo"}), Options())
outcome = scan.run(LocalTransport(Limits()))
said = outcome.judgement
print(json.dumps({
    "cells": said.cells[check],
    "summary": [f.summary for f in said.findings.get(check, [])],
    "reasons": said.reasons.get(check),
    "tracebacks": said.tracebacks,
    "plan": [step.experiment.name for step in scan.plan],
    "facts": dump(outcome.store)["cluster"],
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in installed as pip installs it, entry points included."""
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    target = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
    install += ["--no-build-isolation", "--no-compile"]
    done = subprocess.run(
        [*install, "--target", str(target), str(source)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
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


def scan(site: Path, check: str, nodes: int = 1, **environment: str) -> Any:
    return json.loads(python("-c", SCAN, check, str(nodes), path=site, **environment))


def test_installed_checks_are_listed(site: Path) -> None:
    listed = python("-m", "netdoctor", "checks", "list", path=site)
    assert "site.scratch" in listed
    assert "site.burst" in listed


def test_not_listed_where_it_is_not_installed() -> None:
    assert "site." not in python("-m", "netdoctor", "checks", "list")


def test_docstring_is_its_manual(site: Path) -> None:
    page = python("-m", "netdoctor", "checks", "explain", "site.scratch", path=site)
    assert "Every node has a scratch folder" in page


def test_missing_folder_is_found_on_the_node(site: Path, tmp_path: Path) -> None:
    result = scan(site, "site.scratch", SCRATCH=f"{tmp_path}/nowhere")
    assert result["cells"] == {"n0": "fail"}, result
    assert result["summary"] == [f"{tmp_path}/nowhere does not exist"]


def test_free_space_is_measured_on_the_node(site: Path, tmp_path: Path) -> None:
    result = scan(site, "site.scratch", SCRATCH=str(tmp_path))
    enough = shutil.disk_usage(tmp_path).free >= 100 * 10**9
    assert result["cells"] == {"n0": "pass" if enough else "fail"}, result


def test_the_experiment_measures_between_nodes(site: Path) -> None:
    result = scan(site, "site.burst", 2)
    assert result["plan"] == ["bursts"]
    assert result["tracebacks"] == []
    found = result["facts"]["site_bursts"]["value"]
    assert found["failed_nodes"] == {}
    assert [(b["src"], b["dst"], b["sent"]) for b in found["bursts"]] == [
        ("n0", "n1", 200),
        ("n1", "n0", 200),
    ]
    whole = all(b["arrived"] == b["sent"] for b in found["bursts"])
    assert set(result["cells"].values()) == {"pass" if whole else "warn"}, result


def test_the_experiment_is_planned(site: Path) -> None:
    plan = python("-m", "netdoctor", "scan", "n[1-3]", "--only", "site.burst", "--plan", path=site)
    assert "Every node sends each other one 200 small packets" in plan


def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    python(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(EXAMPLE / "tests"),
        path=site,
    )


def test_loose_folder_does_the_same(tmp_path: Path) -> None:
    for name in ("site_scratch.py", "site_burst.py", "collector.py"):
        shutil.copy(EXAMPLE / "netdoctor_example" / name, tmp_path / name)
    listed = python("-m", "netdoctor", "checks", "list", "--checks-dir", str(tmp_path))
    assert "site.scratch" in listed
    assert "site.burst" in listed
