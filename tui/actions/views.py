"""How pairs and changes are shown."""

import contextlib
import time
from pathlib import Path

from netdoctor.report import LAST, history
from netdoctor.report.formats.json_ import ReportError
from netdoctor.report.save import load
from netdoctor.tui import where
from netdoctor.tui.actions.table import does
from netdoctor.tui.dialogs import Choice, Picker, matching
from netdoctor.tui.stage import Stage

EARLIER_READ = 5


@does("next-pairs")
def next_pairs(stage: Stage) -> None:
    stage.where = where.next_kind(stage.where, stage.kinds)
    stage.draw(top=True)


@does("next-path")
def next_path(stage: Stage) -> None:
    stage.where = where.next_path(stage.where, stage.paths)
    stage.draw()


@does("base")
def base(stage: Stage) -> None:
    def choices(text: str) -> list[Choice]:
        return matching(text, _report_files(stage))

    stage.push_screen(
        Picker("compare with which report?  type a path, or choose", choices, free=True),
        lambda name: take_base(stage, name),
    )


def _report_files(stage: Stage) -> list[Choice]:
    """Files that may hold a report, the youngest first."""
    found = []
    for path in (
        *Path().glob("*.json"),
        *Path(".netdoctor").glob("*.json"),
        *(k.path for k in history.reports()),
    ):
        with contextlib.suppress(OSError):  # a link to nothing, or gone since it was listed
            if path != stage.path:
                found.append((path.stat().st_mtime, str(path)))
    found.sort(reverse=True)
    return [
        (name, name, time.strftime("%Y-%m-%d %H:%M", time.gmtime(changed))) for changed, name in found[:100]
    ]


def take_base(stage: Stage, name: str | None) -> None:
    """Compare with the report in this file."""
    if not name:
        return
    try:
        stage.base, stage.base_name, stage.base_chosen = load(Path(name)), name, True
    except ReportError as error:
        stage.say(str(error))
        return
    if stage.where.view == "diff":
        stage.draw(top=True)


def earlier_base(stage: Stage) -> None:
    """Where nobody has said with what to compare: with the newest earlier report of these nodes."""
    now = stage.state.report
    if stage.base is not None or now is None:
        return
    last = Path(now.run.saved_to) if now.run.saved_to else stage.path or LAST
    nodes = set(now.matrix.nodes)
    earlier = [one.path for one in history.reports(last) if one.finished < history.ended(now)]
    for path in earlier[:EARLIER_READ]:
        with contextlib.suppress(ReportError):
            found = load(path)
            # Behind a trial the newest other one, if there is any: it tells more than a scan between them.
            tells_more = stage.base is None or found.trial is not None
            if tells_more and not nodes.isdisjoint(found.matrix.nodes):
                stage.base, stage.base_name = found, str(path)
                if now.trial is None or found.trial is not None:
                    return
