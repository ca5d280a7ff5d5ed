"""TCP throughput between agents: pairs in rounds, one direction at a time, extra rounds for what is
undecided."""

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdoctor.facts.bandwidth import PairRate, TcpRate, TcpRates
from netdoctor.facts.expectation import Expectation
from netdoctor.facts.host import HostFacts, Node
from netdoctor.facts.localisation import Decision, PairSample, Round
from netdoctor.facts.net import NetFacts, PortMatrix
from netdoctor.facts.software import Job
from netdoctor.localise.decode import decode
from netdoctor.measure import expectation
from netdoctor.measure.common import NO_ADDRESS, Caller, Ground, reason, replies, token
from netdoctor.measure.schedule import FIRST_ROUNDS, first_rounds, follow_up
from netdoctor.store import Store
from netdoctor.transport.base import Reply, Request

STREAMS = 4
# Slow start and a token bucket's first fill (64 KiB at 50 Mbit/s last 10 ms) are over by then.
OMIT_S = 0.25
LEAST_S = 0.4
MOST_S = 2.0
# What a direction costs beside its own time: connecting, asking, waiting for the last report.
OVERHEAD_S = 0.3
# Up to this many nodes every pair is met, time permitting: a path that nobody measured cannot be found.
ALL_PAIRS_UP_TO = 16
MOST_ROUNDS = 6
KEPT_ROUNDS = 2
# From here on the sender's threads hardly ever waited for the network: the rate is the machine's.
BUSY = 0.6
# How far below the better rates of busy machines that may be: cores are lent to other programs, and a machine
# that a slow link keeps waiting looks busy too when it waits for a core each time. On lab nodes that share
# two cores healthy rates of one moment lay within 0.7 of each other, those behind 5 of 17 Gbit/s at 0.25 to
# 0.33.
LENT = 0.4
# However much that wavers, half of what is usual has to show.
MOST_NOISE = 0.15
# Beyond any network, so a node that says so is wrong.
MOST_GBYTE_S = 10_000.0


# Seconds for all experiments of a profile together, unless --budget says otherwise.
BUDGET_S = {"quick": 20.0, "launch": 20.0, "full": 120.0}
# How they share it. Pairs come first in a full run, because they name the culprit.
WEIGHTS = {"tcp_rates": 0.4, "pair_rates": 0.35, "allreduce": 0.25}


def shares(parts: Sequence[str], budget_s: float) -> dict[str, float]:
    """Seconds for each experiment that is wanted."""
    total = sum(WEIGHTS[part] for part in parts)
    return {part: budget_s * WEIGHTS[part] / total for part in parts}


def connected(nodes: Sequence[str], matrix: Any) -> list[str]:
    """The nodes that all reach each other, by the port matrix: without those that most trouble is at.

    Without a matrix, all of them. A collective needs every pair, and a node behind a firewall would only
    cost everybody a timeout.
    """
    left = list(nodes)
    if not isinstance(matrix, PortMatrix):
        return left
    bad = {
        (p.src, p.dst) for p in matrix.probes if p.outcome in ("filtered", "rejected", "refused", "no_route")
    }
    while True:
        trouble = Counter(n for src, dst in bad if src in left and dst in left for n in (src, dst))
        if not trouble:
            return left
        worst = max(trouble.values())
        left.remove(next(n for n in reversed(left) if trouble[n] == worst))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the experiments of one scan share: who takes part, what is known of them, how long each may
    take."""

    ground: Ground
    store: Store
    job: Job
    shares: Mapping[str, float]


def leaves(plan: Plan) -> dict[str, str]:
    """The leaf switch of each node whose line in the hosts file names one."""
    found = {}
    for node in plan.ground.nodes:
        listed = plan.store.get("node", node)
        if isinstance(listed, Node) and listed.leaf is not None:
            found[node] = listed.leaf
    return found


def data_device(plan: Plan, node: str) -> str | None:
    """The interface that holds the node's data address."""
    net = plan.store.get("net", node)
    rows = net.addresses if isinstance(net, NetFacts) else ()
    return next((row.ifname for row in rows if row.address == plan.ground.addresses.get(node)), None)


