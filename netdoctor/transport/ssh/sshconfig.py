"""The user's ssh config, read the way OpenSSH reads it, without anything that runs a program.

paramiko's reader is not used: it runs ``Match exec`` through a shell, takes criteria it does not know for a
match, and knows no ``Include``. Source: ssh_config(5) and readconf.c of OpenSSH 9.2 to 10.

Left out on purpose: ``Match exec``, ``localnetwork``, ``tagged`` and later criteria never match (a note says
so); CanonicalizeHostname, ControlMaster, forwarding, password and keyboard-interactive settings have no
effect.
"""

import contextlib
import glob
import ipaddress
import os
import pwd
import re
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from netdoctor.errors import InputError
from netdoctor.files import read_regular, reason
from netdoctor.inventory import names
from netdoctor.inventory.model import Target
from netdoctor.text import clean
from netdoctor.transport import here
from netdoctor.transport.base import SshOptions
from netdoctor.transport.ssh.messages import Endpoint

SSH_PORT = 22
INCLUDE_DEPTH = 16
FILES_MAX = 512
FILE_BYTES_MAX = 4 << 20
JUMPS_MAX = 8

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
# ssh_config(5), IdentityFile, in the order that OpenSSH 9.2 tries them; keys that live in hardware cannot be
# used here.
DEFAULT_KEYS = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")

_LINE = re.compile(r"(\w+)(?:\s*=\s*|\s+|$)(.*)")
_REPEATED = frozenset({"identityfile", "certificatefile"})
_WHOLE_LINE = frozenset({"proxycommand", "localcommand", "remotecommand", "knownhostscommand"})
_FLAGS = frozenset({"identitiesonly", "hashknownhosts"})
# Characters that mean something to a shell, and so to OpenSSH, which hands a ProxyCommand to one.
_SHELL = re.compile(r"[|&;<>`$(){}*?!\n]")
_TIME = re.compile(r"([0-9]{1,10}[smhdwSMHDW]?)+")
_TIME_PART = re.compile(r"([0-9]+)([smhdwSMHDW]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_TIME_MAX_S = 2**31 - 1
_NO_STDERR = re.compile(r"\s+2>\s*/dev/null\s*$")


class TransportInputError(InputError):
    """The user's ssh settings cannot be used; nothing was contacted. The text names file and line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One setting and where it stands; `inner` holds the lines of an Include."""

    key: str
    args: tuple[str, ...]
    raw: str
    where: str
    inner: tuple["Line", ...] = ()
    literals: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def fail(self, message: str) -> TransportInputError:
        return TransportInputError(f"{self.where}: {message}")


@dataclass(slots=True)
class Settings:
    """What applies to one host so far: the first value of each key, with its line."""

    values: dict[str, Line] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)

    def one(self, key: str) -> str | None:
        line = self.values.get(key)
        return line.args[0] if line else None

    def where(self, key: str) -> str:
        line = self.values.get(key)
        return f"{line.where}: " if line else ""


class SshConfig:
    """Parsed files, asked once per alias."""

    def __init__(self, lines: Sequence[Line], notes: list[str], unread: str | None = None) -> None:
        """unread: why the user's own file, which nobody named, could not be read; None where it could."""
        self._lines = tuple(lines)
        self._final = _any_final(self._lines)
        self.notes = notes
        self.unread = unread

    @classmethod
    def load(cls, path: Path | None) -> "SshConfig":
        """Read the given file, or the user's and the system's. Raises TransportInputError."""
        reader = _Reader()
        if path is not None:
            file = Path(_expand_home(str(path), ""))
            return cls(reader.read(file, Path(_home() or "/") / ".ssh", must=True), reader.notes)
        unread = None
        lines: list[Line] = []
        if (home := _home()) is not None:
            user = Path(home) / ".ssh" / "config"
            unread = here.denied(str(user))
            lines += reader.read(user, user.parent)
        lines += reader.read(SYSTEM_CONFIG, SYSTEM_CONFIG.parent)
        return cls(lines, reader.notes, unread)

    def lookup(self, alias: str, user: str | None = None) -> Settings:
        """Return the settings for an alias; `user` if something stronger than config set the login name."""
        found = Settings()
        _Evaluation(alias, alias, user, found, final=False).run(self._lines)
        if self._final:
            host = _expand_hostname(found, alias)
            # A HostName of the final pass comes too late.
            found.values.setdefault("hostname", Line("hostname", (host.replace("%", "%%"),), host, "alias"))
            _Evaluation(alias, host, user, found, final=True).run(self._lines)
        return found


