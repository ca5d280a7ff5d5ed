"""Programs that fail by their own fault, one for each name; `scripts/record_programs.py` runs them.

python failing.py NAME
"""

import argparse
import asyncio
import concurrent.futures
import ctypes
import faulthandler
import json
import multiprocessing
import os
import pickle
import queue
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

PLAIN: dict[str, Callable[[], object]] = {}
TORCH: dict[str, Callable[[], object]] = {}
TWO_RANKS: dict[str, Callable[[], object]] = {}  # started by torchrun
RAY: dict[str, Callable[[], object]] = {}
GPU: dict[str, Callable[[], object]] = {}


def of(group: dict[str, Callable[[], object]]) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def add(program: Callable[[], object]) -> Callable[[], object]:
        group[program.__name__] = program
        return program

    return add


class BadBatch(Exception):
    pass


def tokens(text: str) -> list[int]:
    return [int(word) for word in text.split()]


@of(PLAIN)
def value():
    tokens("17 4 x9")


@of(PLAIN)
def key():
    print({"lr": 1e-3}["learning_rate"])


@of(PLAIN)
def type_():
    len(17)


@of(PLAIN)
def index():
    losses = [0.5, 0.4]
    print(losses[len(losses)])


@of(PLAIN)
def attribute():
    print(argparse.Namespace(lr=1).batch)


@of(PLAIN)
def assertion():
    assert 100 % 8 == 0, "batch 100 is not divisible by 8"


@of(PLAIN)
def name():
    print(not_defined)  # noqa: F821


@of(PLAIN)
def division():
    print(1 / 0)


@of(PLAIN)
def not_implemented():
    raise NotImplementedError("no tensor parallelism for this model")


@of(PLAIN)
def module():
    import flash_attn_of_nobody  # noqa: F401


@of(PLAIN)
def attribute_of_module():
    from json import load_all  # noqa: F401


@of(PLAIN)
def missing_file():
    Path("/data/of-nobody/train.bin").read_bytes()


@of(PLAIN)
def own_class():
    raise BadBatch("sample 17 is empty")


@of(PLAIN)
def words_as_exit():
    sys.exit("config: no such dataset: c4-of-nobody")


@of(PLAIN)
def argument():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.parse_args(["--leraning-rate", "3"])


@of(PLAIN)
def syntax():
    compile("def step(:\n    pass\n", "train.py", "exec")


@of(PLAIN)
def recursion():
    def walk(depth: int) -> int:
        return walk(depth + 1)

    walk(0)


@of(PLAIN)
def unicode_():
    b"\xff\xfe".decode()


@of(PLAIN)
def json_():
    json.loads('{"lr": }')


@of(PLAIN)
def pickled():
    pickle.loads(b"\x80\x04\x95")


@of(PLAIN)
def not_picklable():
    pickle.dumps(lambda: 1)


@of(PLAIN)
def empty_queue():
    queue.Queue().get(timeout=0.1)


@of(PLAIN)
def broken_pool():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        pool.submit(os._exit, 1).result()


@of(PLAIN)
def thread():
    def work() -> None:
        raise ValueError("the prefetcher has no sample 17")

    one = threading.Thread(target=work)
    one.start()
    one.join()
    raise RuntimeError("prefetching ended early")


@of(PLAIN)
def asynchronous():
    async def work() -> None:
        raise LookupError("no shard 17")

    asyncio.run(work())


@of(PLAIN)
def segfault():
    faulthandler.enable()
    ctypes.string_at(0)


@of(PLAIN)
def abort():
    faulthandler.enable()
    os.abort()


@of(PLAIN)
def memory():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    bytearray(8 << 30)


@of(PLAIN)
def chained():
    try:
        {}["optimizer"]
    except KeyError as error:
        raise ValueError("the checkpoint has no optimizer") from error


@of(PLAIN)
def during():
    try:
        {}["optimizer"]
    except KeyError:
        int("x")


@of(TORCH)
def shape():
    import torch

    torch.nn.Linear(4, 8)(torch.randn(3, 5))


@of(TORCH)
def dtype():
    import torch

    torch.randn(4, 4) @ torch.randn(4, 4).half()


@of(TORCH)
def state_dict():
    import torch

    torch.nn.Linear(2, 2).load_state_dict({"a": torch.zeros(4)})


@of(TORCH)
def size_mismatch():
    import torch

    torch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(3, 2).state_dict())


@of(TORCH)
def backward_twice():
    import torch

    loss = (torch.ones(3, requires_grad=True) ** 2).sum()
    loss.backward()
    loss.backward()


@of(TORCH)
def inplace():
    import torch

    made = torch.ones(3, requires_grad=True).exp()
    made.add_(1)
    made.sum().backward()


@of(TORCH)
def no_grad():
    import torch

    torch.zeros(1).sum().backward()


@of(TORCH)
def not_a_number():
    import torch

    torch.autograd.set_detect_anomaly(True)
    (torch.zeros(3, requires_grad=True).sqrt() * 0).sum().backward()


class Samples:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> object:
        import torch

        if sys.argv[1] == "loader_raises" and number == 5:
            raise OSError(f"sample {number} is truncated")
        return torch.zeros(number if sys.argv[1] == "loader_collates" else 1)


def load() -> None:
    from torch.utils.data import DataLoader

    for _ in DataLoader(Samples(), batch_size=2, num_workers=1):  # type: ignore[arg-type]
        pass


@of(TORCH)
def loader_raises():
    load()


@of(TORCH)
def loader_collates():
    load()


@of(TORCH)
def embedding():
    import torch

    torch.nn.Embedding(10, 4)(torch.tensor([5, 11]))


