"""Faults of interpreters and libraries, and the pretend torch that healthy nodes can share."""

from __future__ import annotations

import io
import re
import shlex
import zipfile
from collections.abc import Iterable

from netdoctor.lab import node as nodes
from netdoctor.lab import requirements
from netdoctor.lab.fault import Fault, Files
from netdoctor.lab.fault_host import compile_c
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active
from netdoctor.lab.system import LabError

EARLY = "/usr/local/bin/python3"
ASIDE = "/usr/local/lib/netdoctor-lab-aside"
BIN = ("/usr/local/bin", "/usr/bin")
MARKER = "torch/netdoctor-lab"
WHEELS = "/usr/local/lib/netdoctor-lab-wheels"
PIP_CONF = "/etc/pip.conf"
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
OLD_SITE = "/usr/local/lib/netdoctor-lab-old"


def script(site: Site, node: str, text: str, *args: str) -> str:
    return nodes.do(site.state, node, ["sh", "-euc", text, "sh", *args])


# --- interpreters ---------------------------------------------------------------------------------


def old_python(site: Site, active: Active) -> None:
    path, version = active.params["path"], active.params["version"]
    node = active.node
    if path:
        if nodes.run(site.state, node, ["test", "-x", path]).returncode != 0:
            raise LabError(f"{node} has no program {path}; nodes see this machine's files outside "
                           "/tmp, /run and home directories (and ~/.pyenv/versions)")  # fmt: skip
        _aside(site, active, [EARLY])
        script(site, node, 'ln -s "$1" "$2"', path, EARLY)
        active.undo["what"] = f"python3 is {path}"
        return
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None:
        raise LabError(f"version={version!r}: write 3.5.3, or path= of another interpreter")
    real = script(site, node, 'readlink -f "$(command -v python3)"').strip()
    _aside(site, active, [EARLY])
    major, minor, micro = (int(n) for n in numbers.groups())
    hook = _version_hook(major, minor, micro)
    wrapper = f"""#!/bin/sh
# An interpreter that says it is {version}; -I, -E and -S would hide the hook that makes it so.
case "$1" in -V|--version) echo "Python {version}"; exit 0;; esac
while :; do case "$1" in
  -[IES]) shift;;
  -[IESusBq]*) kept=$(printf %s "$1" | tr -d IES); shift; [ "$kept" = - ] || set -- "$kept" "$@"; break;;
  *) break;;
esac; done
export PYTHONPATH={OLD_SITE}
exec {shlex.quote(real)} "$@"
"""
    nodes.write(site.state, node, {f"{OLD_SITE}/sitecustomize.py": hook})
    nodes.write(site.state, node, {EARLY: wrapper}, 0o755)
    active.undo["what"] = f"python3 says it is {version}"


def _version_hook(major: int, minor: int, micro: int) -> str:
    # Its own PYTHONPATH, which led here, is nothing that a session has.
    return f"""import collections, os, sys
os.environ.pop("PYTHONPATH", None)
Version = collections.namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = Version({major}, {minor}, {micro}, "final", 0)
sys.version = "{major}.{minor}.{micro} (default, Jan  1 2018, 00:00:00) \\n[GCC 6.3.0]"
sys.hexversion = {major << 24 | minor << 16 | micro << 8 | 0xF0:#x}
"""


def _aside(site: Site, active: Active, paths: list[str]) -> None:
    """Move files out of the way; `undo` remembers which there were."""
    moved = []
    for path in paths:
        text = '[ -e "$1" ] || [ -L "$1" ] || exit 3; mkdir -p "$2"; mv -f "$1" "$2/"'
        target = f"{ASIDE}/{active.fault}{path.rpartition('/')[0]}"
        done = nodes.run(site.state, active.node, ["sh", "-euc", text, "sh", path, target])
        if done.returncode == 0:
            moved.append(path)
    active.undo["aside"] = moved


def _back(site: Site, active: Active) -> None:
    for path in active.undo.get("aside", []):
        stored = f"{ASIDE}/{active.fault}{path}"
        script(site, active.node, '[ ! -e "$1" ] && [ ! -L "$1" ] || mv -f "$1" "$2"', stored, path)


