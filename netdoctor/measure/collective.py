"""The torch experiments: pairs in rounds and all-reduces, led over ranks that the agents start."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import msgspec

from netdoctor.facts.bandwidth import (
    AllReduce,
    Baseline,
    Collectives,
    Groups,
    Ladder,
    NcclTaken,
    PairRate,
    PairRates,
    Session,
    TcpRates,
)
from netdoctor.facts.base import Missing
from netdoctor.facts.expected_rate import ExpectedRate, NoExpectedRate
from netdoctor.facts.localisation import Decision, Kind, Round
from netdoctor.localise import decide, earlier
from netdoctor.measure import expectation
from netdoctor.measure.bandwidth import (
    KEPT_ROUNDS,
    LEAST_S,
    MOST_S,
    among_connected,
    in_rounds,
    leaves,
    limits,
    rounds_to_share,
)
from netdoctor.measure.common import read_as
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.gpus import MOST_GPUS
from netdoctor.measure.load.collectives import collectives, rows_of, sweep_wait_s
from netdoctor.measure.load.groups import groups, wait_s
from netdoctor.measure.load.ladder import ladder
from netdoctor.measure.ranks import (
    NO_DISTRIBUTED,
    RANK_S,
    START_S,
    STOP_S,
    Failed,
    Ranks,
    join_s,
    only_import,
)
from netdoctor.measure.roster import Roster, hardware_of, on_processors, roster_of

KIB, MIB, GIB = 1024, 1024**2, 1024**3
# Latency shows below 64 KiB, the link from 16 MiB on; NVSwitch machines need 1 GiB and more to fill up
# (nccl-tests issues 112 and 212).
SIZES_GLOO = (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
SIZES_NCCL = (32 * KIB, MIB, 16 * MIB, 128 * MIB, GIB, 4 * GIB)
# Sum, pattern and copy of the verification, and what the backend keeps beside.
COPIES = 4
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
WORDS_KEPT, WORD_CHARS = 16, 40


def _expected(reduced: AllReduce, parts: Mapping[str, expectation.Hardware]) -> AllReduce:
    """What the hardware should reach, with the term that sets it; why nothing is expected otherwise."""
    expected = expectation.all_reduce(parts)
    if isinstance(expected, NoExpectedRate):
        return replace(reduced, limited_by=expected.reason)
    return replace(
        reduced,
        expected_busbw_gbyte_s=expected.expected_gbyte_s,
        floor_busbw_gbyte_s=expected.floor_gbyte_s,
        bound_busbw_gbyte_s=expected.bound_gbyte_s,
        limited_by=expected.limit.name,
    )


class Received(msgspec.Struct):
    """One directed pair as its receiver reports it: bytes per second."""

    median: float
    least: float
    most: float
    busy: float = 0.0


class Sent(msgspec.Struct):
    """The same as its sender reports it."""

    busy: float = 0.0


def _bound_s(nodes: int, seconds: float) -> float:
    """Every step in its time, and one of them waited for in vain."""
    world = nodes * MOST_GPUS
    steps = SOLO_BUDGET_S + 1.5 * seconds  # the survivors go once more, for half of the time
    waits = max(
        _solo_wait_s(world),
        _pairs_wait_s(MOST_S, world),
        sweep_wait_s(seconds, world),
        wait_s(seconds, world),
    )
    return START_S + join_s(world) + steps + waits + STOP_S


def _pairs_wait_s(seconds: float, world: int) -> float:
    return seconds * 4 + 45.0 + world * RANK_S


def _solo_wait_s(world: int) -> float:
    return SOLO_WAIT_S + world * RANK_S


@experiment(
    after=["ports", "tcp_rates"],
    # Which interpreter has torch, whose GPUs are idle, and which nodes share a leaf.
    needs=["software", "gpu", "rdma", "cabling"],
    shares={"pair_rates": 0.35, "allreduce": 0.25, "collectives": 0.3, "ladder": 0.3, "groups": 0.3},
    bound_s=_bound_s,
    cost="loads-gpu",
    tells_lost=True,
)
def allreduce(
    context: Context,
) -> tuple[
    PairRates | Missing, AllReduce | Missing, Collectives | Missing, Ladder | Missing, Groups | Missing
]:
    """Torch starts on idle GPUs, on CPUs where nodes have none: all-reduces, pairs, collectives, more.

    Whichever have a share of the time share one start of ranks. What ranks could not do is in the facts.
    """
    context = among_connected(context)
    roster = roster_of(context)
    if isinstance(roster, Missing):
        return roster, roster, roster, roster, roster
    found = TorchRun(context, roster).measure()
    if isinstance(found, Missing):
        return found, found, found, found, found
    return found


class TorchRun:
    """One start of ranks, and what they measured so far."""

    def __init__(self, context: Context, roster: Roster) -> None:
        self.context = context
        self.roster = roster
        self.parts = hardware_of(context, roster)
        self.ranks = Ranks(
            context.transport,
            roster.layout,
            context.participants.addresses,
            roster.backend,
            roster.environments,
            context.limit_s,
        )
        self.session = Session(
            backend=roster.backend,
            ranks=tuple(roster.layout),
            ifname=roster.ifname,
            given_by=roster.given_by,
            address=context.participants.addresses[roster.layout[0]],
            left_out=roster.left_out,
            instead=on_processors(context, roster),
        )
        self.pairs = PairRates(session=self.session)
        self.reduced = _expected(AllReduce(), self.parts)
        self.collectives = Collectives()
        self.ladder = Ladder()
        self.groups = Groups()

    def measure(self) -> tuple[PairRates, AllReduce, Collectives, Ladder, Groups] | Missing:
        seconds = self.context.seconds
        try:
            self._start()
            if "allreduce" in seconds and self.roster.backend == "nccl":
                self._reduce_inside()
            if "pair_rates" in seconds:
                self.measure_pairs(seconds["pair_rates"])
            if "allreduce" in seconds:
                self._reduce(seconds["allreduce"])
                self._reduce_without_suspects(seconds["allreduce"] / 2)
            if "collectives" in seconds:
                # Last, and what fails in them is no trouble of the others.
                sizes, budget_s = self._sizes(), seconds["collectives"]
                self.collectives = collectives(self.ranks, self.session, sizes, budget_s)
            if "ladder" in seconds and not self.collectives.failed:
                self.ladder = ladder(self.ranks, self.session, seconds["ladder"])
            if "groups" in seconds and not self._ended().trouble:
                most_bytes = self.roster.memory_bytes // COPIES
                text, budget_s = self.context.job.groups, seconds["groups"]
                self.groups = groups(self.ranks, self.session, text, most_bytes, budget_s)
        except Failed as failed:
            if only_import(failed.troubles):
                return NO_DISTRIBUTED
            self.session = replace(self.session, trouble=failed.troubles)
        finally:
            self.ranks.stop()
        ended = self._ended()
        return (
            replace(self.pairs, session=self.session),
            replace(self.reduced, session=self.session),
            self.collectives if self.collectives.failed else replace(self.collectives, session=self.session),
            self.ladder if self.ladder.session.trouble else replace(self.ladder, session=ended),
            self.groups if self.groups.session.trouble else replace(self.groups, session=ended),
        )

    def _ended(self) -> Session:
        """With what has stopped the ranks: nothing runs on ranks that a collective has stopped."""
        for one in (self.collectives.session, self.ladder.session):
            if one.trouble:
                return one
        return self.session

    def _start(self) -> None:
        began, ranks = time.monotonic(), self.ranks
        ranks.start()
        ranks.join(self.session.address, self.context.participants.master_port)
        self.session = replace(
            self.session,
            port=ranks.port,
            port_busy=ranks.port_busy,
            torch=ranks.ranks[0].torch,
            start_s=time.monotonic() - began,
        )

    def _sizes(self) -> list[int]:
        nccl = self.roster.backend == "nccl"
        largest = self.roster.memory_bytes // COPIES
        if self.context.profile != "full":  # a launch wants to know in seconds
            largest = min(largest, GIB if nccl else 64 * MIB)
        sizes = SIZES_NCCL if nccl else SIZES_GLOO
        return [size for size in sizes if size <= largest] or [sizes[0]]

    def _step(self, wait_s: float, sizes: Sequence[int], budget_s: float, **more: Any) -> list[Any]:
        """All-reduces of these sizes: what each rank answered."""
        each_s = EACH_S[self.context.profile]
        return self.ranks.step("allreduce", wait_s, sizes=sizes, budget_s=budget_s, each_s=each_s, **more)

    def _reduce(self, budget_s: float) -> None:
        """All-reduces over all ranks."""
        wait_s = sweep_wait_s(budget_s, len(self.ranks.ranks))
        found = self._step(wait_s, self._sizes(), budget_s, without=[])
        rows = rows_of(self.ranks, found, range(len(found)), self.reduced.unread)
        words = nccl_words(self.ranks, found)
        self.reduced = replace(self.reduced, rows=rows, budget_s=budget_s, taken=words)

    def _reduce_inside(self) -> None:
        """All-reduces inside every node with several GPUs: what is slow there is no path's fault."""
        ranks = self.ranks
        numbers = {n: [r.number for r in ranks.on_node(n)] for n in ranks.nodes}
        if all(len(local) == 1 for local in numbers.values()) or len(numbers) == 1:
            return
        inside = [[len(list(same)), each] for each, same in groupby(map(len, numbers.values()))]
        wait_s = _solo_wait_s(len(ranks.ranks))
        found = self._step(wait_s, self._sizes()[-3:], SOLO_BUDGET_S, inside=inside)
        unread = self.reduced.unread
        solo = {n: rows_of(ranks, found, local, unread) for n, local in numbers.items() if len(local) > 1}
        expected = {n: expectation.all_reduce({n: self.parts[n]}) for n in solo}
        floors = {n: one.floor_gbyte_s for n, one in expected.items() if isinstance(one, ExpectedRate)}
        self.reduced = replace(self.reduced, solo=solo, solo_floor_gbyte_s=floors)

    def _reduce_without_suspects(self, budget_s: float) -> None:
        """All-reduces once more without the nodes that pairs, or else TCP streams, blame."""
        rates = (self.pairs, self.context.store.cluster_fact("tcp_rates"))
        measured = [one for one in rates if isinstance(one, PairRates | TcpRates) and one.rates]
        if not measured:
            return
        decision, ranks = decide(measured[0], leaves(self.context)), self.ranks.ranks
        blamed = {c.nodes[0] for c in decision.suspects if c.kind in (Kind.NODE, Kind.NIC) and c.nodes}
        numbers = [r.number for r in ranks if r.node not in blamed]
        names = tuple(dict.fromkeys(ranks[n].node for n in numbers))
        if not blamed or len(names) < 2 or len(numbers) == len(ranks):
            return
        without = [r.number for r in ranks if r.node in blamed]
        found = self._step(sweep_wait_s(budget_s, len(ranks)), self._sizes(), budget_s, without=without)
        rows = rows_of(self.ranks, found, numbers, self.reduced.unread)
        self.reduced = replace(self.reduced, survivors=names, survivor_rows=rows)

    def measure_pairs(self, budget_s: float) -> None:
        """Rounds of pairs, one direction at a time, with as many rails at once as every node has GPUs: more
        in some pairs than in others would share a NIC among more, and be no measure for each other."""
        ranks, context, backend = self.ranks, self.context, self.roster.backend
        nodes = list(ranks.nodes)
        if len(nodes) < 2:
            return
        rounds = rounds_to_share(len(nodes), budget_s, 2 * (LEAST_S + PAIR_OVERHEAD_S))
        seconds = min(max(budget_s / (2 * (rounds + KEPT_ROUNDS)) - PAIR_OVERHEAD_S, LEAST_S), MOST_S)
        leaf_of = leaves(context)
        rails = min(self.roster.counts.values())
        rates: list[PairRate] = []
        if backend == "gloo":  # what all NICs of a node carry says nothing of one GPU's share of them
            limiting = {n: term.expected_gbyte_s for n, term in limits(self.parts).items()}
            self.pairs = replace(self.pairs, expected_gbyte_s=limiting)

        def run(one: Round) -> None:
            for direction in (one.pairs, tuple((b, a) for a, b in one.pairs)):
                numbers = [
                    (src.number, dst.number)
                    for a, b in direction
                    for src, dst in zip(ranks.on_node(a)[:rails], ranks.on_node(b)[:rails], strict=True)
                ]
                found = ranks.step(
                    "pairs",
                    _pairs_wait_s(seconds, len(ranks.ranks)),
                    per_node=by_node(ranks, numbers),
                    seconds=seconds,
                    most_bytes=PAIR_BYTES_NCCL if backend == "nccl" else PAIR_BYTES_GLOO,
                )
                for src, dst in numbers:
                    rate = _pair_rate(ranks, src, dst, one.number, found, rails)
                    if rate is not None:
                        rates.append(rate)
                    else:
                        self.pairs.unread.setdefault(
                            ranks.ranks[dst].node, f"rank {dst} gave no readable rate"
                        )

        def judge() -> Decision:
            return decide(replace(self.pairs, rates=tuple(rates)), leaf_of)

        baseline = context.store.cluster_fact("baseline")
        comparable = isinstance(baseline, Baseline) and baseline.backend in ("", backend)
        then = baseline.pairs if comparable else ()
        each_s = 2 * (seconds + PAIR_OVERHEAD_S)
        done, planned = in_rounds(
            nodes, budget_s, each_s, run, judge, leaf_of, lambda: earlier.doubtful(rates, then)
        )
        self.pairs = replace(self.pairs, rates=tuple(rates), rounds=len(done), planned=planned)


