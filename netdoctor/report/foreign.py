"""A report that somebody else wrote: shown, never taken at its word, its commands made comments."""

from dataclasses import replace

from netdoctor.report.model import Cause, CommandRecord, FixRecord, Note, Report

MARK = "# not your netdoctor's: "


def disowned(report: Report, owner: str) -> Report:
    """The report of somebody else, as everything that shows reports gets it.

    Pasting one of its commands does nothing, it cannot be asked for again, and it stays marked when it is
    saved under another owner. Applying it twice changes nothing.
    """
    note = Note(
        level="warn",
        text=f"this report is not yours, it belongs to {owner}: its commands are shown as comments, and "
        "nothing runs by it",
    )
    run = replace(report.run, foreign=owner, replay={}, ssh_command="ssh", saved_to=None)
    notes = report.notes if note in report.notes else (note, *report.notes)
    return replace(report, run=run, notes=notes, causes=tuple(_cause(c) for c in report.causes))


def _cause(cause: Cause) -> Cause:
    verify = cause.verify
    if verify is not None:
        verify = replace(verify, argv=(), shell=_marked(verify.shell))
    settle = None if cause.settle_by is None else _marked(cause.settle_by)
    return replace(cause, fixes=tuple(_fix(f) for f in cause.fixes), verify=verify, settle_by=settle)


def _fix(fix: FixRecord) -> FixRecord:
    return replace(fix, commands=_inert(fix.commands), undo=_inert(fix.undo), script="")


def _inert(commands: tuple[CommandRecord, ...]) -> tuple[CommandRecord, ...]:
    return tuple(replace(c, shell=_marked(c.shell), inner="") for c in commands)


def _marked(shell: str) -> str:
    return "\n".join(line if line.startswith(MARK) else f"{MARK}{line}" for line in shell.splitlines())
