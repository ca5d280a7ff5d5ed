#!/usr/bin/env python3
"""Pack netdoctor, this Python and this machine's libc into one executable file.

    python scripts/onefile.py WHEELS FILE

WHEELS is a folder with the wheels of netdoctor and of all that it needs, for this Python. FILE is a shell
script with an archive behind it. At its first start it unpacks itself into the user's cache.

What is unpacked is an ordinary Python, so `sys.executable` starts one. With PyInstaller it would start
the program itself, and workers, agents and the lab would each need another way. The libc comes along since
wheels ask for a newer one than many login nodes have.
"""

import hashlib
import io
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

# What a program does not import, and what lies in the standard library's folder without belonging to it.
UNUSED = shutil.ignore_patterns(
    "__pycache__", "config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "lib-tk", "pydoc_data",
    "site-packages", "test", "tests", "tkinter", "turtle*", "_test*", "_tkinter*", "_xx*", "xx*",
)  # fmt: skip
# What libc loads by itself: to end threads, and before 2.34 for /etc/hosts, /etc/passwd and DNS.
BY_LIBC = ("libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
# libfoo.so.1 => /lib/libfoo.so.1 (0x00007f...), and the loader: /lib64/ld-linux-x86-64.so.2 (0x00007f...)
NEEDED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)

# The loader is named netdoctor for the sake of ps. -I: a module system's PYTHONPATH is for another Python.
PYTHON = """\
#!/bin/sh
d=${0%/bin/*}
path=$d/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$d/lib/netdoctor" --argv0 "$0" --library-path "$path" "$d/lib/python" -I "$@"
"""
HEAD = """\
#!/bin/sh
# netdoctor @version@ with its own Python, for Linux on @machine@. Its first start unpacks it into a cache.
set -eu
cache=${XDG_CACHE_HOME:-${HOME:?is not set, nor is XDG_CACHE_HOME}/.cache}/netdoctor
home=$cache/@version@-@digest@
if [ ! -x "$home/bin/python3" ]; then
    umask 077
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    tail -c +@start@ "$0" | tar -xzof - -C "$new"
    "$new/bin/python3" -c "" || {
        echo "netdoctor: it does not run in $cache: let XDG_CACHE_HOME name a folder where programs run" >&2
        exit 2
    }
    mv -T "$new" "$home" 2>/dev/null || rm -rf "$new"  # another start was first
    trap - EXIT
fi
exec "$home/bin/python3" -m netdoctor "$@"
"""


def output(*argv: object) -> str:
    """Return what a command prints. Raises CalledProcessError."""
    done = subprocess.run([*map(str, argv)], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    return done.stdout


def copy_python(tree: Path) -> Path:
    """Copy the interpreter and its standard library; return the folder where it looks for packages."""
    prefix, stdlib = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    shutil.copytree(stdlib, tree / stdlib.relative_to(prefix), ignore=UNUSED)
    python = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    (tree / "lib").mkdir(exist_ok=True)
    shutil.copy2(python, tree / "lib" / "python")
    # Of the base: a virtual environment does not tell of the folders that distributions have for packages.
    ask = "import site, sys; print(site.getsitepackages(sys.argv[1:])[-1])"
    return Path(output(python, "-I", "-c", ask, tree).strip())


def copy_libraries(tree: Path) -> None:
    """Copy the loader, and what the interpreter and all extension modules need."""
    binaries = [tree / "lib" / "python", *tree.rglob("*.so"), *tree.rglob("*.so.*")]
    needed = {Path(path) for path in NEEDED.findall(output("ldd", *binaries))}
    libc = next(path for path in needed if path.name == "libc.so.6")
    needed |= {path for name in BY_LIBC if (path := libc.with_name(name)).exists()}
    for path in sorted(needed):
        if tree not in path.parents:
            shutil.copy2(path, tree / "lib" / ("netdoctor" if path.name.startswith("ld-") else path.name))
    if shutil.which("strip"):  # a Python that was built here has 17 MB for debuggers
        binaries = [*tree.glob("lib/libpython*"), *tree.glob("lib*/python*/lib-dynload/*")]
        output("strip", "--strip-debug", *binaries)


def compile_modules(python: Path, packages: Path) -> None:
    """Compile all modules, and leave the source of our own alone: half the files to unpack."""
    ours, stdlib = packages / "netdoctor", packages.parent
    # Valid whatever time a file gets when it is unpacked; and with no path of this machine in it.
    argv = [python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", stdlib]
    output(*argv, "-b", "-x", f"^{re.escape(str(ours))}/", stdlib)
    for path in stdlib.rglob("*.py"):
        if ours not in path.parents:
            path.unlink()
    output(*argv, ours)


def pack(wheels: Path, target: Path, tree: Path) -> None:
    packages = copy_python(tree)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", packages]
    output(*pip, "--no-index", "--find-links", wheels, "netdoctor")
    for folder in (packages / "bin", *packages.rglob("tests")):
        shutil.rmtree(folder)
    copy_libraries(tree)
    python = tree / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    compile_modules(python, packages)
    version = output(python, "-c", "import netdoctor; print(netdoctor.__version__)").strip()

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        packed.add(tree, ".")
    data = archive.getvalue()
    digest = hashlib.sha256(data).hexdigest()[:12]
    values = {"version": version, "machine": platform.machine(), "digest": digest}
    head = re.sub("@([a-z]+)@", lambda name: values.get(name[1], name[0]), HEAD)
    # Itself a part of the head: as many digits wherever the archive begins.
    head = head.replace("@start@", f"{len(head) + 1:07}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(head.encode() + data)
    target.chmod(0o755)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        pack(Path(sys.argv[1]), Path(sys.argv[2]), Path(folder))


if __name__ == "__main__":
    main()
