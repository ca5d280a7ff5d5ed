"""Whose bits are wrong, on clusters of facts from seeds: with one flipped bit, and without."""

import random
from dataclasses import replace

from netdoctor.checks.gpu.bits import gpu_bits
from netdoctor.facts.gpu import Bits, DeviceBits, GpuBits
from netdoctor.model import Finding, Status

WORKS = ("product of float32", "product of bfloat16", "attention in bfloat16", "sums", "softmax")


def device(index: int, kind: str = "H100", rounds: int = 20, seed: int = 0) -> DeviceBits:
    """One that is well; of a kind and a seed the bits are always the same."""
    source = random.Random(f"{kind} {seed}")
    rows = tuple(
        Bits(work=work, bits=f"{source.getrandbits(128):032x}", first=1, rounds=rounds) for work in WORKS
    )
    return DeviceBits(index=index, name=kind, kind=f"{kind}, HIP None", rounds=rounds, results=rows)


def node(*devices: DeviceBits, cpu: bool = False) -> GpuBits:
    return GpuBits(torch="2.6.0", cpu=cpu, devices=devices)


def flipped(one: DeviceBits, work: str, bit: int, at: int | None) -> DeviceBits:
    """With one bit of a result turned over: in round `at`, or in every one."""
    rows: list[Bits] = []
    for row in one.results:
        other = replace(row, bits=f"{int(row.bits, 16) ^ 1 << bit:032x}")
        if row.work != work:
            rows.append(row)
        elif at is None:
            rows.append(other)
        else:
            rows.append(replace(row, first=2 if at == 1 else 1, rounds=row.rounds - 1))
            rows.append(replace(other, first=at, rounds=1))
    return replace(one, results=tuple(rows))


def cluster(source: random.Random) -> dict[str, GpuBits]:
    kinds = source.sample(["H100", "A100", "MI300X", "CPU EPYC"], source.randint(1, 3))
    found = {}
    for i in range(source.randint(1, 12)):
        kind = source.choice(kinds)
        cpu = kind.startswith("CPU")
        count = 1 if cpu else source.choice([1, 2, 4, 8])
        devices = (device(k, kind, source.randint(2, 60)) for k in range(count))
        found[f"n{i}"] = node(*devices, cpu=cpu)
    return found


def faults(nodes: dict[str, GpuBits]) -> list[Finding]:
    return [finding for finding in gpu_bits(nodes) if finding.cause]


def test_a_thousand_clusters_with_one_flipped_bit_name_the_device_work_and_round() -> None:
    for seed in range(1000):
        source = random.Random(seed)
        nodes = cluster(source)
        name = source.choice(sorted(nodes))
        victim = source.choice(nodes[name].devices)
        peers = sum(d.kind == victim.kind for n in nodes.values() for d in n.devices) - 1
        work, bit = source.choice(WORKS), source.randrange(128)
        # Of two rounds, and alone, nobody knows which was right; a constant fault needs a peer.
        at = source.randint(1, victim.rounds) if not peers or source.random() < 0.6 else None
        bad = flipped(victim, work, bit, at)
        devices = tuple(bad if d is victim else d for d in nodes[name].devices)
        nodes[name] = replace(nodes[name], devices=devices)
        found = faults(nodes)
        who = "the CPU" if nodes[name].cpu else f"GPU {victim.index}"
        own = [f for f in found if f.target == name and f.summary.startswith(who)]
        assert len(own) == 1, (seed, found)
        assert work in own[0].summary
        assert own[0].status is Status.FAIL
        certain = peers or victim.rounds > 2
        assert f"round {at or 1}" in own[0].summary or not certain, (seed, own)
        if at is None and peers == 1:
            assert len(found) == 2
            assert all("one of the two" in one.summary for one in found)
        else:
            assert len(found) == 1, (seed, found)


def test_a_thousand_healthy_clusters_are_silent() -> None:
    for seed in range(1000):
        nodes = cluster(random.Random(seed))
        found = list(gpu_bits(nodes))
        assert {finding.status for finding in found} == {Status.PASS}, seed
        assert {finding.target for finding in found} == set(nodes)


def test_who_is_alone_is_compared_with_itself_only_and_a_cpu_is_called_one() -> None:
    first, second, third = gpu_bits(
        {
            "n0": node(device(0)),
            "n1": node(device(0, "CPU EPYC"), cpu=True),
            "n2": node(device(0, "CPU EPYC"), cpu=True),
        }
    )
    assert "compared with itself only" in first.summary
    assert first.gap == "no other device of its kind to compare with"
    assert "as a stand-in, as there is no GPU" in second.summary
    assert second.gap is third.gap is None


def test_groups_that_agree_among_themselves_are_a_matter_of_software() -> None:
    nodes = {f"n{i}": node(*(device(k, seed=i == 2) for k in range(4))) for i in range(3)}
    found = faults(nodes)
    assert {(finding.target, finding.status) for finding in found} == {("n2", Status.WARN)}
    assert found[0].cause
    assert found[0].cause.key == "gpu-bits-groups"


def test_two_that_disagree_of_which_one_disagrees_with_itself() -> None:
    bad = flipped(device(0, rounds=9), "sums", 3, 4)
    (finding,) = faults({"n0": node(device(0)), "n1": node(bad)})
    assert finding.target == "n1"
    assert "sums: other bits than before, first in round 4 (1 of 9 rounds)" in finding.summary


def test_what_was_not_done_is_never_green() -> None:
    broken = replace(device(0), error="RuntimeError: out of memory")
    once = replace(device(1, rounds=1))
    nothing = DeviceBits(index=2)
    found = list(gpu_bits({"n0": node(broken, once, nothing)}))
    assert [finding.status for finding in found] == [Status.UNKNOWN] * 3
    left = GpuBits(torch="2.6", devices=(device(0),), left_out={1: "MIG is on"})
    assert [one.status for one in gpu_bits({"n0": left})] == [Status.SKIP, Status.PASS]
