"""The newest saved report whose scan contacted some nodes."""

from collections.abc import Sequence
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.report import LAST, history
from netdoctor.report.kept import as_facts
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.scanning.record import kept_request


def newest(targets: Sequence[Target], last: Path = LAST) -> tuple[Report, Path] | None:
    """The newest report in netdoctor's folder whose scan contacted all of these nodes; None without one.

    A report that is somebody else's, redacted or broken is passed over.
    """
    requested = {(target.id, target.host, target.port) for target in targets}
    for path in dict.fromkeys([last, *(one.path for one in history.reports(last))]):
        try:
            report = load(path)
            if not report.run.redacted and requested <= _contacted(report, path):
                return report, path
        except InputError:
            continue
    return None


def _contacted(report: Report, path: Path) -> set[tuple[str, str, int | None]]:
    """Who was contacted, not only listed. Raises InputError for one that may not be taken at its word."""
    contacted = as_facts(report.facts).nodes()
    listed = kept_request(report, {}, path).targets or ()
    return {(target.id, target.host, target.port) for target in listed if target.id in contacted}
