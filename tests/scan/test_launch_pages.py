"""docs/launch/: what a user would copy from there, run as it stands, on the nodes of a lab."""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from netdoctor.lab import Lab
from netdoctor.report.formats.json_ import loads
from tests.inventory.test_readers import PODS
from tests.report import strict
from tests.scan.harness import REPO, environment, shell, shell_parts

PAGES = REPO / "docs" / "launch"
# Pages with a test of their own, which runs every block of theirs.
APART = ("slurm.md", "slurm-prolog.md", "kubernetes-npd.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """kind: the word behind the fence; name: the file that it is; left: why it is not executed."""

    kind: str
    text: str
    name: str
    left: str


def blocks(page: str) -> list[Block]:
    text = (PAGES / page).read_text("utf-8")
    found, start = [], 0
    for match in BLOCK.finditer(text):
        before = text[start : match.start()].rstrip().rpartition("\n\n")[2]
        named = re.search(r"`(\S+)`:$", before)
        left = before if before.startswith("Not executed here") else ""
        found.append(Block(match[1], match[2], named[1] if named else "", left))
        start = match.end()
    return found


def executed(page: str) -> list[str]:
    return [block.text for block in blocks(page) if block.kind == "sh" and not block.left]


def test_every_block_is_executed_or_says_why_not() -> None:
    pages = {path.name for path in PAGES.glob("*.md")} - {*APART}
    assert pages == {"ci.md", "deepspeed.md", "docker.md", "kubernetes.md", "ray.md"}
    for page in pages:
        for block in blocks(page):
            assert block.kind == "sh" or (block.kind in ("yaml", "dockerfile") and block.name), (page, block)
    left = {page: sum(bool(block.left) for block in blocks(page)) for page in pages}
    assert left == {"ci.md": 0, "deepspeed.md": 1, "docker.md": 1, "kubernetes.md": 3, "ray.md": 1}


def test_what_is_copied_from_the_pages_works(lab4: Lab, folder: Path) -> None:
    shutil.copy(lab4.hosts_file, folder / "hosts.txt")
    (folder / "jobs").mkdir()
    script = "netdoctor plan hosts.txt --launcher sbatch --nproc 8 --script train.py > jobs/train.sbatch"

    found = {block.name: yaml.safe_load(block.text) for block in blocks("ci.md") if block.name}
    jobs = found[".github/workflows/preflight.yml"]["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    gitlab = found[".gitlab-ci.yml"]["preflight"]
    keys, differ = executed("ci.md")
    keys += 'export GITHUB_STEP_SUMMARY="$PWD/step.md"\n'
    github, summary, linted, short, good, diff = shell_parts(
        folder, lab4, [script, keys, *steps, *gitlab["script"], differ]
    )[2:]
    assert "::error" not in github
    assert "READY" in github
    assert (summary, (folder / "step.md").read_text()[:8]) == ("", "## READY")
    assert (folder / "known_hosts").read_text().count("ssh-ed25519") >= 4
    assert strict.sarif((folder / "scan.sarif").read_bytes())["results"] == []
    assert linted.endswith("in 1 file")
    assert short.startswith("READY") or not short
    assert (good, (folder / "good.txt").read_text()) == ("", "node[0-3]\n")
    assert loads((folder / "report.json").read_bytes()).verdict.state == "ready"
    assert "failure" not in strict.junit((folder / "junit.xml").read_text()).values()
    assert all((folder / name).is_file() for name in gitlab["artifacts"]["paths"])
    assert diff

    scanned, ssh, planned = shell_parts(folder, lab4, executed("deepspeed.md"))
    assert scanned.startswith("READY")
    assert (folder / "hostfile").read_text() == "".join(f"node{i} slots=8\n" for i in range(4))
    assert ssh.startswith("Host node0")
    assert planned.endswith("no findings in 3 files")

    cluster, shown = shell_parts(folder, lab4, executed("ray.md"))
    assert "error" not in cluster.partition("lint")[2]
    assert len(list((folder / "cluster").glob("[0-9]*.sh"))) == 4
    assert shown.startswith("hosts.yaml: Ray cluster file, 4 hosts")

    (folder / "pods.json").write_text(json.dumps(PODS))
    pods, job = shell_parts(folder, lab4, executed("kubernetes.md"))
    assert [line.split()[1] for line in pods.splitlines()[-3:]] == ["w-0", "w-2", "w-10"]
    assert job.splitlines()[-1].startswith("no findings")


def installed(lab: Lab) -> list[str]:
    """A netdoctor that lab nodes see: they hide /tmp, /run and home directories."""
    named = os.environ.get("NETDOCTOR_TEST_INSTALLED")
    argv = [named] if named else [sys.executable, "-m", "netdoctor"]
    if lab.run("node0", [*argv, "--version"], env=environment(), capture_output=True).returncode:
        pytest.skip(f"lab nodes do not see {argv[0]}; NETDOCTOR_TEST_INSTALLED can name one that they see")
    return argv


def test_a_node_goes_back_to_service_when_a_test_says_so(lab4: Lab, folder: Path) -> None:
    plugin, back = executed("kubernetes-npd.md")
    assert re.search(r"^(CHECKED|host\.)", shell_parts(folder, lab4, [plugin])[0])
    text = f'kubectl() {{ echo "kubectl $*"; }}\nset -- node2 node1\n{back}'
    env = {"NETDOCTOR_SSH_CONFIG": str(lab4.ssh_config)}
    lab4.break_("node2", "drop")
    done = shell(folder, text, **env)
    assert (done.returncode, "kubectl" in done.stdout) == (1, False), done.stdout
    assert "node2 stays out: exit 1" in done.stdout
    lab4.heal()
    done = shell(folder, text, **env)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "kubectl uncordon node2"), done.stdout


def test_what_a_container_runs_starts_its_command(lab4: Lab, folder: Path) -> None:
    for block in blocks("docker.md"):
        if block.name:
            (folder / block.name).write_text(block.text)
    linted, shown = shell_parts(folder, lab4, executed("docker.md"))
    assert linted == "no findings in 2 files"
    assert "4 names" in shown
    words = re.search(r"^ENTRYPOINT (.*)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
    assert words
    pod = yaml.safe_load(next(block.text for block in blocks("kubernetes.md") if block.name))
    preflight = pod["initContainers"][0]["command"]
    for argv, said in (
        (
            [*json.loads(words[1]), "sh", "-c", "echo started as $1; exit 42", "sh", "it is"],
            (42, "started as it is\n"),
        ),
        (preflight, (0, "")),
    ):
        assert argv[0] == "netdoctor"
        command = [*installed(lab4), *argv[1:]]
        done = lab4.run("node0", command, env=environment(), capture_output=True, text=True)
        assert (done.returncode, done.stdout if said[0] else "") == said, done.stderr
