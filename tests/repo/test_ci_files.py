"""What CI systems read of this repository: as their schemas have it, and run."""

import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.scan.test_launch_pages import blocks

REPO = Path(__file__).resolve().parents[2]
SCHEMAS = REPO / "tests" / "data" / "schemas"
BROKEN = "#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun --nnodes=4 train.py\n"


def document(name: str) -> Any:
    """A file of this repository, or one that docs/launch/ci.md tells to make."""
    page = {block.name: block.text for block in blocks("ci.md") if block.name}
    found = yaml.safe_load(page[name] if name in page else (REPO / name).read_text("utf-8"))
    # YAML 1.1 reads the key ``on`` as true.
    return {"on" if key is True else key: value for key, value in found.items()} if name in page else found


@cache
def schema(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads((SCHEMAS / f"{name}.json").read_text("utf-8")))


@pytest.mark.parametrize(
    ("name", "published"),
    [
        (".github/workflows/preflight.yml", "github-workflow"),
        ("action.yml", "github-action"),
        (".pre-commit-hooks.yaml", "pre-commit-hooks"),
    ],
)
def test_files_for_ci_are_as_their_published_schema_has_it(name: str, published: str) -> None:
    found = document(name)
    schema(published).validate(found)
    wrong = [{**found[0], "files": 1}] if isinstance(found, list) else {**found, "jobs": [], "runs": []}
    assert not schema(published).is_valid(wrong)


def test_the_pages_name_inputs_and_hooks_that_there_are() -> None:
    jobs = document(".github/workflows/preflight.yml")["jobs"].values()
    ours = [step for job in jobs for step in job["steps"] if "/netdoctor@" in step.get("uses", "")]
    assert len(ours) == len(jobs), "each job installs netdoctor"
    inputs = {name for step in ours for name in step.get("with", {})}
    assert inputs == {"files", "sarif"} <= set(document("action.yml")["inputs"])
    (repo,) = document(".pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in repo["hooks"]] == [
        hook["id"] for hook in document(".pre-commit-hooks.yaml")
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a job is checked out, with one script that is right and one that is not."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "netdoctor"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m netdoctor "$@"\n')
    command.chmod(0o755)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "broken.sbatch").write_text(BROKEN)
    (tmp_path / "jobs" / "right.sh").write_text("#!/bin/bash\necho started\n")
    return tmp_path


def run_action(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """The action's last step, as GitHub runs it with these inputs."""
    action = document("action.yml")
    inputs = {name: one["default"] for name, one in action["inputs"].items()}
    inputs |= {name.replace("_", "-"): value for name, value in given.items()}
    step = action["runs"]["steps"][-1]
    env = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)
        for name, value in step["env"].items()
    }
    assert "${{" not in step["run"], "no input is read as shell"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(REPO), **env},
        capture_output=True,
        text=True,
    )


def test_the_action_fails_for_findings_and_writes_them_for_code_scanning(folder: Path) -> None:
    done = run_action(folder, files="jobs/*", sarif="lint.sarif")
    assert done.returncode == 1, done.stderr
    assert "::error file=jobs/broken.sbatch,line=3," in done.stdout
    found = json.loads((folder / "lint.sarif").read_text())["runs"][0]["results"]
    paths = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in found}
    assert paths == {"jobs/broken.sbatch"}
    assert run_action(folder, files="jobs/*", fail_on="never").returncode == 0
    assert run_action(folder, files="jobs/right.sh").returncode == 0


@pytest.mark.parametrize("files", ["$(touch owned)", "; touch owned", "`touch owned`", "--list"])
def test_names_of_files_are_neither_shell_nor_options(files: str, folder: Path) -> None:
    assert run_action(folder, files=files).returncode == 2
    assert not (folder / "owned").exists()


def test_the_hook_takes_launch_scripts_and_fails_for_findings(folder: Path) -> None:
    (hook,) = document(".pre-commit-hooks.yaml")
    listed = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    taken = sorted(name for name in listed if re.search(hook["files"], name))
    assert taken == ["jobs/broken.sbatch", "jobs/right.sh"]
    argv = [str(folder / "bin" / "netdoctor"), *shlex.split(hook["entry"])[1:], *taken]
    done = subprocess.run(
        argv, cwd=folder, env={**os.environ, "PYTHONPATH": str(REPO)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "jobs/broken.sbatch:3:" in done.stdout
    assert done.stdout.rstrip().endswith("in 2 files")
