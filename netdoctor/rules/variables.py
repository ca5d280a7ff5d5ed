"""Variables of a job: where their values come from, how NCCL reads them, and which there are.

Which there are is in data/variables.toml. Written after NCCL 2.30.7 (src/misc/param.cc, src/misc/utils.cc)
and torch 2.15.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from msgspec import Struct

from netdoctor import tables
from netdoctor.compat import StrEnum
from netdoctor.facts.software import CALLING, ConfFile, EnvFacts, Job
from netdoctor.memo import by_identity
from netdoctor.rules.versions import Version, at_least

MAX_IFS = 16  # src/transport/net_socket.cc, src/os/linux.cc
LLONG_MAX = 2**63 - 1


class _Variables(Struct, forbid_unknown_fields=True):
    """data/variables.toml, which says what each means."""

    integers: str
    numbers_too: str
    must_be_equal: str
    ranks: tuple[str, ...]
    levels: tuple[str, ...]
    words: dict[str, tuple[str, ...]]
    renamed: dict[str, str]


_TABLE = tables.table("netdoctor.rules", "variables.toml", _Variables)
INTEGERS = tables.names(_TABLE.integers)
LEVELS = _TABLE.levels
WORDS = _TABLE.words
NUMBERS_TOO = tables.names(_TABLE.numbers_too)
MUST_BE_EQUAL = tables.names(_TABLE.must_be_equal)
RENAMED = _TABLE.renamed
RANKS = _TABLE.ranks


# --- where a value comes from --------------------------------------------------------------------


class Source(StrEnum):
    """What set a variable: the job's own environment, the environment that netdoctor was called in (which the
    launcher's is taken to be), the login session, or one of NCCL's files."""

    JOB = "job"
    CALLER = "caller"
    LOGIN = "login"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable as a process of the job sees it on one node."""

    name: str
    value: str
    # The place for people, ``train.env:4``, ``calling environment``, ``login session``, a file's path.
    origin: str
    source: Source

    def __str__(self) -> str:
        return f"{self.name}={self.value} ({self.origin})"


Environment = Mapping[str, Setting]

CONF_FILE_SINCE = (2, 23)  # NCCL_CONF_FILE, in place of ~/.nccl.conf: tag v2.22.3-1 against v2.23.4-1
# The home is $HOME and not that of the passwd entry, and a carriage return at a line's end is dropped: tags
# v2.29.7-1 against v2.30.3-1, userHomeDir and setEnvFile.
HOME_VARIABLE_SINCE = (2, 30, 3)


def conf_files(login: EnvFacts, version: Version | None = None) -> list[ConfFile]:
    """NCCL's files on a node that this release reads, in its order (src/misc/param.cc initEnv)."""
    home = "home-variable" if at_least(version, HOME_VARIABLE_SINCE) else "home-passwd"
    by_name = at_least(version, CONF_FILE_SINCE) and any(conf.place == "named" for conf in login.nccl_conf)
    kinds = ("", "system", *(("named",) if by_name else ("home", home)))
    return [conf for conf in login.nccl_conf if conf.place in kinds]


def exported(login: EnvFacts | None, version: Version | None = None) -> dict[str, Setting]:
    """What NCCL's files put into a process's environment once NCCL has started there, whatever the name."""
    found: dict[str, Setting] = {}
    for conf in conf_files(login, version) if login else ():
        for name, text in conf.values.items():
            ends = text.endswith("\r") and at_least(version, HOME_VARIABLE_SINCE)
            found.setdefault(name, Setting(name, text[:-1] if ends else text, conf.path, Source.FILE))
    return found


def effective_env(login: EnvFacts | None, job: Job, version: Version | None = None) -> dict[str, Setting]:
    """Every variable that a process of the job sees on one node, by name.

    The job's own environment wins over the login session's, and both over NCCL's files, which never overwrite
    (src/misc/param.cc setEnvFile). Of the files only NCCL_* counts: torch and gloo do not read them.
    version: of NCCL, as releases read different files.
    """
    return _effective(login, job.env, job.env_from, version)


@by_identity
def _effective(
    login: EnvFacts | None, given: Mapping[str, str], given_from: Mapping[str, str], version: Version | None
) -> dict[str, Setting]:
    env: dict[str, Setting] = {}
    for name, value in given.items():
        origin = given_from.get(name, "job environment")
        env[name] = Setting(name, value, origin, Source.CALLER if origin == CALLING else Source.JOB)
    if login is None:
        return env
    for name, value in login.variables.items():
        env.setdefault(name, Setting(name, value, "login session", Source.LOGIN))
    for name, setting in exported(login, version).items():
        if name.startswith("NCCL_"):
            env.setdefault(name, setting)
    return env


@by_identity
def values(env: Environment) -> dict[str, str]:
    """`env` without the origins."""
    return {name: setting.value for name, setting in env.items()}


# --- numbers and words ---------------------------------------------------------------------------


# Text without digits is the default and no longer 0. Seen in the library of 2.32.3 and not in that of 2.31.2.
NO_DIGITS_SINCE = (2, 32, 3)


