"""The machine that netdoctor itself runs on: what of it stands between the user and the nodes."""

import errno
import os
import stat
from collections.abc import Iterator

from netdoctor.facts.host import Trouble
from netdoctor.inventory.names import printable

_OF_ERRNO = {
    errno.EMFILE: Trouble.FILES,
    errno.ENFILE: Trouble.FILES,
    errno.ENOMEM: Trouble.MEMORY,
    errno.ENOBUFS: Trouble.MEMORY,
}
IPV4_ROUTES = "/proc/net/route"
IPV6_ROUTES = "/proc/net/ipv6_route"
_REJECT = 0x0200  # RTF_REJECT of linux/route.h


def trouble_of(error: BaseException) -> Trouble | None:
    """The class of an error of this machine, as far as its number says."""
    if isinstance(error, MemoryError):
        return Trouble.MEMORY
    return _OF_ERRNO.get(getattr(error, "errno", None) or 0)


def no_process(error: BaseException) -> tuple[Trouble | None, str]:
    """What kept a process of ours from starting, for people."""
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # clone(2): EAGAIN at RLIMIT_NPROC, or at the pids.max of a container.
    full = getattr(error, "errno", None) == errno.EAGAIN
    return Trouble.PROCESSES if full else trouble_of(
        error
    ), f"a process of netdoctor did not start: {message}"


def is_cut_off() -> bool:
    """Whether no interface that is up has a route: nothing but this machine itself can be dialled from it.

    False where that cannot be read.
    """
    try:
        return not any(_is_up(device) for device in _routed())
    except (OSError, ValueError, IndexError):
        return False


def _routed() -> Iterator[str]:
    """Devices with a route to somewhere else."""
    with open(IPV4_ROUTES, encoding="ascii") as file:
        for line in file.readlines()[1:]:
            # eth0  00000000  010200C0  0003  0  0  0  00000000  0  0  0
            device, _, _, flags = line.split()[:4]
            if device != "lo" and not int(flags, 16) & _REJECT:
                yield device
    if not os.path.exists(IPV6_ROUTES):
        return
    with open(IPV6_ROUTES, encoding="ascii") as file:
        for line in file:
            # fd00…00 40 00…00 00 00…00 00000100 00000001 00000000 00000001     eth0
            to, *_, flags, device = line.split()
            # Link-local and multicast routes are there as soon as an interface is, whatever it leads to.
            if device != "lo" and not to.startswith(("fe80", "ff")) and not int(flags, 16) & _REJECT:
                yield device


def _is_up(device: str) -> bool:
    """Whether an interface has a carrier: a bridge of containers that do not run has routes, too."""
    try:
        with open(f"/sys/class/net/{device}/operstate", encoding="ascii") as file:
            return file.read().strip() not in ("down", "lowerlayerdown", "notpresent")
    except OSError:
        return True


def denied(path: str, need: int = os.R_OK) -> str | None:
    """Why a file cannot be used for want of permission, naming its owner; None where that is not so."""
    existing = os.path.abspath(path)
    try:
        info = os.stat(existing)
    except PermissionError:
        while existing != "/":
            existing = os.path.dirname(existing)
            try:
                info = os.stat(existing)
            except PermissionError:
                continue
            except OSError:
                return None
            return _owner_of(existing, info)
        return None
    except OSError:
        return None
    usable = os.access(existing, need, effective_ids=os.access in os.supports_effective_ids)
    return None if usable else _owner_of(existing, info)


def _owner_of(path: str, info: os.stat_result) -> str:
    mode = stat.S_IMODE(info.st_mode)
    owner = f"{printable(path, 200)} belongs to uid {info.st_uid} (mode {mode:04o})"
    return f"{owner}, and netdoctor runs as uid {os.geteuid()}"
