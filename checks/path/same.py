"""Code, data and models, compared between nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.positions import (
    ABSENT,
    cause_at,
    identity,
    requested_paths,
    unread_reason,
    unreported,
)
from netdoctor.checks._shared.text import listing, quoted, size
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import Place, PlaceFacts
from netdoctor.facts.software import Job
from netdoctor.model import DERIVED, PEERS, Cause, Finding, Fix, look, ok, run, seen, skip, unknown

REVISION = Cause("path-revision", "The revision of {where} differs between {nodes}")
CONTENTS = Cause("path-file", "{where} differs between {nodes}")
ENTRIES = Cause("path-entries", "{where} holds something else on {nodes} than on most nodes")


def compared(path: str, there: Mapping[str, Place]) -> Iterator[Finding]:
    """A finding for each node whose copy is not the one that most nodes have."""

    def fixes(node: str, wanted: str) -> Fix:
        return copied(path, next((n for n, p in there.items() if n != node and _said(p) == wanted), ""))

    revisions = {node: place.revision or "none" for node, place in there.items()}
    if majority(revisions).equal is False:
        told = {node: one[:12] for node, one in revisions.items()}
        yield from differing(told, f"git revision of {path}", cause_at(REVISION, path), fixes=fixes)
        return
    if any(place.kind != "directory" for place in there.values()):
        told = {node: _said(place) for node, place in there.items()}
        yield from differing(told, path, cause_at(CONTENTS, path), fixes=fixes)
        return
    whole = majority({node: (place.digest, *sorted(place.entries.items())) for node, place in there.items()})
    if whole.equal:
        partly = any(place.sampled for place in there.values())
        yield from (ok(node, f"{path} is the same as far as it was looked at") for node in there if partly)
        return
    usual = next(iter(whole.groups.values()))
    pattern = there[usual[0]]
    for node in whole.minority:
        own = there[node]
        names = own.entries.keys() | pattern.entries.keys()
        odd = sorted(name for name in names if own.entries.get(name) != pattern.entries.get(name))
        if node == usual[0]:
            continue
        what = listing(odd, 4) if odd else f"{own.entries_total} entries, not {pattern.entries_total}"
        yield cause_at(ENTRIES, path).warn(
            f"{path} is not as on {listing(usual, 3)}: {what}",
            at=node,
            observed=what,
            expected=PEERS(f"as on {listing(usual, 3)}"),
            seen=seen(f"ls {path}", what, "command"),
            fixes=copied(path, usual[0]),
        )


def _said(place: Place) -> str:
    if place.kind == "directory":
        return (place.revision or "none")[:12] if place.revision else "a directory"
    if place.size_bytes is None:
        return place.kind or "something else"
    length = size(place.size_bytes) if place.size_bytes >= 1024 else f"{place.size_bytes} bytes"
    return f"{length}, SHA-256 {place.digest}"


def copied(path: str, source: str) -> Fix:
    """How a node gets what `source` has: by hand, as nobody knows which side is right."""
    if not source:
        return run("bring it to this node, or correct --path")
    text = f"compare it with {source}, and copy it from where it is right"
    return look(text, f"ls -lA --time-style=full-iso {quoted(path)}")


MISSING = Cause("path-missing", "{where} does not exist on {nodes}")


@check(profile="asked", source="https://docs.pytorch.org/docs/stable/elastic/run.html")
def path_same(
    places: Mapping[str, PlaceFacts], hosts: Mapping[str, HostFacts], job: Job
) -> Iterator[Finding]:
    """Every path of the job is there on all nodes, and the same.

    Looks at:
        For every ``--path``: whether it exists; of a file, its size and SHA-256 (beyond 16 MiB, of windows
        from end to end); of a folder, the git revision, and names, sizes and small contents of its first 64
        entries, 128 below each. Logs and caches are left out. Nodes that see one and the same directory are
        not compared.

    Matters because:
        torchrun starts the same file on every node and copies nothing. Where it is missing the launch ends;
        where it is another version, ranks do not meet in the same collectives, and hang or compute nonsense.

    Fix:
        Copy it from the node that is right, check out the same revision, or keep it on a shared file system.
    """
    if not job.paths:
        yield skip("no --path was given")
    for node, facts in places.items():
        for path in unreported(facts, job.paths):
            yield unknown(node, f"{path}: the node did not say what is there")
    for path, seen_by in requested_paths(places).items():
        there = {node: place for node, place in seen_by.items() if place.error is None}
        absent = [node for node, place in seen_by.items() if place.error in ABSENT]
        for node, place in seen_by.items():
            if node not in there and node not in absent:
                yield unknown(node, f"{path}: {unread_reason(place, places[node].patience_s)}")
        for node in absent:
            where = f"; it is there on {listing(there, 3)}" if there else ""
            yield cause_at(MISSING, path).fail(
                f"{path} does not exist{where}",
                at=node,
                observed="does not exist",
                expected=PEERS("a path that is there") if there else DERIVED("what --path names is there"),
                seen=seen(f"stat {path}", "No such file or directory", "command"),
                fixes=copied(path, next(iter(there), "")),
            )
        # Of those who see one and the same thing the first one's word holds: it may be written meanwhile.
        first: dict[tuple[str, ...], Place] = {}
        for node, place in there.items():
            first.setdefault(identity(place, node, hosts.get(node)), place)
        alike = {node: first[identity(place, node, hosts.get(node))] for node, place in there.items()}
        if len(first) > 1:
            yield from compared(path, alike)
