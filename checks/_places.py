"""Words for file systems: what a key may hold of a path, and whether two nodes see the same directory."""

import re
from collections.abc import Collection, Mapping

from netdoctor.checks._words import size, title_text
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import HUNG, UNTRIED, Place, PlaceFacts
from netdoctor.model import Cause

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
# Of these the server is named, and numbers the inodes. Elsewhere (FUSE, 9p, virtiofs) the source is a word
# that any machine may use, and the numbers are the client's own.
NUMBERED = ("nfs", "nfs4", "lustre", "ceph", "gpfs", "wekafs")


def at(cause: Cause, path: str) -> Cause:
    """The cause for one path: a key of its own, and the path in its title where that has ``{where}``."""
    slug = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[:40] or "root"
    return cause.but(key=f"{cause.key}-{slug}", title=cause.title.replace("{where}", title_text(path)))


def asked(nodes: Mapping[str, PlaceFacts]) -> dict[str, dict[str, Place]]:
    """What the nodes say of each --path: by the user's word for it, then by node."""
    found: dict[str, dict[str, Place]] = {}
    for node, facts in nodes.items():
        for place in facts.places:
            if place.role == "path":
                found.setdefault(place.asked or place.path, {})[node] = place
    return found


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
