# mypy: ignore-errors
"""A job of ranks that join and make steps, and of which one does something else at some moment.

job.py [WHAT [RANK [WHEN]]]: WHEN is ``start``, ``joined``, or the number of a step.
"""

import os
import signal
import socket
import subprocess
import sys
import time

what, who, when = [*sys.argv[1:], *("", "0", "start")[len(sys.argv) - 1 :]]
rank = int(os.environ.get("RANK", "0"))


def perhaps(now):
    if str(now) == when and str(rank) == who:
        does()


def does():
    if what == "raise":
        raise ValueError("the data are not what they should be")
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        sys.exit(3)
    if what == "leave":
        sys.exit(0)
    if what == "hang":
        time.sleep(600)
    if what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "flood":
        line = b"x" * 199 + b"\n"
        until = time.monotonic() + 2
        while time.monotonic() < until:
            os.write(1, line * 100)
    if what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what == "daemon":
        subprocess.Popen(
            ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    if what == "orphan" and os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(0, 3)
        time.sleep(600)
        os._exit(0)
    if what == "alone":
        os.environ["WORLD_SIZE"] = "1"
        os.environ["RANK"] = "0"
        os.environ["MASTER_ADDR"] = "127.0.0.1"


# ``slow NODE``, or ``crowd N``: where there are so many ranks.
slow = (what == "slow" and who == socket.gethostname()) or (
    what == "crowd" and int(os.environ["WORLD_SIZE"]) >= int(who)
)
if what in ("slow", "crowd"):
    when = ""
perhaps("start")
import torch.distributed as dist  # noqa: E402
import torch.optim  # noqa: E402

dist.init_process_group()
perhaps("joined")
optimizer = torch.optim.SGD()
for step in range(100000):
    perhaps(step)
    dist.barrier()
    time.sleep(0.12 if slow else 0.04)
    if what != "stepless":
        optimizer.step()
