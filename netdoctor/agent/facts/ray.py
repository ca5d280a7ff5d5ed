"""Group `ray`: the raylet that runs here, as its command line and its files say."""

import os
import sys

from .. import runtime
from ..system import files, procs
from ..system.sockets import listeners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

COMMAND_CAP = 256 * 1024
SOCKETS_CAP = 32 << 20
MOST_PORTS = 16
_VERSION = r'(?m)^(version|commit) = "([^"]{1,80})"'
# 0000000052d4ad44: 00000002 00000000 00010000 0001 01 115967 /tmp/ray/session_2026-…/sockets/raylet
_RAYLET = r"(?m)^\S+: \S+ \S+ 00010000 0001 01 \d+ (/\S*/sockets/raylet[.\d]*)$"


def options(arguments: "list[str]") -> "dict[str, str]":
    """Return ``--name=value`` of a command line by name; Ray's commands in values stay in one piece."""
    pairs = (word[2:].partition("=") for word in arguments if word.startswith("--"))
    return {name: value for name, sep, value in pairs if sep}


def resources(text: str) -> "dict[str, float]":
    """Return what ``CPU,8,GPU,2,memory,1e9`` hands out, by name."""
    words = text.split(",")
    found = {}  # type: dict[str, float]
    for name, count in zip(words[::2], words[1::2]):  # noqa: B905  not on Python 3.6
        try:
            found[name] = float(count)
        except ValueError:
            pass
    return found


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.ray.RayFacts."""
    if not runs(root):
        raise runtime.Unavailable("not_applicable", "no Ray runs here")
    found = []  # type: list[tuple[int, list[str]]]
    for pid in procs.pids(root):
        command = files.text_or_none(files.under(root, "/proc/%d/cmdline" % pid), COMMAND_CAP) or ""
        words = command.split("\0")
        if os.path.basename(words[0]) == "raylet" and options(words):
            found.append((pid, words))
    if not found:
        why = "a raylet runs here, and this user does not see its process"
        raise runtime.Unavailable("no_permission", why)
    pid, words = found[0]
    cluster = [options(more) for _, more in found if _node(more) == _node(words)]
    return _facts(pid, words, cluster, root)


def _node(words: "list[str]") -> "tuple[Optional[str], Optional[str]]":
    """What raylets have in common that one `ray start` after another has left on a machine."""
    given = options(words)
    return given.get("gcs-address"), given.get("node_ip_address")


def runs(root: str = "/") -> bool:
    """Return whether a raylet listens here, whoever's it is and whatever Ray's folder is called: one read."""
    table = files.text_or_none(files.under(root, "/proc/net/unix"), SOCKETS_CAP) or ""
    return "/sockets/raylet" in table and bool(_found(_RAYLET, table))


def _found(pattern: str, text: str) -> "list[Any]":
    import re  # most nodes without Ray get by without

    return re.findall(pattern, text)


def _facts(pid: int, words: "list[str]", cluster: "list[dict[str, str]]", root: str) -> "dict[str, Any]":
    """Of the raylet `pid`. cluster: options of all of its cluster at one address, its own among them."""
    given = options(words[1:])
    # …/site-packages/ray/core/src/ray/raylet/raylet
    home = words[0]
    for _ in range(5):
        home = os.path.dirname(home)
    release = dict(_found(_VERSION, files.text_or_none(files.under(root, home + "/_version.py")) or ""))
    python = given.get("python_worker_command", "").split(" ")[0]
    low, high = _number(given.get("min_worker_port")), _number(given.get("max_worker_port"))
    handed = {}  # type: dict[str, float]
    for each in cluster:
        for name, count in resources(each.get("static_resource_list", "")).items():
            handed[name] = handed.get(name, 0.0) + count
    return {
        "version": release.get("version"),
        "commit": release.get("commit"),
        "python": python,
        "python_version": _python_version(python) if root == "/" else None,
        "address": given.get("node_ip_address", ""),
        "gcs_address": given.get("gcs-address", ""),
        "ports": _ports(pid, root),
        "worker_ports": [low, high] if low and high else None,
        "raylets": len(cluster),
        "cpus": handed.get("CPU"),
        "gpus": handed.get("GPU"),
        "object_store_bytes": _number(given.get("object_store_memory")),
        "object_store_dir": given.get("plasma_directory", ""),
    }


def _number(text: "Optional[str]") -> "Optional[int]":
    return int(text) if text and text.isdigit() else None


def _python_version(python: str) -> "Optional[str]":
    """Return ``3.11.7`` of an interpreter."""
    if not python.startswith("/"):
        return None
    if os.path.realpath(python) == os.path.realpath(sys.executable or "/"):
        return "%d.%d.%d" % tuple(sys.version_info[:3])
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        found = runtime.run_tool([python, "-E", "-S", "-s", "-c", code], 5.0)
    except OSError:
        return None
    return found.out.strip()[:20] if found.code == 0 else None


def _ports(pid: int, root: str) -> "list[int]":
    """Return the TCP ports on which a process listens; none where its descriptors are not shown."""
    folder = files.under(root, "/proc/%d/fd" % pid)
    sockets = set()
    for fd in files.names(folder):
        try:
            sockets.add(os.readlink(os.path.join(folder, fd)))
        except OSError:
            continue
    found = {one.port for one in listeners(root) if "socket:[" + one.inode + "]" in sockets}
    return sorted(found)[:MOST_PORTS]
