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
from netdoctor.model import DERIVED, LIKELY, PEERS, Cause, Finding, Fix, look, ok, run, seen, skip, unknown

REVISION = Cause("path-revision", "The revision of {where} differs between {nodes}")
CONTENTS = Cause("path-file", "{where} differs between {nodes}")
SPLIT = Cause("path-entries", "the contents of {where} differ between {nodes}")
ENTRIES = Cause("path-entries", "the contents of {where} on {nodes} differ from most nodes")


def compared(path: str, copies: Mapping[str, Place]) -> Iterator[Finding]:
    """A finding for each node whose copy is not the one that most nodes have."""

    def fixes(_: str, expected: str) -> Fix:
        return copied(path, next(node for node, one in described.items() if one == expected))

    revisions = {node: copy.revision or "none" for node, copy in copies.items()}
    if majority(revisions).equal is False:
        described = {node: one[:12] for node, one in revisions.items()}
        yield from differing(described, f"git revision of {path}", cause_at(REVISION, path), fixes=fixes)
        return
    if any(copy.kind != "directory" for copy in copies.values()):
        described = {node: _label(copy) for node, copy in copies.items()}
        yield from differing(described, path, cause_at(CONTENTS, path), fixes=fixes)
        return
    contents = majority({node: (copy.digest, *sorted(copy.entries.items())) for node, copy in copies.items()})
    if contents.equal:
        partly = any(copy.sampled for copy in copies.values())
        yield from (ok(node, f"{path} is the same, as far as it was read") for node in copies if partly)
        return
    cause = cause_at(ENTRIES, path)
    if contents.is_split:
        cause = cause.but(title=cause_at(SPLIT, path).title + f", {contents.words}", confidence=LIKELY)
    first, second, *_ = contents.groups.values()
    for node in contents.minority:
        typical = second if node in first else first  # of two sides each is held against the other
        local, pattern = copies[node], copies[typical[0]]
        names = local.entries.keys() | pattern.entries.keys()
        odd = sorted(name for name in names if local.entries.get(name) != pattern.entries.get(name))
        what = listing(odd, 4) if odd else f"{local.entries_total} entries, not {pattern.entries_total}"
        yield cause.warn(
            f"{path} differs from {listing(typical, 3)}: {what}",
            at=node,
            observed=what,
            expected=PEERS(f"as on {listing(typical, 3)}"),
            seen=seen(f"the names in {path}", what),
            fixes=copied(path, typical[0]),
        )


def _label(copy: Place) -> str:
    if copy.kind == "directory":
        return (copy.revision or "none")[:12] if copy.revision else "a directory"
    if copy.size_bytes is None:
        return copy.kind or "something else"
    length = size(copy.size_bytes) if copy.size_bytes >= 1024 else f"{copy.size_bytes} bytes"
    return f"{length}, SHA-256 {copy.digest}"


def copied(path: str, source: str) -> Fix:
    """Return how a node gets what `source` has. A person decides which side is right."""
    if not source:
        return run("copy it to this node, or correct --path")
    text = f"compare it with {source}, and copy the correct one"
    return look(text, f"ls -lA --time-style=full-iso {quoted(path)}")


MISSING = Cause("path-missing", "{where} does not exist on {nodes}")


@check(profile="asked", source="https://docs.pytorch.org/docs/stable/elastic/run.html")
def path_same(found: Mapping[str, PlaceFacts], hosts: Mapping[str, HostFacts], job: Job) -> Iterator[Finding]:
    """Every path of the job exists on all nodes, with the same contents.

    Looks at:
        For every ``--path``: whether it exists. Of a file: size and SHA-256 (above 16 MiB of samples over
        the whole length). Of a folder: the git revision, and names, sizes and small contents of its first
        64 entries, 128 below each. Logs and caches are left out. Nodes that share one directory are not
        compared.

    Matters because:
        torchrun starts the same file on every node and copies nothing. If it is missing, the launch ends.
        If it is another version, ranks call different collectives, and hang or compute wrong results.

    Fix:
        Copy it from a correct node, check out the same revision, or put it on a shared file system.
    """
    if not job.paths:
        yield skip("no --path was given")
    for node, facts in found.items():
        for path in unreported(facts, job.paths):
            yield unknown(node, f"{path}: the node did not report it")
    for path, by_node in requested_paths(found).items():
        present = {node: copy for node, copy in by_node.items() if copy.error is None}
        absent = [node for node, copy in by_node.items() if copy.error in ABSENT]
        for node, copy in by_node.items():
            if node not in present and node not in absent:
                yield unknown(node, f"{path}: {unread_reason(copy, found[node].patience_s)}")
        for node in absent:
            where = f"; it exists on {listing(present, 3)}" if present else ""
            yield cause_at(MISSING, path).fail(
                f"{path} does not exist{where}",
                at=node,
                observed="does not exist",
                expected=PEERS("an existing path") if present else DERIVED("--path exists"),
                seen=seen(f"stat() of {path}", "no such file or directory"),
                fixes=copied(path, next(iter(present), "")),
            )
        # Of those who see one and the same thing the first one's word holds: it may be written meanwhile.
        first: dict[tuple[str, ...], Place] = {}
        for node, copy in present.items():
            first.setdefault(identity(copy, node, hosts.get(node)), copy)
        copies = {node: first[identity(copy, node, hosts.get(node))] for node, copy in present.items()}
        if len(first) > 1:
            yield from compared(path, copies)
