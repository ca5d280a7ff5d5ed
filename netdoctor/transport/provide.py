"""Control side: files of a library that travels to nodes which lack it, from netdoctor's own installation."""

import base64
import importlib.util
import platform
import zlib
from functools import cache
from pathlib import Path

# psutil's modules for other systems stay here.
_PSUTIL = ("__init__.py", "_common.py", "_ntuples.py", "_pslinux.py", "_psposix.py", "_enums.py")


class NotProvided(LookupError):
    """The library cannot be sent; the text says why."""


def library_files(name: str, *, machine: str, bits: int = 64) -> dict[str, str]:
    """Return {relative path: base64 of zlib-compressed content} for a ``provide`` frame.

    machine, bits: from the agent's hello; psutil has a C extension and is sent only to the same kind of
    machine. Raises NotProvided.
    """
    if name == "pynvml":
        return _files(name)
    if name == "psutil":
        if machine != platform.machine() or bits != 64:
            raise NotProvided(f"psutil here is for {platform.machine()}, the node is {machine}")
        return _files(name)
    raise NotProvided(f"{name!r} is not a library that agents may ask for")


@cache
def _files(name: str) -> dict[str, str]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotProvided(f"{name} is not installed with netdoctor")
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return {origin.name: _encode(origin)}
    folder = origin.parent
    paths = [folder / file for file in _PSUTIL if (folder / file).is_file()]
    # Only the stable ABI fits other versions of Python than the one that runs here.
    extensions = sorted(folder.glob("*_linux.abi3.so"))
    if not extensions:
        raise NotProvided(f"{name} here has no extension in the stable ABI")
    return {f"{name}/{path.name}": _encode(path) for path in paths + extensions}


def _encode(path: Path) -> str:
    return base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode("ascii")


def provide_frame(name: str, *, machine: str, bits: int = 64) -> dict[str, object]:
    """Return the answer to ``{"need": name}``: the files, or the reason why there are none."""
    try:
        return {"provide": name, "files": library_files(name, machine=machine, bits=bits)}
    except (NotProvided, OSError) as e:
        return {"provide": name, "error": str(e)}
