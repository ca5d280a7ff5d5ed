"""What saved reports know of some nodes, as evidence for a launch plan."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from netdoctor.compat import instant
from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.launch import Evidence
from netdoctor.report.model import Report
from netdoctor.scanning.known import newest
from netdoctor.scanning.record import facts_of, kept_request, load_own


def evidence_of(report: Report, path: Path, now: float | None = None) -> Evidence:
    """A report as evidence for a launch. now: seconds since the epoch.

    Raises InputError for a report that is somebody else's or redacted.
    """
    if report.run.redacted:
        raise InputError(f"{path}: is redacted: its nodes have other names")
    request = kept_request(report, {}, path)
    try:
        finished = instant(report.run.finished).timestamp()
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


def newest_evidence(targets: Sequence[Target], path: Path | None = None) -> Evidence | None:
    """What the newest report of these nodes says, or the one at `path`; None without one.

    Raises InputError for a `path` that cannot be used.
    """
    if path is not None:
        return evidence_of(load_own(path), path)
    found = newest(targets)
    return evidence_of(*found) if found else None
