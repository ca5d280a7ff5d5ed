"""The report as JUnit XML, for the test panes of CI systems.

Suite = family, classname = node, name = ``check: title``. One suite more, ``causes``, holds a case per cause,
so that a reader sees three reds instead of nineteen. GitLab shows classname as the suite and ignores suite
names, which is why the node is there.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from netdoctor.report import words
from netdoctor.report.model import Cause, Report
from netdoctor.report.text import cause_text
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
    cause: int | None
    seconds: float


def render(report: Report, *, by: str = "auto") -> str:
    """Return JUnit XML. by: ``node``, a case per node; ``check``, one per check and status; ``auto``."""
    folded = by == "check" or (by == "auto" and len(report.matrix.nodes) > FOLD_ABOVE)
    index = words.Index(report)
    cases = list(_folded(report, index) if folded else _cases(report, index))
    by_id = {cause.id: cause for cause in report.causes}
    root = ET.Element("testsuites", name="netdoctor", time=f"{report.run.duration_ms / 1000:.3f}")
    for family in dict.fromkeys(case.family for case in cases):
        suite = ET.SubElement(root, "testsuite", name=_text(family))
        for case in cases:
            if case.family == family:
                _add(suite, report, case, by_id.get(case.cause or -1))
    _add_causes(root, report)
    for suite in root:
        _count(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return _ILLEGAL.sub(REPLACEMENT, words.plain(text))


def _cases(report: Report, index: words.Index) -> Iterator[_Case]:
    """Yield one case for every cell of the matrix."""
    for check, cells in zip(report.matrix.checks, report.matrix.cells, strict=True):
        whole = index.results.get((check, "cluster"))
        for node, letter in zip(report.matrix.nodes, cells, strict=True):
            status = words.LETTERS.get(letter, "unknown")
            result = index.results.get((check, node)) or whole
            told = result if result and result.status == status else None
            yield _Case(
                index.family.get(check, ""),
                check,
                node,
                status,
                told.summary if told else "",
                told.cause if told else None,
                (told.duration_ms or 0) / 1000 if told else 0,
            )


def _folded(report: Report, index: words.Index) -> Iterator[_Case]:
    """Yield one case for every check and status in it, the nodes folded."""
    groups: dict[tuple[str, str], list[_Case]] = {}
    for case in _cases(report, index):
        groups.setdefault((case.check, case.status), []).append(case)
    for (check, status), cases in groups.items():
        messages = list(dict.fromkeys(case.message for case in cases if case.message))
        causes = [case.cause for case in cases if case.cause is not None]
        yield _Case(
            cases[0].family,
            check,
            words.nodes_text(report, [case.where for case in cases]),
            status,
            "; ".join(messages[:3]) + (f"; {len(messages) - 3} more" if len(messages) > 3 else ""),
            causes[0] if causes else None,
            sum(case.seconds for case in cases),
        )


def _add(suite: ET.Element, report: Report, case: _Case, cause: Cause | None) -> None:
    title = next((check.title for check in report.checks if check.id == case.check), "")
    element = ET.SubElement(
        suite,
        "testcase",
        classname=_text(case.where),
        name=_text(f"{case.check}: {title}"),
        time=f"{case.seconds:.3f}",
    )
    message = _text(case.message)
    named = f"[{cause.id}] {words.title(cause)}" if cause else ""
    outcome(element, report, case.status, named or message, message or named)


def outcome(element: ET.Element, report: Report, status: str, message: str, body: str) -> None:
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
    return "\n".join(_ILLEGAL.sub(REPLACEMENT, words.escaped(line)) for line in text.split("\n"))


def _add_causes(root: ET.Element, report: Report) -> None:
    suite = ET.SubElement(root, "testsuite", name="causes")
    properties = ET.SubElement(suite, "properties")
    counts = report.verdict.counts
    values = [("verdict", words.verdict(report)), ("exit_code", str(report.verdict.exit_code))]
    values += [(status, str(words.count(counts, status))) for status in words.STATUSES]
    for name, value in values:
        ET.SubElement(properties, "property", name=name, value=_text(value))
    for cause in report.causes:
        element = ET.SubElement(
            suite,
            "testcase",
            classname=_text(words.cause_nodes(report, cause)),
            name=_text(f"[{cause.id}] {words.cause_check(cause)}: {words.title(cause)}"),
            time="0.000",
        )
        outcome(element, report, cause.status, words.title(cause), cause_text(report, cause))


def _count(suite: ET.Element) -> None:
    """Write the totals that readers of JUnit want on a suite."""
    cases: Sequence[ET.Element] = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
