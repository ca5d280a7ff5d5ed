"""known_hosts as OpenSSH reads it: which keys a server may show, and which it must not.

paramiko's reader knows no markers and no patterns, and one line that it dislikes can fail the file.
Source: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT, and hostfile.c of OpenSSH 9.2.
"""

import base64
import binascii
import fcntl
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from netdoctor.files import read_regular
from netdoctor.transport.ssh.sshconfig import in_list

FILE_BYTES_MAX = 64 << 20
NOTES_PER_FILE = 5


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key: its type (``ssh-ed25519``) and its bytes as they travel; ``file:line`` if listed."""

    type: str
    blob: bytes
    source: str = field(default="", compare=False)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.blob)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known about one server.

    without_port: keys listed for the host on port 22. OpenSSH takes one of them as proof when it matches and
        nothing is listed for the port; one that differs proves nothing.
    any_certificates: a @cert-authority line covers the server.
    """

    trusted: tuple[HostKey, ...] = ()
    without_port: tuple[HostKey, ...] = ()
    revoked: tuple[HostKey, ...] = ()
    any_certificates: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    marker: str
    names: str
    key: HostKey


@dataclass(slots=True)
class _File:
    """One parsed file, indexed by literal name."""

    literal: dict[str, list[_Entry]] = field(default_factory=dict)
    patterns: list[_Entry] = field(default_factory=list)
    hashed: list[tuple[bytes, bytes, _Entry]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class KnownHosts:
    """Reads each file once. `notes` tells which lines and files could not be read."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self.notes: list[str] = []

    def lookup(self, name: str, files: Sequence[str]) -> Known:
        """Return what the files say about `name`: ``host``, ``[host]:port`` or an alias, in lower case."""
        found = self._matching(name, files)
        bare: list[_Entry] = []
        if name.startswith("["):
            bare = self._matching(name[1 : name.index("]")], files)
        return Known(
            trusted=tuple(e.key for e in found if not e.marker),
            without_port=tuple(e.key for e in bare if not e.marker),
            revoked=tuple(e.key for e in found + bare if e.marker == "@revoked"),
            any_certificates=any(e.marker == "@cert-authority" for e in found),
        )

    def add(self, name: str, key: HostKey, file: str, *, hashed: bool) -> None:
        """Append a key to a file, which is made (0600) when it is not there. Raises OSError."""
        parsed = self._parsed(file)
        entry = _Entry("", name, key)
        if any(e.key == key for e in self._matching(name, [file])):
            return
        folder = os.path.dirname(file)
        if folder:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        written_name = hash_name(name, os.urandom(20)) if hashed else name
        line = f"{written_name} {key.type} {base64.b64encode(key.blob).decode()}\n".encode()
        fd = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.write(fd, line)
        finally:
            os.close(fd)
        parsed.literal.setdefault(name, []).append(entry)

    def _matching(self, name: str, files: Sequence[str]) -> list[_Entry]:
        found: list[_Entry] = []
        for path in files:
            file = self._parsed(path)
            found += file.literal.get(name, ())
            found += [e for e in file.patterns if in_list(name, e.names)]
            encoded = name.encode("utf-8", "surrogateescape")
            found += [e for salt, digest, e in file.hashed if hmac.digest(salt, encoded, "sha1") == digest]
        return found

    def _parsed(self, path: str) -> _File:
        if path not in self._files:
            self._files[path] = _read(path)
            self.notes += self._files[path].notes
        return self._files[path]


def _read(path: str) -> _File:
    file = _File()
    try:
        data = read_regular(path, FILE_BYTES_MAX)
    except FileNotFoundError:
        return file
    except OSError as e:
        file.notes.append(f"{path}: not read: {e.strerror}")
        return file
    if len(data) > FILE_BYTES_MAX:
        file.notes.append(f"{path}: larger than {FILE_BYTES_MAX >> 20} MiB, not read")
        return file
    bad = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        fields = line.split(None, 4)
        if not fields or fields[0].startswith(b"#"):
            continue
        fault = _take(file, fields, f"{path}:{number}")
        if fault:
            bad += 1
            if bad <= NOTES_PER_FILE:
                file.notes.append(f"{path}:{number}: line skipped: {fault}")
    if bad > NOTES_PER_FILE:
        file.notes.append(f"{path}: {bad - NOTES_PER_FILE} more lines skipped")
    return file


def _take(file: _File, fields: list[bytes], source: str) -> str:
    """Enter one line. Returns what is wrong with it, or ''."""
    marker = ""
    if fields[0].startswith(b"@"):
        marker = fields.pop(0).decode("ascii", "replace").lower()
        if marker not in ("@revoked", "@cert-authority"):
            return "unknown marker"
    if len(fields) < 3:
        return "host, key type and key expected"
    kind = fields[1].decode("ascii", "replace")
    if kind.isdigit():
        return "a key of SSH protocol 1"
    try:
        blob = base64.b64decode(fields[2], validate=True)
    except (binascii.Error, ValueError):
        return "the key is not base64"
    size = int.from_bytes(blob[:4], "big")
    if blob[4 : 4 + size] != fields[1] or len(blob) < 8 + size:
        return "the key is not of the type named"
    key = HostKey(kind, blob, source)
    if fields[0].startswith(b"|"):
        return _take_hashed(file, fields[0], _Entry(marker, "", key))
    try:
        listed = fields[0].decode("utf-8").lower()
    except UnicodeDecodeError:
        return "the host is not text"
    entry = _Entry(marker, listed, key)
    if any(c in listed for c in "*?!"):
        file.patterns.append(entry)
    else:
        for name in listed.split(","):
            file.literal.setdefault(name, []).append(entry)
    return ""


def _take_hashed(file: _File, text: bytes, entry: _Entry) -> str:
    parts = text.split(b"|")
    if len(parts) != 4 or parts[1] != b"1":
        return "an unknown way of hashing"
    try:
        salt, digest = (base64.b64decode(p, validate=True) for p in parts[2:])
    except (binascii.Error, ValueError):
        return "the hashed name is not base64"
    if len(digest) != 20:
        return "the hashed name is cut"
    file.hashed.append((salt, digest, entry))
    return ""


def hash_name(name: str, salt: bytes) -> str:
    """Return ``|1|salt|hash`` as HashKnownHosts writes it."""
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def fingerprint(blob: bytes) -> str:
    """Return ``SHA256:…`` as ssh-keygen -l prints it."""
    return "SHA256:" + base64.b64encode(sha256(blob).digest()).decode().rstrip("=")
