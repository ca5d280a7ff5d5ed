#!/usr/bin/env python3
"""Record what real torch writes when something is wrong: the logs that `explain log` is tested with.

    NETDOCTOR_TEST_TORCH_PYTHON=/opt/torch/bin/python python scripts/record_logs.py [--healthy] [NAME...]

As root, on a machine where `netdoctor lab up` works. Three nodes, gloo, timeouts of seconds, a quarter of an
hour for all; what is recorded is listed in tests/explain/recordings.py. Each recording becomes
tests/explain/logs/NAME (with --healthy: tests/explain/healthy/NAME) with one file a rank and expected.toml.
NAME: those whose names contain it. --expected writes expected.toml anew and leaves the logs alone.
NETDOCTOR_TEST_OTHER_TORCH_PYTHON has another release of torch, for the recordings of two.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from netdoctor.lab import Lab, up  # noqa: E402
from netdoctor.lab import node as nodes  # noqa: E402
from netdoctor.lab.system import NODE_ENV  # noqa: E402
from tests.explain.recordings import FAULTS, HEALTHY, PORT, Recording  # noqa: E402

SUBNET = "192.168.77"
JOB = "/root/job.py"
OTHER = "NETDOCTOR_TEST_OTHER_TORCH_PYTHON"
EXPECTED = "expected.toml"
MOST_LINES = 90
LAST_S = 30
HOSTS = "/etc/hosts"
CGROUPS = Path("/sys/fs/cgroup/memory")
FRAME = re.compile(r"^(.*?)frame #(\d+): ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--healthy", action="store_true", help="the runs in which nothing is wrong")
    parser.add_argument(
        "--expected", action="store_true", help="only what is expected of the logs that there are"
    )
    parser.add_argument("--ssh-port", type=int, default=44791, help="of the lab (%(default)s)")
    args = parser.parse_args()
    python = os.environ["NETDOCTOR_TEST_TORCH_PYTHON"]
    table, folder = (HEALTHY, "healthy") if args.healthy else (FAULTS, "logs")
    chosen = [r for r in table if not args.names or any(name in r.name for name in args.names)]
    if not os.environ.get(OTHER) and not args.expected:
        chosen = [r for r in chosen if not any("{other}" in argv for argv in r.argv_of.values())]
    ask = [python, "-c", "import torch; print(torch.__version__)"]
    version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  as named
    if args.expected:
        for recording in chosen:
            to = ROOT / "tests/explain" / folder / recording.name / EXPECTED
            to.write_text(expected(recording, version), "utf-8")
        return 0
    with tempfile.TemporaryDirectory(prefix="netdoctor-record-", dir="/var/tmp") as state:
        lab = up(3, state_dir=Path(state, "lab"), subnet=SUBNET, ssh_port=args.ssh_port)
        try:
            for node in lab.nodes:
                nodes.write(lab.state, node, {JOB: Path(ROOT, "tests/explain/job.py").read_bytes()})
            for recording in chosen:
                begun = time.monotonic()
                record(lab, python, recording, ROOT / "tests/explain" / folder / recording.name, version)
                print(f"{recording.name:34} {time.monotonic() - begun:5.1f} s", flush=True)
        finally:
            lab.down()
    return 0


def record(lab: Lab, python: str, recording: Recording, folder: Path, version: str) -> None:
    """Break, run, heal, write."""
    words = {node: lab.address(node) for node in lab.nodes}
    other = os.environ.get(OTHER, "")
    words |= {"python": python, "other": other, "job": JOB, "ssh_config": str(lab.ssh_config)}
    before = {node: lab.run(node, ["cat", HOSTS], capture_output=True).stdout for node in lab.nodes}
    for node in lab.nodes:
        nodes.write(lab.state, node, {HOSTS: before[node] + recording.hosts.encode()})
    for node, fault, params in recording.breaks:
        lab.break_(node, fault, **params)
    try:
        logs = run(lab, recording, words)
    finally:
        lab.heal()
        for node in lab.nodes:
            nodes.write(lab.state, node, {HOSTS: before[node]})
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for rank, text in logs.items():
        prefix = recording.prefix.format(rank=rank, address=words[lab.nodes[rank]])
        for one in filter(None, (python, other)):
            text = text.replace(str(Path(one).parents[1])[1:], "opt/venv")  # noqa: PLW2901
        lines = [prefix + line for line in trimmed(text)]
        Path(folder, f"rank{rank}.log").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    Path(folder, EXPECTED).write_text(expected(recording, version), "utf-8")


class Rank(NamedTuple):
    """One process that was started, where its output goes, and the cgroup around it."""

    number: int
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    group: Path | None


def run(lab: Lab, recording: Recording, words: dict[str, str]) -> dict[int, str]:
    """What every rank wrote. The last one to be left is given half a minute, and then killed."""
    begun, running = time.monotonic(), []
    for rank in sorted(recording.ranks, key=lambda rank: recording.delay_s.get(rank, 0)):
        time.sleep(max(0.0, begun + recording.delay_s.get(rank, 0) - time.monotonic()))
        running.append(started(lab, recording, rank, words | {"rank": str(rank)}))
    if recording.late_hosts:
        while not all(b"gai error" in os.pread(one.output.fileno(), 10**6, 0) for one in running):
            time.sleep(0.2)
        for node in lab.nodes:
            lines = lab.run(node, ["cat", HOSTS], capture_output=True).stdout
            nodes.write(lab.state, node, {HOSTS: lines + recording.late_hosts.format_map(words).encode()})
    end = begun + recording.limit_s
    while (left := sum(one.process.poll() is None for one in running)) and time.monotonic() < end:
        if left == 1 and recording.label:
            end = min(end, time.monotonic() + LAST_S)
        time.sleep(0.2)
    return {one.number: ended(lab, one) for one in running}


def started(lab: Lab, recording: Recording, rank: int, words: dict[str, str]) -> Rank:
    env = NODE_ENV | {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "{node0}", "MASTER_PORT": PORT}
    env |= dict(recording.env) | dict(recording.env_of.get(rank, {}))
    env = {name: value.format_map(words) for name, value in env.items()}
    argv = [word.format_map(words) for word in recording.argv_of.get(rank, recording.argv)]
    argv += [] if argv[0] == "ssh" or JOB in argv else [JOB]
    argv += recording.args
    # ssh starts outside of the nodes, as on a launching machine.
    if argv[0] != "ssh":
        argv = ["timeout", "--signal=KILL", str(recording.limit_s), *argv]
        argv = ["nsenter", *nodes.enter(lab.state, lab.nodes[rank], argv)[1:]]
    group = limited(recording, rank)
    if group is not None:
        argv = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "tasks"), *argv]
    output = tempfile.TemporaryFile()  # noqa: SIM115  closed by ended()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, env=env, stdin=quiet, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603  ours
    return Rank(rank, process, output, group)


def ended(lab: Lab, rank: Rank) -> str:
    """What the rank wrote; it is killed where it still runs."""
    if rank.process.poll() is None:
        for pid in lab.pids(lab.nodes[rank.number]):
            if JOB.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        rank.process.wait(20)
    rank.output.seek(0)
    text = rank.output.read().decode("utf-8", "replace")
    rank.output.close()
    if rank.group is not None:
        time.sleep(0.3)  # the kernel lets go of a group a moment after its last process
        rank.group.rmdir()
    return text


def limited(recording: Recording, rank: int) -> Path | None:
    """A memory cgroup for this rank's processes; None where it needs none."""
    if rank not in recording.memory:
        return None
    group = CGROUPS / f"netdoctor-record-{os.getpid()}-{rank}"
    group.mkdir()
    Path(group, "memory.limit_in_bytes").write_text(str(recording.memory[rank] * 2**20), "ascii")
    return group


def trimmed(text: str) -> list[str]:
    """Lines without the native frames of a trace but its first, and without the middle of a long log."""
    lines = []
    for line in text.replace("\r", "\n").splitlines():
        frame = FRAME.match(line)
        if frame is None or frame[2] == "0":
            lines.append(line[:1000])
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        lines = [*lines[:half], f"[{len(lines) - MOST_LINES} lines left out here]", *lines[-half:]]
    return lines


def expected(recording: Recording, version: str) -> str:
    kind = " --healthy" if not recording.label else ""
    head = f'label = "{recording.label}"\ntorch = "{version}"\n'
    head += f'recorded = "python scripts/record_logs.py{kind} {recording.name}"\n'
    tables = (
        ("listed", "These logs admit other causes too: the label is among those named.", recording.listed),
        ("elsewhere", "These logs hold nothing of it: nothing is said with certainty.", recording.elsewhere),
    )
    for name, why, views in tables:
        if views:
            head += f"\n# {why}\n[{name}]\n"
            head += "".join(
                f'{view if view == "all" else f"rank{view}"} = "{text}"\n' for view, text in views.items()
            )
    return head


if __name__ == "__main__":
    sys.exit(main())
