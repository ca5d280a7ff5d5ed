"""The report as lines of JSON, one event each: ``start``, ``result``, ``measure``, ``cause``, ``end``.

The objects are those of the JSON report; a consumer reads line by line and ignores events it does not know.
"""

from collections.abc import Iterator
from typing import Any

from netdoctor.report.json_ import encode, to_dict
from netdoctor.report.model import Report


def render(report: Report, *, detail: str = "problems") -> bytes:
    """Return one line per event; none holds a raw line end inside."""
    return b"".join(encode(event) + b"\n" for event in events(report, detail))


def events(report: Report, detail: str = "problems") -> Iterator[dict[str, Any]]:
    """Yield the events of a finished report in the order in which a scan tells them."""
    data = to_dict(report, detail)
    head = ("schema", "schema_minor", "tool", "run", "targets", "checks")
    yield {"event": "start", **{name: data[name] for name in head}}
    for kind, field in (
        ("result", "results"),
        ("pair", "pairs"),
        ("measure", "measures"),
        ("cause", "causes"),
        ("suppressed", "suppressed"),
    ):
        for item in data[field]:
            yield {"event": kind, **item}
    nodes = ("healthy_nodes", "unhealthy_nodes", "undecided_nodes")
    tail = ("verdict", "matrix", "alike", "launch", *nodes, "notes")
    yield {"event": "end", **{name: data[name] for name in tail}}
