"""Errors in other languages, and by number alone."""

from pathlib import Path

import pytest

from netdoctor.compat import tomllib
from netdoctor.explain.engine import explain_text
from netdoctor.explain.foreign import english

LINES = tomllib.loads(Path(__file__).with_name("foreign_lines.toml").read_text("utf-8"))
LEADS = [(line, label) for label, lines in LINES["leads_to"].items() for line in lines]


@pytest.mark.parametrize(("line", "label"), LEADS)
def test_an_error_in_another_language_leads_where_the_english_one_does(line: str, label: str) -> None:
    found = explain_text({"log": line}).reasons
    assert found
    assert found[0].known.label == label
    assert found[0].lines[0].text == " ".join(line.split())


@pytest.mark.parametrize("line", LINES["harmless"]["lines"])
def test_words_of_every_day_are_no_error(line: str) -> None:
    assert explain_text({"log": line}).reasons == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("connect(): error 111", "connect(): error 111 Connection refused"),
        ("recv: errno=110", "recv: errno=110 Connection timed out"),
        ("(errno: 98 - Adresse)", "(errno: 98 - Address already in use Adresse)"),
        ("errno: 98 - Address already in use", None),
        ("[Errno 98] Address already in use", None),
        # macOS counts otherwise and says so in English.
        ("[Errno 61] Connection refused", None),
        ("[Errno 998] x", None),
        ("loss error 111", None),
        ("CUDA error 101: invalid device ordinal", None),
        ("地址\n已在使用\r设备上没有空间", "地址\n已在使用\rNo space left on device"),
    ],
)
def test_a_number_alone_gets_its_text(before: str, after: str | None) -> None:
    assert english(before.encode()).decode() == (after or before)
