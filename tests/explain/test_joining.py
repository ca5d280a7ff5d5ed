"""What a scan makes of causes that logs admit."""

from dataclasses import replace

import pytest

from netdoctor.cli.explain_scan import measured_of as read
from netdoctor.explain.joining import Measured, Proof, join
from netdoctor.explain.knowledge import Knowledge, Known, Role
from netdoctor.explain.model import Confidence, Explanation, Quote, Ranks, Reason
from netdoctor.report.model import Gap, Part
from tests.report.build import sample_report

CERTAIN, LIKELY, POSSIBLE = Confidence
KNOWN = {
    label: Known(label=label, title=label, why="w", checks=checks, causes=causes)
    for label, checks, causes in (
        ("firewall", ("net.ports", "rdzv.reach"), ("firewall-*",)),
        ("address", ("rdzv.addr",), ("master-foreign",)),
        ("shm", ("host.shm",), ("shm-small",)),
        ("program", (), ()),
    )
} | {
    "memory": Known(label="memory", title="m", why="w", checks=("host.memory",), standing=False),
}
FOUND = Proof(
    key="firewall-drop", title="n2 drops connections", check="net.ports", fixes=("open it\nufw disable",)
)
WELL = frozenset({"net.ports", "rdzv.reach", "rdzv.addr", "host.shm", "host.memory"})


def said(**confidence: Confidence) -> Explanation:
    reasons = tuple(
        Reason(known=KNOWN[label], confidence=how, weight=0.5, lines=()) for label, how in confidence.items()
    )
    return Explanation(reasons=reasons, ranks=Ranks())


def joined(before: Explanation, measured: Measured) -> tuple[list[tuple[str, Confidence]], list[str]]:
    after = join(before, measured, Knowledge(KNOWN, ()))
    return [(one.known.label, one.confidence) for one in after.reasons], list(after.refuted)


LISTED = {"address": LIKELY, "firewall": POSSIBLE, "program": POSSIBLE}


@pytest.mark.parametrize(
    ("before", "measured", "after", "refuted"),
    [
        pytest.param(
            LISTED,
            Measured(proofs=[FOUND]),
            [("firewall", CERTAIN), ("address", LIKELY), ("program", POSSIBLE)],
            [],
            id="what is proved moves up",
        ),
        pytest.param(
            LISTED,
            Measured(proofs=[FOUND], passed=frozenset({"rdzv.addr"})),
            [("firewall", CERTAIN), ("program", POSSIBLE)],
            ["address"],
            id="what is refuted goes out",
        ),
        pytest.param(
            LISTED,
            Measured(
                passed=frozenset({"net.ports"}), open={"rdzv.reach": "no route", "rdzv.addr": "no answer"}
            ),
            [("address", LIKELY), ("firewall", POSSIBLE), ("program", POSSIBLE)],
            [],
            id="what was measured in part stays",
        ),
        pytest.param(
            {"shm": CERTAIN}, Measured(passed=WELL), [("shm", CERTAIN)], [], id="a line outweighs now"
        ),
        pytest.param(
            {"shm": CERTAIN},
            Measured(proofs=[FOUND]),
            [("shm", CERTAIN), ("firewall", POSSIBLE)],
            [],
            id="unasked",
        ),
        pytest.param(
            {"shm": CERTAIN, "firewall": POSSIBLE},
            Measured(proofs=[FOUND]),
            [("firewall", CERTAIN), ("shm", LIKELY)],
            [],
            id="one is certain",
        ),
        pytest.param(
            {"firewall": POSSIBLE},
            Measured(proofs=[Proof(key="firewall-drop", title="t", check="c", sure=False)]),
            [("firewall", POSSIBLE)],
            [],
            id="a suspicion proves nothing",
        ),
        pytest.param(
            {"memory": POSSIBLE}, Measured(passed=WELL), [("memory", POSSIBLE)], [], id="what passes by stays"
        ),
        pytest.param({}, Measured(passed=WELL), [], [], id="nothing known"),
    ],
)
def test_joins_logs_with_a_scan(
    before: dict[str, Confidence],
    measured: Measured,
    after: list[tuple[str, Confidence]],
    refuted: list[str],
) -> None:
    assert joined(said(**before), measured) == (after, refuted)


def test_quotes_what_the_scan_found_and_what_it_could_not_tell() -> None:
    after = join(
        said(firewall=POSSIBLE, address=POSSIBLE),
        Measured(proofs=[FOUND], open={"rdzv.addr": "no answer"}),
        Knowledge(KNOWN, ()),
    )
    assert after.reasons[0].proof == ("net.ports: n2 drops connections",)
    assert after.reasons[0].fixes == FOUND.fixes
    assert after.reasons[1].proof == ("could not tell: rdzv.addr: no answer",)


@pytest.mark.parametrize(("role", "stays"), [(Role.CAUSE, True), (Role.SYMPTOM, False)])
def test_what_a_line_says_happened_is_not_refuted_by_a_look_at_today(role: Role, stays: bool) -> None:
    line = Quote(file="dmesg", line=1, rank=None, text="Xid: 79, GPU has fallen off the bus.", role=role)
    reason = Reason(known=KNOWN["shm"], confidence=LIKELY, weight=0.5, lines=(line,))
    after = join(Explanation(reasons=(reason,), ranks=Ranks()), Measured(passed=WELL), Knowledge(KNOWN, ()))
    assert [one.proof for one in after.reasons] == (
        [("not now: host.shm looked at every node and found all well",)] if stays else []
    )
    assert bool(after.refuted) is not stays


def test_a_check_that_did_not_see_everything_refutes_nothing() -> None:
    """Nodes that nobody asked for, and what a pass does not speak of."""
    report = sample_report("ready")
    every = read(report).passed
    assert {"net.ports", "time.sync"} <= every

    def passed(**changes: object) -> frozenset[str]:
        return read(replace(report, verdict=replace(report.verdict, **changes))).passed

    assert passed(part=Part(checks=2, of_checks=40, nodes=4, of_nodes=4)) == every
    assert passed(part=Part(checks=40, of_checks=40, nodes=1, of_nodes=4)) == frozenset()
    gap = Gap(family="net", what="the ports", reason="in use", nodes=("n1",), checks=("net.ports",))
    assert passed(gaps=(gap,)) == every - {"net.ports"}


def test_what_a_scan_proves_is_no_guess() -> None:
    guess = replace(said(firewall=POSSIBLE), is_guess=True)
    assert not join(guess, Measured(proofs=[FOUND]), Knowledge(KNOWN, ())).is_guess
    assert join(guess, Measured(passed=WELL), Knowledge(KNOWN, ())).is_guess
