"""OpenSSH on the nodes: keys, server configuration, and the files a client needs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from netdoctor.lab import system
from netdoctor.lab.state import State
from netdoctor.lab.system import LabError

KEY = "id_ed25519"
HOSTS = "hosts.txt"
SSH_CONFIG = "ssh_config"
KNOWN_HOSTS = "known_hosts"


def make_keys(files: Sequence[tuple[Path, str]]) -> None:
    """Write an ed25519 key pair for each (file, comment)."""
    program = system.tool("ssh-keygen")
    if program is None:
        raise LabError("ssh-keygen is not installed: apt-get install openssh-client")
    for start in range(0, len(files), 16):
        running = []
        for file, comment in files[start : start + 16]:
            file.parent.mkdir(parents=True, exist_ok=True)
            for old in (file, public(file)):
                old.unlink(missing_ok=True)
            argv = [program, "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)]
            running.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL))
        codes = [child.wait() for child in running]  # all of them: none may stay a zombie
        if any(codes):
            raise LabError(f"ssh-keygen failed in {files[0][0].parent}")


def public(key: Path) -> Path:
    return key.with_name(key.name + ".pub")


def host_key(folder: Path, node: str) -> Path:
    return folder / "keys" / node


def sshd_config(
    *,
    port: int,
    setenv: Mapping[str, str],
    lines: Sequence[str] = (),
    address: str = "0.0.0.0",
    startups: str = "500",
    pam: bool = True,
) -> str:
    """Only the first SetEnv line of a configuration counts, so every variable is on one."""
    text = [
        f"Port {port}",
        f"ListenAddress {address}",
        f"UsePAM {'yes' if pam else 'no'}",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin yes",
        "PermitUserRC no",
        "PrintMotd no",
        "UseDNS no",
        f"MaxStartups {startups}",
        "MaxSessions 500",
        "LoginGraceTime 30",
        "AcceptEnv LANG LC_*",
        "Subsystem sftp internal-sftp",
        *lines,
    ]
    if setenv:
        text.append("SetEnv " + " ".join(quoted(k, v) for k, v in setenv.items()))
    return "\n".join(text) + "\n"


def quoted(name: str, value: str) -> str:
    if any(c in value for c in '"\n\0'):
        raise LabError(f"{name}: sshd cannot set a value with a quote or a line end in it")
    return f'"{name}={value}"'


def write_client_files(folder: Path, state: State, to: Path) -> None:
    """Hosts file, ssh config, known_hosts and key in `to`; paths in them are absolute."""
    to = to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    if to != folder.resolve():
        for name in (KEY, KEY + ".pub"):
            (to / name).unlink(missing_ok=True)
            shutil.copyfile(folder / name, to / name)
    (to / KEY).chmod(0o600)
    (to / HOSTS).write_text("".join(f"{node}\n" for node in state.nodes))
    known, config = [], []
    for node in state.nodes:
        address = state.address(node)
        key = public(host_key(folder, node)).read_text().split()[:2]
        where = f"[{address}]:{state.ssh_port}" if state.ssh_port != 22 else address
        name = f"[{node}]:{state.ssh_port}" if state.ssh_port != 22 else node
        known.append(f"{where},{name} {' '.join(key)}\n")
        config += [
            f"Host {node}",
            f"  HostName {address}",
            f"  Port {state.ssh_port}",
            f"  User {state.user}",
            f"  IdentityFile {quote_path(to / KEY)}",
            f"  UserKnownHostsFile {quote_path(to / KNOWN_HOSTS)}",
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            "  IdentitiesOnly yes",
            "",
        ]
    (to / KNOWN_HOSTS).write_text("".join(known))
    (to / SSH_CONFIG).write_text("\n".join(config))


def quote_path(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)
