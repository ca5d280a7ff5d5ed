"""A job that really fails in the lab, and what its logs and a scan together say of it."""

import json
from pathlib import Path

import pytest

from netdoctor.cli import run
from netdoctor.lab import Lab
from tests.bandwidth.conftest import torch_python
from tests.truth.job import Job, Launcher


def test_a_scan_proves_which_of_the_possible_causes_it_was(
    lab4: Lab, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A firewall rejects what comes to node2; gloo only says that a connection was refused."""
    python, why = torch_python()
    if why:
        pytest.skip(why)
    lab4.break_("node2", "reject")
    with Launcher(python) as launcher:
        outcome = launcher.run(lab4, Job(), limit_s=15.0)
    assert not outcome.started
    for node, said in outcome.said.items():
        (folder / f"{node}.log").write_text(said)
    logs = ["explain", "log", *(str(folder / f"{node}.log") for node in outcome.said), "-o", "json"]
    assert run(logs) == 0, outcome
    alone = json.loads(capsys.readouterr().out)
    assert "firewall_blocked" in [cause["label"] for cause in alone["causes"]]
    assert not [cause for cause in alone["causes"] if cause["confidence"] == "certain"]
    hosts = ["--scan", str(lab4.hosts_file), "--ssh-config", str(lab4.ssh_config), "--quiet"]
    assert run([*logs, *hosts]) == 0
    joined = json.loads(capsys.readouterr().out)
    first = joined["causes"][0]
    assert (first["label"], first["confidence"]) == ("firewall_blocked", "certain")
    assert "node2" in " ".join(first["proof"])
    assert first["lines"]
    assert set(joined["refuted"]) < {cause["label"] for cause in alone["causes"]}
