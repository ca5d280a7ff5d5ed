"""Soaks of real nodes: what breaks between two rounds is dated and named; an interrupt loses nothing."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netdoctor.lab import Lab
from tests.scan.harness import environment

pytestmark = pytest.mark.lab


class Soaked:
    """A soak that is running, or has ended."""

    def __init__(self, lab: Lab, folder: Path, *options: str) -> None:
        self.folder = folder
        words = [
            "--ssh-config",
            str(lab.ssh_config),
            "--only",
            "bw.tcp,gpu.ecc,gpu.throttle",
            "--budget",
            "8",
        ]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "netdoctor",
                "soak",
                *words,
                *options,
                str(lab.hosts_file),
                "-o",
                "json=out",
            ],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.text = ""

    def until(self, text: str) -> None:
        assert self.process.stderr is not None
        while text not in (line := self.process.stderr.readline()):
            assert line, f"it ended before it printed {text!r}"

    def wait(self) -> "Soaked":
        self.text, errors = self.process.communicate(timeout=120)
        assert "Traceback" not in errors
        return self

    @property
    def found(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "out").read_text()))


@pytest.mark.weekly
def test_heat_between_two_rounds_is_dated_and_named(hw_lab: Lab, folder: Path) -> None:
    soaked = Soaked(hw_lab, folder, "--for", "30s")
    soaked.until("round 1: ")
    hw_lab.break_("node2", "gpu-throttle")
    hw_lab.break_("node3", "gpu-ecc")
    soaked.wait()
    assert soaked.process.returncode == 1, soaked.text
    found = {tuple(one["nodes"]): one["first_round"] in (2, 3) for one in soaked.found["anomalies"]}
    assert found.get(("node2",)), found
    assert found.get(("node3",)), found
    assert "after the start" in soaked.text


def test_a_link_that_gets_slow_is_dated_and_named(lab: Lab, folder: Path) -> None:
    soaked = Soaked(lab, folder, "--for", "30s")
    soaked.until("round 1: ")
    lab.break_("node1", "slow-link", rate="20mbit")
    soaked.wait()
    assert soaked.process.returncode == 1, soaked.text
    # A round in which the link became slow may leave open whose it is.
    slow = [one for one in soaked.found["anomalies"] if list(one["nodes"]) == ["node1"]]
    assert slow, soaked.text
    assert all(one["first_round"] >= 2 for one in slow)


def test_healthy_nodes_are_steady_and_an_interrupt_loses_nothing(hw_lab: Lab, folder: Path) -> None:
    soaked = Soaked(hw_lab, folder, "--for", "600s")
    soaked.until("round 2: ")
    soaked.process.send_signal(signal.SIGINT)
    soaked.wait()
    assert soaked.process.returncode == 130
    assert soaked.found["rounds"] >= 2
    assert not soaked.found["anomalies"], soaked.text
    assert soaked.text.startswith("INTERRUPTED interrupted; nothing came up in 2 rounds")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--for", "soon"], "'soon' is not a time; write 90s, 30m or 8h"),
        (["-o", "yaml"], "write json, or json=FILE"),
    ],
)
def test_bad_input_says_what_to_write(folder: Path, words: list[str], text: str) -> None:
    argv = [sys.executable, "-m", "netdoctor", "soak", "nodes.txt", *words]
    done = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
