"""The published JSON Schema of the report."""

import json
from pathlib import Path
from typing import Any


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) that every report of this version fits."""
    return dict(json.loads(report_schema_text()))


def report_schema_text() -> str:
    """Return the schema as the file that ships with the package."""
    return Path(__file__).with_name("schema.json").read_text(encoding="utf-8")
