"""What a trial costs beside the bare launcher: seconds until the first step, and CPU of this machine.

    python benchmarks/trial.py                      4 lab nodes, 3 repeats, a job without torch
    NETDOCTOR_TEST_TORCH_PYTHON=/opt/torch/bin/python python benchmarks/trial.py      torchrun, DDP with gloo

In turns: the command started on every node by ssh, all at once, as people do in N terminals; and the same by
`netdoctor try --no-scan`, which also gets the job's output and follows its ranks. Both times end where rank 0
prints that its first step is over, on the clock of this machine, and begin with the command line.
"""

import argparse
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from netdoctor.lab import Lab, missing_requirements, up  # noqa: E402  # of this checkout

STAND_IN = ROOT / "tests" / "trial" / "stand_in"
MARK = "first step at"
TRAIN = f"""\
import time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100000):
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    if step == 0 and dist.get_rank() == 0:
        print("{MARK}", time.time(), flush=True)
"""
LIGHT = f"""\
import sys, time, os
sys.path.insert(0, "{{stand_in}}")
import torch.distributed as dist, torch.optim
dist.init_process_group()
optimizer = torch.optim.SGD()
for step in range(100000):
    dist.barrier()
    time.sleep(0.02)
    optimizer.step()
    if step == 0 and dist.get_rank() == 0:
        print("{MARK}", time.time(), flush=True)
"""


def cpu_s() -> float:
    """CPU of all children that have ended, seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_step(text: str, began: float) -> float:
    line = next((line for line in text.splitlines() if MARK in line), None)
    if line is None:
        raise SystemExit(f"no step was made:\n{text[-2000:]}")
    return float(line.rpartition(" ")[2]) - began


def bare(lab: Lab, command: list[str], seconds: float, python: str) -> tuple[float, float]:
    """(seconds until the first step, CPU seconds here) of ssh to every node."""
    first = lab.address(lab.nodes[0])
    before, began = cpu_s(), time.time()
    running = []
    for rank, node in enumerate(lab.nodes):
        words = [w.format(rank=rank, master=first, nnodes=len(lab.nodes)) for w in command]
        env = [f"RANK={rank}", f"WORLD_SIZE={len(lab.nodes)}", f"MASTER_ADDR={first}", "MASTER_PORT=29500"]
        line = (
            f"PATH={Path(python).parent}:$PATH timeout -s KILL {seconds:.0f} env {shlex.join([*env, *words])}"
        )
        argv = ["ssh", "-F", str(lab.ssh_config), node, line]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    time.sleep(seconds + 1)
    # Ranks of torchrun have sessions of their own, outlive it, and hold the connection.
    subprocess.run(["pkill", "-KILL", "-f", command[-1]], check=False)
    text = "".join(one.communicate()[0] for one in running)
    return first_step(text, began), cpu_s() - before


def tried(lab: Lab, command: list[str], seconds: float, python: str, folder: Path) -> tuple[float, float]:
    """The same of a trial."""
    logs = folder / f"logs{time.monotonic_ns()}"
    options = ["--ssh-config", str(lab.ssh_config), "--no-scan", "--no-save", "--nproc", "1", "-q"]
    options += ["--for", f"{seconds:.0f}", "--chdir", "/", "--logs", str(logs), "--python", python]
    before, began = cpu_s(), time.time()
    argv = [sys.executable, "-m", "netdoctor", "try", *options, str(lab.hosts_file), "--", *command]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    text = "".join(path.read_text(errors="replace") for path in logs.glob("*.log"))
    return first_step(text, began), cpu_s() - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--for", dest="seconds", type=float, default=0.0, help="how long each runs")
    args = parser.parse_args()
    if missing := missing_requirements():
        sys.exit("no lab on this machine: " + "; ".join(missing))
    torch = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON", "")
    python = torch or "/usr/bin/python3"
    seconds = args.seconds or (60.0 if torch else 6.0)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        job = Path(place, "job.py")
        job.write_text(TRAIN if torch else LIGHT.format(stand_in=shared_stand_in(place)))
        lab = up(args.nodes, state_dir=Path(place, "lab"))
        by_hand = ["--nnodes={nnodes}", "--nproc-per-node=1", "--node-rank={rank}", "--master-addr={master}"]
        hand = ["torchrun", *by_hand, "--master-port=29500", str(job)] if torch else ["python3", str(job)]
        own = ["torchrun", str(job)] if torch else ["python3", str(job)]
        try:
            rows: dict[str, list[tuple[float, float]]] = {"ssh to every node": [], "netdoctor try": []}
            for _ in range(args.repeats):
                rows["ssh to every node"].append(bare(lab, hand, seconds, python))
                rows["netdoctor try"].append(tried(lab, own, seconds, python, Path(place)))
        finally:
            lab.down()
    base = statistics.median(first for first, _ in rows["ssh to every node"])
    what = "torchrun" if torch else "no torch"
    print(f"{args.nodes} nodes, {args.repeats} repeats of {seconds:.0f} s, {what}")
    print(f"{'':20} {'first step s':>12} {'later by':>9} {'CPU s here':>11}")
    for name, found in rows.items():
        first, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"{name:20} {first:12.2f} {first - base:8.2f}s {cpu:11.2f}")
    later = statistics.median(first for first, _ in rows["netdoctor try"]) - base
    print(f"later by {later / 120:.1%} of a trial of two minutes")


def shared_stand_in(place: str) -> str:
    """The stand-in for torch, where nodes see it."""
    shutil.copytree(STAND_IN, Path(place, "stand_in"))
    return str(Path(place, "stand_in"))


if __name__ == "__main__":
    main()
