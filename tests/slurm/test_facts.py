"""docs/engines.md: facts files, by its blocks as they stand there, written by tasks on lab nodes."""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdoctor.scanning.factfile import SUFFIX
from tests.scan.faults import put
from tests.scan.harness import REPO, environment, shell
from tests.scan.test_launch_pages import Block, blocks
from tests.slurm.conftest import Slurm
from tests.transport.conftest import free_port

PAGE = "../engines.md"
NODES = ["node0", "node1", "node2"]


def section(title: str, left: bool = False) -> list[Block]:
    """The blocks of a section that are executed, or those that are not and say why."""
    text = (REPO / "docs" / "engines.md").read_text("utf-8")
    inside = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [block for block in blocks(PAGE) if block.text in inside and bool(block.left) is left]


@pytest.fixture
def shared(slurm: Slurm) -> Iterator[Path]:
    """A folder that this machine and all nodes write to, which the page calls /shared."""
    place = slurm.site / "shared"
    place.mkdir()
    yield place
    shutil.rmtree(place)


def here(text: str, shared: Path) -> str:
    return text.replace("/shared", str(shared))


def run(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    return shell(folder, "set -e\n" + text, **env)


def written(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.iterdir())


def test_every_block_is_a_shells_or_named_or_says_why_not() -> None:
    """Each is executed below; those of Slurm and Ray have tests of their own."""
    titles = {"Facts files": (2, 0), "MPI": (4, 0), "Kubernetes": (5, 3), "PBS, LSF, Grid Engine": (0, 1)}
    for title, counts in titles.items():
        executed, left = section(title), section(title, left=True)
        assert (len(executed), len(left)) == counts, title
        assert all(block.kind == "sh" or (block.kind == "yaml" and block.name) for block in executed)


def test_a_batch_file_looks_and_then_starts(slurm: Slurm, shared: Path, folder: Path) -> None:
    alone, batch = section("Facts files")
    done = run(folder, alone.text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert written(folder / "facts") == [os.uname().nodename]

    code, out = slurm.ended(slurm.submit(here(batch.text, shared)))
    assert code == "0:0", out
    assert sorted(re.findall("task on (.*)", out)) == NODES
    (place,) = shared.iterdir()
    assert written(place) == NODES
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    lines = [json.loads(path.read_bytes()) for path in sorted(place.iterdir())]
    number = place.suffix[1:]
    assert [(one["task"]["job"], one["task"]["node_rank"], one["task"]["nodelist"]) for one in lines] == [
        (f"slurm {number}", rank, "node[0-2]") for rank in range(3)
    ]
    # One has a full disk: seen by its task, and nothing starts.
    put(slurm.lab, ("node2 full-disk",))
    code, out = slurm.ended(slurm.submit(here(batch.text, shared)))
    assert code == "1:0", out
    assert "FAIL host.disk /tmp is full on node2" in out
    assert "task on" not in out
    # One of them never wrote, or wrote half: it is open, and the others are judged. Judged later, from here.
    judge = f"netdoctor scan --facts {place} --no-save -o short"
    assert run(folder, judge).returncode == 0
    text = (place / f"node1{SUFFIX}").read_bytes()
    cases = ((text[: len(text) // 2], "seems cut off"), (None, "no file has facts"))
    for left, said in cases:
        if left is None:
            (place / f"node1{SUFFIX}").unlink()
        else:
            (place / f"node1{SUFFIX}").write_bytes(left)
        done = run(folder, f"{judge} -o json=r.json")
        assert done.returncode == 3, done.stdout
        report = json.loads((folder / "r.json").read_bytes())
        assert (report["undecided_nodes"], report["healthy_nodes"]) == (["node1"], ["node0", "node2"])
        assert said in report["causes"][0]["seen"][0], report["causes"]


@pytest.mark.weekly
def test_mpirun_starts_tasks_that_write(slurm: Slurm, shared: Path, folder: Path) -> None:
    mpirun = os.environ.get("NETDOCTOR_TEST_MPIRUN") or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun in PATH, and NETDOCTOR_TEST_MPIRUN names none")
    (folder / "hosts.txt").write_text("node0 slots=2\nnode1 slots=2\nnode2 slots=2\n")
    # Its ssh and its root are the lab's own.
    ours = {
        "PATH": f"{Path(mpirun).parent}:{environment()['PATH']}",
        "OMPI_MCA_plm_rsh_args": f"-F {slurm.lab.ssh_config}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    *written_, by_folder, by_port = section("MPI")
    for block in written_:
        done = run(folder, here(block.text, shared), **ours)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("READY"), done.stdout
    assert written(shared / "facts") == NODES
    one = json.loads((shared / "facts" / f"node2{SUFFIX}").read_bytes())["task"]
    assert (one["launcher"], one["rank"], one["world"], one["local_world"]) == ("openmpi", 2, 3, 1)
    # Two of three ranks: the third is counted by mpirun, though nobody names it.
    (shared / "facts" / f"node2{SUFFIX}").unlink()
    done = run(folder, here("netdoctor scan --facts /shared/facts --no-save -o short", shared))
    assert done.returncode == 3
    assert "absent1 wrote no facts" in done.stdout

    # They call: what is between them is tried, by a folder, then by a port.
    done = run(folder, here(by_folder.text, shared), **ours)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("READY"), done.stdout
    assert not any((shared / "meet").iterdir())
    report = json.loads((folder / ".netdoctor" / "last.json").read_bytes())
    assert report["matrix"]["nodes"] == NODES
    ports = report["facts"]["cluster"]["ports"]["value"]["probes"]
    assert {(one["src"], one["dst"]) for one in ports} >= set(itertools.permutations(NODES, 2))
    # One of them is not to be called by its peers.
    put(slurm.lab, ("node2 drop peers=node0,node1",))
    head = slurm.lab.state.control_address()
    text = by_port.text.replace("head:", f"{head}:").replace("29900", str(free_port()))
    done = run(folder, text, **ours)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "node2" in done.stdout
    assert "net.ports" in done.stdout


def test_pods_write_and_another_one_judges(slurm: Slurm, shared: Path, folder: Path) -> None:
    facts, judge, logs, *_ = section("Kubernetes")
    job, judging = (yaml.safe_load(here(block.text, shared)) for block in (facts, judge))
    (pod,) = job["spec"]["template"]["spec"]["containers"]
    count = job["spec"]["completions"]
    env = {one["name"]: one.get("value") for one in pod["env"]}
    said = []
    for index, node in enumerate(NODES[:count]):
        own = {**env, "NODE_NAME": node, "JOB_COMPLETION_INDEX": str(index)}
        own["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
        words = [f"{name}={value}" for name, value in own.items()]
        slurm.run("env", *words, *pod["command"], node=node)
        out = (shared / "facts" / f"{node}{SUFFIX}").read_text()
        if index == 0:
            stdout = shlex.join([*pod["command"][:2], pod["command"][2].partition(" -o ")[0]])
            out = slurm.run("env", *words, "sh", "-c", f"echo starting; {stdout}", node=node)
        said += [f"[pod/facts-{index}-x{index}/facts] {one}\n" for one in out.splitlines()]
    assert written(shared / "facts") == NODES
    (pod,) = judging["spec"]["template"]["spec"]["containers"]
    assert "READY" in slurm.run(*pod["command"])
    (folder / "facts.log").write_text("".join(said))
    done = run(folder, logs.text)
    assert (done.returncode, done.stdout[:5]) == (0, "READY"), done.stdout + done.stderr
    # A pod that never ran is missed by its number.
    (shared / "facts" / f"node1{SUFFIX}").unlink()
    out = slurm.run(*pod["command"], check=False)
    assert "absent1 wrote no facts" in out.replace("\n", " "), out


def test_pods_call_another_one_which_judges(slurm: Slurm, folder: Path) -> None:
    """The commands of both Jobs, each on its node, with the variables that their manifests give them."""
    *_, judges, calls = section("Kubernetes")
    _, judging = yaml.safe_load_all(judges.text)
    job = yaml.safe_load(calls.text)
    (judge,), (pod,) = (one["spec"]["template"]["spec"]["containers"] for one in (judging, job))
    address = slurm.lab.state.address(NODES[0])

    def run_in(container: dict[str, Any], node: str, **more: str) -> str:
        own = {one["name"]: one.get("value") for one in container["env"]}
        own |= {"NETDOCTOR_MEET_SECRET": "of the Secret, both have it", **more}
        own["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
        argv = [word.replace("judge:", f"{address}:") for word in container["command"]]
        return slurm.run("env", *(f"{name}={value}" for name, value in own.items()), *argv, node=node)

    with ThreadPoolExecutor(4) as pods:
        report = pods.submit(run_in, judge, NODES[0])
        ended = [
            pods.submit(run_in, pod, node, NODE_NAME=node, JOB_COMPLETION_INDEX=str(index))
            for index, node in enumerate(NODES[: job["spec"]["completions"]])
        ]
        assert [one.result() for one in ended] == ["", "", ""]
        out = report.result()
    assert "READY   " in out
    assert "NOT READY" not in out
    assert "3 nodes" in out
