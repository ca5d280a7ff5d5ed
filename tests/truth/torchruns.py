# mypy: ignore-errors
"""Jobs that really start: torchrun on lab nodes, with all of it but the import of torch.

Runs in an interpreter that has torch and takes jobs as lines of JSON. For each node it forks, enters the
node's namespaces with the environment and limits of a login session, and goes on as `torchrun ARGS` does: the
same arguments, agent, rendezvous and store. Workers are forked, where torchrun would start an interpreter.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import run as torchrun
from torch.distributed.launcher.api import elastic_launch

NAMESPACES = ("ipc", "uts", "net", "pid", "mnt")  # mnt last: the others are opened by this side's /proc
SIZES = (1, 1 << 20)
LIMITS = {"Max open files": resource.RLIMIT_NOFILE, "Max locked memory": resource.RLIMIT_MEMLOCK}
LAST = 4000


def work():
    """The script of the job: a group and an all-reduce of each size."""
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    for size in SIZES:
        data = torch.full((size,), float(dist.get_rank() + 1))
        dist.all_reduce(data)
        if bool(data.ne(world * (world + 1) / 2).any()):
            raise SystemExit("wrong sums")
    dist.destroy_process_group()


def enter(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    opened = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
    for fd in opened:
        if libc.setns(fd, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(fd)


def be(node):
    """What `torchrun ARGS script.py` does on the node. Never returns."""
    code = 1
    try:
        os.setsid()
        for fd, path in ((0, os.devnull), (1, node["log"]), (2, node["log"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_APPEND), fd)
        enter(node["pid"])
        child = os.fork()  # a process enters its namespace of pids with its first child
        if child:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
        os.chdir("/root")
        os.environ.clear()
        os.environ.update(node["env"])
        for name, values in node["limits"].items():
            resource.setrlimit(LIMITS[name], tuple(values))
        config, _, _ = torchrun.config_from_args(torchrun.parse_args([*node["args"], "script.py"]))
        config.start_method = "fork"
        elastic_launch(config=config, entrypoint=work)()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        sys.stdout.flush()
        os._exit(code)


def play(job):
    """Run one job to its outcome: all ended well, one did not, or the time is over."""
    began = time.monotonic()
    running, codes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for node in job["nodes"]:
            node["log"] = os.path.join(folder, node["name"])
            Path(node["log"]).touch()
            pid = os.fork()
            if pid == 0:
                be(node)
            running[pid] = node["name"]
        groups = list(running)
        while running and not any(codes.values()) and time.monotonic() - began < job["limit_s"]:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.02)
        seconds = time.monotonic() - began
        for pid in groups:
            # Itself first: it may not have become a group yet, and would never be one after this.
            with contextlib.suppress(ProcessLookupError):
                if pid in running:
                    os.kill(pid, signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)
        for pid in running:
            os.waitpid(pid, 0)
        said = {node["name"]: Path(node["log"]).read_text(errors="replace")[-LAST:] for node in job["nodes"]}
    return {"codes": codes, "seconds": seconds, "said": said}


print(json.dumps({"torch": torch.__version__}), flush=True)
for line in sys.stdin:
    print(json.dumps(play(json.loads(line))), flush=True)
