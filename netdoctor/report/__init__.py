"""Reports: the object, its files, and one renderer per format."""

from pathlib import Path

# Where a scan saves its report when nothing else is said.
LAST = Path(".netdoctor/last.json")
