"""busbw of bw.allreduce against a hand-written torch loop, on the same lab nodes in the same run.

    python benchmarks/allreduce.py --python /path/to/python/with/torch [--nodes 4] [--repeats 5]

The interpreter has to be visible on the nodes: outside /tmp, /run and home directories. Measured on two
kinds of links: as they are (where this machine's cores are the limit), and with every node's link shaped
to one rate (where the link is). netdoctor and the loop take turns; the loop runs at the size that
netdoctor's scan ended with. Printed: each pair of figures, the medians, and the median of the ratios.
Root is needed for the lab.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from netdoctor.lab import Lab, up

REPO = Path(__file__).resolve().parents[1]
PORT = 29876

# Nothing of netdoctor: what somebody would type to see how fast an all-reduce is.
LOOP = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.zeros({count})
for _ in range(2):
    dist.all_reduce(x)
dist.barrier()
start = time.perf_counter()
done = 0
while True:
    for _ in range({chunk}):
        dist.all_reduce(x)
    done += {chunk}
    stop = torch.tensor([1.0 if time.perf_counter() - start > {seconds} else 0.0])
    dist.broadcast(stop, 0)
    if stop.item():
        break
took = torch.tensor([(time.perf_counter() - start) / done])
dist.all_reduce(took, op=dist.ReduceOp.MAX)
n = dist.get_world_size()
if dist.get_rank() == 0:
    print(x.numel() * 4 / took.item() * 2 * (n - 1) / n / 1e9)
dist.destroy_process_group()
"""


def by_hand(lab: Lab, python: str, size: int, seconds: float = 4.0) -> float:
    """busbw in GB/s of the loop, started over ssh on every node."""
    per_s = 0.3e9 / size  # a guess that only decides how often the clock is read
    program = LOOP.format(count=size // 4, chunk=max(1, min(20, int(per_s / 4))), seconds=seconds)
    running = []
    for rank, node in enumerate(lab.nodes):
        settings = {
            "MASTER_ADDR": lab.address(lab.nodes[0]),
            "MASTER_PORT": PORT,
            "RANK": rank,
            "WORLD_SIZE": len(lab.nodes),
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": 1,
        }
        words = ["env", *(f"{k}={v}" for k, v in settings.items()), python, "-c", program]
        argv = ["ssh", "-F", str(lab.ssh_config), node, shlex.join(words)]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    outs = [process.communicate(timeout=120)[0] for process in running]
    return float(outs[0].split()[-1])


def by_netdoctor(lab: Lab, python: str, budget_s: float) -> tuple[int, float]:
    """(size, busbw in GB/s) of the largest size of a scan."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [
            *(sys.executable, "-m", "netdoctor", "scan", "--ssh-config", str(lab.ssh_config)),
            *(str(lab.hosts_file), "--python", python, "--only", "bw.allreduce", "--profile", "full"),
            *("--budget", str(budget_s), "--no-save", "-o", f"json={folder}/report.json"),
        ]
        done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=False)
        report = json.loads(Path(folder, "report.json").read_text("utf-8"))
    sizes = {
        int(m["name"].rpartition(".")[2]): float(m["value"])
        for m in report["measures"]
        if m["name"].startswith("bw.allreduce.busbw.")
    }
    if not sizes:
        raise SystemExit(f"netdoctor measured nothing:\n{done.stderr}\n{json.dumps(report['causes'])[:2000]}")
    size = max(sizes)
    return size, sizes[size]


def compare(lab: Lab, python: str, name: str, repeats: int, budget_s: float) -> float:
    """The ratio of the medians; each pair of figures is printed as it comes."""
    ours: list[float] = []
    theirs: list[float] = []
    size = 0
    for turn in range(repeats):
        size, value = by_netdoctor(lab, python, budget_s)
        ours.append(value)
        theirs.append(by_hand(lab, python, size))
        figures = f"netdoctor {value:.4f}  by hand {theirs[-1]:.4f} GB/s"
        print(f"{name:<12} {turn + 1}  {size >> 20:4d} MiB  {figures}", flush=True)
    # Pair by pair: what else this machine does changes from minute to minute, and hits both of a pair.
    ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
    figures = f"netdoctor {statistics.median(ours):.4f}, by hand {statistics.median(theirs):.4f} GB/s"
    print(f"{name:<12} {len(lab.nodes)} nodes, medians: {figures}, ratio {ratio:.3f}", flush=True)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", required=True, help="interpreter with torch, visible on lab nodes")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", type=float, default=15.0, help="seconds that netdoctor may measure")
    parser.add_argument("--rate", default="200mbit", help="of every node's link in the second part")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = up(args.nodes, state_dir=Path(folder) / "lab", subnet="10.79.0")
        try:
            compare(lab, args.python, "unlimited", args.repeats, args.budget)
            for node in lab.nodes:
                lab.break_(node, "slow-link", rate=args.rate)
            compare(lab, args.python, args.rate, args.repeats, args.budget)
        finally:
            lab.down()


if __name__ == "__main__":
    main()
