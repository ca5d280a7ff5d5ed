"""A cluster in a dictionary behind the scanning room: its transport and its checks are those set here."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netdoctor.check import Check
from netdoctor.report.model import Report
from netdoctor.scanning import ScanRequest, assemble, prepare
from tests.core.fake import FakeTransport, login, saying


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
