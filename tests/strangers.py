"""Another user, in tests that run as any one: what belongs to whom is asked of the system, which is made to
answer so."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

UID = 4321


@contextlib.contextmanager
def strangers(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> Iterator[None]:
    """Make files, or links, belong to somebody else, however they are asked about."""
    theirs = {(info.st_dev, info.st_ino) for info in map(os.lstat, paths)}

    def answer(asked: Any) -> Any:
        def ask(*args: Any, **options: Any) -> os.stat_result:
            info: os.stat_result = asked(*args, **options)
            if (info.st_dev, info.st_ino) not in theirs:
                return info
            named = {name: getattr(info, name) for name in dir(info) if name.startswith("st_")}
            return os.stat_result((*info[:4], UID, *info[5:]), named)

        return ask

    with monkeypatch.context() as patch:
        for name in ("stat", "lstat", "fstat"):
            patch.setattr(os, name, answer(getattr(os, name)))
        yield
