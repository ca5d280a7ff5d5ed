"""Fixes as a script: every command as the report prints it, each under a comment that says what it is for."""

from collections.abc import Iterable

from netdoctor.report import words
from netdoctor.report.model import Cause, Report


def fixes_script(report: Report, causes: Iterable[Cause]) -> str:
    """Shell text. What cannot be run as printed, or belongs into a job's environment, is a comment."""
    lines = [
        "#!/bin/sh",
        f"# Fixes from netdoctor, report of {words.plain(report.run.finished, 40)}. Read before running:",
        "# each changes something on the machines it names. Later fixes of a cause are alternatives.",
    ]
    for cause in causes:
        lines += ["", f"# [{cause.id}] {words.word(cause.status)} {words.title(cause)}"]
        for number, fix in enumerate(cause.fixes):
            lines.append(f"#   fix {number + 1}: {words.fix_label(report, fix)}")
            job = all(name == "job" for command in fix.commands for name in command.run_on)
            for shell in words.fix_commands(fix, every=True):
                lines.append(f"# {shell}" if number or job else shell)
        if cause.verify is not None:
            lines.append(f"# verify: {words.command(cause.verify.shell)}")
    return "\n".join(lines) + "\n"
