"""Strict readers of what we write for other programs: each raises where a consumer might stumble."""

import json
import re
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from prometheus_client.openmetrics.parser import text_string_to_metric_families

# What has no place in a name that a CI follows from run to run.
MEASURED = re.compile(r"\bpid\b|\d+(?:\.\d+)? (?:s|ms|us|MiB|GiB|Gbit/s|GB/s)\b|\[\d+\]")
COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def junit(text: str) -> dict[tuple[str, str], str]:
    """(classname, name): pass, failure, error or skipped. Totals agree, and nobody has two outcomes."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    found: dict[tuple[str, str], str] = {}
    for suite in root:
        assert suite.tag == "testsuite"
        assert [child.tag for child in suite if child.tag != "testcase"] in ([], ["properties"])
        cases = suite.findall("testcase")
        for case in cases:
            key = (case.get("classname", ""), case.get("name", ""))
            assert all(key), key
            assert key not in found, f"twice: {key}"
            assert not MEASURED.search(key[1]), f"no name from run to run: {key}"
            said = [child.tag for child in case]
            assert len(said) <= 1
            assert set(said) <= {"failure", "error", "skipped", "system-out"}
            found[key] = said[0] if said and said[0] != "system-out" else "pass"
        for attribute, tag in COUNTED.items():
            total = len(cases) if tag == "testcase" else sum(case.find(tag) is not None for case in cases)
            assert suite.get(attribute) == str(total)
    return found


def prometheus(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """{metric: {sorted labels: value}}. The reader of OpenMetrics refuses duplicates and torn families."""
    assert text.endswith("\n")
    assert "# EOF" not in text
    families = list(text_string_to_metric_families(text + "# EOF\n"))
    assert max(Counter(family.name for family in families).values(), default=1) == 1
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in families:
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            assert sample.timestamp is None
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {})
            found[sample.name][labels] = sample.value
        assert len({tuple(sorted(sample.labels)) for sample in family.samples}) <= 1, "labels differ"
    return found


def jsonl(data: bytes) -> list[dict[str, Any]]:
    """The events. Each is one whole line."""
    assert data.endswith(b"\n")
    events = [json.loads(line) for line in data.split(b"\n")[:-1]]
    assert all(isinstance(event["event"], str) for event in events)
    return events


# The parts of SARIF 2.1.0 that we write: {object: {property: (type, or a part)}}; + is required. From the
# schema of the standard (errata 01), against which the output was held as well.
SARIF: dict[str, dict[str, Any]] = {
    "log": {"$schema": str, "+version": str, "+runs": ["run"]},
    "run": {
        "+tool": "tool", "automationDetails": "automation", "invocations": ["invocation"],
        "results": ["result"], "columnKind": str,
    },
    "tool": {"+driver": "driver"},
    "driver": {"+name": str, "version": str, "rules": ["rule"]},
    "rule": {"+id": str, "shortDescription": "message", "help": "message"},
    "message": {"+text": str},
    "automation": {"id": str},
    "invocation": {
        "+executionSuccessful": bool, "exitCode": int, "startTimeUtc": str, "endTimeUtc": str,
        "toolExecutionNotifications": ["notification"],
    },
    "notification": {"level": str, "+message": "message"},
    "result": {
        "ruleId": str, "ruleIndex": int, "level": str, "+message": "message", "locations": ["location"],
        "partialFingerprints": dict, "properties": dict, "suppressions": ["suppression"],
    },
    "suppression": {"+kind": str, "justification": str},
    "location": {"logicalLocations": ["logical"], "physicalLocation": "physical"},
    "logical": {"name": str, "kind": str},
    "physical": {"artifactLocation": "artifact", "region": "region"},
    "artifact": {"uri": str},
    "region": {"startLine": int, "startColumn": int},
}  # fmt: skip
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_URI = re.compile(r"(?:[A-Za-z0-9._~/:-]|%[0-9A-F]{2})+")


def sarif(data: bytes) -> dict[str, Any]:
    """The only run of a log."""
    log = json.loads(data)
    _fits(log, "log")
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert {one["kind"] for one in result.get("suppressions", [])} <= {"external", "inSource"}
        assert result["level"] in ("error", "warning", "note", "none")
        assert set(map(type, result["partialFingerprints"].values())) == {str}
        for place in result["locations"]:
            physical = place.get("physicalLocation")
            assert physical is None or _URI.fullmatch(physical["artifactLocation"]["uri"])
            assert physical is None or physical["region"]["startLine"] >= 1
    for invocation in run["invocations"]:
        times = [invocation[name] for name in ("startTimeUtc", "endTimeUtc") if name in invocation]
        assert all(map(_UTC.fullmatch, times))
    return dict(run)


def _fits(value: Any, part: Any) -> None:
    if isinstance(part, list):
        assert isinstance(value, list)
        for one in value:
            _fits(one, part[0])
    elif isinstance(part, type):
        assert type(value) is part
    else:
        fields = {name.lstrip("+"): kind for name, kind in SARIF[part].items()}
        assert isinstance(value, dict)
        assert value.keys() <= fields.keys(), part
        assert {name[1:] for name in SARIF[part] if name.startswith("+")} <= value.keys(), part
        for name, one in value.items():
            _fits(one, fields[name])


def nagios(text: str) -> tuple[str, dict[str, str]]:
    """(state, figures by label) of a plugin's output."""
    first, *rest = text.splitlines()
    match = re.fullmatch(r"NETDOCTOR (OK|WARNING|CRITICAL|UNKNOWN) - ([^|]+) \| ([^|]+)", first)
    assert match, first
    assert not any("|" in line for line in rest)
    figures = dict(part.split("=") for part in match[3].split(" "))
    for value in figures.values():
        assert re.fullmatch(r"-?[0-9.]+s?;[0-9.]*;[0-9.]*;[0-9.]*(?:;[0-9.]*)?", value), value
    return match[1], figures
