#!/usr/bin/env python3
"""Record what programs write that fail by their own fault: tests/explain/programs/recorded.jsonl.

    python scripts/record_programs.py [GROUP...]

Groups: plain, torch, two_ranks, ray, gpu. Run by the interpreters that NETDOCTOR_TEST_TORCH_PYTHON and
NETDOCTOR_TEST_RAY_PYTHON name, else by this one; gpu wants a GPU, CuPy and Triton. The last 60 lines stay.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.explain.programs import failing  # noqa: E402

FILE = ROOT / "tests/explain/programs/recorded.jsonl"
PROGRAMS = ROOT / "tests/explain/programs/failing.py"
MOST_LINES = 60


def interpreter(group: str) -> str:
    variable = "NETDOCTOR_TEST_RAY_PYTHON" if group == "ray" else "NETDOCTOR_TEST_TORCH_PYTHON"
    return os.environ.get(variable, "") or sys.executable


def recorded(group: str, name: str) -> dict[str, str]:
    python = interpreter(group)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if group == "two_ranks" else []
    argv = [python, *launcher, str(PROGRAMS), name]
    done = subprocess.run(  # noqa: S603  our own programs
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    assert done.returncode, f"{name} ended well"
    ask = "import sys; print('Python', sys.version.split()[0])"
    packages = {"plain": (), "ray": ("ray",)}.get(group, ("torch",))
    ask += "".join(f"; import {one}; print('{one}', {one}.__version__)" for one in packages)
    made_by = subprocess.run([python, "-W", "ignore", "-c", ask], capture_output=True, text=True, check=True)  # noqa: S603
    log = done.stdout.replace(str(ROOT), "/job").replace(str(Path(python).parents[1]), "/opt/venv")
    log = re.sub(r"/\S+/(?=lib/python3\.\d+/(?!site-packages))", "/usr/", log)
    log = re.sub(r"/tmp/[\w./-]+", "/tmp/x", log)  # noqa: S108  a text
    return {
        "name": name,
        "made_by": " ".join(made_by.stdout.split()),
        "exit": str(done.returncode),
        "log": "\n".join(log.splitlines()[-MOST_LINES:]) + "\n",
    }


def main() -> None:
    groups = sys.argv[1:] or [name for name in failing.GROUPS if name != "gpu"]
    lines = FILE.read_text("utf-8").splitlines() if FILE.exists() else []
    kept = {one["name"]: one for one in map(json.loads, lines)}
    for group in groups:
        for name in failing.GROUPS[group]:
            kept[name] = recorded(group, name)
            print(name, flush=True)
    order = [name for group in failing.GROUPS.values() for name in group if name in kept]
    FILE.write_text("".join(json.dumps(kept[name]) + "\n" for name in order), "utf-8")


if __name__ == "__main__":
    main()