@of(TORCH)
def class_out_of_range():
    import torch

    torch.nn.functional.cross_entropy(torch.randn(2, 4), torch.tensor([1, 7]))


@of(TORCH)
def weights_only():
    import torch

    with tempfile.NamedTemporaryFile() as file:
        torch.save(argparse.Namespace(lr=1), file.name)
        torch.load(file.name)


@of(TORCH)
def truncated_checkpoint():
    import torch

    with tempfile.NamedTemporaryFile() as file:
        torch.save(torch.zeros(1000), file.name)
        os.truncate(file.name, 900)
        torch.load(file.name)


@of(TORCH)
def view():
    import torch

    torch.zeros(6).view(4, 2)


@of(TORCH)
def broadcast():
    import torch

    torch.zeros(3) + torch.zeros(4)


@of(TORCH)
def compiled():
    import torch

    @torch.compile(fullgraph=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        print(x.sum().item())
        return x + 1

    step(torch.zeros(3))


def spawned(rank: int) -> None:
    if rank == 1:
        raise ValueError("rank 1 has no shard")


@of(TORCH)
def spawn():
    import torch.multiprocessing

    torch.multiprocessing.spawn(spawned, nprocs=2)


def group() -> int:
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank()


@of(TWO_RANKS)
def one_rank_raises():
    import torch.distributed

    if group() == 1:
        raise ValueError("the tokenizer has 32000 tokens, the embedding 31999")
    torch.distributed.barrier()


@of(TWO_RANKS)
def all_ranks_raise():
    group()
    raise KeyError("attention_mask")


@of(TWO_RANKS)
def one_rank_exits():
    import torch.distributed

    if group() == 1:
        sys.exit(3)
    torch.distributed.barrier()


@of(TWO_RANKS)
def unused_parameters():
    import torch

    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)  # type: ignore[no-any-return]

    group()
    model = torch.nn.parallel.DistributedDataParallel(Half())
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()


@of(RAY)
def task_of_ray():
    import ray

    @ray.remote
    def train() -> None:
        raise ValueError("the tokenizer has 32000 tokens, the embedding 31999")

    ray.init(num_cpus=1, include_dashboard=False)
    ray.get(train.remote())


@of(GPU)
def gpu_memory():
    import torch

    [torch.empty(1 << 34, dtype=torch.uint8, device="cuda") for _ in range(20)]


@of(GPU)
def gpu_fraction():
    import torch

    torch.cuda.set_per_process_memory_fraction(0.01)
    torch.empty(1 << 32, dtype=torch.uint8, device="cuda")


@of(GPU)
def gpu_embedding():
    import torch

    print(torch.nn.Embedding(10, 4).cuda()(torch.tensor([5, 11], device="cuda")).sum().item())


@of(GPU)
def gpu_gather():
    import torch

    print(torch.zeros(4, device="cuda").gather(0, torch.tensor([9], device="cuda")).item())


@of(GPU)
def gpu_class_out_of_range():
    import torch

    x, y = torch.randn(2, 4, device="cuda"), torch.tensor([1, 7], device="cuda")
    print(torch.nn.functional.cross_entropy(x, y).item())


def kernel(body: str) -> None:
    """Run a CUDA kernel whose body this is; p: 64 ints."""
    import cupy
    import torch

    code = cupy.RawKernel(f'extern "C" __global__ void f(int* p) {{ {body} }}', "f")
    code((1,), (32,), (torch.zeros(64, dtype=torch.int32, device="cuda").data_ptr(),))
    torch.cuda.synchronize()


@of(GPU)
def gpu_illegal_address():
    kernel("p[threadIdx.x + (1ll << 40)] = 1;")


@of(GPU)
def gpu_misaligned():
    kernel("*(volatile long long*)((char*)p + 1) = 1;")


@of(GPU)
def gpu_trap():
    kernel('asm("trap;");')


@of(GPU)
def gpu_mixed_devices():
    import torch

    torch.randn(4, 4) @ torch.randn(4, 4, device="cuda")


@of(GPU)
def gpu_dtype():
    import torch

    torch.randn(4, 4, device="cuda") @ torch.randn(4, 4, device="cuda").half()


def on_gpu() -> None:
    import torch

    torch.zeros(1, device="cuda")


@of(GPU)
def gpu_forked():
    on_gpu()
    child = multiprocessing.get_context("fork").Process(target=on_gpu)
    child.start()
    child.join()
    sys.exit(child.exitcode)


@of(GPU)
def gpu_captured():
    import torch

    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda").item()


@of(GPU)
def gpu_triton():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def program(p, N: tl.constexpr):  # type: ignore[no-untyped-def]
        tl.store(p + tl.arange(0, N), tl.zeros((N,), tl.float32))

    program[(1,)](torch.zeros(8, device="cuda"), 7)


@of(GPU)
def gpu_cudnn():
    import torch

    free, _ = torch.cuda.mem_get_info()
    kept = torch.empty(free - (120 << 20), dtype=torch.uint8, device="cuda")
    print(
        torch.nn.Conv2d(3, 64, 3).cuda().half()(torch.randn(8, 3, 64, 64, device="cuda").half()).sum(),
        kept[0],
    )


GROUPS: Mapping[str, Mapping[str, Callable[[], object]]] = {
    "plain": PLAIN, "torch": TORCH, "two_ranks": TWO_RANKS, "ray": RAY, "gpu": GPU,
}  # fmt: skip

if __name__ == "__main__":
    next(programs[sys.argv[1]] for programs in GROUPS.values() if sys.argv[1] in programs)()
