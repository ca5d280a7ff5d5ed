"""Facts as literals, and the collector as it runs on a node."""

from pathlib import Path

import pytest
from netdoctor_example import collector
from netdoctor_example.site_scratch import FULL, GB, MISSING, READ_ONLY, Scratch, site_scratch


@pytest.mark.parametrize(
    ("scratch", "keys"),
    [
        (Scratch(path="/scratch", exists=True, writable=True, free_bytes=500 * GB), []),
        (Scratch(path="/scratch", exists=False), [MISSING.key]),
        (Scratch(path="/scratch", exists=True, free_bytes=500 * GB), [READ_ONLY.key]),
        (Scratch(path="/scratch", exists=True, writable=True, free_bytes=99 * GB), [FULL.key]),
    ],
)
def test_each_trouble_has_its_cause(scratch: Scratch, keys: list[str]) -> None:
    assert [finding.cause.key for finding in site_scratch(scratch) if finding.cause] == keys


def test_the_collector_says_what_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    assert Scratch(**collector.collect({})).writable
    monkeypatch.setenv("SCRATCH", str(tmp_path / "nowhere"))
    assert not Scratch(**collector.collect({})).exists
