"""Programs that end well, and print what looks like trouble to who reads words alone: handled errors,
retries, warnings, settings that are called after a fault. `scripts/record_programs.py --well` runs them.

python well.py NAME
"""

import concurrent.futures
import logging
import math
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.explain.programs.failing import of

PLAIN: dict[str, Callable[[], object]] = {}
TORCH: dict[str, Callable[[], object]] = {}
TWO_RANKS: dict[str, Callable[[], object]] = {}  # started by torchrun


def steps(count: int = 40, **more: object) -> None:
    for step in range(count):
        words = " ".join(f"{name} {value}" for name, value in more.items())
        print(f"step {step} loss {2.5 - step / 100:.4f} grad_norm {1 / (step + 1):.3f} {words}", flush=True)


@of(PLAIN)
def settings():
    for line in (
        "nccl_timeout: 1800", "ignore_errors: false", "max_failures: 3", "on_error: raise", "fail_fast: true",
        "NCCL_ASYNC_ERROR_HANDLING: 1", "watchdog_timeout_s: 600", "retry_on_connection_refused: true",
        "cuda_out_of_memory_retry: 0", "kill_on_hang: false", "ib_disable: 0",
    ):  # fmt: skip
        print(f"  {line}")
    steps(errors=0, timeouts=0)


@of(PLAIN)
def error_rate():
    for epoch in range(3):
        print(f"epoch {epoch}: word error rate 0.0{9 - epoch}1, top-1 error 23.{epoch} %, 0 errors, 0 failed")
    print("evaluation finished: 0 of 1,000 samples failed")


@of(PLAIN)
def handled():
    for attempt in range(3):
        try:
            int("x9" if attempt < 2 else "9")
        except ValueError:
            traceback.print_exc()
            print(f"attempt {attempt} failed, trying again", flush=True)
    steps()


@of(PLAIN)
def server_comes_late():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def serve() -> None:
        time.sleep(1)
        with socket.create_server(("127.0.0.1", port)) as server:
            server.accept()[0].close()

    threading.Thread(target=serve).start()
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
            break
        except OSError as error:
            print(f"rendezvous not there yet ({error}), retrying in 0.3 s", flush=True)
            time.sleep(0.3)
    print("connected")
    steps()


@of(PLAIN)
def tracker_is_down():
    try:
        urllib.request.urlopen("http://127.0.0.1:9/api", timeout=2)
    except urllib.error.URLError as error:
        print(f"tracker: could not send metrics ({error.reason}); they are kept and sent later")
    steps()


@of(PLAIN)
def resumed():
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "latest").read_text()
    except FileNotFoundError as error:
        print(f"no checkpoint to resume from: {error}; starting from scratch")
    steps()
    (folder / "latest").write_text("4")
    print("checkpoint saved")
    (folder / "latest").unlink()
    folder.rmdir()


@of(PLAIN)
def bad_samples():
    for index, text in enumerate(("17", "x9", "", "4")):
        try:
            int(text)
        except ValueError as error:
            logging.error("sample %d skipped: %s", index, error)
    steps(skipped=2)


@of(PLAIN)
def child_times_out():
    try:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(9)"], timeout=0.5, check=True)
    except subprocess.TimeoutExpired as error:
        print(f"preprocessing of the last shard took too long: {error}; it is left out")
    steps()


@of(PLAIN)
def child_is_killed():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    child.send_signal(signal.SIGKILL)
    print(f"profiler ended with {child.wait()} (Killed)")
    steps()


@of(PLAIN)
def ends_on_request():
    def end(number: int, frame: object) -> None:
        print(f"got {signal.Signals(number).name}: saves a checkpoint and ends", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    steps()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


@of(PLAIN)
def many_warnings():
    for text in (
        "CUDA is not available, training on CPU", "the tokenizer was saved by a newer release",
        "could not find libnuma, affinity is not set", "InfiniBand counters cannot be read as this user",
    ):  # fmt: skip
        warnings.warn(text, RuntimeWarning, stacklevel=1)
    steps()


@of(PLAIN)
def loss_scale():
    scale = 65536.0
    for step in range(5):
        if step in (1, 2):
            scale /= 2
            print(f"[deepspeed] OVERFLOW! step {step}: grads are inf or nan, skipped, scale now {scale}")
        else:
            print(f"step {step} loss {2.3 - step / 10} loss_scale {scale}")


@of(PLAIN)
def no_free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1])).close()
        except OSError as error:
            print(f"dashboard: {error}, takes the next port")
    steps()


@of(PLAIN)
def workers():
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(f"tokenized {sum(pool.map(math.factorial, range(6)))} words with 2 workers, 0 broken")
    steps()


@of(PLAIN)
def disk_nearly_full():
    print("warning: 4.1 GB left on /scratch, checkpoints are written to /data (No space left is near)")
    steps()


@of(PLAIN)
def nodes_in_a_table():
    for node in ("gpu1", "gpu2"):
        print(f"{node}  Xid errors 0  ECC uncorrected 0  link down 0  retransmits 0.00 %  timeouts 0  OK")
    steps()


