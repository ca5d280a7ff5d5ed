"""The command that puts /etc/hosts right, pasted into generated files: it heals, and nothing else changes.

The files are those of tests/worlds/hosts.py; here nothing but a shell is needed, and so there are many.
"""

import random
import subprocess
import tempfile
from pathlib import Path

from netdoctor.checks._shared.hosts_file import BEFORE, HOSTS, own_name
from tests.checks.build import host
from tests.fuzz import drawn
from tests.worlds import hosts

OWN, FULL, ADDRESS = hosts.OWN, "n2.example.com", "10.0.0.2"


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
    return path.read_bytes().decode("latin-1")


def hold(rng: random.Random, folder: Path) -> None:
    """One world: pasted, pasted again, taken back."""
    before = hosts.text(rng)
    (folder / "hosts").write_bytes(before.encode("latin-1"))
    full = rng.choice((None, FULL, "localhost", "db"))
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
