"""Group `software`: the job's interpreter, its torch, NCCL and CUDA packages. Nothing is imported."""

import os
import sys

from ..system import dists, files, libs, pythons, site_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence

SONAME = "libnccl.so.2"
SCAN_CAP = 64 << 20
MAX_PACKAGES = 500
_CUDA = "cuda- cudnn cublas nccl nvshmem nvjitlink cufft curand cusolver cusparse cufile"
_CUDA_PACKAGES = tuple("nvidia-" + name for name in _CUDA.split())
_NCCL_PACKAGE = "nvidia-nccl-cu"
# The greeting of every libnccl: "NCCL version 2.21.5+cuda12.4". [NCCL src/init.cc showVersion]
_GREETING = rb"NCCL version (\d+\.\d+\.\d+)(?:\+cuda(\d+\.\d+))?"
# Libraries of which the job must not get another one than the driver's, or the one that torch was built with.
_SHADOWED = ("libcuda.so.1", "libcudnn.so.9", "libcudnn.so.8")
MAX_ROOTS = 32
MAX_UNMET = 100


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


def archs(home: str) -> "list[str]":
    """Return what torch.cuda.get_arch_list() would: sm_80, compute_90.

    It stands as one text in libtorch_python.so: ``sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90``. Compilers may
    put anything right in front of it. [PyTorch torch/csrc/cuda/Module.cpp, CUDA_ARCH_FLAGS]
    """
    import re

    data = libs.section(os.path.join(home, "lib", "libtorch_python.so"), ".rodata")
    at = data.find(b"sm_")
    while at >= 0:
        text, end, _ = data[at : at + 512].partition(b"\0")
        if end and re.match(rb"sm_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?){0,40}\Z", text):
            return text.decode("ascii").split()
        at = data.find(b"sm_", at + 1)
    return []


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
        fields = {}  # type: dict[str, Any]
        try:
            fields = version_py(files.read_text(file))
        except OSError as e:
            error = file + ": " + files.errno_name(e)
        version = fields.get("__version__")
        if not isinstance(version, str):
            error = error or file + " names no version"
            known = packages.get("torch")
            version = known.version() if known is not None else None
        if version is None:
            return None, error
        cuda, hip = fields.get("cuda"), fields.get("hip")
        return {
            "version": version[:100],
            "cuda": cuda[:50] if isinstance(cuda, str) else None,
            "hip": hip[:50] if isinstance(hip, str) else None,
            "path": home,
        }, error
    return None, None


def scan_version(path: str) -> "tuple[Optional[str], Optional[str]]":
    """Return (version, CUDA) in a libnccl's own greeting, searched in its first 64 MiB."""
    import re

    greeting = re.compile(_GREETING)
    try:
        with open(path, "rb") as f:
            tail = b""
            left = SCAN_CAP
            while left > 0:
                part = f.read(1 << 20)
                if not part:
                    return None, None
                left -= len(part)
                found = greeting.search(tail + part)
                if found:
                    cuda = found.group(2)
                    return found.group(1).decode("ascii"), cuda.decode("ascii") if cuda else None
                tail = part[-64:]
    except OSError:
        pass
    return None, None


class Library(object):
    """Collects libnccl files in the loader's order, each real file once."""

    def __init__(self, root: str, wheels: "Mapping[str, tuple[Optional[str], Optional[str]]]") -> None:
        self._root = root
        self._wheels = wheels
        self._visited = set()  # type: set[str]
        self.rows = []  # type: list[dict[str, Any]]

    def add(self, path: str, origin: str) -> None:
        on_disk = files.under(self._root, path)
        if not os.path.isfile(on_disk):
            return
        real = os.path.realpath(on_disk)
        if real in self._visited:
            return
        self._visited.add(real)
        version, cuda = self._wheels.get(real, (None, None))
        version = version or libs.version_of(real)
        if version is None:
            version, cuda = scan_version(real)
        self.rows.append({"version": version, "origin": origin, "path": path, "cuda": cuda})


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
    wheels = {}  # type: dict[str, tuple[Optional[str], Optional[str]]]
    wheel_paths = []
    owners = [d for n, d in packages.items() if n.startswith(_NCCL_PACKAGE) and n[14:15].isdecimal()]
    for folder in paths:
        path = os.path.join(folder, "nvidia", "nccl", "lib", SONAME)
        here = [d for d in owners if d.folder == folder]
        if os.path.isfile(path):
            wheel_paths.append(path)
            # With two wheels over each other only the file itself knows which one it is.
            only = here[0] if len(here) == 1 else None
            wheels[os.path.realpath(path)] = (only.version(), only.name[14:]) if only else (None, None)
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


