"""What saved reports know of some nodes: for who wants to use it, not judge it again."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.report import LAST, history
from netdoctor.report.kept import of
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.scanning.record import facts_of, load_own, replay

if TYPE_CHECKING:  # a scan writes no launch command
    from netdoctor.launch import Evidence


def newest(targets: Sequence[Target], last: Path = LAST) -> tuple[Report, Path] | None:
    """The newest report in netdoctor's folder whose scan contacted all of these nodes; None without one.

    A report that is somebody else's, redacted or broken is passed over.
    """
    wanted = {(target.id, target.host, target.port) for target in targets}
    for path in dict.fromkeys([last, *(one.path for one in history.kept(last))]):
        try:
            report = load(path)
            if not report.run.redacted and wanted <= _contacted(report, path):
                return report, path
        except InputError:
            continue
    return None


def _contacted(report: Report, path: Path) -> set[tuple[str, str, int | None]]:
    """Who was contacted, not only listed. Raises InputError for one that may not be taken at its word."""
    there = of(report.facts).nodes()
    listed = replay(report, {}, path).targets or ()
    return {(target.id, target.host, target.port) for target in listed if target.id in there}


def evidence(report: Report, path: Path, now: float | None = None) -> "Evidence":
    """A report as evidence for a launch. now: seconds since the epoch.

    Raises InputError for a report that is somebody else's or redacted.
    """
    from netdoctor.launch import Evidence

    if report.run.redacted:
        raise InputError(f"{path}: is redacted: its nodes have other names")
    request = replay(report, {}, path)
    try:
        finished = datetime.fromisoformat(report.run.finished).timestamp()
    except (ValueError, OverflowError):
        raise InputError(f"{path}: does not say when it was made") from None
    stops = [cause.title for cause in report.causes if cause.status == "fail"]
    return Evidence(
        facts=facts_of(report),
        source=f"report of {_clock(finished)}",
        finished=report.run.finished,
        age_s=(time.time() if now is None else now) - finished,
        state=report.verdict.state,
        headline=report.verdict.headline,
        causes=tuple(stops or [cause.title for cause in report.causes]),
        good=frozenset(report.healthy_nodes),
        ssh_port=request.ssh_port,
        user=request.ssh_user,
    )


def _clock(stamp: float) -> str:
    """``2026-11-20 14:02``, of this machine's clock."""
    return datetime.fromtimestamp(stamp).astimezone().strftime("%Y-%m-%d %H:%M")


def known(targets: Sequence[Target], path: Path | None = None) -> "Evidence | None":
    """What the newest report of these nodes says, or the one at `path`; None without one.

    Raises InputError for a `path` that cannot be used.
    """
    if path is not None:
        return evidence(load_own(path), path)
    found = newest(targets)
    return evidence(*found) if found else None
