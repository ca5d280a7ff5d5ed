"""One line of a host list, or one command-line argument, to entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from netdoctor.inventory.errors import Problems
from netdoctor.inventory.formats import Dialect, Suffix
from netdoctor.inventory.names import (
    PORT_MAX,
    Fault,
    bracketed,
    host_fault,
    is_valid_host,
    leaf_fault,
    masked,
    printable,
    python_fault,
    rail_fault,
    user_fault,
)
from netdoctor.inventory.nodeset import RANGE_MAX, TOO_MANY, SyntaxFault, is_ipv6_literal, split, write_out

SLOTS_MAX = 65_536
GPUS_MAX = 1024

_KEY = re.compile(r"([A-Za-z_-]+)=(.*)")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_BOUNDS = {"port": (1, PORT_MAX), "slots": (1, SLOTS_MAX), "gpus": (0, GPUS_MAX), "rank": (0, RANGE_MAX - 1)}
_EXAMPLES = {"port": "2222", "slots": "8", "gpus": "8", "rank": "0", "user": "ubuntu"}


@dataclass(slots=True)
class Entry:
    """One host as one place lists it, before duplicates and ranks are looked at."""

    host: str
    source: str
    line: int | None
    text: str
    port: int | None = None
    user: str | None = None
    python: str | None = None
    slots: int | None = None
    gpus: int | None = None
    rank: int | None = None
    leaf: str | None = None
    rail: str | None = None
    repeats_add: bool = False
    name: str | None = None
    """What the list calls it, where that is not how it is dialled."""
    groups: tuple[str, ...] = ()


@dataclass(slots=True)
class Settings:
    """What a line says about its hosts."""

    numbers: dict[str, int] = field(default_factory=dict)
    user: str | None = None
    python: str | None = None
    leaf: str | None = None
    rail: str | None = None


class Endpoint(NamedTuple):
    """``user@host:suffix`` taken apart; `hosts` still holds its ranges."""

    user: str | None
    hosts: str
    suffix: str | None


class LineReader:
    """Reads the lines of one source, noting problems with their place.

    `room` is how many hosts may still be listed; a range that needs more is refused before it is
    written out.
    """

    def __init__(self, source: str, dialect: Dialect, problems: Problems, room: int) -> None:
        self.source = source
        self.dialect = dialect
        self.problems = problems
        self.room = room
        self.full = False

    def read(self, text: str, number: int | None) -> list[Entry]:
        """Return the entries of one line without its comment; empty after noting a problem."""

        def refuse(token: str, fault: Fault) -> None:
            self.problems.add(self.source, number, token, fault.message, fault.hint)

        if self.dialect.repeats_add:  # Open MPI allows 'slots = 4'
            text = re.sub(r"[ \t]*=[ \t]*", "=", text)
        before = self.problems.total
        first, *rest = re.split(r"[ \t]+", text)
        settings = self._settings(first, rest, text, refuse)
        entries: list[Entry] = []
        try:
            pieces = [piece for _, piece in split(first)]
        except SyntaxFault as error:
            refuse(error.token, error.fault)
            return []
        endpoints = []
        for piece in pieces:
            endpoint = self._endpoint(piece, refuse)
            if endpoint is None:
                continue
            endpoints.append(endpoint)
            for host in self._hosts(endpoint, piece, len(entries), refuse):
                entry = Entry(host, self.source, number, text)
                self._apply(entry, endpoint, settings, text, refuse)
                entries.append(entry)
                if self.problems.total != before:
                    break  # the same fault would be told for every host of a range
        if len({(end.user, end.suffix) for end in endpoints}) > 1:
            refuse(text, _uneven(endpoints))
        if self.problems.total != before:
            return []
        self.room -= len(entries)
        return entries

    def _endpoint(self, piece: str, refuse: Callable[[str, Fault], None]) -> Endpoint | None:
        """Return user, hosts and suffix of one piece, None after noting a problem."""
        if not piece:
            refuse(piece, Fault("name missing beside a comma", "write: gpu[01-16],b2"))
            return None
        if piece.startswith("@"):
            refuse(piece, Fault("groups are not read yet", "write the names: gpu[01-16]"))
            return None
        if "://" in piece:
            refuse(piece, Fault("a URL is not a host", "write: user@host:port"))
            return None
        user, at, address = piece.rpartition("@")
        try:
            hosts, suffix = _split_suffix(address)
        except SyntaxFault as error:
            refuse(piece, error.fault)
            return None
        fault = user_fault(user) if at else None
        if fault:
            refuse(piece, fault)
            return None
        if at and not self.dialect.user:
            refuse(piece, Fault(f"a {self.dialect.title} has no user@", "put User in ssh config"))
            return None
        if suffix is not None and self.dialect.suffix is Suffix.NONE:
            refuse(piece, Fault(f"a {self.dialect.title} has no host:N", "other formats: --format plain"))
            return None
        return Endpoint(user if at else None, hosts, suffix)

    def _hosts(
        self, endpoint: Endpoint, piece: str, used: int, refuse: Callable[[str, Fault], None]
    ) -> list[str]:
        """Return the host names of one piece, all of them valid; empty after noting a problem."""
        text = endpoint.hosts
        hosts = [text]
        if not is_valid_host(text):  # which IPv6 is: _split_suffix has freed it of its brackets
            if "[" in text and not self.dialect.ranges:
                hint = "write one host per line, or say --format plain"
                refuse(piece, Fault(f"a {self.dialect.title} has no ranges", hint))
                return []
            try:
                hosts = write_out(text, self.room - used)
            except SyntaxFault as error:
                refuse(piece, error.fault)
                return []
            for host in hosts:
                fault = host_fault(host)
                if fault:
                    refuse(piece if len(hosts) == 1 else host, fault)
                    return []
        if used + len(hosts) > self.room:
            self.full = True
            refuse(piece, Fault(TOO_MANY))
            return []
        return hosts

    def _settings(
        self, first: str, rest: list[str], text: str, refuse: Callable[[str, Fault], None]
    ) -> Settings:
        """Return what the key=value words of a line say, noting every one that is wrong."""
        settings = Settings()
        keys: set[str] = set()
        for word in rest:
            match = _KEY.fullmatch(word)
            if match is None:
                refuse(text, _stray_word(first, word))
                continue
            key, value = match[1], match[2]
            if key not in self.dialect.keys:
                refuse(text, self._unknown_key(key))
                continue
            if key in keys:
                refuse(text, Fault(f"{key}= given twice", f"keep one {key}="))
                continue
            keys.add(key)
            fault = _store(settings, first, key, value)
            if fault:
                refuse(text, fault)
        most = settings.numbers.get("max_slots", settings.numbers.get("max-slots"))
        if most is not None and most < settings.numbers.get("slots", 0):
            refuse(text, Fault("max_slots= is less than slots="))
        if self.dialect.slots_required and not keys:
            hint = f"write: {printable(masked(first), 60)} slots=8"
            refuse(text, Fault("no slots=, which DeepSpeed refuses", hint))
        return settings

    def _unknown_key(self, key: str) -> Fault:
        """Return the fault for a key that this kind of list does not have."""
        from difflib import get_close_matches

        known = sorted(self.dialect.keys)
        close = get_close_matches(key.lower()[:40], known, n=1)
        if close:
            hint = f"did you mean {close[0]}=?"
        elif known:
            hint = f"known: {', '.join(f'{name}=' for name in known)}"
        else:
            hint = "other formats: --format plain"
        return Fault(f"a {self.dialect.title} has no key {printable(key, 40)}=", hint)

    def _apply(
        self,
        entry: Entry,
        endpoint: Endpoint,
        settings: Settings,
        text: str,
        refuse: Callable[[str, Fault], None],
    ) -> None:
        """Put user, number and settings into an entry, noting what is said twice."""
        numbers = dict(settings.numbers)
        if endpoint.suffix is not None:
            # 'host:443 slots=8' or 'user@host:443' can only be a port, also in a list of counts.
            counts = self.dialect.suffix is Suffix.SLOTS
            counts = counts and endpoint.user is None and "slots" not in numbers
            key = "slots" if counts else "port"
            host = bracketed(entry.host)
            number = _number(host, key, endpoint.suffix, after=f"{host}:")
            if isinstance(number, Fault):
                refuse(text, number)
            elif key in numbers:
                message = f"{key} given twice: {number} and {numbers[key]}"
                refuse(text, Fault(message, f"keep :{number} or {key}={numbers[key]}"))
            else:
                numbers[key] = number
        if endpoint.user is not None and settings.user is not None:
            message = f"user given twice: {endpoint.user}@ and user={settings.user}"
            refuse(text, Fault(message, "keep one"))
        entry.user = endpoint.user if endpoint.user is not None else settings.user
        entry.python = settings.python
        entry.port = numbers.get("port")
        entry.slots = numbers.get("slots")
        entry.gpus = numbers.get("gpus")
        entry.rank = numbers.get("rank")
        entry.leaf = settings.leaf
        entry.rail = settings.rail
        entry.repeats_add = self.dialect.repeats_add


def _split_suffix(address: str) -> tuple[str, str | None]:
    """Return hosts and the text after their colon, None without one. Raises SyntaxFault."""
    if is_ipv6_literal(address):
        inside, _, after = address[1:].partition("]")
        fault = host_fault(inside)
        if fault:
            raise SyntaxFault(address, fault)
        if after and not after.startswith(":"):
            raise SyntaxFault(address, Fault("text after ']'", f"write: [{inside}]:2222"))
        return inside, after[1:] if after else None
    outside = re.sub(r"\[[^]]*\]", "", address)
    if outside.count(":") > 1:
        _refuse_two_readings(address)
        return address, None
    head, colon, tail = address.rpartition(":")
    if not colon or "]" in tail:
        return address, None
    return head, tail


def _refuse_two_readings(address: str) -> None:
    """Raise SyntaxFault for an IPv6 address without brackets whose last group may be a port."""
    fault = host_fault(address)
    if fault:
        raise SyntaxFault(address, fault)
    head, _, tail = address.rpartition(":")
    if is_valid_host(head) and _NUMBER.fullmatch(tail) and 0 < int(tail) <= PORT_MAX:
        raise SyntaxFault(
            address,
            Fault(
                f"reads two ways: one address, or {head} with port {tail}",
                f"write: [{address}], or: [{head}]:{tail}",
            ),
        )


def _number(host: str, key: str, text: str, after: str) -> int | Fault:
    """Return a number within the bounds of its key, or what is wrong with it."""
    low, high = _BOUNDS[key.replace("max-", "").replace("max_", "")]
    example = _EXAMPLES.get(key, "8")
    form = f"{after}{example}" if after.endswith(":") else f"{host} {after}{example}"
    hint = f"write: {printable(form, 80)}"
    if not text:
        return Fault(f"number missing after {printable(after, 60)}", hint)
    if re.fullmatch(r"0[0-9]+", text):
        return Fault(f"leading zeros in {key} {printable(text, 40)}", hint)
    if not _NUMBER.fullmatch(text):
        return Fault(f"{key} '{printable(text, 40)}' is not a number", hint)
    if not low <= int(text) <= high:
        return Fault(f"{key} {text} is not between {low} and {high}", hint)
    return int(text)


def _store(settings: Settings, first: str, key: str, value: str) -> Fault | None:
    """Put one value where it belongs, or return what is wrong with it."""
    if key == "user":
        settings.user = value
        return user_fault(value)
    if key == "python":
        settings.python = value
        return python_fault(value)
    if key == "leaf":
        settings.leaf = value
        return leaf_fault(value)
    if key == "rail":
        settings.rail = value
        return rail_fault(value)
    number = _number(first, key, value, after=f"{key}=")
    if isinstance(number, Fault):
        return number
    settings.numbers[key] = number
    return None


def _stray_word(first: str, word: str) -> Fault:
    """Return the fault for a word that is no key=value."""
    escaped, name = printable(masked(word), 40), printable(masked(first), 60)
    if _NUMBER.fullmatch(word):
        return Fault(f"'{escaped}' alone could be slots or a port", f"write: {name} slots={escaped}")
    if word.startswith("#"):
        return Fault("comment without a space", "write: # comment")
    if "=" in word:
        return Fault(f"'{escaped}' is not key=value", f"write: {name} slots=8")
    return Fault(f"'{escaped}' is not key=value", "write one host per line")


def _uneven(endpoints: list[Endpoint]) -> Fault:
    """Return the fault for ``alice@n1,n2``, where the user may be meant for both or for one."""
    what = "user@" if len({end.user for end in endpoints}) > 1 else ":port"
    return Fault(
        f"{what} stands at some of several names: for all, or only there?",
        "write one host per line, or repeat it at every name",
    )