def param(text: str | None, default: int, version: Version | None = None) -> int:
    """An integer variable as ncclLoadParam reads it: strtoll with base 0.

    An unset or empty variable, or a number out of range, gives `default`; text that is no number does since
    NO_DIGITS_SINCE, and before it is 0.
    """
    if not text:
        return default
    match = re.match(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text)
    if match is None:
        return default if at_least(version, NO_DIGITS_SINCE) else 0
    digits = match[2]
    if digits[:2] in ("0x", "0X"):
        number = int(digits, 16)
    elif digits.startswith("0"):
        number = int(digits, 8)
    elif len(digits) > len(str(LLONG_MAX)):  # Python refuses to convert thousands of digits
        return default
    else:
        number = int(digits)
    if number > LLONG_MAX:
        return default
    return -number if match[1] == "-" else number


def is_plain_number(text: str) -> bool:
    """Whether strtoll(base 0) reads the whole of `text`, as decimal or hexadecimal and not as octal."""
    return re.fullmatch(r"[+-]?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)", text) is not None


# What NCCL looks for in lists, in any case, and for which functions (src/init.cc). A word that is none of
# these ends the job since 2.24 (src/graph/tuning.cc parseList); later releases may know more.
CHOICES = {
    "NCCL_ALGO": ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"),
    "NCCL_PROTO": ("ll", "ll128", "simple"),
}
_FUNCTIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
_CHOICES_OF = (2, 24), (2, 30)


def unknown_choice(name: str, value: str, version: Version | None) -> str:
    """The word of such a list that ends the job: ``" Tree"`` of ``Ring, Tree``; else nothing.

    ``ring;allreduce:^tree,nvls``: a prefix is a function, and only the first entry may be without one.
    Nothing is said of a release that is not known.
    """
    if version is None or not _CHOICES_OF[0] <= version[:2] <= _CHOICES_OF[1]:
        return ""
    for number, entry in enumerate(filter(None, value.split(";"))):
        function, _, words = entry.partition(":")
        if not words and number:
            return entry
        if words and function.lower() not in _FUNCTIONS:
            return function
        listed = (words or function).removeprefix("^").split(",")
        if odd := [one for one in listed if one and one.lower() not in CHOICES[name]]:
            return odd[0]
    return ""


def is_known_word(name: str, value: str) -> bool:
    """Whether NCCL knows this value of a variable in WORDS; what it does not know it ignores."""
    return value in WORDS[name] or (name in NUMBERS_TOO and value.isdecimal())


def meaning(name: str, value: str) -> str | None:
    """What a value amounts to: 1 and 0x1 agree; empty, ignored or the default is None, as unset."""
    if not value:
        return None
    if name in WORDS:
        return value if is_known_word(name, value) else None
    if name not in INTEGERS:
        return value
    number = param(value, 0)
    # All of NCCL's ..._DISABLE are 0 by default.
    return None if number == 0 and name.endswith("_DISABLE") else str(number)


SUBNET_AWARE = "NCCL_IB_SUBNET_AWARE_ROUTING"
# src/transport/net_ib/connect.cc: in v2.30.7-1 and not in v2.30.4-1.
SUBNET_AWARE_SINCE = (2, 30, 7)


def goes_by_subnet(env: Mapping[str, str], version: Version | None) -> bool:
    """Whether NCCL takes the RoCE port in the network of the peer's, where it would pair ports by their
    place."""
    return param(env.get(SUBNET_AWARE), 0) != 0 and (version is None or at_least(version, SUBNET_AWARE_SINCE))


# --- lists ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a list: a name or prefix, and a port (-1 for any). What follows (rail, plane) selects
    nothing."""

    name: str
    port: int = -1


@dataclass(frozen=True, slots=True)
class Filter:
    """NCCL_SOCKET_IFNAME or NCCL_IB_HCA, taken apart."""

    exclude: bool
    exact: bool
    entries: tuple[Entry, ...]

    def accepts(self, name: str, port: int = -1) -> bool:
        """Whether NCCL keeps the interface or HCA port `name`. An empty list matches everything."""
        if not self.entries:
            return not self.exclude
        return self.exclude != any(
            (name == entry.name if self.exact else name.startswith(entry.name))
            and (port == -1 or entry.port in (-1, port))
            for entry in self.entries
        )


EMPTY_PORT_SINCE = (2, 30, 7)  # ``mlx5_0:`` is any port and no longer port 0: parseStringList


@lru_cache(maxsize=1024)
def parse_filter(text: str, most: int = MAX_IFS, version: Version | None = None) -> Filter:
    """`text` as NCCL takes it apart: ``^`` and then ``=`` count only at the very start of the list.

    ``^lo,^docker`` excludes ``lo*`` and names that begin with ``^docker``; nothing is trimmed, so
    ``eth0, eth1`` looks for `` eth1``; what follows ``:`` is a port; entries after `most` are dropped.
    """
    exclude = text.startswith("^")
    text = text[1:] if exclude else text
    exact = text.startswith("=")
    text = text[1:] if exact else text
    entries: list[Entry] = []
    for item in text.split(","):
        name, colon, port = item.partition(":")
        if name:
            port = port.partition(":")[0]
            any_port = not colon or (not port and at_least(version, EMPTY_PORT_SINCE))
            entries.append(Entry(name, -1 if any_port else _atoi(port)))
    return Filter(exclude, exact, tuple(entries[:most]))


def _atoi(text: str) -> int:
    match = re.match(r"\s*[+-]?\d+", text)
    return int(match[0]) if match else 0