class _Reader:
    """Reads files into lines, Includes expanded."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._files = 0

    def read(self, path: Path, base: Path, depth: int = 0, *, must: bool = False) -> list[Line]:
        if depth > INCLUDE_DEPTH:
            raise TransportInputError(f"{_printable(path)}: Include nested more than {INCLUDE_DEPTH} deep")
        self._files += 1
        if self._files > FILES_MAX:
            raise TransportInputError(f"{_printable(path)}: more than {FILES_MAX} included files")
        try:
            data = read_regular(path, FILE_BYTES_MAX)
        except OSError as e:
            if must:
                raise TransportInputError(f"{_printable(path)}: {reason(e)}") from e
            if not isinstance(e, FileNotFoundError):
                self.notes.append(f"{_printable(path)}: not read: {e.strerror}")
            return []
        if len(data) > FILE_BYTES_MAX:
            raise TransportInputError(f"{_printable(path)}: larger than {FILE_BYTES_MAX >> 20} MiB")
        text = data.decode("utf-8", "surrogateescape")
        lines = []
        for number, raw in enumerate(text.split("\n"), 1):
            line = self._line(raw.strip(" \t\r\f"), f"{_printable(path)}:{number}", base, depth)
            if line is not None:
                lines.append(line)
        return lines

    def _line(self, text: str, where: str, base: Path, depth: int) -> Line | None:
        if not text or text.startswith("#"):
            return None
        match = _LINE.fullmatch(text)
        if match is None:
            raise TransportInputError(f"{where}: not a setting: {clean(text, 60)}")
        key, rest = match[1].lower(), match[2]
        if key in _WHOLE_LINE:
            if not rest:
                raise TransportInputError(f"{where}: {match[1]} without a value")
            return Line(key, (rest,), rest, where)
        try:
            args = tuple(_split(rest))
        except ValueError as e:
            raise TransportInputError(f"{where}: {match[1]}: {e}") from e
        if not args:
            raise TransportInputError(f"{where}: {match[1]} without a value")
        line = Line(key, args, rest, where)
        if key == "include":
            return replace(line, inner=tuple(self._include(line, base, depth)))
        if key == "host":
            plain = frozenset(a for a in args if not set(a) & {"*", "?", "!"})
            return replace(line, literals=plain, patterns=tuple(a for a in args if a not in plain))
        if key == "match":
            self._check_match(line)
        _check_value(line)
        return line

    def _include(self, line: Line, base: Path, depth: int) -> Iterator[Line]:
        for pattern in line.args:
            full = _expand_home(pattern, f"{line.where}: Include: ")
            if not os.path.isabs(full):
                full = str(base / full)
            for file in sorted(glob.glob(full)):
                yield from self.read(Path(file), base, depth + 1)
                # An Include ends the Host block of an included file: each file begins as its Include stood.
                yield Line("endfile", ("",), "", line.where)

    def _check_match(self, line: Line) -> None:
        for _, name, argument in _criteria(line):
            if name not in _CRITERIA:
                self.notes.append(f"{line.where}: Match block not used: '{clean(name, 30)}' is not evaluated")
            elif argument is None and name not in _BARE_CRITERIA:
                raise line.fail(f"Match {name} without a pattern")


_BARE_CRITERIA = frozenset({"all", "canonical", "final"})
_CRITERIA = _BARE_CRITERIA | {"host", "originalhost", "user", "localuser"}


def _criteria(line: Line) -> Iterator[tuple[bool, str, str | None]]:
    """Yield (negated, criterion, argument) of a Match line."""
    args = list(line.args)
    while args:
        name = args.pop(0)
        negated = name.startswith("!")
        name, equals, argument = name.removeprefix("!").partition("=")
        name = name.lower()
        if name in _BARE_CRITERIA:
            yield negated, name, None
        elif equals:
            yield negated, name, argument
        else:
            yield negated, name, args.pop(0) if args else None


def _any_final(lines: Sequence[Line]) -> bool:
    return any(
        _any_final(line.inner)
        or (line.key == "match" and any(name == "final" for _, name, _ in _criteria(line)))
        for line in lines
    )


@dataclass(slots=True)
class _Evaluation:
    """One pass over the lines for one host."""

    original: str
    name: str
    user: str | None
    found: Settings
    final: bool

    def run(self, lines: Sequence[Line], *, never: bool = False) -> None:
        active = not never
        for line in lines:
            if line.key == "host":
                active = not never and self._host(line)
            elif line.key == "match":
                active = not never and self._match(line)
            elif line.key == "include":
                self.run(line.inner, never=not active)
            elif line.key == "endfile":
                active = not never
            elif active:
                self._take(line)

    def _take(self, line: Line) -> None:
        key = line.key
        if key == "connecttimeout" and line.args[0] == "none":
            return  # for OpenSSH as if it were not there
        if key in _REPEATED:
            values = self.found.lists.setdefault(key, [])
            if line.args[0] not in values:
                values.append(line.args[0])
        # The first of the two wins over the other one, as in OpenSSH, where `ProxyJump none` is no way.
        elif key not in self.found.values and not (
            (key == "proxyjump" and "proxycommand" in self.found.values)
            or (key == "proxycommand" and (self.found.one("proxyjump") or "none").lower() != "none")
        ):
            self.found.values[key] = line

    def _host(self, line: Line) -> bool:
        matched = self.name in line.literals
        for pattern in line.patterns:
            if pattern.startswith("!"):
                if _like(pattern[1:])(self.name):
                    return False
            elif not matched and _like(pattern)(self.name):
                matched = True
        return matched

    def _match(self, line: Line) -> bool:
        for negated, name, argument in _criteria(line):
            if name not in _CRITERIA:
                return False
            if self._criterion(name, argument or "") == negated:
                return False
        return True

    def _criterion(self, name: str, argument: str) -> bool:
        if name == "all":
            return True
        if name == "final":
            return self.final
        if name == "canonical":
            return False
        if name == "host":
            return in_list(_expand_hostname(self.found, self.name).lower(), argument.lower())
        if name == "originalhost":
            return in_list(self.original, argument)
        if name == "user":
            return in_list(self.user or self.found.one("user") or local_user(), argument)
        return in_list(local_user(), argument)


@lru_cache(maxsize=4096)
def _like(pattern: str) -> Callable[[str], object]:
    """Return a predicate for an OpenSSH pattern: ``*`` and ``?`` only."""
    parts = pattern.split("*")
    first, *rest = (
        re.compile("".join("." if c == "?" else re.escape(c) for c in part), re.DOTALL) for part in parts
    )
    if not rest:
        return first.fullmatch
    *middle, last = rest

    # One after the other, each as early as possible: a regular expression of many stars takes for ever.
    def fits(text: str) -> bool:
        found = first.match(text)
        for part in middle:
            if found is None:
                return False
            found = part.search(text, found.end())
        return bool(found and last.fullmatch(text, max(found.end(), len(text) - len(parts[-1]))))

    return fits


def in_list(name: str, patterns: str) -> bool:
    """Return whether a comma-separated pattern list matches; a negated match decides against it."""
    matched = False
    for pattern in patterns.split(","):
        if pattern.startswith("!"):
            if _like(pattern[1:])(name):
                return False
        elif _like(pattern)(name):
            matched = True
    return matched


def _split(text: str) -> list[str]:
    """Split a value as OpenSSH does: both quotes, backslash before a quote or itself, # ends the line."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    i = 0
    while i < len(text):
        c = text[i]
        if c == "\\" and i + 1 < len(text) and (text[i + 1] in "'\"\\" or (not quote and text[i + 1] == " ")):
            word = [*(word or []), text[i + 1]]
            i += 1
        elif quote:
            if c == quote:
                quote = ""
            else:
                word = [*(word or []), c]
        elif c in "'\"":
            quote, word = c, word or []
        elif c in " \t":
            if word is not None:
                words.append("".join(word))
                word = None
        elif c == "#" and word is None:
            break
        else:
            word = [*(word or []), c]
        i += 1
    if quote:
        raise ValueError("a quote is not closed")
    if word is not None:
        words.append("".join(word))
    return words


