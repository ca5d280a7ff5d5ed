"""How long one scan takes by each engine, on the same nodes: over SSH, by Slurm, by Ray.

    python benchmarks/engines.py                     4 lab nodes, 3 repeats, profile quick
    python benchmarks/engines.py --nodes 16 --profile launch

Engines take turns within each repeat; medians are printed, and each beside SSH. All of them run on the first
node of a lab with a real sshd and a real Slurm, with the same checks; and with a real Ray where
NETDOCTOR_TEST_RAY_PYTHON names an interpreter that has it. What is not installed is said.

Ray starts a process on each node that imports Ray, 0.4 s of a core; lab nodes share those of this machine.
The last row is what that takes by itself: a driver without netdoctor that waits for one actor on each node.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from netdoctor.lab import Lab, missing_requirements, up  # noqa: E402  # of this checkout
from tests.ray.conftest import Ray  # noqa: E402  # Ray on lab nodes
from tests.slurm.conftest import PROGRAMS, Slurm, copied  # noqa: E402  # Slurm on lab nodes


def over_ssh(lab: Lab, slurm: Slurm) -> list[str]:
    """The lab's own login, from inside: its files are not seen there."""
    folder = lab.ssh_config.parent
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_size < 1 << 20:
            text = path.read_bytes().replace(str(folder).encode(), b"/bench")
            slurm.write({f"/bench/{path.name}": text}, 0o600, slurm.first)
    hosts = f"/bench/{lab.hosts_file.name}"
    slurm.write({hosts: lab.hosts_file.read_bytes()}, 0o600, slurm.first)
    return ["netdoctor", "scan", hosts, "--ssh-config", f"/bench/{lab.ssh_config.name}"]


BARE = """
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
class Agent:
    def begin(self):
        pass
nodes = [row["NodeID"] for row in ray.nodes() if row["Alive"]]
agent = ray.remote(num_cpus=0)(Agent)
actors = [agent.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes]
ray.get([actor.begin.remote() for actor in actors])
print("READY")
"""


def measure(slurm: Slurm, ways: dict[str, list[str]], profile: str, repeats: int) -> dict[str, list[float]]:
    """Wall seconds of each way, in turns."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, argv in ways.items():
            began = time.monotonic()
            more = ["--profile", profile, "-q", "--no-save"] if "netdoctor" in argv else []
            out = slurm.run(*argv, *more, check=False, timeout=600)
            took[name].append(time.monotonic() - began)
            if "READY" not in out or "NOT READY" in out:
                raise SystemExit(f"{name}: the lab is not healthy\n{out}")
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", choices=("quick", "launch", "full"), default="quick")
    args = parser.parse_args()
    lacks = [*missing_requirements(), *(f"no {name}" for name in PROGRAMS if shutil.which(name) is None)]
    if lacks:
        raise SystemExit("; ".join(lacks))
    folder = Path(tempfile.mkdtemp(prefix="netdoctor-engines-", dir="/var/tmp"))
    folder.chmod(0o755)
    copied(folder / "site")
    lab = up(args.nodes, state_dir=folder / "lab", subnet=f"10.{128 + os.getpid() % 96}.77")
    try:
        slurm = Slurm(lab, folder / "site")
        slurm.install()
        slurm.configure()
        slurm.start()
        nodes = f"{lab.nodes[0]},{','.join(lab.nodes[1:])}"
        by_slurm = ["netdoctor", "scan", "--via", "slurm", nodes]
        ways = {
            "ssh": over_ssh(lab, slurm),
            "slurm, nodes asked for": by_slurm,
            "slurm, in an allocation": ["salloc", "-Q", f"-N{args.nodes}", "--exclusive", *by_slurm],
        }
        if python := os.environ.get("NETDOCTOR_TEST_RAY_PYTHON"):
            for node in lab.nodes:
                Ray(lab, folder / "site", python).start(node)
            ways["ray"] = ["netdoctor", "scan", "--via", "ray"]
            ways["ray, actors alone"] = [python, "-c", BARE]
        times = measure(slurm, ways, args.profile, args.repeats)
        took = {name: statistics.median(seconds) for name, seconds in times.items()}
        load = f"load {os.getloadavg()[0]:.1f}"
        print(f"{args.nodes} lab nodes, profile {args.profile}, median of {args.repeats}, {load}")
        for name, seconds in took.items():
            print(f"{name:<26} {seconds:6.2f} s   {seconds / took['ssh']:5.2f} of ssh")
    finally:
        lab.down()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
