"""Logs that real torch wrote on a lab are explained right, rank by rank and together; healthy ones not.

`scripts/record_logs.py` records them and says in expected.toml what each log can show.
"""

from pathlib import Path

import pytest

from netdoctor.compat import tomllib
from netdoctor.explain.engine import explain_text
from netdoctor.explain.model import Confidence

HERE = Path(__file__).parent
# Seconds in all: the rest of the folder is quick.
pytestmark = pytest.mark.thorough
FAULTS, HEALTHY = HERE / "logs", HERE / "healthy"


def recordings(folder: Path) -> list[Path]:
    return sorted(one.parent for one in folder.glob("*/expected.toml"))


def views(folder: Path) -> dict[str, dict[str, str]]:
    """Each rank's log alone, and all of them."""
    logs = {log.stem: {log.name: log.read_text("utf-8")} for log in sorted(folder.glob("rank*.log"))}
    return logs | {"all": {name: text for one in logs.values() for name, text in one.items()}}


def test_there_are_as_many_recordings_as_promised() -> None:
    assert len(recordings(FAULTS)) >= 25
    assert len(recordings(HEALTHY)) >= 20


@pytest.mark.parametrize("folder", recordings(FAULTS), ids=lambda folder: folder.name)
def test_a_fault_is_explained_from_every_side(folder: Path) -> None:
    expected = tomllib.loads(Path(folder, "expected.toml").read_text("utf-8"))
    label, wrong = expected["label"], []
    for view, logs in views(folder).items():
        said = [(reason.known.label, reason.confidence) for reason in explain_text(logs).reasons]
        labels = [name for name, _ in said]
        if view in expected.get("listed", {}):
            right = label in labels
        elif view in expected.get("elsewhere", {}):
            right = True
        else:
            right = labels[:1] == [label]
        sure = [name for name, confidence in said if confidence is Confidence.CERTAIN and name != label]
        if sure or not right:
            wrong.append(f"{view}: {[f'{name} ({confidence})' for name, confidence in said]}")
    assert not wrong


@pytest.mark.parametrize("folder", recordings(HEALTHY), ids=lambda folder: folder.name)
def test_a_healthy_run_has_no_cause(folder: Path) -> None:
    wrong = {view: found for view, logs in views(folder).items() if (found := explain_text(logs).reasons)}
    assert not wrong