def _check_value(line: Line) -> None:
    """Refuse values that no reading could use, with file and line."""
    key, value = line.key, line.args[0]
    if key == "port" and not (value.isascii() and value.isdigit() and names.is_valid_port(int(value[:6]))):
        raise line.fail(f"Port {clean(value, 20)} is not a port number")
    if key == "connecttimeout" and value != "none" and _seconds(value) is None:
        raise line.fail(f"ConnectTimeout {clean(value, 20)} is not a time (90, 90s, 1m30s)")
    if key == "addressfamily" and value.lower() not in ("any", "inet", "inet6"):
        raise line.fail(f"AddressFamily {clean(value, 20)}: write any, inet or inet6")
    if key in _FLAGS and value.lower() not in ("yes", "no", "true", "false"):
        raise line.fail(f"{key} {clean(value, 20)}: write yes or no")
    if key == "stricthostkeychecking" and value.lower() not in (
        *("yes", "no", "true", "false", "ask", "off", "accept-new"),
    ):
        raise line.fail(f"StrictHostKeyChecking {clean(value, 20)}: write yes, accept-new, ask or no")


def _printable(path: Path) -> str:
    return names.printable(str(path), 300)


@lru_cache(maxsize=1)
def _login_name() -> str | None:
    """Return the name of the user who runs netdoctor; None where it has none that a server could know.

    Container engines make up a passwd entry whose name is the number.
    """
    with contextlib.suppress(KeyError):
        name = pwd.getpwuid(os.getuid()).pw_name
        if not name.isdecimal() and names.is_valid_user(name):
            return name
    name = os.environ.get("USER", "")
    return name if names.is_valid_user(name) else None


