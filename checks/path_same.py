"""Code, data and models, compared between nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._contents import compared, copied
from netdoctor.checks._places import ABSENT, asked, at, identity, unseen, untold
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import Place, PlaceFacts
from netdoctor.facts.software import Job
from netdoctor.model import DERIVED, PEERS, Cause, Finding, seen, skip, unknown

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
        for path in untold(facts, job.paths):
            yield unknown(node, f"{path}: the node did not say what is there")
    for path, seen_by in asked(places).items():
        there = {node: place for node, place in seen_by.items() if place.error is None}
        absent = [node for node, place in seen_by.items() if place.error in ABSENT]
        for node, place in seen_by.items():
            if node not in there and node not in absent:
                yield unknown(node, f"{path}: {unseen(place, places[node].patience_s)}")
        for node in absent:
            where = f"; it is there on {listing(there, 3)}" if there else ""
            yield at(MISSING, path).fail(
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
