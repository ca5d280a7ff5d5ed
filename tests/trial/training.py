# mypy: ignore-errors
"""A small training loop of torch with gloo, in which one rank does something else at some moment.

training.py [WHAT [RANK]]: at the start, or in step 3.
"""

import json
import os
import signal
import sys
import time

what, who = [*sys.argv[1:], *("", "-1")[len(sys.argv) - 1 :]]
mine = os.environ.get("RANK", "0") == who


def at_start():
    if what == "module":
        sys.path.insert(0, "/tmp/ndparts")
        import ndparts  # noqa: F401
    if what == "data":
        open("/tmp/ndparts/train-00000.bin", "rb").close()
    if what == "mount" and mine:
        os.listdir("/mnt/data")
    if what == "nccl":
        return "nccl"
    if what == "port" and mine:
        os.environ["MASTER_PORT"] = "29511"
    if what == "world":
        os.environ["WORLD_SIZE"] = "5"
    if what == "unset" and mine:
        del os.environ["RANK"]
    if what == "same" and mine:
        os.environ["RANK"] = "1"
    if what == "high" and mine:
        os.environ["RANK"] = "4"
    if what == "memory":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if what == "late" and mine:
        time.sleep(600)
    return "gloo"


backend = at_start()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def in_step():
    if what == "raise":
        raise ValueError("the label 17 is outside of the vocabulary")
    if what == "shapes":
        model(torch.randn(8, 63))
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "memory":
        # Whoever tests it puts this process into a control group with little memory first.
        signal.sigwait([signal.SIGUSR1])
        torch.ones(1 << 28)
    if what == "address-space":
        torch.empty(1 << 50, dtype=torch.uint8)
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "exit":
        sys.exit(3)
    if what == "leave":
        os._exit(0)
    if what == "loader":
        next_batch()
    if what == "lock":
        import threading

        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if what == "nan":
        loss = model(torch.randn(8, 64)).sum() * float("nan")
        if not torch.isfinite(loss):
            raise FloatingPointError("Loss is nan, stopping training")
    if what == "collective":
        dist.all_reduce(torch.ones(5))
    if what == "extra":
        dist.barrier()
    if what == "disk":
        with open("/tmp/checkpoint.pt", "wb") as file:
            torch.save(torch.ones(1 << 22), file)
    if what == "denied":
        os.setresuid(65534, 65534, 65534)
        open("/root/checkpoint.pt", "wb").close()
    if what == "files":
        kept = []
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    if what == "damaged":
        with open("/tmp/half.pt", "wb") as file:
            file.write(b"PK\x03\x04" + bytes(100))
        try:
            torch.load("/tmp/half.pt")
        finally:
            os.unlink("/tmp/half.pt")
    if what == "json":
        json.loads("{")
    if what == "key":
        {"a": 1}["input_ids"]
    if what == "cuda":
        torch.ones(1).cuda()
    if what == "shm":
        share()
    if what == "index":
        torch.nn.Embedding(10, 4)(torch.tensor([17]))
    if what == "state":
        model.load_state_dict({})
    if what == "assert":
        raise AssertionError("sequence length 4096 is not a multiple of 7")


def next_batch():
    time.sleep(600)


def share():
    tensor = torch.ones(1 << 24)
    tensor.share_memory_()


dist.init_process_group(backend)
# No optimizer of torch: to make one takes as long as all the rest.
model = torch.nn.Linear(64, 1 << 14 if what == "large" else 64)
for step in range(100000):
    if mine and step == 3:
        in_step()
    model(torch.randn(8, 64)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    print("step", step, flush=True)
    time.sleep(0.05)
