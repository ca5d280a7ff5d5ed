"""What two copies of a path differ in."""

from collections.abc import Iterator, Mapping

from netdoctor.checks._majority import majority
from netdoctor.checks._parity import differing
from netdoctor.checks._places import at
from netdoctor.checks._words import listing, quoted, size
from netdoctor.facts.places import Place
from netdoctor.model import PEERS, Cause, Finding, Fix, look, ok, run, seen

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
        yield from differing(told, f"git revision of {path}", at(REVISION, path), fixes=fixes)
        return
    if any(place.kind != "directory" for place in there.values()):
        told = {node: _said(place) for node, place in there.items()}
        yield from differing(told, path, at(CONTENTS, path), fixes=fixes)
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
        yield at(ENTRIES, path).warn(
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
