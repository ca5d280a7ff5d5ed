"""Makes netdoctor/report/schema.json from the dataclasses; `pytest --update-golden` writes it anew.

What the types cannot say (enums, patterns, which fields consumers may rely on) is added here.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec

import netdoctor.report
from netdoctor.report import model
from netdoctor.report.kept import FORMAT
from netdoctor.report.model import SCHEMA, Report

PATH = Path(netdoctor.report.__file__).with_name("schema.json")

JSON_NAMES = {"pass_": "pass", "from_": "from", "class_": "class"}
# Fields with a default that consumers may rely on all the same (the design's list). Others may be missing,
# so that a report written before they existed still fits.
RELIED_ON = {
    "Report": {
        "schema", "schema_minor", "tool", "targets", "checks", "matrix", "results", "pairs", "measures",
        "causes", "launch", "healthy_nodes", "unhealthy_nodes", "undecided_nodes",
    },
    "Tool": {"name", "version"},
    "Counts": {"pass_", "warn", "fail", "blocked", "skip", "unknown"},
    "Result": {"cause", "observed", "expected", "expected_from", "evidence", "duration_ms"},
    "MeasureRecord": {"error"},
    "Cause": {"explains", "fixes", "verify"},
}  # fmt: skip
STATUSES = ["pass", "warn", "fail", "blocked", "skip", "unknown"]
EXTRA: dict[str, dict[str, dict[str, Any]]] = {
    "Report": {"schema": {"const": SCHEMA, "default": None}},
    "Verdict": {
        "state": {"enum": ["ready", "not_ready", "undecided", "partial_pass"]},
        "exit_code": {"minimum": 0, "maximum": 255},
        "fail_on": {"enum": ["fail", "warn", "never"]},
    },
    "Counts": {status: {"minimum": 0} for status in STATUSES},
    "Matrix": {"cells": {"items": {"type": "string", "pattern": "^[.!Xb?-]*$"}}},
    "Result": {
        "status": {"enum": STATUSES},
        "expected_from": {
            "enum": ["peers", "derived", "baseline", "config", "constant", None],
            "anyOf": None,
        },
    },
    "PairRecord": {"status": {"enum": STATUSES}},
    "PathRecord": {"status": {"enum": STATUSES}},
    "Cause": {
        "status": {"enum": ["fail", "warn", "unknown"]},
        "confidence": {"enum": ["certain", "likely", "suspected"]},
        "baseline": {"enum": ["new", "known", None], "anyOf": None},
    },
    "TargetRecord": {"port": {"minimum": 0, "maximum": 65535}},
    "FamilyRow": {"status": {"enum": STATUSES}},
    "Note": {"level": {"enum": ["info", "warn"]}},
    "FixRecord": {
        "risk": {"enum": ["low", "medium", "high"]},
        "kind": {"enum": ["look", "do", "job", "hosts", "console", "owner"]},
    },
    "CommandRecord": {"via": {"enum": ["ssh", "console", "control", "job"]}},
}


# Written and not read back: it is the matrix once more, by node.
ALIKE = {
    "description": "Nodes on which every check has the same status, and these by check. With one line of jq: "
    '.alike[] | select(.nodes | index("gpu01")) | .checks',
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "nodes": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "checks": {"type": "object", "additionalProperties": {"enum": STATUSES}},
        },
        "required": ["nodes", "checks"],
    },
}


PACKED = {
    "description": "In a saved report of many nodes: facts and pairs, each base64 of gzip of lines of JSON. "
    "facts: a node a line, as netdoctor.facts/1. cluster: what was measured between nodes, by group; "
    "after the first line further rows of its lists. pairs: all of them by check; `pairs` then lists those "
    "alone that are not green.",
    "type": "object",
    "properties": {
        "format": {"const": FORMAT},
        "facts": {"type": "string"},
        "cluster": {"type": "object", "additionalProperties": {"type": "string"}},
        "pairs": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["format", "facts", "cluster", "pairs"],
}


def make() -> dict[str, Any]:
    (top,), parts = msgspec.json.schema_components([Report], ref_template="#/$defs/{name}")
    parts = {name: _part(name, part) for name, part in parts.items()}
    parts["Report"]["properties"]["alike"] = ALIKE
    parts["Report"]["properties"]["packed"] = PACKED
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "Additions keep the major version: ignore fields that you do not know.",
        **top,
        "$defs": dict(sorted(parts.items())),
    }


def _part(name: str, part: dict[str, Any]) -> dict[str, Any]:
    fields = dataclasses.fields(getattr(model, name))
    properties, required = {}, []
    for field in fields:
        json_name = JSON_NAMES.get(field.name, field.name)
        schema = {key: value for key, value in part["properties"][field.name].items() if key != "default"}
        extra = EXTRA.get(name, {}).get(json_name, {})
        schema |= {key: value for key, value in extra.items() if value is not None}
        for key, value in extra.items():
            if value is None:
                schema.pop(key, None)
        properties[json_name] = schema
        default = (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
        if not default or field.name in RELIED_ON.get(name, set()):
            required.append(json_name)
    described = {"description": " ".join(part["description"].split())} if "description" in part else {}
    return {
        "type": "object",
        **described,
        "properties": properties,
        "required": required,
    }


def text() -> str:
    return json.dumps(make(), indent=2) + "\n"
