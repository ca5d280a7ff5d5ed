"""TCP throughput between agents: pairs in rounds, one direction at a time, extra rounds for what is
undecided."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any

from netdoctor.facts.bandwidth import Baseline, TcpRate, TcpRates
from netdoctor.facts.expected_rate import Term
from netdoctor.facts.localisation import Decision, Round
from netdoctor.facts.net import PortMatrix
from netdoctor.facts.paths import GLOO, MAIN, SOCKET, Paths
from netdoctor.localise import decide, earlier
from netdoctor.measure import expectation
from netdoctor.measure.common import (
    CLOSE_S,
    NO_ADDRESS,
    Caller,
    Participants,
    ask,
    close_listeners,
    reason,
    replies,
    token,
)
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.schedule import FIRST_ROUNDS, first_rounds, follow_up
from netdoctor.transport.base import Reply, Request

STREAMS = 4
# Slow start and a token bucket's first fill (64 KiB at 50 Mbit/s last 10 ms) are over by then.
OMIT_S = 0.25
LEAST_S = 0.4
MOST_S = 2.0
# What a direction costs beside its own time: connecting, asking, waiting for the last report.
OVERHEAD_S = 0.3
# Up to this many nodes every pair is met, time permitting, and beyond where the budget has that much time: a
# path that nobody measured cannot be found.
ALL_PAIRS_UP_TO = 16
MOST_ROUNDS = 6
KEPT_ROUNDS = 2
# A budget that was divided by rounds holds that many of them.
ROUNDING = 1 + 1e-9
# Beyond any network, so a node that says so is wrong.
MOST_GBYTE_S = 10_000.0
SERVE_S = 10.0
# What a direction may take longer than planned: both ends wait for each other that long.
LATE_S = 20.0


def connected(nodes: Sequence[str], matrix: Any, addresses: Mapping[str, str] | None = None) -> list[str]:
    """The nodes that all reach each other, by the port matrix: without those that most trouble is at.

    Without a matrix, all of them. A collective needs every pair, and a node behind a firewall would only
    cost everybody a timeout. addresses: the path that counts, by node; None: all that were tried.
    """
    if not isinstance(matrix, PortMatrix):
        return list(nodes)
    position = {node: i for i, node in enumerate(nodes)}
    bad = {
        (p.src, p.dst)
        for p in matrix.probes
        if p.outcome in ("filtered", "rejected", "refused", "no_route")
        and (addresses is None or p.address == addresses.get(p.dst))
        and p.src in position
        and p.dst in position
    }
    others: dict[str, list[str]] = {}
    for src, dst in bad:
        others.setdefault(src, []).append(dst)
        others.setdefault(dst, []).append(src)
    failures = {node: len(ends) for node, ends in others.items()}
    left_out: set[str] = set()
    # The worst first, of equals the last; whose trouble grew less since is met again further down.
    worst = [(-count, -position[node], node) for node, count in failures.items()]
    heapify(worst)
    while worst:
        count, _, node = heappop(worst)
        if node in left_out or -count != failures[node]:
            continue
        left_out.add(node)
        for other in others[node]:
            if other not in left_out:
                failures[other] -= 1
                if failures[other]:
                    heappush(worst, (-failures[other], -position[other], other))
    return [node for node in nodes if node not in left_out]


def among_connected(context: Context) -> Context:
    """The same with only the nodes that all reach each other; the others wait for what stops them."""
    nodes = connected(context.participants.usable(), context.store.cluster_fact("ports"))
    return replace(context, participants=replace(context.participants, nodes=tuple(nodes)))


def on_paths(context: Context) -> Iterator[tuple[str, Context]]:
    """The context for each path that carries data between nodes, by its id, the main one first."""
    yield MAIN, context
    participants, paths = context.participants, context.store.cluster_fact("paths")
    for path in paths.further if isinstance(paths, Paths) else ():
        data = {(use.node, use.address) for use in paths.uses if use.purpose.startswith((GLOO, SOCKET))}
        addresses = {node: address for node, address in path.addresses.items() if (node, address) in data}
        nodes = tuple(node for node in participants.nodes if node in addresses)
        if len(nodes) > 1:
            yield (
                path.id,
                replace(context, participants=replace(participants, nodes=nodes, addresses=addresses)),
            )


def leaves(context: Context) -> dict[str, str]:
    """The leaf switch of each node of which one is known."""
    listed = context.store.present("node", context.participants.nodes)
    return {node: one.leaf for node, one in listed.items() if one.leaf is not None}


def data_device(context: Context, node: str) -> str | None:
    """The interface that holds the node's data address."""
    net = context.store.get_or_none("net", node)
    rows = net.addresses if net else ()
    return next((row.ifname for row in rows if row.address == context.participants.addresses.get(node)), None)