def _extras(args: "dict[str, Any]") -> "dict[str, list[str]]":
    """Return the extras that are asked for, by distribution."""
    given = args.get("extras")
    found = {}  # type: dict[str, list[str]]
    for name, extras in list(given.items())[:MAX_ROOTS] if isinstance(given, dict) else ():
        found[str(name)[:200]] = [str(extra)[:100] for extra in extras[:MAX_ROOTS]] if extras else []
    return found


def _extras_of(marker: str) -> "tuple[set[str], bool]":
    """Return the extras that a marker speaks of, and whether it says nothing else."""
    for sign in "=='\"()":
        marker = marker.replace(sign, " ")
    words = marker.split()
    found = {dists.normalise(words[i + 1]) for i, word in enumerate(words[:-1]) if word == "extra"}
    return found, len(words) == 2


def unmet(
    roots: "Sequence[str]",
    packages: "Mapping[str, dists.Distribution]",
    extras: "Optional[Mapping[str, Sequence[str]]]" = None,
) -> "Optional[list[dict[str, Any]]]":
    """Return facts.software.Unmet rows of these distributions; None where none has metadata.

    What is installed in exactly the version that is pinned, or in any where any will do, is met whatever its
    marker says. The rest is for who can read specifiers. extras: that are asked for, by distribution; extras
    of what those require, or of the distribution itself (``all``), are followed where nothing else is said.
    """
    rows = []  # type: list[dict[str, Any]]
    read = False
    requested = {
        dists.normalise(name): set(map(dists.normalise, marker_extras))
        for name, marker_extras in (extras or {}).items()
    }
    names = [dists.normalise(root) for root in roots[:MAX_ROOTS]]
    todo = [(name, requested.get(name, set()), True) for name in names]
    followed = set()  # type: set[tuple[str, str]]
    while todo:
        root, wanted_extras, is_root = todo.pop(0)
        known = packages.get(root)
        lines = known.requires() if known is not None else None
        if known is None or lines is None:
            continue
        read = True
        for line in lines:
            requirement, _, marker = line.partition(";")
            marker_extras, alone = _extras_of(marker)
            active = sorted(marker_extras & wanted_extras)
            if not active and (marker_extras or not is_root):
                continue
            end = next(
                (i for i, c in enumerate(requirement) if not (c.isalnum() or c in "._-")), len(requirement)
            )
            name = dists.normalise(requirement[:end])
            found = packages.get(name)
            version = found.written() if found is not None else None
            inner, _, rest = requirement[end:].partition("]")
            if inner[:1] != "[":
                inner, rest = "", requirement[end:]
            further = {dists.normalise(one.strip()) for one in inner[1:].split(",") if one.strip()}
            further -= {extra for extra in further if (name, extra) in followed}
            if active and alone and further and len(followed) < MAX_ROOTS:
                followed.update((name, extra) for extra in further)
                todo.append((name, further, False))
            pin = rest.strip(" ()")
            exact = pin[2:].strip() if pin[:2] == "==" else None
            met = version is not None and (pin == "" or exact == version.partition("+")[0])
            if not met and len(rows) < MAX_UNMET:
                row = {"of": known.name, "version": known.written()[:100], "requires": line[:300]}
                rows.append(
                    dict(row, installed=None if version is None else version[:100], extras=active[:8])
                )
    return rows if read else None


