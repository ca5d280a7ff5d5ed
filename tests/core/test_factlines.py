"""Facts in lines: what is written comes back; what is wrong says file, line and why."""

import gzip
import io
import json
from typing import Any

import pytest

from netdoctor import factlines, store
from netdoctor.errors import InputError
from netdoctor.factlines import Line, decode, encode, now, read
from netdoctor.facts.host import LimitFacts
from netdoctor.jsontext import depth, has_long_number, has_more
from tests import clusters
from tests.hostile import HOSTILE

LINE = Line(
    node="gpu-a01",
    version="1.2.3",
    taken="2026-11-22T08:01:12.345Z",
    facts={"limits": {"value": {"nofile_soft": 1024}}, "gpu": {"missing": {"why": "lost", "detail": "é"}}},
)


def file(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]


def test_lines_come_back_plain_and_compressed() -> None:
    said = clusters.replies(3, "faulty")
    lines = [Line(node=node, version="1", taken=now(), facts=json.loads(facts)) for node, facts in said]
    data = b"".join(map(encode, lines))
    assert data.count(b"\n") == 3
    halves = gzip.compress(data[:70_000]) + gzip.compress(data[70_000:])  # as `cat` joins them
    for form in (data, data.replace(b"\n", b"\n\n \n"), gzip.compress(data), halves):
        assert [line for _, line in read(file(form), "f")] == lines
    assert [place for place, _ in read(file(data), "f")] == ["f:1", "f:2", "f:3"]
    assert not list(read(file(b""), "f"))


def test_facts_are_encoded_as_they_are_kept() -> None:
    found = clusters.facts(1)["limits"]
    assert isinstance(found, LimitFacts)
    data = encode(Line(node="n", version="1", taken=now(), facts={"limits": {"value": found}}))
    assert store.decode("limits", decode(data, "f:1").facts["limits"]) == found


def test_lines_are_harmless_and_one_line_whatever_a_node_said() -> None:
    for text in [*HOSTILE.values(), "\ud800", "##vso[x]"]:
        odd = {"g": {"value": [text, 2**80, float("nan")]}}
        data = encode(Line(node="n", version="1", taken=now(), facts=odd))
        assert data.count(b"\n") == 1
        assert not any(byte < 32 or byte == 127 for byte in data[:-1])
        assert decode(data, "f:1").facts["g"]["value"][1:] == [2**53, None]


def _with(**changed: Any) -> bytes:
    return json.dumps(json.loads(encode(LINE)) | changed).encode()


REFUSED = {
    "no JSON": (b"gpu-a01\n", "not JSON"),
    "cut off": (encode(LINE)[:-9], "cut off"),
    "two in a line": (encode(LINE)[:-1] * 2, "not JSON"),
    "no UTF-8": (encode(LINE).replace("é".encode(), b"\xff"), "not UTF-8"),
    "a list": (b"[1]", "not a line of facts"),
    "a report": (b'{"schema":"netdoctor.report/1"}', "expected netdoctor.facts/1"),
    "a newer format": (_with(schema="netdoctor.facts/12"), "format 12, this netdoctor reads 1"),
    "no schema": (b'{"node":"n"}', "schema"),
    "no node": (_with(node=""), "node is empty"),
    "a long node": (_with(node="n" * 301), "more than 300"),
    "a node that is not text": (_with(node=1), r"Expected `str`, got `int` - at `\$.node`"),
    "no facts": (_with(facts=None), "facts"),
    "a group that is not an object": (_with(facts={"limits": [1]}), "facts"),
    "no time": (_with(taken="yesterday"), "field taken"),
    "no zone": (_with(taken="2026-11-22T08:01:12"), "field taken"),
    "a time that steers": (_with(taken="2026-11-22\x1b08:01:12Z"), "field taken"),
    "no such day": (_with(taken="2026-13-22T08:01:12Z"), "field taken"),
    "before any time": (_with(taken="0001-01-01T00:00:00+14:00"), "field taken"),
    "deep": (b"[" * 100_000, "64 deep"),
    "deep behind strings": (b'["]",' * 100 + b'"x"' + b',"["]' * 100, "64 deep"),
    "many values": (b"[" + b"[]," * 400_001, "400000 values"),
}


def test_what_is_wrong_says_file_line_and_why() -> None:
    for name, (data, why) in REFUSED.items():
        with pytest.raises(InputError, match=why) as caught:
            list(read(file(encode(LINE) + data), "facts.jsonl"))
        assert str(caught.value).startswith("facts.jsonl:2: "), name
        assert str(caught.value).isprintable(), name
    assert decode(_with(later="field"), "f:1") == LINE


def test_nothing_is_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(encode(LINE) * 3)
    for data, why in ((packed[:-20], "f:[1-4]: .*cut off"), (packed[:30] + b"\0" * 40, "damaged|cut off")):
        with pytest.raises(InputError, match=why):
            list(read(file(data), "f"))
    monkeypatch.setattr(factlines, "LINES_MAX", 3)
    with pytest.raises(InputError, match=r"f:4: .* more than 3 lines"):
        list(read(file(gzip.compress(b"\n" * 9)), "f"))
    monkeypatch.setattr(factlines, "FILE_MAX", 2 * len(encode(LINE)))
    with pytest.raises(InputError, match=r"f:3: .* when expanded"):
        list(read(file(packed), "f"))
    bomb = gzip.compress(encode(LINE) + b"\0" * (factlines.LINE_MAX + 1), 1)
    with pytest.raises(InputError, match=r"f:2: .* more than 16 MiB"):
        list(read(file(bomb), "f"))


def test_depth_is_that_outside_of_strings() -> None:
    cases = {b"": 0, b'"[["': 0, b'["]","\\"[",{}]': 2, b'["\\\\",[[': 3, b'["]",["]",["["],"["],"["]': 3}
    assert {data: depth(data, most) for data in cases for most in (1, 64)} == cases


def test_depth_is_not_hidden_by_quotes_that_meet() -> None:
    cases = {b'{"":"","[":["",["]"]]}': 3, b'["[""]",[["\\""[]": []': 4, b'["a\n""[","]",[[[""]]]]': 4}
    assert {data: depth(data, most) for data in cases for most in (1, 64)} == cases


@pytest.mark.parametrize("blank", ["", " ", "\t", "\n  ", "\r\n\t"])
@pytest.mark.parametrize("text", ["1234567890123456", "-12345678901234567"])
def test_a_number_is_long_where_it_is_a_value(text: str, blank: str) -> None:
    for around in ('{"a":%s}', '{"a":1,"b":[%s,2]}', "[[true,%s]]", '{"x:1":"\\"","b":%s}'):
        assert has_long_number((around % (blank + text)).encode())
    for around in ('{"a":"%s"}', '["a:%s","b,%s"]', "[1.%s]", '{"a\\":%s":0}', '["x\\\\","[%s"]'):
        assert not has_long_number(around.replace("%s", text.removeprefix("-")).encode())


def test_values_are_counted_by_what_parts_them() -> None:
    assert [has_more(b"[0,0,0]", most) for most in (1, 2, 7)] == [True, False, False]
