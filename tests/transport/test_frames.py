"""Frames are found in any noise, and nothing else is."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdoctor.transport.frames import (
    MAX_VALUES,
    NOISE_CAP_BYTES,
    FrameReader,
    ProtocolError,
    UnreadableReply,
    decode_frame,
    decode_result,
    request_frame,
)
from netdoctor.transport.ssh.messages import HEAD_BYTES, Splitter, framed

MARKER = "0123abcd"


def frame(payload: bytes) -> bytes:
    return b"\x1e" + MARKER.encode() + b" %d\n" % len(payload) + payload + b"\n"


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=60)), max_size=5),
    st.lists(st.integers(1, 30), min_size=1, max_size=40),
)
def test_finds_frames_however_they_are_cut(parts: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    parts = [(noise.replace(b"\x1e", b"."), payload) for noise, payload in parts]
    stream = b"".join(noise + frame(payload) for noise, payload in parts) + b"end"
    reader = FrameReader(MARKER)
    found = []
    while stream:
        size = cuts[len(found) % len(cuts)]
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == [payload for _, payload in parts]
    assert reader.noise.isprintable()


@given(st.binary(max_size=200))
def test_survives_anything(data: bytes) -> None:
    reader = FrameReader(MARKER)
    with contextlib.suppress(ProtocolError):
        for payload in reader.feed(data + frame(b"{}") + data):
            decode_frame(payload)
    assert reader.tail.isprintable()


@pytest.mark.parametrize("length", [b"x", b"-1", b"", b"99999999", b"1" * 20])
def test_refuses_a_bad_length(length: bytes) -> None:
    with pytest.raises(ProtocolError):
        FrameReader(MARKER).feed(b"\x1e" + MARKER.encode() + b" " + length + b"\n" + b"x" * 20)


def test_noise_is_capped() -> None:
    reader = FrameReader(MARKER)
    for _ in range(NOISE_CAP_BYTES // 1024):
        assert reader.feed(b"n" * 1024) == []
    with pytest.raises(ProtocolError, match="output around"):
        reader.feed(b"n" * 1024)
    assert reader.noise.startswith("nnn")


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"[]", b"null", b'{"id": "x"}', b'{"id": 1, "result": NaN}', b'{"hello": {"python": 3}}',
        b'{"id": 1, "detail": "\xff"}', b'{"id": 1, "detail": "\\ud800"}', b"[" * 100_000,
        b'{"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)  # fmt: skip
def test_frames_are_strict(payload: bytes) -> None:
    with pytest.raises(UnreadableReply):
        decode_frame(payload)


@pytest.mark.parametrize(
    "raw",
    [
        b"NaN", b"[1e999999]x", b"[" * 70 + b"]" * 70, b'{"a":' * 70 + b"1" + b"}" * 70, b"[" * 5000,
        b"[" * 982 + b"]" * 982, b"[" + b"[]," * MAX_VALUES + b"0,0]", b'"\\ud800"',
    ],
)  # fmt: skip
def test_results_are_strict(raw: bytes) -> None:
    with pytest.raises(UnreadableReply):
        decode_result(raw)


def test_results_keep_what_is_fine() -> None:
    assert decode_result(b"[" * 60 + b"]" * 60)
    assert decode_result(b'{"a": [1, 2.5, null, "x"]}') == {"a": [1, 2.5, None, "x"]}
    assert decode_result(b"3") == 3
    assert request_frame(1, "ping", b"{}") == b'0000001e\n{"id":1,"op":"ping","args":{}}'


@given(st.lists(st.tuples(st.text(), st.binary()), max_size=5), st.integers(1, 9))
def test_messages_survive_any_cut(messages: list[tuple[str, bytes]], size: int) -> None:
    stream = b"".join(framed(*message) for message in messages)
    splitter = Splitter()
    found = []
    for start in range(0, len(stream), size):
        found += splitter.feed(stream[start : start + size])
    assert found == [framed(*message)[HEAD_BYTES:] for message in messages]
    heads = [body.partition(b"\n") for body in found]
    assert [(json.loads(head), result) for head, _, result in heads] == messages
