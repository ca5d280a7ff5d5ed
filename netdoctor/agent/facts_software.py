"""Group `software`: the job's interpreter, its torch, NCCL and CUDA packages. Nothing is imported."""

import os
import sys

from . import dists, files, libs, pythons, runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence

SONAME = "libnccl.so.2"
SCAN_CAP = 64 << 20
MAX_PACKAGES = 500
_CUDA = "cuda- cudnn cublas nccl nvshmem nvjitlink cufft curand cusolver cusparse cufile"
_CUDA_PACKAGES = tuple("nvidia-" + name for name in _CUDA.split())
_NCCL_PACKAGE = "nvidia-nccl-cu"
_REAL_NAME = r"libnccl\.so\.(\d+\.\d+\.\d+)$"
# The greeting of every libnccl: "NCCL version 2.21.5+cuda12.4". [NCCL src/init.cc showVersion]
_GREETING = rb"NCCL version (\d+\.\d+\.\d+)"


def version_py(text: str) -> "dict[str, Any]":
    """Return the plain assignments of torch/version.py.

    ``__version__ = '2.5.1+cu124'``, ``cuda: Optional[str] = '12.4'``, ``hip: Optional[str] = None``
    """
    import ast
    import re

    found = {}
    for name, value in re.findall(r"^(__version__|cuda|hip)[ \t]*(?::[^=\n]+)?=[ \t]*([^\n#]+)", text, re.M):
        try:
            found[name] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return found


def find_torch(
    paths: "Sequence[str]", packages: "Mapping[str, dists.Distribution]"
) -> "tuple[Optional[dict[str, Any]], Optional[str]]":
    """Return (facts.software.Torch, error); both None where there is no torch."""
    for folder in paths:
        home = os.path.join(folder, "torch")
        file = os.path.join(home, "version.py")
        if not os.path.exists(file) and not os.path.exists(os.path.join(home, "__init__.py")):
            continue
        error = None
        said = {}  # type: dict[str, Any]
        try:
            said = version_py(files.read_text(file))
        except OSError as e:
            error = file + ": " + files.errno_name(e)
        version = said.get("__version__")
        if not isinstance(version, str):
            error = error or file + " names no version"
            known = packages.get("torch")
            version = known.version() if known is not None else None
        if version is None:
            return None, error
        cuda, hip = said.get("cuda"), said.get("hip")
        return {
            "version": version[:100],
            "cuda": cuda[:50] if isinstance(cuda, str) else None,
            "hip": hip[:50] if isinstance(hip, str) else None,
            "path": home,
        }, error
    return None, None


def scan_version(path: str) -> "Optional[str]":
    """Return the version in a libnccl's own greeting, searched in its first 64 MiB."""
    import re

    greeting = re.compile(_GREETING)
    try:
        with open(path, "rb") as f:
            tail = b""
            left = SCAN_CAP
            while left > 0:
                part = f.read(1 << 20)
                if not part:
                    return None
                left -= len(part)
                found = greeting.search(tail + part)
                if found:
                    return found.group(1).decode("ascii")
                tail = part[-64:]
    except OSError:
        pass
    return None


class Library(object):
    """Collects libnccl files in the loader's order, each real file once."""

    def __init__(self, root: str, wheels: "Mapping[str, Optional[str]]") -> None:
        self._root = root
        self._wheels = wheels
        self._seen = set()  # type: set[str]
        self.rows = []  # type: list[dict[str, Any]]

    def add(self, path: str, origin: str) -> None:
        on_disk = files.under(self._root, path)
        if not os.path.isfile(on_disk):
            return
        real = os.path.realpath(on_disk)
        if real in self._seen:
            return
        self._seen.add(real)
        import re

        named = re.search(_REAL_NAME, real)
        version = self._wheels.get(real) or (named.group(1) if named else None)
        self.rows.append({"version": version or scan_version(real), "origin": origin, "path": path})


def wheel_origin(path: str) -> str:
    """Return the origin of a library that torch's own search path names."""
    if "/nvidia/nccl/" in path:
        return "wheel"
    return "torch-bundled" if "/torch/lib/" in path else "system"


