#!/usr/bin/env python3
"""Record what real NCCL writes on a GPU when something is wrong: logs that `explain log` is tested with.

    python scripts/record_gpu_logs.py [NAME...]

On a machine with one GPU, with the python that has a torch for it. Two ranks share the GPU: a host id of its
own makes each a node to NCCL. Two minutes for all. Each recording becomes tests/explain/logs/gpu_NAME or
tests/explain/healthy/gpu_NAME, as scripts/record_logs.py writes them.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from record_logs import expected, trimmed  # noqa: E402

from tests.explain.recordings import CHILD, SILENT, WAITS, Recording  # noqa: E402

JOB = ROOT / "tests/explain/gpu_job.py"
ENV = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
INFO, WARN = {"NCCL_DEBUG": "INFO"}, {"NCCL_DEBUG": "WARN"}
NO_PEER = "a rank whose peer never came cannot know why"
TABLE = (
    Recording(name="gpu_info", args=("none",), env=INFO),
    Recording(name="gpu_plain", args=("none",)),
    Recording(name="gpu_twice", label="duplicate_gpu", args=("none",), env={"NCCL_HOSTID": "both"}),
    Recording(
        name="gpu_twice_info", label="duplicate_gpu", args=("none",), env={**INFO, "NCCL_HOSTID": "both"}
    ),
    Recording(
        name="gpu_ifname_not_there", label="socket_ifname_not_found", args=("none",), env=WARN,
        env_of={1: {"NCCL_SOCKET_IFNAME": "nope0"}}, elsewhere={0: NO_PEER},
    ),
    Recording(
        name="gpu_hidden", label="slurm_gpu_binding", args=("none",),
        env_of={1: {"CUDA_VISIBLE_DEVICES": "7"}}, elsewhere={0: NO_PEER},
    ),
    Recording(name="gpu_ordinal", label="slurm_gpu_binding", args=("ordinal",)),
    Recording(
        name="gpu_network_not_there", label="net_plugin_config", args=("none",),
        env={**WARN, "NCCL_NET": "IB", "NCCL_IB_DISABLE": "0"},
    ),
    Recording(
        name="gpu_two_nccl_releases", label="nccl_version_mismatch", args=("none",), env=INFO,
        env_of={1: {"LD_PRELOAD": "/lib/x86_64-linux-gnu/libnccl.so.2"}},
    ),
    Recording(
        name="gpu_collective_skipped", label="collective_timeout_slow_rank", args=("skip",), limit_s=75,
        elsewhere={1: SILENT},
    ),
    Recording(
        name="gpu_other_collective", label="mismatched_collectives", args=("other",), limit_s=75,
        listed={0: WAITS, 1: WAITS},
    ),
    Recording(name="gpu_rank_killed", label="host_oom_killed", args=("kill",), limit_s=75, listed={0: CHILD}),
    Recording(
        name="gpu_rank_stopped", label="collective_timeout_slow_rank", args=("stop",), env=INFO, limit_s=75,
        elsewhere={1: SILENT},
    ),
    Recording(
        name="gpu_algo", label="nccl_setting_refused", args=("none",), env={**WARN, "NCCL_ALGO": "Rung"}
    ),
    Recording(name="gpu_raises", label="program_failed", args=("raise",), limit_s=75, elsewhere={0: CHILD}),
    Recording(name="gpu_index", label="program_failed", args=("index",), limit_s=75, elsewhere={0: CHILD}),
    Recording(name="gpu_exits", label="program_failed", args=("exit",), limit_s=75, elsewhere={0: CHILD}),
    Recording(name="gpu_memory", label="gpu_oom_one_rank", args=("memory",), limit_s=75),
)  # fmt: skip


def run(recording: Recording, port: int) -> dict[int, bytes]:
    """What each rank wrote, until its end or the limit."""
    running, end = {}, time.monotonic() + recording.limit_s
    for rank in (0, 1):
        own = {"NCCL_HOSTID": f"node{rank}", **recording.env, **recording.env_of.get(rank, {})}
        argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        argv += [f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", str(JOB)]
        running[rank] = subprocess.Popen(  # noqa: S603  ours
            [*argv, *recording.args], env={**os.environ, **ENV, **own}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    with ThreadPoolExecutor(2) as pool:
        texts = {rank: pool.submit(one.stdout.read) for rank, one in running.items() if one.stdout}
        while any(one.poll() is None for one in running.values()) and time.monotonic() < end:
            time.sleep(0.2)
        for one in running.values():
            leave(one.pid)
        return {rank: text.result() for rank, text in texts.items()}


def leave(pid: int) -> None:
    """End a torchrun and its workers, which are sessions of their own."""
    below = Path(f"/proc/{pid}/task/{pid}/children")
    for child in [*map(int, below.read_text().split() if below.exists() else ()), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def write(recording: Recording, logs: dict[int, bytes], torch: str) -> None:
    folder = ROOT / "tests/explain" / ("logs" if recording.label else "healthy") / recording.name
    folder.mkdir(parents=True, exist_ok=True)
    for rank, log in logs.items():
        text = log.decode("utf-8", "replace").replace(str(JOB), "train.py")
        text = re.sub(rf"\b{re.escape(os.uname().nodename)}:", f"node{rank}:", text)
        text = text.replace(str(Path(sys.executable).parents[1])[1:], "opt/venv")
        (folder / f"rank{rank}.log").write_text("".join(f"{line}\n" for line in trimmed(text)), "utf-8")
    told = expected(recording, torch).replace("record_logs.py --healthy", "record_logs.py")
    told = told.replace("record_logs.py", "record_gpu_logs.py")
    (folder / "expected.toml").write_text(told, "utf-8")


def main() -> int:
    chosen = [one for one in TABLE if not sys.argv[1:] or any(name in one.name for name in sys.argv[1:])]
    for port, recording in enumerate(chosen, 29600):
        write(recording, run(recording, port), version("torch"))
        print(recording.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
