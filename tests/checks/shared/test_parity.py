from typing import Any

from netdoctor.checks._shared.parity import differing, unlike_expected_by_name
from netdoctor.facts.expected import Expectation, Expectations, RecordedExpectations
from netdoctor.model import CONFIG, CONTROL, Cause, Confidence, Status, run

DIFFERS = Cause("x-version", "x differs between {nodes}", follows=("sw.torch",))


def test_silent_when_equal_or_told_to_say_so() -> None:
    values = {"n1": "1", "n2": "1"}
    assert not list(differing(values, "x", DIFFERS))
    said = list(differing(values, "x", DIFFERS, report_equal=True))
    assert [(f.target, f.status, f.summary) for f in said] == [
        ("n1", Status.PASS, "x 1"),
        ("n2", Status.PASS, "x 1"),
    ]


def test_the_odd_one_gets_the_majoritys_value() -> None:
    values = {"n1": "1", "n2": "2", "n3": "1"}
    (finding,) = differing(values, "x", DIFFERS, fixes=lambda node, wanted: run(f"{node} takes {wanted}"))
    assert (finding.target, finding.observed, finding.expected) == ("n2", "2", "1")
    assert finding.cause is not None
    assert finding.cause.title == "{nodes} {has} x 2 where most nodes have 1"
    assert [fix.text for fix in finding.cause.fixes] == ["n2 takes 1"]
    assert finding.cause.follows == ("sw.torch",)


def test_a_tie_blames_all_and_proposes_no_value() -> None:
    findings = list(differing({"n1": "{1}", "n2": "2"}, "x", DIFFERS, fixes=lambda _, wanted: run(wanted)))
    assert [f.summary for f in findings] == ["x {1} on n1; 2 on n2"] * 2
    hints = {f.cause for f in findings}
    assert len(hints) == 1
    (hint,) = hints
    assert hint is not None
    assert hint.title == "x differs between {nodes}, and with two nodes there is no majority"
    assert hint.culprits == ("n1", "n2")
    assert hint.confidence is Confidence.LIKELY
    assert not hint.fixes[0].commands


def test_a_value_that_could_not_be_read_is_unknown_and_counts_for_nobody() -> None:
    findings = list(differing({"n1": "1", "n2": None, "n3": "", "n4": "1"}, "x", DIFFERS))
    assert {f.target: f.status for f in findings} == {"n2": Status.UNKNOWN, "n3": Status.UNKNOWN}


def wish(*values: str, key: str = "x.version", **more: Any) -> Expectation:
    return Expectation(key=key, any_of=values, place="expect.toml:4", **more)


def typed(
    values: dict[str, str | None], *wishes: Expectation, **more: Any
) -> dict[str, tuple[str, str | None]]:
    """Who is named, with the status and what is expected there."""
    found = differing(values, "x", DIFFERS, key="x.version", expect=Expectations(wishes=wishes), **more)
    return {one.target: (one.status.value, one.expected) for one in found}


def test_what_was_typed_takes_the_place_of_the_majority() -> None:
    two, three = {"n1": "1", "n2": "2"}, {"n1": "1", "n2": "1", "n3": "2"}
    one = wish("1")
    cases: list[tuple[dict[str, str | None], tuple[Expectation, ...], dict[str, tuple[str, str | None]]]] = [
        (two, (one,), {"n2": ("fail", "1")}),  # no tie
        (three, (wish("2"),), {"n1": ("fail", "2"), "n2": ("fail", "2")}),  # the minority is right
        ({"n1": "2"}, (one,), {"n1": ("fail", "1")}),  # a node alone
        ({"n1": "2", "n2": "2"}, (one,), {"n1": ("fail", "1"), "n2": ("fail", "1")}),  # all of them
        ({"n1": "1", "n2": "1"}, (one,), {}),
        ({"n1": "1", "n2": None}, (one,), {"n2": ("unknown", None)}),
        (two, (wish("1", "2"),), {}),  # either will do
        ({"n1": "570.86", "n2": "570.9", "n3": "535.1"}, (wish("570.*"),), {"n3": ("fail", "570.*")}),
        (three, (wish("2", nodes=("n3", "n9")),), {}),  # the others are compared with each other
        (three, (wish("3", nodes=("n3",)),), {"n3": ("fail", "3")}),
        (three, (wish("9"), wish("1", nodes=("n1", "n2")), wish("2", nodes=("n3",))), {}),  # the last holds
        (three, (wish("9", key="y.version"),), {"n3": ("fail", "1")}),  # of another property
        (three, (wish("9", of="H100"), wish("1")), {"n3": ("fail", "1")}),
    ]
    for values, wishes, expected in cases:
        assert typed(values, *wishes) == expected, (values, wishes)
    assert typed(two, wish("9", of="H100"), wish("1"), item="H100") == dict.fromkeys(two, ("fail", "9"))
    # Who has what was typed gets a line as well, and who could not be read gets one.
    some: dict[str, str | None] = {"n1": "1", "n2": None}
    assert typed(some, one, report_equal=True) == {"n1": ("pass", None), "n2": ("unknown", None)}


