"""Rounds of a soak: what comes up is dated and named, what was there before is no news, memory is bounded."""

import json
import random
from dataclasses import replace

import pytest

from netdoctor.report.model import Cause, CheckRecord, Counts, Matrix, MeasureRecord, Report, Run, Verdict
from netdoctor.trial import soak as soaking
from netdoctor.trial.soak import Soak, State, lines, to_json
from tests.hostile import HOSTILE

NODES = ("n0", "n1", "n2")
CHECKS = ("bw.tcp", "gpu.ecc")


def cause(key: str, *nodes: str, status: str = "warn", check: str = "gpu.ecc", title: str = "") -> Cause:
    return Cause(
        id=1,
        key=key,
        fingerprint=f"sha256:{key}",
        status=status,
        title=title or f"{key} on {{nodes}}",
        checks=(check,),
        nodes=",".join(nodes),
        node_list=nodes,
        confidence="certain",
        seen=(f"{key} was seen",),
    )


def report(*causes: Cause, cells: str = "...", rate: float = 10.0) -> Report:
    run = Run(id="1", started="", finished="", duration_ms=1, complete=True, ended_by="end", profile="full")
    return Report(
        run=run,
        verdict=Verdict(state="ready", headline="", exit_code=0, fail_on="fail", counts=Counts()),
        checks=tuple(CheckRecord(id=c, title=c, family=c[:2], scope="node", cost="passive") for c in CHECKS),
        matrix=Matrix(checks=CHECKS, nodes=NODES, cells=(cells, "...")),
        measures=tuple(
            MeasureRecord(name="bw.tcp.median", target=n, value=rate, unit="Gbit/s") for n in NODES
        ),
        causes=causes,
    )


def begun() -> Soak:
    soak = Soak()
    soak.begin(NODES)
    return soak


def soaked(*rounds: Report) -> Soak:
    soak = begun()
    for number, one in enumerate(rounds):
        soak.add(one, 60.0 * number, 60.0 * number + 50)
    return soak


def shown(soak: Soak) -> str:
    return "\n".join(lines(soak, soak.state(), 0.0, 80))


def test_rounds_in_which_nothing_comes_up_are_steady() -> None:
    soak = soaked(report(), report(rate=9.0), report(rate=11.0))
    assert soak.state() is State.STEADY
    text = shown(soak)
    assert text.startswith("STEADY    nothing came up in 3 rounds in 2.8 min")
    assert "bw.tcp.median         10        11         9        11  Gbit/s" in text


def test_a_warning_from_the_start_on_is_no_news_and_is_told() -> None:
    soak = soaked(report(cause("old", "n1")), report(cause("old", "n1")))
    assert soak.state() is State.STEADY
    assert "1 warning from the start on" in shown(soak)


def test_what_comes_up_is_dated_and_named() -> None:
    soak = soaked(report(), report(), report(cause("hot", "n2")), report(cause("hot", "n1", "n2")))
    assert soak.state() is State.PROBLEMS
    text = shown(soak)
    assert "hot on n[1-2]" in text
    assert "round 3 of 4" in text
    assert "2 min after the start; in 2 of them; on n1" in " ".join(text.split())
    (found,) = to_json(soak, soak.state(), 0.0)["anomalies"]
    assert found["nodes"] == {"n2": 120.0, "n1": 180.0}


def test_a_failure_counts_from_the_first_round_on() -> None:
    assert soaked(report(cause("dead", "n0", status="fail"))).state() is State.PROBLEMS


def test_a_rate_that_is_low_once_is_measured_again() -> None:
    low = cause("slow", "n0", check="bw.tcp")
    soak = soaked(report(), report(low))
    assert soak.needs_another
    soak.add(report(), 120, 170)
    assert (soak.needs_another, soak.state()) == (False, State.STEADY)
    assert "and not since" in " ".join(shown(soak).split())
    soak = soaked(report(), report(low), report(low))
    assert (soak.needs_another, soak.state()) == (False, State.PROBLEMS)


