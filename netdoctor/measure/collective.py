"""The torch experiments: pairs in rounds and all-reduces, led over ranks that the agents start."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import msgspec

from netdoctor.facts.bandwidth import (
    NO_GPU,
    AllReduce,
    Baseline,
    NcclTaken,
    PairRate,
    PairRates,
    Session,
    SizeRow,
    TcpRates,
)
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.expected_rate import ExpectedRate, NoExpectedRate
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.localisation import Decision, Kind, Round
from netdoctor.facts.net import NetFacts
from netdoctor.facts.paths import GLOO, SOCKET, Paths
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import SoftwareFacts, no_torch
from netdoctor.localise import decide, earlier
from netdoctor.measure import expectation
from netdoctor.measure.bandwidth import (
    KEPT_ROUNDS,
    LEAST_S,
    MOST_S,
    among_connected,
    data_device,
    in_rounds,
    leaves,
    limits,
    socket_hardware,
    wanted_rounds,
)
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.gpus import MOST_GPUS, in_use, of_job
from netdoctor.measure.ranks import (
    NO_DISTRIBUTED,
    RANK_S,
    START_S,
    STOP_S,
    Failed,
    Ranks,
    join_s,
    only_import,
    passed_on,
)
from netdoctor.rules.nccl_ib import selected_ports
from netdoctor.rules.variables import effective_env, param, values

KIB, MIB, GIB = 1024, 1024**2, 1024**3
# Latency shows below 64 KiB, the link from 16 MiB on; NVSwitch machines need 1 GiB and more to fill up
# (nccl-tests issues 112 and 212).
SIZES_GLOO = (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
SIZES_NCCL = (32 * KIB, MIB, 16 * MIB, 128 * MIB, GIB, 4 * GIB)
# Sum, pattern and copy of the verification, and what the backend keeps beside.
COPIES = 4
# How much of the memory of a node all its ranks may take.
MEMORY_SHARE = 0.25
# Messages of a pair: what a link is full with.
PAIR_BYTES_GLOO = 4 * MIB
PAIR_BYTES_NCCL = 64 * MIB
PAIR_OVERHEAD_S = 0.4
# All-reduces inside every node: the time they get, and how long they are waited for.
SOLO_BUDGET_S = 4.0
SOLO_WAIT_S = 90.0
# How long one size may take: a launch wants to know in seconds, a full run wants a steady figure.
EACH_S = {"quick": 0.7, "launch": 0.7, "full": 3.0}

# Of what NCCL says, for one node.
SAID_WORDS, WORD_CHARS = 16, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Who takes part. counts[node] ranks; environments as the job would have them; memory_bytes per rank."""

    backend: str
    counts: dict[str, int]
    environments: dict[str, dict[str, str]]
    ifname: dict[str, str]
    given_by: str
    left_out: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = GIB

    @property
    def layout(self) -> list[str]:
        return [node for node, count in self.counts.items() for _ in range(count)]


def roster_of(context: Context) -> Roster | Missing:
    """The nodes that can run ranks, and how; or why there is nothing to run."""
    nodes = list(context.participants.usable())
    left_out: dict[str, str] = {}
    software = context.store.present("software", nodes)
    able = [n for n in nodes if isinstance(s := software.get(n), SoftwareFacts) and s.torch is not None]
    if not able:
        asked = [one for one in software.values() if isinstance(one, SoftwareFacts)]
        return Missing(Why.NOT_EXAMINED, no_torch(asked))
    some = set(able)
    left_out.update({n: "torch is not installed there" for n in nodes if n not in some})
    gpus = {n: of_job(context, n) for n in able}
    cuda = [n for n in able if gpus[n][0] and software[n].torch.cuda is not None]
    backend = "nccl" if cuda and context.job.backend != "gloo" else "gloo"
    if backend == "nccl":
        some = set(cuda)
        left_out.update({n: NO_GPU for n in able if n not in some})
        busy = {n: who for n in cuda if (who := in_use(gpus[n][1]))}
        left_out.update(busy)
        able = [n for n in cuda if n not in busy]
        if not able:
            return Missing(Why.NOT_EXAMINED, left_out[cuda[0]])
    counts = {n: gpus[n][0] if backend == "nccl" else 1 for n in able}
    master = context.job.master_node
    if master in counts:
        counts = {master: counts[master], **{n: c for n, c in counts.items() if n != master}}
    if sum(counts.values()) < 2:
        why = "one rank alone has nothing to reduce with"
        if left_out:
            return Missing(Why.NOT_EXAMINED, f"too few nodes are free for it: {'; '.join(left_out.values())}")
        return Missing(Why.NOT_APPLICABLE, why)
    ifname, environments, given = _environments(context, list(counts), backend)
    return Roster(
        backend=backend,
        counts=counts,
        environments=environments,
        ifname=ifname,
        given_by=given,
        left_out=left_out,
        memory_bytes=_memory(context, counts, {n: gpus[n][1] for n in counts} if backend == "nccl" else {}),
    )


