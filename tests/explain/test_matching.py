"""What is looked for before expressions are tried, and that nothing is missed by it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.explain.knowledge import load
from netdoctor.explain.literals import DROP, FOLD, alternatives, fold, longest, required
from netdoctor.explain.matching import Matcher

REQUIRED = {
    r"errno: (\d+) - Address already in use": [{"errno Address already in use"}],
    r"(?:bind|listen) failed on port": [{"bind failed on port", "listen failed on port"}],
    r"(?:binding|listening) x?": [{"binding", "listening"}],
    r"[Ee]rror \w+ Something": [{"Something"}, {"Error"}],
    r"\d+(?: more)? timeouts": [{"timeouts"}],
    r"colou?r mismatch": [{"colour mismatch", "color mismatch"}],
    r"(?i)Connection REFUSED": [{"connection refused"}],
    r"[rst]port|lost": [{"rport", "sport", "tport", "lost"}],
    r"[g-m]port": [{"port"}],
    r"(?:no )+port": [{"port"}],
    r"(?:link|port){2}": [{"link", "port"}],
    r"abc": [],
    r"a(?=longer)x": [],
}


def test_what_a_match_cannot_be_without() -> None:
    folded = {regex: [set(map(fold, one)) for one in sets] for regex, sets in REQUIRED.items()}
    assert {regex: [set(one) for one in required(regex)] for regex in REQUIRED} == folded


def test_an_expression_is_tried_part_by_part() -> None:
    parts = alternatives(r"(?i)port (?:a|b)|x\|[|(\]]y|(?:in|out) of []|)]")
    assert parts == ["(?i)port (?:a|b)", r"(?i)x\|[|(\]]y", "(?i)(?:in|out) of []|)]"]
    for pattern in load().patterns:
        assert "|".join(one.regex.removeprefix("(?i)") for one in pattern.alternatives) in pattern.regex


LONGEST = {
    r"(?<!x)Signal (?:9|15) received": " received",
    r"(?:out) of memory\b": "out of memory",  # a group that is always there goes on
    r"port(?: taken)?, and gone": ", and gone",
    r"(?:lost|gone) x+ y": "",  # too short
    r"(?i)connection refused": "",
    r"(?i:connection) refused": " refused",
    r"host(?=name) up": "host up",
    r"link{2} down": " down",
}


def test_a_text_that_every_match_holds() -> None:
    assert {regex: longest(regex) for regex in LONGEST} == LONGEST
    for pattern in load().patterns:
        for one in pattern.alternatives:
            if match := re.compile(one.regex, re.ASCII).search(pattern.line):
                assert longest(one.regex) in match[0]


@pytest.mark.thorough
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_nothing_that_an_expression_finds_is_missed(data: st.DataObject) -> None:
    """A line made of a pattern's expression is found by it, whatever stands before and behind."""
    pattern = data.draw(st.sampled_from([one for one in load().patterns if not one.subject]))
    made = data.draw(st.from_regex(re.compile(pattern.regex, re.ASCII)))
    around = data.draw(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x1b"), max_size=8))
    line = re.sub(r"[\n\r\x1b]", " ", f"{around} {made} {around}")
    if pattern.search(line) is None:  # it needed what was taken out
        return
    found = [one for f in Matcher(load().patterns).block(line.encode(), 1) for one, _ in f.patterns]
    assert pattern in found


def test_folding_leaves_no_number_of_any_base() -> None:
    assert b"comm 0x7f3aBCDE rank 12".translate(FOLD, DROP) == b"ommxrnk"
    assert fold("Ünï 12 \u00e9") == "n"
