"""Faults that any machine may have: each spoils facts of a healthy cluster as the fault would."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Session
from netdoctor.facts.net import Listener, PortHolderFacts
from netdoctor.store import Store
from tests.checks import build

# A change of the facts: of the store, the number of the node, and how many nodes there are.
Put = Callable[[Store, int, int], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """key: the cause that it is to be named with. between: it is about paths between nodes."""

    key: str
    put: Put
    between: bool = False


FAULTS: dict[str, Fault] = {}


def fault(key: str, between: bool = False) -> Callable[[Put], Put]:
    def add(put: Put) -> Put:
        FAULTS[put.__name__] = Fault(key, put, between)
        return put

    return add


def change(store: Store, group: str, number: int, **changes: Any) -> None:
    fact = store.get(group, build.name(number))
    if not isinstance(fact, Missing):
        store.put(group, build.name(number), replace(fact, **changes))


def variables(store: Store, number: int, **changes: str) -> None:
    env = store.get("env", build.name(number))
    change(store, "env", number, variables={**env.variables, **changes})


def outcomes(store: Store, bad: dict[tuple[str, str], str]) -> None:
    """Probes of these pairs end so, whatever else is wrong with them already."""
    ports = store.cluster["ports"]
    probes = tuple(
        replace(p, outcome=bad[p.src, p.dst]) if (p.src, p.dst) in bad and p.outcome == "open" else p
        for p in ports.probes
    )
    store.cluster["ports"] = replace(ports, probes=probes)


def silent(store: Store, bad: dict[tuple[str, str], str]) -> None:
    outcomes(store, bad)
    mtus = store.cluster["path_mtu"]
    probes = tuple(
        replace(p, small_ok=False, largest_ok=None, outcome="no_answer") if (p.src, p.dst) in bad else p
        for p in mtus.probes
    )
    store.cluster["path_mtu"] = replace(mtus, probes=probes)


@fault("firewall-inbound", between=True)
def drops_in(store: Store, number: int, count: int) -> None:
    outcomes(store, build.inbound(count, build.name(number)))


@fault("firewall-outbound", between=True)
def drops_out(store: Store, number: int, count: int) -> None:
    outcomes(store, build.outbound(count, build.name(number)))


@fault("firewall-reject-inbound", between=True)
def rejects_in(store: Store, number: int, count: int) -> None:
    outcomes(store, build.inbound(count, build.name(number), outcome="rejected"))


@fault("mtu-black-hole", between=True)
def large_packets_lost(store: Store, number: int, count: int) -> None:
    mine = build.name(number)
    mtus = store.cluster["path_mtu"]
    probes = tuple(
        replace(p, largest_ok=1200, outcome="black_hole") if p.dst == mine and p.outcome == "ok" else p
        for p in mtus.probes
    )
    store.cluster["path_mtu"] = replace(mtus, probes=probes)


@fault("clock-skew")
def clock_ahead(store: Store, number: int, count: int) -> None:
    store.put("clock", build.name(number), build.clock(7.0))


@fault("clock-skew")
def clock_behind(store: Store, number: int, count: int) -> None:
    store.put("clock", build.name(number), build.clock(-90.0))


@fault("shm-small")
def little_shm(store: Store, number: int, count: int) -> None:
    shm = store.get("limits", build.name(number)).shm
    change(store, "limits", number, shm=replace(shm, total_bytes=64 * build.MIB, free_bytes=64 * build.MIB))


@fault("nofile-low")
def few_files(store: Store, number: int, count: int) -> None:
    # Too few for any number of ranks: what 64 are enough for depends on how many nodes there are.
    change(store, "limits", number, nofile_soft=32, nofile_hard=32)


@fault("tmp-full")
def full_tmp(store: Store, number: int, count: int) -> None:
    tmp = store.get("limits", build.name(number)).tmp
    change(store, "limits", number, tmp=replace(tmp, free_bytes=0))


@fault("hosts-loopback")
def own_name_loopback(store: Store, number: int, count: int) -> None:
    own = build.lookup(build.name(number), "127.0.1.1")
    change(store, "resolve", number, own=own, first_bindable="127.0.1.1")


@fault("peer-name-unknown")
def peer_unknown(store: Store, number: int, count: int) -> None:
    peer = build.name(1)  # which always answers: of one that does not, nobody knows where its name leads
    facts = store.get("resolve", build.name(number))
    store.put("resolve", build.name(number), build.relook(facts, build.lookup(peer, error="not_found")))


@fault("peer-name-wrong")
def peer_wrong(store: Store, number: int, count: int) -> None:
    peer = build.name(1)  # which always answers: of one that does not, nobody knows where its name leads
    facts = store.get("resolve", build.name(number))
    store.put("resolve", build.name(number), build.relook(facts, build.lookup(peer, "10.99.0.9")))


@fault("nccl-ifname-nomatch")
def ifname_of_nothing(store: Store, number: int, count: int) -> None:
    variables(store, number, NCCL_SOCKET_IFNAME="zz9")


@fault("nccl-env-debug-nccl-debug")
def debug_left(store: Store, number: int, count: int) -> None:
    variables(store, number, NCCL_DEBUG="INFO")


@fault("env-left-cuda-launch-blocking")
def blocking_left(store: Store, number: int, count: int) -> None:
    variables(store, number, CUDA_LAUNCH_BLOCKING="1")


@fault("parity-kernel")
def other_kernel(store: Store, number: int, count: int) -> None:
    change(store, "host", number, kernel="4.4.0-21-generic")


@fault("python-version")
def other_python(store: Store, number: int, count: int) -> None:
    change(store, "software", number, version="3.10.2")


@fault("ssh-refused")
def refuses_login(store: Store, number: int, count: int) -> None:
    """Nothing is known of the node, and no peer dials it."""
    mine = build.name(number)
    gone = Missing(Why.LOST, "no session")
    for group in list(store.node):
        if group not in ("node", "session"):
            store.put(group, mine, gone)
    store.put("session", mine, Session(outcome="refused", stage="connect", address=build.address(number)))
    for group in ("ports", "path_mtu"):
        fact = store.cluster[group]
        probes = tuple(p for p in fact.probes if mine not in (p.src, p.dst))
        store.cluster[group] = replace(fact, probes=probes)
        store.put(group, mine, gone)
    job = store.cluster["job"]
    there = {n: a for n, a in job.data_addresses.items() if n != mine}
    store.cluster["job"] = replace(job, data_addresses=there)


@fault("master-port-busy")
def port_taken(store: Store, number: int, count: int) -> None:
    """Of the first node whatever the number: it is the rendezvous."""
    holder = PortHolderFacts(
        port=build.RDZV, listeners=(Listener(port=build.RDZV, address="0.0.0.0", pid=77),)
    )
    store.put("port_holder", build.name(1), holder)
