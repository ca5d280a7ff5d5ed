"""Where tasks of a job meet who judges them, a folder that all see or a port; by which secret and name."""

import contextlib
import hashlib
import hmac
import ipaddress
import re
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from netdoctor import __version__
from netdoctor.errors import InputError
from netdoctor.files import open_shared
from netdoctor.inventory.names import is_valid_host, is_valid_port, node_id
from netdoctor.text import clean

SECRET = "NETDOCTOR_MEET_SECRET"  # noqa: S105  # the name of a variable
SECRET_MIN, SECRET_MAX = 16, 4096
MAKE = "openssl rand -hex 16"
PLACES_MAX = 64
# Why a task is not let in that has the name of another one.
TWICE = "called a second time"
# A listener shows anybody an HMAC of its secret: who has that tries guesses at home, millions a second.
FEWEST_DIFFERENT = 6
_COMMON = re.compile(
    "pass(word|wort|phrase)?|secret|netdoctor|meet|changeme|letmein|welcome|admin|root|login|test|example|"
    "default|token|key|cluster|node|slurm|gpu|nccl|torch|train(ing)?|hello|world|correct|horse|battery|staple|"
    "iloveyou|monkey|dragon|qwert[yz]u?i?o?p?|asdfg?h?j?k?l?|zxcvb?n?m?|this|that|the|our|my"
)
_CLAIM = re.compile(r"(-|[0-9]{1,9})/([A-Za-z0-9_.+-]{1,40})/([A-Za-z0-9_.:%-]{1,240})")


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A folder, or a port: of this host, of any address of this machine where that is empty."""

    folder: Path | None = None
    host: str = ""
    port: int = 0


def member_name(number: int) -> str:
    """What a member of a gang is called that has not said its name."""
    return f"member{number}"


def parse_rendezvous(text: str) -> Rendezvous:
    """PORT, HOST:PORT, or a folder. Raises InputError."""
    host, _, port = text.rpartition(":")
    if port.isdecimal() and is_valid_port(int(port[:6])) and "/" not in host:
        host = host.strip("[]")
        if host and not is_valid_host(host):
            raise InputError(f"--meet {clean(text, 80)}: no host is called so")
        return Rendezvous(host=host, port=int(port))
    if not text or "\0" in text or text.isdecimal():
        raise InputError(f"--meet {clean(text, 80)!r}: write a folder, HOST:PORT or PORT")
    return Rendezvous(folder=Path(text))


def secret(environ: Mapping[str, str], file: Path | None) -> str | None:
    """The secret that both sides were given, as 64 hex digits; None without one. Raises InputError."""
    where, text = SECRET, environ.get(SECRET, "")
    if file is not None:
        where = f"--secret-file {file}"
        try:
            opened = open_shared(file, found=False)
            with opened.file as content:
                text = content.read(SECRET_MAX + 1).decode("utf-8", "replace")
        except OSError as error:
            raise InputError(f"{where}: {error.strerror or error}") from None
        if opened.owner:
            raise InputError(
                f"{where}: it belongs to {opened.owner}, who knows the secret; take one of yours"
            )
        if opened.mode & 0o077:
            fix = f"chmod 600 {shlex.quote(str(file))}"
            raise InputError(f"{where}: others may read it or write to it (mode {opened.mode:o}): {fix}")
    text = text.strip()
    if not text and file is None:
        return None
    if not SECRET_MIN <= len(text) < SECRET_MAX:
        raise InputError(f"{where}: a secret has {SECRET_MIN} characters at least; make one: {MAKE}")
    if why := _why_weak(text):
        raise InputError(f"{where}: easily guessed, for {why}; make one: {MAKE}")
    return hashlib.sha256(f"netdoctor meet {text}".encode("utf-8", "surrogateescape")).hexdigest()


def _why_weak(text: str) -> str:
    """Why a secret is soon guessed; '' for one that was drawn."""
    if len(set(text)) < FEWEST_DIFFERENT:
        return f"fewer than {FEWEST_DIFFERENT} of its characters differ"
    if text in (text + text)[1:-1]:
        return "it repeats itself"
    rest = _COMMON.sub(" ", text.lower())
    steps = zip(" " + rest, rest, strict=False)
    odd = [c for before, c in steps if c.isalnum() and abs(ord(c) - ord(before)) > 1]  # not of 1234, aaa
    return "" if len(odd) >= FEWEST_DIFFERENT else "it is common words and rows of characters"


def marker(key: str) -> str:
    """What begins each frame of this run, which both sides work out."""
    return hmac.new(key.encode("ascii"), b"marker", hashlib.sha256).hexdigest()[:16]


def claim(rank: int | None, node: str) -> str:
    """How a task calls itself: its rank, its netdoctor's release, its node."""
    return f"{'-' if rank is None else rank}/{__version__}/{node}"


def read_claim(text: str) -> tuple[int | None, str, str]:
    """(rank, release, node as reports call it), node empty where that is none."""
    found = _CLAIM.fullmatch(text)
    if found is None or not is_valid_host(found[3]):
        return None, "", ""
    return (None if found[1] == "-" else int(found[1])), found[2], node_id(found[3])


def look_up(host: str, port: int) -> list[tuple[str, int]]:
    """The addresses of a name, each with the port; none where it has none so far."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys((str(one[4][0]), port) for one in found))[:PLACES_MAX]


def own_addresses() -> list[str]:
    """The addresses of this machine that others may dial."""
    import psutil

    found = []
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            with contextlib.suppress(ValueError):
                address = ipaddress.ip_address(one.address.partition("%")[0])
                if not (address.is_loopback or address.is_link_local or address.is_unspecified):
                    found.append(str(address))
    return found[:PLACES_MAX]
