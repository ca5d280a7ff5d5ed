"""Directed pairs as the report keeps them: what was measured, and the status that their check gave them.

One record a pair and check, whatever the number of the job's paths: the worst speaks, and all are in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from netdoctor.engine.judge import Judgement
from netdoctor.engine.run import Outcome
from netdoctor.facts.bandwidth import LossMatrix, PairRates, RdmaRates, TcpRates
from netdoctor.facts.net import PathMtus, PortMatrix
from netdoctor.facts.paths import Path, Paths, Probe, path_of
from netdoctor.model import Status, pair
from netdoctor.report.model import PairRecord, PathRecord

# Of several ports the worst speaks: what could not be tried is worse than good and better than anything bad.
OUTCOMES = ("open", "in_use", "error", "refused", "no_route", "rejected", "filtered")

MTU_OUTCOMES = ("ok", "small", "no_answer", "error", "black_hole")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What was measured of a pair on one path."""

    ends: Pair
    path: str  # its id, empty for the main one
    class_: str = ""  # empty for a rate, whose status says it
    fine: bool = True  # green unless the check says otherwise
    badness: float = 0.0  # of several paths in trouble of one kind the one with most speaks
    ports: tuple[int, ...] = ()
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The paths of a job."""

    labels: Mapping[str, str]  # their names by id, the main one first; empty where there is no other
    find: Callable[[Probe], Path | None]

    @classmethod
    def from_paths(cls, paths: object) -> "Table":
        if not isinstance(paths, Paths) or not paths.beside:
            return cls({}, path_of(None))
        main = [path.label for path in paths.paths if path.is_main]
        return cls({"": "".join(main)} | {path.id: path.label for path in paths.beside}, path_of(paths))

    def at(self, probe: Probe) -> str:
        """The id of the path that a probe was on, empty for the main one."""
        path = self.find(probe)
        return path.id if path else ""


def pairs(outcome: Outcome) -> Iterator[PairRecord]:
    """A record for each directed pair that a check of this scan saw measured."""
    store = outcome.store
    table = Table.from_paths(store.cluster_fact("paths"))
    ports, mtus, losses = (
        store.cluster_fact("ports"),
        store.cluster_fact("path_mtu"),
        store.cluster_fact("loss"),
    )
    tcp, torch = store.cluster_fact("tcp_rates"), store.cluster_fact("pair_rates")
    found: list[tuple[str, str | None, Iterator[Tried]]] = []
    if isinstance(ports, PortMatrix):
        found.append(("net.ports", None, _ports(ports, table)))
    if isinstance(mtus, PathMtus):
        found.append(("net.path-mtu", "bytes", _path_mtus(mtus, table)))
    if isinstance(tcp, TcpRates):
        found.append(("bw.tcp", "Gbit/s", _tcp(tcp)))
    if isinstance(torch, PairRates):
        found.append(("bw.pair", "GB/s", _torch(torch)))
    if isinstance(rdma := store.cluster_fact("rdma_rates"), RdmaRates):
        found.append(("bw.rdma", "Gbit/s", _torch(rdma, 8.0)))
    if isinstance(losses, LossMatrix):
        found.append(("net.loss", "%", _losses(losses, table)))
    chosen = {check.id for check in outcome.judgement.checks}
    for check, unit, tried in found:
        if check in chosen:
            yield from _records(check, unit, tried, table, outcome.judgement)


def _records(
    check: str, unit: str | None, tried: Iterable[Tried], table: Table, judgement: Judgement
) -> Iterator[PairRecord]:
    by_pair: dict[Pair, list[Tried]] = {}
    for one in tried:
        by_pair.setdefault(one.ends, []).append(one)
    for (src, dst), ways in by_pair.items():
        statuses = [_status(judgement, check, one) for one in ways]
        each = [_on_path(one, status, table) for one, status in zip(ways, statuses, strict=True)]
        # Of equals max() keeps the first, the main path.
        worst = max(
            range(len(ways)),
            key=lambda i: (statuses[i].rank, ways[i].badness if statuses[i] is not Status.PASS else 0.0),
        )
        it = each[worst]
        yield PairRecord(
            check=check,
            from_=src,
            to=dst,
            status=it.status,
            class_=it.class_,
            ports=it.ports,
            value=it.value,
            unit=unit,
            path=it.path,
            paths=tuple(each) if table.labels and len(each) > 1 else (),
        )


def _status(judgement: Judgement, check: str, tried: Tried) -> Status:
    """What the check said of a pair on this path; where it said nothing of what is not fine, the worst that
    it said of the pair.

    A check that gave no judgement, because it could not run or does not apply, makes no pair green.
    """
    statuses = judgement.pairs.get(check)
    if statuses is None:
        ends = {judgement.cells[check].get(node) for node in tried.ends}
        return Status.BLOCKED if Status.BLOCKED in ends else Status.UNKNOWN
    here = statuses.get(pair(*tried.ends), {})
    if tried.path in here:
        return here[tried.path]
    others = max(here.values(), key=lambda one: one.rank, default=Status.UNKNOWN)
    return Status.PASS if tried.fine else others


def _on_path(one: Tried, status: Status, table: Table) -> PathRecord:
    rate = "dead" if one.value is None else "slow" if status in (Status.WARN, Status.FAIL) else "ok"
    return PathRecord(
        path=table.labels.get(one.path, ""),
        status=status.value,
        class_=one.class_ or rate,
        ports=one.ports,
        value=one.value,
    )


def _ports(ports: PortMatrix, table: Table) -> Iterator[Tried]:
    """By the worst outcome of a pair's ports."""
    by_way: dict[tuple[Pair, str], dict[str, set[int]]] = {}
    for one in ports.probes:
        way = (one.src, one.dst), table.at(one)
        by_way.setdefault(way, {}).setdefault(one.outcome, set()).add(one.port)
    for (ends, path), outcomes in by_way.items():
        worst = max(outcomes, key=lambda o: _badness(o, OUTCOMES))
        yield Tried(
            ends=ends,
            path=path,
            class_=worst,
            fine=worst in ("open", "in_use"),
            badness=_badness(worst, OUTCOMES),
            ports=tuple(sorted(outcomes[worst])),
        )


