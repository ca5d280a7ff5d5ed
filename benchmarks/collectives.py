"""bw.collectives against a hand-written torch loop at the same sizes, on the same lab nodes in one run.

    python benchmarks/collectives.py --python /path/to/python/with/torch [--nodes 4] [--repeats 3]

The interpreter has to be visible on the nodes: outside /tmp, /run and home directories. Every node's link is
shaped to one rate, so that the link and not this machine sets it. netdoctor and the loop take turns; the loop
runs every collective at the largest size that netdoctor's scan ended with, as often and as long as nccl-tests
does (20 between two barriers, the slowest rank's time), and has a busbw of its own.
Printed: each pair of figures, and the median of the ratios. Root is needed for the lab.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from netdoctor.lab import Lab, up

REPO = Path(__file__).resolve().parents[1]
PORT = 29877

# Nothing of netdoctor: what somebody would type to see how fast they are. Bytes that cross a link are counted
# here by what each rank sends in a ring.
LOOP = """
import json, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
n, me = dist.get_world_size(), dist.get_rank()
gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
found = {{}}
for name, size in {sizes}.items():
    whole, other, part = torch.zeros(size // 4), torch.zeros(size // 4), torch.zeros(size // 4 // n)
    def ring():
        works = [dist.isend(whole, (me + 1) % n), dist.irecv(other, (me - 1) % n)]
        for work in works:
            work.wait()
    once, sent = {{
        "all-reduce": (lambda: dist.all_reduce(whole), 2 * (size - size / n)),
        "all-gather": (lambda: gather(whole, part), size - size / n),
        "reduce-scatter": (lambda: scatter(part, whole), size - size / n),
        "all-to-all": (lambda: dist.all_to_all_single(other, whole), size - size / n),
        "broadcast": (lambda: dist.broadcast(whole, 0), size),
        "send-recv": (ring, size),
    }}[name]
    once()
    rounds = []
    for _ in range({rounds}):
        dist.barrier()
        start = time.perf_counter()
        for _ in range({iterations}):
            once()
        took = torch.tensor([(time.perf_counter() - start) / {iterations}])
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        rounds.append(took.item())
    found[name] = sent / sorted(rounds)[len(rounds) // 2] / 1e9
if me == 0:
    print(json.dumps(found))
dist.destroy_process_group()
"""


def by_hand(lab: Lab, python: str, sizes: dict[str, int]) -> dict[str, float]:
    """busbw in GB/s of each, by the loop, started over ssh on every node."""
    program = LOOP.format(sizes=sizes, rounds=3, iterations=20)
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
        words = ["env", *(f"{k}={v}" for k, v in settings.items()), python, "-W", "ignore", "-c", program]
        argv = ["ssh", "-F", str(lab.ssh_config), node, shlex.join(words)]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    outs = [process.communicate(timeout=600)[0] for process in running]
    return {name: float(value) for name, value in json.loads(outs[0].splitlines()[-1]).items()}


def by_netdoctor(lab: Lab, python: str, budget_s: float) -> dict[str, tuple[int, float]]:
    """(size, busbw in GB/s) of each collective's largest size in a scan."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [
            *(sys.executable, "-m", "netdoctor", "scan", "--ssh-config", str(lab.ssh_config)),
            *(str(lab.hosts_file), "--python", python, "--only", "bw.collectives", "--profile", "full"),
            *("--budget", str(budget_s), "--no-save", "-o", f"json={folder}/report.json"),
        ]
        done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=False)
        report = json.loads(Path(folder, "report.json").read_text("utf-8"))
    found: dict[str, tuple[int, float]] = {}
    for measure in report["measures"]:
        words = measure["name"].split(".")
        if words[:2] == ["bw", "collectives"] and words[3] == "busbw":
            found[words[2]] = max(found.get(words[2], (0, 0.0)), (int(words[4]), float(measure["value"])))
    if not found:
        raise SystemExit(f"netdoctor measured nothing:\n{done.stderr}\n{json.dumps(report['causes'])[:2000]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", required=True, help="interpreter with torch, visible on lab nodes")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds that netdoctor may measure")
    parser.add_argument("--rate", default="200mbit", help="of every node's link")
    args = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        lab = up(args.nodes, state_dir=Path(folder) / "lab", subnet="10.79.0")
        try:
            for node in lab.nodes:
                lab.break_(node, "slow-link", rate=args.rate)
            for turn in range(args.repeats):
                ours = by_netdoctor(lab, args.python, args.budget)
                sizes = {name: size for name, (size, _) in ours.items()}
                theirs = by_hand(lab, args.python, sizes)
                for name, (size, value) in ours.items():
                    ratios.setdefault(name, []).append(value / theirs[name])
                    figures = f"netdoctor {value:.4f}  by hand {theirs[name]:.4f} GB/s"
                    print(f"{name:<15} {turn + 1}  {size >> 20:4d} MiB  {figures}", flush=True)
        finally:
            lab.down()
    for name, found in ratios.items():
        print(f"{name:<15} {args.nodes} nodes at {args.rate}: median ratio {statistics.median(found):.3f}")


if __name__ == "__main__":
    main()