def socket_hardware(plan: Plan, node: str) -> expectation.Hardware:
    """What the node brings to an experiment over TCP."""
    net, host = plan.store.get("net", node), plan.store.get("host", node)
    return expectation.hardware(
        net=net if isinstance(net, NetFacts) else None,
        host=host if isinstance(host, HostFacts) else None,
        ifname=data_device(plan, node),
    )


def pair_expectations(parts: Mapping[str, expectation.Hardware]) -> dict[tuple[str, str], float]:
    """GB/s that each pair should reach, for the localiser; pairs of unknown hardware are left out."""
    known = [node for node, part in parts.items() if part.network]
    return {
        (a, b): found.expected_gbyte_s
        for i, a in enumerate(known)
        for b in known[i + 1 :]
        if isinstance(found := expectation.pair(parts[a], parts[b]), Expectation)
    }


def planned_rounds(nodes: Sequence[str], budget_s: float, each_s: float) -> int:
    """How many rounds to begin with: all pairs in a small cluster, a few partners per node in a large
    one."""
    whole = len(nodes) - 1 + len(nodes) % 2
    wanted = whole if len(nodes) <= ALL_PAIRS_UP_TO else FIRST_ROUNDS
    return max(1, min(wanted, int(budget_s / each_s) - KEPT_ROUNDS))


def in_rounds(
    nodes: Sequence[str],
    budget_s: float,
    each_s: float,
    run: Callable[[Round], None],
    judge: Callable[[], Decision],
    leaves: Mapping[str, str],
) -> tuple[list[Round], int]:
    """Run the first rounds and then follow-ups while something is undecided and time is left.

    Returns the rounds done, and how many were planned without follow-ups.
    """
    end = time.monotonic() + budget_s
    planned = planned_rounds(nodes, budget_s, each_s)
    # Where all pairs are met anyway, leaves have nothing to arrange.
    hint = leaves if planned < len(nodes) - 1 + len(nodes) % 2 else None
    first = first_rounds(nodes, hint, seed=1, rounds=planned)
    done: list[Round] = []
    for one in first:
        # The first round always runs: it is what the budget was asked for.
        if done and time.monotonic() + each_s > end:
            return done, len(first)
        run(one)
        done.append(one)
    most = max(len(first) + KEPT_ROUNDS, MOST_ROUNDS)
    while time.monotonic() + each_s <= end:
        more = follow_up(judge(), nodes, done, at_most=most, leaves=leaves)
        if more is None:
            break
        run(more)
        done.append(more)
    return done, len(first)


def measure_tcp(transport: Caller, plan: Plan) -> TcpRates:
    """Every pair of a small cluster, a few partners per node in a large one, both directions separately."""
    ground, budget_s = plan.ground, plan.shares["tcp_rates"]
    nodes = ground.usable()
    failed: dict[str, str] = {n: NO_ADDRESS for n in ground.nodes if n not in nodes}
    if len(nodes) < 2:
        return TcpRates(failed_nodes=failed)
    word = token()
    ports = _serve(transport, ground, nodes, word, budget_s, failed)
    nodes = [n for n in nodes if n in ports]
    if len(nodes) < 2:
        return TcpRates(failed_nodes=failed)
    whole = len(nodes) - 1 + len(nodes) % 2 if len(nodes) <= ALL_PAIRS_UP_TO else FIRST_ROUNDS
    # Two rounds are kept for what the first ones leave undecided.
    seconds = min(max(budget_s / (2 * (whole + KEPT_ROUNDS)) - OVERHEAD_S - OMIT_S, LEAST_S), MOST_S)
    each_s = 2 * (seconds + OMIT_S + OVERHEAD_S)
    rates: list[TcpRate] = []
    parts = {n: socket_hardware(plan, n) for n in nodes}
    expected = pair_expectations(parts)
    of = leaves(plan)
    own = {n: min(parts[n].network, key=lambda t: t.expected_gbyte_s) for n in nodes if parts[n].network}

    def run(one: Round) -> None:
        for pairs in (one.pairs, tuple((b, a) for a, b in one.pairs)):
            alive = [(a, b) for a, b in pairs if a not in failed and b not in failed]
            rates.extend(_direction(transport, ground, ports, word, one.number, alive, seconds, failed))

    def judge() -> Decision:
        return decided(rates, nodes, of, expected)

    done, planned = in_rounds(nodes, budget_s, each_s, run, judge, of)
    for _ in replies(transport, {n: Request(op="unlisten", timeout_s=5.0) for n in nodes}):
        pass
    return TcpRates(
        rates=tuple(rates),
        decision=judge() if rates else None,
        streams=STREAMS,
        seconds=seconds,
        rounds=len(done),
        planned=planned,
        expected_gbyte_s={n: term.expected_gbyte_s for n, term in own.items()},
        limited_by={n: term.name for n, term in own.items()},
        failed_nodes=failed,
    )


