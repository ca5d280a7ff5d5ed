"""Facts about a machine as such: identity, limits, memory file systems."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal, get_args

from netdoctor.compat import StrEnum
from netdoctor.facts.base import fact

# What reaches the nodes, as --via has it.
Via = Literal["ssh", "slurm", "ray"]
VIAS: tuple[str, ...] = get_args(Via)
# Nothing reaches them, they have written: what --facts stands for.
FILED = "facts"
# They call by themselves: what --meet stands for.
MEET = "meet"
# Ways on which nobody has said that there is SSH.
WITHOUT_SSH = (FILED, MEET)


@fact("node", origin="control")
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the user listed it."""

    id: str
    host: str
    order: int  # its place in the hosts file (rank order)
    slots: int | None = None
    gpus: int | None = None
    leaf: str | None = None  # its switch, as listed, or as its ports say
    rail: str | None = None  # the switch of each port, as listed: ``mlx5_0:sw1,mlx5_1:sw2``
    line: int | None = None
    source: str = ""


class Login(StrEnum):
    """How a login ended: with an agent that answers, or in one of these failures."""

    OK = "ok"
    NAME = "name"  # it cannot be looked up
    REFUSED = "refused"
    NO_ANSWER = "no_answer"
    UNREACHABLE = "unreachable"
    NOT_SSH = "not_ssh"
    TOO_MANY = "too_many"  # connections, so that sshd turns some away
    KEX = "kex"  # no algorithm in common
    KEX_BROKEN = "kex_broken"  # the exchange of keys began, and did not come to its end
    HOST_KEY_UNKNOWN = "host_key_unknown"
    HOST_KEY_CHANGED = "host_key_changed"
    HOST_KEY_REVOKED = "host_key_revoked"
    AUTH = "auth"
    SHELL = "shell"  # it ends without running the command
    PROCESS_LIMIT = "process_limit"  # of the login user: no shell, no Python, or none of their own processes
    INTERPRETER = "interpreter"  # no Python where it should be
    BROKEN_PYTHON = "broken_python"  # it is there, and does not get as far as a program
    OLD_PYTHON = "old_python"
    JUMP = "jump"  # trouble with a jump host or a ProxyCommand
    LOST = "lost"  # the connection, once it stood
    ALTERED = "altered"  # what comes over it is not what the other end has sent
    TIMEOUT = "timeout"  # our own bound passed
    DRAINED = "drained"  # kept out of use by the workload manager
    DOWN = "down"  # for the workload manager: it answers nothing there
    BUSY = "busy"  # with jobs of others
    STEP = "step"  # a task does not start there, or ends before it says anything
    NO_WAY_BACK = "no_way_back"  # a task runs, and cannot call this machine
    CONTROL = "control"  # our own trouble: see Trouble


class Trouble(StrEnum):
    """What of the machine that netdoctor runs on stood in the way, where a login ends as CONTROL."""

    NETWORK = "network"  # nothing leads out of it
    NAMES = "names"  # nobody answers its lookups
    PROCESSES = "processes"  # it starts no more of them
    FILES = "files"  # descriptors
    MEMORY = "memory"
    SETTINGS = "settings"  # the user's ssh folder may not be read
    KEYS = "keys"  # no key or agent can be used


