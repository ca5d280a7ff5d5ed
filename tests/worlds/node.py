"""Runs in `unshare -m -n -u -p -f --mount-proc`: a node's files, kernel and firewall, to paste commands on.

A request on each line of stdin: {"files": {path: text}, "setup": shell, "shells": [...], "ask": [...],
"firewall": whether}; an answer on each line of stdout: the state before any command and after each: every
file below the folders of its own, what each shell of `ask` printed, and the firewall as the agent reads it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Folders of their own, and what of the machine's they begin with.
ETC = (
    "passwd", "group", "shadow", "gshadow", "nsswitch.conf", "login.defs", "ld.so.cache", "pam.d", "pam.conf",
    "security/pam_env.conf", "security/namespace.conf", "security/limits.conf", "protocols", "services",
    "alternatives",
)  # fmt: skip
OWN = ("/etc", "/usr/lib/sysctl.d", "/usr/local/lib", "/run", "/root", "/home", "/usr/local/sbin")
SNAPSHOT = ("/etc", "/root", "/home")
# There is no init: a service that is reloaded is reloaded.
STUB = "#!/bin/sh\nexit 0\n"
# eth0 is the node's, eth1 the other nodes' and a stranger's.
NETWORK = """
ip link set lo up; ip netns add peer; ip link add eth0 type veth peer name eth1 netns peer
ip addr add 10.1.0.2/24 dev eth0; ip addr add 10.0.0.2/24 dev eth0; ip link set eth0 up
ip -n peer link set eth1 up; ip -n peer link set lo up
for a in 10.0.0.1 10.0.0.3 172.16.0.9; do ip -n peer addr add $a/24 dev eth1; done
ip route add 172.16.0.0/24 dev eth0
"""


def own_folders() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder)
        for name in ETC:
            if Path("/etc", name).exists():
                target = kept / name
                target.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-a", f"/etc/{name}", str(target)], check=True)
        (kept / "ssh").mkdir()
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(kept / "ssh/ssh_host_ed25519_key")]
        subprocess.run(keygen, check=True)
        for place in OWN:
            Path(place).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place], check=True)
        subprocess.run(["cp", "-a", f"{folder}/.", "/etc"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"], check=True)
    for tool in ("systemctl", "service"):
        Path("/usr/local/sbin", tool).write_text(STUB)
        Path("/usr/local/sbin", tool).chmod(0o755)
    Path("/run/sshd").mkdir()
    subprocess.run(["sh", "-ec", NETWORK], check=True)
    os.environ["PATH"] = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


def tree() -> dict[str, list[Any]]:
    """Text and mode of every file of the folders; keys of hosts aside."""
    found = {}
    for place in SNAPSHOT:
        for path in Path(place).rglob("*"):
            if path.is_file() and not path.is_symlink() and "ssh_host" not in path.name:
                found[str(path)] = [path.read_bytes().decode("latin-1"), path.stat().st_mode]
    return found


def state(asked: dict[str, Any], code: int, error: str) -> dict[str, Any]:
    said = []
    for shell in asked["ask"]:
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False, timeout=30)
        said.append(done.stdout if not done.returncode else f"exit {done.returncode} {done.stderr}")
    found = {"code": code, "error": error, "files": tree(), "said": said}
    if asked.get("firewall"):
        from netdoctor.agent.facts import firewall

        found["firewall"] = firewall.collect({})
    return found


def main() -> None:
    own_folders()
    first = {path: text for path, (text, _) in tree().items()}
    for line in sys.stdin:
        asked = json.loads(line)
        for path in tree().keys() - first.keys():
            Path(path).unlink()
        for path, text in {**first, **asked["files"]}.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(text.encode("latin-1"))
        setup = subprocess.run(["sh", "-ec", asked["setup"]], capture_output=True, text=True, check=False)
        states = [state(asked, setup.returncode, setup.stderr)]
        for shell in asked["shells"] if not setup.returncode else ():
            done = subprocess.run(
                ["sh", "-c", shell], capture_output=True, text=True, check=False, timeout=30
            )
            states.append(state(asked, done.returncode, done.stderr))
        print(json.dumps(states), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
