"""What the interface asks of whatever can scan. The command line brings an implementation."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from netdoctor.report.model import Report
from netdoctor.tui.events import Event


@dataclass(frozen=True, slots=True)
class Request:
    """What to run: these checks on these nodes, None for all. Prerequisites come along."""

    checks: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None


class Runner(Protocol):
    """Scans in a thread of its own and writes events to a queue, which the interface empties often."""

    events: deque[Event]
    question: str  # what to ask before the first contact, else ''
    cannot: str  # why nothing can be scanned, else ''
    formats: tuple[str, ...]  # ways to read the host list, the one in use first

    def begin(self, request: Request, report: Report | None) -> None:
        """Start a scan; with a report its results are merged into that one."""

    def will_run(self, request: Request, report: Report) -> Mapping[str, str]:
        """The checks that `begin` would run, each with what it costs the nodes: see Check.cost."""

    def stop(self) -> None:
        """End the running scan soon; what is known is judged and comes as Ended."""

    def close(self) -> None:
        """Stop, and wait until nothing is left on any node."""

    def ssh(self, node: str) -> list[str] | None:
        """The command that opens a shell on a node, None for a node that cannot be reached so."""

    def editor(self) -> tuple[str, list[str]] | None:
        """Where the last bad input stands (``hosts.txt:7``) and the command that opens it, None without."""

    def read_as(self, format: str) -> None:
        """Read the host list in this format from now on."""
