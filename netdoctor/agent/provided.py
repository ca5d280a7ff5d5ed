"""Imports a library that the control host sent, without leaving a file behind."""

import importlib
import os
import sys
import threading
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Mapping

# Tried where anonymous memory may not be executed (vm.memfd_noexec) or does not exist.
SCRATCH = ("/dev/shm", "/tmp", "/var/tmp")


def _memfd(name: str) -> int:
    """Return an anonymous file in memory. Raises OSError."""
    create = getattr(os, "memfd_create", None)  # Python 3.8
    if create is not None:
        return int(create(name))
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "memfd_create", None)  # glibc 2.27
    if call is None:
        raise OSError("no memfd_create")
    fd = int(call(name.encode("ascii", "replace"), 1))  # MFD_CLOEXEC
    if fd < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return fd


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class MemoryImporter(MetaPathFinder, Loader):
    """Finds the modules of one library among file contents."""

    def __init__(self, content: "Mapping[str, bytes]") -> None:
        self._content = content

    def find_spec(self, fullname: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        base = fullname.replace(".", "/")
        for file, is_package in ((base + "/__init__.py", True), (base + ".py", False)):
            if file in self._content:
                origin = "<provided>/" + file
                spec = ModuleSpec(fullname, self, origin=origin, is_package=is_package)
                spec.loader_state = file
                return spec
        for file in (base + ".abi3.so", base + ".so"):
            if file in self._content:
                return ModuleSpec(fullname, _Extension(self._content[file]), origin=file)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: "ModuleType") -> None:
        file = module.__spec__.loader_state if module.__spec__ else ""
        module.__file__ = "<provided>/" + file
        content = self._content[file]
        if content[:1] == b"\0":  # code, as text has none such
            import marshal

            exec(marshal.loads(content[1:]), module.__dict__)
        else:
            exec(compile(content, module.__file__, "exec"), module.__dict__)


class _Extension(Loader):
    """A C extension from memory, or from a private folder that is gone again before this returns."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._real = None  # type: ExtensionFileLoader | None

    def create_module(self, spec: ModuleSpec) -> "Any":
        try:
            fd = _memfd("netdoctor")
            try:
                _write(fd, self._data)
                return self._load(spec, "/proc/self/fd/%d" % fd)
            finally:
                os.close(fd)
        except (OSError, ImportError):
            return self._from_folder(spec)

    def _from_folder(self, spec: ModuleSpec) -> "Any":
        import shutil
        import tempfile

        last = ImportError("no place for a C extension")  # type: Exception
        for base in SCRATCH:
            try:
                folder = tempfile.mkdtemp(prefix=".netdoctor-", dir=base)
            except OSError as e:
                last = e
                continue
            try:
                path = os.path.join(folder, "extension.so")
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
                try:
                    _write(fd, self._data)
                finally:
                    os.close(fd)
                return self._load(spec, path)
            except (OSError, ImportError) as e:
                last = e
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        raise ImportError(str(last))

    def _load(self, spec: ModuleSpec, path: str) -> "Any":
        real = ExtensionFileLoader(spec.name, path)
        module = real.create_module(ModuleSpec(spec.name, real, origin=path))
        self._real = real
        return module

    def exec_module(self, module: "ModuleType") -> None:
        if self._real is not None:
            self._real.exec_module(module)


def load(name: str, content: "Mapping[str, bytes]") -> "ModuleType":
    """Return library `name` made of {relative path: content}. Raises what the import raises."""
    importer = MemoryImporter(content)
    _move_finder(importer, first=True)
    try:
        return importlib.import_module(name)
    finally:
        # Stays reachable for later imports inside the library, behind everything of the node's own.
        _move_finder(importer, first=False)


_placing = threading.Lock()


def _move_finder(importer: MemoryImporter, first: bool) -> None:
    """Put a finder at one end of sys.meta_path, in a new list.

    Other threads may be importing: one that walks along the old list while an entry is taken out in front of
    it would step over the next finder, the bundle's own, and not find a module of the agent.
    """
    with _placing:
        others = [one for one in sys.meta_path if one is not importer]
        sys.meta_path = [importer, *others] if first else [*others, importer]
