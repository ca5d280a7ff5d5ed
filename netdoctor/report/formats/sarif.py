"""The report as SARIF 2.1.0: rule = check, result = cause, its place the node's line in the hosts file.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. A run without results reads as clean, so one
that is not READY for want of a measurement is an invocation that was not successful, and says why.
"""

import string
from collections.abc import Sequence
from typing import Any

from netdoctor.compat import UTC, instant
from netdoctor.jsontext import encode
from netdoctor.report import commands, describe, fmt, summary
from netdoctor.report.model import Cause, Report, Suppressed

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"fail": "error", "warn": "warning", "unknown": "warning"}
# Of the key of a partial fingerprint; another way to make fingerprints would be another one.
FINGERPRINT = "netdoctorCause/v1"
MOST_LOCATIONS = 20
_UNRESERVED = frozenset(f"{string.ascii_letters}{string.digits}-._~/")


def render(report: Report, *, pretty: bool = False) -> bytes:
    """Return one SARIF log with one run."""
    accepted = [_as_cause(one) for one in report.suppressed]
    checks = dict.fromkeys(map(_rule_of, (*report.causes, *accepted)), "")
    checks |= {fmt.plain(check.id, 60) or "netdoctor": fmt.plain(check.title, 400) for check in report.checks}
    checks = {name: title or name for name, title in checks.items()}
    index = {name: number for number, name in enumerate(checks)}
    results = [
        *(_result(report, cause, index[_rule_of(cause)]) for cause in report.causes),
        *(
            {**_result(report, cause, index[_rule_of(cause)]), "suppressions": [_suppression(one)]}
            for one, cause in zip(report.suppressed, accepted, strict=True)
        ),
    ]
    return log(
        [rule(name, title, "netdoctor checks explain") for name, title in checks.items()],
        _invocation(report),
        results,
        name=fmt.plain(report.tool.name, 100) or "netdoctor",
        version=fmt.plain(report.tool.version, 100),
        automation_id=f"netdoctor/{quoted(fmt.plain(report.run.profile, 40))}/",
        pretty=pretty,
    )


def log(
    rules: Sequence[dict[str, Any]],
    invocation: dict[str, Any],
    results: Sequence[dict[str, Any]],
    *,
    name: str,
    version: str,
    automation_id: str,
    pretty: bool = False,
) -> bytes:
    """One SARIF log with one run."""
    run = {
        "tool": {"driver": {"name": name, "version": version, "rules": rules}},
        "automationDetails": {"id": automation_id},
        "invocations": [invocation],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    return encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, pretty) + b"\n"


def _as_cause(one: Suppressed) -> Cause:
    """What is accepted, as it would stand among the causes."""
    return Cause(
        id=0,
        key=one.key,
        fingerprint=one.fingerprint,
        status=one.status,
        title=one.title,
        checks=one.checks,
        nodes=one.nodes,
        node_list=one.node_list,
        confidence="certain",
        seen=one.seen,
    )


def _suppression(one: Suppressed) -> dict[str, str]:
    """Why a result counts for nothing (3.35); external: it was said in a file of its own."""
    until = f" (until {fmt.plain(one.until, 20)})" if one.until else ""
    return {"kind": "external", "justification": f"{fmt.plain(one.reason, 300)}{until}"}


def _rule_of(cause: Cause) -> str:
    return describe.cause_check(cause) or "netdoctor"


def rule(name: str, title: str, command: str) -> dict[str, Any]:
    return {"id": name, "shortDescription": message(title), "help": message(f"{command} {name}")}


def _result(report: Report, cause: Cause, rule: int) -> dict[str, Any]:
    lines = [describe.title(cause), *(fmt.plain(line) for line in cause.seen)]
    for name, fix in zip(describe.fix_names(cause.fixes), cause.fixes, strict=True):
        lines += [f"{name}: {describe.fix_label(report, fix)}", *commands.fix_commands(fix)]
    if cause.verify:
        lines.append(f"verify: {commands.display(cause.verify.shell)}")
    return {
        "ruleId": _rule_of(cause),
        "ruleIndex": rule,
        "level": LEVELS.get(cause.status, "warning"),
        "message": message("\n".join(lines)),
        "locations": _locations(report, cause),
        "partialFingerprints": {FINGERPRINT: fmt.plain(cause.fingerprint, 200)},
        "properties": {
            "key": fmt.plain(cause.key, 100),
            "status": fmt.plain(cause.status, 20),
            "confidence": fmt.plain(cause.confidence, 20),
            "nodes": [fmt.plain(node, 200) for node in cause.node_list],
        },
    }


def message(text: str) -> dict[str, str]:
    """A message in which nothing is a link: ``[text](target)`` would be one (3.11.6)."""
    return {"text": text.replace("](", "] (")}


def _locations(report: Report, cause: Cause) -> list[dict[str, Any]]:
    path = fmt.plain(report.run.hosts_source.get("path", ""), 1_000)
    lines = {target.id: target.line for target in report.targets}
    found = []
    for node in cause.node_list[:MOST_LOCATIONS]:
        location: dict[str, Any] = {"logicalLocations": [{"name": fmt.plain(node, 200), "kind": "resource"}]}
        line = lines.get(node) or 0
        if path and path != "-" and line > 0:  # names from the command line or stdin are in no file
            uri = quoted(path) if not path.startswith("/") else f"file://{quoted(path)}"
            location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
        found.append(location)
    return found


def quoted(text: str) -> str:
    """A path as a part of a URI (RFC 3986, 2.3: what needs no percent sign)."""
    return "".join(c if c in _UNRESERVED else "".join(f"%{byte:02X}" for byte in c.encode()) for c in text)


def _invocation(report: Report) -> dict[str, Any]:
    decided = report.verdict.state in ("ready", "not_ready", "partial_pass") and report.run.complete
    text = f"{summary.verdict(report)}: {summary.headline(report)}"
    notes = [{"level": "none" if decided else "error", "message": message(text)}]
    notes += [
        {"level": "warning" if note.level == "warn" else "note", "message": message(fmt.plain(note.text))}
        for note in report.notes
    ]
    return {
        "executionSuccessful": decided,
        "exitCode": report.verdict.exit_code,
        **_times(report),
        "toolExecutionNotifications": notes,
    }


def _times(report: Report) -> dict[str, str]:
    found = {}
    for name, text in (("startTimeUtc", report.run.started), ("endTimeUtc", report.run.finished)):
        try:
            found[name] = instant(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        except (ValueError, OverflowError, OSError):
            continue
    return found
