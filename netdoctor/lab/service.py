"""The SSH server of a node, in the full lab and in the loopback lab: files, start, stop."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from netdoctor.lab import node as nodes
from netdoctor.lab import processes, sshd, system
from netdoctor.lab.processes import Process
from netdoctor.lab.state import State
from netdoctor.lab.system import LabError

PID_FILE = "/run/sshd.pid"
SILENT = ("sshd-down", "not-ssh")


@dataclass
class Site:
    """A lab as faults see it: its state, and the folder that holds its keys."""

    state: State
    folder: Path

    def file(self, node: str, kind: str) -> Path:
        return self.folder / "keys" / f"{node}.{kind}"


def files(site: Site, node: str) -> tuple[str, str, str]:
    """Private host key, its public half, and authorized_keys, as the faults in force have them."""
    key = sshd.host_key(site.folder, node)
    if site.state.active(node, "host-key"):
        key = site.file(node, "changed")
        if not key.exists():
            sshd.make_keys([(key, node)])
    client = site.folder / sshd.KEY
    if site.state.active(node, "wrong-key"):
        client = site.file(node, "stranger")
        if not client.exists():
            sshd.make_keys([(client, "somebody-else")])
    return key.read_text(), sshd.public(key).read_text(), sshd.public(client).read_text()


def configure(site: Site, node: str) -> None:
    """Write everything the server reads."""
    key, public, authorized = files(site, node)
    if site.state.loopback:
        folder = loopback_folder(site, node)
        _private(folder / "host_key", key)
        (folder / "host_key.pub").write_text(public)
        _private(folder / "authorized_keys", authorized)
        (folder / "sshd_config").write_text(loopback_config(site, node))
        return
    nodes.write(site.state, node, {nodes.HOST_KEY: key, nodes.AUTHORIZED: authorized}, 0o600)
    nodes.write(site.state, node, {nodes.HOST_KEY + ".pub": public})
    nodes.refresh(site.state, node)


def restart(site: Site, node: str) -> None:
    """Stop the server, and start it again unless a fault in force keeps it away."""
    stop(site, node)
    configure(site, node)
    if any(site.state.active(node, name) for name in SILENT):
        return
    if site.state.loopback:
        site.state.processes[node] = start_loopback(site, node)
    else:
        start(site, node)
    wait(site.state, node)


def start(site: Site, node: str) -> None:
    """With the limits of the node's first process, as far as this caller may grant them."""
    first = Path(f"/proc/{nodes.pid(site.state, node)}/limits").read_text().splitlines()
    limits = []
    for title, option in (("Max locked memory", "memlock"), ("Max open files", "nofile")):
        for line in first:
            if line.startswith(title):
                soft, hard = line[len(title) :].split()[:2]
                limits.append(f"--{option}={soft}:{hard}")
    raised = nodes.run(site.state, node, ["prlimit", *limits, *nodes.SSHD], capture_output=True)
    if raised.returncode != 0:
        nodes.do(site.state, node, nodes.SSHD)


def stop(site: Site, node: str) -> None:
    """End the listening server; sessions that are open stay."""
    if site.state.loopback:
        listener = site.state.processes.get(node)
        if listener is not None:
            processes.kill([listener])
            processes.wait_gone([listener])
        return
    script = (
        f'p=$(cat {PID_FILE} 2>/dev/null) || exit 0; rm -f {PID_FILE}; kill -9 "$p" || exit 0; '
        'while kill -0 "$p" 2>/dev/null && ! grep -q "^State:.Z" "/proc/$p/status"; '
        "do sleep 0.01; done"
    )
    nodes.do(site.state, node, ["sh", "-c", script])


def banner(address: str, port: int) -> bytes:
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            return connection.recv(64)
    except OSError:
        return b""


def wait(state: State, node: str, timeout_s: float = 20) -> None:
    """Until the server listens, as seen by the node itself: a fault may hide it from outside."""
    deadline = time.monotonic() + timeout_s
    while not listening(state, node):
        if time.monotonic() > deadline:
            raise LabError(f"the SSH server of {node} does not come up again")
        time.sleep(0.02)


def listening(state: State, node: str) -> bool:
    if state.loopback:
        return banner(state.address(node), state.ssh_port).startswith(b"SSH-")
    port = f":{state.ssh_port:04X} "
    table = nodes.read(state, node, "/proc/net/tcp") or ""
    return any(port in line.split("00000000:0000 0A")[0] and " 0A " in line for line in table.splitlines())


# --- without root: every server is a process of this user on an address of the loopback ---------


def loopback_folder(site: Site, node: str) -> Path:
    folder = site.folder / "nodes" / node
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def _private(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as stream:
        stream.write(text)


def loopback_config(site: Site, node: str) -> str:
    folder = loopback_folder(site, node)
    state = site.state
    # The user's own start-up files are not part of the lab: an empty home hides them.
    home = folder / "home"
    home.mkdir(exist_ok=True)
    setenv = {
        "HOME": str(home),
        "NETDOCTOR_LAB": state.id,
        "NETDOCTOR_LAB_NODE": node,
        **nodes.setenv(state, node),
    }
    return sshd.sshd_config(
        port=state.ssh_port,
        address=state.address(node),
        setenv=setenv,
        pam=False,
        lines=[
            f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            f"AllowUsers {state.user}",
            "PidFile none",
        ],
    )


def start_loopback(site: Site, node: str) -> Process:
    program = system.tool("sshd")
    if program is None:
        raise LabError("sshd is not installed: apt-get install openssh-server")
    privileges = Path("/run/sshd")  # sshd of root insists on it; made at boot where sshd runs
    if os.geteuid() == 0 and not privileges.exists():
        privileges.mkdir()
        site.state.folders.append(str(privileges))
    folder = loopback_folder(site, node)
    with open(folder / "log", "ab") as log:
        child = subprocess.Popen(
            [program, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**system.NODE_ENV, "HOME": str(Path.home()), "USER": getpass.getuser()},
        )
    process = processes.identify(child.pid)
    if process is None:
        last = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
        raise LabError(f"sshd of {node} ended at once: {' '.join(last)}")
    return process


def family(process: Process) -> list[Process]:
    """A server and the sessions it has open."""
    children = defaultdict(list)
    for pid in processes.all_pids():
        children[processes.parent(pid)].append(pid)
    found = [process]
    for one in found:  # which grows on the way
        found += filter(None, map(processes.identify, children[one.pid]))
    return found
