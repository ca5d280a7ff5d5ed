"""One line per cause, nothing when READY: for cron and prologs."""

from netdoctor.report import describe, summary
from netdoctor.report.model import Report
from netdoctor.text import inert_line


def render(report: Report) -> str:
    """Return ``FAIL net.ports gpu-a03 drops connections …`` per cause; '' for READY without warnings.

    A part that passes is one line, and so is READY where something was not seen: silence would say more than
    was looked at.
    """
    lines = [
        " ".join(
            filter(None, [summary.word(cause.status), describe.cause_check(cause), describe.title(cause)])
        )
        for cause in report.causes
    ]
    unseen = report.verdict.state != "ready" or report.verdict.gaps or report.suppressed
    if unseen and all(cause.status == "warn" for cause in report.causes):
        # Not one cause of that, and still not ready, or not all of it: silence would read as green.
        lines.insert(0, f"{summary.verdict(report)} {summary.headline(report)}")
    return "".join(f"{inert_line(line)}\n" for line in lines)
