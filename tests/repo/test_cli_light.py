"""`netdoctor --help` loads nothing heavy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    "ClusterShell", "asyncio", "cryptography", "fabric", "gevent", "invoke", "msgspec", "multiprocessing",
    "paramiko", "psutil", "pynvml", "rich", "textual", "tree_sitter", "yaml",
)  # fmt: skip
PROGRAM = """
import json, sys
sys.argv = ["netdoctor", *{arguments!r}]
from netdoctor.__main__ import main
try:
    code = main()
except SystemExit as error:
    code = error.code
print(json.dumps([code or 0, sorted(sys.modules)]), file=sys.stderr)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["scan", "--help"], ["gate", "--help"], ["plan", "--help"]],
    ids=" ".join,
)
def test_help_loads_no_heavy_module(arguments: list[str]) -> None:
    program = PROGRAM.format(arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    code, modules = json.loads(done.stderr.strip().splitlines()[-1])
    assert code == 0
    assert "netdoctor" in done.stdout
    loaded = {name.split(".", 1)[0] for name in modules}
    assert not loaded & set(HEAVY)


def test_a_scan_loads_no_module_that_it_was_not_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arguments=["scan", "--plan", "127.0.0.1"])],
        check=True,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    code, modules = json.loads(done.stderr.strip().splitlines()[-1])
    assert code == 0
    assert "netdoctor.checks.sw.wanted" in modules
    assert not {"packaging", "netdoctor.launch", "netdoctor.transport.tasks.slurm", "paramiko"} & set(modules)


def test_a_worker_imports_only_what_it_uses() -> None:
    program = "import netdoctor.transport.ssh.ssh_worker, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    not_used = {"asyncio", "unittest", "yaml", "netdoctor.inventory.loader", "netdoctor.store"}
    assert not not_used & set(done.stdout.split())
