"""The machines of tests/data/machines, asked by the agent's own collectors, and clusters made of them.

A machine is described by what its files, its kernel and its NVML say. Its file (see the README beside them)
is merged over its `parts`, written as a tree below a temporary root, and our collectors read that tree; NVML
is the lab's stand-in, through real pynvml. So a collector that reads one file more needs one line more, in
the part that has it. GPUs and HCAs are those of the lab (netdoctor/lab/hardware.py), with what the file says
otherwise.

    hgx = load("hgx-h100-ib")
    store = fleet([hgx] * 3)                  # n1 to n3
    store = fleet([hgx, hgx, hgx.broken("hca-port")])

Everything is asked in a fork, as NVML stays loaded and the kernel's answers are replaced there.
"""

import contextlib
import ctypes
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from hashlib import blake2s
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import netdoctor.lab
from netdoctor.compat import tomllib
from netdoctor.engine.gathering import all_paths
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.host import Login, Session
from netdoctor.facts.net import PortHolderFacts
from netdoctor.lab import hardware
from netdoctor.lab.state import State
from netdoctor.store import Store, decode
from tests.checks import build

FOLDER = Path(__file__).parent / "data/machines"
KEPT = Path(__file__).parents[1] / ".pytest_cache"
AGENT = Path(netdoctor.lab.__file__).parent.parent / "agent"
KEYS = {
    "about", "origin", "sources", "parts", "gpus", "hcas", "link", "kernel", "arch", "cpus", "libraries",
    "files", "links", "devices", "processes", "mounts", "limits", "environ", "nvml", "gpu", "hca", "net",
    "facts", "flow", "broken",
}  # fmt: skip
# What is asked of the kernel and of programs, and not of files: a machine's `facts` say it.
BY_CALLS = {"firewall", "nccl_answer", "python_start", "resolve", "routes", "software", "time"}
ARGUMENTS: dict[str, dict[str, Any]] = {"port_holder": {"port": build.RDZV}}
TOKEN = re.compile(r"\{(i|node|number|address|mac|hash)(?::(-?\d+))?\}")


@dataclass(frozen=True, slots=True)
class Machine:
    """One file of the folder, parts included. fault: the cause that the broken one is to be named with."""

    name: str
    spec: Mapping[str, Any]
    fault: str = ""

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(self.spec.get("broken", {}))

    def broken(self, fault: str) -> "Machine":
        """This machine with one of its own faults."""
        return Machine(self.name, merged(self.spec, self.spec["broken"][fault]), fault)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def load(name: str) -> Machine:
    """A machine with its parts under it: what its own file says wins."""
    return Machine(name, _read(FOLDER / f"{name}.toml"))


@cache
def _read(path: Path) -> dict[str, Any]:
    own = tomllib.loads(path.read_text())
    unknown = own.keys() - KEYS
    assert not unknown, f"{path}: nobody knows {sorted(unknown)}; there are {sorted(KEYS)}"
    spec: dict[str, Any] = {}
    for part in own.get("parts", []):
        spec = merged(spec, _read(FOLDER / f"parts/{part}.toml"))
    return merged(spec, own)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins, table by table; False takes away."""
    found = dict(under)
    for key, value in over.items():
        before = found.get(key)
        both = isinstance(value, dict) and isinstance(before, dict)
        found[key] = merged(before, value) if both else value
    return found


# --- a machine as files -----------------------------------------------------------------------------------


class Here(State):
    """The lab's state of a cluster whose nodes have the names and addresses of tests/checks/build.py."""

    def address(self, node: str, net: int = 0) -> str:
        return build.address(self.index(node) + 1)


def render(text: str, number: int, i: int = 0) -> str:
    """A text of a machine for node `number`: {i} is the index of the GPU, HCA or interface, {i:8} 8 more,
    {number} and {node} the node's, {address:20} its address on network 20, {mac} and {hash} are its own."""

    def value(match: re.Match[str]) -> str:
        what, more = match[1], int(match[2] or 0)
        if what == "i":
            return str(i + more)
        if what == "address":
            return build.address(number) if not more else f"10.{more}.{i}.{number}"
        own = blake2s(f"{number}/{i}/{more}".encode(), digest_size=16).hexdigest()
        if what == "mac":
            return "02:" + ":".join(own[at : at + 2] for at in range(0, 10, 2))
        return {"node": build.name(number), "number": str(number), "hash": own}[what]

    return TOKEN.sub(value, text) if "{" in text else text


