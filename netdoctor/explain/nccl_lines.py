"""Lines of NCCL_DEBUG=INFO to facts of ranks. Pure; written for the forms of NCCL 2.7 to 2.30.

A process is known by host and pid, a rank by these and the device in brackets:

    gpu-a:195626:198757 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0/GDRDMA
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

LINES_MAX = 200_000
PROCESSES_MAX = 20_000
ENVIRONMENT_MAX = 200

# What to look for in a block; everything else that NCCL says at INFO is passed over.
_WORTH = re.compile(
    rb"NCCL INFO (?!Channel |comm )(?:Bootstrap ?:|NET/|Using network |Assigned NET plugin |\d+ coll channels"
    rb"|cudaDriverVersion |NVLS multicast|GPU Direct RDMA|TUNER/Plugin|Using tuner plugin|PROFILER/Plugin"
    rb"|NCCL version|NCCL_\w+ set )|NCCL version \d"
)
# What it says by the thousand. Groups: pid, device; of a connection whether it is the receiving end, and over
# what it goes; of a communicator its address, rank, size, and how far it is.
_OFTEN = re.compile(
    rb":(\d{1,10}):\d{1,10} \[(\d{1,4})\] NCCL INFO (?:Channel [\d/ :a-f\[\]x>-]{9,90}"
    rb"(?:(?:send|(receive))\] )?via ([^\n]{1,80})"
    rb"|(?:\[?Rank \d+\] )?(?:nccl\w+ )?comm (0x[0-9a-f]+) (?:parent \S+ )?rank (\d{1,9}) "
    rb"n[rR]anks (\d{1,9}) cudaDev[^\n]{0,300}- ?Init (START|COMPLETE))"
)
_HOST = re.compile(rb"[A-Za-z0-9][\w.-]{0,253}\Z")
_SPEAKER = re.compile(rb"([A-Za-z0-9][\w.-]{0,253}):(\d{1,10}):\d{1,10} \[(\d{1,4})\]\Z")
_VERSION = re.compile(r"NCCL version (\d{1,2}\.\d{1,3}\.\d{1,3})\S{0,40}?\+cuda(\d{1,2}\.\d{1,2})")
_DEVICE = re.compile(r"NET/([A-Za-z_]\w{0,30})/(\d{1,4})\b")
_COUNTS = re.compile(
    r"(\d+) coll channels, (?:\d+ collnet channels, )?(?:(\d+) nvls channels, )?(\d+) p2p channels,"
)
_ADDRESS = re.compile(r"(?:\[\d+\])?([\w.@-]{1,15}):([0-9a-fA-F.:]{2,45})(?:%[\w.-]{1,15})?<\d+>")
_HCA = re.compile(r"\[\d+\] ?([\w-]{1,64}:\d{1,3}[\d:]{0,8}/[\w/]{2,20})")
_SET = re.compile(r"(NCCL_\w{1,60}) set (?:by environment )?to ([^\n]{1,200})")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for (?:HCA|GPU)[^\n(]{0,80}(?:\(([^)\n]{1,60})\))?")


@dataclass(slots=True)
class Process:
    """What one process says."""

    version: str = ""
    cuda: str = ""
    driver: str = ""
    bootstrap: tuple[str, str] | None = None
    network: str = ""
    hcas: tuple[str, ...] = ()
    no_device: bool = False
    gdr: set[tuple[bool, str]] = field(default_factory=set)  # (enabled, reason)
    plugins: set[str] = field(default_factory=set)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Rank:
    """What one device's threads say."""

    rank: int | None = None
    world: int = 0
    channels: tuple[int, int, int] | None = None  # collective, NVLS, point to point, the most of a group
    # Connections by transport, receiving ends not counted a second time.
    links: dict[str, int] = field(default_factory=dict)
    devices: set[int] = field(default_factory=set)  # NCCL's numbers of those that it sends over
    nvls: bool | None = None
    begun: set[bytes] = field(default_factory=set)  # communicators that are not made yet
    done: bool = False  # one was made


