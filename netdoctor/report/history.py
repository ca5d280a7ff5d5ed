"""Earlier reports, kept beside the last one: a bounded number, each as private as it."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from netdoctor.report import LAST
from netdoctor.report.model import Report

FOLDER = "history"
KEPT_MAX = 20
# Of all that is kept; the newest two stay whatever their size, as one of them is what to compare with.
BYTES_MAX = 256 * 1024 * 1024
ALWAYS = 2
# When the scan or its trial ended, in UTC with milliseconds, and the beginning of its run's id: names sort by
# time.
_NAME = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}\.json")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z")


@dataclass(frozen=True, slots=True)
class EarlierReport:
    """One earlier report. finished: as `ended` has it, RFC 3339 in UTC."""

    path: Path
    finished: str


def ended(report: Report) -> str:
    """When the scan ended, or the trial of a job behind it. RFC 3339 in UTC."""
    tried = report.trial.finished if report.trial is not None else ""
    return tried if _TIME.fullmatch(tried) and tried > report.run.finished else report.run.finished


def name_of(report: Report) -> str | None:
    """What a report is called in the history; None where its run is not one of ours, word for word."""
    when = _TIME.fullmatch(ended(report))
    if when is None:
        return None
    day, clock = "".join(when.groups()[:3]), "".join(when.groups()[3:])
    name = f"{day}T{clock}Z-{report.run.id[:8]}.json"
    return name if _NAME.fullmatch(name) else None


def reports(last: Path = LAST) -> list[EarlierReport]:
    """The reports in the history beside `last`, that one among them, the newest first. No file is opened."""
    folder = last.parent / FOLDER
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if _NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return [EarlierReport(folder / name, _finished(name)) for name in sorted(names, reverse=True)]


def before(report: Report, last: Path = LAST) -> Path | None:
    """The newest report in the history that ended before this one, which is what to compare it with."""
    return next((one.path for one in reports(last) if one.finished < ended(report)), None)


def _finished(name: str) -> str:
    d, t = name[:8], name[9:18]
    return f"{d[:4]}-{d[4:6]}-{d[6:]}T{t[:2]}:{t[2:4]}:{t[4:6]}.{t[6:]}Z"


def forget(folder: int) -> None:
    """Remove the oldest reports of a history, which stays bounded. folder: a descriptor. Raises OSError."""
    with os.scandir(folder) as entries:
        found = sorted((e.name for e in entries if _NAME.fullmatch(e.name)), reverse=True)
    size = 0
    for number, name in enumerate(found):
        size += os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        if number >= KEPT_MAX or (size > BYTES_MAX and number >= ALWAYS):
            os.unlink(name, dir_fd=folder)
