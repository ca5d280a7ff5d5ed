"""NCCL's choice of HCA ports and GID indexes as libnccl makes it, against netdoctor's: the same made-up HCAs.

Nothing that NCCL exports lists them. The wheels keep their symbols, so ncclIbInitDevices and
ncclIbGetGidIndex are called at their addresses, with a stand-in for libibverbs (ibverbs.c) over the tree
that netdoctor's agent reads, too.
"""

from __future__ import annotations

import ctypes
import ipaddress
import mmap
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from netdoctor.agent.facts import rdma as facts_rdma
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.rules.nccl_ib import choose_gid_index, gives_up_over_index, selected_ports, switched_off_by
from netdoctor.store import decode
from tests.oracle import nccl, spaces
from tests.oracle.nccl import PER_MACHINE, Library, Tally
from tests.oracle.spaces import Space

OLDEST = (2, 30)  # the two functions have these names since
TREE = "/etc/tree"
_INIT = re.compile(rb"_Z17ncclIbInitDevices\w+")
_GID_INDEX = b"_Z17ncclIbGetGidIndexP11ibv_contexthP13ibv_port_attrPi"
_USING = re.compile(r"NET/IB : Using (.*?);? ?OOB")

library = nccl.library


@dataclass
class Port:
    state: int  # IBV_PORT_ACTIVE is 4
    layer: int  # 1 InfiniBand, 2 Ethernet
    gids: list[tuple[str, str]]  # address and type; empty ones are empty rows


Hcas = dict[str, list[Port]]


def refused() -> str:
    return spaces.refused() or ("" if shutil.which("gcc") else "needs gcc")


