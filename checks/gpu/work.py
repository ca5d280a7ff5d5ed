"""GPUs at work: which is slower than others of its kind, though no counter says so."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._work import (
    FIGURES,
    SLOW,
    Place,
    against_board,
    against_peers,
    failed,
    figures,
    locked,
    wrong,
)
from netdoctor.facts.gpu import Gpu, GpuFacts, GpuRate, GpuWork
from netdoctor.model import Finding, skip, unknown
from netdoctor.rules.boards import board


@check(
    after=["ssh.login", "gpu.visible"],
    profile="full",
    cost="loads-gpu",
    required=False,
    source="https://arxiv.org/abs/2208.11035",
)
def gpu_work(work: Mapping[str, GpuWork], gpus: Mapping[str, GpuFacts]) -> Iterator[Finding]:
    """Every GPU computes, moves its memory and copies as fast as the others of its kind.

    Looks at:
        Two seconds of work on each idle GPU, in the job's torch: products of matrices (bfloat16, float16
        before compute capability 8.0, float32 before 7.0) and memory on all GPUs of a node at once, as a job
        loads it; copies of pinned memory to the GPU and back in turn. The median of each is compared with
        GPUs of the same model, power limit and ECC mode in the cluster, copies with those in the same
        place on other nodes as well, and with the board's data sheet where that is known. The first and the
        last product of the same numbers have to be equal. A GPU whose clock stays low, though neither power
        nor heat limits it, has locked clocks. AMD's GPUs take part with a torch for ROCm. A GPU that is in
        use is left alone, one in MIG mode or partitioned, too; at most an eighth of the memory is taken.

    Matters because:
        A collective waits for its slowest rank. A GPU that is hot, badly seated or worn is slow without an
        error anywhere, and one that computes wrongly spoils the model without a word.

    Fix:
        Look at clocks and temperature under load, at power and cooling, and at the GPU's PCIe link; run it
        again to see whether it stays. What stays goes back to the vendor.
    """
    kinds: dict[tuple[object, ...], dict[Place, GpuRate]] = defaultdict(dict)
    devices: dict[Place, Gpu] = {}
    for node, found in work.items():
        known = {one.index: one for one in gpus[node].devices} if node in gpus else {}
        for rate in found.gpus:
            if rate.error:
                yield failed(node, rate)
            elif silent := [one.name for one in FIGURES if one.value(rate) is None]:
                yield unknown(node, f"GPU {rate.index} told nothing of {listing(silent)}")
            elif rate.board or rate.index in known:
                one = devices[node, rate.index] = (
                    Gpu(index=rate.index, name=rate.board) if rate.board else known[rate.index]
                )
                kind = (one.name, one.power_limit_w, one.ecc_enabled, rate.kind, rate.side)
                kinds[kind][node, rate.index] = rate
            if rate.wrong:
                yield wrong(node, rate)
        if found.left_out:
            first = next(iter(found.left_out.values()))
            who = listing([f"GPU {index}" for index in found.left_out], 4)
            yield skip(f"{who} took no part: {first}", node, gap="some GPUs took no part")
    slow: set[Place] = set()
    for rates in kinds.values():
        held = {place: finding for finding, place in locked(rates)}
        yield from held.values()
        for finding, place in chain.from_iterable(against_peers(one, rates) for one in FIGURES):
            slow.add(place)
            if place not in held or not finding.cause or finding.cause.key != SLOW.key:
                yield finding
        slow |= held.keys()
    compared = {place for rates in kinds.values() if len(rates) > 1 for place in rates}
    for place, one in devices.items():
        rate = next(rates[place] for rates in kinds.values() if place in rates)
        if place not in slow:
            yield from against_board(place, one, rate)
    for node, found in work.items():
        rates_here = {rate.index: rate for rate in found.gpus if (node, rate.index) in devices}
        if rates_here:
            names = [devices[node, index].name for index in rates_here]
            judged = any((node, index) in compared for index in rates_here) or any(map(board, names))
            yield figures(node, names, list(rates_here.values()), found.torch, judged)