Who = tuple[str, str]  # host and pid; the log's name and "" where a line has no prefix
Device = tuple[str, str, str]  # host, pid, device


@dataclass(slots=True)
class NcclLog:
    """All that NCCL printed, in bounded number."""

    processes: dict[Who, Process] = field(default_factory=dict)
    ranks: dict[Device, Rank] = field(default_factory=dict)
    lines: int = 0
    cut: bool = False  # there was more than was looked at


class NcclReader:
    """Takes blocks of whole lines, log after log."""

    def __init__(self) -> None:
        self.log = NcclLog()
        self._file = ""

    def begin(self, file: str) -> None:
        """Another log begins."""
        self._file = file

    def block(self, data: bytes) -> None:
        """Take in what NCCL says in a block."""
        if self.log.lines >= LINES_MAX or b"NCCL" not in data:
            return
        end = -1
        for match in _WORTH.finditer(data):
            if match.start() < end:
                continue
            if self.log.lines >= LINES_MAX:
                break
            self.log.lines += 1
            end = data.find(b"\n", match.end())
            end = len(data) if end < 0 else end
            text = data[match.start() : min(end, match.start() + 4000)].decode("utf-8", "replace")
            self._take(_speaker(_line_before(data, match.start())), text.removeprefix("NCCL INFO "))
        ranks: dict[tuple[bytes, bytes, bytes], Rank | None] = {}
        links: dict[tuple[bytes, bytes, bytes, bytes], int] = {}
        for match in islice(_OFTEN.finditer(data), LINES_MAX - self.log.lines):
            self.log.lines += 1
            before, via = _line_before(data, match.start()), match[4]
            if match[3]:
                continue
            if via:
                link = before, match[1], match[2], via
                links[link] = links.get(link, 0) + 1
                continue
            by = before, match[1], match[2]
            if by not in ranks:
                ranks[by] = self._rank_of(*by)
            if rank := ranks[by]:
                _init(rank, *match.groups()[4:])
        for (*who, via), count in links.items():
            if rank := self._rank_of(*who):
                _link(rank, via.decode("utf-8", "replace"), count)
        self.log.cut |= self.log.lines >= LINES_MAX

    def _rank_of(self, before: bytes, pid: bytes, device: bytes) -> Rank | None:
        """Who writes ":pid:tid [device]" behind the host."""
        host = _HOST.search(before)
        return self._who((host[0].decode(), pid.decode(), device.decode()))[1] if host else None

    def _take(self, by: Device, text: str) -> None:
        process, rank = self._who(by)
        if process is not None and (rank is None or not _rank(rank, text)):
            _process(process, text)

    def _who(self, by: Device) -> tuple[Process | None, Rank | None]:
        """Whose line it is; nobody's where there are too many."""
        host, pid, device = by
        who = (host, pid) if host else (self._file, "")
        process = self.log.processes.get(who)
        if process is None:
            if len(self.log.processes) >= PROCESSES_MAX:
                self.log.cut = True
                return None, None
            process = self.log.processes[who] = Process()
        if not device:
            return process, None
        key = (*who, device)
        rank = self.log.ranks.get(key)
        if rank is None:
            rank = self.log.ranks[key] = Rank()
        return process, rank


def _line_before(data: bytes, at: int) -> bytes:
    """What stands in the line before that place, at most its last 400 bytes."""
    least = max(0, at - 400)
    return data[max(least, data.rfind(b"\n", least, at) + 1) : at]


def _speaker(before: bytes) -> Device:
    """Of "… host:pid:tid [device] "; empty texts where it is none.

    >>> _speaker(b"[1,3]<stdout>:a-1:1287:1328 [3] ")
    ('a-1', '1287', '3')
    """
    found = _SPEAKER.search(b" ".join(before.rsplit(None, 2)[-2:]))
    return (found[1].decode(), found[2].decode(), found[3].decode()) if found else ("", "", "")


