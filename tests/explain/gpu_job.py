"""A small training job over NCCL that fails as it is told to; `scripts/record_gpu_logs.py` runs it.

torchrun … gpu_job.py WHAT
"""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def steps(x: torch.Tensor, count: int, rank: int, pause_s: float = 0.0) -> None:
    for i in range(count):
        dist.all_reduce(x)
        torch.cuda.synchronize()
        x.fill_(1.0)
        if rank == 0:
            print(f"step {i} loss {2.0 / (i + 1):.4f}", flush=True)
        time.sleep(pause_s)


def misbehave(what: str, x: torch.Tensor, rank: int) -> None:
    """Rank 1's trouble, in the middle of the run."""
    if what == "skip" and rank == 1:
        time.sleep(25)
    elif what == "other":
        dist.all_reduce(x) if rank == 0 else dist.broadcast(x, 0)
    elif what == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop" and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "memory" and rank == 1:
        kept = [torch.empty(1 << 34, dtype=torch.uint8, device="cuda") for _ in range(20)]
        print(len(kept))
    elif what == "raise" and rank == 1:
        raise ValueError("the tokenizer has 32000 tokens, the embedding 31999")
    elif what == "index" and rank == 1:
        print(torch.nn.Embedding(10, 4).cuda()(torch.tensor([5, 11], device="cuda")).sum().item())
    elif what == "exit" and rank == 1:
        sys.exit(3)
    steps(x, 20 if what != "none" else 0, rank, 0.2)


def main() -> None:
    what, rank = sys.argv[1], int(os.environ["RANK"])
    torch.cuda.set_device(3 if what == "ordinal" else int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=8))
    x = torch.ones(1 << 20, device="cuda")
    steps(x, 5, rank)
    misbehave(what, x, rank)
    dist.destroy_process_group()
    print("done", flush=True)


if __name__ == "__main__":
    main()
