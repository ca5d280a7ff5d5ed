"""`-o npd` against the contract of node-problem-detector's custom plugins, and what docs/ has to copy."""

import dataclasses
import importlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdoctor import cli
from netdoctor.model import Cause as Constant
from netdoctor.report import output
from netdoctor.report.formats.npd import FINE, PROBLEM, UNKNOWN, exit_code, render
from netdoctor.report.model import Report
from netdoctor.report.save import save
from tests.checks.test_ids import MODULES, causes
from tests.hostile import HOSTILE, each_of
from tests.report.build import sample_report
from tests.report.filling import fill

PAGE = Path(__file__).parents[2] / "docs" / "launch" / "kubernetes-npd.md"
STATE = {"fail": "not_ready", "unknown": "undecided", "warn": "ready"}
MEANS = {"fail": PROBLEM, "unknown": UNKNOWN, "warn": FINE}


def catalogue() -> dict[str, Constant]:
    modules = (importlib.import_module(module) for module in MODULES)
    return {one.key: one for module in modules for value in vars(module).values() for one in causes(value)}


def npd_reads(line: str) -> str:
    """What pkg/custompluginmonitor/plugin/plugin.go makes of stdout: trimmed, and cut at 80 bytes."""
    return line.encode()[:4096].decode().strip()[:80]


def with_cause(constant: Constant, status: str) -> Report:
    report = sample_report("not_ready")
    nodes = "gpu-[001-512]"
    cause = dataclasses.replace(
        report.causes[0], key=constant.key, status=status, title=constant.title.replace("{nodes}", nodes)
    )
    verdict = dataclasses.replace(report.verdict, state=STATE[status], exit_code=0 if status == "warn" else 1)
    if status == "unknown":
        verdict = dataclasses.replace(verdict, exit_code=3)
    return dataclasses.replace(report, causes=(cause,), verdict=verdict)


@pytest.mark.parametrize("status", STATE)
def test_every_cause_of_the_catalogue_fits(status: str) -> None:
    every = catalogue()
    assert len(every) > 300
    for key, constant in every.items():
        report = with_cause(constant, status)
        line = render(report)
        assert len(line.encode()) <= 80, (key, line)
        assert line.isascii()
        assert (line.count("\n"), line[-1]) == (1, "\n"), (key, line)
        assert npd_reads(line) == line.strip(), key
        assert exit_code(report) == MEANS[status], key
        assert "net.ports: " in line


def test_what_it_prints() -> None:
    assert render(sample_report("ready")) == "READY\n"
    assert render(sample_report("not_ready")).startswith("net.ports: gpu-a03 drops connections")
    assert re.search(r" \(\+\d\)\n$", render(sample_report("not_ready")))


def changed(state: str, code: int, complete: bool = True) -> Report:
    report = sample_report("ready")
    verdict = dataclasses.replace(report.verdict, state=state, exit_code=code)
    return dataclasses.replace(
        report, verdict=verdict, run=dataclasses.replace(report.run, complete=complete)
    )


@pytest.mark.parametrize(
    ("state", "code", "complete", "expected"),
    [
        ("ready", 0, True, FINE),
        ("partial_pass", 0, True, FINE),
        ("ready", 4, True, PROBLEM),  # --fail-on warn
        ("not_ready", 1, True, PROBLEM),
        ("not_ready", 0, True, PROBLEM),  # --fail-on never
        ("undecided", 3, True, UNKNOWN),
        ("undecided", 0, True, UNKNOWN),
        ("ready", 0, False, UNKNOWN),
        ("ready", 5, True, UNKNOWN),  # nobody got the report
        ("odd", 0, True, UNKNOWN),
    ],
)
def test_only_what_is_whole_and_ready_is_fine(state: str, code: int, complete: bool, expected: int) -> None:
    assert exit_code(changed(state, code, complete)) == expected


@each_of(HOSTILE)
def test_hostile_text_is_one_short_line(attack: str) -> None:
    line = render(fill(HOSTILE[attack]))
    assert len(line.encode()) <= 80
    assert line.isascii()
    assert line[:-1].isprintable()
    assert npd_reads(line) == line.strip()


def test_the_format_has_its_name_and_the_code_its_style(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output.FORMATS["npd"](sample_report("ready"), output.RenderOptions()) == "READY\n"
    monkeypatch.chdir(tmp_path)
    save(sample_report("not_ready"), Path("r.json"))
    assert cli.run(["report", "show", "r.json", "-o", "npd"]) == 0
    assert capsys.readouterr().out.startswith("net.ports: ")
    assert cli.run(["scan", "--nope", "--exit-style", "npd"]) == UNKNOWN


def config() -> dict[str, Any]:
    found = re.search(
        r"^`npd-config.yaml`|^```yaml\n(apiVersion: v1\n.*?)^```$", PAGE.read_text(), re.M | re.S
    )
    assert found
    return dict(yaml.safe_load(found[1])["data"])


def test_npd_takes_the_settings_that_are_to_be_copied() -> None:
    """As Validate() in pkg/custompluginmonitor/types/config.go has it."""
    found = json.loads(config()["netdoctor.json"])
    assert found["plugin"] == "custom"
    assert found["pluginConfig"]["max_output_length"] == 80
    timeout = int(found["pluginConfig"]["timeout"].rstrip("s"))
    conditions = {one["type"] for one in found["conditions"]}
    for rule in found["rules"]:
        assert int(rule["timeout"].rstrip("s")) <= timeout
        assert rule["type"] != "permanent" or rule["condition"] in conditions
        assert rule["path"] == "/netdoctor/netdoctor.sh"
    deadline = re.search(r"--deadline (\d+)", config()["netdoctor.sh"])
    assert deadline
    assert int(deadline[1]) < timeout


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "code", "line"),
    [
        ("echo READY", 0, "READY"),
        ("echo 'gpu.count: 7 of 8'; exit 1", 1, "gpu.count: 7 of 8"),
        ("echo UNDECIDED; exit 2", 2, "UNDECIDED"),
        ("echo Traceback >&2; exit 1", 2, "netdoctor did not run: exit 1"),  # a Python that does not start
        ("exit 0", 2, "netdoctor did not run: exit 0"),
        ("kill -9 $$", 2, "netdoctor did not run: exit 137"),
    ],
)
def test_the_program_that_is_to_be_copied(tmp_path: Path, program: str, code: int, line: str) -> None:
    (tmp_path / "netdoctor").write_text(f"#!/bin/sh\n{program}\n")
    os.chmod(tmp_path / "netdoctor", 0o755)
    script = config()["netdoctor.sh"].replace("/opt/netdoctor", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, npd_reads(done.stdout)) == (code, line)


@pytest.mark.process
def test_the_options_of_that_program_are_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on this machine with its own words: a count of GPUs that nobody has is a problem, or unknown."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expect.toml").write_text(config()["expect.toml"])
    found = re.search(r"netdoctor (scan .*?) 2>/dev/null", config()["netdoctor.sh"], re.S)
    assert found
    words = found[1].replace("\\\n", " ").replace("'", "").replace("/netdoctor/", f"{tmp_path}/").split()
    assert cli.run(words) in (PROBLEM, UNKNOWN)
