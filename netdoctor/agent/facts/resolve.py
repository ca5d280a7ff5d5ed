"""Group `resolve`: what names mean on this node."""

import time

from .. import runtime
from ..system import files
from ..system.sockets import Socket
from ..system.sockets import raw as socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Sequence

LOOKUP_S = 5.0
TOTAL_S = 9.0
PARALLEL = 32
MAX_NAMES = 4096
MAX_ADDRESSES = 64
_GAI = {getattr(socket, name): name for name in dir(socket) if name.startswith("EAI_")}  # type: dict[int, str]


class _Lookup(object):
    """One getaddrinfo(), possibly never to return."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = 0.0
        self.reply = None  # type: Optional[dict[str, Any]]
        self.rows = []  # type: list[Any]

    def run(self) -> None:
        self.started = time.monotonic()
        reply = {"name": self.name}  # type: dict[str, Any]
        try:
            # No AI_ADDRCONFIG, as gloo and torch ask: an IPv6 answer counts on a node without IPv6. In
            # bytes, as Python refuses names by rules of its own (IDNA) that the C library does not know.
            name = self.name.encode("utf-8", "surrogateescape")
            if b"\0" in name:
                raise ValueError("a name with a NUL byte")
            rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
            addresses = []  # type: list[str]
            for row in rows:
                if row[4][0] not in addresses:
                    addresses.append(str(row[4][0]))
            reply["addresses"] = addresses[:MAX_ADDRESSES]
            reply["canonical"] = (rows[0][3] or None) if rows else None
            self.rows = list(rows)
        except socket.gaierror as e:
            code = e.errno if e.errno is not None else 0
            text = e.strerror or str(e)
            reply["error"] = "%s: %s" % (_GAI.get(code, "EAI %d" % code), text)
        except (OSError, ValueError) as e:  # UnicodeError is a ValueError
            reply["error"] = runtime.explain(e)[1]
        reply["elapsed_ms"] = round((time.monotonic() - self.started) * 1000, 3)
        self.reply = reply


def look_up(names: "Sequence[str]") -> "dict[str, _Lookup]":
    """Look names up side by side. A late one is abandoned after LOOKUP_S, all after TOTAL_S."""
    lookups = {name: _Lookup(name) for name in names}
    waiting = list(lookups.values())[::-1]
    end = time.monotonic() + TOTAL_S

    def work() -> None:
        while time.monotonic() < end:
            try:
                lookup = waiting.pop()
            except IndexError:
                return
            # In a thread of its own, which may hang in the resolver.
            runtime.join_until(runtime.thread(lookup.run), min(end, time.monotonic() + LOOKUP_S))

    for worker in [runtime.thread(work) for _ in range(min(PARALLEL, len(waiting)))]:
        runtime.join_until(worker, end)
    for lookup in lookups.values():
        if lookup.reply is None:
            took_s = time.monotonic() - lookup.started if lookup.started else 0.0
            text = (
                "no answer within %g s" % LOOKUP_S if lookup.started else "earlier lookups used up the time"
            )
            lookup.reply = {"name": lookup.name, "error": "timed out: " + text}
            lookup.reply["elapsed_ms"] = round(took_s * 1000, 3)
            lookup.rows = []
    return lookups


def first_bindable(rows: "Sequence[Any]") -> "Optional[str]":
    """Return the first address that bind() accepts here, as gloo chooses the one that it advertises."""
    for family, kind, protocol, _, address in rows:
        try:
            with Socket(family, kind, protocol) as s:
                s.bind((address[0], 0, *address[2:]))
                return str(address[0])
        except (OSError, OverflowError):
            continue
    return None


def hosts_lines(names: "Sequence[str]", root: str = "/") -> "list[str]":
    """Return the lines of /etc/hosts that mention one of the names."""
    lower_names = {name.lower() for name in names}
    found = []
    text = files.text_or_none(files.under(root, "/etc/hosts"), 1 << 20) or ""
    for line in text.splitlines():
        words = line.partition("#")[0].lower().split()
        if lower_names.intersection(words[1:]):
            found.append(" ".join(line.split())[:200])
    return found[:100]


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.net.ResolveFacts. args: {"names": [name, …]}."""
    hostname = socket.gethostname()
    names = [str(name)[:255] for name in (args.get("names") or [])][:MAX_NAMES]
    lookups = look_up(list(dict.fromkeys([hostname, *names])))
    return {
        "own": lookups[hostname].reply,
        "first_bindable": first_bindable(lookups[hostname].rows),
        "peers": [lookups[name].reply for name in dict.fromkeys(names)],
        "hosts_lines": hosts_lines([hostname, *names], root),
    }
