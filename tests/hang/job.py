"""A gloo job that makes steps for ever, and in which one rank hangs where FOLDER/hang says so.

job.py FOLDER [WHAT RANK]: WHAT is ``dead``, ``late`` or ``mismatch``, from which it does not come back. The
file FOLDER/hang has "WHAT RANK": ``sleep`` until it is gone, ``lock`` and ``loader`` until it is not locked.
"""

import fcntl
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

folder = Path(sys.argv[1])
what, who = [*sys.argv[2:], "", "-1"][:2]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)


def asked():
    try:
        what, who = (folder / "hang").read_text().split()
    except (OSError, ValueError):
        return ""
    return what if int(who) == rank else ""


def wait_for_lock():
    with (folder / "hang").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)


class Batches(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        if asked() == "loader":
            wait_for_lock()
        return torch.ones(64)


def perhaps_hang(step):
    if asked() == "lock":
        wait_for_lock()
    while asked() == "sleep":
        time.sleep(1)
    if what == "mismatch" and rank == int(who) and step == 5:
        dist.broadcast(torch.ones(4), src=(rank + 1) % world)


def main():
    (folder / f"begins-{rank}").touch()
    if what == "dead" and rank == int(who):
        sys.exit(0)
    if what == "late" and rank == int(who):
        time.sleep(100000)
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, batch in enumerate(DataLoader(Batches(), num_workers=1), 1):
        perhaps_hang(step)
        model(batch).sum().backward()
        optimizer.step()
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)
        (folder / f"steps-{rank}").write_text(str(step))


main()
