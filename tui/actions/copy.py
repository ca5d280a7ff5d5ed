"""Texts for the clipboard: fixes, causes, commands, names, changes.

A command ends in no newline: pasted into a shell, its last line waits for Enter.
"""

from netdoctor.errors import InputError
from netdoctor.report import commands, fmt
from netdoctor.report.diff import diff
from netdoctor.report.formats.markdown import render_cause
from netdoctor.tui import compare
from netdoctor.tui.actions.table import does
from netdoctor.tui.stage import Stage
from netdoctor.tui.state import mark


def copy(stage: Stage, text: str, what: str) -> None:
    """To the clipboard by OSC 52, which a terminal may refuse in silence."""
    stage.copy_to_clipboard(text)
    stage.say(f"copied {what}; where the terminal refuses, select it with the mouse, or E writes a file")


@does("copy-fix")
def copy_fix(stage: Stage) -> None:
    item = stage.cause
    if item is None:
        stage.say("no cause under the cursor")
        return
    key = stage.page.key if stage.where.view == "cause" else None
    if isinstance(key, tuple) and key[0] == "verify":
        copy_verify(stage)
        return
    number = key[2] if isinstance(key, tuple) and key[0] == "fix" else 0
    fixes = item.fixes
    if number >= len(fixes) or not fixes[number].commands:
        stage.say(f"{mark(item)} has no command to copy; Y copies the whole cause")
        return
    lines = commands.fix_commands(fixes[number], every=True)
    ordinal = f" {number + 1} of {len(fixes)}" if len(fixes) > 1 else ""
    name = "look" if fixes[number].kind == "look" else "fix"
    where = fmt.plain(fixes[number].where, 80) if fixes[number].kind in ("job", "console") else ""
    what = [f"{name}{ordinal} of {mark(item)}", fmt.number(len(lines), "line"), where]
    copy(stage, "\n".join(lines), ", ".join(filter(None, what)))


@does("copy-all")
def copy_all(stage: Stage) -> None:
    item, report = stage.cause, stage.state.report
    if item is None or report is None:
        stage.say("no cause under the cursor")
        return
    copy(stage, render_cause(report, item), f"{mark(item)} as Markdown")


@does("copy-verify")
def copy_verify(stage: Stage) -> None:
    item = stage.cause
    if item is None or item.verify is None:
        stage.say("there is no command that proves it")
        return
    copy(stage, commands.display(item.verify.shell), f"the verify command of {mark(item)}")


@does("copy-names")
def copy_names(stage: Stage) -> None:
    names = stage.nodes_here
    if not names:
        stage.say("no node under the cursor")
        return
    copy(stage, fmt.fold(names, None), f"the names of {fmt.number(len(names), 'node')}")


@does("copy-diff")
def copy_diff(stage: Stage) -> None:
    report = stage.state.report
    if stage.base is None or report is None:
        stage.say("b chooses a report to compare with")
        return
    try:
        text = compare.markdown(diff(stage.base, report), stage.base, report)
    except InputError as error:
        stage.say(fmt.plain(str(error), 300))
        return
    copy(stage, text, "the changes")
