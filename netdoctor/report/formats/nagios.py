"""The report as a plugin of Nagios or Icinga prints it: a line with figures behind ``|``, then the causes.

Plugin guidelines: https://nagios-plugins.org/doc/guidelines.html (states, performance data).
"""

from collections.abc import Iterator

from netdoctor.report import describe, fmt, summary
from netdoctor.report.model import Report
from netdoctor.text import inert_line

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
UNKNOWN = 3
MOST = 10
# Verdicts that exit codes of scan stand for; anything else never became a report.
VERDICT_CODES = (0, 1, 3, 4)


def exit_code(report: Report) -> int:
    """Return 0 to 3. A warning is one whatever --fail-on says; what is undecided or cut short is unknown."""
    if report.verdict.state == "not_ready":
        return 2
    if report.verdict.state not in ("ready", "partial_pass") or not report.run.complete:
        return UNKNOWN
    return int(any(cause.status == "warn" for cause in report.causes) or report.verdict.counts.warn > 0)


def render(report: Report) -> str:
    """Return what the plugin prints. A bar in a text would begin the figures, and becomes a slash."""
    head = f"NETDOCTOR {STATES[exit_code(report)]} - {summary.verdict(report)}: {summary.headline(report)}"
    lines = [f"{_text(head)} | {' '.join(_figures(report))}"]
    for cause in report.causes[:MOST]:
        check = describe.cause_check(cause)
        lines.append(_text(f"[{cause.id}] {summary.word(cause.status)} {check} {describe.title(cause)}"))
    if len(report.causes) > MOST:
        lines.append(f"and {len(report.causes) - MOST} more")
    return "".join(f"{line}\n" for line in lines)


def _text(text: str) -> str:
    return inert_line(fmt.plain(text, 1_000)).replace("|", "/")


def _figures(report: Report) -> Iterator[str]:
    """Yield ``'label'=value[unit];[warn];[crit];[min];[max]``."""
    for status in ("fail", "warn", "unknown"):
        yield f"{status}={sum(cause.status == status for cause in report.causes)};;;0"
    nodes = len(report.matrix.nodes)
    yield f"nodes_ready={len(report.healthy_nodes)};;;0;{nodes}"
    yield f"time={report.run.duration_ms / 1000:.3f}s;;;0"
    skews = [abs(m.value) / 1000 for m in report.measures if m.name == "time.skew" and m.unit == "ms"]
    if skews:
        yield f"skew_max={max(skews):.6f}s;;;0"