def tree_of(spec: Mapping[str, Any], number: int) -> tuple[hardware.Tree, dict[str, str]]:
    """(files and links, NVML's answers) of a machine that is node `number`."""
    state = Here(
        id="m", nodes=[build.name(i) for i in range(1, 10)], subnet="10.0.0", ssh_port=22, user="root",
        gpus=spec.get("gpus", 0), hcas=spec.get("hcas", 0), link_layer=spec.get("link", "InfiniBand"),
    )  # fmt: skip
    tree = hardware.healthy(state, build.name(number))
    nvml: dict[str, str] = hardware.gpu_values(state, build.name(number)) if state.gpus else {}
    for key, value in _each(spec.get("nvml", {}), state.gpus):
        _put(nvml, key, value, number)
    for i in range(state.gpus):
        folder = f"/sys/devices/{hardware.GPU_ROOT.format(i=i)}/{hardware.gpu_bus(i)}"
        _files(tree, folder, spec.get("gpu", {}), i, number)
    for i in range(state.hcas):
        _files(tree, hardware.hca_folder(i), spec.get("hca", {}), i, number)
    if spec.get("link") == "Ethernet":  # the lab has one network for all; here each HCA has its interface
        for path in [p for p in tree.links if "/virtual/net/" in tree.links[p]]:
            del tree.links[path]
    tree.files["/proc/sys/kernel/pid_max"] = "4194304\n"
    driver = nvml.get("driver")
    if driver:
        tree.files["/proc/driver/nvidia/version"] = hardware.version_text(driver)
        tree.files["/sys/module/nvidia/version"] = driver + "\n"
        library = f"/usr/lib/{spec.get('arch', 'x86_64')}-linux-gnu/libnvidia-ml.so"
        tree.files[f"{library}.{driver}"] = "ELF"
        tree.links[f"{library}.1"] = f"libnvidia-ml.so.{driver}"
    for name, dev in spec.get("net", {}).items():
        _netdev(tree, name, dev, number)
    for number_of, name in enumerate(spec.get("processes", []), 1):
        tree.files[f"/proc/{number_of}/comm"] = name + "\n"
    for path in spec.get("libraries", []):
        tree.files[path] = ""
    for device in spec.get("devices", {}).values():
        for i in range(device["count"]):
            for table, into in (("files", tree.files), ("links", tree.links)):
                for path, text in device.get(table, {}).items():
                    _put(into, render(path, number, i), text, number, i)
    for path, text in spec.get("files", {}).items():
        _put(tree.files, path, text, number)
    for path, target in spec.get("links", {}).items():
        _put(tree.links, path, target, number)
    return tree, nvml


def _put(files: dict[str, str], path: str, text: Any, number: int, i: int = 0) -> None:
    if text is False:
        for known in [one for one in files if one == path or one.startswith(path + "/")]:
            del files[known]
    else:
        files[path] = render(str(text), number, i)


def _each(table: Mapping[str, Any], count: int) -> Iterable[tuple[str, Any]]:
    """What NVML says of the driver (``driver``, ``cuda``), of each GPU, and of one of them (``[nvml.3]``)."""
    whole = {"driver", "cuda", "nvml", "count", "init"}
    for key, value in table.items():
        if key.isdecimal():
            yield from ((f"{key}.{one}", text) for one, text in value.items())
        elif key in whole:
            yield key, value
        else:
            yield from ((f"{i}.{key}", value) for i in range(count))


def _files(tree: hardware.Tree, folder: str, table: Mapping[str, Any], i: int, number: int) -> None:
    """Files of each device of a kind, and of one of them by its index; ``../x`` is the folder above."""
    own = [(path, text) for path, text in table.items() if not path.isdecimal()]
    for path, text in [*own, *table.get(str(i), {}).items()]:
        _put(tree.files, os.path.normpath(f"{folder}/{render(path, number, i)}"), text, number, i)


