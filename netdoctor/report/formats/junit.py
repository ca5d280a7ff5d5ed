"""The report as JUnit XML, for the test panes of CI systems.

Suite = family, classname = node, name = ``check: title``: CI systems follow a case from run to run by these,
so nothing in them is measured. GitLab shows classname as the suite and ignores suite names, which is why the
node is there. Each failure is there once, as a result; the cause and its fix are the text of it. What does
not apply, a third of the results where no GPU or HCA is, is one skipped case of its family. One suite
more, ``verdict``, has the counts, and is red itself where a verdict that is not READY made no case red;
that of a scan of a part is skipped, and not green. Its time is that of the run: a step of a run measures
for several checks, so a case has no time of its own. The attribute stays, as 0: without it
dorny/test-reporter shows NaN [src/parsers/java-junit/java-junit-parser.ts].
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from netdoctor.report import describe, fmt, summary
from netdoctor.report.formats.text import cause_text
from netdoctor.report.model import Cause, Report
from netdoctor.report.results import Index
from netdoctor.text import REPLACEMENT

FOLD_ABOVE = 64

# Outside the Char production of XML 1.0, section 2.2; ElementTree writes them all the same.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Case:
    family: str
    check: str
    where: str
    status: str
    message: str
    causes: tuple[int, ...] = ()


_BAD = ("fail", "warn", "unknown")
# The first of a check's statuses that is there is the case's; a warning is green unless --fail-on warn.
_WORST = ("fail", "unknown", "warn", "blocked", "pass", "skip")
_MILD_WARN = ("fail", "unknown", "blocked", "warn", "pass", "skip")


def render(report: Report, *, by: str = "auto") -> str:
    """Return JUnit XML. by: ``node``, a case per node and check; ``check``, one per check; ``auto``."""
    folded = by == "check" or (by == "auto" and len(report.matrix.nodes) > FOLD_ABOVE)
    index = Index(report)
    cases = list(_cases(report, index))
    by_id = {cause.id: cause for cause in report.causes}
    explained = {n for case in cases for n in case.causes if n in by_id and by_id[n].status == case.status}
    names = list(dict.fromkeys(case.family for case in cases))
    # What is accepted is a skip, too, and a fault all the same.
    accepted = {(check, node) for one in report.suppressed for check in one.checks for node in one.node_list}
    kinds: tuple[list[_Case], list[_Case]] = ([], [])
    for case in cases:
        kinds[case.status == "skip" and (case.check, case.where) not in accepted].append(case)
    cases, inapplicable = kinds
    cases = [*(_folded(report, cases) if folded else cases), *_inapplicable(report, inapplicable)]
    root = ET.Element("testsuites", name="netdoctor", time=f"{report.run.duration_ms / 1000:.3f}")
    open_causes = dict(by_id)  # each is written out where it is told first
    for family in names:
        suite = ET.SubElement(root, "testsuite", name=_text(family))
        for case in cases:
            if case.family == family:
                _add(suite, report, case, by_id, open_causes)
    _add_verdict(root, report, [cause for cause in report.causes if cause.id not in explained])
    for suite in root:
        _count(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return _ILLEGAL.sub(REPLACEMENT, fmt.plain(text))


def _cases(report: Report, index: Index) -> Iterator[_Case]:
    """Yield one case for every cell of the matrix."""
    for check, cells in zip(report.matrix.checks, report.matrix.cells, strict=True):
        of_cluster = index.results.get((check, "cluster"))
        for node, letter in zip(report.matrix.nodes, cells, strict=True):
            status = summary.LETTERS.get(letter, "unknown")
            result = index.results.get((check, node)) or of_cluster
            match = result if result and result.status == status else None
            yield _Case(
                index.family.get(check, ""),
                check,
                node,
                status,
                match.summary if match else "",
                (match.cause,) if match and match.cause is not None else (),
            )


def _folded(report: Report, cases: Sequence[_Case]) -> Iterator[_Case]:
    """Yield one case for every check with its worst status, the nodes of each status in the message."""
    groups: dict[str, list[_Case]] = {}
    for case in cases:
        groups.setdefault(case.check, []).append(case)
    order = _WORST if report.verdict.fail_on == "warn" else _MILD_WARN
    for check, members in groups.items():
        by_status: dict[str, list[_Case]] = {}
        for case in members:
            by_status.setdefault(case.status, []).append(case)
        worst = min(by_status, key=order.index)
        where = [
            f"{status}: {fmt.nodes_text(report, [case.where for case in same])}"
            for status, same in by_status.items()
        ]
        messages = list(dict.fromkeys(case.message for case in by_status[worst] if case.message))
        more = [f"{len(messages) - 3} more"] if len(messages) > 3 else []
        yield _Case(
            members[0].family,
            check,
            members[0].family,
            worst,
            "; ".join([*messages[:3], *more, *(where if len(where) > 1 or worst in _BAD else [])]),
            tuple(dict.fromkeys(n for case in by_status[worst] for n in case.causes)),
        )


def _inapplicable(report: Report, cases: Sequence[_Case]) -> Iterator[_Case]:
    """Yield one case for all that does not apply in a family: which checks, where and why."""
    families: dict[str, dict[str, list[_Case]]] = {}
    for case in cases:
        families.setdefault(case.family, {}).setdefault(case.message, []).append(case)
    for family, reasons in families.items():
        parts = []
        for reason, same in reasons.items():
            checks = ", ".join(dict.fromkeys(case.check for case in same))
            nodes = list(dict.fromkeys(case.where for case in same))
            where = "" if len(nodes) == len(report.matrix.nodes) else f" on {fmt.nodes_text(report, nodes)}"
            parts.append(f"{checks}{where}{f': {reason}' if reason else ''}")
        yield _Case(family, "", family, "skip", "; ".join(parts))


def _add(
    suite: ET.Element, report: Report, case: _Case, causes: Mapping[int, Cause], untold: dict[int, Cause]
) -> None:
    title = next((check.title for check in report.checks if check.id == case.check), "")
    element = _element(suite, case.where, f"{case.check}: {title}" if case.check else "does not apply")
    titles = [f"[{n}] {describe.title(causes[n])}" for n in case.causes if n in causes]
    message = "; ".join(titles[:3]) or case.message
    blocks = [case.message or message]
    if case.status in _BAD:
        blocks += [cause_text(report, untold.pop(n)) for n in case.causes if n in untold]
    _outcome(element, report, case.status, message, "\n\n".join(blocks))


def _element(suite: ET.Element, where: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_text(where), name=_text(name), time="0.000")


def _outcome(element: ET.Element, report: Report, status: str, message: str, body: str) -> None:
    """Put the outcome of a case into its element."""
    message, body = _text(message), _lines(body)
    if status == "fail" or (status == "warn" and report.verdict.fail_on == "warn"):
        ET.SubElement(element, "failure", type=status, message=message).text = body
    elif status in ("blocked", "skip"):
        prefix = "blocked by " if status == "blocked" else ""
        ET.SubElement(element, "skipped", message=f"{prefix}{message}")
    elif status == "warn":
        ET.SubElement(element, "system-out").text = body
    elif status != "pass":
        ET.SubElement(element, "error", type="unknown", message=message).text = body


def _lines(text: str) -> str:
    """Return text of several lines with what XML cannot hold replaced."""
    return "\n".join(_ILLEGAL.sub(REPLACEMENT, fmt.escaped(line)) for line in text.split("\n"))


def _add_verdict(root: ET.Element, report: Report, untold: Sequence[Cause]) -> None:
    """Add the counts, causes that no result tells, such as one on this machine, and the verdict itself."""
    suite = ET.SubElement(root, "testsuite", name="verdict")
    properties = ET.SubElement(suite, "properties")
    counts = report.verdict.counts
    values = [("verdict", summary.verdict(report)), ("exit_code", str(report.verdict.exit_code))]
    values += [(status, str(summary.count(counts, status))) for status in summary.STATUSES]
    for name, value in values:
        ET.SubElement(properties, "property", name=name, value=_text(value))
    for cause in untold:
        name = f"{describe.cause_check(cause)}: {cause.key} {cause.fingerprint}"
        body = cause_text(report, cause)
        _outcome(_element(suite, "netdoctor", name), report, cause.status, describe.title(cause), body)
    red = any(root.find(f".//{tag}") is not None for tag in ("failure", "error"))
    status = {"ready": "pass", "partial_pass": "skip"}.get(report.verdict.state, "pass" if red else "unknown")
    element = _element(suite, "netdoctor", "verdict")
    element.set("time", f"{report.run.duration_ms / 1000:.3f}")
    _outcome(element, report, status, summary.headline(report), summary.headline(report))


def _count(suite: ET.Element) -> None:
    """Write the totals that readers of JUnit want on a suite."""
    cases: Sequence[ET.Element] = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
