"""A scan beside earlier ones, and beside what is accepted: a baseline, what changed, netdoctor.toml."""

import json
import shutil
from pathlib import Path

from netdoctor.lab import Lab
from tests.report.test_html import Reader
from tests.scan.faults import put
from tests.scan.harness import netdoctor, scan

TOML = """\
[[suppress]]
cause = "{key}"
nodes = "node2"
reason = "nobody runs gloo here"
until = 2999-12-31
"""


def test_new_trouble_is_told_against_a_baseline_and_can_be_accepted(lab4: Lab, folder: Path) -> None:
    hosts = folder / "hosts.txt"
    shutil.copy(lab4.hosts_file, hosts)
    quick = ("--profile", "quick", "-o", "html=report.html")
    assert scan(lab4, folder, *quick, hosts=str(hosts)).state == "ready"
    assert netdoctor("baseline", "save", "good", cwd=folder).returncode == 0

    put(lab4, ("node2 own-name-loopback",))
    bad = scan(lab4, folder, *quick, "--baseline", "good", hosts=str(hosts))
    assert (bad.code, [c["baseline"] for c in bad.report["causes"]]) == (1, ["new"])
    for against in (), ("good", ".netdoctor/last.json"):
        done = netdoctor("diff", *against, "-o", "json", cwd=folder)
        told = json.loads(done.stdout)
        assert (done.returncode, [c["node_list"] for c in told["causes"]["new"]]) == (1, [["node2"]])
        assert told["facts"] == []
    page = Reader((folder / "report.html").read_text("utf-8"))
    assert page.of("h1") == ["NOT READY"]
    assert bad.report["causes"][0]["verify"]["shell"] in page.of("code")

    (folder / "netdoctor.toml").write_text(TOML.format(key=bad.keys[0]))
    known = scan(lab4, folder, *quick, "--baseline", "good", hosts=str(hosts))
    assert (known.code, known.state, known.keys) == (0, "ready", [])
    assert "READY       1 known problem accepted until 2999-12-31" in known.text
    assert [s["nodes"] for s in known.report["suppressed"]] == ["node2"]
    assert known.report["healthy_nodes"] == list(lab4.nodes)
    assert netdoctor("diff", cwd=folder).returncode == 0