def _netdev(tree: hardware.Tree, name: str, dev: Mapping[str, Any], number: int) -> None:
    """An interface. address4: with their lengths; driver, pci: of its device; hca: of which HCA it is; ecn:
    the driver shows its settings."""
    base = f"/sys/class/net/{name}"
    i = dev.get("index", 0)
    up = dev.get("up", True)
    usual = {
        "ifindex": i + 2, "iflink": dev.get("ifindex", i + 2), "mtu": 1500,
        "operstate": "up" if up else "down", "carrier_changes": 2,
        "statistics/rx_packets": 10**9, "statistics/rx_errors": 0,
        "statistics/rx_dropped": 4000, "carrier": int(up), "speed": -1,
        "flags": "0x1003" if up else "0x1002", "type": 1, "address": "{mac}",
    }  # fmt: skip
    if dev.get("ecn"):  # of MLNX_OFED
        usual |= {f"ecn/roce_{side}/enable/{i}": 1 for side in ("rp", "np") for i in range(8)}
    for key, value in {**usual, **dev}.items():
        if key not in ("index", "up", "address4", "driver", "pci", "hca", "ecn"):
            _put(tree.files, f"{base}/{key}", f"{value}\n" if value is not False else False, number, i)
    if "hca" in dev:
        folder = hardware.hca_folder(dev["hca"]).rpartition("/infiniband/")[0]
        tree.links[f"{base}/device"] = f"../../../..{folder}"
        tree.links[f"{folder}/net/{name}"] = f"/sys/class/net/{name}"
    elif dev.get("driver"):
        folder = f"/sys/devices/pci0000:00/{dev['pci']}"
        tree.files |= {f"{folder}/vendor": "0x0000\n", f"{folder}/class": "0x020000\n"}
        tree.links[f"{base}/device"] = f"../../../..{folder}"
        tree.links[f"{folder}/driver"] = f"/sys/bus/pci/drivers/{dev['driver']}"
        tree.links[f"/sys/bus/pci/devices/{dev['pci']}"] = f"../../../devices/pci0000:00/{dev['pci']}"


