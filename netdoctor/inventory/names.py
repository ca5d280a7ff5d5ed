"""What a host, user, port or interpreter name may look like.

Names are data: they are checked here before ssh_config, DNS, a shell or a subprocess sees them. The
rules are allow-lists, so that nothing begins with ``-`` and no shell, control or invisible
character passes. ``*_fault`` says what is wrong and what to write, ``is_valid_*`` only whether it
is right.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

HOST_MAX = 253  # RFC 1035 section 2.3.4, less the length octets
LABEL_MAX = 63
USER_MAX = 255  # LOGIN_NAME_MAX of Linux is 256 with the final NUL
PYTHON_MAX = 1024
LEAF_MAX = 64
RAILS_MAX = 64
PORT_MAX = 65535
SSH_PORT = 22
# What findings say in a node's place (netdoctor.model): of them all, of the machine that scans, of the job.
RESERVED = frozenset({"cluster", "control", "job"})

_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?")
_NOT_HOST = re.compile(r"[^A-Za-z0-9_.-]")
_LEAF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
# A network or RDMA device. [Linux net/core/dev.c dev_valid_name; drivers/infiniband/core/device.c]
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# OpenSSH takes nearly everything; this is what directories use: jane@corp.example, CORP\jane, 1234abc.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+\\-]*(?<!\\)\$?")
_PYTHON = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_PYTHON_PATH = re.compile(r"/[A-Za-z0-9._+/-]*[A-Za-z0-9._+-]")
_ZONE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
# What inet_aton(3) would take for an IPv4 address: '12345', '0x7f.1', '010.1.1.1'.
_NUMERIC = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+))*\.?")
_ADDRESS_RANGE = re.compile(r"[0-9]+(?:\.[0-9-]+)+")
_NETWORK = re.compile(r"[0-9.]+/[0-9]{1,2}")
# Printable by Unicode's account, yet nothing is drawn.
_INVISIBLE = frozenset("\u00ad\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


class Fault(NamedTuple):
    """Why a name is refused, and what to write instead ('' when there is nothing to say)."""

    message: str
    hint: str = ""


def printable(text: str, limit: int = 100) -> str:
    r"""Return `text` with everything that could steer a terminal escaped, at most `limit` long.

    Control, format (also bidirectional), unassigned and surrogate characters become ``\x1b`` or
    ``\u202e``. Applying it twice changes nothing.
    """
    escaped = "".join(
        char if char.isprintable() and char not in _INVISIBLE else _escape(char) for char in text[: limit + 1]
    )
    return escaped if len(escaped) <= limit else f"{escaped[: limit - 3]}..."


# user=name:password, ansible_password=…; bounded, so that no line is looked at more often than it is long.
_SECRET = re.compile(
    r"(user=[^\s:]{0,255}:|\b\w{0,40}(?:pass|secret|token)\w{0,40}=)\S+", re.IGNORECASE | re.ASCII
)
_PORT_THEN = re.compile(r"[0-9]{1,5},")
_LONG_WORD = 1024


def masked(text: str) -> str:
    """Return `text` without the passwords that people put before the ``@`` of a host, or behind a key."""
    text = _SECRET.sub(r"\1***", text)
    if "@" not in text or ":" not in text:
        return text
    return "".join(map(_masked_word, re.split(r"(\s+)", text)))


def _masked_word(word: str) -> str:
    """Return ``ssh://user:***@host`` for a word with a password; ``n1:22,user@n2`` as it is."""
    login, at, host = word.rpartition("@")
    user, colon, secret = login.partition(":")
    if not at or not colon:
        return word
    if len(word) > _LONG_WORD:
        return f"{user}:***"
    if secret.startswith("//"):
        name, colon, secret = secret[2:].partition(":")
        user = f"{user}://{name}"
    if port := _PORT_THEN.match(secret):
        return f"{user}:{port[0]}{_masked_word(f'{secret[port.end() :]}@{host}')}"
    return f"{user}:***@{host}" if colon else word


