"""Real collectives of torch and gloo on a real lab: measured, and found when they are wrong, hang or fail."""

from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.measure.load.collectives import NAMES
from tests.bandwidth.conftest import Faulty
from tests.bandwidth.test_ranks import ranks
from tests.scan.harness import Scanned, scan

pytestmark = pytest.mark.lab


def run(lab: Lab, folder: Path, python: str, budget_s: float = 4.0) -> Scanned:
    options = ("--only", "bw.collectives", "--profile", "full", "--budget", str(budget_s))
    found = scan(lab, folder, *options, "--python", python)
    assert not ranks(lab)
    return found


@pytest.mark.rates
def test_a_healthy_lab_is_silent_and_measured(even: Lab, folder: Path, torch: str) -> None:
    found = run(even, folder, torch, 30.0)
    assert (found.code, found.keys) == (0, []), found.summary()
    measures = {m["name"]: m for m in found.report["measures"]}
    n = len(even.nodes)
    factors = {"all-reduce": 2 * (n - 1) / n, "broadcast": 1.0, "send-recv": 1.0}
    for name in NAMES:
        start = f"bw.collectives.{name}."
        assert {(m["unit"], m["value"] > 0) for key, m in measures.items() if key.startswith(start)} <= {
            ("us", True),
            ("GB/s", True),
        }
        latencies = [int(key.rpartition(".")[2]) for key in measures if key.startswith(start + "latency.")]
        assert len(latencies) == 4
        busbw = {key: m["value"] for key, m in measures.items() if key.startswith(start + "busbw.")}
        assert busbw, found.summary()
        for key, value in busbw.items():
            algbw = measures[key.replace("busbw", "algbw")]["value"]
            assert value == pytest.approx(algbw * factors.get(name, (n - 1) / n))


def test_a_wrong_value_is_found_in_each(lab4: Lab, folder: Path, python_with: Faulty) -> None:
    found = run(lab4, folder, python_with("wrong", *NAMES))
    # A receiver that knows one sender alone cannot tell who of the two it was.
    assert sorted(found.keys) == ["collective-wrong-between", "collective-wrong-values"], found.summary()
    assert found.cause("collective-wrong-values")["node_list"] == ["node2"]
    assert "node2" in found.cause("collective-wrong-between")["node_list"]
    summaries = str(found.report["results"])
    assert [name for name in NAMES if f"values of {name} (at" not in summaries] == []


def test_who_sends_wrong_values_is_told_from_who_receives_them(
    lab4: Lab, folder: Path, python_with: Faulty
) -> None:
    found = run(lab4, folder, python_with("sends", "all-gather"))
    assert found.keys == ["collective-wrong-sender"], found.summary()
    assert found.cause("collective-wrong-sender")["node_list"] == ["node2"]


@pytest.mark.parametrize("fault", ["fails", pytest.param("hangs", marks=pytest.mark.weekly)])
def test_one_that_does_not_end_is_named_and_the_rest_stays_open(
    lab4: Lab, folder: Path, python_with: Faulty, fault: str
) -> None:
    found = run(lab4, folder, python_with(fault, "all-to-all"))
    key = "rank-error" if fault == "fails" else "rank-stuck"
    results = [r for r in found.report["results"] if r["check"] == "bw.collectives"]
    if fault == "fails":
        assert found.cause(key)["node_list"] == ["node2"]
    (stuck,) = [r for r in results if r["target"] == "node2"]
    assert stuck["status"] == ("fail" if fault == "fails" else "unknown"), found.summary()
    assert "all-to-all" in stuck["summary"]
    (cluster,) = [r for r in results if r["target"] == "cluster"]
    assert cluster["status"] == "unknown"
    measured = {m["name"].split(".")[2] for m in found.report["measures"]}
    assert measured == {"all-reduce", "all-gather", "reduce-scatter"}


def test_what_gloo_does_not_offer_is_said(lab4: Lab, folder: Path, python_with: Faulty) -> None:
    python = python_with("refused", "reduce-scatter")
    text = Path(python).with_name("sitecustomize.py")
    text.write_text(text.read_text().replace("socket.gethostname() == node", "True"))
    found = run(lab4, folder, python)
    assert "reduce-scatter is not offered by gloo of torch" in str(found.report["results"]), found.summary()
    assert not [m for m in found.report["measures"] if "reduce-scatter" in m["name"]]
