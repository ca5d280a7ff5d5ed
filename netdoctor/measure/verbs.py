"""RDMA writes of perftest between nodes: pairs in rounds, all rails of a pair at once, one direction at a
time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from netdoctor.facts.bandwidth import PairRate, RdmaLatency, RdmaRates
from netdoctor.facts.localisation import Decision, Round
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.localise import decide
from netdoctor.measure.bandwidth import (
    KEPT_ROUNDS,
    MOST_GBYTE_S,
    connected,
    in_rounds,
    leaves,
    rounds_to_share,
)
from netdoctor.measure.common import ask, reason
from netdoctor.measure.declare import Context, experiment

# perftest's own first port (DEF_PORT in perftest_parameters.h); each rail has one of its own.
FIRST_PORT = 18515
# perftest counts whole seconds.
SECONDS = 2
ASKING_S = 5.0
SERVE_S = 10.0
RUN_S = 12.0 + SECONDS + 3.0
# Opening devices and connecting, for both tests; more than that a healthy pair does not take.
OVERHEAD_S = 1.5
EACH_S = 2 * (SECONDS + OVERHEAD_S)
MOST_RAILS = 32
MOST_LATENCY_US = 1e6
# Of a port's rate that writes reach: Oracle expects 96 of 100 Gbit/s, and its PCIe link carries its lanes'
# rate less encoding (128b/130b) and headers of packets of 256 bytes, some 90 %.
OF_RATE = 0.96
OF_PCIE = 128 / 130 * 0.9
# What may be an argument of a program on the node that says it.
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
Rails = Mapping[str, tuple[Hca, HcaPort]]


@experiment(
    after=["ports"],
    needs=["rdma", "cabling"],
    shares={"rdma_rates": 0.3},
    spares=True,
    # The last round may begin just before the end; both tests may then take all their time, both ways.
    bound_s=lambda nodes, seconds: ASKING_S + seconds + 4 * (SERVE_S + RUN_S + ASKING_S) + ASKING_S,
    cost="opens-port",
)
def verbs(context: Context) -> RdmaRates:
    """RDMA writes by perftest, where that is installed, between the HCAs of pairs in rounds."""
    participants, budget_s = context.participants, context.seconds["rdma_rates"]
    rails = {n: usable(facts) for n, facts in context.store.present("rdma", participants.usable()).items()}
    having = [node for node, found in rails.items() if found]
    nodes = connected(having, context.store.cluster_fact("ports"), participants.addresses)
    if len(nodes) < 2:
        return RdmaRates()
    failed: dict[str, str] = {}
    without = _without(context, nodes, failed)
    nodes = [n for n in nodes if n not in without and n not in failed]
    measured = RdmaRates(without=tuple(without), failed_nodes=failed)
    if len(nodes) < 2:
        return measured
    limiting = {n: bound(found) for n, found in rails.items() if n in nodes}
    measured = replace(
        measured,
        nodes=tuple(nodes),
        seconds=SECONDS,
        expected_gbyte_s={n: one[0] for n, one in limiting.items() if one},
        limited_by={n: one[1] for n, one in limiting.items() if one},
    )
    meeting = _Meeting(context, rails, failed)
    leaf_of = leaves(context)

    def run(one: Round) -> None:
        for pairs in (one.pairs, tuple((b, a) for a, b in one.pairs)):
            meeting.direction(one.number, pairs)

    def judge() -> Decision:
        return decide(replace(measured, rates=tuple(meeting.rates)), leaf_of)

    rounds = rounds_to_share(len(nodes), budget_s, EACH_S)
    done, planned = in_rounds(
        nodes, min(budget_s, (rounds + KEPT_ROUNDS) * EACH_S), EACH_S, run, judge, leaf_of
    )
    meeting.ask({n: {"role": "stop"} for n in nodes}, ASKING_S)
    return replace(
        measured,
        rates=tuple(meeting.rates),
        latencies=tuple(meeting.latencies),
        rounds=len(done),
        planned=planned,
        troubles=meeting.troubles,
    )


def usable(facts: RdmaFacts) -> Rails:
    """The ports that RDMA can be tried on, by name: active, of a card whose name may be an argument."""
    cards = [
        hca for hca in facts.hcas if hca.can_be_opened and not hca.is_virtual and DEVICE.fullmatch(hca.name)
    ]
    good = {port.name: (hca, port) for hca in cards for port in hca.ports if port.active}
    return dict(sorted(good.items())[:MOST_RAILS])


def bound(rails: Rails) -> tuple[float, str] | None:
    """(GB/s, what sets it) that one rail of a node can reach: the least of its ports and their PCIe links."""
    terms = []
    for name, (hca, port) in rails.items():
        if port.rate_gbit_s:
            terms.append((port.rate_gbit_s * OF_RATE / 8, f"{name} at {port.rate_gbit_s:g} Gbit/s"))
        if hca.pcie and hca.pcie.is_known:
            link = f"PCIe {hca.pcie.gtransfers_s:g} GT/s x{hca.pcie.width} of {hca.name}"
            terms.append((hca.pcie.gtransfers_s * hca.pcie.width * OF_PCIE / 8, link))
    return min(terms, default=None)


def _without(context: Context, nodes: Sequence[str], failed: dict[str, str]) -> list[str]:
    """The nodes that have no perftest."""
    found = []
    for reply in ask(context.transport, "verbs", {node: {"role": "look"} for node in nodes}, ASKING_S):
        if reply.missing is not None or not isinstance(reply.result, dict):
            failed[reply.node] = reason(reply)
        elif reply.result.get("installed") is not True:
            found.append(reply.node)
    return sorted(found, key=nodes.index)


class _Meeting:
    """Who met whom so far."""

    def __init__(self, context: Context, rails: Mapping[str, Rails], failed: dict[str, str]) -> None:
        self.context = context
        self.rails = rails
        self.failed = failed
        self.rates: list[PairRate] = []
        self.latencies: list[RdmaLatency] = []
        self.troubles: dict[str, str] = {}
        names = sorted({name for found in rails.values() for name in found})
        self.ports = {name: FIRST_PORT + i for i, name in enumerate(names)}

    def ask(self, args: Mapping[str, dict[str, Any]], timeout_s: float) -> dict[str, Any]:
        """What each node answers; whoever gives no answer takes no further part."""
        found = {}
        for reply in ask(self.context.transport, "verbs", args, timeout_s):
            if reply.missing is not None or not isinstance(reply.result, dict):
                self.failed.setdefault(reply.node, reason(reply))
            else:
                found[reply.node] = reply.result.get("rails")
        return found

    def direction(self, number: int, pairs: Sequence[tuple[str, str]]) -> None:
        """All pairs of a round at once, from the first node of each to the second."""
        for test in ("bandwidth", "latency"):
            alive = [(a, b) for a, b in pairs if a not in self.failed and b not in self.failed]
            common = {(a, b): [name for name in self.rails[a] if name in self.rails[b]] for a, b in alive}
            serve = {b: self._args("serve", test, b, names, "") for (_, b), names in common.items()}
            ready = self.ask(serve, SERVE_S)
            for (a, b), names in common.items():
                answers = _rows(ready.get(b), len(names))
                up = [n for n, row in zip(names, answers, strict=True) if row.get("ready") is True]
                for name, row in zip(names, answers, strict=True):
                    if name not in up and b not in self.failed:
                        self._failed(a, b, name, row)
                common[a, b] = up
            commands = {
                a: self._args("run", test, a, names, self.context.participants.addresses[b])
                for (a, b), names in common.items()
                if names and a not in self.failed
            }
            answered = self.ask(commands, RUN_S)
            self.ask({b: {"role": "stop"} for _, b in alive if b not in self.failed}, ASKING_S)
            for (a, b), names in common.items():
                if a in answered:
                    for name, row in zip(names, _rows(answered[a], len(names)), strict=True):
                        self._take(number, test, (a, b), name, row)

    def _args(self, role: str, test: str, node: str, names: Sequence[str], address: str) -> dict[str, Any]:
        rails = []
        for name in names:
            hca, port = self.rails[node][name]
            one = {"device": hca.name, "ib_port": port.number, "tcp_port": self.ports[name]}
            rails.append({**one, "address": address} if address else one)
        found = {"role": role, "test": test, "seconds": SECONDS, "rails": rails}
        return {**found, "ttl_s": SERVE_S + RUN_S + ASKING_S} if role == "serve" else found

    def _take(self, number: int, test: str, ends: tuple[str, str], name: str, row: Mapping[str, Any]) -> None:
        src, dst = ends
        raw = row.get("value")
        value = float(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) else -1.0
        if test == "latency" and 0 < value < MOST_LATENCY_US:
            self.latencies.append(RdmaLatency(src=src, dst=dst, rail=name, us=value))
        elif test == "bandwidth" and 0 <= value < MOST_GBYTE_S * 8:
            self.rates.append(PairRate(src=src, dst=dst, round=number, gbyte_s=value / 8, rail=name))
        elif row.get("dead") is True and test == "bandwidth":
            self.rates.append(PairRate(src=src, dst=dst, round=number, gbyte_s=0.0, rail=name))
            self._failed(src, dst, name, row)
        else:
            self._failed(src, dst, name, row)

    def _failed(self, src: str, dst: str, name: str, row: Mapping[str, Any]) -> None:
        text = str(row.get("error") or "an answer that cannot be")[:300]
        self.troubles.setdefault(f"{src}->{dst} {name}", text)


def _rows(found: Any, count: int) -> list[dict[str, Any]]:
    """One row a rail, whatever the node has sent."""
    rows = found if isinstance(found, list) and len(found) == count else [{}] * count
    return [one if isinstance(one, dict) else {} for one in rows]
