"""The `hang` operation on this machine: which processes are ranks, and how they are."""

import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from netdoctor.agent.operations import hang

pytestmark = pytest.mark.process
# A launcher with a rank of its own, as Kubernetes gives one, a rank, and the rank's worker.
RANK = "import os, time; os.fork(); time.sleep(60)"
LAUNCHER = f"""
import os, subprocess, sys
env = dict(os.environ, RANK="5", WORLD_SIZE="8", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
print(subprocess.Popen([sys.executable, "-c", {RANK!r}], env=env).pid, flush=True)
sys.stdin.read()
"""


def test_a_rank_is_found_and_not_its_launcher_or_worker(tmp_path: Path) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": tmp_path.name, "MASTER_PORT": "1"}
    env |= {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}
    (tmp_path / "trace_5").write_bytes(b"of an earlier job")
    os.utime(tmp_path / "trace_5", (1, 1))
    argv = [sys.executable, "-c", LAUNCHER]
    with subprocess.Popen(
        argv, env={**os.environ, **env}, stdin=-1, stdout=-1, text=True, start_new_session=True
    ) as launcher:
        try:
            assert launcher.stdout is not None
            pid = int(launcher.stdout.readline())
            until = time.monotonic() + 20
            while not (found := _of(tmp_path.name)):
                assert time.monotonic() < until
            time.sleep(0.5)
            (one,) = found
            assert (one.pid, one.rank, one.world, one.local_world) == (pid, 5, 8, 2)
            with pytest.raises(OSError, match="of another job"):
                hang._record(one)
            (tmp_path / "trace_5").write_bytes(b"a record")
            assert zlib.decompress(hang._record(one)) == b"a record"
            assert hang.links(pid) == (set(), [])
            assert hang.sample(pid)["state"] == "S"
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.2)
            assert hang.sample(pid)["state"] == "T"
        finally:
            os.killpg(launcher.pid, signal.SIGKILL)


def _of(address: str) -> "list[hang.Process]":
    found = [one for one in hang.find() if address in one.job]
    return found if len(found) == 1 and found[0].rank == 5 else []
