"""An interpreter with torch that the nodes of a lab can see."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from netdoctor.lab import Lab

VARIABLE = "NETDOCTOR_TEST_TORCH_PYTHON"

# Comes before the program of a rank: the collectives of torch on one node, with a fault. Only large messages
# are hit, and so no meeting of ours.
PATCH = """\
import os, socket, sys, time
fault, node, names = {fault!r}, {node!r}, {names!r}
if socket.gethostname() == node and any("netdoctor-rank" in word for word in sys.orig_argv):
    import torch.distributed as dist

    def patched(name, real, into):
        def call(*args, **options):
            ops = args[0] if into is None else None
            tensor = ops[1].tensor if ops else args[into]
            if fault == "refused":
                raise RuntimeError("Backend gloo does not support " + name)
            if tensor.numel() < 1000:
                return real(*args, **options)
            if fault == "fails":
                raise RuntimeError("this one is broken")
            if fault == "hangs":
                time.sleep(300)
            if fault == "sends":
                args[1][5] += 1
            result = real(*args, **options)
            if fault == "wrong":
                for work in result if ops else ():
                    work.wait()
                # Of several senders, where there are several.
                tensor[7] += 1
                tensor[-7] += 1
                return [] if ops else result  # gloo waits for a message once
            return result
        return call

    FUNCTIONS = {{
        "all-reduce": ("all_reduce",),
        "all-gather": ("all_gather_single", "all_gather_into_tensor", "_all_gather_base", "all_gather"),
        "reduce-scatter": (
            "reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter"
        ),
        "all-to-all": ("all_to_all_single",),
        "broadcast": ("broadcast",),
        "send-recv": ("batch_isend_irecv",),
    }}
    for name in names:
        for function in FUNCTIONS[name]:
            if hasattr(dist, function):
                real = getattr(dist, function)
                setattr(dist, function, patched(name, real, None if name == "send-recv" else 0))
"""


# An interpreter, by fault and collectives.
Faulty = Callable[..., str]


@cache
def torch_python() -> tuple[str, str]:
    """(interpreter, why there is none)."""
    wanted = os.environ.get(VARIABLE) or sys.executable
    done = subprocess.run(
        [wanted, "-c", "import torch, torch.distributed as d; assert d.is_available()"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        return "", f"{wanted} has no torch; {VARIABLE} can name an interpreter that has"
    return wanted, ""


@pytest.fixture
def even(lab4: Lab) -> Lab:
    """Four nodes whose links all have one rate, far below what two lent cores can do: what else runs on the
    machine then hardly shows."""
    for node in lab4.nodes:
        lab4.break_(node, "slow-link", rate="200mbit")
    return lab4


@pytest.fixture
def torch(lab4: Lab) -> str:
    """An interpreter with torch, as lab nodes see it."""
    python, why = torch_python()
    if why:
        pytest.skip(why)
    look = "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"
    seen = lab4.run(lab4.nodes[0], [python, "-c", look], capture_output=True)
    if seen.returncode:
        pytest.skip(f"lab nodes do not see {python}: nodes hide /tmp, /run and home directories")
    return python


@pytest.fixture
def python_with(torch: str) -> Iterator[Faulty]:
    """An interpreter that lab nodes see, whose torch has a fault on one node."""
    folder = Path(tempfile.mkdtemp(prefix="netdoctor-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {torch} "$@"\n')
    python.chmod(0o755)

    def build(fault: str, *names: str) -> str:
        (folder / "sitecustomize.py").write_text(PATCH.format(fault=fault, node="node2", names=names))
        return str(python)

    try:
        yield build
    finally:
        shutil.rmtree(folder)
