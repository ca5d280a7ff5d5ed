"""The memory that a rank needs: against published figures, and against the nodes of a report."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.launch import json_text
from netdoctor.launch.fit import GIB, Job, activations, job_of, need, states
from tests.launch.build import evidence, planned, targets

SEVEN = "params=7e9,layers=32,hidden=4096,heads=32,seq=4096,vocab=32000"


@pytest.mark.parametrize(("zero", "gb"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_the_figures_of_the_zero_paper(zero: int, gb: float) -> None:
    """Figure 1: 7.5 thousand million parameters on 64 GPUs."""
    low, high = states(Job(params=7.5e9, zero=zero), dp=64, shards=1)
    assert low / 1e9 == pytest.approx(gb, rel=0.01)
    assert low < high


def test_the_activations_of_a_paper_s_layer_are_within() -> None:
    """GPT-3 175B of table 3 (a=96, h=12288, s=2048, b=1, t=8): equation 2 by hand."""
    job = Job(params=175e9, layers=96, hidden=12288, heads=96, seq=2048, vocab=51200)
    paper = 96 * 2048 * 12288 * (10 + 24 / 8 + 80 / 8)
    low, high = activations(job, tp=8, pp=1)
    assert low < paper < high


def facts(total: float | None, capability: str = "9.0") -> dict[str, GpuFacts]:
    gpu = Gpu(
        index=0,
        memory_total_bytes=None if total is None else int(total * GIB),
        memory_used_bytes=0,
        compute_capability=capability,
    )
    return {"gpu": GpuFacts(nvml="ok", devices=(gpu,))}


@pytest.mark.parametrize(
    ("text", "total", "state"),
    [
        pytest.param(SEVEN, 79.1, "does not fit", id="too much"),
        pytest.param(SEVEN, 1000, "fits", id="much room"),
        pytest.param("params=7e9", 1000, "may not fit", id="activations not given"),
        pytest.param(SEVEN, None, "unknown", id="nobody saw the memory"),
    ],
)
def test_a_node_is_judged(text: str, total: float | None, state: str) -> None:
    plan = planned(targets(2), evidence(2, facts(total)), fit=job_of(text))
    assert plan.fit is not None
    assert {row["state"] for row in plan.fit["nodes"]} == {state}
    assert any(line.startswith(f"{state} on n1") for line in plan.arithmetic)
    assert '"need_bytes"' in json_text(plan)


@pytest.mark.parametrize(
    ("dtype", "capability", "state"),
    [
        ("bf16", "7.0", "not native"),
        ("bf16", "8.0", "native"),
        ("fp8", "8.0", "not native"),
        ("fp4", "9.0", "not native"),
        ("bf16", "", "unknown"),
    ],
)
def test_a_dtype_is_held_against_the_board(dtype: str, capability: str, state: str) -> None:
    plan = planned(targets(2), evidence(2, facts(80, capability)), fit=job_of(f"params=1e9,dtype={dtype}"))
    assert plan.fit is not None
    assert {row["dtype"] for row in plan.fit["nodes"]} == {state}


def test_a_higher_stage_needs_less() -> None:
    ends = [need(job_of(f"{SEVEN},zero={stage}"), dp=16, tp=1, pp=1)[0] for stage in range(4)]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dtype=bf16",
        "params=x",
        "params=1e9,zero=4",
        "params=1e9,dtype=int3",
        "params=1e9,params=2",
        "params=1e9,size=3",
        "params=1e9,micro=0",
    ],
)
def test_bad_input_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--fit"):
        job_of(text)


MEASURE = """
import json, random, torch
torch.set_num_threads(1)
draw, rows = random.Random(7), []
for _ in range(60):
    heads = draw.choice([2, 4, 8]); hidden = heads * draw.choice([16, 32])
    layers, seq, micro = draw.randint(1, 4), draw.choice([32, 64, 128]), draw.randint(1, 4)
    layer = torch.nn.TransformerEncoderLayer(
        hidden, heads, 4 * hidden, dropout=0.0, activation=draw.choice(["relu", "gelu"]),
        batch_first=True, norm_first=draw.choice([True, False]))
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
    kept = {}
    def keep(one):
        if one.untyped_storage().data_ptr() not in weights:
            kept[one.untyped_storage().data_ptr()] = one.untyped_storage()
        return one
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        loss = model(torch.randn(micro, seq, hidden, requires_grad=True)).sum()
    saved = sum(one.nbytes() for one in kept.values())
    loss.backward()
    adam = torch.optim.Adam(model.parameters()); adam.step()
    states = sum(one.nbytes + one.grad.nbytes for one in model.parameters())
    states += sum(v.nbytes for s in adam.state.values() for v in s.values())
    count = sum(one.numel() for one in model.parameters())
    rows.append([count, layers, hidden, heads, seq, micro, states, saved])
print(json.dumps(rows))
"""


@pytest.mark.process
def test_what_torch_really_allocates_is_in_the_range() -> None:
    """Random small transformers on the CPU, in fp32, trained for one step.

    Without dropout, whose masks are floats on a CPU and bytes on a GPU."""
    python = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("NETDOCTOR_TEST_TORCH_PYTHON names no interpreter")
    out = subprocess.run([python, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=120)
    for params, layers, hidden, heads, seq, micro, real, saved in json.loads(out.stdout):
        job = Job(
            params=params, dtype="fp32", layers=layers, hidden=hidden, heads=heads, seq=seq, micro=micro
        )
        # Adam counts its steps in 4 bytes for each tensor.
        assert real == pytest.approx(states(job, dp=1, shards=1)[0], rel=0.01)
        low, high = activations(job, tp=1, pp=1)
        assert low <= saved <= high, (job, saved / low, saved / high)


# transformers 5.17 and torch 2.11 on an H200: weights and gradients in bf16, Adam with fp32 masters, two
# steps; what the device has in use then.
H200 = Path(__file__).with_name("fit_h200.jsonl")


def test_what_an_h200_had_in_use_is_in_the_range() -> None:
    rows = [json.loads(line) for line in H200.read_text("utf-8").splitlines()]
    assert len(rows) == 14
    for row in rows:
        del row["model"]
        row["attention"] = "fused" if row["attention"] == "sdpa" else "any"
        used = row.pop("used_gib")
        low, high = need(Job(vocab=32000, **row), dp=1, tp=1, pp=1)
        assert low <= used * GIB <= high, row
