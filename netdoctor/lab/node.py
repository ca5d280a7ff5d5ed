"""One node seen from outside: the files it starts with, running things in it, writing to it."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import resource
import subprocess
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netdoctor.lab import hardware, links, processes, sshd, system
from netdoctor.lab.state import State
from netdoctor.lab.system import LabError

# Somebody who is not root, for what only root may see or do.
PERSON = "trainer"
PERSON_ID = "31337"
LABEL = "/run/netdoctor-lab.json"
# With -r a connection is a fork that starts no program of its own: a third less CPU for a login. OpenSSH 9.8
# and later take it and do as ever.
SSHD = ["/usr/sbin/sshd", "-r", "-f", "/etc/ssh/sshd_config"]
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
AUTHORIZED = "/root/.ssh/authorized_keys"
# What sshd asks of PAM: sessions get the limits and the environment that the node's files give them. A limit
# above that of the machine that carries the lab cannot be had; then the session has that one.
PAM = """\
auth required pam_deny.so
account required pam_permit.so
session optional pam_limits.so
session optional pam_env.so
"""
PAM_LIMITS = "/etc/security/limits.d/20-netdoctor-lab.conf"
STAND_IN = "netdoctor lab: stands in for a library that goes with simulated HCAs; nothing can load it\n"
CLEAN_PROFILE = 'if [ -n "$BASH_VERSION" ] && [ -f ~/.bashrc ]; then . ~/.bashrc; fi\n'


def pid(state: State, node: str) -> int:
    """Host pid of the node's first process."""
    state.index(node)
    process = state.processes.get(node)
    if process is None or not processes.alive(process):
        raise LabError(f"{node} is not running; end the lab with `netdoctor lab down`")
    return process.pid


def enter(state: State, node: str, argv: Sequence[str]) -> list[str]:
    """Command line that runs `argv` inside all namespaces of the node."""
    return ["nsenter", "-t", str(pid(state, node)), "-m", "-u", "-i", "-n", "-p", "--", *argv]