def test_a_counter_that_grew_once_stays_trouble() -> None:
    soak = soaked(report(), report(cause("ecc", "n0")), report())
    assert (soak.needs_another, soak.state()) == (False, State.PROBLEMS)


@pytest.mark.parametrize(
    ("rounds", "text"),
    [
        ((), "no round was finished"),
        ((report(cells="..-"),), "nothing loaded n2"),
        ((report(cause("x", "n1", status="unknown")),), "some of it could not be measured"),
    ],
)
def test_what_was_not_measured_is_not_steady(rounds: tuple[Report, ...], text: str) -> None:
    soak = soaked(*rounds)
    assert soak.state() is State.UNDECIDED
    assert text in shown(soak)


def test_an_interrupt_hides_no_trouble() -> None:
    assert soaked(report()).state(interrupted=True) is State.INTERRUPTED
    assert soaked(report(cause("x", "n0", status="fail"))).state(interrupted=True) is State.PROBLEMS


@pytest.mark.parametrize("seed", range(50))
def test_any_order_of_troubles_is_dated_by_its_first_round(seed: int) -> None:
    chance = random.Random(seed)
    begins = {(k, n): chance.randrange(12) for k in ("a", "b", "c") for n in NODES if chance.random() < 0.4}
    soak = begun()
    for number in range(12):
        now = {k: [n for n in NODES if begins.get((k, n), 99) <= number] for k in ("a", "b", "c")}
        causes = [cause(k, *nodes) for k, nodes in now.items() if nodes]
        soak.add(report(*causes), 60.0 * number, 60.0 * number + 50)
    found = {(a.key, n): at for a in soak.anomalies.values() for n, at in a.at.items()}
    assert found == {identity: 60.0 * number for identity, number in begins.items()}
    assert (soak.state() is State.PROBLEMS) == any(
        min(n for (k, _), n in begins.items() if k == key) > 0 for key, _ in begins
    )


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soaking, "CAUSES_MAX", 10)
    monkeypatch.setattr(soaking, "FIGURES_MAX", 5)
    soak = begun()
    for number in range(100):
        one = report(cause(f"k{number}", "n0"))
        many = tuple(replace(one.measures[0], name=f"bw.x{number}.{i}") for i in range(10))
        soak.add(replace(one, measures=many), number, number + 1)
    assert (len(soak.anomalies), len(soak.figures), soak.dropped) == (10, 5, 90)
    assert "90 further causes were not kept" in shown(soak)


def test_hostile_text_is_inert() -> None:
    for text in HOSTILE.values():
        bad = replace(cause("x", "n0", title=text), seen=(text,))
        soak = soaked(report(), report(bad))
        printed = shown(soak)
        assert not [c for c in printed if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160], repr(text)
        json.dumps(to_json(soak, State.PROBLEMS, 0.0))


def test_a_path_that_is_slow_now_and_then_goes_with_its_node() -> None:
    node = cause("slow-node", "n1", status="fail", check="bw.tcp", title="n1 is slow")
    path = cause("slow-path", "n1", "n2", status="fail", check="bw.tcp", title="n1 -> n2 is slow")
    other = cause("slow-path", "n0", "n2", status="fail", check="bw.tcp", title="n0 -> n2 is slow")
    soak = soaked(report(), report(path), *[report(node)] * 12, report(other))
    text = shown(soak)
    assert text.startswith("PROBLEMS  2 in 15 rounds")
    assert "also      in 1 more round one path of it alone was slow" in text
    assert "n1 -> n2 is slow" not in text
    assert "n0 -> n2 is slow" in text
    titles = {one["title"] for one in to_json(soak, soak.state(), 0.0)["anomalies"]}
    assert titles == {"n1 is slow", "n1 -> n2 is slow", "n0 -> n2 is slow"}
    # As often as the node it stands for itself.
    assert "n1 -> n2 is slow" in shown(soaked(*[report(node), report(path)] * 3))
