"""What the driver's messages and NVML together say of each GPU and NVSwitch of a node."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import Gpu, GpuFacts, KernelEvent, KernelLog
from netdoctor.rules import xid
from netdoctor.rules.xid import Need
from netdoctor.text import age

# Where nothing says whether a GPU was reset since. Our own judgement: nobody resets a GPU, and most jobs
# would have met it, within a day.
FRESH_S = 86400.0
# The driver sums up at once.
SUMMED_S = 5.0


class GpuError(NamedTuple):
    """What is wrong with one device."""

    summary: str
    needs: Need  # NONE with a code that is not known
    source: str
    text: str
    observed: str
    gpu: int | None = None  # NVML's index, of a GPU that it lists
    certain: bool = False  # the driver itself says so
    fresh: bool = False  # the last error is younger than FRESH_S
    again: bool = False  # it has been put right, more than once


@lru_cache(maxsize=1 << 12)
def address(bus: str) -> str:
    """``0000:3b:00`` of ``00000000:3B:00.0``."""
    return bus.lower().partition(".")[0][-10:]


def troubles(gpu: GpuFacts, log: KernelLog) -> Iterator[GpuError]:
    """In the order of the GPUs, then what is no GPU of NVML any more, then switches."""
    since, source = log.driver_age_s, f"kernel log ({log.source})"
    recent = [one for one in log.events if since is None or one.last_age_s <= since]
    if not recent and not any(device.recovery for device in gpu.devices):
        return
    by_device: dict[str, list[KernelEvent]] = defaultdict(list)
    for one in recent:
        if one.kind == "xid":
            by_device[one.device].append(one)
    devices = {address(device.pci_bus_id): device for device in gpu.devices}
    unlisted = sorted(by_device.keys() - devices.keys())
    for where, device in [*devices.items(), *((where, None) for where in unlisted)]:
        events = by_device.get(where, [])
        if not events and device is not None and not device.recovery:
            continue
        if found := _of_gpu(device, where, events, source):
            yield found._replace(gpu=device.index if device else None)
    for one in recent:
        if one.kind == "sxid" and one.text.startswith("Fatal"):
            words = f"NVSwitch {one.device} reported a fatal error (SXid {one.code})"
            yield _by_log(words, Need.RESET, [one], source)


def _of_gpu(device: Gpu | None, where: str, events: list[KernelEvent], source: str) -> GpuError | None:
    recovery = None if device is None else xid.recovery(device.recovery)
    if not events and recovery not in (Need.RESET, Need.REBOOT):
        return None
    name = f"GPU {device.index}" if device is not None and device.pci_bus_id else f"the GPU at {where}"
    meanings = {one: xid.meaning(one.code, one.text) for one in events if one.code != xid.RECOVERY}
    grave = {one: means for one, means in meanings.items() if means and means.action is not Need.NONE}
    foreign = [one for one, means in meanings.items() if means is None]
    codes = listing(f"Xid {one.code}, {means.words}" for one, means in grave.items())
    needs = recovery or _announced(events, grave)
    if needs in (Need.RESET, Need.REBOOT):
        text = "\n".join(map(_line, events)) or str(device.recovery if device else "")
        origin = f"NVML, {name}, recovery action" if recovery else source
        words = f"{name} needs a {needs}, says the driver" + (f" ({codes})" if codes else "")
        return GpuError(words, needs, origin, text, f"needs a {needs}", certain=True)
    times = sum(one.count for one in grave)
    if times > 1 and needs is Need.NONE:
        words = f"{name} was repaired {times} times: {codes}"
        return _by_log(words, Need.RESET, grave, source)._replace(again=True)
    if grave and needs is None:
        action = max((means.action for means in grave.values()), key=lambda action: action.rank)
        words = f"{name} had {codes}, {age(_youngest(grave))} ago"
        return _by_log(words, action, grave, source)
    if foreign:
        words = f"{name} had an Xid above the last one that netdoctor knows ({xid.LAST})"
        return _by_log(words, Need.NONE, foreign, source)
    return None


def _announced(events: Iterable[KernelEvent], grave: Collection[KernelEvent]) -> Need | None:
    """What the driver's last summary says, unless an error came after it."""
    last = min(
        (one for one in events if one.code == xid.RECOVERY), key=lambda one: one.last_age_s, default=None
    )
    if last is None or any(one.last_age_s < last.last_age_s - SUMMED_S for one in grave):
        return None
    return xid.announced(last.text)


def _youngest(events: Iterable[KernelEvent]) -> float:
    return min(one.last_age_s for one in events)


def _by_log(words: str, action: Need, events: Collection[KernelEvent], source: str) -> GpuError:
    text, fresh = "\n".join(map(_line, events)), _youngest(events) < FRESH_S
    return GpuError(words, action, source, text, listing(map(_code, events)), fresh=fresh)


def _code(one: KernelEvent) -> str:
    return f"{'Xid' if one.kind == 'xid' else 'SXid'} {one.code}"


def _line(one: KernelEvent) -> str:
    times = f", {one.count} times" if one.count > 1 else ""
    return f"{_code(one)} of {one.device}{times}, last {age(one.last_age_s)} ago: {one.text}"
