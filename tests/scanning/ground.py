"""A cluster in a dictionary behind the scanning room: its transport and its checks are those set here."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netdoctor.check import Check
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import Node
from netdoctor.model import Finding, fail
from netdoctor.report.model import Report
from netdoctor.scanning import ScanRequest, assemble, prepare
from tests.core.fake import FakeTransport, login, make, saying


def counting() -> Check:
    """gpu.count, which holds the GPUs that the hosts file lists to what the user expects."""

    def gpu_count(nodes: Mapping[str, Node], expect: Expectations | None = None) -> Iterator[Finding]:
        """Nodes have the GPUs that are expected of them."""
        values = {node: str(fact.gpus or 0) for node, fact in nodes.items()}
        for node, wish in expect.for_values("gpu.count", values).items() if expect else ():
            if not wish.is_met_by(values[node]):
                yield fail(node, f"{values[node]} GPUs, {wish.place} expects {wish.text}")

    return make(gpu_count, expects={"gpu.count": int})


class Ground:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.checks: list[Check] = [login(), saying("net.one"), saying("net.two", scope="node")]
        self.transport = FakeTransport()
        monkeypatch.chdir(folder)
        monkeypatch.setattr("netdoctor.scanning.plan.make_transport", lambda request: self.transport)
        monkeypatch.setattr("netdoctor.engine.registry.load", lambda folders=(): self.registry)

    @property
    def registry(self) -> Any:
        return SimpleNamespace(checks={c.id: c for c in self.checks}, plugins=())

    def scan(self, request: ScanRequest) -> Report:
        """The report of a scan, which is not saved."""
        plan = prepare(request)
        started = time.monotonic()
        outcome = plan.scan().run(plan.transport)
        return assemble(plan, outcome, time.monotonic() - started)