def shadows(environ: "Mapping[str, str]", torch_home: "Optional[str]", root: str) -> "list[dict[str, Any]]":
    """Return facts.software.Shadow rows: the first of each library that the environment puts in front.

    torch's DT_RPATH wins over LD_LIBRARY_PATH: a cuDNN there is not the one that is loaded.
    """
    found = {}  # type: dict[str, tuple[str, str]]
    for entry in environ.get("LD_PRELOAD", "").replace(":", " ").split():
        for name in _SHADOWED:
            if "/" in entry and os.path.basename(entry).startswith(name):
                found.setdefault(name, (entry, "LD_PRELOAD"))
    for folder in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        for name in _SHADOWED if folder else ():
            path = os.path.join(folder, name)
            if os.path.isfile(files.under(root, path)):
                found.setdefault(name, (path, "LD_LIBRARY_PATH"))
    rows = []  # type: list[dict[str, Any]]
    for name, (path, origin) in found.items():
        if name != "libcuda.so.1" and origin == "LD_LIBRARY_PATH" and torch_home is not None:
            dynamic = libs.dynamic(os.path.join(torch_home, "lib", "libtorch_cuda.so"))
            if dynamic is None or (dynamic.rpath and not dynamic.runpath):
                continue
        version = libs.version_of(files.under(root, path))
        rows.append({"name": name, "path": path, "origin": origin, "version": version})
    return rows


def built_for(torch_home: str) -> "list[str]":
    """Return the Pythons that torch's extension is built for, where this one cannot load it.

    _C.cpython-310-x86_64-linux-gnu.so in a folder of Python 3.11's search path.
    """
    import _imp

    names = [name for name in files.names(torch_home) if name.startswith("_C.") and ".so" in name]
    if any(name[2:] in _imp.extension_suffixes() for name in names):
        return []
    return [name[3:].partition("-x86_64")[0].partition("-aarch64")[0][:40] for name in names][:8]


def externally_managed() -> bool:
    """Return whether pip refuses to install into this interpreter unless it is told to. [PEP 668]"""
    # sysconfig.get_path("stdlib"), which takes all variables of the interpreter's Makefile to say
    marker = os.path.join(os.path.dirname(os.__file__), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and os.path.isfile(marker)


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.software.SoftwareFacts. args: {"packages": [name, …], "prefixes": [path, …],
    "env": variables of the job}. Raises Unavailable where the interpreter does not start.
    """
    paths = site_path.own_path(args)
    packages = dists.installed(paths)
    torch, torch_error = find_torch(paths, packages)
    requested = [str(name)[:200] for name in (args.get("packages") or [])][:MAX_PACKAGES]
    versions = {}  # type: dict[str, Optional[str]]
    for name in requested:
        known = packages.get(dists.normalise(name))
        versions[name] = None if known is None else known.version() or ""
    implementation = sys.implementation.name
    home_of_torch = torch["path"] if torch else None
    if torch is not None:
        torch["built_for"] = built_for(torch["path"])
        torch["archs"] = archs(torch["path"]) if torch["cuda"] else []

    def torch_in(folders: "list[str]") -> "Optional[str]":
        row, _ = find_torch(folders, {})
        return str(row["version"]) if row else None

    others = []  # type: list[dict[str, str]]
    if torch_error is None:
        # With torch here, too, a launch may take another one: a few places that name theirs are asked.
        prefixes = [str(prefix)[:400] for prefix in (args.get("prefixes") or [])][:8]
        has_torch = torch is not None
        home = os.path.expanduser("~")
        others = pythons.find_with_torch(os.environ, home, prefixes, torch_in, root, sys.prefix, has_torch)
    return {
        "executable": sys.executable or "",
        "version": "%d.%d.%d" % sys.version_info[:3],
        "implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(implementation, implementation),
        "prefix": sys.prefix,
        "is_venv": sys.prefix != sys.base_prefix,
        "externally_managed": externally_managed(),
        "torch": torch,
        "torch_error": torch_error,
        "nccl": find_nccl(paths, packages, home_of_torch, os.environ, root),
        "cuda_packages": {
            name: package.version() or ""
            for name, package in sorted(packages.items())
            if name.startswith(_CUDA_PACKAGES)
        },
        "packages": versions,
        "search_path": paths[:100],
        "others": others,
        "unmet": unmet(["torch", *[name for name in requested if name != "torch"]], packages, _extras(args)),
        "shadows": shadows(os.environ, home_of_torch, root),
    }
