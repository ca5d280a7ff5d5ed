"""The nodes that may be used: in the text report, and as a hosts file that scan reads."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdoctor.facts.host import Session
from netdoctor.inventory import Target, load
from netdoctor.model import fail
from netdoctor.report.formats.hosts import render
from netdoctor.report.formats.text import render as text
from netdoctor.report.model import Part, Report
from netdoctor.report.redact import redact
from netdoctor.scanning import ScanRequest
from tests.core.fake import hint, saying
from tests.engine.test_build import made
from tests.report.build import sample_report
from tests.scanning.ground import Ground

LISTED = """\
gpu-a01 slots=8 python=/opt/venv/bin/python3
ml@gpu-a02:2222 gpus=4 leaf=a  # the old one
[fd00::3] user=root
10.0.0.4
"""


LOST = Session(outcome="refused", stage="tcp", detail="refused")


def scanned(ground: Ground, bad: str, hosts: str = LISTED) -> Report:
    Path("hosts.txt").write_text(hosts)
    ground.checks.append(saying("net.x", fail(bad, "bad", cause=hint("k", bad))))
    return ground.scan(ScanRequest(hosts=("hosts.txt",)))


def plain(target: Target) -> dict[str, Any]:
    fields = ("host", "port", "user", "python", "slots", "gpus", "leaf")
    return {name: getattr(target, name) for name in fields}


@pytest.mark.parametrize("bad", ["gpu-a01", "gpu-a02", "fd00::3", "10.0.0.4"])
def test_the_good_nodes_are_listed_as_they_were(ground: Ground, bad: str) -> None:
    report = scanned(ground, bad)
    Path("good.txt").write_text(render(report))
    before = [plain(target) for target in load(["hosts.txt"]).targets if target.host != bad]
    assert [plain(target) for target in load(["good.txt"]).targets] == before
    assert re.match(r"# 3 of 4 nodes, scanned 20\S+Z\n", render(report))


def test_ranks_are_the_order_of_the_lines(ground: Ground) -> None:
    report = scanned(ground, "b", "a rank=2\nb rank=0\nc rank=1\n")
    assert render(report).splitlines()[1:] == ["c", "a"]
    Path("good.txt").write_text(render(report))
    assert [target.id for target in load(["good.txt"]).targets] == ["c", "a"]


def test_what_is_not_known_to_be_usable_is_not_listed(ground: Ground) -> None:
    every = sample_report("ready", nodes=2)
    part = Part(checks=2, of_checks=44, nodes=2, of_nodes=6)
    narrowed = replace(every, verdict=replace(every.verdict, state="partial_pass", part=part))
    for report, said in (
        (narrowed, "# only 2 of 44 checks on 2 of 6 nodes were looked at: no node is known to be usable\n"),
        (redact(every), "# a redacted report names no node that could be logged in to\n"),
    ):
        assert render(report) == said
        assert "usable" not in text(report)
    assert len(render(every).splitlines()) == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"host": "x\nevil"}, {"host": "-oProxyCommand=x"}, {"host": "n1 user=root"}, {"user": "a b=c"},
        {"user": "x\nevil"}, {"python": "/a b"}, {"leaf": "a\nevil"}, {"port": 99999}, {"slots": "8\nevil"},
    ],
)  # fmt: skip
def test_a_report_adds_no_word_of_its_own(ground: Ground, odd: dict[str, Any]) -> None:
    report = scanned(ground, "n9", "n1\nn9\n")
    listed = [{**target, **odd} for target in report.run.replay["targets"]]
    lines = render(replace(report, run=replace(report.run, replay={"targets": listed}))).splitlines()
    assert set(lines[1:]) <= {"n1", "n1 port=22 user=root"}


def test_text_lists_the_usable_nodes_where_not_all_are() -> None:
    report = made(saying("net.x", fail("n3", "bad", cause=hint("k", "n3"))), nodes=32)
    assert "usable      31 of 32   n[1-2,4-32]\n" in text(report)
    assert "usable" not in text(made(saying("net.x"), nodes=32))
    none = made(saying("net.x", *(fail(f"n{i}", "bad", cause=hint("k", f"n{i}")) for i in (1, 2))), nodes=2)
    assert "usable      0 of 2   none\n" in text(none)
    many = text(made(saying("net.x", fail("n3", "bad", cause=hint("k", "n3"))), nodes=400), verbosity=1)
    assert "399 of 400" in many
    assert all(len(line) <= 100 for line in many.splitlines())


def test_one_dead_node_hides_no_one(ground: Ground) -> None:
    ground.checks += [saying(name, scope="node") for name in ("gpu.x", "gpu.y", "sw.x")]
    ground.transport.sessions["n30"] = LOST
    shown = text(ground.scan(ScanRequest(hosts=("n[1-32]",))))
    assert re.search(r"^  ok +network, software, gpu   31 nodes; n30 blocked by \[1\]$", shown, re.MULTILINE)
    assert re.search(r"^  FAIL +ssh +\[1\] n30$", shown, re.MULTILINE)
    assert "usable      31 of 32   n[1-29,31-32]\n" in shown
    ground.transport.sessions |= {f"n{i}": LOST for i in (1, 2, 3)}
    every = text(ground.scan(ScanRequest(hosts=("n[1-3]",))))
    assert re.search(r"^  blocked  network, software, gpu   by \[1\]$", every, re.MULTILINE)


def test_a_strangers_interpreters_are_not_taken(ground: Ground) -> None:
    report = scanned(ground, "10.0.0.4")
    assert "python=/opt/venv/bin/python3" in render(report)
    assert "python=" not in render(replace(report, run=replace(report.run, foreign="mallory")))
