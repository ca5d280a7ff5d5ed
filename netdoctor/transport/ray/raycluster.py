"""What this machine shows of a Ray cluster before Ray is asked: its raylets, and whether the head listens.

Ray itself waits for half a minute or longer for a head that is gone, of another release, or behind TLS, and
then does not say which.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from netdoctor.agent.facts.ray import COMMAND_CAP, options, runs
from netdoctor.errors import InputError
from netdoctor.text import clean

AUTO = "auto"
ANSWER_S = 5.0
ADDRESS = re.compile(r"[A-Za-z0-9_.\-\[\]:]{1,255}:[0-9]{1,5}")
_VERSION = re.compile(r'(?m)^version = "([\w.+-]{1,40})"')
# Without these a driver does not get in where the raylet was started with them.
_KEYS = re.compile(rb"(?:\A|\0)(RAY_USE_TLS|RAY_TLS_\w{1,40}|RAY_AUTH_\w{1,40})=")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raylet:
    """A raylet of this machine."""

    head: str  # HOST:PORT that it was given
    python: str = ""  # what runs its workers; '' where that is no file here
    release: str = ""  # of its Ray; '' where unknown
    keys: tuple[str, ...] = ()  # names of settings that drivers need


def raylets(proc: Path = PROC) -> list[Raylet]:
    """Those of this user, and else those of root: what another user starts here does not decide what runs."""
    found: dict[int, list[Raylet]] = {}
    local = _network(proc / "self")
    for folder in _numbered(proc):
        with suppress(OSError):
            owner = folder.stat().st_uid
            # Those of containers are other machines' to Ray.
            trusted = owner in (os.geteuid(), 0) and _network(folder) in (local, "")
            if trusted and (raylet := _raylet(folder)) is not None:
                found.setdefault(owner, []).append(raylet)
    return found.get(os.geteuid()) or found.get(0) or []


def _network(folder: Path) -> str:
    """A process's network namespace; '' where this user may not see it."""
    try:
        return os.readlink(folder / "ns" / "net")
    except OSError:
        return ""


def require_node(here: Sequence[Raylet]) -> None:
    """Raises InputError where no raylet runs, of any user: Ray then waits, and names the head for it."""
    if not here and not runs():
        raise InputError(
            "no node of a Ray cluster runs on this machine, and Ray takes drivers from its nodes alone: run "
            "netdoctor on one of them, or make this machine one (ray start --address=HEAD:PORT)"
        )


def _numbered(proc: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted((one for one in proc.iterdir() if one.name.isdecimal()), key=lambda p: int(p.name))


def _raylet(folder: Path) -> Raylet | None:
    with (folder / "cmdline").open("rb") as file:
        words = file.read(COMMAND_CAP).decode("utf-8", "replace").split("\0")
    given = options(words[1:]) if os.path.basename(words[0]) == "raylet" else {}
    if not ADDRESS.fullmatch(head := given.get("gcs-address", "")):
        return None
    program = Path(words[0])  # …/site-packages/ray/core/src/ray/raylet/raylet
    if not program.is_absolute() or not program.is_file():  # in a container: what it names is not here
        return Raylet(head=head)
    release = keys = ""
    with suppress(OSError, IndexError):
        text = (program.parents[4] / "_version.py").read_bytes()[:4096].decode("utf-8", "replace")
        release = match[1] if (match := _VERSION.search(text)) else ""
    python = given.get("python_worker_command", "").split(" ")[0]
    usable = python.startswith("/") and os.access(python, os.X_OK)
    with suppress(OSError):
        keys = " ".join(name.decode() for name in _KEYS.findall((folder / "environ").read_bytes()))
    return Raylet(
        head=head, python=python if usable else "", release=release, keys=tuple(sorted(set(keys.split())))
    )


def head_of(address: str, here: Sequence[Raylet]) -> str:
    """The head's HOST:PORT; ``auto`` where nothing here says it, which Ray then does. Raises InputError."""
    heads = sorted({raylet.head for raylet in here})
    if address != AUTO:
        return address
    if len(heads) > 1:
        some = ", ".join(clean(head, 80) for head in heads[:4])
        raise InputError(f"nodes of several Ray clusters run here ({some}): name one with --ray-address")
    return heads[0] if heads else AUTO


def of_cluster(head: str, here: Sequence[Raylet]) -> Raylet | None:
    """The raylet here that belongs to this head, whatever name it is called by."""
    same = next((raylet for raylet in here if raylet.head == head), None)
    return same or next((raylet for raylet in here if _endpoints(raylet.head) & _endpoints(head)), None)


def _endpoints(head: str) -> set[tuple[str, int]]:
    host, _, port = head.rpartition(":")
    with suppress(OSError, UnicodeError, OverflowError):
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        return {(str(address[0]), int(port)) for *_, address in found}
    return set()


def reach(head: str, within_s: float) -> None:
    """Raises InputError where nobody listens at the head's HOST:PORT."""
    host, _, port = head.rpartition(":")
    cluster = clean(head, 80)
    within_s = min(within_s, ANSWER_S)
    try:
        socket.create_connection((host.strip("[]"), int(port)), within_s).close()
    except (socket.gaierror, UnicodeError):
        raise InputError(f"no Ray cluster at {cluster}: no such host ({_WHERE})") from None
    except TimeoutError:
        why = f"no answer within {within_s:g} s; it is down, or a firewall is between"
        raise InputError(f"no Ray cluster at {cluster}: {why}") from None
    except ConnectionRefusedError:
        raise InputError(f"no Ray cluster at {cluster}: nothing listens there ({_WHERE})") from None
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"no Ray cluster at {cluster}: {clean(why, 200)}") from None


_WHERE = "--ray-address or RAY_ADDRESS is HOST:PORT of the head, as ray start --head printed it"


def lacking(raylet: Raylet | None, environ: Mapping[str, str]) -> str:
    """What the raylet's drivers need in their environment, and this one has not; '' for nothing."""
    return ", ".join(name for name in (raylet.keys if raylet else ()) if not environ.get(name))