def local_user() -> str:
    """Return the name of the user who runs netdoctor, or the number where there is no name."""
    return _login_name() or str(os.getuid())


def _home() -> str | None:
    """Return the user's home folder; None where neither HOME nor a passwd entry says."""
    home = os.path.expanduser("~")
    return None if home.startswith("~") else home


def _expand_home(text: str, where: str) -> str:
    """Replace a leading ``~``. Raises TransportInputError where nobody knows what it stands for."""
    if not text.startswith("~"):
        return text
    found = os.path.expanduser(text)
    if found != text:
        return found
    why = "HOME is not set, and this user has no passwd entry" if text[1:2] in ("", "/") else "no such user"
    raise TransportInputError(f"{where}{names.printable(text, 200)}: {why}; write the whole path")


def _expand(text: str, tokens: dict[str, str], where: str) -> str:
    """Replace %x tokens. Raises TransportInputError on one that has no meaning here."""
    if "%" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        token = match[1]
        if token in tokens:
            return tokens[token]
        raise TransportInputError(f"{where}%{clean(token, 3)} is not known here")

    return re.sub(r"%(.?)", value, text, flags=re.DOTALL)


def _expand_hostname(found: Settings, alias: str) -> str:
    hostname = found.one("hostname")
    if hostname is None:
        return alias
    return _expand(hostname, {"h": alias, "%": "%"}, found.where("hostname"))


def _expand_file(text: str, tokens: dict[str, str], where: str) -> str:
    """Replace tokens, ``${VAR}`` and a leading ``~``."""

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise TransportInputError(f"{where}the environment has no {match[1]}")
        return os.environ[match[1]]

    if "${" in text:
        text = re.sub(r"\$\{(\w+)\}", variable, text)
    return _from_here(_expand(text, tokens, where), where)


