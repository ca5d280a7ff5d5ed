# mypy: ignore-errors
"""A torch for CPUs that says it has CUDA: as sitecustomize.py in front of what is to believe it.

What is asked for is really computed, of matrices of 8 rows. How long it took is made up, by the rates of
each GPU in gpus.json beside it ({uuid: {"tflop_s", "memory", "copy", "wrong", "says"}}): a slow GPU is as
slow on a busy machine as on an idle one. Of CUDA this proves nothing. Without CUDA_VISIBLE_DEVICES there are
as many GPUs as the file has, as with a torch for ROCm.
"""

import json
import os

import torch

USUAL = {"tflop_s": 700.0, "memory": 2900.0, "copy": 55.0, "wrong": 0, "says": ""}
ROWS, BYTES = 8, 4096
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpus.json")) as file:
    ODD = json.load(file)
UUIDS = [uuid for uuid in os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(ODD)).split(",") if uuid]
GPUS = [{**USUAL, **ODD.get(uuid, {})} for uuid in UUIDS]

now = [0.0] * len(GPUS)
at = 0
device, randn, empty, zeros, mm, copy = (
    torch.device, torch.randn, torch.empty, torch.zeros, torch.mm, torch.Tensor.copy_,
)  # fmt: skip


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = now[at]

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return (later.at - self.at) * 1e3


def set_device(place):
    global at  # noqa: PLW0603  as CUDA has it
    at = place


def capability(place):
    if GPUS[place]["says"]:
        raise RuntimeError(GPUS[place]["says"])
    return (9, 0)


def made(make):
    def small(*size, pin_memory=False, **options):
        found = make(*(min(one, ROWS) if len(size) > 1 else BYTES for one in size), **options)
        found.is_pinned_here = pin_memory
        return found

    return small


def multiply(a, b, out=None):
    now[at] += 2 * 8192**3 / GPUS[at]["tflop_s"] / 1e12
    found = mm(a, b) if out is None else mm(a, b, out=out)
    if out is not None:
        # A bit high up, which is another one each time.
        found[0, : GPUS[at]["wrong"]] += now[at] * 1e6
    return found


def moved(self, other, non_blocking=False):
    host = getattr(self, "is_pinned_here", False) or getattr(other, "is_pinned_here", False)
    now[at] += 2**26 / GPUS[at]["copy"] / 1e9 if host else 2**29 / GPUS[at]["memory"] / 1e9
    return copy(self, other)


class Device(type):
    def __call__(cls, kind, *index):
        return device("cpu") if kind == "cuda" else device(kind, *index)

    def __instancecheck__(cls, value):
        return isinstance(value, device)


torch.device = Device("device", (), {})
torch.randn, torch.empty, torch.zeros, torch.mm = made(randn), made(empty), made(zeros), multiply
torch.Tensor.copy_ = moved
torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: len(GPUS)
torch.cuda.set_device, torch.cuda.get_device_capability = set_device, capability
torch.cuda.mem_get_info = lambda place: (79 << 30, 80 << 30)
torch.cuda.synchronize, torch.cuda.Event = lambda place: None, Event
