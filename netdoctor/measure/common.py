"""What the experiments share: who takes part, and how pairs are chosen when there are too many."""

import random
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.net import PortMatrix
from netdoctor.facts.paths import STORE, Path, Paths
from netdoctor.facts.software import Job
from netdoctor.store import Store, decode
from netdoctor.transport.base import Reply, Request

T = TypeVar("T")


class Probe(Protocol):
    """What one datagram experiment says of one directed pair."""

    @property
    def src(self) -> str: ...

    @property
    def dst(self) -> str: ...


P = TypeVar("P", bound=Probe)

# Up to this many nodes every directed pair is tried; beyond, each node dials a seeded sample of peers, so
# that the work per node stays bounded (64 peers x 4 ports = 256 connects a node).
ALL_PAIRS_UP_TO = 64
PEERS_WHEN_SAMPLED = 64
NO_ADDRESS = "has no usable data address"


class Caller(Protocol):
    """The part of a transport that an experiment needs."""

    def call(self, requests: Mapping[str, Request]) -> Iterator[Reply]: ...


RENDEZVOUS = "rendezvous"
EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class DialAddress:
    """An address at which peers dial a node, and the kinds of ports that they dial there."""

    address: str
    purposes: frozenset[str] = frozenset((RENDEZVOUS, EPHEMERAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Participants:
    """The nodes that can take part and the address each is dialled at on the main path."""

    nodes: tuple[str, ...]
    addresses: Mapping[str, str]
    # What peers dial a node at beside that, on the job's other paths.
    further: Mapping[str, tuple[DialAddress, ...]] = field(default_factory=dict)
    # Of RoCE ports that add something to these, which are tried from the rail's own addresses.
    rails: tuple[Path, ...] = ()
    # All rails, where they can be distinguished: what may be tried from one to another.
    to_cross: tuple[Path, ...] = ()
    master: str | None = None
    master_port: int = 29500
    ephemeral: Mapping[str, tuple[int, int]] | None = None
    # Source and address of what nothing got through to, so that no later experiment waits for silence again.
    dead: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def from_facts(cls, nodes: Sequence[str], store: Store, job: Job) -> "Participants":
        """What is known of these nodes so far."""
        matrix, paths = store.cluster_fact("ports"), store.cluster_fact("paths")
        return cls(
            nodes=tuple(nodes),
            addresses=job.data_addresses,
            further=_further(paths) if isinstance(paths, Paths) else {},
            rails=tuple(_rails(paths)) if isinstance(paths, Paths) else (),
            to_cross=tuple(one for one in paths.rails if one.tried) if isinstance(paths, Paths) else (),
            master=job.master_node,
            master_port=job.master_port,
            ephemeral={n: net.ephemeral_ports for n, net in store.present("net", nodes).items()},
            dead=dead_ends(matrix) if isinstance(matrix, PortMatrix) else frozenset(),
        )

    def usable(self) -> list[str]:
        return [n for n in self.nodes if n in self.addresses]

    def addresses_of(self, node: str, purpose: str | None = None) -> list[DialAddress]:
        """Where peers dial a usable node, the main path first; with a purpose, where they do so for that."""
        found = [DialAddress(self.addresses[node]), *self.further.get(node, ())]
        return [one for one in found if purpose is None or purpose in one.purposes]

    def on_rails(self, node: str) -> list[dict[str, Any]]:
        """What to listen at on rails besides; it answers over the rail alone, as RDMA does."""
        known = {one.address for one in self.addresses_of(node)}
        found = dict.fromkeys(rail.addresses[node] for rail in self.rails if node in rail.addresses)
        return [{"address": address, "rail": True} for address in found if address not in known]

    def sources(self, src: str, dst: str, address: str) -> list[dict[str, str]]:
        """What a target says of the address to dial another from: nothing, or that of a rail."""
        rails = (rail for rail in self.rails if rail.addresses.get(dst) == address and src in rail.sources)
        main: list[dict[str, str]] = (
            [{}] if any(one.address == address for one in self.addresses_of(dst)) else []
        )
        return [*main, *({"source": rail.sources[src]} for rail in rails)]


def _rails(paths: Paths) -> Iterator[Path]:
    """Equal addresses are one path."""
    known = {end for path in paths.paths for end in path.addresses.items()}
    for rail in paths.rails:
        if rail.tried and not known.issuperset(rail.addresses.items()):
            yield rail


def _further(paths: Paths) -> dict[str, tuple[DialAddress, ...]]:
    further = {end for path in paths.further for end in path.addresses.items()}
    found: dict[str, dict[str, set[str]]] = {}
    for use in paths.uses:
        if (use.node, use.address) in further:
            kind = RENDEZVOUS if use.purpose == STORE else EPHEMERAL
            found.setdefault(use.node, {}).setdefault(use.address, set()).add(kind)
    return {
        n: tuple(DialAddress(a, frozenset(kinds)) for a, kinds in local.items()) for n, local in found.items()
    }


def dead_ends(matrix: PortMatrix) -> frozenset[tuple[str, str]]:
    """(source, address) of which every attempt was filtered."""
    outcomes: dict[tuple[str, str], set[str]] = {}
    for probe in matrix.probes:
        outcomes.setdefault((probe.src, probe.address), set()).add(probe.outcome)
    return frozenset(pair for pair, found in outcomes.items() if found == {"filtered"})


def peers(
    nodes: Sequence[str], *, at_most: int = ALL_PAIRS_UP_TO, count: int = PEERS_WHEN_SAMPLED, seed: int = 0
) -> dict[str, list[str]]:
    """Whom each node dials: everybody up to `at_most` nodes, else a seeded sample of `count` peers.

    The sample is regular (i dials i + offset): every node dials and is dialled equally often. Both neighbours
    in the list are in it; the other offsets reach over the whole of it, past racks and leaves.
    """
    n = len(nodes)
    if n <= at_most or n <= 3:
        return {a: [b for b in nodes if b != a] for a in nodes}
    rng = random.Random(seed)  # noqa: S311  a schedule, not a secret
    far = range(2, n - 1)
    offsets = sorted({1, n - 1, *rng.sample(far, max(min(count - 2, len(far)), 0))})
    return {a: [nodes[(i + o) % n] for o in offsets] for i, a in enumerate(nodes)}


def token() -> str:
    """A one-time word that a listener and its visitors share, so that strangers are told apart."""
    return secrets.token_hex(16)


def replies(transport: Caller, requests: Mapping[str, Request]) -> Iterator[Reply]:
    """One reply per request, also when the transport ends early."""
    waiting = set(requests)
    if requests:
        for reply in transport.call(requests):
            waiting.discard(reply.node)
            yield reply
    for node in sorted(waiting):
        yield Reply(node=node, missing=Missing(Why.LOST, "the session ended without an answer"))


def ask(
    transport: Caller, op: str, args: Mapping[str, Mapping[str, Any]], timeout_s: float
) -> Iterator[Reply]:
    """Have each of these nodes do `op` with its arguments; one reply per node."""
    return replies(transport, {n: Request(op=op, args=dict(a), timeout_s=timeout_s) for n, a in args.items()})


ECHO_OPEN_S = 10.0
CLOSE_S = 5.0


def close_listeners(transport: Caller, nodes: Iterable[str]) -> None:
    """Close what an experiment opened on these nodes.

    Not called in a `finally`: after an interrupt nobody waits for it, and agents close with their sessions.
    """
    for _ in ask(transport, "unlisten", {n: {} for n in nodes}, CLOSE_S):
        pass


def open_echoes(
    transport: Caller, listeners: Mapping[str, Sequence[Mapping[str, Any]]], word: str, failed: dict[str, str]
) -> dict[str, dict[str, int]]:
    """Ports of datagram echoes by node and address; a node that does not open one is put into `failed`.

    listeners: what to open on each node, by its ``address``.
    """
    nodes = list(listeners)
    echoes: dict[str, dict[str, int]] = {n: {} for n in nodes}
    for turn in range(max(map(len, listeners.values()), default=0)):
        args = {
            n: {**listeners[n][turn], "token": word, "ttl_s": 120.0}
            for n in nodes
            if turn < len(listeners[n]) and n not in failed
        }
        for reply in ask(transport, "udp_echo", args, ECHO_OPEN_S):
            port = reply.result.get("port") if isinstance(reply.result, dict) else None
            if isinstance(port, int) and 0 < port < 65536 and not reply.result.get("error"):
                echoes[reply.node][listeners[reply.node][turn]["address"]] = port
            else:
                error = reply.result.get("error") if isinstance(reply.result, dict) else None
                failed[reply.node] = f"could not open a UDP echo: {str(error or reason(reply))[:200]}"
    return echoes


# Datagrams go over every directed pair up to so many nodes (a black hole sits on one path); beyond, to so
# many seeded peers per node.
ECHO_PAIRS_UP_TO = 16
ECHO_PEERS = 8
# Of all paths together: what one node can pace evenly.
ECHO_TARGETS = 60


@dataclass(frozen=True, slots=True)
class Echoed(Generic[P]):
    """Probes in the order of the nodes."""

    probes: tuple[P, ...]
    silent: frozenset[str]  # nodes that did not report, whose echo may be gone as well
    failed: dict[str, str]


def over_echoes(
    transport: Caller,
    participants: Participants,
    cls: type[P],
    op: str,
    args: Mapping[str, Any],
    timeout_s: float,
    *,
    rails: bool = False,
) -> Echoed[P]:
    """Open echoes on every node, let the nodes run `op` against each other's, and read their rows as `cls`.

    On each path that carries data; rails: on those of RoCE, too, with the ``source`` of a target repeated in
    its row. Takes ECHO_OPEN_S, timeout_s and CLOSE_S at the most.
    The op's arguments are `args` with ``targets`` (dst, address, port) and ``token``. Fewer than two nodes
    with an address, or pairs on which nothing gets through, leave nothing to probe.
    """
    nodes = participants.usable()
    failed: dict[str, str] = {n: NO_ADDRESS for n in participants.nodes if n not in nodes}
    if len(nodes) < 2:
        return Echoed((), frozenset(), failed)
    word = token()
    listeners = {
        n: [{"address": one.address} for one in participants.addresses_of(n, EPHEMERAL)] for n in nodes
    }
    if rails:
        listeners = {n: [*listeners[n], *participants.on_rails(n)] for n in nodes}
    echoes = open_echoes(transport, listeners, word, failed)
    most = ECHO_TARGETS // max(1, *(len(ports) for ports in echoes.values()))
    plan = peers(nodes, at_most=min(ECHO_PAIRS_UP_TO, most), count=min(ECHO_PEERS, most))
    targets = {
        src: [
            {"dst": dst, "address": address, "port": port, **source}
            for dst in plan[src]
            for address, port in echoes[dst].items()
            if (src, address) not in participants.dead
            for source in (participants.sources(src, dst, address) if rails else ({},))
        ]
        for src in nodes
    }
    requests = {
        src: Request(op=op, args={**args, "targets": targets[src], "token": word}, timeout_s=timeout_s)
        for src in nodes
        if targets[src]
    }
    answers, silent = target_rows(transport, requests, ("dst", "address", "source"), failed)
    probes: list[P] = []
    for src, row in answers:
        probe = converted(row, src, cls)
        if isinstance(probe, str):
            failed.setdefault(src, probe)
        else:
            probes.append(probe)
    close_listeners(transport, nodes)
    order = {n: i for i, n in enumerate(nodes)}
    probes.sort(key=lambda p: (order.get(p.src, 0), order.get(p.dst, 0)))
    return Echoed(tuple(probes), silent, failed)


def rows(reply: Reply) -> list[dict[str, Any]]:
    """The reply's result as a list of objects; anything else counts as empty."""
    if isinstance(reply.result, list):
        return [row for row in reply.result if isinstance(row, dict)]
    return []


def answered(
    reply: Reply, targets: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> tuple[list[dict[str, Any]], str | None]:
    """The rows of a reply that answer what was asked, each once, and what is wrong with the rest, or None.

    A row answers the target whose `keys` it repeats. A node has a say about its own probes only, and silence
    about one of them is not a success.
    """
    waiting = {tuple(target.get(key) for key in keys) for target in targets}
    found = []
    for row in rows(reply):
        name = tuple(row.get(key) for key in keys)
        try:
            known = name in waiting
        except TypeError:  # a list where a name should be
            known = False
        if known:
            waiting.discard(name)
            found.append(row)
    if not waiting:
        return found, None
    return found, f"{len(waiting)} of {len(targets)} probes were not answered for"


def target_rows(
    transport: Caller, requests: Mapping[str, Request], keys: Sequence[str], failed: dict[str, str]
) -> tuple[list[tuple[str, dict[str, Any]]], frozenset[str]]:
    """(node and row of each answer about a target, nodes that did not answer at all).

    What is asked stands in a request's ``targets``, see `answered`. Who gives fewer answers is put into
    `failed`.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    silent: set[str] = set()
    for reply in replies(transport, requests):
        if reply.missing is not None:
            silent.add(reply.node)
            failed.setdefault(reply.node, reason(reply))
            continue
        answers, gap = answered(reply, requests[reply.node].args["targets"], keys)
        if gap is not None:
            failed.setdefault(reply.node, gap)
        found.extend((reply.node, row) for row in answers)
    return found, frozenset(silent)


def read_as(value: Any, cls: type[T]) -> T | None:
    """What a node said, as `cls`; None where it cannot be that."""
    try:
        return msgspec.convert(value, type=cls)
    except (msgspec.ValidationError, RecursionError, TypeError, ValueError):
        return None


def converted(row: Mapping[str, Any], src: str, cls: type[T]) -> T | str:
    """The probe that a row stands for, or why it cannot be read."""
    try:
        return msgspec.convert({**row, "src": src}, type=cls)
    except (msgspec.ValidationError, RecursionError, TypeError, ValueError) as error:
        return f"unreadable answer: {error}"


def facts_of(
    transport: Caller, group: str, args: Mapping[str, Mapping[str, Any]], timeout_s: float
) -> dict[str, Any]:
    """The fact of this group (or a Missing) of each node that is asked for it with these arguments."""
    found: dict[str, Any] = {}
    for reply in ask(transport, "facts", {n: {"groups": {group: a}} for n, a in args.items()}, timeout_s):
        if reply.missing is not None:
            found[reply.node] = reply.missing
        else:
            answer = reply.result.get(group) if isinstance(reply.result, dict) else None
            found[reply.node] = decode(group, answer)
    return found


def reason(reply: Reply) -> str:
    return reply.missing.detail if reply.missing is not None else "the answer could not be read"
