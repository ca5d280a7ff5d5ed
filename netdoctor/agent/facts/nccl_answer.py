"""Group `nccl_answer`: the interface that NCCL itself chooses here, asked of the job's own libnccl.

ncclGetUniqueId needs no GPU. It starts the root of a bootstrap, which listens at the address that NCCL
chooses, and that address is part of the id. A child process asks, and leaves with _exit: NCCL keeps a thread.
"""

import os
import sys

from .. import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

# 30 ms as a rule, 50 where the file is read from disk; 1.5 s were seen on a node under load.
ASK_S = 6.0
_ADDRESS_AT = 8  # struct ncclBootstrapHandle: a magic number, then the sockaddr

_ASK = """\
import ctypes, json, os, sys
library = ctypes.CDLL(sys.argv[1])
number, out, text = ctypes.c_int(), ctypes.create_string_buffer(128), b""
library.ncclGetVersion(ctypes.byref(number))
code = library.ncclGetUniqueId(out)
if code and hasattr(library, "ncclGetLastError"):
    library.ncclGetLastError.restype = ctypes.c_char_p
    text = library.ncclGetLastError(None) or b""
text = text.decode("utf-8", "replace")[:400]
said = {"version": number.value, "code": code, "id": out.raw.hex(), "error": text}
os.write(1, b"\\n" + json.dumps(said).encode("ascii") + b"\\n")
os._exit(0)
"""


def environment(job: "Mapping[str, Any]", session: "Mapping[str, str]") -> "dict[str, str]":
    """Return the environment that the job's processes would have, as far as NCCL cares, and silent.

    A line that NCCL prints would load the GPU's driver, and may go to a file. Its network plug-ins choose no
    interface here, and are not started.
    """
    from ..operations import spawn as op_spawn

    found = op_spawn.environment(job, session)
    for name in ("NCCL_DEBUG_FILE", "LD_PRELOAD"):
        found.pop(name, None)
    found.update(NCCL_DEBUG="NONE", NCCL_NET_PLUGIN="none")
    return found


def loaded_library(args: "dict[str, Any]") -> str:
    """Return the path of the libnccl that the job's interpreter would load. Raises Unavailable.

    args: of collect().
    """
    from ..system import dists, site_path
    from . import software as facts_software

    paths = site_path.own_path(args)
    packages = dists.installed(paths)
    torch = facts_software.find_torch(paths, packages)[0]
    rows = facts_software.find_nccl(paths, packages, torch["path"] if torch else None, os.environ)
    if not rows:
        raise runtime.Unavailable("not_applicable", "the job's interpreter has no libnccl")
    path = str(rows[0]["path"])
    if not os.path.basename(path).startswith("libnccl.so"):
        raise runtime.Unavailable("not_applicable", "NCCL is built into torch's own library")
    return path


def release(number: int) -> str:
    """Return ``2.21.5`` of 22105; before 2.9 it was 2804 for 2.8.4."""
    if number < 10000:
        return "%d.%d.%d" % (number // 1000, number // 100 % 10, number % 100)
    return "%d.%d.%d" % (number // 10000, number // 100 % 100, number % 100)


def address_of(id_bytes: bytes) -> "tuple[Optional[str], Optional[str]]":
    """Return the address in an id, and the interface of a link-local one."""
    import socket
    import struct

    part = id_bytes[_ADDRESS_AT : _ADDRESS_AT + 28]
    if len(part) < 28:
        return None, None
    family = struct.unpack_from("=H", part)[0]
    if family == socket.AF_INET:
        return socket.inet_ntop(family, part[4:8]), None
    if family != socket.AF_INET6:
        return None, None
    zone = None
    index = struct.unpack_from("=I", part, 24)[0]
    if index:
        try:
            zone = socket.if_indextoname(index)
        except OSError:
            pass
    return socket.inet_ntop(family, part[8:24]), zone


def ask(path: str, env: "dict[str, str]") -> "dict[str, Any]":
    """Return what the library at `path` says. Raises Unavailable where it cannot be asked."""
    import json

    # -S: nothing of the job's interpreter is needed but the standard library.
    done = runtime.run_tool([sys.executable, "-E", "-S", "-s", "-c", _ASK, path], ASK_S, env)
    if done.code is None:
        raise runtime.Unavailable("timed_out", "NCCL gave no answer within %g s" % ASK_S)
    try:
        answer = json.loads(done.out.strip().splitlines()[-1])
        version, code, raw = int(answer["version"]), int(answer["code"]), bytes.fromhex(answer["id"])
        error = " ".join(str(answer["error"]).split())
    except (ValueError, KeyError, IndexError, TypeError):
        last = " ".join(done.err.split())[-200:]
        raise runtime.Unavailable("failed", "libnccl could not be asked: exit %d %s" % (done.code, last))
    address, zone = (None, None) if code else address_of(raw)
    return {
        "library": path,
        "version": release(version),
        "address": address,
        "zone": zone,
        "error": (error or "result %d" % code) if code else None,
    }


def collect(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return facts.software.NcclAnswer. args: {"ask": whether, "env": variables of the job}."""
    if not args.get("ask"):
        raise runtime.Unavailable("not_collected", "NCCL itself is asked in launch and full scans")
    job = args.get("env")
    path = loaded_library(args)
    return ask(path, environment(job if isinstance(job, dict) else {}, os.environ))
