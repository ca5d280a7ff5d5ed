"""A node of the lab that fails again and again, and one that fails once."""

import json
from pathlib import Path

from netdoctor.lab import Lab
from tests.scan.harness import netdoctor, scan


def test_a_node_that_fails_for_the_third_time_is_named(lab4: Lab, folder: Path) -> None:
    quick = ("--profile", "quick")
    for time in range(3):
        lab4.break_("node2", "full-disk")
        if time == 1:
            lab4.break_("node3", "full-disk")
        broken = scan(lab4, folder, *quick)
        lab4.heal()
        healthy = scan(lab4, folder, *quick)
        again = [n["text"] for n in broken.report["notes"] if "fails again" in n["text"]]
        assert len(again) == (time == 2), again
    assert again == ["node2 fails again: third tmp-full in 30 days; netdoctor history"]
    assert again[0] in broken.text
    assert "node2 fails again: third tmp-full in 30 days, usable now; netdoctor history" in healthy.text

    done = netdoctor("history", str(lab4.hosts_file), "-o", "json", cwd=folder)
    assert done.returncode == 1
    rows = json.loads(done.stdout)["nodes"]
    assert [(row["node"], row["failures"], bool(row["again"])) for row in rows] == [
        ("node2", 3, True),
        ("node3", 1, False),
    ]
    assert all(row["back"] for row in rows)
    done = netdoctor("hosts", "good", "--without-repeaters", "--yes-exclude", cwd=folder)
    assert (done.returncode, done.stdout.split()) == (0, ["node0", "node1", "node3"])


def test_a_healthy_cluster_has_no_history(lab4: Lab, folder: Path) -> None:
    for _ in range(3):
        assert "fails again" not in scan(lab4, folder, "--profile", "quick").text
    assert netdoctor("history", cwd=folder).returncode == 0
