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
