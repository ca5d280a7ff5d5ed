"""bw.tcp against iperf3, on the same pair of lab nodes in the same run.

    python benchmarks/tcp.py [--repeats 5] [--rates 50mbit,200mbit,1gbit]

Both send four parallel streams, each direction by itself, and leave out the start. iperf3 runs as four
processes with one stream each: one process of iperf3 before 3.16 (see its release notes) has one thread for
all its streams, and with that a core, not the network, would be compared. Measured on links as they are
(where this machine's cores are the limit) and shaped to each of the rates. They take turns; printed are each
pair of figures, and the median of their ratios. Needs root for the lab, and iperf3.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from netdoctor.lab import Lab, up

REPO = Path(__file__).resolve().parents[1]
SECONDS = 3
PORTS = (5201, 5202, 5203, 5204)


def by_iperf3(lab: Lab, src: str, dst: str) -> float:
    """Gbit/s from `src` to `dst`, as the receivers counted them."""
    address = lab.address(dst)
    serve = " ".join(f"timeout 30 iperf3 -s -1 -B {address} -p {port} &" for port in PORTS)
    server = subprocess.Popen(
        ["ssh", "-F", str(lab.ssh_config), dst, f"{serve} wait"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(50):
            time.sleep(0.1)
            if {port for _, port in lab.listeners(dst)} >= set(PORTS):
                break
        send = " ".join(
            f"timeout 30 iperf3 -c {address} -p {port} -t {SECONDS} -O 1 -J > /tmp/{port}.json &"
            for port in PORTS
        )
        show = " ".join(f"/tmp/{port}.json" for port in PORTS)
        done = subprocess.run(
            ["ssh", "-F", str(lab.ssh_config), src, f"{send} wait; cat {show}"],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        server.terminate()
        server.wait(10)
    decoder, at, total = json.JSONDecoder(), 0, 0.0
    for _ in PORTS:
        one, at = decoder.raw_decode(done.stdout, at)
        total += float(one["end"]["sum_received"]["bits_per_second"])
        at += len(done.stdout[at:]) - len(done.stdout[at:].lstrip())
    return total / 1e9


def by_netdoctor(lab: Lab, nodes: list[str]) -> dict[tuple[str, str], float]:
    """Gbit/s of each direction."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [
            *(sys.executable, "-m", "netdoctor", "scan", "--ssh-config", str(lab.ssh_config), *nodes),
            *("--only", "bw.tcp", "--budget", "15", "--no-save", "-o", f"json={folder}/report.json"),
        ]
        subprocess.run(argv, cwd=REPO, capture_output=True, check=False)
        report = json.loads(Path(folder, "report.json").read_text("utf-8"))
    return {
        (p["from"], p["to"]): float(p["value"])
        for p in report["pairs"]
        if p["check"] == "bw.tcp" and p["value"] is not None
    }


def compare(lab: Lab, name: str, repeats: int) -> float:
    """The median of the ratios over both directions and all repeats."""
    src, dst = lab.nodes[:2]
    ratios = []
    for turn in range(repeats):
        found = by_netdoctor(lab, [src, dst])
        for a, b in ((src, dst), (dst, src)):
            other = by_iperf3(lab, a, b)
            ratios.append(found[a, b] / other)
            figures = f"netdoctor {found[a, b]:.4f}  iperf3 {other:.4f} Gbit/s"
            print(f"{name:<10} {turn + 1}  {a}->{b}  {figures}", flush=True)
    ratio = statistics.median(ratios)
    print(f"{name:<10} ratio {ratio:.3f} (least {min(ratios):.3f}, most {max(ratios):.3f})", flush=True)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rates", default="50mbit,200mbit,1gbit")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = up(2, state_dir=Path(folder) / "lab", subnet="10.78.0")
        try:
            compare(lab, "unlimited", args.repeats)
            for rate in args.rates.split(","):
                for node in lab.nodes:
                    lab.break_(node, "slow-link", rate=rate)
                compare(lab, rate, args.repeats)
        finally:
            lab.down()


if __name__ == "__main__":
    main()
