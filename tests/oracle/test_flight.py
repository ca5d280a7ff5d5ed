"""Flight records with random faults: netdoctor's reading against torch's own `fr_trace`."""

import json
import os
import pickle
import random
import subprocess
from pathlib import Path

import pytest

from netdoctor.explain import desync, flight

CASES = 150
SEED = 20263
PLAIN = ("all_reduce", "broadcast", "_all_gather_base", "_reduce_scatter_base", "reduce", "gather", "scatter")
FAULTS = ("none", "absent", "name", "size", "dtype", "held", "absent and size", "two ranks")


def operation(name: str, size: int, world: int) -> dict[str, object]:
    inputs = [[size * world]] if name == "_reduce_scatter_base" else [[size]]
    outputs = [[size * world]] if name == "_all_gather_base" else [[size]]
    return {"profiling_name": f"nccl:{name}", "input_sizes": inputs, "output_sizes": outputs}


def made(rng: random.Random) -> tuple[str, dict[int, dict[str, object]]]:
    """A fault, and the record of each rank: operations on a few groups, the last of which is wrong."""
    world = rng.randint(2, 6)
    groups = {"0": list(range(world))}
    for number in range(rng.randint(0, 2)):
        groups[str(number + 1)] = sorted(rng.sample(range(world), rng.randint(2, world)))
    fault = rng.choice(FAULTS)
    plan = [rng.choice(list(groups)) for _ in range(rng.randint(1, 12))]
    broken = plan[-1]
    odd = rng.sample(groups[broken], min(2 if fault == "two ranks" else 1, len(groups[broken]) - 1))
    records: dict[int, dict[str, object]] = {}
    counts: dict[str, int] = {}
    entries: dict[int, list[dict[str, object]]] = {rank: [] for rank in range(world)}
    for step, group in enumerate(plan):
        counts[group] = counts.get(group, 0) + 1
        last = step == len(plan) - 1
        name, size = rng.choice(PLAIN), rng.randint(2, 64)
        other_name = rng.choice([one for one in PLAIN if one != name])
        state = rng.choice(["scheduled", "started"]) if last and fault != "none" else "completed"
        for rank in groups[group]:
            wrong = last and rank in odd
            if wrong and (
                fault in ("absent", "two ranks") or (fault == "absent and size" and rank == odd[0])
            ):
                continue
            uneven = (wrong and fault == "size") or (
                last and fault == "absent and size" and rank == groups[group][-1]
            )
            call = operation(
                other_name if wrong and fault == "name" else name, size + 64 * uneven, len(groups[group])
            )
            dtype = "Half" if wrong and fault == "dtype" else "Float"
            held = last and fault == "held"
            entries[rank].append(
                {
                    "record_id": step,
                    "pg_id": int(group),
                    "process_group": (group, "default_pg" if group == "0" else "part"),
                    "collective_seq_id": counts[group],
                    "p2p_seq_id": 0,
                    "op_id": counts[group],
                    **call,
                    "input_dtypes": [dtype],
                    "output_dtypes": [dtype],
                    "state": ("scheduled" if wrong else "started") if held else state,
                    "time_created_ns": 1_700_000_000_000_000_000 + step,
                    "is_p2p": False,
                    "frames": [],
                }
            )
    for rank in range(world):
        config = {
            name: {"name": name, "desc": "default_pg" if name == "0" else "part", "ranks": str(ranks)}
            for name, ranks in groups.items()
            if rank in ranks
        }
        records[rank] = {"version": "2.10", "pg_config": config, "entries": entries[rank]}
    return fault, records


def ours(folder: Path) -> dict[str, desync.Mismatch]:
    files = sorted(folder.iterdir())
    return {one.group: one for one in desync.mismatches([flight.read(f.read_bytes(), f.name) for f in files])}


def test_agrees_with_fr_trace(tmp_path: Path) -> None:
    python = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("NETDOCTOR_TEST_TORCH_PYTHON names no interpreter with torch")
    rng = random.Random(SEED)
    folders, faults = [], []
    for case in range(CASES):
        fault, records = made(rng)
        folder = tmp_path / f"{case:03d}"
        folder.mkdir()
        for rank, record in records.items():
            (folder / f"trace_{rank}").write_bytes(pickle.dumps(record, 2))
        folders.append(folder)
        faults.append(fault)
    script = Path(__file__).with_name("flight_answer.py")
    asked = subprocess.run([python, script, *folders], capture_output=True, text=True, timeout=300)
    assert asked.returncode == 0, asked.stderr[-2000:]
    said = [json.loads(line) for line in asked.stdout.splitlines() if line.startswith("[")]
    assert len(said) == CASES
    seen = 0
    for folder, fault, answers in zip(folders, faults, said, strict=True):
        mine = ours(folder)
        assert set(mine) == {group for group, *_ in answers}, (folder, fault, answers, mine)
        for group, number, missing, culprits in answers:
            mismatch = mine[group]
            assert mismatch.number == number, (folder, fault)
            assert list(mismatch.absent) == missing, (folder, fault)
            first = min(mismatch.waiting)
            if mismatch.kind == "stalled":
                apart = set(mismatch.stalled), set(mismatch.waiting) - set(mismatch.stalled)
            else:
                apart = tuple(set(ranks) for _, ranks in mismatch.calls)
            expected = {rank for ranks in apart if first not in ranks for rank in ranks}
            assert {int(rank) for rank in culprits} == expected, (folder, fault, culprits, mismatch)
            seen += 1
    assert seen > CASES // 2
    assert set(faults) == set(FAULTS)
