"""A report that may be shown to strangers: names, addresses, users and serial numbers under stable aliases.

What is replaced is first collected from the whole report, then replaced in every string of it, so that a host
is the same alias in a title, a command, a folded list and a fact. Words of the format itself (check ids,
statuses, fact groups) stay.
"""

import dataclasses
import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from netdoctor.inventory.nodeset import expand, fold, split
from netdoctor.report.kept import as_facts
from netdoctor.report.model import Report

# Strings under these keys are of the format. Nothing of a cluster gets into them.
_OURS = frozenset(
    (
        *("schema", "format", "level", "profile", "state", "fail_on", "started", "finished", "ended_by"),
        *("selected", "skipped", "check", "checks", "family", "cells", "scope", "cost", "status", "class_"),
        *("kind", "unit", "key", "action", "fingerprint", "confidence", "effect", "risk", "expected_from"),
        *("why", "outcome", "required", "stage", "purpose", "operstate", "implementation"),
    )
)
_HOSTS = ("host", "hostname", "fqdn", "canonical", "via", "jump", "master_addr", "first_bindable")
_USERS = ("user", "ssh_user")
_SERIALS = ("machine_id", "boot_id", "product_uuid", "uuid", "serial", "node_guid", "sys_image_guid", "guid")
# Names that say nothing about anybody.
_UNREDACTED = frozenset(
    (
        *("root", "nobody", "local", "localhost", "localdomain", "localhost.localdomain", "ip6-localhost"),
        *("ip6-loopback", "ip6-allnodes", "ip6-allrouters", "cluster", "control", "unknown", "none"),
    )
)