def _from_here(text: str, where: str = "") -> str:
    """A path as ssh would take it in this folder: who opens it runs in another one."""
    return os.path.abspath(_expand_home(text, where))


class Resolver:
    """Turns targets into endpoints, each alias once. Raises TransportInputError."""

    def __init__(self, options: SshOptions) -> None:
        self._options = options
        self._config = SshConfig.load(options.ssh_config)
        self._cache: dict[tuple[str, str | None, int | None], Endpoint] = {}
        short = socket.gethostname()
        self._tokens = {
            "%": "%",
            "u": local_user(),
            "d": _home() or "",
            "i": str(os.getuid()),
            "l": short,
            "L": short.partition(".")[0],
        }
        self.notes = self._config.notes
        self.unread = self._config.unread
        for what, path in (("key", options.key), ("known_hosts file", options.known_hosts)):
            if path is not None:
                try:
                    read_regular(_expand_home(str(path), ""), 0)
                except OSError as e:
                    raise TransportInputError(f"{_printable(path)}: {what}: {reason(e)}") from e

    def resolve(self, target: Target) -> Endpoint:
        """Return where to log in for a target."""
        key = (target.host, target.user, target.port)
        if key not in self._cache:
            self._cache[key] = self._target(*key)
        return self._cache[key]

    def resolve_all(self, targets: Sequence[Target]) -> list[Endpoint]:
        """Return an endpoint for each target. Raises one TransportInputError with a line for each fault."""
        found = []
        faults: dict[str, None] = {}
        for target in targets:
            try:
                found.append(self.resolve(target))
            except TransportInputError as e:
                faults[str(e)] = None
        if faults:
            raise TransportInputError("\n".join(faults))
        return found

    def _target(self, host: str, user: str | None, port: int | None) -> Endpoint:
        options = self._options
        user, port = user or options.user, port or options.port
        settings = self._config.lookup(host, user)
        endpoint = self._endpoint(host, user, port, settings, is_target=True)
        jump = options.jump
        where = "--jump: "
        if jump is None and "proxyjump" in settings.values:
            line = settings.values["proxyjump"]
            jump, where = line.args[0], f"{line.where}: ProxyJump: "
        if jump is not None:
            if jump.lower() == "none":
                return endpoint if options.jump is None else replace_endpoint(endpoint, jump=(), proxy=())
            hops = self._hops(jump, where, endpoint)
            # A pattern such as `Host *` gives the jump host itself as its own: OpenSSH goes there directly.
            if any((h.host, h.port) == (endpoint.host, endpoint.port) for h in hops):
                hops = ()
            return replace_endpoint(endpoint, jump=hops, proxy=())
        return endpoint

    def _hops(self, spec: str, where: str, target: Endpoint, depth: int = 0) -> tuple[Endpoint, ...]:
        """Return the hops of a comma list, those that the first one needs itself in front."""
        tokens = {"h": target.host, "n": target.name, "p": str(target.port), "r": target.user, "%": "%"}
        hops: list[Endpoint] = []
        for number, part in enumerate(_expand(spec, tokens, where).split(",")):
            user, host, port = _jump_spec(part.strip(), where)
            found = self._config.lookup(host, user)
            hop = self._endpoint(host, user, port, found, is_target=False)
            nested = found.values.get("proxyjump") if number == 0 and self._options.jump is None else None
            if number:
                hop = replace_endpoint(hop, proxy=())
            if nested is not None and not _names_itself(nested.args[0], host):
                if depth >= JUMPS_MAX:
                    raise nested.fail("ProxyJump leads back to itself")
                before = self._hops(nested.args[0], f"{nested.where}: ProxyJump: ", hop, depth + 1)
                if not any((h.host, h.port) == (hop.host, hop.port) for h in before):
                    hops += before
            hops.append(hop)
        if len(hops) > JUMPS_MAX:
            raise TransportInputError(f"{where}more than {JUMPS_MAX} jump hosts")
        return tuple(hops)

    def _endpoint(
        self, alias: str, user: str | None, port: int | None, found: Settings, *, is_target: bool
    ) -> Endpoint:
        """Return one endpoint: of a target, or of a jump host."""
        host = _expand_hostname(found, alias)
        fault = names.host_fault(host)
        if fault is not None:
            raise TransportInputError(
                f"{found.where('hostname')}HostName '{names.printable(host, 60)}': {fault.message}"
            )
        user = user or found.one("user") or _login_name()
        if user is None:
            raise TransportInputError(_nobody(alias))
        if not names.is_valid_user(user):
            raise TransportInputError(
                f"{found.where('user')}user name '{names.printable(user, 60)}' is not allowed"
            )
        port = port or int(found.one("port") or SSH_PORT)
        alias_key = found.one("hostkeyalias")
        known_as = alias_key or (host if port == SSH_PORT else f"[{host}]:{port}")
        tokens = self._tokens | {"h": host, "n": alias, "p": str(port), "r": user, "k": alias_key or alias}
        return Endpoint(
            name=alias,
            host=host,
            port=port,
            user=user,
            known_as=known_as.lower(),
            **self._keys(found, tokens, is_target=is_target),
            agent=self._agent(found, tokens),
            **self._trust(found, tokens),
            family=(found.one("addressfamily") or "any").lower(),
            bind=self._bind(found),
            connect_timeout_s=_seconds(found.one("connecttimeout")) or None,
            proxy=_proxy(found, tokens),
        )

    def _keys(self, found: Settings, tokens: dict[str, str], *, is_target: bool) -> dict[str, Any]:
        """Return the fields about keys: one of the command line stands alone; a jump host tries it last."""
        listed = found.lists.get("identityfile", [])
        keys = [_expand_file(text, tokens, "IdentityFile: ") for text in listed if text.lower() != "none"]
        keys_only = _yes(found.one("identitiesonly"))
        if self._options.key is not None:
            key = _from_here(str(self._options.key))
            if is_target:
                keys, keys_only = [key], True
            elif key not in keys:
                keys.append(key)
        keys_named = bool(keys or listed)
        if not keys_named:
            keys = [path for path in _in_home(DEFAULT_KEYS) if os.path.exists(path) or here.denied(path)]
        certificates = found.lists.get("certificatefile", [])
        return {
            "keys": tuple(dict.fromkeys(keys)),
            "certificates": tuple(_expand_file(text, tokens, "CertificateFile: ") for text in certificates),
            "keys_named": keys_named,
            "keys_only": keys_only,
        }

    def _agent(self, found: Settings, tokens: dict[str, str]) -> str | None:
        setting = found.one("identityagent")
        if setting is None or setting == "SSH_AUTH_SOCK":
            path = os.environ.get("SSH_AUTH_SOCK") or None
        elif setting.lower() == "none":
            path = None
        elif setting.startswith("$"):
            path = os.environ.get(setting[1:].strip("{}")) or None
        else:
            path = _expand_file(setting, tokens, found.where("identityagent"))
        return path

    def _trust(self, found: Settings, tokens: dict[str, str]) -> dict[str, Any]:
        """Return the fields about host keys."""
        options = self._options
        if options.known_hosts is not None:
            user_files: tuple[str, ...] = (_from_here(str(options.known_hosts)),)
            global_files: tuple[str, ...] = ()
        else:
            default_user = _in_home(("~/.ssh/known_hosts", "~/.ssh/known_hosts2"))
            user_files = _files(found, "userknownhostsfile", default_user, tokens)
            global_files = _files(found, "globalknownhostsfile", SYSTEM_KNOWN_HOSTS, tokens)
        checking = (found.one("stricthostkeychecking") or "ask").lower()
        strict = "accept" if checking in ("no", "off", "false") else "yes"
        if options.accept_new or checking == "accept-new":
            strict = "record"
        return {
            "user_known_hosts": user_files,
            "global_known_hosts": global_files,
            "hash_known_hosts": _yes(found.one("hashknownhosts")),
            "strict": strict,
        }

    def _bind(self, found: Settings) -> str | None:
        address = found.one("bindaddress")
        if address is None:
            return None
        try:
            return str(ipaddress.ip_address(address))
        except ValueError:
            raise TransportInputError(
                f"{found.where('bindaddress')}BindAddress: write an IP address"
            ) from None


