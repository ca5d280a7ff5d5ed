from netdoctor.checks._parity import differing
from netdoctor.model import Cause, Confidence, Status, run

DIFFERS = Cause("x-version", "x differs between {nodes}", follows=("sw.torch",))


def test_silent_when_equal_or_told_to_say_so() -> None:
    values = {"n1": "1", "n2": "1"}
    assert not list(differing(values, "x", DIFFERS))
    said = list(differing(values, "x", DIFFERS, tell=True))
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
    assert hint.title == "x differs between {nodes}, and no version has a majority"
    assert hint.culprits == ("n1", "n2")
    assert hint.confidence is Confidence.LIKELY
    assert not hint.fixes[0].commands


def test_a_value_that_could_not_be_read_is_unknown_and_counts_for_nobody() -> None:
    findings = list(differing({"n1": "1", "n2": None, "n3": "", "n4": "1"}, "x", DIFFERS))
    assert {f.target: f.status for f in findings} == {"n2": Status.UNKNOWN, "n3": Status.UNKNOWN}
