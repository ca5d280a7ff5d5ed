# mypy: ignore-errors
"""How a program works on the GPUs of a node: what it says, which devices it opens, and its end.

Its text travels in front of those that use it (gpu.py, bits.py); nothing imports it. It runs in the job's
interpreter with nothing but the standard library and torch, and says what it found as lines of JSON on its
stdout. One process for all GPUs: torch starts once, and all of them are at work together.
"""

import json
import os
import threading
import time

CONFIG = globals().get("CONFIG") or {}
ALIVE_S = 0.5
MIB = 1 << 20
# All of it takes this part of a GPU's memory at the most, and half of what is free.
MEMORY_PART = 8
MEMORY_FULL = "too little of its memory is free"

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


class Device:
    """One GPU: torch's number `number`, and what is said of it in the end."""

    def __init__(self, torch, number, requested):
        self.torch = torch
        self.number = number
        self.device = torch.device("cuda", number)
        self.result = {"index": int(requested["index"])}
        self.is_open = False

    def use(self):
        _now["gpu"] = self.result["index"]
        self.torch.cuda.set_device(self.number)

    def kind(self):
        """What its matrix units are made for."""
        if self.torch.cuda.get_device_capability(self.number) >= (8, 0):
            return self.torch.bfloat16
        return self.torch.float16 if self.torch.cuda.get_device_capability(self.number) >= (7, 0) else None

    def that_fits(self, sizes, need):
        """The first of these sizes of which need(size) bytes fit."""
        free, total = self.torch.cuda.mem_get_info(self.number)
        for size in sizes:
            if need(size) * MEMORY_PART <= total and need(size) * 2 <= free:
                return size
        raise MemoryError("%s: %d of %d MiB" % (MEMORY_FULL, free // MIB, total // MIB))

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


def main(make, stages):
    """Run the stages on make(torch, number, requested), one for each GPU that is asked for."""
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
    requested = CONFIG.get("gpus") or []
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    except Exception as error:
        say(event="error", stage="device", text=words(error), end="done")
        return 4
    gpus = [make(torch, number, row) for number, row in enumerate(requested)]
    for number, gpu in enumerate(gpus):
        try:
            if number >= count and not CONFIG.get("cpu"):
                raise LookupError("torch %s sees %d of %d GPUs" % (torch.__version__, count, len(requested)))
            gpu.open()
        except Exception as error:
            gpu.fail(error)
    for stage in stages:
        _now["stage"] = stage.__name__
        stage(gpus)
    say(event="result", torch=str(torch.__version__), gpus=[gpu.result for gpu in gpus], end="done")
    return 0


def run(make, stages):
    try:
        code = main(make, stages)
    except BaseException as error:
        say(event="error", stage=_now["stage"], text=words(error), end="done")
        code = 6
    # Not sys.exit: threads of the libraries may keep an interpreter from ending.
    os._exit(code)
