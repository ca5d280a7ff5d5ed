"""What ranks of a torch experiment could not do, as findings: who died, froze or never arrived."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netdoctor import tables
from netdoctor.checks._shared.outcomes import Outcomes
from netdoctor.checks._shared.text import listing
from netdoctor.facts.bandwidth import (
    NO_GPU,
    AllReduce,
    Collectives,
    Groups,
    Ladder,
    PairRates,
    RankFault,
    RankTrouble,
    Session,
)
from netdoctor.facts.paths import Path, Paths
from netdoctor.model import CERTAIN, CLUSTER, SUSPECTED, Finding, seen, skip, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways(Outcomes):
    """A table of ways in which a rank fails."""

    why: dict[str, str]


WAYS = tables.table("netdoctor.checks.bw", "ranks.toml", Ways)
STAGES = {
    "start": "starting",
    "import": "importing torch",
    "imported": "before the rendezvous",
    "store": "reaching the rendezvous",
    "peers": "waiting for the others",
    "group": "connecting to the others",
    "mesh": "connecting to the others",
    "ready": "measuring",
}


def _way(one: RankTrouble) -> str:
    return one.what if one.what in WAYS.outcome else "error"


def rank_failures(session: Session, nodes: Mapping[str, object]) -> Iterator[Finding]:
    """A finding for each node at the root of what went wrong; the others were not measured, and say why."""
    roots: dict[str, RankTrouble] = {}
    for one in session.trouble:
        if one.first:
            roots.setdefault(one.node, one)
    echoes = [one for one in session.trouble if not one.first][:2]
    # What all ranks say alike names nobody.
    shared = len(roots) == len(set(session.ranks)) > 1
    for node, one in roots.items():
        what = _way(one)
        cause = WAYS.outcome[what].cause
        if shared and cause.confidence is not CERTAIN:
            cause = cause.but(confidence=SUSPECTED)
        # A rank that is alive and has not come far was too slow for this scan, and perhaps for nothing else.
        say = cause.unknown if one.what in (RankFault.SILENT, RankFault.STUCK) else cause.fail
        yield say(
            f"rank {one.rank} ({STAGES.get(one.during, one.during or 'starting')}): {one.detail}",
            at=node,
            culprits=tuple(roots) if shared else (),
            observed=one.what,
            seen=[seen(f"rank {e.rank}, {e.during}", e.detail, at=e.node) for e in (one, *echoes)],
            fixes=WAYS.fixes(what, {}),
        )
    why = "not measured"
    if roots:
        first = next(iter(roots.values()))
        why += f": {WAYS.why[_way(first)]} {listing(roots, 3)}"
    for node in dict.fromkeys(session.ranks):
        if session.trouble and node not in roots and node in nodes:
            yield skip(why, node)


def not_over(session: Session, paths: Paths | None) -> str | None:
    """What torch did not try, as a gap: paths of the job with data, or its GPUs; None where it did all."""
    if session.instead:
        return session.instead
    if session.backend == "nccl" and session.given_by == "job":  # NCCL takes what its own rules say
        return None

    def is_measured(path: Path) -> bool:
        given = {node: session.ifname.get(node, "").split(",") for node in path.ifnames}
        return all(name in given[node] for node, name in path.ifnames.items() if node in session.ranks)

    data = [path for path in (paths.further if paths else ()) if {"NCCL", "gloo"}.intersection(path.users)]
    missed = [path.label for path in data if not is_measured(path)]
    names = listing(dict.fromkeys(session.ifname.values()), 3) or "another"
    return f"not over {listing(missed, 3)}: {session.backend} ran over {names}" if missed else None


def left_out(
    measured: PairRates | AllReduce | Collectives | Ladder | Groups, nodes: Mapping[str, object]
) -> Iterator[Finding]:
    """Nodes that took no part, by intent or for want of a way to them, and those that could not be read."""
    session = measured.session
    for node, reason in session.left_out.items():
        if node in nodes:
            yield skip(
                f"took no part: {reason}", node, gap=None if reason == NO_GPU else reason.partition(": ")[0]
            )
    part = {*session.ranks, *session.left_out}
    for node in nodes if session.ranks else ():
        if node not in part:
            yield unknown(node, "took no part: it has no data address, or some node does not reach it")
    for node, reason in measured.unread.items():
        if node in nodes:
            yield unknown(node, f"not all of it was measured: {reason}")


def nothing(session: Session, nodes: Mapping[str, object], what: str) -> Iterator[Finding]:
    """Ranks ran, and nothing came of it: unknown for those that took part."""
    for node in [n for n in dict.fromkeys(session.ranks) if n in nodes] or [CLUSTER]:
        yield unknown(node, what)
