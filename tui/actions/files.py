"""Files that are written: fixes and reports."""

import os
import time
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.report import fmt
from netdoctor.report.save import save as save_report
from netdoctor.report.save import write_whole
from netdoctor.tui.actions.table import does
from netdoctor.tui.export import fixes_script
from netdoctor.tui.stage import Stage
from netdoctor.tui.state import mark


@does("export")
def export(stage: Stage) -> None:
    """The fixes of this cause, or of all causes, as a script to read before running it."""
    report = stage.state.report
    if report is None:
        return
    if report.run.foreign is not None:
        stage.say("not exported: this report is not yours, and its commands are shown as comments only")
        return
    item = stage.cause if stage.where.view in ("cause", "evidence") else None
    script = fixes_script(report, (item,) if item else report.causes)
    subject = mark(item) if item else fmt.number(len(report.causes), "cause")
    if stage.export_to_stdout and stage.export is None:
        stage.exported.append(script)
        stage.say(f"the fixes of {subject} go to standard output at the end")
        return
    path = stage.export or _free_name(stage, "netdoctor-fixes", ".sh")
    try:
        write_whole(path, script.encode())
    except OSError as error:
        stage.say(f"{path}: {error.strerror or error}")
        return
    stage.files.add(path)
    stage.say(f"wrote the fixes of {subject} to {path}; read it before you run it")


@does("save")
def save(stage: Stage) -> None:
    report = stage.state.report
    if report is None:
        return
    path = _free_name(stage, "netdoctor-report", ".json")
    try:
        save_report(report, path)
    except InputError as error:  # what it was read from is damaged
        stage.say(fmt.plain(str(error), 300))
        return
    except OSError as error:
        stage.say(f"{path}: {error.strerror or error}")
        return
    stage.files.add(path)
    stage.say(f"saved the report to {path}")


def _free_name(stage: Stage, stem: str, suffix: str) -> Path:
    """A file of ours, or a name that nobody uses: nothing of anybody else's is written over."""
    for number in range(1, 1000):
        path = Path(f"{stem}{f'-{number}' if number > 1 else ''}{suffix}")
        if path in stage.files or not os.path.lexists(path):
            return path
    return Path(f"{stem}-{time.time_ns()}{suffix}")