@cache
def stand_in() -> Path:
    """The compiled libibverbs, in a directory that stays until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="netdoctor-verbs-"))
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, out = Path(__file__).with_name("ibverbs.c"), folder / "libibverbs.so.1"
    versions = folder / "versions"
    versions.write_text("IBVERBS_1.1 { global: ibv_*; local: *; };\n")
    flags = [
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        f"-Wl,--version-script={versions}",
        "-Wl,-soname,libibverbs.so.1",
    ]
    subprocess.run(["gcc", *flags, "-o", str(out), str(source)], check=True)
    return out


@cache
def addresses(path: str) -> dict[str, int]:
    """Where the symbols that are asked for lie in a library, by the pattern's first words, and
    ncclGetUniqueId."""
    found: dict[str, int] = {}
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at, size, number = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + size * i) for i in range(number)]
        table = next(section for section in sections if section[1] == 2)  # SHT_SYMTAB
        strings = sections[table[6]]
        names = data[strings[4] : strings[4] + strings[5]]
        for entry in range(table[4], table[4] + table[5], 24):
            name_at, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, entry)
            name = names[name_at : names.index(b"\0", name_at)]
            if _INIT.fullmatch(name):
                found["init"] = value
            elif name == _GID_INDEX:
                found["gid"] = value
            elif name == b"ncclGetUniqueId":
                found["base"] = value
    return found


def ask(path: str, at: dict[str, int], verbs: str) -> dict[str, Any]:
    """What libnccl takes here: {"ports": names, or None where it gives up, "gids": index by port}."""
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="ALL", NCCL_IBVERBS_LIB=verbs)
    reads, writes = os.pipe()
    os.dup2(writes, 1)
    stub = ctypes.CDLL(verbs)
    loaded = ctypes.CDLL(path)
    function = ctypes.cast(loaded.ncclGetUniqueId, ctypes.c_void_p).value or 0
    base = function - at["base"]
    init = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(base + at["init"])
    rc = init(None, None)
    ctypes.CDLL(None).fflush(None)
    os.set_blocking(reads, False)
    text = os.read(reads, 1 << 16).decode(errors="replace")
    said = _USING.search(text)
    ports = re.findall(r"\[\d+\]([^:\s]+:\d+)", said[1]) if said else []
    indexes = {} if rc else _gid_indexes(stub, base + at["gid"], ports)
    return {"ports": None if rc else ports, "gids": indexes, "text": text[-600:]}


def _gid_indexes(stub: Any, address: int, ports: Sequence[str]) -> dict[str, int | None]:
    function = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)
    )(address)
    stub.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    stub.ibv_open_device.restype = ctypes.c_void_p
    stub.ibv_open_device.argtypes = [ctypes.c_void_p]
    stub.ibv_get_device_name.restype = ctypes.c_char_p
    stub.ibv_get_device_name.argtypes = [ctypes.c_void_p]
    stub.ibv_query_port.argtypes = [ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p]
    number = ctypes.c_int()
    devices = stub.ibv_get_device_list(ctypes.byref(number))
    by_name = {stub.ibv_get_device_name(devices[i]).decode(): devices[i] for i in range(number.value)}
    found: dict[str, int | None] = {}
    for port in ports:
        name, _, digits = port.partition(":")
        context = stub.ibv_open_device(by_name[name])
        attributes = ctypes.create_string_buffer(256)
        stub.ibv_query_port(context, int(digits), attributes)
        index = ctypes.c_int(-7)
        failed = function(context, int(digits), ctypes.addressof(attributes), ctypes.byref(index))
        found[port] = None if failed else index.value
    return found


# --- machines ------------------------------------------------------------------------------------


def hcas(rng: random.Random) -> Hcas:
    names = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_10", "mlx5_11", "bnxt_re0", "rocep1s0f0", "ibp3s0", "mlx4_0"]
    return {
        name: [_port(rng) for _ in range(rng.choice([1, 1, 1, 2]))]
        for name in sorted(rng.sample(names, rng.randint(0, 6)))
    }


def _port(rng: random.Random) -> Port:
    layer = rng.choice([1, 2, 2, 2])
    rows = []
    for _ in range(rng.choice([1, 2, 4, 6, 8, 16])):
        net = rng.randint(0, 3)
        address = rng.choice(
            ["fe80::1", "fe80::1", f"::ffff:10.{net}.0.1", f"::ffff:10.{net}.0.1", f"::ffff:10.{net}.0.1",
             f"fd00:{net}::1", "", "", "fe80::", "fe80:0:0:1::1", "ff0e::ffff:10.0.0.1", "::ffff:0.0.0.0",
             "fd00:0:7::1"]
        )  # fmt: skip
        kind = rng.choice(["IB/RoCE v1", "RoCE v2", "RoCE v2", "RoCE v2"]) if address else ""
        rows.append((address, kind))
    # In row 0 of a port there is always something: what its type is where not, NCCL does not know either.
    rows[0] = rows[0] if rows[0][0] else ("fe80::1", "IB/RoCE v1")
    return Port(rng.choice([4, 4, 4, 4, 1, 2]), layer, rows)


def setting(rng: random.Random, made: Hcas) -> dict[str, str]:
    env: dict[str, str] = {"PATH": "/usr/bin", "HOME": "/etc/home"}
    if rng.random() < 0.6:
        env["NCCL_IB_HCA"] = _list(rng, list(made))
    choices: dict[str, list[str]] = {
        "NCCL_IB_DISABLE": ["0", "1", "true", "", "-1", "x"],
        "NCCL_IB_GID_INDEX": ["0", "1", "3", "15", "99", "-1", "x", "", "0x1", "010"],
        "NCCL_IB_ADDR_FAMILY": ["AF_INET", "AF_INET6", "AF_INET6", "inet6", ""],
        "NCCL_IB_ADDR_RANGE": ["10.0.0.0/8", "10.1.0.0/16", "10.1.0.0", "10.2.0.1/32", "fd00:1::/32",
                               "fd00::/16",
                               "10.0.0.0/33", "10.0.0.0/x", "::/0", "0.0.0.0/0", "x/8", "", "fd00:2::1/128"],
        "NCCL_IB_ROCE_VERSION_NUM": ["1", "2", "3", "x", ""],
        "NCCL_IB_ROUTABLE_FLID_GID_INDEX": ["0", "1", "2"],
    }  # fmt: skip
    for name, values in choices.items():
        if rng.random() < (0.1 if name == "NCCL_IB_DISABLE" else 0.3):
            env[name] = rng.choice(values)
    return env


def _list(rng: random.Random, names: list[str]) -> str:
    words = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        word = rng.choice([*names, "mlx5", "mlx5_1", "eth0"])
        word += rng.choice(["", "", "", ":1", ":2", ":", ":1:0", "::0", ":1:0:1", ":x", ":1x", ": 1", ":-1"])
        words.append(rng.choice(["", "", "", " ", "="]) + word)
    return rng.choice(["", "", "=", "^", "^=", "=^"]) + ",".join(words)


def _furnish(made: Hcas) -> None:
    """The tree that the agent and NCCL read, and the list of the stand-in."""
    lines = []
    devices = Path(TREE, "sys/devices/pci0000:00")
    devices.mkdir(parents=True)
    for i, (name, ports) in enumerate(made.items()):
        lines.append(f"hca {name} {len(ports)}")
        device = devices / f"0000:{i + 1:02x}:00.0"
        (device / "infiniband_verbs" / f"uverbs{i}").mkdir(parents=True)
        node = Path(TREE, f"dev/infiniband/uverbs{i}")
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
        base = Path(TREE, "sys/class/infiniband", name)
        base.mkdir(parents=True)
        (base / "device").symlink_to(f"../../../devices/pci0000:00/{device.name}")
        for number, port in enumerate(ports, start=1):
            lines.append(f"port {number} {port.state} {port.layer} {len(port.gids)}")
            folder = base / "ports" / str(number)
            for part in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
                (folder / part).mkdir(parents=True)
            (folder / "state").write_text(f"{port.state}: {'ACTIVE' if port.state == 4 else 'DOWN'}\n")
            (folder / "phys_state").write_text("5: LinkUp\n")
            (folder / "link_layer").write_text("InfiniBand\n" if port.layer == 1 else "Ethernet\n")
            (folder / "rate").write_text("200 Gb/sec (4X HDR)\n")
            for index, (address, kind) in enumerate(port.gids):
                text = ipaddress.IPv6Address(address or "::").exploded
                lines.append(f"gid {index} {text.replace(':', '')}")
                (folder / "gids" / str(index)).write_text(text + "\n")
                (folder / "gid_attrs/types" / str(index)).write_text(kind and kind + "\n")
    Path("/etc/hcas").write_text("\n".join(lines) + "\n")
    spaces.mount(f"{TREE}/sys", "/sys")


def cases(seed: int, count: int) -> Iterator[tuple[int, Space, Hcas, dict[str, str]]]:
    """Numbered machines and settings; each machine serves several settings."""
    for first in range(0, count, PER_MACHINE):
        rng = random.Random(f"hcas {seed} {first}")
        made = hcas(rng)
        with spaces.space() as space:
            space.batch(["link set lo up"])
            space.run(lambda made=made: _furnish(made), {})
            for number in range(first, min(first + PER_MACHINE, count)):
                yield number, space, made, setting(rng, made)


def predict(facts: RdmaFacts, env: dict[str, str], one: Library) -> tuple[list[str] | None, dict[str, int]]:
    """The ports that NCCL takes, None where it gives up, and the GID index of each."""
    version = one.version
    if switched_off_by(env, version):
        return None, {}
    ports = [port for _, port in selected_ports(facts.hcas, env.get("NCCL_IB_HCA"), version)]
    indexes = {port.name: choose_gid_index(port, env, version) for port in ports}
    if any(gives_up_over_index(port, indexes[port.name], version) for port in ports):
        return None, {}
    return [port.name for port in ports], indexes


def run(libraries: Sequence[Library], seed: int, count: int) -> dict[str, Tally]:
    """Ask every library and netdoctor in `count` cases; what came of it by release."""
    libraries = [one for one in libraries if one.version >= OLDEST]
    tallies = {str(one): Tally() for one in libraries}
    verbs = str(stand_in())
    at = {one.path: addresses(one.path) for one in libraries}
    for number, space, made, env in cases(seed, count):
        facts: RdmaFacts = decode("rdma", {"value": space.run(lambda: facts_rdma.collect({}, TREE), env)})
        for one in libraries:

            def asked(one: Library = one) -> dict[str, Any]:
                return ask(one.path, at[one.path], verbs)

            tally = tallies[str(one)]
            answer = space.run(asked, env)
            ours, indexes = predict(facts, env, one)
            tally.cases += 1
            for port in ours or ["none"]:
                tally.rules["port" if ours else port] += 1
            if ours == answer["ports"] and indexes == answer["gids"]:
                tally.agree += 1
            else:
                tally.differences.append(
                    f"seed {seed} case {number}: NCCL {answer['ports']} {answer['gids']},"
                    f" netdoctor {ours} {indexes}\n  {env}\n  {made}\n  {answer['text']}"
                )
    return tallies
