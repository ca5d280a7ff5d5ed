"""What a report says about its scan, beside what the checks say."""

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdoctor.inventory import Target
from netdoctor.report.formats.text import render
from netdoctor.scanning import ScanRequest, judge_saved, plan_part
from netdoctor.scanning.reporting import verify_prefix
from tests.scanning.ground import Ground

N3 = ScanRequest(hosts=("n[1-3]",))


def test_what_the_transport_has_to_say_is_in_the_report(ground: Ground) -> None:
    ground.transport.notes = ("~/.ssh/config: not read: Permission denied", "n1: unknown key accepted")
    report = ground.scan(N3)
    assert [(n.level, n.text) for n in report.notes] == [
        ("warn", "ssh: ~/.ssh/config: not read: Permission denied"),
        ("warn", "ssh: n1: unknown key accepted"),
    ]
    assert report.verdict.state == "ready"


def test_what_this_shell_gave_the_job_is_said_by_name(ground: Ground) -> None:
    shell = {
        "NCCL_SOCKET_IFNAME": "=eth0", "MASTER_PORT": "29501", "GLOO_SOCKET_IFNAME": "eth0",
        "VIRTUAL_ENV": "/venv", "HOME": "/root", "NCCL_IB_HCA": "from the file",
    }  # fmt: skip
    Path("train.env").write_text("NCCL_IB_HCA=mlx5_0\n")
    request = replace(N3, environ=shell, env_file=Path("train.env"))
    report = ground.scan(request)
    said = "taken from this shell for the job: GLOO_SOCKET_IFNAME, MASTER_PORT, NCCL_SOCKET_IFNAME"
    assert said in [note.text for note in report.notes]
    assert f"note      {said}\n" in render(report)
    kept = judge_saved(report, {}, Path("r.json"))
    assert said in [note.text for note in kept.notes]
    assert not [
        n for n in ground.scan(replace(N3, environ={"VIRTUAL_ENV": "/venv"})).notes if "shell" in n.text
    ]


def test_a_clock_that_is_set_does_not_change_how_long_it_took(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = itertools.count(1_700_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(stamps)))
    run = ground.scan(N3).run
    assert 0 <= run.duration_ms < 60_000
    assert run.started <= run.finished


def test_a_remark_about_every_host_does_not_fill_the_report(ground: Ground) -> None:
    ground.transport.notes = tuple(f"n{i}: unknown key accepted" for i in range(1000))
    notes = ground.scan(N3).notes
    assert len(notes) == 11
    assert notes[-1].text == "ssh: 990 more remarks like these"


def test_a_partial_run_keeps_what_was_said_and_adds_to_it(ground: Ground) -> None:
    ground.transport.notes = ("n1: unknown key accepted", "n2: unknown key accepted")
    report = ground.scan(N3)
    ground.transport.notes = ("n2: unknown key accepted", "known_hosts:1: line skipped")
    for times in (1, 2):
        part = plan_part(report, {"save": None}, None, checks=("net.two",), nodes=("n2",))
        report = part.assemble(part.plan.scan().run(ground.transport))
        assert [n.text for n in report.notes if n.level == "warn"] == [
            "ssh: n1: unknown key accepted",
            "ssh: n2: unknown key accepted",
            "ssh: known_hosts:1: line skipped",
        ]
        assert len(report.notes) == 3 + times


LAST = Path(".netdoctor/last.json")
OLD = {"targets": (Target(id="n1", host="n1"),)}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param({}, "--last", id="saved"),
        pytest.param({"save": Path("a b.json")}, "--last --save a b.json", id="saved elsewhere"),
        pytest.param({"ssh_user": "ml", "local": True}, "--last", id="the report says the rest"),
        pytest.param({"save": None}, "n[1-3] -", id="not saved"),
        pytest.param(
            {"save": None, "ssh_config": Path("/c"), "ssh_port": 22, "python": "py", "local": True},
            "n[1-3] - --local --ssh-config /c --ssh-port 22 --python py",
            id="not saved, options",
        ),
        pytest.param(
            {"save": None, "packages": "torch==2.6.0", "path": ("/a", "/b"), "reach": ("https://c",)},
            "n[1-3] - --packages torch==2.6.0 --path /a --path /b --reach https://c",
            id="not saved, what is looked at",
        ),
        pytest.param({"save": None, "source": LAST, "hosts": (), **OLD}, "--last", id="last, not saved"),
        pytest.param(
            {"save": None, "source": Path("r.json"), "ssh_user": "ml", "hosts": (), **OLD},
            "--last --save r.json --ssh-user ml",
            id="another last, not saved",
        ),
        pytest.param(
            {"checks_dir": (Path("d"), Path("e"))}, "--last --checks-dir d --checks-dir e", id="dirs"
        ),
    ],
)
def test_how_a_verify_command_begins(said: dict[str, Any], words: str) -> None:
    request = ScanRequest(**{"hosts": ("n[1-3]", "-"), **said})
    assert " ".join(verify_prefix(request)) == f"netdoctor scan {words}"
