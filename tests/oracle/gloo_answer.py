"""Runs in an interpreter with torch: says what gloo advertises in the spaces that it is told, a line for a
line."""

import ctypes
import json
import os
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.oracle.spaces import Space


def ask(nccl: str | None) -> dict[str, Any]:
    """The addresses that a process group of one listens at, or why there is none.

    nccl: a libnccl that is started before, as by an earlier group of the job.
    """
    if nccl:
        ctypes.CDLL(nccl).ncclGetUniqueId(ctypes.create_string_buffer(128))
    before = set(map(int, os.listdir("/proc/self/fd")))
    try:
        kept = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=10))  # type: ignore[attr-defined]
    except RuntimeError as error:
        return {"addresses": None, "error": str(error).splitlines()[0]}
    found: list[str] = []
    for handle in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            with socket.socket(fileno=os.dup(handle)) as one:
                if handle not in before and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.append(one.getsockname()[0].partition("%")[0])
        except OSError:
            continue
    assert kept is not None
    return {"addresses": found, "error": ""}


if __name__ == "__main__":
    for line in sys.stdin:
        told = json.loads(line)
        space = Space(told["pid"], Path(told["folder"]))
        print(json.dumps(space.run(lambda told=told: ask(told["nccl"]), told["environ"])), flush=True)
