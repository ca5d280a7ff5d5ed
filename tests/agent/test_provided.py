"""Libraries that travel with the agent, imported while other threads import too."""

import sys

import pytest

from netdoctor.agent import provided


def test_finders_keep_their_place_for_an_import_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = list(sys.meta_path)
    monkeypatch.setattr(sys, "meta_path", under_way)
    before = list(under_way)
    monkeypatch.delitem(sys.modules, "netdoctor_test_library", raising=False)
    library = provided.load("netdoctor_test_library", {"netdoctor_test_library.py": b"answer = 42\n"})
    assert library.answer == 42
    assert under_way == before
    assert isinstance(sys.meta_path[-1], provided.MemoryImporter)
    assert sys.meta_path[:-1] == before