def _escape(char: str) -> str:
    """Return the escape for one character, as in a Python literal."""
    code = ord(char)
    if code < 0x100:
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def host_fault(text: str) -> Fault | None:
    """Return what is wrong with a bare host name or address, None when it is right.

    Takes DNS names and ssh config aliases (underscores allowed), IPv4, and IPv6 without brackets,
    with or without a zone (``fe80::1%eth0``).
    """
    if not text:
        return Fault("host name missing")
    if len(text) > HOST_MAX:
        return Fault(f"name of {len(text)} characters, {HOST_MAX} are allowed")
    if text.startswith("-"):
        return Fault("a host name cannot begin with '-'")
    if _NETWORK.fullmatch(text):
        return Fault("a network is not a host", "write a range as 10.0.0.[1-4]")
    bad = _NOT_HOST.search(text)
    if bad and bad.group() == ":":
        return _ipv6_fault(text)
    if bad:
        return _character_fault(bad.group(), "host name")
    if _NUMERIC.fullmatch(text):
        return _ipv4_fault(text)
    if _ADDRESS_RANGE.fullmatch(text):
        return Fault("not an address", "write a range as 10.0.0.[1-4]")
    return _label_fault(text)


def _label_fault(text: str) -> Fault | None:
    """Return what is wrong with the dot-separated parts of a name."""
    for label in text.removesuffix(".").split("."):
        if not label:
            return Fault("nothing between two dots in the name")
        if len(label) > LABEL_MAX:
            return Fault(f"part of {len(label)} characters, {LABEL_MAX} are allowed between dots")
        if not _LABEL.fullmatch(label):
            return Fault("a part of a host name cannot begin or end with '-'")
    return None


def _ipv4_fault(text: str) -> Fault | None:
    """Return what is wrong with a name of numbers, which resolvers take for an IPv4 address."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return Fault(
            "not an IPv4 address, and a name of numbers only would be taken for one",
            "write four numbers of 0 to 255, without leading zeros",
        )
    return _address_fault(address)


def _ipv6_fault(text: str) -> Fault | None:
    """Return what is wrong with an IPv6 address, its zone included."""
    bare, percent, zone = text.partition("%")
    try:
        address = ipaddress.IPv6Address(bare)
    except ValueError:
        return Fault("not an IPv6 address, though it has ':'", "write: [2001:db8::1]:22")
    if percent and not _ZONE.fullmatch(zone):
        return Fault("not a zone after '%'", "write: fe80::1%eth0")
    return _address_fault(address)


def _address_fault(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Fault | None:
    """Refuse addresses that no single machine has."""
    broadcast = address.version == 4 and int(address) == 0xFFFFFFFF
    if address.is_unspecified or address.is_multicast or broadcast:
        return Fault("not the address of one machine")
    return None


def _character_fault(char: str, what: str) -> Fault:
    """Name the character that is not allowed, so that invisible ones can be found."""
    if char == "@":
        return Fault(f"'@' inside a {what}", "write: user@host")
    if char in "[]":
        return Fault("unpaired bracket", "write a range as gpu[01-16]")
    if char == "%":
        return Fault("'%' belongs to an IPv6 zone only", "write: fe80::1%eth0")
    if char in "{}()":
        return Fault(f"character '{char}' in a {what}", "write a range as gpu[01-16]")
    if char == "=":
        return Fault(f"'=' in a {what}", "key=value comes after the host, in the same line")
    if char.isascii() and char.isprintable() and char != " ":
        hint = "operators between names: --format clustershell" if char in "!&^" else ""
        return Fault(f"character '{char}' is not allowed in a {what}", hint)
    import unicodedata  # 1 MB of tables, needed for a rare message only

    title = unicodedata.name(char, "control character").lower()
    hint = "an internationalised name is written in its xn-- form" if char.isalpha() else ""
    return Fault(f"character U+{ord(char):04X} ({title}) is not allowed in a {what}", hint)


def user_fault(text: str) -> Fault | None:
    """Return what is wrong with a login name, None when it is right."""
    if not text:
        return Fault("user name missing", "write: user@host")
    if len(text) > USER_MAX:
        return Fault(f"user name of {len(text)} characters, {USER_MAX} are allowed")
    if _USER.fullmatch(text):
        return None
    if ":" in text:  # whatever follows may be a password
        user = printable(text.partition(":")[0], 40)
        return Fault(f"user name '{user}:***' is not allowed", "no password goes there; log in with a key")
    return Fault(
        f"user name '{printable(text, 40)}' is not allowed",
        "letters, digits, '.', '_', '-', '+', '@' and '\\', beginning with a letter, a digit or '_'",
    )


def python_fault(text: str) -> Fault | None:
    """Return what is wrong with an interpreter: an absolute path or a bare command name."""
    if not text:
        return Fault("interpreter missing after python=", "write: python=/usr/bin/python3")
    if len(text) > PYTHON_MAX:
        return Fault(f"interpreter path of {len(text)} characters, {PYTHON_MAX} are allowed")
    if text.startswith("~"):
        return Fault("'~' is not expanded in an interpreter path", "write the absolute path")
    if _PYTHON.fullmatch(text) or _PYTHON_PATH.fullmatch(text):
        return None
    return Fault(
        f"interpreter '{printable(text, 40)}' is not allowed",
        "an absolute path or a command name, without spaces: python=/opt/venv/bin/python",
    )


def leaf_fault(text: str) -> Fault | None:
    """Return what is wrong with the name of a leaf switch, None when it is right."""
    if not text:
        return Fault("name missing after leaf=", "write: leaf=rack7")
    if len(text) > LEAF_MAX:
        return Fault(f"leaf name of {len(text)} characters, {LEAF_MAX} are allowed")
    if _LEAF.fullmatch(text):
        return None
    return Fault(
        f"leaf name '{printable(text, 40)}' is not allowed",
        "letters, digits, '.', '_', ':', '/' and '-', beginning with a letter or digit",
    )


def rail_fault(text: str) -> Fault | None:
    """Return what is wrong with the switches of a node's ports, None when nothing is."""
    entries = text.split(",")
    hint = "write: rail=mlx5_0:leaf1,mlx5_1:leaf2"
    if len(entries) > RAILS_MAX:
        return Fault(f"rail= of {len(entries)} ports, {RAILS_MAX} are allowed", hint)
    for entry in entries:
        port, _, switch = entry.partition(":")
        if not _DEVICE.fullmatch(port) or leaf_fault(switch):
            return Fault(f"rail= with '{printable(entry, 60)}', which is no port and its switch", hint)
    return None


