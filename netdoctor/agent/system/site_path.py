"""How a start of the job's interpreter ends, and its sys.path: asked of a child, as a job would start.

sitecustomize and .pth files are anybody's code, which may raise SystemExit, call os._exit or wait. The agent
runs with -E -S -s, and so without any of it.
"""

import os
import sys
import time
from _thread import allocate_lock

from .. import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

# 15 ms as a rule, seconds where the packages are on a busy network file system. Together below what a group
# of facts may take.
START_S = 7.0
BARE_S = 2.0
SAID_CAP = 200
# Of the job's variables those that decide how an interpreter starts.
_STARTS = ("PYTHON", "LD_")
# Between marks that no start-up code prints; _exit, as threads of such code may go on for ever.
_ASK = """\
import os, sys
path = [part for part in sys.path if part and isinstance(part, str)]
os.write(1, b"\\0netdoctor" + b"".join(b"\\0" + os.fsencode(part) for part in [sys.prefix] + path) + b"\\0")
os._exit(0)
"""

_starts = {}  # type: dict[tuple[tuple[str, str], ...], dict[str, Any]]
_starting = allocate_lock()
_site_ran = []  # type: list[bool]


def start(args: "Mapping[str, Any]") -> "dict[str, Any]":
    """Return facts.software.PythonStart, and beside it "prefix" and "path" (sys.path) where it starts.

    args: of a group of facts, whose "env" are variables of the job. Asked once for the same. Raises
    Unavailable.
    """
    job = args.get("env")
    pairs = ((n, v) for n, v in (job if isinstance(job, dict) else {}).items() if n.startswith(_STARTS))
    more = {name: value for name, value in pairs if isinstance(value, str) and "\0" not in value}
    key = tuple(sorted(more.items()))
    with _starting:
        if key not in _starts:
            try:
                _starts[key] = _start(dict(os.environ, **more))
            except OSError as e:
                raise runtime.Unavailable("failed", "no interpreter could be started: " + str(e))
        return _starts[key]


def _start(environment: "dict[str, str]") -> "dict[str, Any]":
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    if environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = runtime.from_login(environment["PYTHONPATH"])
    began = time.monotonic()
    code, text = runtime.run_forked([sys.executable, "-c", _ASK], environment, START_S)
    took = time.monotonic() - began
    parts = text.rpartition("\0netdoctor\0")[2].split("\0") if "\0netdoctor\0" in text else []
    lines = [] if parts else text.strip().splitlines()
    bare = None
    if not parts and code is None:
        began = time.monotonic()
        if runtime.run_forked([sys.executable, "-ESs", "-c", "pass"], environment, BARE_S)[0] == 0:
            bare = round(time.monotonic() - began, 3)
    return {
        "executable": sys.executable,
        "starts": bool(parts),
        "code": code,
        "said": lines[-1].strip()[:SAID_CAP] if lines else "",
        "seconds": round(took, 3),
        "bare_s": bare,
        "prefix": parts[0] if parts else sys.prefix,
        "path": [path for path in dict.fromkeys(parts[1:-1]) if os.path.exists(path)],
    }


def own_path(args: "Mapping[str, Any]", run_site: bool = False) -> "list[str]":
    """Return sys.path of a start of this interpreter, without the script's folder. Raises Unavailable.

    Appends it to the agent's own, and sets sys.prefix of a virtual environment. args: as of start().
    run_site: runs what a start does in this process, too, for who imports what is installed.
    """
    found = start(args)
    if not found["starts"]:
        raise runtime.Unavailable("failed", "%s does not start" % found["executable"])
    with _starting:
        sys.prefix = found["prefix"]
        sys.path.extend(path for path in found["path"] if path not in sys.path)
        if run_site and sys.flags.no_site and not _site_ran:
            import site

            site.main()
            _site_ran.append(True)
    return list(found["path"])
