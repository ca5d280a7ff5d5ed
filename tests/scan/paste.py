"""Fixes as a person uses them: copied from where netdoctor shows them, pasted into a real shell, and proven.

A fix is taken from the text report, from the file that the TUI writes, or from its clipboard, in turn. It is
pasted into bash as it stands; its ssh goes to the lab's real sshd. Then the printed verify runs as printed.
"""

import json
import os
import re
import shlex
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdoctor.lab import Lab
from netdoctor.report import commands
from netdoctor.report.model import FixRecord, Report
from netdoctor.report.save import load
from netdoctor.tui.export import fixes_script
from tests.scan.harness import PART, Scanned, environment, forked, verify
from tests.tui.harness import application, drive

# Every so many fixes is taken from the file that the TUI writes, and from its clipboard.
EVERY_EXPORTED, EVERY_COPIED = 3, 7
# Causes that were back after it: one of each is enough, as the verify is a scan.
TAKEN_BACK: set[str] = set()


def acting(cause: dict[str, Any]) -> int:
    """Which fix is the first that does something, and has commands to paste; -1 for none."""
    numbers = (n for n, fix in enumerate(cause["fixes"]) if fix["kind"] in ("do", "job", "console"))
    return next(numbers, -1)


def taken(scanned: Scanned, cause: dict[str, Any], number: int) -> str:
    """The fix as a person gets hold of it; which way it comes follows from the cause."""
    report = load(scanned.folder / "report.json")
    fix = next(one for one in report.causes if one.key == cause["key"]).fixes[number]
    chance = zlib.crc32(f"{cause['key']} {cause['title']}".encode())
    if chance % EVERY_COPIED == 0:
        return copied(report, cause, number)
    if chance % EVERY_EXPORTED == 0:
        return exported(report, cause, fix)
    return printed(scanned, cause, fix)


def printed(scanned: Scanned, cause: dict[str, Any], fix: FixRecord) -> str:
    """What the text report has below the fix, whole and in one piece: its lines, or its script."""
    fix = replace(fix, script=script_of(cause, fix))
    block = scanned.text.partition(f"\n[{cause['id']}] ")[2].partition("\n\n")[0].splitlines()
    lines = [line.removeprefix("      ") for line in block if line.startswith("      ") and line[6:7] != " "]
    wanted = commands.to_type(fix)
    at = lines.index(wanted[0])
    assert lines[at : at + len(wanted)] == wanted, block
    if fix.script:
        return wanted[0]
    return "\n".join(commands.fix_commands(fix))  # of a console with its guard, as it is copied


def script_of(cause: dict[str, Any], fix: FixRecord) -> str:
    """The script as the scan named it: it lies below the folder of the scan, where no test is."""
    return next(one["script"] for one in cause["fixes"] if one["text"] == fix.text)


def exported(report: Report, cause: dict[str, Any], fix: FixRecord) -> str:
    """The file that the TUI writes for this cause; what is commented there of the fix, uncommented."""
    script = fixes_script(report, [one for one in report.causes if one.id == cause["id"]])
    for line in commands.fix_commands(fix, every=True):
        assert f"\n{line}\n" in script or f"\n# {line}\n" in script, script
        script = script.replace(f"\n# {line}\n", f"\n{line}\n")
    return script


def copied(report: Report, cause: dict[str, Any], number: int) -> str:
    """What the key for it puts into the clipboard of the TUI, on the page of the cause."""
    app = application(report)
    below = [one.id for one in report.causes].index(cause["id"])
    drive(app, (120, 40), *["down"] * below, "enter", *["down"] * number, "y")
    assert app.clipboard, app.status
    return app.clipboard


def paste(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What bash says to lines that are pasted into it, `netdoctor` being the one that is tested."""
    command = folder / "bin" / "netdoctor"
    if not command.exists():
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {shlex.join(forked())} "$@"\n')
        command.chmod(0o755)
    plain = environment()
    return subprocess.run(
        ["bash", "-c", text],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=folder,
        env={**plain, "PATH": f"{command.parent}{os.pathsep}{plain['PATH']}", **env},
        stdin=subprocess.DEVNULL,
        check=False,
    )


def rewrite(env_file: Path, text: str) -> None:
    """Leave in the file what the job's script makes of it, once these lines are its last."""
    done = paste(env_file.parent, f"set -a; . ./{env_file.name}\n{text}\nenv")
    assert done.returncode == 0, done.stderr
    kept = [line for line in done.stdout.splitlines() if re.match(r"(NCCL|GLOO|MASTER)_|TMPDIR=", line)]
    env_file.write_text("".join(f"{line}\n" for line in kept))


def prove(lab: Lab, scanned: Scanned, cause: dict[str, Any], env_file: Path | None = None) -> None:
    """Paste the first fix that acts, and hold the printed verify to its word.

    env_file: where the job's variables come from; what a fix puts into the job goes there instead of into the
    shell from which netdoctor runs. What is for a node's console is typed there.
    """
    number = acting(cause)
    assert number >= 0, f"{cause['key']} has no fix that does anything: {cause['fixes']}"
    fix, text = cause["fixes"][number], taken(scanned, cause, number)
    reached = {target["id"] for target in scanned.report["targets"] if target["reached"]}
    places = {place for command in fix["commands"] for place in command["run_on"]}
    consoles = places - reached - {"job", "control"}
    if consoles:
        assert consoles == places, f"part for a console, and part not: {fix}"
        dones = [
            lab.run(node, ["bash", "-c", text], capture_output=True, text=True) for node in sorted(consoles)
        ]
    elif "job" in places and env_file is None:
        # Of one paste with the verify, as in the shell of a person.
        done = paste(scanned.folder, f"{text}\n{cause['verify']['shell']} -o text -o json={PART}")
        judge(scanned, cause, text, done)
        return
    else:
        job = {command["shell"] for command in fix["commands"] if command["run_on"] == ["job"]}
        lines = text.splitlines()
        if env_file is not None and job:
            rewrite(env_file, "\n".join(line for line in lines if line in job))
        dones = [paste(scanned.folder, "\n".join(line for line in lines if line not in job))]
    for done in dones:
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    judge(scanned, cause, text, verify(scanned, cause))


def take_back(lab: Lab, scanned: Scanned, cause: dict[str, Any]) -> None:
    """Paste what is said to take the fix back; then the verify says again that the fault is there."""
    fix = cause["fixes"][acting(cause)]
    if not (undo := fix["undo"]):
        return
    lines = [f"sh {fix['script']} --undo"] if fix["script"] else [command["shell"] for command in undo]
    text = "\n".join(lines)
    done = paste(scanned.folder, text)
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    whole = len(undo) == len(fix["commands"])  # what went into the job's environment stays there
    if whole and cause["key"] not in TAKEN_BACK:
        done = verify(scanned, cause)
        assert done.returncode != 0, f"{text}\n{done.stdout}{done.stderr}"
        TAKEN_BACK.add(cause["key"])


def judge(scanned: Scanned, cause: dict[str, Any], text: str, done: subprocess.CompletedProcess[str]) -> None:
    """The verify that has run says that the cause is gone, and ends with 0."""
    after = json.loads((scanned.folder / PART).read_text("utf-8"))
    left = {one["key"] for one in after["causes"]}
    said = f"{text}\n{cause['verify']['shell']}\n{done.stdout}{done.stderr}"
    assert (done.returncode, cause["key"] in left) == (0, False), said