def find_nccl(
    paths: "Sequence[str]",
    packages: "Mapping[str, dists.Distribution]",
    torch_home: "Optional[str]",
    environ: "Mapping[str, str]",
    root: str = "/",
) -> "list[dict[str, Any]]":
    """Return facts.software.Nccl rows, the one that the loader would take first.

    Order: LD_PRELOAD; DT_RPATH of libtorch_cuda.so; LD_LIBRARY_PATH; DT_RUNPATH; the system's directories.
    Where torch's library does not tell, LD_LIBRARY_PATH is taken to come before the wheel.
    """
    wheels = {}  # type: dict[str, Optional[str]]
    wheel_paths = []
    owners = [d for n, d in packages.items() if n.startswith(_NCCL_PACKAGE) and n[14:15].isdecimal()]
    for folder in paths:
        path = os.path.join(folder, "nvidia", "nccl", "lib", SONAME)
        here = [d for d in owners if d.folder == folder]
        if os.path.isfile(path):
            wheel_paths.append(path)
            # With two wheels over each other only the file itself knows which one it is.
            wheels[os.path.realpath(path)] = here[0].version() if len(here) == 1 else None
    found = Library(root, wheels)
    library_path = environ.get("LD_LIBRARY_PATH", "")

    for entry in environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if os.path.basename(entry).startswith("libnccl.so"):
            if "/" in entry:
                found.add(entry, "LD_PRELOAD")
            else:
                for path in libs.find(entry, root, library_path)[:1]:
                    found.add(path, "LD_PRELOAD")

    rpath = []  # type: list[str]
    runpath = []  # type: list[str]
    if torch_home is not None:
        folder = os.path.join(torch_home, "lib")
        cuda_library = os.path.join(folder, "libtorch_cuda.so")
        dynamic = libs.dynamic(cuda_library)
        if dynamic is not None:
            runpath = libs.expand(dynamic.runpath, folder)
            rpath = [] if runpath else libs.expand(dynamic.rpath, folder)
            if not any(name.startswith("libnccl.so") for name in dynamic.needed):
                # Built into torch: no other libnccl is loaded.
                found.add(cuda_library, "torch-bundled")
    for folder in rpath:
        found.add(os.path.join(folder, SONAME), wheel_origin(folder + "/"))
    for folder in library_path.replace(";", ":").split(":"):
        if folder:
            found.add(os.path.join(folder, SONAME), "LD_LIBRARY_PATH")
    for folder in runpath:
        found.add(os.path.join(folder, SONAME), wheel_origin(folder + "/"))
    for path in wheel_paths:
        found.add(path, "wheel")
    if torch_home is not None:
        found.add(os.path.join(torch_home, "lib", SONAME), "torch-bundled")
    for path in libs.find(SONAME, root):
        found.add(path, "system")
    return found.rows[:32]


def externally_managed() -> bool:
    """Return whether pip refuses to install into this interpreter unless it is told to. [PEP 668]"""
    # sysconfig.get_path("stdlib"), which takes all variables of the interpreter's Makefile to say
    marker = os.path.join(os.path.dirname(os.__file__), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and os.path.isfile(marker)


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.software.SoftwareFacts. args: {"packages": [name, …], "prefixes": [path, …]}."""
    home = os.path.expanduser("~")
    paths = dists.search_path(sys.path, os.environ, home, runtime.login_directory)
    packages = dists.installed(paths)
    torch, torch_error = find_torch(paths, packages)
    asked = [str(name)[:200] for name in (args.get("packages") or [])][:MAX_PACKAGES]
    versions = {}  # type: dict[str, Optional[str]]
    for name in asked:
        known = packages.get(dists.normalise(name))
        versions[name] = None if known is None else known.version() or ""
    implementation = sys.implementation.name

    def torch_in(folders: "list[str]") -> "Optional[str]":
        there, _ = find_torch(folders, {})
        return str(there["version"]) if there else None

    others = []  # type: list[dict[str, str]]
    if torch is None and torch_error is None:
        prefixes = [str(prefix)[:400] for prefix in (args.get("prefixes") or [])][:8]
        others = pythons.others(os.environ, home, prefixes, torch_in, root, sys.prefix)
    return {
        "executable": sys.executable or "",
        "version": "%d.%d.%d" % sys.version_info[:3],
        "implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(implementation, implementation),
        "prefix": sys.prefix,
        "is_venv": sys.prefix != sys.base_prefix,
        "externally_managed": externally_managed(),
        "torch": torch,
        "torch_error": torch_error,
        "nccl": find_nccl(paths, packages, torch["path"] if torch else None, os.environ, root),
        "cuda_packages": {
            name: package.version() or ""
            for name, package in sorted(packages.items())
            if name.startswith(_CUDA_PACKAGES)
        },
        "packages": versions,
        "search_path": paths[:100],
        "others": others,
    }
