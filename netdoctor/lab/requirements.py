"""What the full lab needs of this machine, checked before anything is made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from netdoctor.lab import system

TOOLS = {
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "prlimit": "util-linux",
    "mount": "mount",
    "tar": "tar",
    "bash": "bash",
    "unshare": "util-linux",
}

# Everything the kernel must allow, tried in namespaces that end with this one shell.
PROBES = (
    ("a network namespace", ("-n",), "true"),
    ("mount, UTS, IPC and PID namespaces", ("-m", "-u", "-i", "-p", "-f"), "true"),
    ("bridges", ("-n",), "ip link add probe0 type bridge"),
    ("veth pairs", ("-n",), "ip link add probe0 type veth peer name probe1"),
    (
        "an overlay of the root directory",
        ("-m",),
        "mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r && "
        "mount -t overlay o -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r",
    ),
)


def missing_tools(names: tuple[str, ...] | None = None) -> list[str]:
    return [
        f"{name} is not installed: apt-get install {package}"
        for name, package in TOOLS.items()
        if (names is None or name in names) and system.tool(name) is None
    ]


def missing_requirements() -> list[str]:
    """What keeps the full lab from working here, one line each; empty when nothing does."""
    if os.uname().sysname != "Linux":
        return [f"the lab needs Linux, this is {os.uname().sysname}"]
    missing = []
    if os.geteuid() != 0:
        missing.append("not root: nodes are namespaces, which only root may join to this machine")
    missing += missing_tools()
    if missing:
        return missing
    for what, flags, script in PROBES:
        done = subprocess.run(
            [system.tool("unshare") or "unshare", *flags, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(system.NODE_ENV),
            check=False,
        )
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            missing.append(f"this kernel or container does not allow {what}: {lines[-1:]}")
    return missing


def compiler() -> str | None:
    """A C compiler, for the stand-in of NVML and the shifted clock."""
    return system.tool("gcc") or system.tool("cc")


def package_folder() -> Path:
    return Path(__file__).resolve().parent
