"""A gloo job that makes steps for ever, and of which one rank hangs: job.py [WHAT [RANK [STEP]]]."""

import fcntl
import os
import signal
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

what, who, when = [*sys.argv[1:], *("", "-1", "3")[len(sys.argv) - 1 :]]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)


class Batches(Dataset):
    """Item `when` of a rank that shall hang in its loader waits for a lock that somebody holds."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        if what == "loader" and rank == int(who) and index >= int(when):
            with tempfile.NamedTemporaryFile() as held, open(held.name) as other:
                fcntl.flock(held, fcntl.LOCK_EX)
                fcntl.flock(other, fcntl.LOCK_EX)
        return torch.ones(64)


def perhaps_hang(step):
    if rank != int(who) or step != int(when):
        return
    if what == "sleep":
        time.sleep(100000)
    elif what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "mismatch":
        dist.broadcast(torch.ones(4), src=(rank + 1) % world)
    elif what == "lock":
        with open(f"/var/tmp/netdoctor-hang-{os.getpid()}", "w") as held, open(held.name) as other:
            os.unlink(held.name)
            fcntl.flock(held, fcntl.LOCK_EX)
            fcntl.flock(other, fcntl.LOCK_EX)


def main():
    print("begins", flush=True)
    if what == "dead" and rank == int(who):
        sys.exit(0)
    if when == "0":
        perhaps_hang(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    workers = 1 if what == "loader" and rank == int(who) else 0
    for step, batch in enumerate(DataLoader(Batches(), num_workers=workers), 1):
        perhaps_hang(step)
        model(batch).sum().backward()
        optimizer.step()
        loss = torch.ones(1)
        dist.all_reduce(loss)
        time.sleep(0.05)
        if step == 2:
            print("steps", flush=True)


main()
