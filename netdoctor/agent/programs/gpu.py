# mypy: ignore-errors
"""What works on the GPUs of a node for two seconds each. Its text travels to the nodes; nothing imports it.

It runs in the job's interpreter (Python 3.8 and up) with nothing but the standard library and torch, and says
what it found as lines of JSON on its stdout. One process for all GPUs: torch starts once, and what is asked
of a GPU returns at once, so that all of them are at work together.
"""

import ctypes
import json
import os
import statistics
import threading
import time

CONFIG = globals().get("CONFIG") or {}
ALIVE_S = 0.5
MIB = 1 << 20
# Seconds of work, as the GPU counts them. Clocks rise in the first part of the first.
WARM_S, COMPUTE_S, MEMORY_S, COPY_S = 0.3, 0.9, 0.3, 0.15
# One question to a GPU takes about so long: long enough for its events, short enough to be left soon.
ROUND_S = 0.05
MOST_ROUNDS = 60
# Rows of a square matrix, and bytes of a buffer, that fill a data centre's GPU; less where memory is small.
SIZES = ((8192, 256 * MIB), (4096, 128 * MIB), (2048, 64 * MIB))
# All of it takes this part of a GPU's memory at the most, and half of what is free.
MEMORY_PART = 8
PINNED_BYTES = 64 * MIB
SM_CLOCK, MEMORY_FULL = 1, "too little of its memory is free"

_out = 1
_lock = threading.Lock()
_now = {"stage": "start", "gpu": None}


def say(**message):
    data = (json.dumps(message) + "\n").encode("ascii")
    with _lock:
        while data:
            data = data[os.write(_out, data) :]


def beat():
    while True:
        time.sleep(ALIVE_S)
        try:
            say(event="alive", **_now)
        except OSError:
            os._exit(0)


def words(error):
    return (type(error).__name__ + ": " + " ".join(str(error).split()))[:400]


class Nvml:
    """What the driver says of a GPU while it works; None for whatever it does not say."""

    def __init__(self):
        self.library = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                self.library = library
        except (OSError, AttributeError):
            pass

    def handle(self, uuid):
        found = ctypes.c_void_p()
        try:
            if self.library.nvmlDeviceGetHandleByUUID(uuid.encode("ascii"), ctypes.byref(found)) == 0:
                return found
        except AttributeError:
            pass
        return None

    def ask(self, name, handle, *args, kind=ctypes.c_uint):
        value = kind()
        try:
            if handle is not None and getattr(self.library, name)(handle, *args, ctypes.byref(value)) == 0:
                return value.value
        except AttributeError:
            pass
        return None