def replace_endpoint(
    endpoint: Endpoint, *, jump: tuple[Endpoint, ...] | None = None, proxy: tuple[str, ...] = ()
) -> Endpoint:
    """Return a copy with another way there."""
    import msgspec.structs

    changes = {"proxy": proxy} if jump is None else {"proxy": proxy, "jump": jump}
    return msgspec.structs.replace(endpoint, **changes)


def _yes(value: str | None) -> bool:
    return value is not None and value.lower() in ("yes", "true")


def _seconds(value: str | None) -> float | None:
    """Return what a time means (``90``, ``1m30s``; sshd_config(5), TIME FORMATS), or None."""
    if not value or not _TIME.fullmatch(value):
        return None
    total = sum(int(number) * _UNITS[unit.lower()] for number, unit in _TIME_PART.findall(value))
    return float(total) if total <= _TIME_MAX_S else None


def _files(found: Settings, key: str, default: tuple[str, ...], tokens: dict[str, str]) -> tuple[str, ...]:
    line = found.values.get(key)
    args = line.args if line else default
    if not args or args[0].lower() == "none":
        return ()
    return tuple(_expand_file(text, tokens, found.where(key)) for text in args)


def _proxy(found: Settings, tokens: dict[str, str]) -> tuple[str, ...]:
    """Return a ProxyCommand as an argument list; no shell ever sees it. Raises TransportInputError."""
    line = found.values.get("proxycommand")
    if line is None or line.raw.strip().lower() == "none":
        return ()
    text = _NO_STDERR.sub("", line.raw.strip())
    text = re.sub(r"^exec\s+", "", text)
    if _SHELL.search(text):
        raise line.fail("ProxyCommand needs a shell, and netdoctor gives it none: put it into a script")
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise line.fail(f"ProxyCommand: {e}") from e
    if not words:
        raise line.fail("ProxyCommand without a value")
    # Tokens after splitting: a host name cannot become two arguments.
    expanded = [_expand(word, tokens, f"{line.where}: ProxyCommand: ") for word in words]
    return (_expand_home(expanded[0], f"{line.where}: ProxyCommand: "), *expanded[1:])


