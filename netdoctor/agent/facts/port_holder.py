"""Group `port_holder`: who listens on the job's rendezvous port."""

import errno
import os
import struct
import time

from ..system import files, procs
from ..system.sockets import Socket, listeners
from ..system.sockets import raw as socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_LISTENERS = 32
# A port that is taken, and by nobody who can be seen, is looked at again.
LOOKS = 3
BETWEEN_S = 0.05


def decode_address(text: str) -> str:
    """Return 127.0.0.1 of ``0100007F``: words in host byte order."""
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    packed = struct.pack("=%dI" % len(words), *words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed)


def holders(inodes: "set[str]", root: str) -> "dict[str, int]":
    """Return pid by socket inode, as far as /proc lets this user look."""
    found = {}  # type: dict[str, int]
    links = {"socket:[" + inode + "]": inode for inode in inodes}
    for pid in procs.pids(root):
        folder = files.under(root, "/proc/%d/fd" % pid)
        for fd in files.names(folder):
            try:
                inode = links.get(os.readlink(os.path.join(folder, fd)))
            except OSError:
                continue
            if inode is not None:
                found.setdefault(inode, pid)
        if len(found) == len(inodes):
            break
    return found


def bind_error(port: int) -> "Optional[str]":
    """Return the errno name that a real bind() meets, or None. SO_REUSEADDR as torch sets it; no listen()."""
    # torch's store binds [::] first and falls back to 0.0.0.0; a bound socket without listen() accepts
    # nothing.
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with Socket(family, socket.SOCK_STREAM) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind((address, port))
            return None
        except OSError as e:
            if family == socket.AF_INET6 and e.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue  # no IPv6 here
            return files.errno_name(e)
    return None


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.net.PortHolderFacts. args: {"port": number}."""
    port = int(args["port"])
    if not 0 < port < 65536:
        raise ValueError("no such port: %d" % port)
    for _ in range(LOOKS):
        error = bind_error(port) if root == "/" else None
        # Where [::] can be bound, and does not stand for IPv6 alone, nobody listens on any address, and the
        # table of all connections, which costs the kernel milliseconds, need not be read.
        free = error is None and root == "/" and not files.number("/proc/sys/net/ipv6/bindv6only")
        rows = [] if free else _listening(port, root)
        inodes = {inode for _, _, inode in rows if inode != "0"}
        pids = holders(inodes, root) if rows else {}
        if len(pids) == len(inodes) and (rows or error != "EADDRINUSE"):
            break
        time.sleep(BETWEEN_S)  # who held it may be gone by now
    found = []
    for address, opener, inode in rows:
        pid = pids.get(inode)
        if pid is not None and procs.is_scan(pid, root):
            continue
        known = procs.describe(pid, root) if pid is not None else {}
        # The socket is its opener's, often root's; the process that holds it may be somebody else's by now.
        uid = opener if known.get("uid") is None else known["uid"]
        found.append(
            {
                "port": port,
                "address": address,
                "uid": uid,
                "user": procs.user_name(uid),
                "pid": pid,
                "process": known.get("name"),
                "age_s": known.get("age_s"),
            }
        )
    return {"port": port, "listeners": found, "bind_error": error, "other_scan": len(found) < len(rows)}


def _listening(port: int, root: str) -> "list[tuple[str, int, str]]":
    """Return (address, uid, inode) of sockets in LISTEN on a port."""
    rows = []  # type: list[tuple[str, int, str]]
    for listener in listeners(root):
        if listener.port == port and len(rows) < MAX_LISTENERS:
            try:
                rows.append((decode_address(listener.address), listener.uid, listener.inode))
            except (ValueError, OSError, struct.error):
                continue
    return rows


def is_free_soon(port: int) -> bool:
    """Return whether nobody but another scan of netdoctor listens on a port, as far as can be seen."""
    for _ in range(LOOKS):
        inodes = {inode for _, _, inode in _listening(port, "/")}
        pids = holders(inodes, "/")
        if len(pids) == len(inodes) and all(procs.is_scan(pid) for pid in pids.values()):
            return True
        time.sleep(BETWEEN_S)  # who held it may be gone by now
    return False
