#!/usr/bin/env python3
"""How fast `explain log` reads, and in how much memory.

    python benchmarks/explain.py [--mib 1024] [--ranks 64] [--words 0.02] [--keep FILE]

Writes a log as a launcher interleaves it: progress of training, bars, NCCL_DEBUG=INFO, warnings, a share of
lines of random words, and a failure at the end; then reads it with the command line, in a process of its own,
and looks for a handful of words in it with grep, for comparison.
"""

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[1]
FAILURE = (
    "[rank7]:[E1122 14:11:08.402113 ProcessGroupNCCL.cpp:607] [Rank 7] Some NCCL operations "
    "have failed or timed out.\n"
    "gpu-a02:4711:4790 [7] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-qHbmRX to "
    "33030528 bytes, error: No space left on device (28)\n"
)
SHAPES = (
    "[rank{r}]: 2026-11-22 14:{m:02d}:{s:02d},{ms:03d} INFO train.py:212 step {step} loss {x:.4f} "
    "grad_norm {y:.3f} lr {z:.3e} tokens/s {t}\n",
    "[default{l}]:Epoch 3:  {p}%|{bar}| {step}/200000 [{m:02d}:{s:02d}<4:48:08, {y:.2f}it/s, v_num=12, "
    "loss={x:.3f}]\n",
    "gpu-a{h:02d}:{pid}:{tid} [{l}] NCCL INFO Channel {c:02d}/0 : {r}[{l}] -> {o}[{l}] [send] via "
    "NET/IB/{l}/GDRDMA\n",
    "gpu-a{h:02d}:{pid}:{tid} [{l}] NCCL INFO comm 0x{tid:x} rank {r} nranks 512 cudaDev {l} busId {pid:x} "
    "- Init COMPLETE\n",
    "(RayTrainWorker pid={pid}, ip=10.0.{h}.{l}) {{'loss': {x:.4f}, 'learning_rate': {z:.2e}, "
    "'epoch': {y:.2f}}}\n",
    "[rank{r}]: /opt/lib/python3.11/site-packages/torch/utils/checkpoint.py:{c}: UserWarning: None of the "
    "inputs have requires_grad=True\n",
    "{r}: saving checkpoint shard {c} of {o} to /lustre/ckpt/step_{step}/rank_{r}.pt took {y:.2f} s\n",
)


def lines(ranks: int, words: float, seed: int) -> Iterator[str]:
    """Endlessly, what a healthy job of so many ranks says."""
    rng = random.Random(seed)
    vocabulary = " ".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))).split()
    step = 0
    while True:
        step += 1
        for _ in range(200):
            if rng.random() < words:
                yield f"[rank0]: sample: {' '.join(rng.choices(vocabulary, k=18))}\n"
                continue
            r = rng.randrange(ranks)
            yield rng.choice(SHAPES).format(
                r=r, l=r % 8, h=r // 8, o=(r + 8) % ranks, step=step, m=step // 60 % 60, s=step % 60,
                ms=rng.randrange(1000), x=rng.random() * 3, y=rng.random() * 90, z=rng.random() / 1000,
                t=rng.randrange(90_000), p=rng.randrange(100), bar="\u2588" * rng.randrange(10),
                pid=10_000 + 37 * r, tid=rng.randrange(10_000, 9_999_999), c=rng.randrange(32),
            )  # fmt: skip


def write(path: Path, mib: int, ranks: int, words: float) -> None:
    """A log of that size; from 128 MiB on it repeats itself."""
    made = "".join(line for _, line in zip(range(min(mib, 128) * 9000), lines(ranks, words, 1), strict=False))
    data = made.encode()
    with path.open("wb") as file:
        left = mib * MIB
        while left > 0:
            left -= file.write(data[:left])
        file.write(("\n" + FAILURE).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--words", type=float, default=0.02, help="share of lines of random words")
    parser.add_argument("--keep", type=Path, help="keep the log here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="explain-bench-") as folder:
        path = args.keep or Path(folder, "job.log")
        # In a process of its own: what we hold would count as the reader's, who is forked from us.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(write, (path, args.mib, args.ranks, args.words))
        size = path.stat().st_size
        began = time.monotonic()
        command = [sys.executable, "-m", "netdoctor", "explain", "log", str(path)]
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(command, stdout=said)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            took = time.monotonic() - began
            said.seek(0)
            print("".join(said.readlines()[:4]))
        grepped = _timed(["grep", "-ciE", "error|warn|fail|fatal|timed out|exception", str(path)])
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{size / 1e6:.0f} MB in {took:.1f} s: {size / 1e6 / took:.0f} MB/s, {size / 1e6 / cpu:.0f} MB per "
        f"CPU second; at most {used.ru_maxrss / 1024:.0f} MiB resident; exit {process.returncode}; "
        f"{took / grepped:.1f} times as long as grep -ciE for six words"
    )


def _timed(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, env={"LC_ALL": "C", "PATH": os.defpath}, capture_output=True, check=False)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