@of(PLAIN)
def interrupted_evaluation():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        print("evaluation was skipped by the user, training goes on")
    steps()


@of(PLAIN)
def spawns():
    process = multiprocessing.get_context("spawn").Process(target=print, args=("worker 0 is ready",))
    process.start()
    process.join()
    print(f"worker 0 ended with {process.exitcode}")
    steps()


@of(TORCH)
def trains():
    import torch

    model, data = torch.nn.Linear(8, 1), torch.randn(64, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(5):
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}")


@of(TORCH)
def scheduler_before_optimizer():
    import torch

    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scheduler.step()
    optimizer.step()
    steps(lr=scheduler.get_last_lr()[0])


@of(TORCH)
def loader_workers():
    import torch

    loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=8, num_workers=os.cpu_count() or 1 + 4)
    print(sum(batch.sum().item() for batch in loader), "is the sum of all samples")


@of(TORCH)
def no_gpu_here():
    import torch

    with torch.autocast("cuda", enabled=torch.cuda.is_available()):
        print(f"device cpu: {torch.cuda.device_count()} GPUs")
    try:
        torch.zeros(1, device="cuda")
    except (AssertionError, RuntimeError) as error:
        print(f"no CUDA: {str(error).splitlines()[0]}; goes on without")
    steps()


@of(TORCH)
def memory_is_tried():
    import torch

    batch = 1 << 50
    while True:
        try:
            torch.empty(batch)
            break
        except RuntimeError as error:
            print(f"batch of {batch} does not fit ({str(error)[:90]}), halved")
            batch //= 1 << 20
    steps()


@of(TORCH)
def nan_in_validation():
    import torch

    print(f"validation: {torch.tensor([math.nan, 1.0]).nanmean().item()} (1 of 2 batches was empty: nan)")
    steps()


@of(TORCH)
def checkpoint():
    import torch

    path = Path(tempfile.mkdtemp()) / "last.pt"
    model = torch.nn.Linear(4, 4)
    torch.save(model.state_dict(), path)
    found = torch.nn.Linear(4, 4, bias=False).load_state_dict(torch.load(path), strict=False)
    print(f"resumed from last.pt: {found}")
    path.unlink()
    path.parent.rmdir()
    steps()


@of(TORCH)
def checkpoint_other_shape():
    import torch

    try:
        torch.nn.Linear(4, 3).load_state_dict(torch.nn.Linear(4, 4).state_dict())
    except RuntimeError as error:
        print(f"head is new, as its shape differs: {error}")
    steps()


@of(TORCH)
def compiled():
    import torch

    print(torch.compile(lambda x: x * 2 + random.random(), backend="eager")(torch.ones(2)).shape)
    steps()


@of(TORCH)
def deprecated():
    import torch

    scaler = torch.cuda.amp.GradScaler(enabled=True)
    print(f"scale {scaler.get_scale()}")
    steps()


@of(TORCH)
def profiled():
    import torch

    with torch.profiler.profile() as profile:
        torch.ones(64, 64) @ torch.ones(64, 64)
    print(profile.key_averages().table(row_limit=4))


def group(seconds: float = 60):
    import datetime

    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
    return dist


@of(TWO_RANKS)
def two_sum():
    import torch

    dist = group()
    one = torch.ones(4)
    dist.all_reduce(one)
    print(f"rank {dist.get_rank()}: {one.tolist()}", flush=True)
    dist.destroy_process_group()


@of(TWO_RANKS)
def two_ddp():
    import torch

    dist = group()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for step in range(4):
        model(torch.ones(2, 4)).sum().backward()
        if dist.get_rank() == 0:
            print(f"step {step} grad {model.module.weight.grad.norm().item():.3f}", flush=True)
    dist.destroy_process_group()


@of(TWO_RANKS)
def two_unused():
    import torch

    dist = group()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), find_unused_parameters=True)
    model(torch.ones(2, 4)).sum().backward()
    dist.destroy_process_group()
    steps()


@of(TWO_RANKS)
def two_one_is_late():
    dist = group()
    if dist.get_rank():
        print("rank 1: tokenizes for a while", flush=True)
        time.sleep(4)
    dist.barrier()
    steps()
    dist.destroy_process_group()


@of(TWO_RANKS)
def two_without_destroy():
    group().barrier()
    steps()


@of(TWO_RANKS)
def two_monitored():
    dist = group()
    try:
        if dist.get_rank() == 0:
            import datetime

            dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
    except RuntimeError as error:
        print(f"the slow start of a rank, as was tried here: {error}", flush=True)
    time.sleep(2)
    steps()


@of(TWO_RANKS)
def two_sampler():
    import torch

    dist = group()
    sampler = torch.utils.data.DistributedSampler(range(9))
    print(f"rank {dist.get_rank()}: samples {list(sampler)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


GROUPS: Mapping[str, Mapping[str, Callable[[], object]]] = {
    "plain": PLAIN, "torch": TORCH, "two_ranks": TWO_RANKS,
}  # fmt: skip

if __name__ == "__main__":
    next(programs[sys.argv[1]] for programs in GROUPS.values() if sys.argv[1] in programs)()
