# mypy: ignore-errors
# ruff: noqa: F821  devices.py, which travels in front of it, has the rest
"""The same seeded work on every GPU of a node, or on its CPU, and a sum over the bits of each result.

Equal bits are promised for one model, one release and one stream, with a workspace that does not change:
https://docs.nvidia.com/cuda/cublas/#results-reproducibility, and by MKL for one CPU and number of threads:
https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/current/reproducibility-conditions.html
"""

import glob
import hashlib
import os
import re
import time

# Read when libraries are loaded: cuBLAS' workspace of each stream, and MKL's choice of code.
os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", MKL_CBWR="AUTO")

SEED = 20260701
# What is done again and again, all devices together: that is the load. Three rounds at the least.
WORK_S, LEAST_ROUNDS, MOST_ROUNDS = 3.0, 3, 400
SIDES, CPU_SIDE = (4096, 1024), 256
# One work has more results than this only where each round has another.
MOST_RESULTS = 8
# What chooses how libraries compute, by the start of its name.
CHOOSES = re.compile("MKL_|CUBLAS|CUDNN|NVIDIA_TF32|TORCH_|ATEN_|DNNL_|ONEDNN|ROCBLAS_|HIPBLAS")
COMPUTES = re.compile("lib(cublas|cudnn|torch_|mkl|openblas|hipblas|rocblas|MIOpen)")
_numbers = {}


def short(things):
    return hashlib.sha256(repr(things).encode("utf-8", "replace")).hexdigest()[:12]


def libraries():
    """Name and size of each loaded library that computes: a release by another build may round otherwise."""
    with open("/proc/self/maps", errors="replace") as file:
        paths = {line.split(None, 5)[5].strip() for line in file if line.count("/")}
    found = {p for p in paths if COMPUTES.match(os.path.basename(p))}
    return sorted((os.path.basename(p), os.path.getsize(p)) for p in found if os.path.exists(p))


def cpu():
    """What libraries choose their code by: model, features and caches of the first CPU."""
    with open("/proc/cpuinfo", errors="replace") as file:
        rows = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    features = {name.strip(): value.strip() for name, value in rows.items()}
    caches = []
    for path in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size")):
        with open(path) as file:
            caches.append(file.read().strip())
    keys = ("cpu family", "model", "stepping", "flags", "Features", "CPU part", "cache size")
    name = features.get("model name") or features.get("CPU part") or "unknown"
    return "CPU " + name, short(([features.get(key) for key in keys], caches))


def numbers(torch, side):
    """Two square matrices from -1 to 1, the same everywhere: of whole numbers, which do not round."""
    if side not in _numbers:
        source = torch.Generator().manual_seed(SEED)
        many = torch.randint(-(1 << 23), 1 << 23, (2, side, side), generator=source)
        _numbers[side] = many.to(torch.float32) / (1 << 23)
    return _numbers[side]


class Worker(Device):
    """A GPU, or the CPU as a stand-in, with its numbers."""

    def use(self):
        if not CONFIG.get("cpu"):
            Device.use(self)

    def open(self):
        torch, self.is_cpu = self.torch, bool(CONFIG.get("cpu"))
        torch.use_deterministic_algorithms(True)
        self.use()
        if self.is_cpu:
            torch.set_num_threads(1)
            self.device, side, half = torch.device("cpu"), CPU_SIDE, torch.float32
            name, features = cpu()
        else:
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.benchmark = False
            # Two matrices in both kinds, results, and 64-bit numbers to add up their bits with.
            side = self.that_fits(SIDES, lambda side: 64 * side * side + 64 * MIB)
            half = self.kind() or torch.float32
            board = torch.cuda.get_device_properties(self.number)
            name, features = board.name, (board.major, board.minor, board.multi_processor_count)
        self.a, self.b = (one.to(self.device) for one in numbers(torch, side))
        self.halves = [one.to(half) for one in (self.a, self.b)]
        self.half, self.side = str(half).split(".")[-1], side
        self.rows_of = {}
        self.result.update(name=name, rounds=0, results=[])
        self.is_open = True
        self.round()  # libraries are loaded with the first use
        variables = sorted(one for one in os.environ.items() if CHOOSES.match(one[0]))
        cudnn = None if self.is_cpu else torch.backends.cudnn.version()
        self.result["kind"] = "%s, torch %s, CUDA %s, HIP %s, cuDNN %s, %s" % (
            name, torch.__version__, torch.version.cuda, torch.version.hip,
cudnn,
            short((features, libraries(), variables, side, torch.get_num_threads() if self.is_cpu else 0)),
        )  # fmt: skip

    def works(self):
        torch, side = self.torch, self.side
        yield "the numbers themselves", lambda: self.a
        yield "product of float32", lambda: torch.mm(self.a, self.b)
        if self.half != "float32":
            yield "product of " + self.half, lambda: torch.mm(*self.halves)
        # (batch, heads, positions, width): a quarter of each matrix
        shape = (1, side // 64, side // 4, 64)
        q, k, v = (
            one.flatten()[: side * side // 4].view(shape) for one in (*self.halves, self.halves[0].t())
        )
        attention = torch.nn.functional.scaled_dot_product_attention
        yield "attention in " + self.half, lambda: attention(q, k, v)
        yield "sums", lambda: torch.cat([self.a.sum(0), self.a.sum(1), (self.a * self.b).sum().view(1)])
        yield "softmax", lambda: torch.softmax(self.a, 1)

    def round(self):
        """Ask for every work once; returns at once on a GPU, with the sums to be read: [(work, sums)]."""
        self.use()
        return [(name, self.sums(work())) for name, work in self.works()]

    def sums(self, found):
        """Two sums over the bits as whole numbers, which have no order: one flip changes the first."""
        torch = self.torch
        integers = (
            found.contiguous().view(torch.int32 if found.element_size() == 4 else torch.int16).flatten()
        )
        integers = integers.to(torch.int64)
        weights = torch.arange(integers.numel(), device=self.device) % 251 + 1
        return torch.stack([integers.sum(), (integers * weights).sum()])

    def read(self, results):
        self.use()
        self.result["rounds"] += 1
        for name, sums in results:
            bits = "".join("%016x" % (one & (1 << 64) - 1) for one in sums.tolist())
            rows = self.rows_of.setdefault(name, {})
            if bits in rows:
                rows[bits]["rounds"] += 1
            elif len(rows) < MOST_RESULTS:
                rows[bits] = {"work": name, "bits": bits, "first": self.result["rounds"], "rounds": 1}
                self.result["results"].append(rows[bits])


def rounds(gpus):
    began, done = time.monotonic(), 0
    while done < LEAST_ROUNDS or (done < MOST_ROUNDS and time.monotonic() - began < WORK_S):
        results = trying(gpus, Worker.round)
        if not trying(results, lambda gpu: gpu.read(results[gpu]) or True):  # noqa: B023  called at once
            break
        done += 1


if __name__ == "__main__":
    run(Worker, (rounds,))