class Gpu:
    """One GPU: torch's number `place`, and what is said of it in the end."""

    def __init__(self, torch, nvml, number, requested):
        self.torch = torch
        self.nvml = nvml
        self.number = number
        self.device = torch.device("cuda", number)
        self.bus = str(requested.get("bus") or "")
        self.handle = nvml.handle(str(requested.get("uuid") or ""))
        self.result = {"index": int(requested["index"]), "clock_idle_mhz": self.clock()}
        self.is_open = False

    def clock(self):
        return self.nvml.ask("nvmlDeviceGetClockInfo", self.handle, SM_CLOCK)

    def use(self):
        _now["gpu"] = self.result["index"]
        self.torch.cuda.set_device(self.number)

    def kind(self):
        """What its matrix units are made for."""
        if self.torch.cuda.get_device_capability(self.number) >= (8, 0):
            return self.torch.bfloat16
        return self.torch.float16 if self.torch.cuda.get_device_capability(self.number) >= (7, 0) else None

    def open(self):
        torch = self.torch
        self.use()
        kind = self.kind() or torch.float32
        free, total = torch.cuda.mem_get_info(self.number)
        for side, size in SIZES:
            # Two factors, two products, a part of each to compare, two buffers; cuBLAS takes some, too.
            need = 5 * side * side * (4 if kind is torch.float32 else 2) + 2 * size + 64 * MIB
            if need * MEMORY_PART <= total and need * 2 <= free:
                break
        else:
            raise MemoryError("%s: %d of %d MiB" % (MEMORY_FULL, free // MIB, total // MIB))
        self.flop, self.size = 2.0 * side**3, size
        # Of random numbers: of zeros a GPU is faster than of anything that a job has.
        self.a = torch.randn(side, side, device=self.device, dtype=kind)
        self.b = torch.randn(side, side, device=self.device, dtype=kind)
        self.c = torch.empty(side, side, device=self.device, dtype=kind)
        self.product()
        self.first = self.c.clone()
        self.src = torch.zeros(size, device=self.device, dtype=torch.uint8)
        self.dst = torch.empty(size, device=self.device, dtype=torch.uint8)
        torch.cuda.synchronize(self.number)
        self.result.update(kind=str(kind).split(".")[-1], side=side)
        self.is_open = True

    def product(self):
        self.torch.mm(self.a, self.b, out=self.c)

    def move(self):
        self.dst.copy_(self.src)

    def ask(self, work, count):
        """Have it do something so often; returns at once, with the events around it."""
        self.use()
        began, ended = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        for _ in range(count):
            work(self)
        ended.record()
        return began, ended

    def took(self, events):
        """Seconds between two events, once the later one has come."""
        self.use()
        events[1].synchronize()
        return max(events[0].elapsed_time(events[1]) / 1000.0, 1e-9)

    def fail(self, error):
        self.result["error"] = words(error)
        self.is_open = False


def trying(gpus, step):
    """step(gpu) of each that still works; whoever fails is out, and says why."""
    found = {}
    for gpu in gpus:
        if gpu.is_open:
            try:
                found[gpu] = step(gpu)
            except Exception as error:
                gpu.fail(error)
    return found


def timed(gpus, work, seconds, warm_s=0.0, during=None):
    """Seconds that one piece of work takes each of these, all at it together: the median after `warm_s`."""
    each = trying(gpus, lambda gpu: gpu.took(gpu.ask(work, 1)))
    each = trying(each, lambda gpu: gpu.took(gpu.ask(work, 1)))
    counts = {gpu: int(min(max(1, ROUND_S / each[gpu]), 2000)) for gpu in each}
    times = {gpu: [] for gpu in each}
    for _ in range(MOST_ROUNDS):
        spent = [sum(times[gpu]) for gpu in each if gpu.is_open]
        # All go on until the last is through, or the slow one would work alone in the end.
        if not spent or min(spent) >= warm_s + seconds:
            break
        events = trying(each, lambda gpu: gpu.ask(work, counts[gpu]))
        if during is not None and min(spent) >= warm_s:
            trying(events, during)
            during = None
        for gpu, took in trying(events, lambda gpu: gpu.took(events[gpu])).items():  # noqa: B023  called at once
            times[gpu].append(took)
    return {gpu: median_after(warm_s, times[gpu]) / counts[gpu] for gpu in each if gpu.is_open}


def median_after(warm_s, times):
    """The median of those that began when `warm_s` were over; the last, where none did."""
    spent, late = 0.0, []
    for took in times:
        if spent >= warm_s:
            late.append(took)
        spent += took
    return statistics.median(late or times[-1:])


def at_work(gpu):
    """What the driver says of a GPU that is at work."""
    ask, handle = gpu.nvml.ask, gpu.handle
    power = ask("nvmlDeviceGetPowerUsage", handle)
    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle, kind=ctypes.c_ulonglong)
    gpu.result.update(
        clock_mhz=gpu.clock(),
        power_w=None if power is None else power / 1000.0,
        temperature_c=ask("nvmlDeviceGetTemperature", handle, 0),
        throttle_reasons=reasons,
    )


def compute(gpus):
    for gpu, took in timed(gpus, Gpu.product, COMPUTE_S, WARM_S, at_work).items():
        gpu.result["tflop_s"] = gpu.flop / took / 1e12

    def compare(gpu):
        # The same product of the same numbers, at the first and the last time: apart by more than another
        # order of additions and rounding can do. Of NaN nothing is true. By parts, which takes less memory.
        gpu.use()
        gpu.result["wrong"] = 0
        least = 0.01 * gpu.result["side"] ** 0.5
        for now, then in zip(gpu.c.chunk(8), gpu.first.chunk(8)):
            near = (now - then).abs() <= then.abs() * 0.02 + least
            gpu.result["wrong"] += int((~near).sum().item())

    trying(gpus, compare)


def memory(gpus):
    for gpu, took in timed(gpus, Gpu.move, MEMORY_S).items():
        gpu.result["memory_gbyte_s"] = 2.0 * gpu.size / took / 1e9  # read once, written once


def near(bus):
    """CPUs at the GPU's own socket, as far as this process may use them; '' for those not known."""
    try:
        with open("/sys/bus/pci/devices/%s/local_cpulist" % bus) as file:
            text = file.read().strip()
        found = set()
        for part in text.split(","):
            low, _, high = part.partition("-")
            found.update(range(int(low), int(high or low) + 1))
    except (OSError, ValueError):
        return "", set()
    return text, found


def copies(gpus):
    """In turn, each alone on the bus: several behind one switch share what it has."""
    allowed = os.sched_getaffinity(0)
    buffers = {}

    def copy_both_ways(gpu):
        gpu.use()
        key, cpus = near(gpu.bus)
        # Memory comes from where the process runs: across sockets a copy is slower, and no fault of the GPU.
        os.sched_setaffinity(0, (cpus & allowed) or allowed)
        if key not in buffers:
            buffers[key] = gpu.torch.empty(PINNED_BYTES, dtype=gpu.torch.uint8, pin_memory=True)
        pinned, on_device = buffers[key], gpu.dst[:PINNED_BYTES]
        for name, work in (
            ("to_device_gbyte_s", lambda gpu: on_device.copy_(pinned, non_blocking=True)),
            ("to_host_gbyte_s", lambda gpu: pinned.copy_(on_device, non_blocking=True)),
        ):
            for one, took in timed([gpu], work, COPY_S).items():
                one.result[name] = PINNED_BYTES / took / 1e9
        # An idle link may run slower than it can: now it has just been at work.
        gpu.result["pcie_generation"] = gpu.nvml.ask("nvmlDeviceGetCurrPcieLinkGeneration", gpu.handle)
        gpu.result["pcie_width"] = gpu.nvml.ask("nvmlDeviceGetCurrPcieLinkWidth", gpu.handle)

    try:
        trying(gpus, copy_both_ways)
    finally:
        os.sched_setaffinity(0, allowed)


def main():
    global _out
    _out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no message
    watcher = threading.Thread(target=beat)
    watcher.daemon = True
    watcher.start()
    _now["stage"] = "import"
    try:
        import torch
    except Exception as error:
        say(event="error", stage="import", text=words(error), end="done")
        return 3
    _now["stage"] = "open"
    nvml = Nvml()
    requested = CONFIG.get("gpus") or []
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    except Exception as error:
        say(event="error", stage="device", text=words(error), end="done")
        return 4
    gpus = [Gpu(torch, nvml, number, row) for number, row in enumerate(requested)]
    for number, gpu in enumerate(gpus):
        try:
            if number >= count:
                raise LookupError("torch %s sees %d of %d GPUs" % (torch.__version__, count, len(requested)))
            gpu.open()
        except Exception as error:
            gpu.fail(error)
    for stage in (compute, memory, copies):
        _now["stage"] = stage.__name__
        stage(gpus)
    say(event="result", torch=str(torch.__version__), gpus=[gpu.result for gpu in gpus], end="done")
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BaseException as error:
        say(event="error", stage=_now["stage"], text=words(error), end="done")
        code = 6
    # Not sys.exit: threads of the libraries may keep an interpreter from ending.
    os._exit(code)
