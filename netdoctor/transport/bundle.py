"""Control side: the one-line program that starts an agent, what it reads first, and its modules."""

import importlib.util
import inspect
import json
import marshal
import re
import shlex
import sys
import zlib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from importlib.abc import InspectLoader
from types import CodeType
from typing import Any

# The loader travels first, and alone; the programs of torch with the request that starts them, to the job's
# own interpreter.
_LOADER = "loader"
_LATER = "programs"
# Facts that few nodes are asked for: they are sent when they are.
_RARE = frozenset({"facts.firewall"})
# In front of modules in a frame, where a request has JSON. As the loader has it.
_PACKED = b"\0"
# Read by every Python from 2.5 on, where it holds no code.
_MARSHAL = 2

# from ..system import files, icmp
# from ..system.sockets import Socket
_IMPORT = re.compile(r"\nfrom (\.+)([\w.]*) import (.+)")
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
    "import zlib;"
    "f=sys.stdin.buffer;"
    "n=f.read(9);"
    "n or sys.exit(0);"
    'exec(zlib.decompress(f.read(int(n,16))).decode(),{"__name__":"ndagent_loader"})'
)


# Without the user's environment, and without `site`: that runs what lies in site-packages, which may take
# longer than all else of a start, and end it. What is about that asks a child (agent/system/site_path.py).
FLAGS = ("-E", "-S", "-s")


def command(python: str, marker: str) -> str:
    """Return the command line for the login shell of a node.

    `python` was validated by the caller; a leading ``~/`` is left to the shell. A missing interpreter ends
    with status 127 under sh and fish, and with status 1 and "Command not found" under csh.
    """
    home = python.startswith("~/")
    interpreter = "~/" + shlex.quote(python[2:]) if home else shlex.quote(python)
    return f"exec {interpreter} {' '.join(FLAGS)} -c '{BOOTSTRAP}' {shlex.quote(marker)}"


def argv(python: str, marker: str) -> list[str]:
    """Return the same command as an argument list, for a transport without a shell."""
    return [python, *FLAGS, "-c", BOOTSTRAP, marker]


@cache
def modules() -> dict[str, str]:
    """Return the source text of every node-side module by name, read once. Lines that are comments stay here.

    Empty lines stand for them, so that line numbers hold.
    """
    return {name: text(name) for name in _names()}


@cache
def _names() -> tuple[str, ...]:
    found = []
    for entry in resources.files("netdoctor.agent").iterdir():
        if entry.is_dir() and entry.name != _LATER:
            found += [f"{entry.name}.{one.name}" for one in entry.iterdir()]
        else:
            found.append(entry.name)
    python = (name.removesuffix(".py") for name in found if name.endswith(".py"))
    return tuple(sorted(name for name in python if name != _LOADER and not name.endswith("__init__")))


@cache
def first() -> tuple[str, ...]:
    """What a scan asks every node for, at once or (routes) when it knows all, and what most then need.

    Everything else is sent when it is needed.
    """
    facts = (name for name in _names() if name.startswith("facts.") and name not in _RARE)
    return ("main", "operations.facts", "system.aside", *facts, "system.nvml")


def _source(name: str) -> str:
    path = name.replace(".", "/")
    return resources.files("netdoctor.agent").joinpath(f"{path}.py").read_text(encoding="utf-8")


def text(name: str) -> str:
    return _COMMENT.sub("", _source(name))


@lru_cache(maxsize=4)
def _bundle(marker: str, deadline_s: float, collectors: tuple[tuple[str, str], ...], dial: str) -> bytes:
    folders: dict[str, str] = {}
    for name in _names():
        folder, _, last = name.rpartition(".")
        folders[folder] = f"{folders.get(folder, '')} {last}".strip()
    settings = {
        "marker": marker,
        "deadline_s": deadline_s,
        "collectors": dict(collectors),
        "folders": folders,
        "dial": json.loads(dial),
        # Needed before there is anybody to ask for it.
        "dial_back": text("dial_back") if json.loads(dial) else "",
    }
    # The words of strangers among it, plug-ins, are a literal in ASCII.
    return _frame(zlib.compress(f"{text(_LOADER)}\n\nstart({settings!a})\n".encode("ascii"), 9))


