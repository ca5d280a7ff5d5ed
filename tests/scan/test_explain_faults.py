"""Logs that real torch wrote on a broken lab, joined with a scan of the lab that is broken alike."""

import json
from pathlib import Path

import pytest

from netdoctor.cli import run
from netdoctor.lab import Lab
from tests.explain.recordings import FAULTS, Recording

LOGS = Path(__file__).parents[1] / "explain" / "logs"
BROKEN = [one for one in FAULTS if one.breaks]
# What a scan of the same hosts can decide. The rest are of what it cannot see: a network or an address that
# only the job uses, a job's own variables, a firewall that does not let the scan in either.
DECIDED = frozenset(
    (
        "port_taken",
        "torchrun_static_port_taken",
        "firewall_drop_master_port",
        "firewall_reject_master_port",
        "own_name_loopback",
        "own_name_loopback_one_node",
        "small_shm",
        "mtu_black_hole",
        "ssh_no_key",
        "ssh_host_key_changed",
        "master_name_wrong_address",
    )
)


@pytest.mark.parametrize("recording", BROKEN, ids=lambda one: one.name)
def test_a_scan_proves_the_cause_or_leaves_it_open(
    recording: Recording, lab4: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for node, fault, parameters in recording.breaks:
        lab4.break_(node, fault, **parameters)
    logs = [str(path) for path in sorted((LOGS / recording.name).glob("*.log"))]
    hosts = ["--scan", str(lab4.hosts_file), "--ssh-config", str(lab4.ssh_config), "--quiet"]
    assert run(["explain", "log", *logs, "-o", "json", *hosts]) == 0
    found = json.loads(capsys.readouterr().out)
    first = found["causes"][0]
    assert recording.label not in found["refuted"]
    assert recording.label in {cause["label"] for cause in found["causes"]}
    certain = (first["label"], first["confidence"]) == (recording.label, "certain")
    assert certain == (recording.name in DECIDED), (first, found["refuted"])
    if certain:
        proof = " ".join(first["proof"])
        assert recording.breaks[-1][0] in proof or "node[0-2]" in proof


def test_every_fault_that_is_decided_was_recorded() -> None:
    assert {one.name for one in BROKEN} >= DECIDED
