"""Lines of text: what a filter leaves of them."""

import pytest

from netdoctor.tui.lines import Line, line, narrowed

PAGE = [
    line("head"),
    line("[1] FAIL node1 drops", key=1),
    line("     holds up 5"),
    Line(),
    line("[2] WARN node2 has another MTU", key=2),
    Line(),
    line("note five"),
]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("mtu", ["head", "[2] WARN node2 has another MTU", ""], id="without regard to case"),
        pytest.param("holds", ["head", "[1] FAIL node1 drops", "     holds up 5", ""], id="lines together"),
        pytest.param("fail drops", ["head", "[1] FAIL node1 drops", "     holds up 5", ""], id="every word"),
        pytest.param("!node", ["head", "note five"], id="without a word"),
        pytest.param("five", ["head", "note five"], id="what is no stop"),
        pytest.param("zebra", ["head", "   nothing fits; Esc clears the filter"], id="nothing"),
        pytest.param("!", [one.text for one in PAGE], id="a word that is not yet typed"),
    ],
)
def test_a_filter_keeps_whole_entries(text: str, left: list[str]) -> None:
    assert [one.text for one in narrowed(PAGE, text)] == left


def test_a_page_without_entries_stays() -> None:
    page = [line("nothing was measured")]
    assert narrowed(page, "zebra") == page