def _frame(body: bytes) -> bytes:
    return b"%08x\n" % len(body) + body


# --- modules, as agents ask for them ----------------------------------------------------------------------


@cache
def own_tag() -> str:
    """Return what the code of this interpreter is named by agents: its kind and its magic number."""
    magic = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")
    return f"{sys.implementation.cache_tag}-{magic}"


@cache
def needed(*roots: str) -> frozenset[str]:
    """Return these modules, what they import as they are imported, and what that imports."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module in found or module not in _names():
            continue
        found.add(module)
        for dots, base, names in _IMPORT.findall(_source(module)):
            package = [*module.split(".")[: -len(dots)], *filter(None, [base])]
            waiting.append(".".join(package))
            waiting += [".".join([*package, name.split()[0]]) for name in names.split(",")]
    return frozenset(found)


def pack(tag: str = "", name: str = "") -> bytes:
    """Return the frame with the modules that every agent needs, or with one more and what that imports.

    tag: what code has to be made for. This very Python's is sent as code, and to all others text: code of
    another version would have to come from another interpreter, and never does from a node. An agent that
    gets another's code unasked leaves it, and asks.
    """
    if name and name not in _names():
        return _packed("", {})
    return _pack(tag == own_tag(), name)


@cache
def _pack(as_code: bool, name: str) -> bytes:
    selected = needed(name) - needed(*first()) if name else needed(*first())
    content = {one: _code(one) if as_code else modules()[one] for one in sorted(selected)}
    return _packed(own_tag() if as_code else "", content)


def _packed(tag: str, content: dict[str, bytes | str]) -> bytes:
    return _frame(_PACKED + tag.encode() + b"\n" + zlib.compress(marshal.dumps(content, _MARSHAL)))


def _code(name: str) -> bytes:
    """Return a module as code. It was compiled, as a rule, when netdoctor was installed or first ran."""
    spec = importlib.util.find_spec(f"netdoctor.agent.{name}")
    assert spec is not None
    assert isinstance(spec.loader, InspectLoader)
    code = spec.loader.get_code(spec.name)
    assert code is not None
    return marshal.dumps(bare(code, f"<agent>/{name.replace('.', '/')}.py", ours=True))


def bare(code: CodeType, file: str, *, ours: bool = False) -> CodeType:
    """Return code without its table of lines, a quarter of it: agents tell what went wrong, not where.

    ours: without docstrings, too, an eighth. A test looks whether a function uses its own for anything else.
    """
    inner = [bare(one, file, ours=ours) if isinstance(one, CodeType) else one for one in code.co_consts]
    if ours and has_docstring(code):
        inner[0] = None
    return code.replace(co_consts=tuple(inner), co_linetable=b"", co_filename=file)


def has_docstring(code: CodeType) -> bool:
    """Whether the first constant is a function's docstring."""
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    # Without one it is None; comprehensions and generator expressions begin with constants of their own.
    is_function = code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<")
    return bool(is_function and isinstance(next(iter(code.co_consts), None), str))


def build_bundle(
    *, marker: str, deadline_s: float, collectors: Mapping[str, str], dial: Mapping[str, Any] | None = None
) -> bytes:
    """Return the first frame for an agent's stdin: 8 hex digits, a newline, the loader's text compressed.

    The agent asks for all else that it needs (`provide`). collectors: source text of plug-in collectors by
    fact group. The result is cached: with one marker per run it is built once and shared by all nodes.
    dial: whom to call, as in the agent's dial_back; without it the agent's stdin and stdout are the
    conversation.
    """
    return _bundle(marker, deadline_s, tuple(sorted(collectors.items())), json.dumps(dial))


def request_frame(request: Mapping[str, object]) -> bytes:
    """Return a request as the agent reads it: 8 hex digits, a newline, JSON."""
    return _frame(json.dumps(request, allow_nan=False).encode("ascii"))