def _init(rank: Rank, comm: bytes, number: bytes, size: bytes, state: bytes) -> None:
    """A communicator is begun or made."""
    if state == b"START":
        rank.begun.add(comm)
    else:
        rank.begun.discard(comm)
        rank.done = True
    if int(size) > rank.world:
        rank.rank, rank.world = int(number), int(size)


def _process(process: Process, text: str) -> None:
    if "NCCL version" in text and (version := _VERSION.search(text)):
        process.version, process.cuda = version[1], version[2]
    elif text.startswith("cudaDriverVersion "):
        process.driver = text.split()[1][:8]
    elif text.startswith("Bootstrap"):
        if address := _ADDRESS.search(text):
            process.bootstrap = (address[1], address[2])
    elif text.startswith(("Using network ", "Assigned NET plugin ")):
        name = text.removeprefix("Using network ").removeprefix("Assigned NET plugin ")
        process.network = name.removesuffix(" to comm").strip()[:40]
    elif text.startswith("NET/IB : No device found"):
        process.no_device = True
    elif text.startswith(("NET/IB : Using", "NET/IB: Using")):
        process.hcas = tuple(dict.fromkeys(_HCA.findall(text.partition("; OOB")[0])))
    elif "GPU Direct" in text and (gdr := _GDR.search(text)):
        process.gdr.add((gdr[1] == "Enabled", gdr[2] or ""))
    elif plugin := _plugin(text):
        process.plugins.add(plugin)
    elif (found := _SET.match(text)) and len(process.environment) < ENVIRONMENT_MAX:
        process.environment[found[1]] = found[2].strip().removesuffix(".")


def _plugin(text: str) -> str:
    """A plugin that was taken, by what it is for; empty for those that were not found."""
    for start, kind in (("TUNER/Plugin: Using ", "tuner"), ("Using tuner plugin", "tuner")):
        if text.startswith(start) and "internal tuner" not in text:
            return f"{kind} {text.removeprefix(start).removeprefix('tuner plugin ').strip(' :')[:60]}"
    if text.startswith("PROFILER/Plugin: Loaded ") or text.startswith("PROFILER/Plugin: loaded "):
        return f"profiler {text.split(': ', 1)[1][7:].strip()[:60]}"
    if text.startswith("NET/OFI Initializing "):
        return text.removeprefix("NET/OFI Initializing ").strip()[:60]
    if text.lower().startswith("net/ofi selected provider is "):
        return f"libfabric provider {text[len('NET/OFI Selected provider is ') :].strip()[:60]}"
    return ""


def _rank(rank: Rank, text: str) -> bool:
    """Whether it is a line of one device."""
    if counts := _COUNTS.match(text):
        found = (int(counts[1]), int(counts[2] or 0), int(counts[3]))
        rank.channels = max(rank.channels or found, found)
    elif text.startswith("NVLS multicast support is "):
        rank.nvls = not text.startswith("NVLS multicast support is not")
    else:
        return False
    return True


def _link(rank: Rank, via: str, count: int) -> None:
    """So many connections over the same."""
    kind = transport(via)
    rank.links[kind] = rank.links.get(kind, 0) + count
    if (device := _DEVICE.match(via)) and device[1] != "Socket":
        rank.devices.add(int(device[2]))


# How it is copied, and not over what.
_HOW = {"Shared", "read", "direct", "CE"}


@lru_cache(4096)
def transport(via: str) -> str:
    """The kind of a connection: what stands behind "via" without numbers of devices and ranks.

    >>> transport("NET/IB/0(3)/GDRDMA/Shared"), transport("P2P/CUMEM/read"), transport("SHM/direct/direct")
    ('NET/IB/GDRDMA', 'P2P/CUMEM', 'SHM')
    """
    if via.startswith("direct shared memory"):
        return "SHM"
    parts = [re.sub(r"[(\[].*", "", part) for part in via.strip().split("/")]
    names = [part for part in parts if part and not part.isdigit() and part not in _HOW]
    return "/".join(names[:3])[:40] or "SHM"