@dataclass(frozen=True, slots=True)
class Cleared:
    """Rates as the network alone would have had them, in order; noise: relative width of those levelled."""

    values: tuple[float | None, ...]
    noise: float


def network_rates(rates: Sequence[TcpRate | PairRate]) -> Cleared:
    """What the rates say of the network.

    A rate that a machine's own CPU set says only that the way is no slower. It counts as the usual one of
    its kind: as a mere floor it would clear nobody where all healthy pairs are like it, on a lab whose nodes
    share two cores or behind links that outrun a core, and the one slow link would have nothing to be
    compared with.

    Is it really the CPU's? Pairs that ran at the same time may share cores, and the more of them do, the less
    each gets. So a rate is held against those of moments with at least as many busy pairs.
    """
    first: dict[tuple[int, frozenset[str]], str] = {}  # who sends in the first half of a round
    moments = []
    for r in rates:
        sender = first.setdefault((r.round, frozenset((r.src, r.dst))), r.src)
        moments.append((r.round, r.src == sender))
    busy = [r.gbyte_s or 0.0 if r.busy >= BUSY else 0.0 for r in rates]
    crowd = Counter(moment for moment, rate in zip(moments, busy, strict=True) if rate)
    crowds: dict[int, list[float]] = {}
    for moment, rate in zip(moments, busy, strict=True):
        if rate:
            crowds.setdefault(crowd[moment], []).append(rate)
    least: dict[int, float] = {}
    for count in crowds:
        peers = sorted(v for other, values in crowds.items() if other >= count for v in values)
        least[count] = LENT * peers[3 * len(peers) // 4]
    limited = [
        rate if rate and rate >= least[crowd[moment]] else 0.0
        for moment, rate in zip(moments, busy, strict=True)
    ]
    if not any(limited):
        return Cleared(tuple(r.gbyte_s for r in rates), 0.0)
    kept = {count: statistics.median(values) for count, values in crowds.items()}
    off = [abs(math.log(v / kept[crowd[m]])) for v, m in zip(limited, moments, strict=True) if v]
    others = sorted(r.gbyte_s for r, v in zip(rates, limited, strict=True) if not v and r.gbyte_s is not None)
    usual = statistics.median(v for v in limited if v)
    if others:  # not the best of them: one stroke of luck makes no rule
        usual = max(usual, others[3 * (len(others) - 1) // 4])
    values = tuple(usual if v else r.gbyte_s for r, v in zip(rates, limited, strict=True))
    # The standard deviation by the median of the deviations.
    return Cleared(values, min(1.4826 * statistics.median(off), MOST_NOISE))


def decided(
    rates: Sequence[TcpRate | PairRate],
    nodes: Sequence[str],
    leaf_of: Mapping[str, str],
    expected_gbyte_s: Mapping[tuple[str, str], float],
) -> Decision:
    """What the localiser makes of these rates."""
    cleared = network_rates(rates)
    samples = [
        PairSample(r.src, r.dst, value, "out", getattr(r, "rail", None), r.round)
        for r, value in zip(rates, cleared.values, strict=True)
    ]
    return decode(
        samples, nodes=nodes, leaves=leaf_of, expected_gbyte_s=expected_gbyte_s, least_noise=cleared.noise
    )


def _serve(
    transport: Caller,
    ground: Ground,
    nodes: Sequence[str],
    word: str,
    budget_s: float,
    failed: dict[str, str],
) -> dict[str, int]:
    requests = {
        n: Request(
            op="stream_serve",
            args={"address": ground.addresses[n], "token": word, "ttl_s": budget_s * 2 + 120.0},
            timeout_s=10.0,
        )
        for n in nodes
    }
    ports: dict[str, int] = {}
    for reply in replies(transport, requests):
        result = reply.result if isinstance(reply.result, dict) else {}
        port = result.get("port")
        if isinstance(port, int) and 0 < port < 65536 and not result.get("error"):
            ports[reply.node] = port
        else:
            failed[reply.node] = (
                f"could not receive streams: {str(result.get('error') or reason(reply))[:200]}"
            )
    return {n: ports[n] for n in nodes if n in ports}


def _direction(
    transport: Caller,
    ground: Ground,
    ports: Mapping[str, int],
    word: str,
    number: int,
    pairs: Sequence[tuple[str, str]],
    seconds: float,
    failed: dict[str, str],
) -> list[TcpRate]:
    """All pairs of a round at once, from the first node of each to the second."""
    requests: dict[str, Request] = {}
    for src, dst in pairs:
        # Node ids may hold anything; a place in the list is a name that is safe everywhere.
        name = f"r{number}.{sorted(ports).index(src)}.{sorted(ports).index(dst)}"
        common: dict[str, Any] = {"token": word, "session": name}
        timeout_s = seconds + OMIT_S + 20.0
        requests[src] = Request(
            op="stream_send",
            args={
                **common,
                "address": ground.addresses[dst],
                "port": ports[dst],
                "streams": STREAMS,
                "seconds": seconds,
                "omit_s": OMIT_S,
            },
            timeout_s=timeout_s,
        )
        requests[dst] = Request(
            op="stream_receive",
            args={**common, "wait_s": seconds + OMIT_S + 8.0},
            timeout_s=timeout_s,
        )
    answers: dict[str, Reply] = {}
    for reply in replies(transport, requests):
        answers[reply.node] = reply
        if reply.missing is not None:
            failed.setdefault(reply.node, reason(reply))
    found = []
    for src, dst in pairs:
        if src in failed or dst in failed:
            continue  # nobody's fault but that of the node that is gone
        rate = _rate(src, dst, number, answers[src].result, answers[dst].result)
        if isinstance(rate, str):
            failed.setdefault(dst, rate)
        else:
            found.append(rate)
    return found


def _rate(src: str, dst: str, number: int, sent: Any, got: Any) -> TcpRate | str:
    """What both ends say of one direction, or why it cannot be read."""
    if not isinstance(sent, dict) or not isinstance(got, dict):
        return "unreadable answer"
    try:
        took = float(got.get("seconds") or 0.0)
        moved = float(got.get("bytes") or 0.0)
        tenths = sorted(float(v) for v in got.get("rates") or [])
        if not (0 <= moved <= MOST_GBYTE_S * 1e9 * took and 0 <= took < 3600):
            return "unreadable answer: figures that cannot be"
        counts = [
            None if sent.get(k) is None else int(sent[k]) for k in ("retransmits", "segments", "rtt_us")
        ]
        busy = max(float(sent.get("busy") or 0.0), float(sent.get("held") or 0.0))
    except (TypeError, ValueError, OverflowError) as error:
        return f"unreadable answer: {error}"
    value = moved / took / 1e9 if took > 0 and moved > 0 else None
    spread = 0.0
    if len(tenths) >= 4 and statistics.median(tenths) > 0:
        quarter = len(tenths) // 4
        spread = (tenths[-1 - quarter] - tenths[quarter]) / statistics.median(tenths)
    detail = "; ".join(str(e)[:200] for e in (sent.get("error"), got.get("error")) if e)
    return TcpRate(
        src=src,
        dst=dst,
        round=number,
        gbyte_s=value,
        seconds=took,
        spread=spread,
        retransmits=counts[0],
        segments=counts[1],
        rtt_us=counts[2],
        busy=min(busy, 1.0),
        detail=detail,
    )
