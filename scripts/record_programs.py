#!/usr/bin/env python3
"""Record what programs write that fail by their own fault, or that end well and print words of trouble.

    python scripts/record_programs.py [--well] [GROUP...]

Into tests/explain/programs, recorded.jsonl or with --well well.jsonl. Groups: plain, torch, two_ranks, ray,
gpu. Run by the interpreters that NETDOCTOR_TEST_TORCH_PYTHON and NETDOCTOR_TEST_RAY_PYTHON name, else by this
one; gpu wants a GPU, CuPy and Triton. The last 60 lines stay.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.explain.programs import failing, well  # noqa: E402

FOLDER = ROOT / "tests/explain/programs"
MOST_LINES = 60


def interpreter(group: str) -> str:
    variable = "NETDOCTOR_TEST_RAY_PYTHON" if group == "ray" else "NETDOCTOR_TEST_TORCH_PYTHON"
    return os.environ.get(variable, "") or sys.executable


def recorded(programs: str, group: str, name: str) -> dict[str, str]:
    python = interpreter(group)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if group == "two_ranks" else []
    argv = [python, *launcher, str(FOLDER / f"{programs}.py"), name]
    done = subprocess.run(  # noqa: S603  our own programs
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert bool(done.returncode) == (programs == "failing"), (
        f"{name} ended with {done.returncode}: {done.stdout}"
    )
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
    programs, file = ("well", "well.jsonl") if "--well" in sys.argv else ("failing", "recorded.jsonl")
    table = well.GROUPS if programs == "well" else failing.GROUPS
    path = FOLDER / file
    groups = [word for word in sys.argv[1:] if word != "--well"] or [name for name in table if name != "gpu"]
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    kept = {one["name"]: one for one in map(json.loads, lines)}
    for group in groups:
        for name in table[group]:
            kept[name] = recorded(programs, group, name)
            print(name, flush=True)
    order = [name for group in table.values() for name in group if name in kept]
    path.write_text("".join(json.dumps(kept[name]) + "\n" for name in order), "utf-8")


if __name__ == "__main__":
    main()