class NcclWords(msgspec.Struct):
    """What a rank heard NCCL say."""

    networks: list[str] = []
    via: list[str] = []
    links: list[str] = []


def nccl_words(ranks: Ranks, found: Sequence[Any]) -> dict[str, NcclTaken]:
    """By node, over its ranks; a rank that heard nothing adds nothing."""
    by_node: dict[str, NcclWords] = {}
    for rank, answer in zip(ranks.ranks, found, strict=True):
        words = read_as(answer.get("nccl") if isinstance(answer, dict) else {}, NcclWords)
        if words is None:
            continue
        known = by_node.setdefault(rank.node, NcclWords())
        for listed, more in (
            (known.networks, words.networks),
            (known.via, words.via),
            (known.links, words.links),
        ):
            new = dict.fromkeys(word[:WORD_CHARS] for word in more[:WORDS_KEPT])
            listed.extend([word for word in new if word not in listed][: WORDS_KEPT - len(listed)])
    return {
        node: NcclTaken(networks=tuple(one.networks), via=tuple(one.via), links=tuple(one.links))
        for node, one in by_node.items()
        if one.networks or one.via or one.links
    }


def by_node(ranks: Ranks, pairs: Sequence[tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """For each node the pairs that its ranks are part of."""
    found: dict[str, dict[str, Any]] = {node: {"pairs": []} for node in ranks.nodes}
    for pair in pairs:
        for node in {ranks.ranks[number].node for number in pair}:
            found[node]["pairs"].append(list(pair))
    return found


def _pair_rate(
    ranks: Ranks, src: int, dst: int, number: int, found: Sequence[Any], rails: int
) -> PairRate | None:
    received, sent = read_as(found[dst], Received), read_as(found[src], Sent)
    if received is None or sent is None or not 0 < received.median < 1e15:
        return None
    local = [r.number for r in ranks.on_node(ranks.ranks[src].node)].index(src)
    return PairRate(
        src=ranks.ranks[src].node,
        dst=ranks.ranks[dst].node,
        round=number,
        gbyte_s=received.median / 1e9,
        rail=f"gpu{local}" if rails > 1 else None,
        least_gbyte_s=received.least / 1e9,
        most_gbyte_s=received.most / 1e9,
        # NCCL's own threads spin while they wait: theirs says nothing.
        busy=0.0 if ranks.backend == "nccl" else min(max(sent.busy, received.busy, 0.0), 1.0),
    )
