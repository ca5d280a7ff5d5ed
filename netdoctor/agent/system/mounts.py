"""What is mounted on this node, as the kernel lists it."""

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

# Served by another machine, so that they may hang. [fs/*/ in Linux, and the clients' own names]
_NETWORK = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "wekafs", "panfs",
    "pvfs2", "orangefs", "afs", "9p", "virtiofs", "gfs2", "ocfs2", "vastnfs", "daos", "fuse",
))  # fmt: skip
# Of FUSE, what serves a session or a container and no job.
_FUSE_LOCAL = ("portal", "gvfsd-fuse", "lxcfs", "snapfuse", "fuse-overlayfs", "rofiles-fuse", "kio-fuse")
# These turn read-only by themselves after an error.
_FALLING = ("ext4", "ext3", "btrfs", "f2fs")


class Mount(object):
    """One line of mountinfo. mount_options, super_options: of the mount, and of the file system."""

    def __init__(
        self, point: str, kind: str, source: str, root: str, mount_options: str, super_options: str
    ) -> None:
        self.point = point
        self.kind = kind
        self.source = source
        self.root = root  # what of the file system is mounted
        self.options = super_options
        of_mount, of_system = mount_options.split(","), super_options.split(",")
        self.read_only = "ro" in of_mount or "ro" in of_system
        fell = "ro" in of_system and "rw" in of_mount and kind in _FALLING
        # Since Linux 6.15 ext4 says so in words.
        self.fell = fell or "emergency_ro" in of_system or "shutdown" in of_system

    @property
    def is_network(self) -> bool:
        kind, _, sub = self.kind.partition(".")
        return kind in _NETWORK and sub not in _FUSE_LOCAL


def read_mounts(root: str) -> "list[Mount]":
    """Return what is mounted; a later mount hides an earlier one on its point.

    ``36 35 0:48 /exp /data rw,relatime shared:1 - nfs4 10.0.0.5:/export rw,vers=4.2``
    """
    found = {}
    text = files.text_or_none(files.under(root, "/proc/self/mountinfo"), 1 << 20) or ""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        mount, system = left.split(), [*right.split(), ""]
        if len(mount) > 5 and len(system) > 2:
            point = _unescaped(mount[4])
            source = _unescaped(system[1])[:400]
            found[point] = Mount(point, system[0], source, _unescaped(mount[3]), mount[5], system[2])
    return list(found.values())


def mount_of(path: str, mounts: "list[Mount]") -> "Optional[Mount]":
    """Return the mount that a path without links lies on."""
    above = [m for m in mounts if path == m.point or path.startswith(m.point.rstrip("/") + "/")]
    return max(above, key=lambda m: len(m.point)) if above else None


def _unescaped(path: str) -> str:
    """Return a path of mountinfo without its escapes: ``/my\\040disk``."""
    first, *rest = path.split("\\")
    for part in rest:
        octal = len(part) >= 3 and not part[:3].strip("01234567")
        first += chr(int(part[:3], 8)) + part[3:] if octal else "\\" + part
    return first
