"""What ranks of a torch experiment could not do, as findings: who died, froze or never arrived."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netdoctor.checks._shared.text import listing
from netdoctor.facts.bandwidth import NO_GPU, AllReduce, PairRates, RankFault, RankTrouble, Session
from netdoctor.facts.paths import Path, Paths
from netdoctor.model import (
    CERTAIN,
    CLUSTER,
    LIKELY,
    SUSPECTED,
    Cause,
    Confidence,
    Finding,
    Fix,
    run,
    seen,
    skip,
    unknown,
)


class Way(NamedTuple):
    """A way in which a rank fails."""

    cause: Cause
    why: str = "trouble on"  # what keeps the others from being measured, before the node's name
    fixes: tuple[Fix, ...] = ()


def _way(key: str, title: str, why: str = "trouble on", *fixes: Fix, sure: Confidence = CERTAIN) -> Way:
    return Way(Cause(key, title, sure), why, fixes)


WAYS: dict[str, Way] = {
    RankFault.IMPORT: _way(
        "rank-import", "torch cannot be imported on {nodes}", "torch cannot be imported on",
        run(
            "run the import by hand in the job's interpreter",
            "python3 -c 'import torch, torch.distributed; print(torch.__version__)'",
        ),
    ),
    RankFault.DEVICE: _way(
        "rank-device", "torch cannot use the GPU on {nodes}", "no usable GPU on",
        run(
            "read what the driver says of the GPU", "nvidia-smi", "dmesg | grep -E 'NVRM|Xid'", root=True
        ),
    ),
    RankFault.KILLED: _way(
        "rank-killed", "a rank on {nodes} was killed in the middle of the experiment", "a rank was killed on",
        run(
            "see whether the kernel killed it for memory, or somebody did",
            "journalctl -k --since '-10 min' | grep -iE 'out of memory|oom|killed process'", root=True,
        ),
    ),
    RankFault.FILES: _way(
        "rank-files", "a rank on {nodes} has no file descriptor left for another connection",
        "no descriptor was left on",
        run(
            "see who holds connections to the rendezvous, and keep strangers off; or raise the limit",
            "ss -tnH state established | awk '{print $3}' | sort | uniq -c | sort -n | tail; ulimit -n",
        ),
    ),
    RankFault.EXITED: _way(
        "rank-exited", "a rank on {nodes} ended by itself in the middle of the experiment", "a rank ended on"
    ),
    RankFault.FROZEN: _way(
        "rank-frozen", "a rank on {nodes} froze in the middle of the experiment", "a rank froze on",
        run(
            "see what is stopped or waits for a device there",
            "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^[DT]/'",
        ),
    ),
    RankFault.SILENT: _way("rank-silent", "netdoctor lost {nodes} in the middle of an experiment", "lost"),
    RankFault.STORE: _way("rank-store", "{nodes} cannot reach the rendezvous of a torch job", sure=LIKELY),
    RankFault.CONNECT: _way(
        "rank-connect", "{nodes} cannot connect to the other ranks of a torch job", sure=LIKELY
    ),
    RankFault.STUCK: _way(
        "rank-stuck", "a torch job did not get done in the time that netdoctor gives it",
        "no more time; furthest behind", sure=SUSPECTED,
    ),
}  # fmt: skip
ERROR = _way("rank-error", "torch.distributed fails on {nodes}", sure=SUSPECTED)

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
        way = WAYS.get(one.what, ERROR)
        doubtful = shared and way.cause.confidence is not CERTAIN
        cause = way.cause.but(confidence=SUSPECTED) if doubtful else way.cause
        # A rank that is alive and has not come far was too slow for this scan, and perhaps for nothing else.
        say = cause.unknown if one.what in (RankFault.SILENT, RankFault.STUCK) else cause.fail
        yield say(
            f"rank {one.rank} ({STAGES.get(one.during, one.during or 'starting')}): {one.detail}",
            at=node,
            culprits=tuple(roots) if shared else (),
            observed=one.what,
            seen=[seen(f"rank {e.rank}, {e.during}", e.detail, at=e.node) for e in (one, *echoes)],
            fixes=way.fixes,
        )
    why = "not measured"
    if roots:
        first = next(iter(roots.values()))
        why += f": {WAYS.get(first.what, ERROR).why} {listing(roots, 3)}"
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


def left_out(measured: PairRates | AllReduce, nodes: Mapping[str, object]) -> Iterator[Finding]:
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