def socket_hardware(context: Context, node: str, ifname: str | None = None) -> expectation.Hardware:
    """What the node brings to an experiment over TCP, over this interface or that of its data address."""
    return expectation.hardware(
        net=context.store.get_or_none("net", node),
        host=context.store.get_or_none("host", node),
        ifname=ifname or data_device(context, node),
    )


def limits(parts: Mapping[str, expectation.Hardware]) -> dict[str, Term]:
    """What lets each node expect least of its network; nodes of unknown hardware are left out."""
    return {n: min(one.network, key=lambda t: t.expected_gbyte_s) for n, one in parts.items() if one.network}


def rounds_to_share(nodes: int, budget_s: float, least_s: float) -> int:
    """How many rounds the budget is shared out among: all pairs in a small cluster, and wherever it holds
    them at `least_s` a round; else a few partners per node."""
    all_rounds = nodes - 1 + nodes % 2
    holds_all = (all_rounds + KEPT_ROUNDS) * least_s <= budget_s * ROUNDING
    return all_rounds if nodes <= ALL_PAIRS_UP_TO or holds_all else FIRST_ROUNDS


def planned_rounds(nodes: Sequence[str], budget_s: float, each_s: float) -> int:
    """How many of them to begin with: what is left undecided gets rounds of its own."""
    room = int(budget_s * ROUNDING / each_s) - KEPT_ROUNDS
    return max(1, min(rounds_to_share(len(nodes), budget_s, each_s), room))


