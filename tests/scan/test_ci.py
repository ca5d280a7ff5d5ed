"""docs/ci.md: every command on it, run as it stands there, in order, against a lab with one fault."""

import json
import re
import shutil
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.report.output import FORMATS
from tests.report import strict
from tests.scan.harness import REPO, shell_parts

PAGE = REPO / "docs" / "ci.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_names_every_format() -> None:
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {name.strip("` ") for row in named for name in row.split(",")} == {*FORMATS} - {"text", "none"}


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq on this machine")
def test_every_command_on_the_page_works(lab4: Lab, folder: Path) -> None:
    lab4.break_("node2", "own-name-loopback")
    shutil.copy(lab4.hosts_file, folder / "hosts.txt")
    printed = shell_parts(folder, lab4, BLOCKS)
    assert len(printed) == len(BLOCKS) == 13
    scan, launch, gate, good, bad, drained, fixes, verdict, node, prom, nagios, live, quick = printed
    report = json.loads((folder / "report.json").read_text())
    assert "NOT READY" in scan
    assert "from the environment: NETDOCTOR_SSH_CONFIG=" in " ".join(scan.split())
    assert launch.endswith("not started: exit 1")
    assert gate == "broken; see junit.xml"
    assert good.splitlines() == report["healthy_nodes"] == ["node0", "node1", "node3"]
    assert bad.split("\t")[:2] == ["node2", "gloo.ifname"]
    assert drained == ""
    assert {cause["action"] for cause in report["causes"]} == {"reconfigure"}
    first = fixes.splitlines()[0].split("\t")
    assert first[1:3] == ["do", "ssh"]
    assert " node2 " in first[4]
    assert verdict.split("\t")[:2] == ["not_ready", "1"]
    statuses = dict(line.split("\t") for line in node.splitlines())
    assert list(statuses) == report["matrix"]["checks"]
    assert statuses["ssh.login"] == "pass"
    assert 'netdoctor_node_ready{node="node2"} 0' in prom.splitlines()
    assert strict.nagios(nagios.rpartition("\n")[0])[0] == "CRITICAL"
    assert nagios.endswith("state 2")
    assert {tuple(line.split("\t")[:2]) for line in live.splitlines()[:-1]} == {
        ("node", target["id"]) for target in report["targets"]
    }
    assert live.splitlines()[-1] == "end\t\tnot_ready"
    assert quick.startswith("CHECKED") or not quick
    assert "failure" in strict.junit((folder / "junit.xml").read_text()).values()
    assert strict.prometheus((folder / "netdoctor.prom").read_text())["netdoctor_ready"] == {(): 0}
