"""Words for file systems: what a key may hold of a path, and whether two nodes see the same directory."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence

from netdoctor.checks._shared.parity import unlike_expected_by_name
from netdoctor.checks._shared.text import quoted, size, slug, title_text
from netdoctor.facts.expected import ABSENT as MISSING
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import HUNG, UNTRIED, Place, PlaceFacts
from netdoctor.model import Cause, Finding, Fix, Status, look

# What the kernel says of a mount whose server, or whose user-space half, is gone.
MOUNT_ERRORS = {
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
MOUNTS_MAX = 8
KEY_LETTERS = 40
# Of these the server is named, and numbers the inodes. Elsewhere (FUSE, 9p, virtiofs) the source is a word
# that any machine may use, and the numbers are the client's own.
NUMBERED = ("nfs", "nfs4", "lustre", "ceph", "gpfs", "wekafs")


def cause_at(cause: Cause, path: str) -> Cause:
    """The cause for one path: a key of its own, and the path in its title where that has ``{where}``."""
    return cause.but(
        key=f"{cause.key}-{_key_of(path)}", title=cause.title.replace("{where}", title_text(path))
    )


def _key_of(path: str) -> str:
    """``mnt-data``. What that could stand for beside /mnt/data, as /mnt-data or a longer one, gets a hash:
    who accepts one path's problem has not accepted another's."""
    word = slug(path)
    if path == "/":
        return "root"
    if len(word) <= KEY_LETTERS and word != "root" and path == f"/{word.replace('-', '/')}":
        return word
    mark = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{word[:KEY_LETTERS].rstrip('-')}-{mark}".lstrip("-")


def requested_paths(nodes: Mapping[str, PlaceFacts]) -> dict[str, dict[str, Place]]:
    """What the nodes say of each --path: by the user's word for it, then by node."""
    found: dict[str, dict[str, Place]] = {}
    for node, facts in nodes.items():
        for location in facts.places:
            if location.role == "path":
                found.setdefault(location.asked or location.path, {})[node] = location
    return found


def unreported(facts: PlaceFacts, paths: Sequence[str]) -> list[str]:
    """The paths of which a node said nothing. One that was named twice, as ~/x and /root/x, is told once."""
    reported = [location for location in facts.places if location.role == "path"]
    names = {location.asked for location in reported} | {location.path for location in reported}
    return [
        path
        for path in paths
        if path not in names and not (path[:1] == "~" and any(p.path.endswith(path[1:]) for p in reported))
    ]


def unexpected_mounts(nodes: Mapping[str, PlaceFacts], expect: Expectations | None) -> Iterator[Finding]:
    """Compare what is mounted with what is expected, by mount point or path."""
    if expect is None:
        return
    expected = expect.names(MOUNT)
    have: dict[str, dict[str, str | None]] = {}
    for node, facts in nodes.items():
        values = have[node] = {}
        for location in facts.places:
            mount = None if location.error else mount_text(location)
            for name in {location.path, location.mount_point, location.asked} & expected:
                values[str(name)] = mount
            if location.network and location.mount_point and mount:
                values.setdefault(location.mount_point, mount)
        # Of what is not from the network only what was named is looked at; and not of very many mounts.
        complete = sum(location.role == "mount" for location in facts.places) < MOUNTS_MAX
        for name in expected - values.keys():
            local = any(one.startswith("local") for w in expect.wishes if w.of == name for one in w.any_of)
            values[name] = MISSING if complete and not local else None
    yield from unlike_expected_by_name(have, "mount", NOT_MOUNTED, MOUNT, expect, status=Status.FAIL)


def unread_reason(location: Place, patience_s: float) -> str:
    """Why nothing is known of a location; empty where something is."""
    if location.error == HUNG:
        return f"no answer within {patience_s:g} s"
    if location.error == UNTRIED:
        return "not read, because other paths hang"
    return "" if location.error is None else MOUNT_ERRORS.get(location.error, location.error)


def mount_text(location: Place) -> str:
    """``nfs4 10.0.0.5:/export/data``, ``local ext4``."""
    if not location.network:
        return f"local {location.fs_type or 'file system'}"
    return f"{location.fs_type} {location.source or ''}".strip()


def identity(location: Place, node: str, host: HostFacts | None) -> tuple[str, ...]:
    """Equal where two nodes certainly see one thing; nodes of one kernel share its devices."""
    if not location.network:
        return ((host.boot_id if host else None) or node, location.device or node, location.inode or "")
    source = location.source or ""
    # A helper on the node itself passes some mounts on (127.0.0.1:/ of EFS).
    if location.fs_type in NUMBERED and source and not source.startswith(("localhost", "127.")):
        return (_servers(source), location.inside or "", location.inode or "")
    # One inode, changed in the same nanosecond.
    return (location.fs_type or "", location.inside or "", location.inode or node, location.changed or node)


def _servers(source: str) -> str:
    # ``mon2,mon1:/`` and ``mon1,mon2:/`` are one file system; so are ``:/x`` and ``:/x/``.
    names, colon, path = source.rpartition(":/")
    return ",".join(sorted(names.split(","))) + colon + path.rstrip("/")


def served_by(location: Place, names: Collection[str]) -> bool:
    """Whether the machine of these names and addresses is the one that serves a mount."""
    server = (location.source or "").rpartition(":/")[0].strip("[]")
    return bool(server) and any(server == name or server.split(".")[0] == name for name in names)


def free_space(location: Place) -> str:
    return f"{size(location.free_bytes)} free of {size(location.total_bytes)}"


def clean_up(path: str) -> Fix:
    """See what fills a file system."""
    where = quoted(path)
    return look(
        "see what fills it, and delete what is not needed",
        f"df -h {where}; du -xah {where} 2>/dev/null | sort -h | tail -n 15",
        root=True,
    )
