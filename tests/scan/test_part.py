"""A part is told as a part: by a verify command, in the saved report, and in the hosts that are left."""

import json
from pathlib import Path

from netdoctor.lab import Lab
from tests.scan.faults import found, put
from tests.scan.harness import PART, apply_fix, netdoctor, scan, verify


def test_one_of_two_faults_is_healed_and_the_good_nodes_are_scanned(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node1 small-shm", "node2 drop"))
    scanned = scan(lab4, folder)
    assert found(scanned) == {"shm-small": ("node1",), "firewall-inbound": ("node2",)}, scanned.summary()
    assert "usable      3 of 4   node[0-1,3]\n" in scanned.text
    (shm,) = [cause for cause in scanned.report["causes"] if cause["key"] == "shm-small"]
    apply_fix(scanned, shm)
    done = verify(scanned, shm)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on 1 of 4 nodes: pass\n" in done.stdout
    assert "READY" not in done.stdout.replace("NOT READY", "")
    part = json.loads((folder / PART).read_text("utf-8"))["verdict"]
    assert (part["state"], part["exit_code"], part["part"]["of_nodes"]) == ("partial_pass", 0, 4)
    saved = json.loads((folder / ".netdoctor" / "last.json").read_text("utf-8"))
    assert (saved["verdict"]["state"], saved["verdict"]["part"]) == ("not_ready", None)
    assert [cause["key"] for cause in saved["causes"]] == ["firewall-inbound"]
    assert len(saved["matrix"]["checks"]) == len(scanned.report["matrix"]["checks"])
    assert len(list((folder / ".netdoctor" / "history").glob("2*.json"))) == 2

    netdoctor("report", "convert", "-o", "hosts=good.txt", cwd=folder)
    good = netdoctor("scan", "good.txt", "--ssh-config", str(lab4.ssh_config), "--no-save", cwd=folder)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "3 nodes" in good.stdout
    assert "\nREADY   " in good.stdout
