"""Directed pairs as the report keeps them: what was measured, and the status that their check gave them.

One record a pair and check, whatever the number of the job's paths: the worst of them speaks.
"""

from collections.abc import Iterator, Mapping

from netdoctor.engine.judge import Judgement
from netdoctor.engine.run import Outcome
from netdoctor.facts.bandwidth import LossMatrix, PairRates, TcpRates
from netdoctor.facts.net import MtuProbe, PathMtus, PortMatrix, PortProbe
from netdoctor.model import Status, pair
from netdoctor.report.model import PairRecord

# Of several ports the worst speaks: what could not be tried is worse than good and better than anything bad.
OUTCOMES = ("open", "in_use", "error", "refused", "no_route", "rejected", "filtered")

MTU_OUTCOMES = ("ok", "small", "no_answer", "error", "black_hole")

Pair = tuple[str, str]


def pairs(outcome: Outcome) -> Iterator[PairRecord]:
    """A record for each directed pair that a check of this scan saw measured."""
    store, judgement = outcome.store, outcome.judgement
    chosen = {check.id for check in judgement.checks}
    ports, mtus, losses = store.whole("ports"), store.whole("path_mtu"), store.whole("loss")
    tcp, torch = store.whole("tcp_rates"), store.whole("pair_rates")
    if isinstance(ports, PortMatrix) and "net.ports" in chosen:
        yield from _ports(ports, judgement)
    if isinstance(mtus, PathMtus) and "net.path-mtu" in chosen:
        yield from _path_mtus(mtus, judgement)
    if isinstance(tcp, TcpRates) and "bw.tcp" in chosen:
        yield from _rates("bw.tcp", _of_paths(tcp, judgement), "Gbit/s", judgement)
    if isinstance(torch, PairRates) and "bw.pair" in chosen:
        yield from _rates("bw.pair", _slowest_of(torch), "GB/s", judgement)
    if isinstance(losses, LossMatrix) and "net.loss" in chosen:
        yield from _losses(losses, judgement)


def _status(judgement: Judgement, check: str, src: str, dst: str, *, measured: bool = True) -> Status:
    """The worst that the check said of a pair; of one that it said nothing of, whether it was measured.

    A check that gave no judgement, because it could not run or does not apply, makes no pair green.
    """
    said = judgement.pairs.get(check)
    if said is None:
        ends = {judgement.cells[check].get(node) for node in (src, dst)}
        return Status.BLOCKED if Status.BLOCKED in ends else Status.UNKNOWN
    return said.get(pair(src, dst), Status.PASS if measured else Status.UNKNOWN)


def _ports(ports: PortMatrix, judgement: Judgement) -> Iterator[PairRecord]:
    """By the worst outcome of a pair's ports."""
    unsure = OUTCOMES.index("error")
    by_pair: dict[Pair, list[PortProbe]] = {}
    for probe in ports.probes:
        by_pair.setdefault((probe.src, probe.dst), []).append(probe)
    for (src, dst), probes in by_pair.items():
        worst = max((p.outcome for p in probes), key=lambda o: OUTCOMES.index(o) if o in OUTCOMES else unsure)
        tried = worst in OUTCOMES and worst != "error"
        yield PairRecord(
            check="net.ports",
            from_=src,
            to=dst,
            status=_status(judgement, "net.ports", src, dst, measured=tried).value,
            class_=worst,
            ports=tuple(sorted({p.port for p in probes if p.outcome == worst})),
        )


def _path_mtus(mtus: PathMtus, judgement: Judgement) -> Iterator[PairRecord]:
    worst: dict[Pair, MtuProbe] = {}
    for probe in mtus.probes:
        known = worst.setdefault((probe.src, probe.dst), probe)
        if _badness(probe) > _badness(known):
            worst[probe.src, probe.dst] = probe
    for m in worst.values():
        tried = m.outcome in ("ok", "small", "black_hole")
        yield PairRecord(
            check="net.path-mtu",
            from_=m.src,
            to=m.dst,
            status=_status(judgement, "net.path-mtu", m.src, m.dst, measured=tried).value,
            class_=m.outcome,
            value=m.largest_ok,
            unit="bytes",
        )


def _badness(probe: MtuProbe) -> int:
    return MTU_OUTCOMES.index(probe.outcome) if probe.outcome in MTU_OUTCOMES else MTU_OUTCOMES.index("error")


def _of_paths(tcp: TcpRates, judgement: Judgement) -> dict[Pair, float | None]:
    """The main path's rates; of a pair that is in trouble the lowest, which is what the trouble is about."""
    rates = _last_of(tcp)
    for further in map(_last_of, tcp.further.values()):
        for ends, value in further.items():
            bad = _status(judgement, "bw.tcp", *ends) in (Status.WARN, Status.FAIL)
            if ends not in rates or (bad and (value or 0.0) < (rates[ends] or 0.0)):
                rates[ends] = value
    return rates


def _last_of(tcp: TcpRates) -> dict[Pair, float | None]:
    """Gbit/s of each pair's last round; None where nothing passed."""
    return {(r.src, r.dst): None if r.gbyte_s is None else 8 * r.gbyte_s for r in tcp.rates}


def _slowest_of(torch: PairRates) -> dict[Pair, float | None]:
    """GB/s of each pair's slowest rail, in its last round."""
    latest = {(r.src, r.dst): r.round for r in torch.rates}
    slowest: dict[Pair, float | None] = {}
    for r in torch.rates:
        if r.round == latest[r.src, r.dst]:
            before = slowest.get((r.src, r.dst))
            slowest[r.src, r.dst] = r.gbyte_s if before is None else min(before, r.gbyte_s)
    return slowest


def _rates(
    check: str, values: Mapping[Pair, float | None], unit: str, judgement: Judgement
) -> Iterator[PairRecord]:
    for (src, dst), value in values.items():
        status = _status(judgement, check, src, dst, measured=value is not None)
        slow = status in (Status.WARN, Status.FAIL)
        yield PairRecord(
            check=check,
            from_=src,
            to=dst,
            status=status.value,
            class_="dead" if value is None else "slow" if slow else "ok",
            value=None if value is None else round(value, 5),
            unit=unit,
        )


def _losses(losses: LossMatrix, judgement: Judgement) -> Iterator[PairRecord]:
    percent: dict[Pair, float] = {}
    for probe in losses.probes:
        if probe.sent and probe.arrived:
            ends = (probe.src, probe.dst)
            lost = 100.0 * (probe.sent - min(probe.arrived, probe.sent)) / probe.sent
            percent[ends] = max(lost, percent.get(ends, 0.0))
    for (src, dst), value in percent.items():
        yield PairRecord(
            check="net.loss",
            from_=src,
            to=dst,
            status=_status(judgement, "net.loss", src, dst).value,
            class_="measured",
            value=round(value, 3),
            unit="%",
        )
