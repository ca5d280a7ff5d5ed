"""`-o npd` against the contract of node-problem-detector's custom plugins, and what docs/ has to copy."""

import copy
import dataclasses
import functools
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

# What NPD's own code said, in several releases: scripts/record_npd.py.
RECORD = Path(__file__).parent / "npd_record.jsonl"
RELEASES = ["v0.8.14", "v0.8.19", "v0.8.25", "v1.36.0", "6632ca6"]  # the last is master of August 2026
PAGE = Path(__file__).parents[2] / "docs" / "launch" / "kubernetes-npd.md"
STATE = {"fail": "not_ready", "unknown": "undecided", "warn": "ready"}
REMOVED = "(removed)"
KINDS: dict[str, type] = {
    "invoke_interval": str,
    "timeout": str,
    "max_output_length": int,
    "concurrency": int,
    "enable_message_change_based_condition_update": bool,
}
MEANS = {"fail": PROBLEM, "unknown": UNKNOWN, "warn": FINE}
# What Go calls blank; Python has a few control characters more.
BLANK = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
# What the page's script starts as netdoctor, and what NPD is to see.
PROGRAMS = [
    ("echo READY", 0, "READY"),
    ("echo 'gpu.count: 7 of 8'; exit 1", 1, "gpu.count: 7 of 8"),
    ("echo UNDECIDED; exit 2", 2, "UNDECIDED"),
    ("echo Traceback >&2; exit 1", 2, "netdoctor did not run: exit 1"),  # a Python that does not start
    ("exit 0", 2, "netdoctor did not run: exit 0"),
    ("kill -9 $$", 2, "netdoctor did not run: exit 137"),
]


def catalogue() -> dict[str, Constant]:
    modules = (importlib.import_module(module) for module in MODULES)
    return {one.key: one for module in modules for value in vars(module).values() for one in causes(value)}


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def npd_reads(line: str) -> str:
    """What pkg/custompluginmonitor/plugin/plugin.go makes of stdout: trimmed, and cut at 80 bytes."""
    text = decode(line.encode("utf-8", "surrogateescape")[:4096]).strip(BLANK)
    return decode(text.encode("utf-8", "surrogateescape")[:80])


def npd_status(code: int | str) -> int:
    return {0: FINE, 1: PROBLEM}.get(code, UNKNOWN) if isinstance(code, int) else UNKNOWN


@functools.cache
def record() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORD.read_text("utf-8").splitlines()]


def rows(key: str) -> list[dict[str, Any]]:
    return [row for row in record() if key in row]


def test_npd_reads_lines_as_this_file_says() -> None:
    """The runner of all RELEASES says the same, and changed none of what was printed when they were asked."""
    assert rows("releases")[0]["releases"] == RELEASES
    assert len(rows("case")) > 200
    for line, code, status, message in (row["case"] for row in rows("case")):
        assert npd_status(code) == status, (line, code)
        assert npd_reads(line) == message or code == "stay", line
    (printed,) = rows("printed")
    assert printed["printed"] > 1300
    assert printed["changed"] == []


def test_npd_makes_conditions_of_them() -> None:
    """The monitor of all RELEASES, with the settings of the page."""
    meaning = {FINE: "False", PROBLEM: "True", UNKNOWN: "Unknown"}
    assert {row["step"][1] for row in rows("step")} == set(meaning)
    (default,) = rows("releases")[0]["settings"]["conditions"]
    for row in rows("step"):
        line, code = row["step"]
        message = default["message"] if code == FINE else line.strip()
        reason = "NetdoctorFoundProblem" if code == PROBLEM else default["reason"]
        assert row["condition"] == {
            "type": default["type"], "status": meaning[code], "reason": reason, "message": message
        }  # fmt: skip


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


def with_change(settings: dict[str, Any], place: list[Any], value: Any) -> dict[str, Any]:
    """The settings with another value in one place, by keys and indices, or without that key."""
    found = copy.deepcopy(settings)
    inner: Any = found
    for key in place[:-1]:
        inner = inner[key]
    if value == REMOVED:
        del inner[place[-1]]
    elif place:
        inner[place[-1]] = value
    return found


def seconds(text: str) -> float | None:
    """As Go's ParseDuration reads the units that people write; None is an error."""
    found = re.fullmatch(r"(-?)((?:\d+(?:h|ms|m|s))+)|(0)", text)
    if not found:
        return None
    parts = re.findall(r"(\d+)(h|ms|m|s)", found[2] or "")
    time = sum(int(n) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for n, unit in parts)
    return -time if found[1] else time


def npd_refuses(found: dict[str, Any]) -> bool:
    """As ApplyConfiguration() and Validate() in pkg/custompluginmonitor/types/config.go have it."""
    general, rules = found["pluginConfig"], found["rules"]
    if any(type(general[key]) is not kind for key, kind in KINDS.items() if key in general):
        return True
    limit, interval = seconds(general.get("timeout", "5s")), seconds(general.get("invoke_interval", "30s"))
    if limit is None or interval is None or type(found.get("metricsReporting", True)) is not bool:
        return True
    conditions = {one["type"] for one in found["conditions"]}
    files = {f"/netdoctor/{name}" for name in config()}
    for rule in rules:
        time = seconds(rule["timeout"])
        if time is None or time > limit or rule["path"] not in files:
            return True
        if rule["type"] == "permanent" and rule.get("condition") not in conditions:
            return True
    return found.get("plugin") != "custom" or interval <= 0


def pointless(found: dict[str, Any]) -> bool:
    """What NPD takes, and then never sets the condition, or reads no key of that name."""
    general, rules = found["pluginConfig"], found["rules"]
    return bool(
        not rules
        or general.keys() - KINDS.keys()
        or general["concurrency"] < 1
        or any(rule["type"] != "permanent" or not (seconds(rule["timeout"]) or 0) > 0 for rule in rules)
    )


def test_npd_takes_the_settings_that_are_to_be_copied() -> None:
    found = json.loads(config()["netdoctor.json"])
    assert not npd_refuses(found)
    assert not pointless(found)
    assert found["pluginConfig"]["max_output_length"] == 80
    deadline = re.search(r"--deadline (\d+)", config()["netdoctor.sh"])
    assert deadline
    assert int(deadline[1]) < int(found["pluginConfig"]["timeout"].rstrip("s"))
    # So it is with NPD's own code. Other settings: ask it again.
    assert rows("releases")[0]["settings"] == found
    unchanged = rows("change")[0]
    assert unchanged["place"] == []
    assert (unchanged["accepted_by"], unchanged["refusal"], unchanged["unknown"]) == (RELEASES, "", "")


def test_npd_refuses_settings_as_this_file_says() -> None:
    """Validate() of the newest of RELEASES; older ones take what it takes."""
    page = rows("releases")[0]["settings"]
    changes = rows("change")[1:]
    assert len(changes) > 20
    for row in changes:
        settings = with_change(page, row["place"], row["value"])
        assert npd_refuses(settings) == bool(row["refusal"]), row
        assert row["refusal"] or row["accepted_by"] == RELEASES, row
        assert npd_refuses(settings) or pointless(settings), row
    assert [row["change"] for row in changes if row["unknown"].startswith("json: unknown field")] == [
        "a key that does not exist"
    ]


def test_npd_reads_that_program_too() -> None:
    """The runner of all RELEASES, with the page's script; the last program hangs."""
    *found, hang = rows("program")
    assert [(row["program"], row["status"], row["message"]) for row in found] == PROGRAMS
    assert hang["status"] == UNKNOWN


@pytest.mark.process
@pytest.mark.parametrize(("program", "code", "line"), PROGRAMS)
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
