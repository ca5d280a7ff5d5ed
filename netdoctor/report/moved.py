"""A saved report under another name than it was saved to: its commands go on from the file that it is in."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from netdoctor.report import LAST
from netdoctor.report.model import Cause, CommandRecord, Report


def last_argv(saved: Path | str) -> tuple[str, ...]:
    """``netdoctor scan --last`` for the report in a file."""
    again = ("netdoctor", "scan", "--last")
    return again if str(saved) == str(LAST) else (*again, "--save", str(saved))


def moved(report: Report, path: Path) -> Report:
    """The report as it is read from `path`: with ``--last`` it would ask for whichever was saved last."""
    saved = report.run.saved_to
    if saved is None or os.path.abspath(saved) == os.path.abspath(path):
        return report
    old, new = last_argv(saved), last_argv(path)

    def cause(one: Cause) -> Cause:
        verify = one.verify
        if verify is not None and verify.argv[: len(old)] == old:
            argv = (*new, *verify.argv[len(old) :])
            verify = replace(verify, argv=argv, shell=_from(verify.shell, old, new))
        return replace(aimed(one, new, old), verify=verify)

    run = replace(report.run, saved_to=str(path))
    return replace(report, run=run, causes=tuple(map(cause, report.causes)))


def aimed(cause: Cause, new: Sequence[str], old: Sequence[str] = last_argv(LAST)) -> Cause:
    """The cause, where a fix or what would settle it is another scan: one that begins with `new`."""

    def command(record: CommandRecord) -> CommandRecord:
        return replace(record, shell=_from(record.shell, old, new), inner=_from(record.inner, old, new))

    fixes = tuple(replace(fix, commands=tuple(map(command, fix.commands))) for fix in cause.fixes)
    settle = cause.settle_by
    return replace(cause, fixes=fixes, settle_by=_from(settle, old, new) if settle else settle)


def _from(shell: str, old: Sequence[str], new: Sequence[str]) -> str:
    words = shlex.join(old)
    return shlex.join(new) + shell[len(words) :] if f"{shell} ".startswith(f"{words} ") else shell
