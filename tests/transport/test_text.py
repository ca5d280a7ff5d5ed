"""What other machines print cannot steer a terminal, a parser or a layout."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdoctor.text import clean


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param("plain text", "plain text", id="plain"),
        pytest.param("ümlaut 模型", "ümlaut 模型", id="other scripts"),
        pytest.param("a\r\nb\tc", "a b c", id="line ends and tabs"),
        pytest.param("\x1b[31mred\x1b[0m", "�red�", id="colour"),
        pytest.param("\x1b]0;title\x07x", "�x", id="window title"),
        pytest.param("\x1b]52;c;ZXZpbA==\x1b\\x", "�x", id="clipboard"),
        pytest.param("\x9b31mred", "�red", id="C1 introducer"),
        pytest.param("\x1b[31", "�", id="cut sequence"),
        pytest.param("a\x00\x01\x02b", "a�b", id="controls, one mark per run"),
        pytest.param("abc\u202etxt.exe", "abc�txt.exe", id="bidirectional"),
        pytest.param("a\ud800b", "a�b", id="lone surrogate"),
        pytest.param("a\u200bb", "a�b", id="zero width"),
        pytest.param("a\u2028b", "a b", id="line separator"),
        pytest.param(b"caf\xc3\xa9 \xff", "café �", id="bytes"),
        pytest.param("x" * 600, "x" * 499 + "…", id="long"),
    ],
)
def test_makes_one_harmless_line(raw: str | bytes, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text(), st.integers(0, 40))
def test_is_printable_bounded_and_stable(raw: str, limit: int) -> None:
    once = clean(raw, limit)
    assert once.isprintable()
    assert len(once) <= limit
    assert clean(once, limit) == once
