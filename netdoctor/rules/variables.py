"""Variables of a job: where their values come from, how NCCL reads them, and which there are.

Written after NCCL 2.30.7 (src/misc/param.cc, src/misc/utils.cc) and torch 2.15.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from netdoctor.facts.software import CALLING, ConfFile, EnvFacts, Job
from netdoctor.memo import by_identity, of_one
from netdoctor.rules.versions import Version, at_least

MAX_IFS = 16  # src/transport/net_socket.cc, src/os/linux.cc
LLONG_MAX = 2**63 - 1

# NCCL_PARAM variables, read with strtoll(base 0): src/misc/param.cc ncclLoadParam and its users.
INTEGERS = frozenset(
    """
    NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_TIMEOUT NCCL_IB_RETRY_CNT NCCL_IB_TC NCCL_IB_SL
    NCCL_IB_PKEY NCCL_IB_QPS_PER_CONNECTION NCCL_IB_SPLIT_DATA_ON_QPS NCCL_IB_ADAPTIVE_ROUTING
    NCCL_IB_PCI_RELAXED_ORDERING NCCL_IB_MERGE_NICS NCCL_IB_MERGE_VFS NCCL_IB_ROCE_VERSION_NUM
    NCCL_IB_CUDA_SUPPORT NCCL_P2P_DISABLE NCCL_P2P_DIRECT_DISABLE NCCL_SHM_DISABLE NCCL_CROSS_NIC
    NCCL_BUFFSIZE NCCL_NTHREADS NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS
    NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD NCCL_SOCKET_RETRY_CNT NCCL_SOCKET_RETRY_SLEEP_MSEC
    NCCL_NVLS_ENABLE NCCL_CUMEM_ENABLE NCCL_CUMEM_HOST_ENABLE NCCL_DMABUF_ENABLE NCCL_MNNVL_ENABLE
    NCCL_NET_SHARED_BUFFERS NCCL_LAUNCH_MODE_PARALLEL NCCL_COLLNET_ENABLE NCCL_RAS_ENABLE
    NCCL_IGNORE_CPU_AFFINITY NCCL_CHECKS_DISABLE NCCL_OOB_NET_ENABLE NCCL_PXN_DISABLE
    """.split()  # noqa: SIM905  one name per word reads better than forty quoted ones
)
# Words that are compared with their case: src/misc/socket.cc, src/graph/paths.cc ncclGetLevel.
LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
WORDS: dict[str, tuple[str, ...]] = {
    "NCCL_SOCKET_FAMILY": ("AF_INET", "AF_INET6"),
    "NCCL_IB_ADDR_FAMILY": ("AF_INET", "AF_INET6"),
    "NCCL_P2P_LEVEL": LEVELS,
    "NCCL_NET_GDR_LEVEL": LEVELS,
    "NCCL_NET_MERGE_LEVEL": ("PORT", *LEVELS),
}
NUMBERS_TOO = frozenset({"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"})  # the old levels 0 to 5
# Compared by nobody, and different values hang or corrupt the schedule.
MUST_BE_EQUAL = frozenset(
    """
    NCCL_ALGO NCCL_PROTO NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS
    NCCL_BUFFSIZE NCCL_NTHREADS NCCL_NET NCCL_NET_PLUGIN NCCL_IB_DISABLE NCCL_IB_MERGE_NICS
    NCCL_IB_QPS_PER_CONNECTION NCCL_IB_SPLIT_DATA_ON_QPS NCCL_CROSS_NIC NCCL_COLLNET_ENABLE
    NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_IB_ROCE_VERSION_NUM
    NCCL_SOCKET_FAMILY NCCL_IB_ADDR_FAMILY NCCL_IB_TC NCCL_IB_SL NCCL_COMM_ID
    NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD
    MASTER_ADDR MASTER_PORT WORLD_SIZE
    """.split()  # noqa: SIM905  as above
)
# torch 2.2 took its own variables out of NCCL's name space (c10d/ProcessGroupNCCL.hpp).
RENAMED = {
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
}
# torchrun sets them for each process it starts (torch/distributed/elastic/agent/server).
RANKS = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "NODE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
)


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
    """A variable as a process of the job sees it on one node.

    origin: the place for people, ``train.env:4``, ``calling environment``, ``login session``, a file's path.
    """

    name: str
    value: str
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
    wanted = ("", "system", *(("named",) if by_name else ("home", home)))
    return [conf for conf in login.nccl_conf if conf.place in wanted]


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


@of_one
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