def in_rounds(
    nodes: Sequence[str],
    budget_s: float,
    each_s: float,
    run: Callable[[Round], None],
    judge: Callable[[], Decision],
    leaves: Mapping[str, str],
    doubtful: Callable[[], Sequence[tuple[str, str]]] = tuple,
) -> tuple[list[Round], int]:
    """Run the first rounds and then follow-ups while something is undecided and time is left.

    doubtful: pairs that one moment is not enough for, whatever the decision is.
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
        more = follow_up(judge(), nodes, done, at_most=most, leaves=leaves, doubtful=doubtful())
        if more is None:
            break
        run(more)
        done.append(more)
    return done, len(first)


@experiment(
    after=["ports"],
    needs=["cabling"],
    shares={"tcp_rates": 0.4},
    # The last round may begin just before the end.
    bound_s=lambda nodes, seconds: SERVE_S + seconds + 2 * (MOST_S + OMIT_S + LATE_S) + CLOSE_S,
    cost="opens-port",
)
def tcp(context: Context) -> TcpRates:
    """Streams in rounds of pairs: all of them in a small cluster or a large budget, else a few a node."""
    contexts = list(on_paths(context))
    (_, main), *further = [(name, _streams(one, len(contexts))) for name, one in contexts]
    return replace(main, further=dict(further))


def _streams(context: Context, paths: int) -> TcpRates:
    """What streams reach on one path, in its part of the budget of so many."""
    transport, participants = context.transport, context.participants
    budget_s = context.seconds["tcp_rates"] / paths
    nodes = connected(participants.usable(), context.store.cluster_fact("ports"), participants.addresses)
    failed: dict[str, str] = {n: NO_ADDRESS for n in participants.nodes if n not in participants.addresses}
    if len(nodes) < 2:
        return TcpRates(failed_nodes=failed)
    word = token()
    ports = _serve(transport, participants, nodes, word, budget_s, failed)
    nodes = [n for n in nodes if n in ports]
    if len(nodes) < 2:
        return TcpRates(failed_nodes=failed)
    rounds = rounds_to_share(len(nodes), budget_s, 2 * (LEAST_S + OMIT_S + OVERHEAD_S))
    # Two rounds are kept for what the first ones leave undecided.
    seconds = min(max(budget_s / (2 * (rounds + KEPT_ROUNDS)) - OVERHEAD_S - OMIT_S, LEAST_S), MOST_S)
    each_s = 2 * (seconds + OMIT_S + OVERHEAD_S)
    rates: list[TcpRate] = []
    limiting = limits({n: socket_hardware(context, n) for n in nodes})
    leaf_of = leaves(context)
    measured = TcpRates(
        nodes=tuple(nodes),
        streams=STREAMS,
        seconds=seconds,
        expected_gbyte_s={n: term.expected_gbyte_s for n, term in limiting.items()},
        limited_by={n: term.name for n, term in limiting.items()},
    )

    def run(one: Round) -> None:
        for pairs in (one.pairs, tuple((b, a) for a, b in one.pairs)):
            alive = [(a, b) for a, b in pairs if a not in failed and b not in failed]
            rates.extend(_direction(transport, participants, ports, word, one.number, alive, seconds, failed))

    def judge() -> Decision:
        return decide(replace(measured, rates=tuple(rates)), leaf_of)

    baseline = context.store.cluster_fact("baseline")
    # An earlier report has rates of the main path.
    then = (
        baseline.tcp
        if isinstance(baseline, Baseline) and participants.addresses == context.job.data_addresses
        else ()
    )
    done, planned = in_rounds(
        nodes, budget_s, each_s, run, judge, leaf_of, lambda: earlier.doubtful(rates, then)
    )
    close_listeners(transport, nodes)
    return replace(measured, rates=tuple(rates), rounds=len(done), planned=planned, failed_nodes=failed)


def _serve(
    transport: Caller,
    participants: Participants,
    nodes: Sequence[str],
    word: str,
    budget_s: float,
    failed: dict[str, str],
) -> dict[str, int]:
    ttl_s = budget_s * 2 + 120.0
    args = {n: {"address": participants.addresses[n], "token": word, "ttl_s": ttl_s} for n in nodes}
    ports: dict[str, int] = {}
    for reply in ask(transport, "stream_serve", args, SERVE_S):
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
    participants: Participants,
    ports: Mapping[str, int],
    word: str,
    number: int,
    pairs: Sequence[tuple[str, str]],
    seconds: float,
    failed: dict[str, str],
) -> list[TcpRate]:
    """All pairs of a round at once, from the first node of each to the second."""
    requests: dict[str, Request] = {}
    # Node ids may hold anything; a place in the list is a name that is safe everywhere.
    position = {node: i for i, node in enumerate(sorted(ports))}
    for src, dst in pairs:
        name = f"r{number}.{position[src]}.{position[dst]}"
        common: dict[str, Any] = {"token": word, "session": name}
        timeout_s = seconds + OMIT_S + LATE_S
        requests[src] = Request(
            op="stream_send",
            args={
                **common,
                "address": participants.addresses[dst],
                "port": ports[dst],
                "streams": STREAMS,
                "seconds": seconds,
                "omit_s": OMIT_S,
            },
            timeout_s=timeout_s,
        )
        requests[dst] = Request(
            op="stream_receive", args={**common, "wait_s": seconds + OMIT_S + 8.0}, timeout_s=timeout_s
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
