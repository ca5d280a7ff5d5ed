"""The benchmark of many real nodes still runs: a figure that nobody can repeat is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.ssh
@pytest.mark.usefixtures("server")  # skips where there is no sshd
def test_fanout_carries_what_a_scan_does() -> None:
    """On two nodes. What netdoctor says to its agents is recorded from them, for other tools to carry."""
    words = ["--nodes", "2", "--repeats", "1", "--skip", "ansible", "clush", "fabric"]
    done = subprocess.run(
        [sys.executable, "benchmarks/fanout.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("netdoctor scan")]
    assert "answered" not in line
    assert all(float(figure) > 0 for figure in line.split()[-7:]), line