@fact("session", origin="transport")
@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What happened when netdoctor logged in."""

    outcome: Login
    # ``resolve``, ``connect``, ``banner``, ``kex``, ``host_key``, ``auth``, ``channel``, ``shell``, ``step``,
    # ``agent``.
    stage: str = ""
    detail: str = ""  # one line, sanitised
    address: str | None = None  # address, port, user: what was dialled
    # What became of the addresses of the name that were tried before, where one answered in the end.
    passed_over: str = ""
    port: int = 22
    user: str = ""
    via: str | None = None
    server_version: str | None = None
    # ``SHA256:…`` of the key that the server showed, key_type e.g. ``ssh-ed25519``.
    fingerprint: str | None = None
    key_type: str | None = None
    # The key itself where it is not known or another one is, ``ssh-ed25519 AAAA…``.
    host_key: str = ""
    known_hosts: str | None = None
    known_as: str | None = None  # the name under which known_hosts keeps the key, ``[10.0.0.1]:44222``
    offered: str = ""  # public half of the first key that was offered to it, ``ssh-ed25519 AAAA…``
    interpreter: str = "python3"  # command asked for
    python_version: str | None = None  # e.g. ``3.6.15`` when it answered.
    login_ms: float | None = None  # TCP connect to authenticated
    # Command sent to first agent frame, or to the end of waiting for it.
    first_byte_ms: float | None = None
    noise: str = ""  # first 200 characters of what the shell printed around our frames, sanitised
    transport: str = "ssh"  # what led there, ``ssh``, ``local``, ``slurm``, ``ray``, ``facts`` or ``meet``
    # What of our own machine it was; None for what has no class of its own, and for other outcomes.
    trouble: Trouble | None = None


# So long from the connection to the first answer is no longer the way to one node or its shell.
CROWDED_MS = 1500.0
LATE_AT_LEAST = 4


def fewer_at_once(sessions: Mapping[str, Session], answered: Collection[str]) -> int | None:
    """How many logins at once to try, where several ran out of time and the others got in, but slowly.

    answered: the nodes whose first answer came. None where logins were quick: then nodes are slow, and not
    this machine. Half of what got through in the time of one leaves room.
    """
    reached = {node for node, one in sessions.items() if one.outcome == Login.OK}
    through = len(reached.intersection(answered))
    return max(2, through // 2) if through and is_crowd(sessions, len(reached) - through) else None


def is_crowd(sessions: Mapping[str, Session], late: int = 0) -> bool:
    """Whether several logins ran out of time, and those that got in took long, too, or there are none.

    late: further nodes that did, once they were let in.
    """
    late += sum(1 for one in sessions.values() if one.outcome == Login.TIMEOUT)
    reached = [one for one in sessions.values() if one.outcome == Login.OK]
    took = [(one.login_ms or 0.0) + (one.first_byte_ms or 0.0) for one in reached]
    return late >= LATE_AT_LEAST and (not took or median(took) >= CROWDED_MS)


@fact("host")
@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Identity and size of a machine."""

    hostname: str
    fqdn: str
    machine_id: str | None = None
    boot_id: str | None = None
    product_uuid: str | None = None
    os_name: str
    kernel: str
    arch: str
    user: str
    uid: int
    cpu_count: int
    memory_total_bytes: int
    memory_available_bytes: int
    # Memory that the kernel keeps for long runs of pages; None where it has no such.
    cma_total_bytes: int | None = None
    cma_free_bytes: int | None = None
    container: str | None = None  # ``docker``, ``podman``, ``kubernetes``, ``lxc`` or None
    cloud: str | None = None
    # The node's own end of the login connection (SSH_CONNECTION), or None.
    ssh_server_address: str | None = None
    # Whether it is one of several nodes of one machine, whose processors, memory and links are theirs, too,
    # as those of `netdoctor lab` are.
    shares_machine: bool = False
    # Hardware that the node only plays (``hca``, ``gpu``); empty for a real one.
    pretended: tuple[str, ...] = ()

    def missing_field(self) -> str:
        return "" if self.kernel and self.cpu_count > 0 else "kernel and processors"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """statvfs of a mount point. `error` holds the errno text when it could not be read."""

    path: str
    fs_type: str | None = None
    total_bytes: int = 0
    free_bytes: int = 0
    writable: bool = True
    is_mount: bool = True
    error: str | None = None


@fact("limits")
@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """Resource limits of the login session. None means unlimited."""

    memlock_soft_bytes: int | None
    memlock_hard_bytes: int | None
    nofile_soft: int | None
    nofile_hard: int | None
    stack_soft_bytes: int | None = None
    nproc_soft: int | None = None
    shm: FileSystem
    tmp: FileSystem  # where temporary files of the job go: its TMPDIR where it can be used, else /tmp
    stale_shm_files: tuple[str, ...] = ()
    # Size of ``nccl-*``, ``torch_*``, ``psm_*``, ``sem.*`` files of dead owners in /dev/shm.
    stale_shm_bytes: int = 0

    def missing_field(self) -> str:
        return "" if self.shm.path and self.tmp.path else "where temporary files go"
