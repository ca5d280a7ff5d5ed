"""What agents may ask for, and that nothing of what else they say is kept."""

from __future__ import annotations

import json
import platform

import pytest

from netdoctor.transport import bundle, provide


def answer(name: str, machine: str = platform.machine(), bits: int = 64) -> dict[str, object]:
    head, _, body = provide.provide_bytes(name, machine, bits).partition(b"\n")
    assert int(head, 16) == len(body)
    found: dict[str, object] = json.loads(body)
    return found


@pytest.mark.parametrize(
    ("name", "machine", "bits"),
    [("os", "x86_64", 64), ("psutil", "vax", 64), ("psutil", platform.machine(), 32), ("p" * 9999, "", 0)],
)
def test_refuses(name: str, machine: str, bits: int) -> None:
    refused = answer(name, machine, bits)
    assert refused["error"]
    assert "files" not in refused
    assert len(str(refused["provide"])) <= 60


def test_keeps_modules_only() -> None:
    bundle._pack.cache_clear()
    for number in range(20):
        provide.provide_bytes(f"agent tag-{number}", "x86_64", 64)
        provide.provide_bytes(f"agent tag-{number} op_{number}{'x' * 100_000}", "x86_64", 64)
        provide.provide_bytes(f"agent a b {number}", "x86_64", 64)
    assert bundle._pack.cache_info().currsize == 1
    for word in ("agent", "agent a b c", "agentx a"):
        assert b'"error"' in provide.provide_bytes(word, "x86_64", 64)


def test_keeps_libraries_only() -> None:
    provide._frame.cache_clear()
    for number in range(20):
        provide.provide_bytes(f"name{number}" + "x" * 100_000, "m" * 100_000, number)
        provide.provide_bytes("psutil", "m" * 100_000, number)
    assert provide._frame.cache_info().currsize == 0
    for bits in range(20):
        assert "files" in answer("pynvml", "m" * 1000, bits)
        assert "files" in answer(f"pynvml {bits}", "m" * 1000, bits)
    assert provide._frame.cache_info().currsize == 1
    assert answer(f"pynvml {bundle.own_tag()}")["files"] != answer("pynvml")["files"]