def heal_old_python(site: Site, active: Active) -> None:
    nodes.write(site.state, active.node, {EARLY: None, OLD_SITE: None})
    _back(site, active)


def no_python(site: Site, active: Active) -> None:
    text = 'for d in "$@"; do ls -d "$d"/python* 2>/dev/null || :; done'
    found = script(site, active.node, text, *BIN).split()
    names = [p for p in found if re.fullmatch(r"python[0-9.]*", p.rpartition("/")[2])]
    _aside(site, active, names)


# --- torch ----------------------------------------------------------------------------------------


def site_packages(site: Site, node: str) -> str:
    """The folder where this node's python3 looks for installed packages."""
    program = "import site; print(site.getsitepackages()[0])"
    return nodes.do(site.state, node, ["python3", "-c", program]).strip()


def metadata(name: str, version: str, requires: list[str]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines.append("Summary: stand-in of the netdoctor lab, holds no code")
    return "\n".join(lines + [f"Requires-Dist: {item}" for item in requires]) + "\n"


def nccl_library(site: Site, nccl: str, cuda: str) -> bytes:
    """A libnccl.so.2 that knows its version; without a compiler, a file that contains it."""
    major, minor, patch = (int(part) for part in nccl.split(".")[:3])
    # NCCL_VERSION() of nccl.h since 2.9
    code = major * 10000 + minor * 100 + patch
    if requirements.compiler() is None:
        return f"\x7fELF stand-in\0NCCL version {nccl}+cuda{cuda}\0".encode("latin-1")
    name = f"libnccl-{nccl}-{cuda}.so"
    flags = (f"-DCODE={code}", f'-DTEXT="NCCL version {nccl}+cuda{cuda}"', "-Wl,-soname,libnccl.so.2")
    return compile_c(site, "nccl.c", name, *flags)


def torch_library(site: Site, cuda: str) -> bytes:
    """A libtorch_python.so that says which GPUs wheels for this CUDA have code for; without a compiler, none.

    As wheels have them: https://github.com/pytorch/pytorch/blob/main/RELEASE.md
    """
    if requirements.compiler() is None:
        return b""
    release = tuple(int(part) for part in cuda.split(".")[:2] if part.isdigit())
    old, new = ("sm_50 sm_60 sm_70 ", "") if release < (12, 8) else ("", " sm_100 sm_120")
    archs = f"{old}sm_75 sm_80 sm_86 sm_90{new}"
    name = f"libtorch_python-{cuda}.so"
    return compile_c(site, "torch.c", name, f'-DARCHS="{archs}"', "-Wl,-soname,libtorch_python.so")


def torch_files(site: Site, node: str, version: str, cuda: str, nccl: str) -> Files:
    """The files of a stand-in torch: what its version can be read from, and nothing to compute with."""
    if not re.fullmatch(r"\d+\.\d+\.\d+\S*", version) or not re.fullmatch(r"\d+\.\d+\.\d+", nccl):
        raise LabError("write version=2.4.0+cu121 cuda=12.1 nccl=2.20.5")
    base = site_packages(site, node)
    major = cuda.split(".", maxsplit=1)[0]
    # Since CUDA 13 NVIDIA's wheels, NCCL's excepted, carry no suffix.
    suffix = f"-cu{major}"
    plain = suffix if int(major or 0) < 13 else ""
    runtime = f"{cuda}.105" if cuda.count(".") == 1 else cuda
    wheels = {f"nvidia-nccl{suffix}": nccl, f"nvidia-cuda-runtime{plain}": runtime}
    requires = [f'{name}=={v} ; platform_system == "Linux"' for name, v in wheels.items()]
    files: Files = {
        f"{base}/torch/__init__.py": (
            '"""Stand-in of the netdoctor lab: versions to read, nothing to compute with."""\n'
            "from torch.version import __version__\n"
        ),
        f"{base}/torch/version.py": (
            f"__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']\n"
            f"__version__ = '{version}'\ndebug = False\ncuda = {cuda!r}\n"
            "git_version = '0000000000000000000000000000000000000000'\nhip = None\nxpu = None\n"
        ),
        f"{base}/torch-{version}.dist-info/METADATA": metadata("torch", version, requires),
        f"{base}/nvidia/nccl/lib/libnccl.so.2": nccl_library(site, nccl, cuda),
        f"{base}/torch/lib/libtorch_python.so": torch_library(site, cuda),
        f"{base}/nvidia/nccl/__init__.py": "",
    }
    for name, v in wheels.items():
        folder = f"{base}/{name.replace('-', '_')}-{v}.dist-info"
        files[f"{folder}/METADATA"] = metadata(name, v, [])
    files[f"{base}/{MARKER}"] = "made by netdoctor lab\n"
    # pip takes off what a RECORD lists, and nothing else.
    for info, names in distributions(path.removeprefix(f"{base}/") for path in files).items():
        record = f"{info}/RECORD"
        files[f"{base}/{record}"] = "".join(f"{name},,\n" for name in [*names, record])
    return files


def distributions(names: Iterable[str]) -> dict[str, list[str]]:
    """Files of site-packages by the dist-info folder of the distribution that they belong to."""
    names = list(names)
    found = {}
    for info in sorted({name.partition("/")[0] for name in names if ".dist-info/" in name}):
        code = "torch/" if info.startswith("torch-") else "nvidia/nccl/" if "nccl" in info else f"{info}/"
        found[info] = [name for name in names if name.startswith((code, f"{info}/"))]
    return found


def wheels(site: Site, node: str, torch: dict[str, str]) -> Files:
    """The same as wheels, and what makes the node's pip find them and nothing else: it has no way out."""
    base = site_packages(site, node)
    files = torch_files(site, node, **torch)
    relative = {path.removeprefix(f"{base}/"): content for path, content in files.items()}
    found: Files = {PIP_CONF: f"[global]\nno-index = true\nfind-links = {WHEELS}\n"}
    for info, names in distributions(relative).items():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name in names:
                archive.writestr(name, relative[name] or "")
            archive.writestr(f"{info}/WHEEL", WHEEL)
        found[f"{WHEELS}/{info.removesuffix('.dist-info')}-py3-none-any.whl"] = packed.getvalue()
    return found


def place_torch(site: Site, node: str, torch: dict[str, str]) -> None:
    """Replace the node's stand-in torch by another, or by none where `torch` is empty."""
    base = site_packages(site, node)
    marker = f"{base}/{MARKER}"
    if nodes.run(site.state, node, ["test", "-e", f"{base}/torch"]).returncode == 0:
        if nodes.read(site.state, node, marker) is None:
            raise LabError(f"a real torch is in {base} of {node}; the lab does not touch it")
        # Bytecode too: an edit of the same size within a second would go unnoticed.
        script(site, node, 'cd "$1"; rm -rf torch torch-*.dist-info nvidia nvidia_*.dist-info', base)
    if torch:
        files = torch_files(site, node, **torch)
        nodes.write(site.state, node, files)


def torch(site: Site, active: Active) -> None:
    """The torch of this fault in force, else the one that all nodes have."""
    in_force = site.state.active(active.node, "torch")
    place_torch(site, active.node, in_force[0].params if in_force else site.state.torch)
    nodes.refresh(site.state, active.node)


# --- NCCL's own file ------------------------------------------------------------------------------


def nccl_conf(site: Site, active: Active) -> None:
    text = "".join(f"{name}={value}\n" for name, value in active.params.items())
    in_force = site.state.active(active.node, "nccl-conf")
    nodes.write(site.state, active.node, {"/etc/nccl.conf": text if in_force else None})


TORCH = {"version": "2.4.0+cu121", "cuda": "12.1", "nccl": "2.20.5"}

FAULTS = (
    Fault(
        "old-python", "python3 is another interpreter", "{node}: {what}",
        old_python, heal_old_python, {"path": "", "version": "3.5.3"},
    ),
    Fault("no-python", "there is no python3", f"{{node}}: no Python in {' or '.join(BIN)}", no_python, _back),
    Fault(
        "torch", "another torch, CUDA and NCCL is installed",
        "{node}: a stand-in of torch {version} (CUDA {cuda}, NCCL {nccl}) is installed", torch, params=TORCH,
    ),
    Fault(
        "nccl-conf", "/etc/nccl.conf sets NCCL's variables", "{node}: /etc/nccl.conf says {values}",
        nccl_conf, free=True,
    ),
)  # fmt: skip
