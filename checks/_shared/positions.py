"""Words for file systems: what a key may hold of a path, and whether two nodes see the same directory."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from netdoctor.checks._shared.parity import named
from netdoctor.checks._shared.text import size, title_text
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import HUNG, UNTRIED, Place, PlaceFacts
from netdoctor.facts.wanted import ABSENT as MISSING
from netdoctor.facts.wanted import Wanted
from netdoctor.model import Cause, Finding, Status

# What the kernel says of a mount whose server, or whose user-space half, is gone.
GONE = {
    "ESTALE": "its handle is stale: the server has another file system there now",
    "EIO": "input/output error",
    "ENOTCONN": "the program that serves it has ended",
    "EHOSTDOWN": "its server is down",
    "ETIMEDOUT": "its server does not answer",
    "ESHUTDOWN": "the file system has shut itself down",
    "ENXIO": "its device is gone",
    "ENODEV": "its device is gone",
}
ABSENT = ("ENOENT", "ENOTDIR")
# What may be expected of a mount point, or of a --path: what `of` says of it.
MOUNT = "fs.mount.*"
NOT_MOUNTED = Cause("fs-not-as-typed", "file systems of {nodes} are not as expected")
# As many of a node's network mounts as are looked at (agent/facts/places.py, MOUNTS_AT_MOST).
MOUNTS_TOLD = 8
KEY_LETTERS = 40
# Of these the server is named, and numbers the inodes. Elsewhere (FUSE, 9p, virtiofs) the source is a word
# that any machine may use, and the numbers are the client's own.
NUMBERED = ("nfs", "nfs4", "lustre", "ceph", "gpfs", "wekafs")


def at(cause: Cause, path: str) -> Cause:
    """The cause for one path: a key of its own, and the path in its title where that has ``{where}``."""
    return cause.but(key=f"{cause.key}-{_slug(path)}", title=cause.title.replace("{where}", title_text(path)))


def _slug(path: str) -> str:
    """``mnt-data``. What that could stand for beside /mnt/data, as /mnt-data or a longer one, gets a hash:
    who accepts one path's problem has not accepted another's."""
    slug = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")
    if path == "/":
        return "root"
    if len(slug) <= KEY_LETTERS and slug != "root" and path == f"/{slug.replace('-', '/')}":
        return slug
    mark = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[:KEY_LETTERS].rstrip('-')}-{mark}".lstrip("-")


def asked(nodes: Mapping[str, PlaceFacts]) -> dict[str, dict[str, Place]]:
    """What the nodes say of each --path: by the user's word for it, then by node."""
    found: dict[str, dict[str, Place]] = {}
    for node, facts in nodes.items():
        for place in facts.places:
            if place.role == "path":
                found.setdefault(place.asked or place.path, {})[node] = place
    return found


def untold(facts: PlaceFacts, paths: Sequence[str]) -> list[str]:
    """The paths of which a node said nothing. One that was named twice, as ~/x and /root/x, is told once."""
    told = [place for place in facts.places if place.role == "path"]
    names = {place.asked for place in told} | {place.path for place in told}
    return [
        path
        for path in paths
        if path not in names and not (path[:1] == "~" and any(p.path.endswith(path[1:]) for p in told))
    ]


def as_typed(nodes: Mapping[str, PlaceFacts], expect: Wanted | None) -> Iterator[Finding]:
    """Hold what is mounted to what was typed, by mount point or path."""
    if expect is None:
        return
    asked_for = expect.names(MOUNT)
    have: dict[str, dict[str, str | None]] = {}
    for node, facts in nodes.items():
        mine = have[node] = {}
        for place in facts.places:
            said = None if place.error else of(place)
            for name in {place.path, place.mount_point, place.asked} & asked_for:
                mine[str(name)] = said
            if place.network and place.mount_point and said:
                mine.setdefault(place.mount_point, said)
        # Of what is not from the network only what was named is looked at; and not of very many mounts.
        all_told = sum(place.role == "mount" for place in facts.places) < MOUNTS_TOLD
        for name in asked_for - mine.keys():
            local = any(one.startswith("local") for w in expect.wishes if w.of == name for one in w.any_of)
            mine[name] = MISSING if all_told and not local else None
    yield from named(have, "mount", NOT_MOUNTED, MOUNT, expect, status=Status.FAIL)


def unseen(place: Place, patience_s: float) -> str:
    """Why nothing is known of a place; empty where something is."""
    if place.error == HUNG:
        return f"no answer within {patience_s:g} s"
    if place.error == UNTRIED:
        return "not looked at, because other places hang"
    return "" if place.error is None else GONE.get(place.error, place.error)


def of(place: Place) -> str:
    """``nfs4 10.0.0.5:/export/data``, ``local ext4``."""
    if not place.network:
        return f"local {place.fs_type or 'file system'}"
    return f"{place.fs_type} {place.source or ''}".strip()


def identity(place: Place, node: str, host: HostFacts | None) -> tuple[str, ...]:
    """Equal where two nodes certainly see one thing; nodes of one kernel share its devices."""
    if not place.network:
        return ((host.boot_id if host else None) or node, place.device or node, place.inode or "")
    source = place.source or ""
    # A helper on the node itself passes some mounts on (127.0.0.1:/ of EFS).
    if place.fs_type in NUMBERED and source and not source.startswith(("localhost", "127.")):
        return (_servers(source), place.inside or "", place.inode or "")
    # One inode, changed in the same nanosecond.
    return (place.fs_type or "", place.inside or "", place.inode or node, place.changed or node)


def _servers(source: str) -> str:
    # ``mon2,mon1:/`` and ``mon1,mon2:/`` are one file system; so are ``:/x`` and ``:/x/``.
    names, colon, path = source.rpartition(":/")
    return ",".join(sorted(names.split(","))) + colon + path.rstrip("/")


def served_by(place: Place, names: Collection[str]) -> bool:
    """Whether the machine of these names and addresses is the one that serves a mount."""
    server = (place.source or "").rpartition(":/")[0].strip("[]")
    return bool(server) and any(server == name or server.split(".")[0] == name for name in names)


def room(place: Place) -> str:
    return f"{size(place.free_bytes)} free of {size(place.total_bytes)}"
