"""Interpreters of this node that have torch, where the one that was asked for has none.

Looked for by name where environments usually are. None is run: what counts is torch in the folder beside it.
"""

import os
import stat
import time

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Mapping, Optional, Sequence

# A home directory may be far away, and hold anything.
MAX_TRIED = 200
MAX_FOUND = 16
MAX_NAMES = 64
BOUND_S = 2.0
CONDA = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", "conda")
# What may stand in a command line, beside letters and digits; python_fault of the inventory knows the same.
_IN_PATH = frozenset("_./+@-")
PATH_CAP = 300
# A console script: "#!/opt/venv/bin/python", or "#!/bin/sh" and "'''exec' /long/path/bin/python "$0" "$@"".
_SHEBANG = r"\A#!\s*(?:/bin/sh\n'''exec' )?\"?(/[^\s\"]+/bin/python[\d.]*)"


def find_with_torch(
    environ: "Mapping[str, str]",
    home: str,
    prefixes: "Sequence[str]",
    torch_in: "Callable[[list[str]], Optional[str]]",
    root: str = "/",
    own_prefix: str = "",
    named_only: bool = False,
) -> "list[dict[str, str]]":
    """Return facts.software.Interpreter rows, the likeliest first.

    prefixes: environments that the caller's shell is in. torch_in: version of the torch in site directories.
    own_prefix: of the running interpreter, which is left out. named_only: only those that a launch from here
    would take.
    """
    end = time.monotonic() + BOUND_S
    visited = {os.path.realpath(own_prefix)} if own_prefix else set()
    found = []  # type: list[dict[str, str]]
    prefixes_tried = (
        named_prefixes(environ, prefixes, root)
        if named_only
        else likely_prefixes(environ, home, prefixes, root)
    )
    for tried, (prefix, origin) in enumerate(prefixes_tried):
        if tried >= MAX_TRIED or len(found) >= MAX_FOUND or time.monotonic() > end:
            break
        if not os.path.isabs(prefix) or "\0" in prefix:
            continue
        real = os.path.realpath(files.under(root, prefix))
        if real in visited:
            continue
        visited.add(real)
        python = interpreter(prefix, root)
        version = torch_in(site_packages(real)) if python else None
        if python and version:
            row = {"python": python, "origin": origin, "torch": version}
            distrust = who_could_change(real, files.under(root, python))
            found.append(dict(row, distrust=distrust) if distrust else row)
    return found


def interpreter(prefix: str, root: str) -> "Optional[str]":
    """Return the environment's interpreter, if it can be run and its path may stand in a command line."""
    for name in ("python3", "python"):
        path = os.path.join(os.path.normpath(prefix), "bin", name)
        if _may_be_run(path) and os.access(files.under(root, path), os.X_OK):
            return path
    return None


def who_could_change(prefix: str, python: str) -> str:
    """Say who beside root and this user could make the interpreter run something else; empty for nobody.

    prefix: the environment's folder. Asked of it, its program and the folders that its packages are in.
    """
    folders = site_packages(prefix)
    parts = [prefix, os.path.dirname(python), python, os.path.join(prefix, "pyvenv.cfg"), *folders]
    parts += {os.path.dirname(folder) for folder in folders}
    parts += [os.path.join(folder, "torch") for folder in folders]
    for part in parts:
        for ask in (os.lstat, os.stat):  # of a link, and of what it leads to
            try:
                info = ask(part)
            except (OSError, ValueError):
                continue
            if info.st_uid not in (0, os.geteuid()):
                return "%s belongs to uid %d" % (part[:PATH_CAP], info.st_uid)
            if info.st_mode & stat.S_IWOTH and not stat.S_ISLNK(info.st_mode):
                return "everybody may write to %s (mode %o)" % (part[:PATH_CAP], stat.S_IMODE(info.st_mode))
    return ""


def _may_be_run(path: str) -> bool:
    good = all(c.isalnum() or c in _IN_PATH for c in path)
    return good and path.startswith("/") and 1 < len(path) <= PATH_CAP + 1


def site_packages(prefix: str) -> "list[str]":
    """Return the folders in which the environment's packages are."""
    return [
        os.path.join(prefix, lib, name, kind)
        for lib in ("lib", "lib64")
        for name in files.names(os.path.join(prefix, lib), 4096)
        if name.startswith("python3")
        for kind in ("site-packages", "dist-packages")
    ]


def named_prefixes(
    environ: "Mapping[str, str]", prefixes: "Sequence[str]", root: str
) -> "Iterator[tuple[str, str]]":
    """Yield (prefix, origin) of environments that the caller, the session or its PATH name."""
    for prefix in prefixes:
        yield prefix, "calling environment"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "UV_PROJECT_ENVIRONMENT"):
        if environ.get(name):
            yield environ[name], name
    for prefix in of_torchrun(environ.get("PATH", ""), root):
        yield prefix, "torchrun"


def likely_prefixes(
    environ: "Mapping[str, str]", home: str, prefixes: "Sequence[str]", root: str
) -> "Iterator[tuple[str, str]]":
    """Yield (prefix, origin) of environments that may be there."""

    def inside(folder: str, tail: str = "", matching: str = "") -> "list[str]":
        names = [name for name in files.names(files.under(root, folder)) if matching in name]
        return [os.path.join(folder, name, tail).rstrip("/") for name in names[:MAX_NAMES]]

    for prefix, origin in named_prefixes(environ, prefixes, root):
        yield prefix, origin
    for name in (".venv", "venv"):
        yield os.path.join(home, name), "venv"
    for prefix in inside("/opt", matching="venv"):
        yield prefix, "venv"
    listed = files.text_or_none(files.under(root, os.path.join(home, ".conda", "environments.txt"))) or ""
    bases = [os.path.join(folder, name) for folder in (home, "/opt") for name in CONDA]
    bases.append(os.path.dirname(os.path.dirname(environ.get("CONDA_EXE", ""))))
    for base in [base for base in bases if os.path.isdir(files.under(root, base)) and base]:
        yield base, "conda"
        for prefix in inside(os.path.join(base, "envs")):
            yield prefix, "conda"
    for prefix in listed.splitlines()[:MAX_NAMES] + inside(os.path.join(home, ".conda", "envs")):
        yield prefix.strip(), "conda"
    for prefix in inside(home, ".venv"):
        yield prefix, "uv"
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    poetry = environ.get("POETRY_VIRTUALENVS_PATH") or os.path.join(cache, "pypoetry", "virtualenvs")
    for prefix in inside(poetry):
        yield prefix, "poetry"


def of_torchrun(path: str, root: str) -> "Iterator[str]":
    """Yield the environment that the first line of torchrun on PATH names, and the one that it lies in."""
    for folder in path.split(os.pathsep):
        script = os.path.join(folder, "torchrun")
        if not os.path.isabs(script) or not os.access(files.under(root, script), os.X_OK):
            continue
        import re

        shebang = re.search(_SHEBANG, files.text_or_none(files.under(root, script), 512) or "")
        if shebang:
            yield os.path.dirname(os.path.dirname(shebang.group(1)))
        yield os.path.dirname(os.path.dirname(script))
        return
