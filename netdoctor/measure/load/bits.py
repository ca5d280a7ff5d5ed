"""The same seeded work on every idle GPU, and what bits came of it; where there is no GPU, on the CPU."""

import re
from dataclasses import replace

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import DeviceBits, Gpu, GpuBits
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.gpu_work import ASK_S, THROUGH_S, Event, is_amd, on_idle
from netdoctor.measure.programs import bound_s

# Stands where a node has no GPU: one thread of its CPU.
CPU = (Gpu(index=0, name="CPU"),)
# Of one device a program says no more: six works with eight results each.
MOST_RESULTS = 48

_BITS = re.compile(r"[0-9a-f]{32}")


@experiment(
    after=["gpu-work"],
    needs=["software", "gpu", "accelerators"],
    bound_s=ASK_S + bound_s(THROUGH_S),
    cost="loads-gpu",
)
def gpu_bits(context: Context) -> dict[str, GpuBits | Missing]:
    """Torch does the same work for three seconds on each idle GPU, or on one thread of the CPU.

    Which results are right is not known here: only that equal devices have to give equal ones.
    """

    def read(
        event: Event, node: str, devices: tuple[Gpu, ...], left_out: dict[int, str]
    ) -> GpuBits | Missing:
        cpu = devices is CPU
        facts = context.store.get_or_none("gpu", node)
        driver = "" if cpu or is_amd(devices) or facts is None else facts.driver_version or ""
        found = _devices(event, devices)
        if isinstance(found, Missing):
            return found
        with_driver = tuple(
            replace(one, kind=f"{one.kind}, driver {driver}" if driver else one.kind) for one in found
        )
        return GpuBits(torch=event.torch[:60], cpu=cpu, devices=with_driver, left_out=left_out)

    return on_idle(context, "bits.py", THROUGH_S, read, CPU)


def _devices(event: Event, devices: tuple[Gpu, ...]) -> tuple[DeviceBits, ...] | Missing:
    """A node speaks of the devices that it was asked about, of each once; its text is cut."""
    try:
        found = msgspec.convert(event.gpus, tuple[DeviceBits, ...])
    except (msgspec.ValidationError, RecursionError) as error:
        return Missing(Why.UNPARSABLE, f"unreadable answer: {error}"[:400])
    if [one.index for one in found] != [device.index for device in devices]:
        return Missing(Why.UNPARSABLE, "it reports other devices than the requested ones")
    for one in found:
        rows = one.results
        fit = all(_BITS.fullmatch(row.bits) and 0 < row.first <= one.rounds for row in rows)
        counts = all(0 < row.rounds <= one.rounds for row in rows)
        distinct = len({(row.work, row.bits) for row in rows}) == len(rows) <= MOST_RESULTS
        if not (fit and counts and distinct):
            return Missing(Why.UNPARSABLE, "results that cannot be")
    return tuple(
        replace(
            one,
            name=one.name[:80],
            kind=one.kind[:300],
            error=one.error[:400],
            results=tuple(replace(row, work=row.work[:40]) for row in one.results),
        )
        for one in found
    )
