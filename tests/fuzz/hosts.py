"""The command that puts /etc/hosts right, pasted into generated files: it heals, and nothing else changes.

What /etc/hosts may hold: the own name on any line, localhost, aliases, comments, blanks, CRLF, IPv6.
"""

import random
import subprocess
import tempfile
from pathlib import Path

from netdoctor.checks._shared.hosts_file import BEFORE, HOSTS, own_name
from tests.checks.build import host
from tests.fuzz import drawn

OWN, FULL, ADDRESS = "node1", "node1.cluster.lan", "10.0.0.1"
NAMES = (OWN, OWN.upper(), FULL, "localhost", "localhost.localdomain", "ip6-localhost", "node11", "xnode1",
         "node1-ib", "node1.other.lan", "storage", "web.node1", "NODE12")  # fmt: skip
ADDRESSES = (
    "127.0.0.1",
    "127.0.1.1",
    "::1",
    ADDRESS,
    "10.0.0.77",
    "fe80::1%eth0",
    "2001:db8::5",
    "192.0.2.9",
)
COMMENTS = ("# node1 lives here", "#10.0.0.1 node1", "# own line", "#", "  # node1")


def hosts_file(rng: random.Random) -> str:
    """A hosts file: any names on any line, comments, blanks, tabs, CRLF, and perhaps no last newline."""
    lines = []
    for _ in range(rng.randint(0, 9)):
        kind = rng.random()
        if kind < 0.15:
            lines.append(rng.choice(COMMENTS))
        elif kind < 0.25:
            lines.append(rng.choice(("", "   ", "10.0.0.5", "10.0.0.5 # nobody", "no address")))
        else:
            blank = rng.choice((" ", "\t", "   ", " \t"))
            names = rng.choices(NAMES, k=rng.randint(1, 4))
            tail = rng.choice(("", "", " ", " # node1", "#node1 too"))
            lines.append(rng.choice(("", " ")) + blank.join([rng.choice(ADDRESSES), *names]) + tail)
    if rng.random() < 0.7:
        lines.insert(
            rng.randint(0, len(lines)), "127.0.0.1 localhost" + rng.choice(("", f" {OWN}", f"\t{FULL} {OWN}"))
        )
    end = rng.choice(("\n", "\n", "\r\n"))
    return end.join(lines) + rng.choice((end, end, ""))


def resolved(text: str) -> dict[str, list[str]]:
    """The addresses of each name, in the order of the file, as glibc reads it."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            if address not in found.setdefault(name.lower(), []):
                found[name.lower()].append(address)
    return found


def paste(shell: str, folder: Path) -> str:
    """What the file is after a command was pasted into a shell."""
    path = folder / "hosts"
    done = subprocess.run(["sh", "-c", shell.replace(HOSTS, str(path))], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return path.read_bytes().decode()


def hold(rng: random.Random, folder: Path) -> None:
    """One world: pasted, pasted again, taken back."""
    before = hosts_file(rng)
    (folder / "hosts").write_bytes(before.encode())
    full = rng.choice((None, FULL, "localhost", "storage"))
    fix = own_name(OWN, host(fqdn=full), ADDRESS)
    (command,), (undo,) = fix.commands, fix.undo
    after = paste(command.shell, folder)
    known, was = resolved(after), resolved(before)
    moved = {OWN, *([FULL] if full == FULL else [])}
    assert {name: known.pop(name) for name in moved} == {name: [ADDRESS] for name in moved}
    assert known == {name: addresses for name, addresses in was.items() if name not in moved}
    left = iter(after.splitlines())
    for line in before.rstrip("\r\n").splitlines():
        if line.strip() and not moved & {word.lower() for word in line.partition("#")[0].split()[1:]}:
            assert line in left  # in the same order
    assert paste(command.shell, folder) == after
    assert paste(undo.shell, folder) == before
    assert not (folder / Path(BEFORE).name).exists()


def run(seed: int, seconds: float) -> int:
    """Run cases drawn from `seed` until `seconds` are over; returns how many."""
    with tempfile.TemporaryDirectory() as folder:
        return drawn("hosts", lambda rng: hold(rng, Path(folder)), seed, seconds)
