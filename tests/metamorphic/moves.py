"""Changes of a cluster's facts whose effect on the verdict is known: none, but for the names of nodes.

Each takes the facts and the nodes in their order, and returns the facts and the new name of each node.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netdoctor.facts.base import Missing, Why
from netdoctor.store import Store, dump, load
from tests.checks import build

Names = Mapping[str, str]
Move = Callable[[random.Random, Store, Sequence[str]], tuple[Store, Names]]

# How nodes are called in clusters that there are, by their number.
CALLED: tuple[Callable[[int], str], ...] = (
    lambda i: f"gpu-{i:02}",
    lambda i: f"ip-10-40-7-{i}.eu-west-1.compute.internal",
    lambda i: f"{'abcdefghijklmnop'[i % 16]}{'' if i < 16 else i}",
    lambda i: f"NODE{40 - i}",
    lambda i: f"rack{i % 3}-slot{i}.hpc.example.org",
    lambda i: f"{i}a",
    lambda i: f"worker_{i}",
    lambda i: f"job-{i}-master" if i == 2 else f"job-worker-{i}",
    lambda i: f"n{i % 3}{i}",
)
PREFIXES = ("192.168.5.", "172.31.255.", "100.64.3.", "11.2.3.", "10.0.200.")
_ADDRESS = re.compile(r"(?<![\d.])10\.0\.0\.(?=\d{1,3}(?![\d.]))")


def as_is(nodes: Sequence[str]) -> Names:
    return {node: node for node in nodes}


def rewritten(store: Store, pattern: re.Pattern[str], by: Callable[[re.Match[str]], str]) -> Store:
    """With a text replaced wherever it stands in a fact, keys and the names of nodes too."""
    return load(json.loads(pattern.sub(by, json.dumps(dump(store)))))


def renamed(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, Names]:
    call = rng.choice(CALLED)
    numbers = list(range(1, len(nodes) + 1))
    if rng.random() < 0.5:
        rng.shuffle(numbers)
    names = dict(zip(nodes, map(call, numbers), strict=True))
    return with_names(store, names), names


def swapped(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, Names]:
    """The names that there are, each to another node."""
    other = list(nodes)
    rng.shuffle(other)
    names = dict(zip(nodes, other, strict=True))
    return with_names(store, names), names


def with_names(store: Store, names: Names) -> Store:
    some = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.-])(?:{some})(?![\w.]|-\w)")
    return rewritten(store, pattern, lambda match: names[match[0]])


def reordered(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, Names]:
    """Lines of the hosts file in another order, and answers that came in another one."""

    def mixed(values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(rng.sample(list(values.items()), len(values)))

    found = Store(node={group: mixed(values) for group, values in store.node.items()}, cluster=store.cluster)
    order = rng.sample(range(len(nodes)), len(nodes))
    for node, place in zip(nodes, order, strict=True):
        found.put("node", node, replace(found.get("node", node), order=place, line=place + 1))
    cluster = dict(store.cluster)
    for group in ("ports", "path_mtu", "loss"):
        fact = cluster.get(group)
        if fact is not None and not isinstance(fact, Missing):
            cluster[group] = replace(fact, probes=tuple(rng.sample(fact.probes, len(fact.probes))))
    found.cluster = cluster
    return found, as_is(nodes)


def readdressed(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, Names]:
    prefix = rng.choice(PREFIXES)
    return rewritten(store, _ADDRESS, lambda match: prefix), as_is(nodes)


def with_interface(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, Names]:
    """One that no job uses: a bridge of docker, or one that is down, on some of the nodes or all."""
    found = copied(store)
    some = rng.sample(list(nodes), rng.randint(1, len(nodes)))
    name = rng.choice(("docker0", "enp9s0f1", "usb0"))
    for node in some:
        net = found.get_or_none("net", node)
        if net is None or any(dev.name == name for dev in net.netdevs):
            continue
        index = 1 + max(dev.ifindex for dev in net.netdevs)
        if name == "docker0":
            dev = build.netdev(name, index, kind="bridge", speed_mbit_s=None, carrier=False, running=False)
            rows = (*net.addresses, build.row(name, "172.17.0.1", 16))
        else:
            dev = build.netdev(
                name, index, up=False, running=False, carrier=None, operstate="down", speed_mbit_s=None
            )
            rows = net.addresses
        found.put("net", node, replace(net, netdevs=(*net.netdevs, dev), addresses=rows))
    return found, as_is(nodes)


def of_locale(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, Names]:
    found = copied(store)
    lang = rng.choice(("de_DE.UTF-8", "C", "tr_TR.UTF-8", "ja_JP.eucJP"))
    for node, env in store.present("env", nodes).items():
        found.put("env", node, replace(env, variables={**env.variables, "LANG": lang, "LC_ALL": lang}))
    return found, as_is(nodes)


def at_other_time(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, Names]:
    """The clock of the machine that scans is off, so that all nodes are."""
    found = copied(store)
    by = rng.choice((-3e5, -2.5, 0.4, 3600.0, 1e8))
    for node, clock in store.present("clock", nodes).items():
        found.put("clock", node, replace(clock, offset_s=clock.offset_s + by))
    return found, as_is(nodes)


def copied(store: Store) -> Store:
    return Store(
        node={group: dict(values) for group, values in store.node.items()}, cluster=dict(store.cluster)
    )


MOVES: tuple[Move, ...] = (
    renamed, swapped, reordered, readdressed, with_interface, of_locale, at_other_time,
)  # fmt: skip

_REASONS = (Why.FAILED, Why.TIMED_OUT, Why.UNPARSABLE, Why.LOST, Why.NO_PERMISSION)


def with_less(rng: random.Random, store: Store, nodes: Sequence[str]) -> tuple[Store, list[tuple[str, str]]]:
    """Some facts could not be read. Returns the groups and nodes, ``cluster`` for one of all."""
    found, lost = copied(store), []
    for _ in range(rng.choice((1, 1, 2, 5))):
        reason = Missing(rng.choice(_REASONS), "the test took it away")
        if rng.random() < 0.15:
            group = rng.choice([g for g in found.cluster if g not in ("job", "paths")])
            found.cluster[group] = reason
            lost.append((group, "cluster"))
        else:
            group, node = (
                rng.choice([g for g in found.node if g not in ("node", "session")]),
                rng.choice(nodes),
            )
            if found.get(group, node) is not None and not isinstance(found.get(group, node), Missing):
                found.put(group, node, reason)
                lost.append((group, node))
    return found, lost
