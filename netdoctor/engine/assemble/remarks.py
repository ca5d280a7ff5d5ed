"""What differs between nodes and is no finding: nothing fails of it, and somebody will wonder one day."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from netdoctor.facts.host import Login, Session, fewer_at_once
from netdoctor.facts.net import NetFacts
from netdoctor.inventory.nodeset import fold
from netdoctor.store import Store

# From the command to the first answer. A start-up file that asks a network for something takes so long, and
# so does our program where its packets get lost.
SLOW_MS = 1500.0
TIMES_USUAL = 3.0
# Fewer nodes have no majority that one could differ from.
LEAST_NODES = 3
GROUPS_AT_MOST = 3


def remarks(store: Store, nodes: Sequence[str]) -> list[str]:
    """One sentence for each group of nodes that are alike in what they have other than most."""
    sessions = {n: s for n, s in store.present("session", nodes).items() if isinstance(s, Session)}
    nets = {n: net for n, net in store.present("net", nodes).items() if isinstance(net, NetFacts)}
    return [*_crowd(store, sessions), *_shells(sessions), *_interfaces(nets)]


def _crowd(store: Store, sessions: Mapping[str, Session]) -> list[str]:
    """More logins at once than get through in time."""
    count = fewer_at_once(sessions, store.present("host", list(sessions)))
    if count is None:
        return []
    return [
        "several nodes ran out of time, and the others were slow: this machine, or something the nodes share,"
        f" cannot handle that many logins at once; -j {count} is half of those that succeeded in time"
    ]


def _shells(sessions: Mapping[str, Session]) -> list[str]:
    """Logins that take their time before anything runs, where most do not."""
    times = {
        node: session.first_byte_ms
        for node, session in sessions.items()
        if session.outcome == Login.OK and session.first_byte_ms is not None
    }
    typical = median(times.values()) if times else 0.0
    slow = [node for node, took in times.items() if took > SLOW_MS and took > typical * TIMES_USUAL]
    if not slow or len(times) < LEAST_NODES:
        return []
    most = max(times[node] for node in slow) / 1000
    return [
        f"on {fold(slow, 60)} a login takes up to {most:.1f} s before its first command runs, on most nodes"
        f" {typical / 1000:.1f} s: the shell's start-up files, or packets lost on the way; launchers wait,"
        " too"
    ]


def _interfaces(nets: Mapping[str, NetFacts]) -> list[str]:
    """Interfaces with an address that most nodes have and these have not, or the other way round."""
    having = {
        node: frozenset(
            row.ifname.partition(":")[0]
            for row in net.addresses
            if row.scope == "global" and not row.address.startswith("127.")
        )
        for node, net in nets.items()
    }
    if len(having) < LEAST_NODES:
        return []
    typical, count = Counter(having.values()).most_common(1)[0]
    if count * 2 <= len(having):
        return []
    groups: dict[frozenset[str], list[str]] = {}
    for node, names in having.items():
        if names != typical:
            groups.setdefault(names, []).append(node)
    lines = []
    for names, nodes in list(groups.items())[:GROUPS_AT_MOST]:
        parts = [f"also {_names(names - typical)}"] if names - typical else []
        parts += [f"no {_names(typical - names)}"] if typical - names else []
        verb = "has" if len(nodes) == 1 else "have"
        lines.append(f"interfaces differ: {fold(nodes, 60)} {verb} {' and '.join(parts)}")
    if len(groups) > GROUPS_AT_MOST:
        lines.append(f"interfaces differ on {sum(map(len, groups.values()))} nodes in {len(groups)} ways")
    return lines


def _names(names: frozenset[str]) -> str:
    first = sorted(names)[:4]
    return ", ".join(first) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
