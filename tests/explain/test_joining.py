"""What a scan makes of causes that logs admit."""

import pytest

from netdoctor.explain.joining import Measured, Proof, join
from netdoctor.explain.knowledge import Knowledge, Known
from netdoctor.explain.model import Confidence, Explanation, Ranks, Reason

CERTAIN, LIKELY, POSSIBLE = Confidence
KNOWN = {
    label: Known(label=label, title=label, why="w", checks=checks, causes=causes)
    for label, checks, causes in (
        ("firewall", ("net.ports", "rdzv.reach"), ("firewall-*",)),
        ("address", ("rdzv.addr",), ("master-foreign",)),
        ("shm", ("host.shm",), ("shm-small",)),
        ("program", (), ()),
    )
}
FOUND = Proof(key="firewall-drop", title="n2 drops connections", check="net.ports")
WELL = frozenset({"net.ports", "rdzv.reach", "rdzv.addr", "host.shm"})


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
    assert after.reasons[1].proof == ("could not tell: rdzv.addr: no answer",)
