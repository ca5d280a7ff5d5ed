"""Errors of NVLinks and PCIe links of GPUs, while a scan measures and since the driver was loaded."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._gpu_counts import Counted, counted, gone, tells
from netdoctor.checks._gpus import reset, untold
from netdoctor.checks._words import listing
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import HERE, Finding, look, ok, seen


@check(
    after=["ssh.login", "gpu.visible"],
    profile="launch",
    required=False,
    source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html",
)
def gpu_link_errors(gpu: GpuFacts, later: LaterCounters | None) -> Iterator[Finding]:
    """Links of GPUs count no errors while the scan measures, and none has broken down before.

    Looks at:
        NVML's counts of recoveries, CRC errors and replays of each NVLink (of NVLink 5: recoveries, and bit
        errors left after correction), and of PCIe replays, of each GPU, at login and again after everything
        that loads it. What was added in between is judged by NVIDIA's own limits: any NVLink recovery or
        replay, 100 CRC errors a second, 8 PCIe replays a minute; 2 uncorrected bit errors in 5 seconds. Older
        totals, but for replays and NVLink 5, are so, too, by the time since the node was started: the least
        that their rate was.
        Other totals are told, and say nothing of today. A GPU that answers at login and not at the end has
        failed in between.

    Matters because:
        What is repeated is slow, and a link that breaks down once does so again, in the middle of a job
        (Xid 74).

    Fix:
        Reset the GPU, which trains its links anew. What comes back is hardware: the board's connector, a
        bridge, a riser, the slot.
    """
    yield from untold(gpu, tells, "count errors of their links")
    yield from gone(gpu, later)
    found = list(counted(gpu, later))
    bad = [one for one in found if one.is_bad]
    yield from map(_finding, bad)
    named = {(one.gpu, one.rule) for one in bad}
    if rest := [one.words for one in found if (one.gpu, one.rule) not in named and not one.during]:
        yield ok(HERE, f"since the driver was loaded, and not judged: {listing(rest, 8)}")


def _finding(one: Counted) -> Finding:
    when = f"in the {one.seconds:.0f} s of this scan" if one.during else "since the driver was loaded"
    of_link = "" if one.link is None else f" -l {one.link}"
    read = f"nvidia-smi nvlink -e -i {one.gpu}{of_link}; nvidia-smi -q -i {one.gpu} | grep -i replay"
    return one.rule.cause.warn(
        f"{one.words} {when}",
        observed=f"{one.events / one.seconds:.3g} a second" if one.seconds else str(one.events),
        expected=one.rule.expected,
        seen=seen(f"NVML, {one.place}, {one.rule.what}", f"{one.events} {when}"),
        fixes=(look("read the counters", read), reset(one.gpu)),
    )
