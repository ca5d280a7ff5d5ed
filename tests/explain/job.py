"""A small training job over gloo that fails as it is told to; `scripts/record_logs.py` runs it on lab nodes.

RANK=0 WORLD_SIZE=3 MASTER_ADDR=… MASTER_PORT=… python job.py [--timeout S] [--do WHAT --at STEP --ranks 1,2]
"""

import argparse
import datetime
import os
import resource
import signal
import socket
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

GIB = 2**30


class Samples(Dataset):
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.size_bytes // 4,), float(index))


def misbehave(what: str, rank: int) -> None:
    """One rank's trouble, in the middle of the run."""
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "slow":
        print(f"rank {rank}: tokenizing the data set", flush=True)
        time.sleep(600)
    elif what == "shape":
        dist.all_reduce(torch.ones(999))
    elif what == "op":
        dist.broadcast(torch.ones(1000), src=0)
    elif what == "dtype":
        dist.all_reduce(torch.ones(1000, dtype=torch.float64))
    elif what == "skip":
        return
    elif what == "finish":
        # Uneven data: this rank has no batch left and leaves while the others are still in their loop.
        print(f"rank {rank}: done", flush=True)
        dist.destroy_process_group()
        raise SystemExit(0)
    elif what == "shm":
        for batch in DataLoader(Samples(48 * 2**20), batch_size=2, num_workers=2):
            print(f"rank {rank}: batch of {batch.nbytes} bytes", flush=True)
    elif what == "files":
        soft = 64
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
        opened = [open("/etc/hostname", encoding="utf-8") for _ in range(soft * 2)]  # noqa: SIM115  to run out
        print(len(opened))
    elif what == "loader-files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        kept = list(DataLoader(Samples(4096), num_workers=2, batch_size=1)) + [
            batch for _ in range(20) for batch in DataLoader(Samples(4096), num_workers=1, batch_size=1)
        ]
        print(len(kept))
    elif what == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
        torch.ones(64 * GIB // 4)
    elif what == "eat":
        hoard = []
        while True:
            hoard.append(torch.ones(2**24))
    elif what == "disk":
        torch.save({"weights": torch.ones(16 * 2**20 // 4)}, "/tmp/checkpoint.pt")
    elif what == "read":
        torch.load("/data/index/train.idx.pt")
    elif what == "raise":
        raise ValueError(f"loss is nan at step 3 on rank {rank}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float, default=8)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--do", default="")
    parser.add_argument("--at", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--ranks", default="1")
    parser.add_argument("--leave", action="store_true", help="end without destroy_process_group")
    args = parser.parse_args()
    broken = {int(number) for number in args.ranks.split(",")}

    print(f"torch {torch.__version__} on {socket.gethostname()}", flush=True)
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=args.timeout))
    rank = dist.get_rank()
    print(f"rank {rank} of {dist.get_world_size()} is ready", flush=True)
    for step in range(args.steps):
        mine = args.do if step == args.at and rank in broken else ""
        misbehave(mine, rank)
        if mine not in ("shape", "op", "dtype", "skip"):
            dist.all_reduce(torch.ones(args.elements))
        print(f"rank {rank}: step {step} loss {1 / (step + 1):.4f}", flush=True)
    if not args.leave:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