def run(state: State, node: str, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` in the node, with the environment of a fresh login unless told otherwise."""
    program = system.tool("nsenter")
    if program is None:
        raise LabError("nsenter is not installed: apt-get install util-linux")
    options.setdefault("env", dict(system.NODE_ENV))
    options.setdefault("timeout", 60)
    options.setdefault("check", False)
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    argv = [program, *enter(state, node, argv)[1:]]
    return subprocess.run(argv, **options)  # noqa: PLW1510  # `check` is among the options


def do(state: State, node: str, argv: Sequence[str], stdin: str | bytes = "") -> str:
    """Run a command in the node that must succeed; return what it printed."""
    done = system.command(enter(state, node, argv), stdin=stdin)
    return done.stdout.decode(errors="replace")


def ip_batch(state: State, node: str, lines: Sequence[str]) -> None:
    """Commands of `ip` in the node."""
    do(state, node, ["ip", "-batch", "-"], "\n".join(lines) + "\n")


def write(state: State, node: str, files: Mapping[str, str | bytes | None], mode: int = 0o644) -> None:
    """Write (or with None remove) files of a node.

    By way of tar in the node, not through /proc/PID/root: an absolute link there would lead
    to the machine's own files.
    """
    removed = [path for path, content in files.items() if content is None]
    if removed:
        do(state, node, ["rm", "-rf", "--", *removed])
    buffer = io.BytesIO()
    count = 0
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            if content is None:
                continue
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
            count += 1
    if count:
        argv = ["tar", "-x", "-f", "-", "-C", "/", "--no-same-owner", "-m"]
        do(state, node, argv, buffer.getvalue())


def read(state: State, node: str, path: str) -> str | None:
    """Text of a file in the node, or None when there is none."""
    done = run(state, node, ["cat", "--", path], capture_output=True, check=False)
    text: str = done.stdout.decode(errors="replace")
    return text if done.returncode == 0 else None


# --- files that follow from the state, faults in force included -------------------------------


def hosts_file(state: State, node: str) -> str:
    """The node's /etc/hosts: every node by its address, its own name included."""
    lines = ["127.0.0.1 localhost"]
    table = {name: state.address(name) for name in state.nodes}
    for active in state.active(node):
        if active.fault == "own-name-loopback":
            lines.append(f"{active.params['address']} {node}")
            table.pop(node, None)
        elif active.fault == "peer-name-missing":
            table.pop(active.params["peer"], None)
        elif active.fault == "peer-name-wrong":
            table[active.params["peer"]] = active.params["address"]
    lines += [f"{address} {name}" for name, address in table.items()]
    return "\n".join(lines) + "\n"


def bashrc(state: State, node: str) -> str:
    """Debian's bash reads ~/.bashrc for `ssh host command` too, so noise here is real."""
    lines = ["# ~/.bashrc of a lab node: empty unless a fault fills it"]
    for active in state.active(node):
        if active.fault == "shell-noise":
            lines += [
                "echo 'Welcome to the cluster! Maintenance on Friday.'",
                r"printf '\033[1;31mNOTICE\033[0m quota at 93%%\033]0;login\007\n'",
                "echo 'module: command not found' >&2",
                r"printf '\033[33mwarning:\033[0m conda is not initialised\n' >&2",
            ]
        elif active.fault == "slow-shell":
            lines.append(f"sleep {active.params['seconds']}")
    return "\n".join(lines) + "\n"


def setenv(state: State, node: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for active in state.active(node, "env"):
        found.update(active.params)
    return found


def usual_limits() -> str:
    """Open files as many as this machine lets anyone have: pam_limits begins with 1024, whoever called it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return "".join(f"{who} - nofile {most}\n" for who in ("*", "root"))


def limits(state: State, node: str) -> str | None:
    """What limits.conf(5) takes, of all limits that are lowered; its wildcard does not reach root."""
    unit = {"memlock": 1024, "nofile": 1}
    lines = [
        f"{who} {kind} {active.fault} {int(active.params[kind]) // unit[active.fault]}"
        for active in state.active(node)
        if active.fault in unit
        for who in ("*", "root")
        for kind in ("soft", "hard")
    ]
    return "".join(f"{line}\n" for line in lines) or None


def sshd_file(state: State, node: str) -> str:
    return sshd.sshd_config(
        port=state.ssh_port,
        setenv=setenv(state, node),
        lines=[f"HostKey {HOST_KEY}", "AuthorizedKeysFile .ssh/authorized_keys"],
        startups="1:100:1" if state.active(node, "ssh-full") else "500",
    )


def label(state: State, node: str) -> str:
    """What tells a program on the node that this is a lab, and what in it is pretended."""
    fake = [kind for kind, n in (("hca", state.hcas), ("gpu", state.gpus)) if n]
    if state.torch or state.active(node, "torch"):
        fake.append("torch")
    if state.active(node, "clock"):
        fake.append("clock")
    return json.dumps({"lab": True, "id": state.id, "node": node, "fake": fake}) + "\n"


def refresh(state: State, node: str) -> None:
    """Write again every file that follows from the faults in force."""
    files: dict[str, str | bytes | None] = {
        "/etc/hosts": hosts_file(state, node),
        "/root/.bashrc": bashrc(state, node),
        "/etc/passwd": passwd(state, node),
        "/etc/ssh/sshd_config": sshd_file(state, node),
        PAM_LIMITS: limits(state, node),
        LABEL: label(state, node),
    }
    write(state, node, files)


# --- how a node begins -------------------------------------------------------------------------


def library_folder() -> str:
    """Where the loader of a node finds libraries without being told."""
    for folder in (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64"):
        if Path(folder).is_dir():
            return folder
    return "/usr/lib"


def passwd(state: State, node: str) -> str:
    """The machine's system accounts, root with bash, and one ordinary account."""
    shell = "/bin/bash"
    for active in state.active(node, "login-shell"):
        shell = active.params["path"]
    lines = [f"root:x:0:0:root:/root:{shell}"]
    for line in Path("/etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[0] not in ("root", PERSON) and fields[2] != PERSON_ID:
            lines.append(line)
    lines.append(f"{PERSON}:x:{PERSON_ID}:65534::/home/{PERSON}:/bin/bash")
    return "\n".join(lines) + "\n"


def _shadow(accounts: str) -> str:
    """No password is valid on a node; `!` would lock the account for keys as well."""
    names = [line.split(":")[0] for line in accounts.splitlines()]
    return "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names)


def between_nodes(state: State, folder: Path) -> list[tuple[str, int, str]]:
    """Nodes log in to each other with the client's key, as launchers such as mpirun expect."""
    known = []
    for peer in state.nodes:
        where = peer if state.ssh_port == 22 else f"[{peer}]:{state.ssh_port}"
        key = sshd.public(sshd.host_key(folder, peer)).read_text().split()[:2]
        known.append(f"{where} {' '.join(key)}\n")
    return [
        ("/root/.ssh/config", 0o600, f"Host *\n  Port {state.ssh_port}\n  BatchMode yes\n"),
        ("/root/.ssh/known_hosts", 0o600, "".join(known)),
        ("/root/.ssh/id_ed25519", 0o600, (folder / sshd.KEY).read_text()),
    ]


def _unique(state: State, node: str, what: str) -> uuid.UUID:
    digest = hashlib.blake2s(f"{state.id}/{node}/{what}".encode(), digest_size=16).digest()
    return uuid.UUID(bytes=digest, version=4)


def plan(state: State, folder: Path, node: str, nvml: bytes) -> dict[str, Any]:
    """Everything the first process of a node writes and runs; see `boot.make_node`."""
    key = sshd.host_key(folder, node)
    host_keys = [f"/etc/ssh/ssh_host_{kind}_key" for kind in ("rsa", "ecdsa", "dsa")]
    libraries = library_folder()
    tree = hardware.healthy(state, node)
    copies = {path: data.hex() for path, data in tree.binary.items()}
    if state.gpus:
        copies[f"{libraries}/libnvidia-ml.so.{hardware.DRIVER}"] = nvml.hex()
        tree.links[f"{libraries}/libnvidia-ml.so.1"] = f"libnvidia-ml.so.{hardware.DRIVER}"
    verbs = f"{libraries}/libibverbs.so.1"
    if state.hcas and not Path(verbs).exists():
        tree.files[verbs] = STAND_IN
    files: list[tuple[str, int, str]] = [
        ("/etc/hostname", 0o644, node + "\n"),
        ("/etc/hosts", 0o644, hosts_file(state, node)),
        ("/etc/resolv.conf", 0o644, "# a lab node has no name server\n"),
        ("/etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
        ("/etc/machine-id", 0o444, _unique(state, node, "machine").hex + "\n"),
        ("/etc/environment", 0o644, ""),
        ("/etc/motd", 0o644, ""),
        ("/etc/passwd", 0o644, passwd(state, node)),
        ("/etc/shadow", 0o600, _shadow(passwd(state, node))),
        ("/etc/ssh/sshd_config", 0o600, sshd_file(state, node)),
        ("/etc/pam.d/sshd", 0o644, PAM),
        ("/etc/security/limits.conf", 0o644, usual_limits()),
        (HOST_KEY, 0o600, key.read_text()),
        (HOST_KEY + ".pub", 0o644, sshd.public(key).read_text()),
        (AUTHORIZED, 0o600, (folder / (sshd.KEY + ".pub")).read_text()),
        ("/root/.bashrc", 0o644, bashrc(state, node)),
        ("/root/.profile", 0o644, CLEAN_PROFILE),
        (f"/home/{PERSON}/.ssh/authorized_keys", 0o644, (folder / (sshd.KEY + ".pub")).read_text()),
        (f"/home/{PERSON}/.profile", 0o644, CLEAN_PROFILE),
        *between_nodes(state, folder),
        (LABEL, 0o644, label(state, node)),
        *((path, 0o644, text) for path, text in tree.files.items()),
    ]
    return {
        "name": node,
        "fabric": False,
        "remove": [
            *host_keys, "/etc/nologin", "/etc/ld.so.preload", "/etc/nccl.conf",
            "/.dockerenv",  # the carrying machine may be a container; its nodes are not
            *(str(file) for file in Path(libraries).glob("libnvidia-ml.so*")),
            *(str(file) for file in Path(PAM_LIMITS).parent.glob("*.conf")),
        ],
        "hidden": ["/root", "/home"],
        "shared": [str(Path.home() / ".pyenv" / "versions"), *state.shared],
        "files": files,
        "copies": sorted(copies.items()),
        "links": sorted(tree.links.items()),
        "devices": tree.devices,
        "shadows": [("/proc/sys/kernel/random/boot_id", f"{_unique(state, node, 'boot')}\n")],
        "commands": [["ip", "-batch", "-"], SSHD],
        "stdins": [links.node_batch(state, node), ""],
    }  # fmt: skip