_V4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_V6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:)[0-9A-Fa-f:.]*[0-9A-Fa-f:](?![\w:])")
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}[:-]){5}(?:[0-9A-Fa-f]{2}[:-])*[0-9A-Fa-f]{2}(?![\w:])")
_GUID = re.compile(r"(?<![\w:])[0-9A-Fa-f]{4}(?::[0-9A-Fa-f]{4}){3}(?![\w:])|\b0x[0-9A-Fa-f]{16}\b")
_UUID = re.compile(r"(?<!\w)[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?!\w)")
_MACHINE = re.compile(r"(?<!\w)[0-9a-f]{32}(?!\w)")
_KEY = re.compile(r"(?<=SHA256:)[A-Za-z0-9+/]{43}|(?<![A-Za-z0-9+/])AAAA[A-Za-z0-9+/]{40,}")
_HOME = re.compile(r"/(?:home|Users|export/home)/([^/\s:'\",;)\]]+)")
_AT = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]*)@(?=[\w\[])")
_PIECE = r"(?:[\w.:-]|\[[\d,/.-]+\])+"
_FOLDED = re.compile(rf"{_PIECE}(?:,{_PIECE})*")  # where it holds a bracket
_BRACKETS = re.compile(r"\[[^\]]*\]")
_CUT = re.compile(r"([^\W_][\w.:-]*)\.\.\.")
_ATOM = re.compile(r"[^\W_]+")
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")


def redact(report: Report) -> Report:
    """Return the report with every node, address, host, user and serial number under an alias.

    The same report gives the same aliases, in the order of the nodes: ``node001``, ``node002``… so that they
    fold. A cause's fingerprint is made anew from the aliases: from one of real names they could be guessed.
    """
    data = msgspec.to_builtins(
        dataclasses.replace(
            report,
            run=dataclasses.replace(report.run, redacted=True),
            pairs=tuple(report.pairs),
            facts=as_facts(report.facts).plain(),
        )
    )
    data["run"]["replay"].pop("listed", None)
    aliases = _Aliases(data)
    strings = _cluster_strings(data)
    _collect(data, strings, aliases)
    fixed = _Rewriter(aliases, {check["id"] for check in data["checks"]}).walk(data, ())
    for cause in (*fixed["causes"], *fixed["suppressed"]):
        if cause["node_list"] and "..." in cause["nodes"]:
            cause["nodes"] = fold(cause["node_list"], 60)
        for fix in cause.get("fixes", ()):  # what is accepted has none
            fix["script"] = ""  # its name is made of what it holds
        names = "\n".join(["redacted", cause["key"], *sorted(cause["node_list"])])
        cause["fingerprint"] = "sha256:" + hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()
    redacted = msgspec.convert(fixed, type=Report)
    return dataclasses.replace(redacted, pairs=tuple(redacted.pairs))


class _Aliases:
    """What stands for what; keys are lower-case and begin and end with a letter or digit."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.table: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        # Aliases must not be names that the report itself holds.
        self.used_words = {atom.lower() for text in _strings(data) for atom in _words(text)}
        self.width = max(3, len(str(len(data["targets"]))))
        self.words: dict[str, str] = {}

    def add(self, kind: str, original: str) -> None:
        """Give `original` an alias, unless it has one or says nothing."""
        name = _EDGES.sub("", original).lower()
        if name and name not in self.table and name not in _UNREDACTED:
            self.table[name] = self._next(kind)

    def _next(self, kind: str) -> str:
        while True:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            alias = _FORMS[kind](self.counts[kind], self._word(kind), self.width)
            if alias.lower() not in self.used_words:
                return alias

    def _word(self, kind: str) -> str:
        """``node`` and so on, or another word where the cluster's own names look like that."""
        if kind not in self.words:
            choices = [kind, f"{kind}x", f"{kind}xx", f"redacted{kind}"]
            used = [re.compile(rf"{re.escape(word)}\d+", re.IGNORECASE) for word in choices]
            free = (
                w for w, r in zip(choices, used, strict=True) if not any(map(r.fullmatch, self.used_words))
            )
            self.words[kind] = next(free, choices[-1])
        return self.words[kind]


def _v4(n: int, word: str, width: int) -> str:
    # RFC 5737 for the first 254, then RFC 2544's benchmark range: neither is anybody's.
    base = "192.0.2.0" if n < 255 else "198.18.0.0"
    return str(ipaddress.IPv4Address(base) + n)


_FORMS: dict[str, Callable[[int, str, int], str]] = {
    "node": lambda n, word, width: f"{word}{n:0{width}}",
    "host": lambda n, word, width: f"{word}{n:02}",
    "domain": lambda n, word, width: f"{word}{n:02}.example",
    "leaf": lambda n, word, width: f"{word}{n:02}",
    "user": lambda n, word, width: f"{word}{n:02}",
    "id": lambda n, word, width: f"{word}{n:04}",
    "v4": _v4,
    "v6": lambda n, word, width: f"2001:db8::{n:x}",  # RFC 3849
    "mac": lambda n, word, width: ":".join(("02", "00", *(f"{b:02x}" for b in n.to_bytes(4, "big")))),
    "guid": lambda n, word, width: f"0200:0000:{n >> 16:04x}:{n & 0xFFFF:04x}",
    "uuid": lambda n, word, width: f"00000000-0000-4000-8000-{n:012x}",
    "machine": lambda n, word, width: f"{n:032x}",
    "fingerprint": lambda n, word, width: f"{word}{n:04}".ljust(43, "0"),
}


def _strings(value: Any) -> Iterator[str]:
    """Every string in plain data, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _words(text: str) -> Iterator[str]:
    for word in re.findall(r"[\w.:-]+", text):
        yield word
        yield _EDGES.sub("", word)
    yield from _ATOM.findall(text)


def _cluster_strings(data: dict[str, Any]) -> list[tuple[str, str]]:
    """(key, string) of all strings that are not of the format."""
    found: list[tuple[str, str]] = []

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, str):
            found.append((path[-1] if path else "", value))
        elif isinstance(value, dict):
            for key, item in value.items():
                if not _is_ours((*path, key), item):
                    found.append(("", key))
                    walk(item, (*path, key))
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item, path)

    walk(data, ())
    return found


def _is_ours(path: tuple[str, ...], value: Any) -> bool:
    """Whether what stands here is of the format and not of the cluster."""
    if path[0] in ("tool", "checks") or path in (("run", "id"), ("measures", "name")):
        return True
    if path[-2:] in (("commands", "via"), ("undo", "via")):  # elsewhere it is a jump host
        return True
    return path[-1] in _OURS and (
        isinstance(value, str) or (path[-1] in ("checks", "cells", "selected", "skipped"))
    )


def _collect(data: dict[str, Any], strings: list[tuple[str, str]], aliases: _Aliases) -> None:
    """Find all that needs an alias: nodes first, in their order; what is part of something longer last."""
    replay = data["run"]["replay"].get("targets")
    listed = [t for t in replay if isinstance(t, dict)] if isinstance(replay, list) else []
    for node in [
        *(t["id"] for t in data["targets"]),
        *data["matrix"]["nodes"],
        *(t.get("id") for t in listed),
    ]:
        if isinstance(node, str):
            aliases.add("node", node)
    versions = _versions(data)
    for key, text in strings:
        if key in _USERS:
            aliases.add("user", text)
        for user in (*_HOME.findall(text), *_AT.findall(text)):
            aliases.add("user", user)
        switches = [entry.partition(":")[2] for entry in text.split(",")] if key == "rail" else [text]
        for switch in switches if key in ("leaf", "rail", "switch", "switch_name") else ():
            if len(switch) > 1 and not switch.isdecimal() and not _known_form(switch):
                aliases.add("leaf", switch)
        if key in _SERIALS and len(text) >= 6 and not _known_form(text):
            aliases.add("id", text)
        for kind, found in _numbers(text):
            if kind != "v4" or found not in versions:
                aliases.add(kind, found)
    for name in _host_names(data, strings):
        if not _known_form(name):
            label, _, domain = name.partition(".")
            aliases.add("host", label)
            if "." in domain:
                aliases.add("domain", domain)


def _numbers(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of addresses and serial numbers in a string."""
    for kind, pattern in _PATTERNS:
        for found in pattern.findall(text):
            if _is_real(kind, found):
                yield kind, found


_PATTERNS = (
    ("v4", _V4), ("v6", _V6), ("mac", _MAC), ("guid", _GUID), ("uuid", _UUID), ("machine", _MACHINE),
    ("fingerprint", _KEY),
)  # fmt: skip


def _is_real(kind: str, text: str) -> bool:
    if kind in ("v4", "v6"):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return not (address.is_loopback or address.is_unspecified or str(address).startswith("255."))
    return len(set(text.lower()) - set(":-x")) > 1  # not all zeros, not a broadcast


def _known_form(text: str) -> bool:
    """Whether a pattern, and no name, covers all of it."""
    return any(pattern.fullmatch(text) for _, pattern in _PATTERNS) or any(
        text in found for _, found in _numbers(text)
    )


def _versions(data: dict[str, Any]) -> set[str]:
    """Versions with four numbers, which look like addresses and are none: ``nvidia-cublas 12.4.5.8``."""
    facts = data["facts"].get("node")
    software = facts.get("software") if isinstance(facts, dict) else None
    return {v for text in _strings(software) for v in _V4.findall(text)}


def _host_names(data: dict[str, Any], strings: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Host names that are no node ids: own names, jump hosts, names in /etc/hosts."""
    name = data["run"]["control_host"].get("name")
    if name:
        yield name
    for key, text in strings:
        if key in _HOSTS:
            for hop in text.split(","):
                yield hop.rpartition("@")[2].partition(":")[0]
        elif key == "hosts_lines":
            yield from text.partition("#")[0].split()[1:]
    facts = data["facts"].get("node")
    resolve = facts.get("resolve") if isinstance(facts, dict) else None
    for text in _looked_up(resolve):
        yield text


def _looked_up(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("name"), str):
            yield value["name"]
        for item in value.values():
            yield from _looked_up(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _looked_up(item)


def _pieces(expr: str) -> Iterator[str]:
    """The parts of a list between commas that stand outside brackets."""
    for _, piece in split(expr):
        yield piece


class _Rewriter:
    """Replaces by the table, longest first, at word boundaries; check ids are not words of the cluster."""

    def __init__(self, aliases: _Aliases, protected: set[str]) -> None:
        self.table = dict(aliases.table)
        self.known = frozenset(aliases.table)
        for check_id in protected:
            self.table.setdefault(check_id, check_id)
            if check_id not in self.known:
                self.table[check_id] = check_id
        self.longest = max((len(_ATOM.findall(name)) for name in self.table), default=1)
        self.done: dict[str, str] = {}

    def walk(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.key(key): item if _is_ours((*path, key), item) else self.walk(item, (*path, key))
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.walk(item, path) for item in value]
        return value

    def key(self, key: str) -> str:
        """Keys are field names, or nodes; a node called like a field is the reader's loss."""
        return self.text(key) if _EDGES.sub("", key).lower() in self.known else key

    def text(self, text: str) -> str:
        if text not in self.done:
            if len(self.done) > 100_000:
                self.done.clear()
            parts = []
            at = 0
            for found in _FOLDED.finditer(text) if "[" in text else ():
                if "[" in found[0]:
                    parts += [self.plain(text[at : found.start()]), self.folded(found[0])]
                    at = found.end()
            self.done[text] = "".join([*parts, self.plain(text[at:])])
        return self.done[text]

    def folded(self, expr: str) -> str:
        """The aliases of a folded list, folded; what lists nobody known stays."""
        cut = ",..." in expr
        try:
            names = expand(expr.replace(",...", ""))
        except ValueError:  # InventoryError: brackets of something else
            return self.plain(expr)
        if all(name.lower() in self.known for name in names):
            return fold([self.plain(name) for name in names]) + (",..." if cut else "")
        pieces = [expr] if "," not in _BRACKETS.sub("", expr) else list(_pieces(expr))
        if len(pieces) > 1:
            return ",".join(self.folded(p) if "[" in p else self.plain(p) for p in pieces)
        if any(name.lower() in self.known for name in names):
            return ",".join(self.plain(name) for name in names) + (",..." if cut else "")
        return self.plain(expr)

    def plain(self, text: str) -> str:
        atoms = list(_ATOM.finditer(text))
        parts: list[str] = []
        at = i = 0
        while i < len(atoms):
            start = atoms[i].start()
            for last in range(min(i + self.longest, len(atoms)) - 1, i - 1, -1):
                end = atoms[last].end()
                alias = self.table.get(text[start:end].lower())
                if alias is not None:
                    parts += [text[at:start], alias]
                    at, i = end, last
                    break
            i += 1
        text = "".join([*parts, text[at:]])
        return _CUT.sub(self.cut, text) if "..." in text else text

    def cut(self, found: re.Match[str]) -> str:
        """A name that was cut short to fit a line still tells its beginning."""
        begin = found[1].lower()
        full_name = next((name for name in self.known if len(begin) > 2 and name.startswith(begin)), None)
        return "..." if full_name is not None and begin not in self.table else found[0]
