"""The report as a custom plugin of Kubernetes' node-problem-detector prints it: one line, and an exit code.

0 is fine, 1 is a problem, any other code is unknown. What is longer than max_output_length, by default 80
bytes, is cut: https://github.com/kubernetes/node-problem-detector/blob/6632ca6/docs/custom_plugin_monitor.md,
https://github.com/kubernetes/node-problem-detector/blob/6632ca6/pkg/custompluginmonitor/plugin/plugin.go
"""

from netdoctor.report import describe, fmt, summary
from netdoctor.report.model import Report
from netdoctor.text import inert_line

FINE, PROBLEM, UNKNOWN = 0, 1, 2
BYTES_MAX = 79


def exit_code(report: Report) -> int:
    """Return 0 to 2. A warning is a problem with --fail-on warn; what was cut short is unknown."""
    if report.verdict.state == "not_ready" or report.verdict.exit_code in (1, 4):
        return PROBLEM
    finished = report.verdict.state in ("ready", "partial_pass") and report.run.complete
    return FINE if finished and not report.verdict.exit_code else UNKNOWN


def render(report: Report) -> str:
    """Return the line, in ASCII: the check and title of the worst cause, and how many others there are."""
    code = exit_code(report)
    causes = [cause for cause in report.causes if code or cause.status == "warn"]
    # One that only failed to be measured is no problem's name.
    if code == PROBLEM:
        causes.sort(key=lambda cause: {"fail": 0, "warn": 1}.get(cause.status, 2))
    head = summary.verdict(report)
    line = head if code == FINE else f"{head}: {summary.headline(report)}"
    if causes:
        line = f"{describe.cause_check(causes[0])}: {describe.title(causes[0])}"
        line = line if code == PROBLEM else f"{head}; {line}"
    rest = f" (+{len(causes) - 1})" if causes[1:] else ""
    text = inert_line(fmt.plain(line, 400)).encode("ascii", "replace").decode()
    room = BYTES_MAX - len(rest)
    return (text if len(text) <= room else f"{text[: room - 3].rstrip()}...") + rest + "\n"
