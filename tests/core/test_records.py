import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import msgspec
import pytest

from netdoctor import records


def two(make: Callable[..., Any], **options: bool) -> Any:
    """A class with fields of every kind that netdoctor has."""

    @make(**options)
    class Two:
        size_bytes: int
        name: str = "eth0"
        seen: list[int] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)
        counted: int = field(default=7, init=False)

        def __post_init__(self) -> None:
            if self.size_bytes < 0:
                raise ValueError("below zero")

    return Two


KINDS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"eq": False, "slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "slots": True, "eq": False},
    {"unsafe_hash": True, "slots": True},
]


def said(act: Callable[[], object]) -> object:
    try:
        return act()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", KINDS, ids=lambda kind: " ".join(kind) or "plain")
def test_is_what_a_dataclass_is(options: dict[str, bool]) -> None:
    ours, theirs = two(records.dataclass, **options), two(dataclasses.dataclass, **options)
    assert ours.__match_args__ == theirs.__match_args__
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    for act in (
        lambda of: of(),
        lambda of: of(1, 2, 3, 4, 5),
        lambda of: of(-1),
        lambda of: of(size_bytes=-1),
        lambda of: repr(of(size_bytes=1, name="ib0")),
        lambda of: of(size_bytes=1) == of(size_bytes=1, note="other"),
        lambda of: of(size_bytes=1) == of(size_bytes=2),
        lambda of: of(size_bytes=1) != 1,
        lambda of: hash(of(size_bytes=1, seen=(1,))) is not None,
        lambda of: hash(of(size_bytes=1, seen=(1,))) == hash(of(size_bytes=1, seen=(1,))),
        lambda of: of(size_bytes=1).seen is of(size_bytes=1).seen,
        lambda of: setattr(of(size_bytes=1), "name", "x"),
        lambda of: delattr(of(size_bytes=1), "name"),
        lambda of: dataclasses.astuple(dataclasses.replace(of(size_bytes=1), name="x")),
        lambda of: dataclasses.astuple(copy.copy(of(size_bytes=1, name="x"))),
        lambda of: dataclasses.asdict(msgspec.convert({"size_bytes": 3}, of)),
        lambda of: msgspec.json.encode(of(size_bytes=3)),
    ):
        assert said(lambda act=act: act(ours)) == said(lambda act=act: act(theirs))  # type: ignore[misc]


@records.dataclass(frozen=True, slots=True)
class Base:
    one: int


@records.dataclass(frozen=True, slots=True)
class Heir(Base):
    two: int = 2


@dataclasses.dataclass(frozen=True)
class Foreign(Base):
    three: int = 3


@records.dataclass(frozen=True, slots=True, order=True)
class Place:
    line: int


@records.dataclass(slots=True)
class Odd:
    one: int

    def __repr__(self) -> str:
        return "odd"


def test_is_inherited_from_pickled_and_ordered() -> None:
    assert Heir(1) == Heir(1, 2) != Base(1)
    assert repr(Heir(1)) == "Heir(one=1, two=2)"
    assert Foreign(1).three == 3
    assert pickle.loads(pickle.dumps([Base(1), Heir(1, 5)])) == [Base(1), Heir(1, 5)]
    assert Place(1) < Place(2)
    assert (repr(Odd(1)), Odd(1) == Odd(1)) == ("odd", True)
    with pytest.raises(FrozenInstanceError):
        Heir(1).two = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Base(1).two = 3  # type: ignore[attr-defined]


def test_nothing_is_compiled_that_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(
        dataclasses, "exec", lambda text, *rest: (compiled.append(text), exec(text, *rest)), raising=False
    )
    late = two(records.dataclass, frozen=True, slots=True, kw_only=True)
    assert late.__doc__
    assert compiled == []
    assert late(size_bytes=1).size_bytes == 1
    made = len(compiled)
    assert made > 0
    assert late(size_bytes=2).size_bytes == 2
    assert len(compiled) == made


def test_a_scan_imports_few_compiled_dataclasses() -> None:
    """Of a start's 350 ms, 140 went to compiling the methods of 233 classes: 1,315 texts."""
    count = (
        "import dataclasses\n"
        "texts = []\n"
        "dataclasses.exec = lambda text, *rest: (texts.append(text), exec(text, *rest))\n"
        "import netdoctor.scanning, netdoctor.cli.scan\n"
        "print(len(texts))"
    )
    ran = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 200