def write(tree: hardware.Tree, nvml: Mapping[str, str], root: Path) -> None:
    files = {**tree.files, hardware.NVML_FILE: hardware.render(dict(nvml))}
    folders = {os.path.dirname(path) for path in (*files, *tree.binary, *tree.links, *tree.devices)}
    for folder in sorted(folders):
        os.makedirs(f"{root}{folder}", exist_ok=True)
    contents = {**{path: text.encode() for path, text in files.items()}, **tree.binary}
    for path, data in {**contents, **dict.fromkeys(tree.devices, b"")}.items():
        fd = os.open(f"{root}{path}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)  # thousands: no file objects
        os.write(fd, data)
        os.close(fd)
    for path, target in tree.links.items():
        # What points to the root of the machine points below ours.
        inside = os.path.relpath(target, os.path.dirname(path)) if target.startswith("/") else target
        with contextlib.suppress(FileExistsError):
            os.symlink(inside, f"{root}{path}")


# --- asked ------------------------------------------------------------------------------------------------


def nvml_library() -> Path | None:
    """The lab's NVML, which reads its answers from the working directory; None without a compiler."""
    source = Path(netdoctor.lab.__file__).parent / "nvml.c"
    compiler = shutil.which("gcc") or shutil.which("cc")
    key = blake2s(source.read_bytes(), digest_size=8).hexdigest()
    built = KEPT / f"nvml-{key}.so"
    if built.exists():
        return built
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "nvml.so"
        define = '-DFILE_NAME="netdoctor-lab-gpus"'
        soname = "-Wl,-soname,libnvidia-ml.so.1"
        argv = [compiler, "-shared", "-fPIC", "-O1", "-w", define, soname, "-o", str(new), str(source)]
        subprocess.run(argv, check=True)
        _keep(built, new.read_bytes())
    return built if built.exists() else None


def ask(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """What each machine answers as node n1, by group, as an agent sends it."""
    library = nvml_library()
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(here)
            with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
                if library is not None:
                    ctypes.CDLL(str(library))
                found = [_asked(one, Path(folder) / str(i)) for i, one in enumerate(machines)]
            with open(there, "w", encoding="utf-8") as file:
                json.dump(found, file)
            code = 0
        finally:
            os._exit(code)
    os.close(there)
    with open(here, encoding="utf-8") as file:
        text = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "see the traceback above"
    found = json.loads(text)
    assert isinstance(found, list)
    return found


def _asked(machine: Machine, root: Path) -> dict[str, Any]:
    """In the fork: everything that a collector asks of this machine's kernel is answered by the machine."""
    from netdoctor.agent import runtime
    from netdoctor.agent.facts import host as facts_host
    from netdoctor.agent.facts import net as facts_net

    spec = machine.spec
    root.mkdir()
    (root / "etc").mkdir()
    write(*tree_of(spec, 1), root)
    os.chdir(root / "etc")
    replaced: Any = os
    uname = ("Linux", build.name(1), spec.get("kernel", ""), "#1 SMP", spec.get("arch", "x86_64"))
    replaced.uname = lambda: os.uname_result(uname)
    replaced.cpu_count = lambda: spec.get("cpus", 1)
    replaced.environ.clear()
    replaced.environ.update(
        {
            "HOME": "/root",
            "PATH": "/usr/sbin:/usr/bin",
            "SSH_CONNECTION": "10.0.0.250 50000 10.0.0.1 22",
            **spec.get("environ", {}),
        }
    )
    mounts = {str(root) + path: value for path, value in spec.get("mounts", {}).items()}

    def statvfs(path: str) -> Any:
        gib = mounts.get(path.rstrip("/")) or mounts[str(root) + "/"]
        blocks = [int(one * build.GIB // 4096) for one in gib]
        return SimpleNamespace(
            f_frsize=4096, f_bsize=4096, f_blocks=blocks[0], f_bavail=blocks[1], f_bfree=blocks[1], f_flag=0,
            f_files=1 << 20, f_ffree=1 << 19, f_favail=1 << 19, f_namemax=255,
        )  # fmt: skip

    replaced.statvfs = statvfs
    for path in spec.get("mounts", {}):
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    module: Any = facts_host
    module.fqdn = lambda hostname: hostname
    runtime.session_limits.clear()
    runtime.session_limits.update({key: tuple(value) for key, value in spec.get("limits", {}).items()})
    found: dict[str, Any] = {}
    for group, collect in collectors().items():
        args = ARGUMENTS.get(group, {})
        more = {"net": {"rows": _rows(spec, facts_net.Row)}, "rdma": {"known": spec.get("flow", {})}}
        try:
            found[group] = {"value": collect(args, root=str(root), **more.get(group, {}))}
        except runtime.Unavailable as error:
            why, detail = runtime.explain(error)
            found[group] = {"missing": {"why": why, "detail": detail}}
    # What is asked of the kernel alone: each interface has a rule and a route of its own.
    for row in found["net"]["value"]["shared"]:
        row["dev"] = row["ifname"]
    for group, value in spec.get("facts", {}).items():
        if "missing" in value:
            found[group] = {"missing": value["missing"]}
        else:
            found[group] = {"value": merged(found.get(group, {}).get("value", {}), value)}
    text = json.dumps(found).replace(str(root), "").replace('"{none}"', "null")
    return dict(json.loads(render(text, 1)))


@cache
def collectors() -> dict[str, Any]:
    """The agent's collectors of groups that are read from files, by group."""
    found = {}
    for path in sorted((AGENT / "facts").glob("[a-z]*.py")):
        group = path.stem
        collect = import_module(f"netdoctor.agent.facts.{group}").collect
        if group not in BY_CALLS:
            assert "root" in inspect.signature(collect).parameters, (
                f"{path.name}: collect() takes no root; let it read below one, or name it in BY_CALLS of "
                f"{__name__} and give machines its facts"
            )
            found[group] = collect
    return found


def _rows(spec: Mapping[str, Any], row: Any) -> list[Any]:
    """getifaddrs() of the machine."""
    found = []
    for name, dev in spec.get("net", {}).items():
        flags = 0x11043 if dev.get("up", True) else 0x1002
        if name == "lo":
            flags = 0x10049
        found.append(row(name, flags))
        for address in dev.get("address4", []):
            text, _, length = render(address, 1, dev.get("index", 0)).partition("/")
            one = row(name, flags)
            one.family, one.address, one.prefix_len = 2, text, int(length)
            found.append(one)
    return found


# --- clusters ---------------------------------------------------------------------------------------------

_answers: dict[tuple[str, str], str] = {}


def ready(machines: Iterable[Machine]) -> None:
    """Ask all of these at once: one fork for many."""
    new = {(one.name, one.fault): one for one in machines if (one.name, one.fault) not in _answers}
    if not new:
        return
    # What they answered to this very code is kept for the next run: asking all takes a second.
    kept = KEPT / f"machines-{_code()}.json"
    if not _answers and kept.exists():
        _answers.update((tuple(key), text) for key, text in json.loads(kept.read_text()))
        new = {key: one for key, one in new.items() if key not in _answers}
    if new:
        found = ask(list(new.values()))
        _answers.update((key, json.dumps(value)) for key, value in zip(new, found, strict=True))
        _keep(kept, json.dumps(list(_answers.items())).encode())


def _keep(path: Path, data: bytes) -> None:
    """Write a file whole, in place of those of older code."""
    with contextlib.suppress(OSError):  # a checkout that may only be read
        KEPT.mkdir(exist_ok=True)
        for old in KEPT.glob(f"{path.stem.partition('-')[0]}-*"):
            if old != path:  # which another worker may be reading
                old.unlink()
        written = path.with_suffix(f".{os.getpid()}")
        written.write_bytes(data)
        os.replace(written, path)


@cache
def _code() -> str:
    """A digest of all that answers depend on."""
    lab = Path(netdoctor.lab.__file__).parent
    files = [Path(__file__), Path(build.__file__), *FOLDER.rglob("*.toml"), *AGENT.rglob("*.py")]
    files += [lab / name for name in ("hardware.py", "links.py", "state.py", "nvml.c")]
    digest = blake2s(f"{sys.version} {nvml_library()}".encode(), digest_size=8)
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def answers(machine: Machine, number: int) -> dict[str, Any]:
    """What the machine answers as node n`number`: as n1, with all that is n1's own replaced."""
    ready([machine])
    return _answered(machine.name, machine.fault, number)


def _answered(name: str, fault: str, number: int) -> dict[str, Any]:
    text = _answers[name, fault]
    if number > 1:
        for mine, its in own_words(name, number):
            text = text.replace(mine, its)
    return dict(json.loads(text))


@lru_cache(maxsize=4096)
def _facts(name: str, fault: str, number: int) -> dict[str, Any]:
    """As facts, of a machine that is ready."""
    return {group: decode(group, raw) for group, raw in _answered(name, fault, number).items()}


@cache
def own_words(name: str, number: int) -> tuple[tuple[str, str], ...]:
    """What node n1 alone says, and what this one says in its place; the longest first."""
    spec = load(name).spec
    (one, nvml), (other, its) = tree_of(spec, 1), tree_of(spec, number)
    pairs = {
        text.strip(): other.files[path].strip() for path, text in one.files.items() if path in other.files
    }
    pairs |= {nvml[key]: its[key] for key in nvml}
    texts = [
        json.dumps(spec.get("facts", {})),
        *(a for dev in spec.get("net", {}).values() for a in dev.get("address4", [])),
    ]
    for text in texts:
        for match in TOKEN.finditer(text):
            for i in range(16):
                pairs[render(match[0], 1, i)] = render(match[0], number, i)
    pairs |= {
        f'"{build.name(1)}"': f'"{build.name(number)}"',
        f'"{build.address(1)}"': f'"{build.address(number)}"',
    }
    lines = {
        a: b
        for mine, theirs in pairs.items()
        for a, b in zip(mine.splitlines(), theirs.splitlines(), strict=False)
    }
    different = [(a, b) for a, b in lines.items() if a != b and len(a) > 3]
    return tuple(sorted(different, key=lambda pair: -len(pair[0])))


def fleet(members: Sequence[Machine]) -> Store:
    """All that is known of a cluster of these: their answers, and that everything between them works."""
    count = len(members)
    store = Store()
    ready(members)
    for number, machine in enumerate(members, 1):
        node = build.name(number)
        for group, fact in _facts(machine.name, machine.fault, number).items():
            store.put(group, node, fact)
        store.put("node", node, build.node(number))
        store.put("session", node, Session(outcome=Login.OK, address=build.address(number), login_ms=40.0))
        store.put("resolve", node, build.resolve(number, count))
        store.put("routes", node, build.routes(number, count))
        store.put("clock", node, build.clock())
        counters = store.get("counters", node)
        later = replace(counters, uptime_s=counters.uptime_s + 60.0)
        store.put("counters_later", node, LaterCounters(reading=later))
        store.put("port_holder", node, PortHolderFacts(port=build.RDZV))
    store.cluster["job"] = build.job(count)
    store.cluster["ports"] = build.matrix(count)
    store.cluster["path_mtu"] = build.path_mtus(count)
    nodes = build.names(count)
    store.cluster["paths"] = all_paths(store, nodes, store.cluster["job"])
    return store


def main() -> None:
    """python -m tests.machines NAME [FAULT]: what a machine answers, for people."""
    machine = load(sys.argv[1])
    (found,) = ask([machine.broken(sys.argv[2]) if len(sys.argv) > 2 else machine])
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
