"""Control side: the one-line program that starts an agent, and the bundle that it reads from stdin."""

import json
import re
import shlex
import zlib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any

# Travels with the request that starts ranks, to the job's own interpreter, and not with every agent.
_LATER = frozenset({"__init__", "rank_program"})

_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)

# One line that every login shell passes on unchanged inside single quotes: sh, csh and fish differ in what
# they do with newlines, exclamation marks, backslashes and nested quotes, so there are none (a test looks).
# Valid in Python 2.6 to 3.13. The empty first entry of sys.path (login directory) goes before anything but
# the built-in `sys` is imported, or a file json.py in a home directory would be run.
BOOTSTRAP = (
    "import sys;"
    "sys.path[:]=[p for p in sys.path if p];"
    "v=sys.version_info;"
    "x=str().join([c for c in (sys.executable or str()) if 31<ord(c)<127 and ord(c) not in (34,92)]);"
    'h="{~hello~: {~old_python~: ~%d.%d.%d~, ~executable~: ~%s~}}".replace("~",chr(34))%(v[0],v[1],v[2],x);'
    "v<(3,6) and (sys.stdout.write("
    'chr(30)+sys.argv[1]+" "+str(len(h))+chr(10)+h+chr(10)),sys.stdout.flush(),sys.exit(0));'
    "import json,zlib;"
    "f=sys.stdin.buffer;"
    "n=f.read(9);"
    "n or sys.exit(0);"
    "b=json.loads(zlib.decompress(f.read(int(n,16))).decode());"
    'exec(b["modules"]["loader"],{"BUNDLE":b,"__name__":"ndagent_loader"})'
)


def command(python: str, marker: str) -> str:
    """Return the command line for the login shell of a node.

    `python` was validated by the caller; a leading ``~/`` is left to the shell. A missing interpreter ends
    with status 127 under sh and fish, and with status 1 and "Command not found" under csh.
    """
    home = python.startswith("~/")
    interpreter = "~/" + shlex.quote(python[2:]) if home else shlex.quote(python)
    return f"exec {interpreter} -E -s -c '{BOOTSTRAP}' {shlex.quote(marker)}"


def argv(python: str, marker: str) -> list[str]:
    """Return the same command as an argument list, for a transport without a shell."""
    return [python, "-E", "-s", "-c", BOOTSTRAP, marker]


@cache
def modules() -> dict[str, str]:
    """Return the source text of every node-side module by name, read once. Lines that are comments stay here.

    Empty lines stand for them, so that line numbers hold. The whole of it has to fit into a pipe, from which
    a Python that is too old never reads.
    """
    found = {}
    for entry in resources.files("netdoctor.agent").iterdir():
        name, dot, suffix = entry.name.partition(".")
        if dot and suffix == "py" and name not in _LATER:
            found[name] = _COMMENT.sub("", entry.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=4)
def _bundle(marker: str, deadline_s: float, collectors: tuple[tuple[str, str], ...], dial: str) -> bytes:
    content = {
        "marker": marker,
        "deadline_s": deadline_s,
        "modules": modules(),
        "collectors": dict(collectors),
        "dial": json.loads(dial),
    }
    body = zlib.compress(json.dumps(content).encode("ascii"), 9)
    return b"%08x\n" % len(body) + body


def build_bundle(
    *,
    marker: str,
    deadline_s: float,
    collectors: Mapping[str, str],
    dial: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the first frame for an agent's stdin: 8 hex digits, a newline, compressed JSON.

    collectors: source text of plug-in collectors by fact group. The result is cached: with one marker per run
    it is built once per run and shared by all nodes. dial: whom to call, as in the agent's dial_back; without
    it the agent's stdin and stdout are the conversation.
    """
    return _bundle(marker, deadline_s, tuple(sorted(collectors.items())), json.dumps(dial))


def request_frame(request: Mapping[str, object]) -> bytes:
    """Return a request as the agent reads it: 8 hex digits, a newline, JSON."""
    body = json.dumps(request, allow_nan=False).encode("ascii")
    return b"%08x\n" % len(body) + body
