"""Fixes as a script: every command as the report prints it, each under a comment that says what it is for."""

from collections.abc import Iterable, Iterator

from netdoctor.report import commands, describe, fmt, summary
from netdoctor.report.model import Cause, FixRecord, Report


def fixes_script(report: Report, causes: Iterable[Cause]) -> str:
    """Shell text. What runs when it is run: the first fix of a cause, where it is of low risk, loses nothing,
    and goes over ssh or stays on this machine. Everything else is a comment that says why."""
    lines = [
        "#!/bin/sh",
        f"# Fixes from netdoctor, report of {fmt.plain(report.run.finished, 40)}. Read before running:",
        "# each changes something on the machines it names. What only looks, belongs elsewhere, may lose",
        "# something, or is another way to the same end, is a comment.",
    ]
    for cause in causes:
        lines += ["", f"# [{cause.id}] {summary.word(cause.status)} {describe.title(cause)}"]
        for number, fix in enumerate(cause.fixes):
            lines += _fix(report, fix, number)
        if cause.verify is not None:
            lines.append(f"# verify: {commands.display(cause.verify.shell)}")
    return "\n".join(lines) + "\n"


def _fix(report: Report, fix: FixRecord, number: int) -> Iterator[str]:
    name = "look" if fix.kind == "look" else "fix"
    yield f"#   {name} {number + 1}: {describe.fix_label(report, fix)}"
    why = _held_back(fix, number)
    if why and fix.commands:
        yield f"#   not run by this script: {why}"
    for shell in commands.fix_commands(fix, every=True):
        yield f"# {shell}" if why else shell
    for shell in commands.to_paste(fix.undo):
        yield f"# undo: {shell}"


def _held_back(fix: FixRecord, number: int) -> str:
    """Why no script should run it by itself; empty for what it may."""
    other = {
        "look": "it only looks",
        "job": "it goes into the job's environment or script",
        "console": "it is for the console of the node",
    }
    if fix.kind != "do":
        return other.get(fix.kind, "it is no command for this machine")
    if number:
        return "another way, or one that comes after a look"
    parts = [f"risk {fmt.plain(fix.risk, 20)}"] if fix.risk != "low" else []
    parts += ["needs a reboot"] if fix.needs_reboot else []
    parts += [f"loses {fmt.plain(fix.loses, 200)}"] if fix.loses else []
    if parts:
        return ", ".join(parts)
    return "" if {c.via for c in fix.commands} <= {"ssh", "control"} else "part of it belongs elsewhere"
