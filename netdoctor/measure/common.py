"""What the experiments share: who takes part, and how pairs are chosen when there are too many."""

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdoctor.facts.base import Missing, Why
from netdoctor.transport.base import Reply, Request, Transport

# Up to this many nodes every directed pair is tried; beyond, each node dials a seeded sample of peers, so that
# the work per node stays bounded (64 peers x 4 ports = 256 connects a node).
ALL_PAIRS_UP_TO = 64
PEERS_WHEN_SAMPLED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The nodes that can take part and the address each is dialled at."""

    nodes: tuple[str, ...]
    addresses: Mapping[str, str]
    master: str | None = None
    master_port: int = 29500
    ephemeral: Mapping[str, tuple[int, int]] | None = None

    def usable(self) -> list[str]:
        return [n for n in self.nodes if n in self.addresses]


def peers(nodes: Sequence[str], *, at_most: int = ALL_PAIRS_UP_TO, seed: int = 0) -> dict[str, list[str]]:
    """Whom each node dials: everybody up to `at_most` nodes, else a seeded regular sample (i to i + offset)."""
    n = len(nodes)
    if n <= at_most:
        return {a: [b for b in nodes if b != a] for a in nodes}
    rng = random.Random(seed)  # noqa: S311  a schedule, not a secret
    offsets = sorted({1, n - 1, *rng.sample(range(2, n - 1), min(PEERS_WHEN_SAMPLED, n - 3) - 2)})
    return {a: [nodes[(i + o) % n] for o in offsets] for i, a in enumerate(nodes)}


def token() -> str:
    """A one-time word that a listener and its visitors share, so that strangers are told apart."""
    return secrets.token_hex(16)


def replies(transport: Transport, requests: Mapping[str, Request]) -> Iterator[Reply]:
    """One reply per request, also when the transport ends early."""
    waiting = set(requests)
    if requests:
        for reply in transport.call(requests):
            waiting.discard(reply.node)
            yield reply
    for node in sorted(waiting):
        yield Reply(node=node, missing=Missing(Why.LOST, "the session ended without an answer"))


def rows(reply: Reply) -> list[dict[str, Any]]:
    """The reply's result as a list of objects; anything else counts as empty."""
    if isinstance(reply.result, list):
        return [row for row in reply.result if isinstance(row, dict)]
    return []


def reason(reply: Reply) -> str:
    return reply.missing.detail if reply.missing is not None else "the answer could not be read"