def _path_mtus(mtus: PathMtus, table: Table) -> Iterator[Tried]:
    for one in mtus.probes:
        yield Tried(
            ends=(one.src, one.dst),
            path=table.at(one),
            class_=one.outcome,
            fine=one.outcome == "ok",
            badness=_badness(one.outcome, MTU_OUTCOMES),
            value=one.largest_ok,
        )


def _badness(outcome: str, order: tuple[str, ...]) -> int:
    return order.index(outcome if outcome in order else "error")


def _tcp(tcp: TcpRates) -> Iterator[Tried]:
    """Each pair's last round, on each path."""
    for path, one in {"": tcp, **tcp.further}.items():
        last = {(r.src, r.dst): r.gbyte_s for r in one.rates}
        yield from (_rated(ends, path, None if rate is None else 8 * rate) for ends, rate in last.items())


def _torch(torch: PairRates | RdmaRates, per_gbyte: float = 1.0) -> Iterator[Tried]:
    """Each pair's slowest rail, in its last round."""
    latest = {(r.src, r.dst): r.round for r in torch.rates}
    slowest: dict[Pair, float] = {}
    for r in torch.rates:
        if r.round == latest[r.src, r.dst]:
            slowest[r.src, r.dst] = min(r.gbyte_s, slowest.get((r.src, r.dst), r.gbyte_s))
    yield from (_rated(ends, "", per_gbyte * rate) for ends, rate in slowest.items())


def _rated(ends: Pair, path: str, rate: float | None) -> Tried:
    value = None if rate is None else round(rate, 5)
    return Tried(ends=ends, path=path, fine=value is not None, badness=-(value or 0.0), value=value)


def _losses(losses: LossMatrix, table: Table) -> Iterator[Tried]:
    for one in losses.probes:
        if one.sent and one.arrived:
            lost = 100.0 * (one.sent - min(one.arrived, one.sent)) / one.sent
            path = table.at(one)
            ends = (one.src, one.dst)
            yield Tried(ends=ends, path=path, class_="measured", badness=lost, value=round(lost, 3))
