"""The lab as a Python object: make it, break it, heal it, end it."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdoctor.lab import (
    fault_hardware,
    fault_host,
    fault_links,
    fault_software,
    fault_ssh,
    links,
    processes,
    requirements,
    service,
    sshd,
)
from netdoctor.lab import loopback as loopback_
from netdoctor.lab import node as nodes_
from netdoctor.lab import state as states
from netdoctor.lab.fault import Fault
from netdoctor.lab.fault_host import compile_c
from netdoctor.lab.fault_software import PIP_CONF, WHEELS, place_torch, wheels
from netdoctor.lab.processes import Process
from netdoctor.lab.requirements import missing_requirements
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active, State
from netdoctor.lab.system import LabError
from netdoctor.text import did_you_mean

__all__ = ["FAULTS", "Fault", "Lab", "LabError", "NodeStatus", "load", "missing_requirements", "up"]

MOST_NODES = 1000
_MODULES: tuple[Any, ...] = (fault_ssh, fault_links, fault_host, fault_software, fault_hardware)
FAULTS: Mapping[str, Fault] = {fault.name: fault for module in _MODULES for fault in module.FAULTS}


class Lab:
    """A running lab. Every method that changes something records it first, so `down` finds it."""

    def __init__(self, folder: Path, state: State) -> None:
        self.state_dir = folder
        self.state = state
        self.nodes = list(state.nodes)
        self.ssh_port = state.ssh_port
        self.hosts_file = folder / sshd.HOSTS
        self.ssh_config = folder / sshd.SSH_CONFIG
        self.known_hosts = folder / sshd.KNOWN_HOSTS
        self.key = folder / sshd.KEY

    def address(self, node: str) -> str:
        return self.state.address(node)

    def run(self, node: str, argv: Sequence[str], **kw: Any) -> subprocess.CompletedProcess[Any]:
        """`subprocess.run` inside every namespace of the node."""
        return nodes_.run(self.state, node, argv, **kw)

    def write_hosts(self, to: Path) -> Path:
        """Hosts file, ssh config, known_hosts and key in another folder; returns the hosts file."""
        sshd.write_client_files(self.state_dir, self.state, to)
        return to.resolve() / sshd.HOSTS

    def save(self) -> None:
        states.save(self.state_dir, self.state)

    def install_torch(self, version: str = "2.4.0+cu121", cuda: str = "12.1", nccl: str = "2.20.5") -> None:
        """Put the same stand-in torch on every node: versions to read, nothing to compute with.

        Its wheels come along, for the pip of a node that is to get it back.
        """
        self._set_torch({"version": version, "cuda": cuda, "nccl": nccl})

    def remove_torch(self) -> None:
        """Take the stand-in torch off every node again."""
        self._set_torch({})

    def _set_torch(self, torch: dict[str, str]) -> None:
        with self._changing() as site:
            self.state.torch = torch
            for node in self.state.nodes:
                if not self.state.active(node, "torch"):
                    place_torch(site, node, torch)
                nodes_.write(
                    self.state, node, wheels(site, node, torch) if torch else {WHEELS: None, PIP_CONF: None}
                )
                nodes_.refresh(self.state, node)

    def break_(self, node: str, fault: str, /, **params: str) -> list[str]:
        """Put a fault in force; returns what was done, one line each.

        Parameters named like a Python keyword take a trailing underscore: ``from_="node1"``.
        """
        self.state.index(node)
        kind = _fault(fault, self.state)
        given = {name.removesuffix("_"): str(value) for name, value in params.items()}
        complete = kind.complete(given)
        with self._changing() as site:
            same = [
                a
                for a in self.state.active(node, fault)
                if all(a.params.get(key) == complete.get(key) for key in kind.key)
            ]
            for active in same:
                self._heal_one(site, active)
            active = Active(node, fault, complete)
            self.state.faults.append(active)
            self.save()
            try:
                kind.apply(site, active)
                return kind.message(active)
            except BaseException:
                self.state.faults.remove(active)
                with contextlib.suppress(LabError, OSError):
                    kind.take_back(site, active)
                raise

    def heal(self, node: str | None = None, fault: str | None = None) -> list[str]:
        """Take back faults: all, those of one node, or one kind; the latest first."""
        if node is not None:
            self.state.index(node)
        if fault is not None and fault not in FAULTS:
            raise LabError(_unknown(fault))
        done = []
        with self._changing() as site:
            for active in reversed(self.state.active(node, fault)):
                self._heal_one(site, active)
                done.append(f"{active.node}: {active.fault} repaired")
        return done

    def _heal_one(self, site: Site, active: Active) -> None:
        self.state.faults.remove(active)
        try:
            FAULTS[active.fault].take_back(site, active)
        except BaseException:
            self.state.faults.append(active)
            raise
        self.save()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Site]:
        """Alone at work on this lab, with the state that the last command left."""
        with states.locked(self.state_dir):
            now = states.read(self.state_dir)
            if now is None or now.id != self.state.id:
                raise LabError(f"the lab of {self.state_dir} is gone")
            self.state = now
            try:
                yield Site(now, self.state_dir)
            finally:
                self.save()

    def status(self) -> list[NodeStatus]:
        """Each node as it is now, not as it was left."""
        self.state = states.read(self.state_dir) or self.state
        found = []
        for node in self.state.nodes:
            process = self.state.processes.get(node)
            running = process is not None and processes.alive(process)
            if self.state.loopback:
                running = service.listening(self.state, node)
            active = tuple(
                " ".join([a.fault, *(f"{k}={v}" for k, v in a.params.items() if v)])
                for a in self.state.active(node)
            )
            found.append(NodeStatus(node, self.address(node), running, active))
        return found

    def pids(self, node: str) -> list[int]:
        """Host pids of everything that runs on the node."""
        return fault_ssh.members(Site(self.state, self.state_dir), node)

    def listeners(self, node: str) -> list[tuple[str, int]]:
        """Address and port of every listening TCP socket of the node."""
        if self.state.loopback:
            return [(self.address(node), self.ssh_port)] if service.listening(self.state, node) else []
        found = []
        for name in ("tcp", "tcp6"):
            for line in (nodes_.read(self.state, node, f"/proc/net/{name}") or "").splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    address, _, port = fields[1].partition(":")
                    found.append((_address(address), int(port, 16)))
        return sorted(found)

    def down(self) -> None:
        """End the lab and remove everything it made."""
        with states.locked(self.state_dir):
            self.state = states.read(self.state_dir) or self.state
            _remove(self.state_dir, self.state)
            _forget(self.state_dir)


@dataclass(frozen=True)
class NodeStatus:
    """One line of `lab status`."""

    node: str
    address: str
    running: bool
    faults: tuple[str, ...]  # as after `lab break NODE` on the command line


def _fault(name: str, state: State) -> Fault:
    kind = FAULTS.get(name)
    if kind is None:
        raise LabError(_unknown(name))
    if state.loopback and not kind.loopback:
        works = ", ".join(sorted(f.name for f in FAULTS.values() if f.loopback))
        raise LabError(
            f"{name} needs the full lab: in a loopback lab the nodes share this machine. There are {works}"
        )
    if kind.needs == "hca" and not state.hcas:
        raise LabError(f"{name} needs simulated HCAs: start the lab with --hcas 2")
    if kind.needs == "gpu" and not state.gpus:
        raise LabError(f"{name} needs simulated GPUs: start the lab with --gpus 2")
    if kind.needs == "gcc" and requirements.compiler() is None:
        raise LabError(f"{name} needs a C compiler: apt-get install gcc libc6-dev")
    return kind


def _unknown(name: str) -> str:
    return f"no fault is called {name!r}{did_you_mean(name, FAULTS)}; `netdoctor lab faults` lists them all"


def _address(text: str) -> str:
    """An address of /proc/net/tcp: words of four bytes in the machine's byte order."""
    raw = bytes.fromhex(text)
    words = [raw[i : i + 4] for i in range(0, len(raw), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return str(ipaddress.ip_address(b"".join(words)))


def up(
    count: int,
    *,
    prefix: str = "node",
    ssh_port: int = 44222,
    state_dir: Path | None = None,
    data_net: bool = False,
    hcas: int = 0,
    gpus: int = 0,
    subnet: str | None = None,
    loopback: bool = False,
    link_layer: str = "Ethernet",
    share: Sequence[str] = (),
) -> Lab:
    """Make a lab of `count` nodes and return it when every SSH server answers.

    share: folders of this machine that all nodes see and write to, as on a cluster's file system.
    subnet: ``10.77.0.0/24``, or its first three numbers; None for the first of links.SUBNETS that is free.
    """
    folder = (state_dir or states.default_dir()).absolute()
    subnets = links.SUBNETS if subnet is None else [_first_numbers(subnet)]
    state = State(
        id="netdoctor-lab-" + secrets.token_hex(6),
        nodes=[f"{prefix}{i}" for i in range(count)],
        subnet=subnets[0],
        ssh_port=ssh_port,
        user="root",
        data_net=data_net,
        hcas=hcas,
        gpus=gpus,
        link_layer=link_layer,
        shared=[os.path.abspath(path) for path in share],
    )
    _check_request(state, count, prefix)
    if loopback:
        loopback_.prepare(state)
    else:
        missing = missing_requirements()
        if missing:
            raise LabError(
                "; ".join(missing) + ". Without it: `netdoctor lab up N --loopback`, "
                "whose nodes share this machine's network"
            )
    if gpus and requirements.compiler() is None:
        raise LabError("simulated GPUs need a C compiler: apt-get install gcc libc6-dev")
    _new_folder(folder)
    with states.locked(folder):
        if states.read(folder) is not None:
            raise LabError(
                f"a lab is already recorded in {folder}; end it with `netdoctor lab down`, "
                "or choose another --state-dir"
            )
        if not loopback:
            links.take_free(state, subnets)
        with _undone_on_failure(folder, state):
            states.save(folder, state)
            if loopback:
                loopback_.build(Site(state, folder))
            else:
                _build(folder, state)
            states.save(folder, state)
    return Lab(folder, state)


def load(state_dir: Path | None = None) -> Lab:
    """The running lab of this state directory."""
    folder = (state_dir or states.default_dir()).absolute()
    state = states.read(folder)
    if state is None:
        raise LabError(f"no lab in {folder}; start one with `netdoctor lab up 4`")
    return Lab(folder, state)


def _check_request(state: State, count: int, prefix: str) -> None:
    if not 1 <= count <= MOST_NODES:
        raise LabError(f"a lab has 1 to {MOST_NODES} nodes, not {count}")
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,40}", prefix):
        raise LabError(f"{prefix!r} cannot begin a host name: use small letters, digits and -")
    if not 1 <= state.ssh_port <= 65535:
        raise LabError(f"{state.ssh_port} is not a port")
    if not 0 <= state.hcas <= 16 or not 0 <= state.gpus <= 16:
        raise LabError("a node has 0 to 16 HCAs and 0 to 16 GPUs")
    if socket.gethostname() in state.nodes:
        raise LabError(f"this machine is itself called {socket.gethostname()}; choose another --prefix")
    for path in state.shared:
        if not os.path.isdir(path):
            raise LabError(f"cannot share {path}: no folder of this name here")


def _first_numbers(subnet: str) -> str:
    found = re.fullmatch(r"(\d+\.\d+\.\d+)(\.0/(24|16))?", subnet, re.ASCII)
    if found is None or any(int(part[:4]) > 255 for part in found[1].split(".")):
        raise LabError(f"{subnet!r} is not a network of a lab; write one such as 10.77.0.0/24")
    return found[1]


def _new_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        if folder.stat().st_uid != os.geteuid():
            raise LabError(f"{folder} belongs to somebody else; choose another --state-dir")
        foreign = set(os.listdir(folder)) - {"lock", states.FILE}
    except OSError as error:
        raise LabError(f"cannot use {folder}: {error.strerror}; choose another --state-dir") from error
    if foreign and not (folder / states.FILE).exists():
        raise LabError(f"{folder} holds other files; the state directory must be empty or new")


@contextlib.contextmanager
def _undone_on_failure(folder: Path, state: State) -> Iterator[None]:
    """Whatever stops `up`, Ctrl-C and SIGTERM included, nothing stays behind."""

    def terminate(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGTERM, signal.SIGHUP) if main_thread else ()
    previous = [signal.signal(sig, terminate) for sig in signals]
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        yield
    except BaseException:
        for sig in (*signals, signal.SIGINT) if signals else ():
            signal.signal(sig, signal.SIG_IGN)  # a second Ctrl-C must not stop the clearing up
        _remove(folder, state)
        _forget(folder)
        raise
    finally:
        for sig, handler in zip(signals, previous, strict=True):
            signal.signal(sig, handler)
        if signals:
            signal.signal(signal.SIGINT, interrupt)


def _build(folder: Path, state: State) -> None:
    sshd.make_keys(
        [(folder / sshd.KEY, "netdoctor-lab")] + [(sshd.host_key(folder, node), node) for node in state.nodes]
    )
    (folder / "scratch").mkdir()
    site = Site(state, folder)
    nvml = compile_c(site, "nvml.c", "nvml.so", "-Wl,-soname,libnvidia-ml.so.1") if state.gpus else b""
    plans = [nodes_.plan(state, folder, node, nvml) for node in state.nodes]
    fabric = {"name": "fabric", "fabric": True, "commands": [], "stdins": []}
    with _boot(state, folder) as helper:
        _send(helper, json.dumps({
            "id": state.id, "folder": str(folder),
                    "scratch": str(folder / "scratch"), "nodes": [fabric, *plans],
        }))  # fmt: skip
        for name, number in _answer(helper)["pids"].items():
            process = processes.identify(number)
            if process is None:
                raise LabError(f"{name} ended while it was starting")
            state.processes[name] = process
        links.raise_neighbour_limit(state)
        states.save(folder, state)
        links.apply_sysctls(state)
        links.connect(state)
        _send(helper, "linked")
        _answer(helper)
        sshd.write_client_files(folder, state, folder)
        wait_for_ssh(state, state.nodes)
        state.ready = True
        states.save(folder, state)
        _send(helper, "keep")
        if helper.wait(30) != 0:
            raise LabError("the nodes could not be kept running")


@contextlib.contextmanager
def _boot(state: State, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    source = str(requirements.package_folder().parent.parent)
    path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
    helper = subprocess.Popen(
        [sys.executable, "-m", "netdoctor.lab.boot", state.id, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for `up`, which then ends this by closing its stdin
    )
    try:
        yield helper
    finally:
        assert helper.stdin is not None
        assert helper.stdout is not None
        helper.stdin.close()
        try:
            helper.wait(10)
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.wait()
        helper.stdout.close()


def _send(helper: subprocess.Popen[bytes], line: str) -> None:
    assert helper.stdin is not None
    try:
        helper.stdin.write(line.encode() + b"\n")
        helper.stdin.flush()
    except BrokenPipeError:
        raise LabError("the process that makes the nodes ended early") from None


def _answer(helper: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert helper.stdout is not None
    line = helper.stdout.readline()
    if not line:
        raise LabError("the process that makes the nodes ended early")
    message: dict[str, Any] = json.loads(line)
    if "error" in message:
        raise LabError(f"could not make the nodes: {message['error']}")
    return message


def wait_for_ssh(state: State, nodes: Sequence[str], timeout_s: float = 20) -> None:
    """Until each node's SSH server has sent its banner."""
    deadline = time.monotonic() + timeout_s + len(nodes) / 10
    for node in nodes:
        while not service.banner(state.address(node), state.ssh_port).startswith(b"SSH-"):
            if time.monotonic() > deadline:
                raise LabError(f"the SSH server of {node} does not answer")
            time.sleep(0.02)


def _remove(folder: Path, state: State) -> None:
    """Take away everything the state names, and whatever else carries the lab's own id."""
    left = list(state.extra)
    for process in state.processes.values():
        if processes.alive(process):
            left += service.family(process) if state.loopback else [process]
    left += _strays(folder, state)
    stuck: list[Process] = []
    while left and not stuck:
        processes.kill(left)
        stuck = processes.wait_gone(left)
        left = _strays(folder, state)
    links.remove_leg(state)
    for path in state.folders:
        with contextlib.suppress(OSError):
            os.rmdir(path)
    for path, value in state.sysctls.items():
        with contextlib.suppress(OSError):
            Path(path).write_text(value + "\n")
    if stuck:
        raise LabError(f"processes {[p.pid for p in stuck]} of the lab do not end")


def _strays(folder: Path, state: State) -> list[Process]:
    """Processes of the lab that its state does not name, because `up` was stopped before it wrote them."""
    compilers = f"{folder}/build/"
    for _ in range(2):  # one that was just being started may show no command line yet
        found = [*processes.with_argument(state.id), *processes.with_argument(compilers)]
        if found:
            return found
        time.sleep(0.01)
    return []


def _forget(folder: Path) -> None:
    """Remove the state directory, nothing of which is anybody else's."""
    for name in ("keys", "scratch", "build", "nodes"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (
        sshd.KEY, sshd.KEY + ".pub", sshd.HOSTS, sshd.SSH_CONFIG, sshd.KNOWN_HOSTS,
        states.FILE, f"{states.FILE}.new", "lock",
    ):  # fmt: skip
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