def _instead(context: Context, chosen: Roster) -> str:
    """Why ranks are on processors, where torch is built for GPUs that are not driven here."""
    software = context.store.present("software", list(chosen.counts)).values()
    rocm = any(isinstance(one, SoftwareFacts) and one.torch and one.torch.hip for one in software)
    return "torch for ROCm ran gloo on processors, RCCL was not tried" if rocm else ""


def _environments(
    context: Context, nodes: Sequence[str], backend: str
) -> tuple[dict[str, str], dict[str, dict[str, str]], str]:
    """(interface by node, variables by node, who chose): the job's own choice where it made one."""
    variable = "NCCL_SOCKET_IFNAME" if backend == "nccl" else "GLOO_SOCKET_IFNAME"
    passed = passed_on(context.job)
    ifname: dict[str, str] = {}
    environments: dict[str, dict[str, str]] = {}
    given = "job"
    envs = context.store.present("env", nodes)
    sends = _sends(context, backend)
    for node in nodes:
        known = values(effective_env(envs.get(node), context.job))
        environments[node] = dict(passed)
        if len(known.get(variable, "")) > 1:
            ifname[node] = known[variable]
            continue
        on_paths = _on_paths(context, node, sends.get(node, ()))
        names = on_paths[: None if backend == "nccl" else 1] or filter(None, [data_device(context, node)])
        name = ",".join(names)
        if name:
            given = "netdoctor"
            ifname[node] = name
            environments[node][variable] = f"={name}" if backend == "nccl" else name
    return ifname, environments, given


def _sends(context: Context, backend: str) -> dict[str, set[str]]:
    """The addresses of each node that its backend would send from, by the job's paths."""
    paths, wanted = context.store.cluster_fact("paths"), SOCKET if backend == "nccl" else GLOO
    found: dict[str, set[str]] = {}
    for use in paths.uses if isinstance(paths, Paths) else ():
        if use.purpose.startswith(wanted):
            found.setdefault(use.node, set()).add(use.address)
    return found


def _on_paths(context: Context, node: str, sends: Collection[str]) -> list[str]:
    """The interfaces of the job's paths that its backend would send over: NCCL over all at once, gloo over
    the first, that of the own name. Nothing where it would over none that peers can dial."""
    paths = context.store.cluster_fact("paths")
    if not isinstance(paths, Paths):
        return []
    used = [path for path in paths.paths if path.addresses.get(node) in sends and node in path.ifnames]
    return list(dict.fromkeys(path.ifnames[node] for path in used))


