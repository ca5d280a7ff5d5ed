"""The report for GitHub Actions: text in a log group, and one annotation per cause on the hosts file."""

from collections.abc import Iterator

from netdoctor.report import commands, describe, fmt, summary
from netdoctor.report.formats.text import render as render_text
from netdoctor.report.model import Cause, Report

MOST = 10  # GitHub shows ten annotations of a level per step


def render(report: Report, *, width: int = 100) -> str:
    """Return what a step prints. Only our own lines can be workflow commands."""
    lines = ["::group::netdoctor report"]
    lines += render_text(report, width=width).splitlines()
    lines.append("::endgroup::")
    for status in ("fail", "warn", "unknown"):
        lines += _annotations(report, status)
    return "".join(f"{line}\n" for line in lines)


def _annotations(report: Report, status: str) -> Iterator[str]:
    level = "error" if status == "fail" else "warning"
    chosen = [cause for cause in report.causes if cause.status == status]
    for cause in chosen[:MOST]:
        position = _position(report, cause)
        title = f"[{cause.id}] {summary.word(cause.status)} {describe.cause_check(cause)}"
        yield f"::{level} {position}title={property_(title)}::{_message(report, cause)}"


def _position(report: Report, cause: Cause) -> str:
    """Return the hosts file and the line of the first affected node, where both are known."""
    path = report.run.hosts_source.get("path", "")
    by_id = {target.id: target.line for target in report.targets}
    line = next((by_id[node] for node in cause.node_list if by_id.get(node)), None)
    # Names from the command line or stdin have no line, and then there is no file to show it in.
    return f"file={property_(path)},line={line}," if path and path != "-" and line else ""


def _message(report: Report, cause: Cause) -> str:
    lines = [describe.title(cause), *(fmt.plain(line) for line in cause.seen[:3])]
    fixes = list(zip(describe.fix_names(cause.fixes), cause.fixes, strict=True))
    for name, fix in [one for one in fixes if one[0] == "fix"] or fixes[:1]:
        lines += [f"{name}: {describe.fix_label(report, fix)}", *commands.fix_commands(fix)]
    if cause.verify:
        lines.append(commands.display(cause.verify.shell))
    return data("\n".join(filter(None, lines)))


def data(text: str) -> str:
    """The text of a workflow command, behind its ``::``."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_(text: str) -> str:
    """The value of one of its properties."""
    return data(fmt.plain(text)).replace(":", "%3A").replace(",", "%2C")
