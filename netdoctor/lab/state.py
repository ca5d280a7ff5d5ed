"""What the lab remembers between two commands: one JSON file in its state directory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from netdoctor.lab.processes import Process
from netdoctor.lab.system import LabError

FILE = "state.json"
FIRST_HOST = 10


@dataclass
class Active:
    """A fault in force. `undo` holds what healing needs and cannot work out again."""

    node: str
    fault: str
    params: dict[str, str]
    undo: dict[str, Any] = field(default_factory=dict)


@dataclass
class State:
    """Everything `down` needs is here before it exists on the machine."""

    id: str
    nodes: list[str]
    subnet: str
    ssh_port: int
    user: str
    ready: bool = False
    loopback: bool = False
    data_net: bool = False
    hcas: int = 0
    gpus: int = 0
    link_layer: str = "Ethernet"
    leg: str = ""
    shared: list[str] = field(default_factory=list)
    processes: dict[str, Process] = field(default_factory=dict)
    extra: list[Process] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # of this machine, made for the lab
    sysctls: dict[str, str] = field(default_factory=dict)
    torch: dict[str, str] = field(default_factory=dict)
    faults: list[Active] = field(default_factory=list)

    def index(self, node: str) -> int:
        try:
            return self.nodes.index(node)
        except ValueError:
            known = f"{self.nodes[0]} to {self.nodes[-1]}"
            raise LabError(f"no node {node!r} in this lab; it has {known}") from None

    @property
    def prefix_length(self) -> int:
        """A /24 holds 240 nodes; more take the /16 around it."""
        return 8 if self.loopback else 24 if len(self.nodes) <= 240 else 16

    def address(self, node: str, net: int = 0) -> str:
        """Address on the first network, or with net=1 on the data network."""
        if self.loopback:
            return f"127.0.0.{FIRST_HOST + self.index(node)}"
        a, b, c = (int(part) for part in self.subnet.split("."))
        c, d = divmod(c * 256 + FIRST_HOST + self.index(node), 256)
        return f"{a}.{(b + net) % 256}.{c}.{d}"

    def control_address(self) -> str:
        return f"{self.subnet}.1"

    def active(self, node: str | None = None, fault: str | None = None) -> list[Active]:
        return [a for a in self.faults if node in (None, a.node) and fault in (None, a.fault)]


def default_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/run/netdoctor-lab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "netdoctor-lab"
    return Path(f"/tmp/netdoctor-lab-{os.geteuid()}")


def save(folder: Path, state: State) -> None:
    new = folder / f"{FILE}.new"
    new.write_text(json.dumps(asdict(state), indent=1) + "\n")
    new.replace(folder / FILE)


def read(folder: Path) -> State | None:
    """The recorded lab, or None when there is none."""
    try:
        raw = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LabError(f"cannot read {folder / FILE}: {error}") from error
    raw["processes"] = {name: Process(**p) for name, p in raw["processes"].items()}
    raw["extra"] = [Process(**p) for p in raw["extra"]]
    raw["faults"] = [Active(**a) for a in raw["faults"]]
    return State(**raw)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One command at a time per state directory; the lock ends with the process."""
    with open(folder / "lock", "a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(
                f"another netdoctor lab command is at work in {folder}; wait for it to end"
            ) from None
        yield
