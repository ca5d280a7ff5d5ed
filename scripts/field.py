#!/usr/bin/env python3
"""Write docs/field.md: what of published failures a scan or a log would name, class by class.

    python scripts/field.py [--check]

The tables are tests/explain/field.toml; tests/explain/test_field.py holds every row to its proof.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from netdoctor.compat import tomllib

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "explain" / "field.toml"
PAGE = ROOT / "docs" / "field.md"
HEAD = """\
# What of the field's failures netdoctor would name

Made by `python scripts/field.py` from `tests/explain/field.toml`. Nothing here was met on the machines of
these tables: a row says that the check, or `explain log`, knows what such a failure leaves or prints. A
test gives each line to `explain log` and looks up each check.

- **scan**: a scan of the node after the failure, as at the next launch, finds what it left. Some of it
  stands before the first launch, too; no table says how much.
- **log**: the line that such a failure prints leads to its cause first.
- Half: in some cases; counted as half.

What such tables leave out: they are of platforms whose set-up was corrected long ago. Firewalls, names,
interfaces, wrong addresses and versions that differ hardly occur in them, and are what clusters of 2 to 64
nodes fail of when they are new. They count incidents and not lost GPU hours, and the classes are those of
whoever filed the incident.
"""


def tables() -> list[dict[str, Any]]:
    """The tables as they stand in the file."""
    found: list[dict[str, Any]] = tomllib.loads(DATA.read_text("utf-8"))["table"]
    return found


def share(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """How much of a table is named by key, "scan" or "log": halves count as such. 0 to 1."""
    named = sum(row["count"] * _worth(row, key) for row in rows)
    return float(named / sum(row["count"] for row in rows))


def _worth(row: Mapping[str, Any], key: str) -> float:
    if key not in row:
        return 0
    return 0.5 if row.get("half") or row.get(f"half_{key}") else 1.0


def page() -> str:
    """The page."""
    return "\n".join([HEAD, *(line for table in tables() for line in _table(table))])


def _table(table: Mapping[str, Any]) -> Iterator[str]:
    rows, unit = table["rows"], table["unit"]
    yield f"## {table['name']}"
    yield ""
    yield f"Source: {table['source']}. {table['left']}"
    yield ""
    yield f"| class | {unit} | scan | log | remark |"
    yield "|---|--:|---|---|---|"
    for row in rows:
        cells = [row["class"], f"{row['count']:g}", *_cells(row), row.get("note", "")]
        yield f"| {' | '.join(cells)} |"
    total = sum(row["count"] for row in rows)
    scan, log = (f"**{share(rows, key):.0%}**" for key in ("scan", "log"))
    yield f"| **all** | {total:g} | {scan} | {log} | |"
    yield ""


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    for key, name in (("scan", row.get("scan", "")), ("log", row.get("label", ""))):
        half = "half: " if _worth(row, key) == 0.5 else ""
        yield f"{half}`{name}`" if key in row else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where the page is not of today"
    )
    args = parser.parse_args()
    if not args.check:
        PAGE.write_text(page(), "utf-8")
    elif PAGE.read_text("utf-8") != page():
        sys.exit("docs/field.md is not what scripts/field.py writes")


if __name__ == "__main__":
    main()
