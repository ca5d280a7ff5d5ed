"""Control side: what agents ask for: their own modules, and libraries that a node lacks, from netdoctor's own
installation."""

import base64
import importlib.util
import marshal
import platform
import zlib
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path

from netdoctor.errors import TransportError
from netdoctor.text import clean
from netdoctor.transport import bundle
from netdoctor.transport.frames import length_prefixed

# psutil's modules for other systems stay here.
_PSUTIL = ("__init__.py", "_common.py", "_ntuples.py", "_pslinux.py", "_psposix.py", "_enums.py")
# All that agents may ask for. Nothing else is looked up, or kept: a node chooses the word that it asks with.
LIBRARIES = frozenset({"pynvml", "psutil"})


class NotProvided(TransportError):
    """The library cannot be sent; the text says why."""


def provide_bytes(name: str, machine: str, bits: int) -> bytes:
    """Return the answer to ``{"need": name}``: the files, or the reason why there are none.

    ``agent TAG`` and ``agent TAG MODULE`` ask for modules of the agent, and ``LIBRARY TAG`` for a library, as
    code for TAG where there is such.

    machine, bits: from the agent's hello; psutil has a C extension and is sent only to the same kind of
    machine.
    """
    kind, *words = name[:200].split(" ")
    if kind == "agent" and 1 <= len(words) <= 2:
        return bundle.pack(*words)
    name, tag = (kind, words[0]) if len(words) == 1 else (name, "")
    try:
        if name not in LIBRARIES:
            raise NotProvided("not a library that agents may ask for")
        if name == "psutil" and (machine != platform.machine() or bits != 64):
            raise NotProvided(f"psutil here is for {platform.machine()}, the node is {clean(machine, 20)}")
        return _frame(name, tag == bundle.own_tag())
    except (NotProvided, OSError) as e:
        return length_prefixed({"provide": clean(name, 60), "error": str(e)})


@cache
def _frame(name: str, as_code: bool) -> bytes:
    return length_prefixed({"provide": name, "files": library_files(name, as_code)})


def library_files(name: str, as_code: bool = False) -> dict[str, str]:
    """Return {relative path: base64 of zlib-compressed content} of a library. Raises NotProvided.

    as_code: what is Python has a NUL in front, and is code of this very interpreter.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotProvided(f"{name} is not installed with netdoctor")
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return {origin.name: _encode(origin, as_code)}
    folder = origin.parent
    paths = [folder / file for file in _PSUTIL if (folder / file).is_file()]
    # Only the stable ABI fits other versions of Python than the one that runs here.
    extensions = sorted(folder.glob("*_linux.abi3.so"))
    if not extensions:
        raise NotProvided(f"{name} here has no extension in the stable ABI")
    return {f"{name}/{path.name}": _encode(path, as_code) for path in paths + extensions}


def _encode(path: Path, as_code: bool) -> str:
    content = path.read_bytes()
    if as_code and path.suffix == ".py":
        code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
        assert code is not None
        content = b"\0" + marshal.dumps(bundle.bare(code, f"<provided>/{path.name}"))
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")
