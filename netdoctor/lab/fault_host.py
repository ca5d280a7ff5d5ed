"""Faults of a node's names, clock, ports, limits and file systems."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import subprocess

from netdoctor.lab import guest, requirements
from netdoctor.lab import node as nodes
from netdoctor.lab.fault import Fault, end_guest, keep, node_pid, require
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active
from netdoctor.lab.system import LabError

PRELOAD = "/etc/ld.so.preload"
CLOCK_LIBRARY = "/usr/lib/netdoctor-lab-clock.so"
CLOCK_OFFSET = "/etc/netdoctor-lab-clock"
FILLER = "filler.bin"
ABSOLUTE = (r"/[\w./-]+", " is not the absolute path of a directory")
LEFT_OVER = "/dev/shm/torch_99999999_1_0"


# --- names ----------------------------------------------------------------------------------------


def names(site: Site, active: Active) -> None:
    p = active.params
    if "peer" in p:
        p["peer"] = p["peer"] or next(n for n in [*site.state.nodes, ""] if n != active.node)
        if p["peer"] not in site.state.nodes or p["peer"] == active.node:
            raise LabError(f"peer={p['peer']!r} is not another node of this lab")
    if "address" in p:
        try:
            ipaddress.ip_address(p["address"])
        except ValueError:
            raise LabError(f"address={p['address']!r} is not an address") from None
    nodes.refresh(site.state, active.node)


# --- clock ----------------------------------------------------------------------------------------


def compile_c(site: Site, source: str, library: str, *flags: str) -> bytes:
    """A small shared library of this package, built once per lab."""
    built = site.folder / "build" / library
    if not built.exists():
        program = requirements.compiler()
        if program is None:
            raise LabError("a C compiler is needed for this: apt-get install gcc libc6-dev")
        built.parent.mkdir(exist_ok=True)
        argv = [program, "-shared", "-fPIC", "-O1", "-w", "-o", str(built), *flags]
        argv += [str(requirements.package_folder() / source), "-ldl"]
        # Its temporary files too lie where `down` finds them.
        env = {**os.environ, "TMPDIR": str(built.parent)}
        code, text = _run_group(argv, env)
        if code != 0:
            lines = text.strip().splitlines()
            raise LabError(f"{program} could not compile {source}: {lines[0] if lines else '?'}")
    return built.read_bytes()


def _run_group(argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Exit code and standard error. A compiler starts others: whatever ends this call ends them all."""
    with subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as process:
        try:
            text = process.communicate()[1]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, text


def clock(site: Site, active: Active) -> None:
    text = active.params["offset"]
    match = re.fullmatch(r"([+-]?[0-9.]+)(ms|s|m|h)?", text)
    if match is None:
        raise LabError(f"offset={text!r}: write +7s, -400s or 250ms")
    seconds = float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}[match[2]]
    library = compile_c(site, "wallclock.c", "wallclock.so")
    nodes.write(site.state, active.node, {CLOCK_LIBRARY: library}, 0o755)
    nodes.write(site.state, active.node, {CLOCK_OFFSET: f"{round(seconds * 1e9)}\n"})
    # Last: from here on every program that starts on the node has the other clock.
    nodes.write(site.state, active.node, {PRELOAD: CLOCK_LIBRARY + "\n"})
    nodes.refresh(site.state, active.node)
    active.undo["seconds"] = f"{seconds:+g}"


def heal_clock(site: Site, active: Active) -> None:
    nodes.write(site.state, active.node, {PRELOAD: None})
    nodes.write(site.state, active.node, {CLOCK_OFFSET: None, CLOCK_LIBRARY: None})
    nodes.refresh(site.state, active.node)


# --- ports ----------------------------------------------------------------------------------------


def busy(site: Site, active: Active) -> None:
    p = active.params
    if not p["port"].isdigit() or not 1 <= int(p["port"]) <= 65535:
        raise LabError(f"port={p['port']!r} is not a port")
    request = {
        "kind": "listen", "port": int(p["port"]), "name": p["name"], "title": p["title"],
        "user": p["user"],
    }  # fmt: skip
    if site.state.loopback:
        request.update(address=site.state.address(active.node), user="")
    keep(site, active, guest.start(request, node_pid(site, active.node)))
    active.undo["who"] = site.state.user if site.state.loopback else p["user"]


# --- limits ---------------------------------------------------------------------------------------