def _memory(context: Context, counts: Mapping[str, int], gpus: Mapping[str, Sequence[Gpu]]) -> int:
    """Bytes that one rank may take for everything: of its GPU where `gpus` has one, else of its node."""
    room: list[int] = []
    for node, count in counts.items():
        host = context.store.get("host", node)
        if node in gpus:
            free = [(d.memory_total_bytes or 0) - (d.memory_used_bytes or 0) for d in gpus[node]]
            room.append(min(free, default=GIB) // 2)
        elif isinstance(host, HostFacts):
            # Nodes that share one machine share its memory.
            share = len(counts) if host.shares_machine else 1
            room.append(int((host.memory_available_bytes or GIB) * MEMORY_SHARE / count / share))
    return max(min(room, default=GIB), 16 * MIB)


def _hardware(context: Context, chosen: Roster) -> dict[str, expectation.Hardware]:
    """What each node brings to these ranks."""
    if chosen.backend == "gloo":
        own = chosen.ifname if chosen.given_by == "netdoctor" else {}
        return {n: socket_hardware(context, n, own.get(n)) for n in chosen.counts}
    found = {}
    for node, count in chosen.counts.items():
        env = values(effective_env(context.store.present("env", [node]).get(node), context.job))
        rdma, gpu = context.store.get("rdma", node), context.store.get("gpu", node)
        net, host = context.store.get("net", node), context.store.get("host", node)
        hcas: list[str] = []
        if isinstance(rdma, RdmaFacts) and param(env.get("NCCL_IB_DISABLE"), 0) == 0:
            picked = selected_ports(rdma.hcas, env.get("NCCL_IB_HCA"))
            hcas = [port.name for _, port in picked]
        found[node] = expectation.hardware(
            net=net if isinstance(net, NetFacts) else None,
            rdma=rdma if isinstance(rdma, RdmaFacts) else None,
            gpu=gpu if isinstance(gpu, GpuFacts) else None,
            host=host if isinstance(host, HostFacts) else None,
            ifname=data_device(context, node),
            hcas=hcas,
            gpus=count,
        )
    return found


def _expected(reduced: AllReduce, parts: Mapping[str, expectation.Hardware]) -> AllReduce:
    """What the hardware should reach, with the term that sets it; why nothing is expected otherwise."""
    whole = expectation.all_reduce(parts)
    if isinstance(whole, NoExpectedRate):
        return replace(reduced, limited_by=whole.reason)
    return replace(
        reduced,
        expected_busbw_gbyte_s=whole.expected_gbyte_s,
        floor_busbw_gbyte_s=whole.floor_gbyte_s,
        bound_busbw_gbyte_s=whole.bound_gbyte_s,
        limited_by=whole.limit.name,
    )


class Row(msgspec.Struct):
    """One size as a rank reports it."""

    size: int
    median_s: float
    least_s: float
    most_s: float
    batches: int
    iterations: int
    wrong: int = 0
    first_wrong: list[Any] | None = None


class Took(msgspec.Struct):
    """One directed pair as its receiver reports it: bytes per second."""

    median: float
    least: float
    most: float
    busy: float = 0.0


class Gave(msgspec.Struct):
    busy: float = 0.0


def _bound_s(nodes: int, seconds: float) -> float:
    """Every step in its time, and one of them waited for in vain."""
    world = nodes * MOST_GPUS
    steps = SOLO_BUDGET_S + 1.5 * seconds  # the survivors go once more, for half of the time
    waits = max(_solo_wait_s(world), _pairs_wait_s(MOST_S, world), _sweep_wait_s(seconds, world))
    return START_S + join_s(world) + steps + waits + STOP_S


def _pairs_wait_s(seconds: float, world: int) -> float:
    return seconds * 4 + 45.0 + world * RANK_S


def _solo_wait_s(world: int) -> float:
    return SOLO_WAIT_S + world * RANK_S


def _sweep_wait_s(budget_s: float, world: int) -> float:
    return budget_s * 2 + 60.0 + world * RANK_S


@experiment(
    after=["ports", "tcp_rates"],
    needs=["software", "gpu", "rdma"],  # which interpreter has torch, and whose GPUs are idle
    shares={"pair_rates": 0.35, "allreduce": 0.25},
    bound_s=_bound_s,
    cost="loads-gpu",
    tells_lost=True,
)
def allreduce(context: Context) -> tuple[PairRates | Missing, AllReduce | Missing]:
    """Torch starts on idle GPUs, on CPUs where nodes have none, and times all-reduces, or pairs, or both.

    Whichever have a share of the time share one start of ranks. What ranks could not do is in the facts.
    """
    context = among_connected(context)
    participants, seconds, profile = context.participants, context.seconds, context.profile
    chosen = roster_of(context)
    if isinstance(chosen, Missing):
        return chosen, chosen
    began = time.monotonic()
    layout = chosen.layout
    ranks = Ranks(
        context.transport,
        layout,
        participants.addresses,
        chosen.backend,
        chosen.environments,
        context.limit_s,
    )
    session = Session(
        backend=chosen.backend,
        ranks=tuple(layout),
        ifname=chosen.ifname,
        given_by=chosen.given_by,
        address=participants.addresses[layout[0]],
        left_out=chosen.left_out,
        instead=_instead(context, chosen),
    )
    parts = _hardware(context, chosen)
    pairs, reduced = PairRates(session=session), _expected(AllReduce(session=session), parts)
    try:
        ranks.start()
        ranks.join(session.address, participants.master_port)
        session = replace(
            session,
            port=ranks.port,
            port_busy=ranks.port_busy,
            torch=ranks.ranks[0].torch,
            start_s=time.monotonic() - began,
        )
        pairs, reduced = replace(pairs, session=session), replace(reduced, session=session)
        if "allreduce" in seconds and chosen.backend == "nccl":
            reduced = _solo(ranks, reduced, chosen, profile, parts)
        if "pair_rates" in seconds:
            pairs = _pairs(ranks, pairs, chosen, seconds["pair_rates"], parts, context)
        if "allreduce" in seconds:
            share = seconds["allreduce"]
            found = _swept(ranks, chosen, share, profile)
            rows = _rows(ranks, found, range(len(found)), reduced.unread)
            reduced = replace(reduced, rows=rows, budget_s=share, taken=_taken(ranks, found))
            tcp = context.store.cluster_fact("tcp_rates")
            told = next(
                (one for one in (pairs, tcp) if isinstance(one, PairRates | TcpRates) and one.rates), None
            )
            if told is not None:
                reduced = _survivors(
                    ranks, reduced, chosen, share / 2, profile, decide(told, leaves(context))
                )
    except Failed as failed:
        if only_import(failed.trouble):
            return NO_DISTRIBUTED, NO_DISTRIBUTED
        session = replace(session, trouble=failed.trouble)
        pairs, reduced = replace(pairs, session=session), replace(reduced, session=session)
    finally:
        ranks.stop()
    return pairs, reduced


def _sizes(chosen: Roster, profile: str) -> list[int]:
    sizes = SIZES_NCCL if chosen.backend == "nccl" else SIZES_GLOO
    most = chosen.memory_bytes // COPIES
    if profile != "full":  # a launch wants to know in seconds
        most = min(most, GIB if chosen.backend == "nccl" else 64 * MIB)
    return [size for size in sizes if size <= most] or [sizes[0]]


def _swept(
    ranks: Ranks, chosen: Roster, budget_s: float, profile: str, without: Sequence[int] = ()
) -> list[Any]:
    """All-reduces over all ranks, or without some: what each rank answered."""
    return ranks.step(
        "allreduce",
        _sweep_wait_s(budget_s, len(ranks.ranks)),
        sizes=_sizes(chosen, profile),
        budget_s=budget_s,
        each_s=EACH_S[profile],
        without=list(without),
    )


class Said(msgspec.Struct):
    """What a rank heard NCCL say."""

    networks: list[str] = []
    via: list[str] = []
    links: list[str] = []


def _taken(ranks: Ranks, found: Sequence[Any]) -> dict[str, NcclTaken]:
    """By node, over its ranks; a rank that heard nothing adds nothing."""
    words: dict[str, Said] = {}
    for rank, answer in zip(ranks.ranks, found, strict=True):
        try:
            said = msgspec.convert(answer.get("nccl") if isinstance(answer, dict) else {}, Said)
        except (msgspec.ValidationError, RecursionError):
            continue
        every = words.setdefault(rank.node, Said())
        for mine, theirs in (
            (every.networks, said.networks),
            (every.via, said.via),
            (every.links, said.links),
        ):
            new = dict.fromkeys(word[:WORD_CHARS] for word in theirs[:SAID_WORDS])
            mine.extend([word for word in new if word not in mine][: SAID_WORDS - len(mine)])
    return {
        node: NcclTaken(networks=tuple(one.networks), via=tuple(one.via), links=tuple(one.links))
        for node, one in words.items()
        if one.networks or one.via or one.links
    }


def _rows(
    ranks: Ranks, found: Sequence[Any], members: Sequence[int], unread: dict[str, str]
) -> tuple[SizeRow, ...]:
    """Times are the same on every rank (the slowest one's); what was wrong is each rank's own.

    A rank whose answer cannot be read, or misses a size, is put into `unread`: nobody verified its sums.
    """
    tables = {}
    for number in members:
        raw = found[number].get("rows") if isinstance(found[number], dict) else None
        try:
            tables[number] = msgspec.convert(raw, list[Row])
        except (msgspec.ValidationError, RecursionError):
            tables[number] = []
    n = len(members)
    told = len(tables[members[0]])
    for number, table in tables.items():
        if not table or len(table) < told:
            text = f"rank {number} tells of {len(table)} sizes" + (f" of {told}" if told else "")
            unread.setdefault(ranks.ranks[number].node, text)
    rows = []
    for at, row in enumerate(tables[members[0]]):
        if not (row.size > 0 and 0 < row.median_s < 1e6 and row.least_s > 0):
            unread.setdefault(ranks.ranks[members[0]].node, f"rank {members[0]} gives figures that cannot be")
            continue
        wrong: dict[str, int] = {}
        first = ""
        for number, table in tables.items():
            own = table[at] if at < len(table) else None
            if own is not None and own.wrong > 0:
                node = ranks.ranks[number].node
                wrong[node] = wrong.get(node, 0) + own.wrong
                first = first or f"rank {number}, {str(own.first_wrong)[:100]} (index, value, expected)"
        algbw = row.size / row.median_s / 1e9
        rows.append(
            SizeRow(
                size_bytes=row.size,
                median_s=row.median_s,
                least_s=row.least_s,
                most_s=row.most_s,
                batches=row.batches,
                iterations=row.iterations,
                algbw_gbyte_s=algbw,
                busbw_gbyte_s=algbw * 2 * (n - 1) / n,
                wrong=wrong,
                first_wrong=first,
            )
        )
    return tuple(rows)


def _solo(
    ranks: Ranks,
    reduced: AllReduce,
    chosen: Roster,
    profile: str,
    parts: Mapping[str, expectation.Hardware],
) -> AllReduce:
    """All-reduce inside every node with several GPUs: what is slow there is no path's fault."""
    places = {n: [r.number for r in ranks.of(n)] for n in ranks.nodes}
    if all(len(numbers) == 1 for numbers in places.values()) or len(places) == 1:
        return reduced
    found = ranks.step(
        "allreduce",
        _solo_wait_s(len(ranks.ranks)),
        sizes=_sizes(chosen, profile)[-3:],
        budget_s=SOLO_BUDGET_S,
        each_s=EACH_S[profile],
        inside=[[len(list(same)), each] for each, same in groupby(map(len, places.values()))],
    )
    solo = {
        n: _rows(ranks, found, numbers, reduced.unread) for n, numbers in places.items() if len(numbers) > 1
    }
    wanted = {n: expectation.all_reduce({n: parts[n]}) for n in solo}
    floors = {n: w.floor_gbyte_s for n, w in wanted.items() if isinstance(w, ExpectedRate)}
    return replace(reduced, solo=solo, solo_floor_gbyte_s=floors)


def _survivors(
    ranks: Ranks, reduced: AllReduce, chosen: Roster, budget_s: float, profile: str, decision: Decision
) -> AllReduce:
    """Once more without the nodes that the pairs blame."""
    blamed = {c.nodes[0] for c in decision.suspects if c.kind in (Kind.NODE, Kind.NIC) and c.nodes}
    numbers = [r.number for r in ranks.ranks if r.node not in blamed]
    if not blamed or len({ranks.ranks[n].node for n in numbers}) < 2 or len(numbers) == len(ranks.ranks):
        return reduced
    gone = [r.number for r in ranks.ranks if r.node in blamed]
    found = _swept(ranks, chosen, budget_s, profile, gone)
    rows = _rows(ranks, found, numbers, reduced.unread)
    names = tuple(dict.fromkeys(ranks.ranks[n].node for n in numbers))
    return replace(reduced, survivors=names, survivor_rows=rows)


def _pairs(
    ranks: Ranks,
    pairs: PairRates,
    chosen: Roster,
    budget_s: float,
    parts: Mapping[str, expectation.Hardware],
    context: Context,
) -> PairRates:
    """Rounds of pairs, one direction at a time, with as many rails at once as every node has GPUs: more in
    some pairs than in others would share a NIC among more, and be no measure for each other."""
    nodes = list(ranks.nodes)
    if len(nodes) < 2:
        return pairs
    whole = wanted_rounds(len(nodes), budget_s, 2 * (LEAST_S + PAIR_OVERHEAD_S))
    seconds = min(max(budget_s / (2 * (whole + KEPT_ROUNDS)) - PAIR_OVERHEAD_S, LEAST_S), MOST_S)
    each_s = 2 * (seconds + PAIR_OVERHEAD_S)
    of = leaves(context)
    most = PAIR_BYTES_NCCL if chosen.backend == "nccl" else PAIR_BYTES_GLOO
    rails = min(chosen.counts.values())
    rates: list[PairRate] = []
    if chosen.backend == "gloo":  # what all NICs of a node carry says nothing of one GPU's share of them
        own = {n: term.expected_gbyte_s for n, term in limits(parts).items()}
        pairs = replace(pairs, expected_gbyte_s=own)

    def run(one: Round) -> None:
        for both in (one.pairs, tuple((b, a) for a, b in one.pairs)):
            asked = [
                (src.number, dst.number)
                for a, b in both
                for src, dst in zip(ranks.of(a)[:rails], ranks.of(b)[:rails], strict=True)
            ]
            found = ranks.step(
                "pairs",
                _pairs_wait_s(seconds, len(ranks.ranks)),
                of=_by_node(ranks, asked),
                seconds=seconds,
                most_bytes=most,
            )
            for src, dst in asked:
                rate = _pair_rate(ranks, src, dst, one.number, found, rails)
                if rate is not None:
                    rates.append(rate)
                else:
                    pairs.unread.setdefault(ranks.ranks[dst].node, f"rank {dst} gave no readable rate")

    def judge() -> Decision:
        return decide(replace(pairs, rates=tuple(rates)), of)

    baseline = context.store.cluster_fact("baseline")
    comparable = isinstance(baseline, Baseline) and baseline.backend in ("", chosen.backend)
    then = baseline.pairs if comparable else ()
    done, planned = in_rounds(nodes, budget_s, each_s, run, judge, of, lambda: earlier.doubtful(rates, then))
    return replace(pairs, rates=tuple(rates), rounds=len(done), planned=planned)


def _by_node(ranks: Ranks, asked: Sequence[tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """For each node the pairs that its ranks are part of."""
    found: dict[str, dict[str, Any]] = {node: {"pairs": []} for node in ranks.nodes}
    for pair in asked:
        for node in {ranks.ranks[number].node for number in pair}:
            found[node]["pairs"].append(list(pair))
    return found


def _pair_rate(
    ranks: Ranks, src: int, dst: int, number: int, found: Sequence[Any], rails: int
) -> PairRate | None:
    try:
        took = msgspec.convert(found[dst], Took)
        gave = msgspec.convert(found[src], Gave)
    except (msgspec.ValidationError, RecursionError):
        return None
    if not 0 < took.median < 1e15:
        return None
    place = [r.number for r in ranks.of(ranks.ranks[src].node)].index(src)
    return PairRate(
        src=ranks.ranks[src].node,
        dst=ranks.ranks[dst].node,
        round=number,
        gbyte_s=took.median / 1e9,
        rail=f"gpu{place}" if rails > 1 else None,
        least_gbyte_s=took.least / 1e9,
        most_gbyte_s=took.most / 1e9,
        # NCCL's own threads spin while they wait: theirs says nothing.
        busy=0.0 if ranks.backend == "nccl" else min(max(gave.busy, took.busy, 0.0), 1.0),
    )