def is_valid_host(text: str) -> bool:
    """Return whether `text` is a bare host name or address that may be contacted."""
    return host_fault(text) is None


def is_valid_user(text: str) -> bool:
    """Return whether `text` is a login name."""
    return user_fault(text) is None


def is_python_path(text: str) -> bool:
    """Return whether `text` is an absolute path of an interpreter."""
    return text.startswith("/") and python_fault(text) is None


def is_valid_port(port: int) -> bool:
    """Return whether `port` is a TCP port that a server can listen on."""
    return 1 <= port <= PORT_MAX


@lru_cache(maxsize=1 << 15)  # asked several times for every host of a list
def host_key(host: str) -> str:
    """Return the form under which two spellings of one name or address are equal."""
    bare, percent, zone = host.partition("%")
    try:
        return f"{ipaddress.ip_address(bare)}{percent}{zone}"
    except ValueError:
        return host.lower().removesuffix(".")


def with_port(host: str, port: int | None) -> str:
    """Return ``host:port``, with brackets around IPv6; the bare host without a port."""
    return host if port is None else f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """Return a host with brackets around IPv6."""
    return f"[{host}]" if ":" in host else host


def node_id(name: str, port: int | None = None) -> str:
    """What a host of this name is called in reports: ``control:22`` where these say it of something else."""
    return with_port(name, port or SSH_PORT) if name in RESERVED else name


def host_of(node: str) -> str:
    """The host of a node that a report calls ``gpu01``, ``gpu01:2222`` or ``[fe80::1]:22``; empty where it is
    none."""
    if is_valid_host(node):
        return node
    host, _, port = node.rpartition(":")
    host = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    return host if port.isdecimal() and is_valid_host(host) else ""
