"""Findings for people, for programs, for GitHub, and as SARIF."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from netdoctor import __version__
from netdoctor.jsontext import encode
from netdoctor.lint.engine import IGNORE_RULES, rules
from netdoctor.lint.files import Read
from netdoctor.lint.model import SEVERITIES, Finding, Severity
from netdoctor.report.formats import github, sarif
from netdoctor.text import clean

MOST_ANNOTATIONS = github.MOST
UNREAD_MOST = 20
FINGERPRINT = "netdoctorLint/v1"  # another way to make them would be another key
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def counts(findings: Sequence[Finding]) -> dict[Severity, int]:
    """How many there are of each severity."""
    found = Counter(finding.severity for finding in findings)
    return {severity: found[severity] for severity in SEVERITIES}


def summary(findings: Sequence[Finding], files: Sequence[Read]) -> str:
    """``2 errors, 1 note in 3 files``."""
    many = [f"{n} {name}{'s' * (n != 1)}" for name, n in counts(findings).items() if n]
    where = f"{len(files)} file{'s' * (len(files) != 1)}"
    if not files:
        return "nothing was read"
    read = f"what was read of {where}" if unread(files) else where
    return f"{', '.join(many)} in {where}" if many else f"no findings in {read}"


def unread(files: Sequence[Read]) -> list[str]:
    """``job.sbatch:7: not read: run.sh, which srun starts``: what the rules did not see."""
    found = [
        f"{clean(position.path or path, 1000)}:{position.line}: not read: {clean(text, 200)}"
        for read in files
        for path, position, text in read.unread
    ]
    return list(dict.fromkeys(found))[:UNREAD_MOST]


def location(finding: Finding) -> str:
    """``job.sbatch:4:8``, with a path that cannot steer a terminal or a CI."""
    path = clean(finding.path, 1000)
    path = f"./{path}" if path.startswith(("::", "##")) else path
    return f"{path}:{finding.position.line}:{finding.position.col}"


def as_json(findings: Sequence[Finding], files: Sequence[Read], errors: Sequence[str]) -> bytes:
    """One object; `errors` are files that could not be read."""
    data: dict[str, Any] = {
        "version": 1,
        "tool": {"name": "netdoctor", "version": __version__},
        "files": [{"path": clean(read.file.path, 1000), "kind": read.file.kind.value} for read in files],
        "errors": list(errors),
        "not_read": unread(files),
        "counts": {severity.value: number for severity, number in counts(findings).items()},
        "findings": [
            {
                "path": clean(finding.path, 1000),
                "line": finding.position.line,
                "col": finding.position.col,
                "rule": finding.rule,
                "severity": finding.severity.value,
                "message": finding.message,
                "instead": finding.instead,
            }
            for finding in findings
        ],
    }
    return encode(data, True) + b"\n"


def as_github(findings: Sequence[Finding]) -> str:
    """Workflow commands, which become annotations; GitHub shows ten of each level for a step."""
    lines = []
    for severity, level in LEVELS.items():
        chosen = [finding for finding in findings if finding.severity is severity]
        for finding in chosen[:MOST_ANNOTATIONS]:
            line, col, rule = finding.position.line, finding.position.col, github.property_(finding.rule)
            where = f"file={github.property_(finding.path)},line={line},col={col},title={rule}"
            lines.append(f"::{level} {where}::{github.data(_text(finding))}")
        if len(chosen) > MOST_ANNOTATIONS:
            lines.append(f"and {len(chosen) - MOST_ANNOTATIONS} more of this level")
    return "".join(f"{line}\n" for line in lines)


def as_sarif(findings: Sequence[Finding], errors: Sequence[str]) -> bytes:
    """One SARIF 2.1.0 log with one run; a file that could not be read makes it an unsuccessful one."""
    known = {name: rule.title for name, rule in rules().items()} | IGNORE_RULES
    index = {name: number for number, name in enumerate(known)}
    notes = [{"level": "error", "message": sarif.message(text)} for text in errors]
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": index[finding.rule],
            "level": finding.severity.value,
            "message": sarif.message(_text(finding)),
            "partialFingerprints": {FINGERPRINT: _fingerprint(finding)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(finding.path)},
                        "region": {"startLine": finding.position.line, "startColumn": finding.position.col},
                    }
                }
            ],
        }
        for finding in findings
    ]
    return sarif.log(
        [sarif.rule(name, title, "netdoctor lint --explain") for name, title in known.items()],
        {"executionSuccessful": not errors, "toolExecutionNotifications": notes},
        results,
        name="netdoctor",
        version=__version__,
        automation_id="netdoctor/lint/",
    )


def _fingerprint(finding: Finding) -> str:
    """The same while the finding is, also where lines above it come and go."""
    text = f"{finding.rule}\0{finding.path}\0{finding.message}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _uri(path: str) -> str:
    path = sarif.quoted(clean(path, 1000))
    return f"file://{path}" if path.startswith("/") else path


def _text(finding: Finding) -> str:
    return f"{finding.message}\nwrite instead: {finding.instead}" if finding.instead else finding.message
