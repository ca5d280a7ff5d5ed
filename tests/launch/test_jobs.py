"""What a plan says is run unedited on lab nodes: by real torchrun, and by a real Ray."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.bandwidth.conftest import torch as torch  # noqa: PLC0414  a fixture
from tests.scan.harness import netdoctor, scan

pytestmark = pytest.mark.lab

# Says who it is, and what all ranks have together.
JOB = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
said = [os.uname().nodename, dist.get_rank(), int(os.environ["LOCAL_RANK"]), int(total.item()), *sys.argv[1:]]
# In one piece: torchrun's ranks share a pipe, and print() writes word by word under `python -u`.
os.write(1, f"SAID {','.join(map(str, said))} {os.environ['WORD']}\\n".encode())
dist.destroy_process_group()
"""
RAY = """
import os, ray
ray.init(log_to_driver=False)
nodes = [n for n in ray.nodes() if n["Alive"]]
print("NODES", sorted((n["NodeManagerAddress"], n["NodeManagerPort"], n["ObjectManagerPort"]) for n in nodes))
there = [n["NodeID"] for n in nodes if n["NodeManagerAddress"] != ray.util.get_node_ip_address()]
where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(there[0], soft=False)
task = ray.remote(lambda: os.uname().nodename).options(scheduling_strategy=where)
print("RAN", ray.get(task.remote()), flush=True)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that lab nodes see, too."""
    place = Path(tempfile.mkdtemp(prefix="netdoctor-plan-", dir="/var/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def started(lab: Lab, node: str, script: str, before: str = "") -> subprocess.Popen[str]:
    """A login on the node whose shell reads the script, as somebody pastes it."""
    process = subprocess.Popen(
        ["ssh", "-F", str(lab.ssh_config), node, f"{before} exec sh -s"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(script)
    process.stdin.close()
    process.stdin = None
    return process


def ranks(lab: Lab, scripts: Mapping[str, str]) -> list[list[str]]:
    """What each rank of the job said, in the order of ranks."""
    processes = [started(lab, node, script) for node, script in scripts.items()]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
    rows = [line.split(",") for text in said for line in re.findall(r"^SAID (.*)$", text, re.MULTILINE)]
    return sorted(rows, key=lambda row: int(row[1]))


def test_torchrun_as_written_and_as_pasted(lab4: Lab, folder: Path, torch: str, shared: Path) -> None:
    (shared / "job.py").write_text(JOB)
    hosts = folder / "hosts.txt"
    hosts.write_text("node3 slots=1\nnode1 slots=2\n")
    found = scan(lab4, folder, "--python", torch, "--skip", "bw.*", hosts=str(hosts))
    assert found.code == 0, found.summary()
    argv = ["plan", str(hosts), "--script", f"{shared}/job.py 'a b' $(id)", "--env", "WORD=c; d"]

    # A script for each node; c10d; one and two processes. c10d numbers node1 first, by its address.
    done = netdoctor(*argv, "--write", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    written = {"node3": folder / "out" / "000-node3.sh", "node1": folder / "out" / "001-node1.sh"}
    scripts = {node: path.read_text() for node, path in written.items()}
    assert "measured: node3 has it, all other nodes reached it" in scripts["node1"]
    rest = ["6", "a b", "$(id) c; d"]
    assert ranks(lab4, scripts) == [
        ["node1", "0", "0", *rest],
        ["node1", "1", "1", *rest],
        ["node3", "2", "0", *rest],
    ]
    nodes = json.loads((folder / "out" / "plan.json").read_text())["nodes"]
    assert [(n["id"], n["node_rank"], n["first_rank"]) for n in nodes] == [("node1", 0, 0), ("node3", 1, 2)]

    # One text for all nodes; static; one process each; the order of the list.
    done = netdoctor(*argv, "--rdzv", "static", "--nproc", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    rest = ["3", "a b", "$(id) c; d"]
    said = ranks(lab4, dict.fromkeys(("node3", "node1"), done.stdout))
    assert said == [["node3", "0", "0", *rest], ["node1", "1", "0", *rest]]


@pytest.fixture
def ray(lab4: Lab) -> Iterator[str]:
    """An interpreter with Ray, as lab nodes see it. What it leaves running on them is ended."""
    python = os.environ.get("NETDOCTOR_TEST_RAY_PYTHON", "")
    if not python:
        pytest.skip("NETDOCTOR_TEST_RAY_PYTHON names no interpreter with Ray")
    yield python
    home = str(Path(python).parent.parent)
    for node in ("node3", "node1"):
        for pid in lab4.pids(node):
            if home in _command(pid):
                os.kill(pid, signal.SIGKILL)
        lab4.run(node, ["rm", "-rf", "/tmp/ray"], check=True)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return ""


def test_ray_start_lines_make_a_cluster(lab4: Lab, folder: Path, ray: str, shared: Path) -> None:
    (shared / "job.py").write_text(RAY)
    hosts = folder / "hosts.txt"
    hosts.write_text(f"node3 python={ray}\nnode1 python={ray}\n")
    found = scan(lab4, folder, "--only", "net.*", hosts=str(hosts))
    assert found.code == 0, found.summary()
    done = netdoctor(
        "plan", str(hosts), "--launcher", "ray", "--script", f"{shared}/job.py", "--write", "out", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    path = f"PATH={Path(ray).parent}:$PATH RAY_USAGE_STATS_ENABLED=0"
    for name, node in (("000-node3.sh", "node3"), ("001-node1.sh", "node1"), ("run.sh", "node3")):
        process = started(lab4, node, (folder / "out" / name).read_text(), path)
        said = process.communicate(timeout=120)[0]
        assert process.returncode == 0, said
    addresses = [lab4.address(node) for node in ("node1", "node3")]
    assert f"NODES {[(address, 6380, 6381) for address in addresses]}" in said
    assert "RAN node1" in said


def test_mpirun_starts_the_ranks(lab4: Lab, folder: Path) -> None:
    mpirun = os.environ.get("NETDOCTOR_TEST_MPIRUN") or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun in PATH, and NETDOCTOR_TEST_MPIRUN names none")
    hosts = folder / "hosts.txt"
    hosts.write_text("node3 slots=2\nnode1 slots=1\n")
    found = scan(lab4, folder, "--only", "net.*", hosts=str(hosts))
    assert found.code == 0, found.summary()
    say = "sh -c 'echo \"SAID $(hostname),$RANK,$LOCAL_RANK,$WORLD_SIZE,$WORD,$1\"' sh '$(id) b'"
    argv = [
        "plan",
        str(hosts),
        "--launcher",
        "mpirun",
        "--script",
        say,
        "--env",
        "WORD=c; d",
        "--write",
        "out",
    ]
    done = netdoctor(*argv, cwd=folder)
    assert done.returncode == 0, done.stderr
    # Its ssh and its root are the lab's own; what it is told is the plan's.
    path = f"{Path(mpirun).parent}:{os.environ['PATH']}"
    ours = {"PATH": path, "OMPI_MCA_plm_rsh_args": f"-F {lab4.ssh_config}", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    ran = subprocess.run(
        ["sh", "out/run.sh"], cwd=folder, env={**os.environ, **ours, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    rest = "3,c; d,$(id) b"
    said = sorted(re.findall(r"^SAID (.*)$", ran.stdout, re.MULTILINE), key=lambda line: line.split(",")[1])
    assert said == [f"node3,0,0,{rest}", f"node3,1,1,{rest}", f"node1,2,0,{rest}"]
