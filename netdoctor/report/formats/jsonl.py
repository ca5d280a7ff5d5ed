"""The report as lines of JSON, one event each: ``start``, ``result``, ``measure``, ``cause``, ``end``.

The objects are those of the JSON report; a consumer reads line by line and ignores events it does not know. A
scan writes them while it runs (`scanning/live.py`): ``start`` is then what was known before, ``end`` is all.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from netdoctor.jsontext import encode
from netdoctor.report.formats.json_ import to_dict
from netdoctor.report.model import Report


def render(report: Report, *, detail: str = "problems") -> bytes:
    """Return one line per event; none holds a raw line end inside."""
    return start(report) + finish(report, detail)


def start(report: Report) -> bytes:
    """Return the line about the run, its nodes and its checks."""
    data = to_dict(replace(report, facts={}, results=(), pairs=()))
    head = ("schema", "schema_minor", "tool", "run", "targets", "checks")
    return _line({"event": "start", **{name: data[name] for name in head}})


def finish(report: Report, detail: str = "problems", *, targets: bool = False) -> bytes:
    """Return the lines about what was found. targets: with the nodes, of which `start` knew less."""
    return b"".join(map(_line, _found(report, detail, targets)))


def _found(report: Report, detail: str, targets: bool) -> Iterator[dict[str, Any]]:
    data = to_dict(replace(report, facts={}), detail)
    for kind, field in (
        ("result", "results"),
        ("pair", "pairs"),
        ("measure", "measures"),
        ("cause", "causes"),
        ("suppressed", "suppressed"),
    ):
        for item in data[field]:
            yield {"event": kind, **item}
    known = ("run", "targets") if targets else ("run",)
    nodes = ("healthy_nodes", "unhealthy_nodes", "undecided_nodes")
    tail = (*known, "verdict", "matrix", "alike", "launch", *nodes, "notes")
    yield {"event": "end", **{name: data[name] for name in tail}}


def _line(event: dict[str, Any]) -> bytes:
    return encode(event) + b"\n"
