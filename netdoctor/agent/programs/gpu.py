# mypy: ignore-errors
# ruff: noqa: F821  devices.py, which travels in front of it, has the rest
"""What works on the GPUs of a node for two seconds each, by devices.py."""

import ctypes
import os
import statistics

# Seconds of work, as the GPU counts them. Clocks rise in the first part of the first.
WARM_S, COMPUTE_S, MEMORY_S, COPY_S = 0.3, 0.9, 0.3, 0.15
# One question to a GPU takes about so long: long enough for its events, short enough to be left soon.
ROUND_S = 0.05
MOST_ROUNDS = 60
# Rows of a square matrix, and bytes of a buffer, that fill a data centre's GPU; less where memory is small.
SIZES = ((8192, 256 * MIB), (4096, 128 * MIB), (2048, 64 * MIB))
PINNED_BYTES = 64 * MIB
SM_CLOCK = 1


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


class Gpu(Device):
    """One GPU, with what the driver says of it."""

    nvml = None  # of all of them, loaded with the first

    def __init__(self, torch, number, requested):
        Device.__init__(self, torch, number, requested)
        Gpu.nvml = Gpu.nvml or Nvml()
        self.bus = str(requested.get("bus") or "")
        self.handle = self.nvml.handle(str(requested.get("uuid") or ""))
        self.result["clock_idle_mhz"] = self.clock()

    def clock(self):
        return self.nvml.ask("nvmlDeviceGetClockInfo", self.handle, SM_CLOCK)

    def open(self):
        torch = self.torch
        self.use()
        kind = self.kind() or torch.float32

        def need(sizes):
            # Two factors, two products, a part of each to compare, two buffers; cuBLAS takes some, too.
            return 5 * sizes[0] ** 2 * (4 if kind is torch.float32 else 2) + 2 * sizes[1] + 64 * MIB

        side, size = self.that_fits(SIZES, need)
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


if __name__ == "__main__":
    run(Gpu, (compute, memory, copies))