def _in_home(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return files below the home folder; none where there is no such folder."""
    home = _home()
    return () if home is None else tuple(home + file.removeprefix("~") for file in files)


def _nobody(alias: str) -> str:
    """Return what to say where nothing names the user to log in as."""
    message = (
        f"{names.printable(alias, 60)}: no user to log in as, because uid {os.getuid()} has no name here; "
        "say --ssh-user NAME, or set USER (in a container: -e USER=NAME)"
    )
    return message if _home() else f"{message}, and HOME, without which no ssh config is looked for"


def _names_itself(spec: str, host: str) -> bool:
    """Return whether a jump host needs no further one: none is wanted, or a pattern names the host itself."""
    return spec.lower() == "none" or any(
        _jump_spec(part.strip(), "")[1] == host for part in spec.split(",") if "%" not in part
    )


def _jump_spec(text: str, where: str) -> tuple[str | None, str, int | None]:
    """Split ``[user@]host[:port]`` or ``ssh://…``."""
    bare = text.removeprefix("ssh://").rstrip("/")
    user, at, rest = bare.rpartition("@")
    port: int | None = None
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?|([^:]+)(?::(\d{1,5}))?|(.*:.*:.*)", rest)
    host = (match[1] or match[3] or match[5]) if match else rest
    number = (match[2] or match[4]) if match else None
    if number is not None:
        port = int(number)
    fault = names.host_fault(host or "")
    bad_port = port is not None and not names.is_valid_port(port)
    if fault is not None or (at and not names.is_valid_user(user)) or bad_port:
        raise TransportInputError(
            f"{where}'{names.printable(text, 60)}' is not a jump host (write user@host:port)"
        )
    return (user if at else None), host or "", port
