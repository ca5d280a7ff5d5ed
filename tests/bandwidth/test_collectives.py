"""Real collectives of torch and gloo on a real lab: measured, and found when they are wrong, hang or fail."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.measure.load.collectives import NAMES
from tests.bandwidth.test_ranks import ranks
from tests.scan.harness import Scanned, scan

pytestmark = pytest.mark.lab

# Comes before the program of a rank: the collectives of torch on one node, with a fault. Only large messages
# are hit, and so no meeting of ours.
PATCH = """\
import os, socket, sys, time
fault, node, names = {fault!r}, {node!r}, {names!r}
if socket.gethostname() == node and any("netdoctor-rank" in word for word in sys.orig_argv):
    import torch.distributed as dist

    def patched(name, real, into):
        def call(*args, **options):
            ops = args[0] if into is None else None
            tensor = ops[1].tensor if ops else args[into]
            if fault == "refused":
                raise RuntimeError("Backend gloo does not support " + name)
            if tensor.numel() < 1000:
                return real(*args, **options)
            if fault == "fails":
                raise RuntimeError("this one is broken")
            if fault == "hangs":
                time.sleep(300)
            if fault == "sends":
                args[1][5] += 1
            result = real(*args, **options)
            if fault == "wrong":
                for work in result if ops else ():
                    work.wait()
                # Of several senders, where there are several.
                tensor[7] += 1
                tensor[-7] += 1
                return [] if ops else result  # gloo waits for a message once
            return result
        return call

    FUNCTIONS = {{
        "all-reduce": ("all_reduce",),
        "all-gather": ("all_gather_single", "all_gather_into_tensor", "_all_gather_base", "all_gather"),
        "reduce-scatter": (
            "reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter"
        ),
        "all-to-all": ("all_to_all_single",),
        "broadcast": ("broadcast",),
        "send-recv": ("batch_isend_irecv",),
    }}
    for name in names:
        for function in FUNCTIONS[name]:
            if hasattr(dist, function):
                real = getattr(dist, function)
                setattr(dist, function, patched(name, real, None if name == "send-recv" else 0))
"""


# An interpreter, by fault and collectives.
Faulty = Callable[..., str]


@pytest.fixture
def python_with(torch: str) -> Iterator[Faulty]:
    """An interpreter that lab nodes see, whose torch has a fault on one node."""
    folder = Path(tempfile.mkdtemp(prefix="netdoctor-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {torch} "$@"\n')
    python.chmod(0o755)

    def build(fault: str, *names: str) -> str:
        (folder / "sitecustomize.py").write_text(PATCH.format(fault=fault, node="node2", names=names))
        return str(python)

    try:
        yield build
    finally:
        shutil.rmtree(folder)


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


@pytest.mark.parametrize("fault", ["fails", "hangs"])
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