def test_what_has_a_name_is_held_to_what_was_typed_of_it() -> None:
    have: dict[str, dict[str, str | None]] = {
        "n1": {"eth0": "9000", "eth1": "1500"},
        "n2": {"eth0": "1500", "own2": "1"},
        "n3": {"eth0": None},
    }
    key = "net.mtu.*"

    def judged(*wishes: Expectation, **more: Any) -> dict[str, tuple[str, str | None]]:
        findings = unlike_expected_by_name(have, "MTU", DIFFERS, key, Expectations(wishes=wishes), **more)
        return {f"{f.target} {f.summary}": (f.status.value, f.expected) for f in findings}

    assert judged() == {}, "nodes are not compared with each other"
    assert list(unlike_expected_by_name(have, "MTU", DIFFERS, key, None)) == []
    assert judged(wish("9000", key=key, of="eth0")) == {
        "n2 MTU of eth0 1500 here, expect.toml:4 expects 9000": ("fail", "9000"),
        "n3 MTU of eth0 cannot be compared: nothing could be read here": ("unknown", None),
    }
    # Who lacks the name has not what was typed, whatever that is; nor has it more.
    for typed, more in (("1500", {}), ("*", {}), ("10", {"at_least": True})):
        said = judged(wish(typed, key=key, of="eth1", nodes=("n1", "n2")), **more)
        assert said == {f"n2 MTU of eth1 (absent) here, expect.toml:4 expects {typed}": ("fail", typed)}
    # For a file to be written: what many have, and what some of them have not.
    watched = RecordedExpectations()
    list(
        unlike_expected_by_name(
            have | {f"m{i}": {"eth0": "9000"} for i in range(6)}, "MTU", DIFFERS, key, watched
        )
    )
    assert {of for _, of in watched.compared} == {"eth0"}
    # A name that no check compared is not green.
    asked = RecordedExpectations(wishes=(wish("9000", key=key, of="eth7"),))
    assert [node for node, _ in asked.not_compared([key], ["n1", "n2"])] == ["n1", "n2"]
    list(unlike_expected_by_name(have, "MTU", DIFFERS, key, asked))
    assert not list(asked.not_compared([key], have))


def test_a_finding_says_where_the_value_was_typed() -> None:
    expect = Expectations(wishes=(wish("{1}"),))
    more = {"fixes": lambda node, wanted: run(f"{node} takes {wanted}")}
    (finding,) = differing({"n1": "2"}, "x", DIFFERS, key="x.version", expect=expect, **more)
    assert finding.expected_from is CONFIG
    assert finding.summary == "x 2 here, expect.toml:4 expects {1}"
    assert [(one.where, one.what, one.output) for one in finding.evidence] == [
        (CONTROL, "expect.toml:4", "x.version = {1}")
    ]
    assert finding.cause is not None
    assert finding.cause.title == "{nodes} {has} another x than expect.toml:4 expects ({{1}})"
    assert [fix.text for fix in finding.cause.fixes] == ["n1 takes {1}"]
    # With several that would do there is nobody to say which.
    (finding,) = differing(
        {"n1": "3"}, "x", DIFFERS, key="x.version", expect=Expectations(wishes=(wish("1", "2"),)), **more
    )
    assert finding.cause is not None
    assert finding.cause.fixes == ()