def size(text: str) -> str:
    """Bytes as prlimit takes them, from ``64k``, ``1m`` or a number."""
    match = re.fullmatch(r"([0-9]+)([kmg]?)", text.lower())
    if match is None:
        raise LabError(f"{text!r}: write 64k, 1m or a number")
    return str(int(match[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[match[2]])


def limit(site: Site, active: Active) -> None:
    p = active.params
    p["soft"] = size(p["soft"])
    p["hard"] = size(p["hard"]) if p["hard"] else p["soft"]
    nodes.refresh(site.state, active.node)


# --- file systems ---------------------------------------------------------------------------------


def resize_shm(site: Site, node: str, bound: str) -> None:
    nodes.do(site.state, node, ["mount", "-o", f"remount,size={bound}", "/dev/shm"])


def small_shm(site: Site, active: Active) -> None:
    size(active.params["size"])
    resize_shm(site, active.node, active.params["size"])


def shm_left(site: Site, active: Active) -> None:
    size(active.params["size"])
    resize_shm(site, active.node, "1100m")
    script = 'fallocate -l "$1" "$2"; touch -d "1 hour ago" "$2"'
    nodes.do(site.state, active.node, ["sh", "-euc", script, "sh", active.params["size"], LEFT_OVER])


def heal_small_shm(site: Site, active: Active) -> None:
    resize_shm(site, active.node, "50%")


def heal_shm_left(site: Site, active: Active) -> None:
    nodes.do(site.state, active.node, ["rm", "-f", LEFT_OVER])
    heal_small_shm(site, active)


def full_disk(site: Site, active: Active) -> None:
    size(active.params["size"])
    path = require(active, "path", *ABSOLUTE)
    state, node = site.state, active.node
    options = f"size={active.params['size']},mode=1777"
    nodes.do(state, node, ["mkdir", "-p", path])
    nodes.do(state, node, ["mount", "-t", "tmpfs", "-o", options, "full", path])
    active.undo["mounted"] = path
    argv = ["dd", "if=/dev/zero", f"of={path}/{FILLER}", "bs=64k"]
    nodes.run(state, node, argv, capture_output=True)  # ends with "no space left", as it should


def heal_full_disk(site: Site, active: Active) -> None:
    if "mounted" in active.undo:
        nodes.do(site.state, active.node, ["umount", "-l", active.undo["mounted"]])


def silent_mount(site: Site, active: Active) -> None:
    path = require(active, "path", *ABSOLUTE)
    request = {"kind": "mount", "path": path, "name": "storage"}
    process = guest.start(request, node_pid(site, active.node))
    active.undo["mounted"] = path
    keep(site, active, process)
    active.undo["how"] = "does not answer"
    if active.params["server"] == "gone":
        end_guest(site, active)
        active.undo["how"] = "is gone"


def sysctl(site: Site, active: Active) -> None:
    name, value = active.params["name"], active.params["value"]
    # Of the node's own network: everything else is the machine's.
    known = re.fullmatch(r"net\.(core\.somaxconn|ipv[46](\.\w+)+)", name)
    if known is None or not re.fullmatch(r"[\w -]+", value):
        raise LabError(f"{name}={value!r}: write name=net.ipv4.tcp_rmem and a number or several")
    argv = ["sysctl", "-n", name]
    before = nodes.run(site.state, active.node, argv, capture_output=True, text=True, check=True)
    active.undo["before"] = " ".join(str(before.stdout).split())
    nodes.do(site.state, active.node, ["sysctl", "-q", "-w", f"{name}={value}"])


def heal_sysctl(site: Site, active: Active) -> None:
    if "before" in active.undo:
        assign = f"{active.params['name']}={active.undo['before']}"
        nodes.do(site.state, active.node, ["sysctl", "-q", "-w", assign])


def heal_silent_mount(site: Site, active: Active) -> None:
    end_guest(site, active)
    path = active.undo.get("mounted")
    if path:
        argv = ["sh", "-c", 'umount -l "$1" 2>/dev/null; rmdir "$1"', "sh", path]
        nodes.run(site.state, active.node, argv, capture_output=True)


LIMIT_TEXT = "of new sessions is {soft} (hard {hard})"

FAULTS = (
    Fault(
        "clock", "the wall clock is off",
        "{node}: the wall clock is {seconds} s off for every program started now",
        clock, heal_clock, {"offset": "+7s"}, needs="gcc",
    ),
    Fault(
        "own-name-loopback", "the node's own name resolves to a loopback address",
        "{node}: /etc/hosts maps its own name to {address}", names, params={"address": "127.0.1.1"},
    ),
    Fault(
        "peer-name-missing", "a peer's name does not resolve", "{node}: /etc/hosts does not know {peer}",
        names, params={"peer": ""}, key=("peer",),
    ),
    Fault(
        "peer-name-wrong", "a peer's name resolves to another address",
        "{node}: /etc/hosts maps {peer} to {address}",
        names, params={"peer": "", "address": "192.0.2.77"}, key=("peer",),
    ),
    Fault(
        "port-busy", "another user's process listens on a port",
        "{node}: {name} of user {who} listens on port {port}", busy, end_guest,
        {"port": "29500", "user": "nobody", "name": "python3", "title": "python3 train.py"},
        ("port",), loopback=True,
    ),
    Fault(
        "memlock", "sessions may lock little memory", f"{{node}}: memlock {LIMIT_TEXT}",
        limit, params={"soft": "64k", "hard": ""},
    ),
    Fault(
        "nofile", "sessions may open few files", f"{{node}}: nofile {LIMIT_TEXT}",
        limit, params={"soft": "256", "hard": ""},
    ),
    Fault(
        "small-shm", "/dev/shm is small", "{node}: /dev/shm has {size}",
        small_shm, heal_small_shm, {"size": "64m"},
    ),
    Fault(
        "shm-left", "a job left a file in /dev/shm",
        "{node}: {size} of its small /dev/shm are left over by a job",
        shm_left, heal_shm_left, {"size": "200m"},
    ),
    Fault(
        "full-disk", "a file system is full", "{node}: {path} has {size}, all of it used",
        full_disk, heal_full_disk, {"path": "/tmp", "size": "8m"}, ("path",),
    ),
    Fault(
        "sysctl", "a kernel setting of the network differs", "{node}: {name} is {value}",
        sysctl, heal_sysctl, {"name": "net.ipv4.tcp_rmem", "value": "4096 8192 16384"}, ("name",),
    ),
    Fault(
        "mount-silent", "a network mount does not answer (server=gone: ends in errors)",
        "{node}: the server of {path} {how}",
        silent_mount, heal_silent_mount, {"path": "/mnt/data", "server": "silent"}, ("path",),
    ),
)  # fmt: skip
