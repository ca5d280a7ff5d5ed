"""One line of a log, taken apart: who wrote it, where, when, and what it says. Pure."""

import calendar
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from netdoctor.compat import UTC

# Colours and other escape sequences: ECMA-48 5.4 and 5.6, as netdoctor.text knows them, on bytes.
ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[ -/]{0,4}[0-~])"
)

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr)}


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in a log."""

    seconds: float  # since 1970
    aware: bool  # the line names its zone; UTC where not

    @property
    def kind(self) -> tuple[bool, bool]:
        """Times of one kind can be compared: with a zone or without, with a year or without."""
        return self.aware, self.seconds < _YEARLESS_END


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who wrote a line, as far as it says so; rank is the global one."""

    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    world_size: int | None = None


_RANKS = (
    # [rank3]:[E708 14:11:08.402 ProcessGroupNCCL.cpp:563] …   torch >= 2.2
    re.compile(r"\[rank(?P<rank>\d{1,6})\]"),
    # [1,3]<stdout>:…   Open MPI --tag-output: job, rank
    re.compile(r"\[\d{1,6},(?P<rank>\d{1,6})\]<std(?:out|err|diag)>"),
    # [Rank 2] Watchdog caught …; [PG 0 Rank 2]; [PG ID 0 PG GUID 0(default_pg) Rank 3]
    re.compile(r"\[(?:PG [^\]]{0,80}?)?[Rr]ank[ :=](?P<rank>\d{1,6})\]"),
    # NCCL INFO comm 0x23ba7ea0 rank 0 nranks 2 cudaDev 0 …
    re.compile(r"\brank (?P<rank>\d{1,6}) nranks (?P<world_size>\d{1,7})\b"),
    # (RayWorkerWrapper rank=3 pid=…), RANK=3, global_rank: 3, process rank: 3
    re.compile(r"(?<![\w-])(?:global[_ ]|process )?rank\s?[=:]\s?(?P<rank>\d{1,6})\b", re.I),
    #   rank      : 3 (local_rank: 3)   of torchrun's summary
    re.compile(r"\brank {6}: (?P<rank>\d{1,6}) \(local_rank"),
    # 3: …   srun --label, pdsh numbers nothing
    re.compile(r"^\s{0,4}(?P<rank>\d{1,6}): (?=\S)"),
)
_LOCAL_RANKS = (
    # [default3]:…   torchrun --redirects/--tee
    re.compile(r"\[default(?P<local_rank>\d{1,4})\]"),
    re.compile(r"\blocal_rank: (?P<local_rank>\d{1,4})\b"),
    re.compile(r":\d{1,8}:\d{1,8} \[(?P<local_rank>\d{1,3})\]"),
)
_HOSTS = (
    # gpu-a02:946:988 [0] transport/net_ib.cc:839 NCCL WARN …; the device is told among local ranks
    re.compile(r"(?<![\w./-])(?P<host>[A-Za-z][\w.-]{0,200}):\d{1,8}:\d{1,8} \[\d{1,3}\]"),
    # (RayWorker pid=123, ip=10.0.0.2)
    re.compile(r"\([^()]{0,80}pid=\d{1,8}, ip=(?P<host>[\w.:]{1,64})\)"),
    # gpu-a02: …   pdsh, DeepSpeed's pdsh runner, kubectl logs --prefix has its own
    re.compile(r"^(?P<host>[A-Za-z][A-Za-z0-9-]{0,62}\d[\w.-]{0,62}): (?=\S)"),
    re.compile(r"^\[pod/(?P<host>[\w.-]{1,253})/[\w.-]{1,63}\] "),
    # host      : gpu-a02   of torchrun's summary
    re.compile(r"\bhost {6}: (?P<host>[\w.-]{1,253})"),
)
_WORLDS = (
    re.compile(r"\b(?:world[_ ]size|WORLD_SIZE|nranks)\s?[=:]?\s?['\"]?(?P<world_size>\d{1,7})\b"),
    # Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/16   Lightning
    re.compile(r"\bMEMBER: \d{1,7}/(?P<world_size>\d{1,7})\b"),
)

_ISO = re.compile(
    r"(?<!\d)(?P<y>(?:19|20)\d\d)[-/](?P<mo>[01]\d)[-/](?P<d>[0-3]\d)[T _]"
    r"(?P<h>[0-2]\d):(?P<mi>[0-5]\d):(?P<s>[0-6]\d)"
    r"(?:[.,](?P<f>\d{1,9}))?\s?(?P<z>Z\b|UTC\b|[+-]\d\d:?\d\d\b)?"
)
# [W1008 23:40:22.836678340 socket.cpp:767]; W1119 08:22:22.445783 …   glog: no year
_GLOG = re.compile(
    r"(?:^|[\[\s])[IWEFD](?P<mo>[01]\d)(?P<d>[0-3]\d) "
    r"(?P<h>[0-2]\d):(?P<mi>[0-5]\d):(?P<s>[0-6]\d)(?:\.(?P<f>\d{1,9}))?"
)
# INFO 11-01 23:16:33 distributed_gpu_executor.py:56]   vLLM: no year
_VLLM = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<mo>[01]\d)-(?P<d>[0-3]\d) "
    r"(?P<h>[0-2]\d):(?P<mi>[0-5]\d):(?P<s>[0-6]\d)(?P<f>)"
)
# May  5 12:11:10 gpu07 kernel: …   syslog: no year
_SYSLOG = re.compile(
    r"^(?P<m>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s{1,2}(?P<d>\d{1,2}) "
    r"(?P<h>[0-2]\d):(?P<mi>[0-5]\d):(?P<s>[0-6]\d)(?P<f>)(?: (?P<host>[\w.-]{1,253}) )?"
)
_EPOCH = re.compile(r"(?:^|\[)(?P<e>1[5-9]\d{8}\.\d{3,9})\b")
# Where a line has no year; only the order matters.
YEARLESS = 2000
_YEARLESS_END = calendar.timegm((YEARLESS + 1, 1, 1, 0, 0, 0))


def speaker(line: str) -> Speaker:
    """What a line says of who wrote it."""
    return _speaker(line[:4096], (_RANKS, _LOCAL_RANKS, _HOSTS, _WORLDS))


def _speaker(text: str, groups: Iterable[Iterable[re.Pattern[str]]]) -> Speaker:
    """What the first expression of each group that matches finds."""
    found: dict[str, str] = {}
    for group in groups:
        match = next(filter(None, (regex.search(text) for regex in group)), None)
        found = {**(match.groupdict() if match else {}), **found}
    numbers = {key: int(found[key]) for key in ("rank", "local_rank", "world_size") if key in found}
    return Speaker(host=found.get("host", ""), **numbers)


def moment(line: str) -> Moment | None:
    """When a line was written, where it says so."""
    for regex in (_ISO, _GLOG, _VLLM, _SYSLOG):
        match = regex.search(line, 0, 400)
        if match:
            return _moment(match.groupdict())
    match = _EPOCH.search(line, 0, 400)
    return Moment(float(match["e"]), True) if match else None


def _moment(part: dict[str, str | None]) -> Moment | None:
    month = _MONTHS[(part["m"] or "").lower()] if "m" in part else int(part["mo"] or 0)
    zone = part.get("z")
    try:
        when = datetime(
            int(part.get("y") or YEARLESS),
            month,
            int(part["d"] or 0),
            int(part["h"] or 0),
            int(part["mi"] or 0),
            min(int(part["s"] or 0), 59),  # a leap second
            tzinfo=_zone(zone),
        )
    except ValueError:
        return None
    fraction = part.get("f") or ""
    return Moment(when.timestamp() + (float(f"0.{fraction}") if fraction else 0.0), zone is not None)


def _zone(text: str | None) -> timezone:
    if not text or text in ("Z", "UTC"):
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=min(int(digits[:2]), 23), minutes=min(int(digits[2:]), 59))
    return timezone(-offset if text[0] == "-" else offset)


# What launchers and collectors put in front of a line, from the outside in; removed as often as it occurs.
_PREFIXES = re.compile(
    r"\s*(?:"
    r"\[\d{1,6},\d{1,6}\]<std(?:out|err|diag)>:\s?"
    r"|\([^()]{1,120}pid=\d+[^()]{0,80}\)\s"
    r"|\[(?:rank\d+|default\d+|pod/[^\]]{1,300})\]:?\s?"
    r"|\[?(?:19|20)\d\d[-/][01]\d[-/][0-3]\d[T _][0-2]\d:[0-5]\d:[0-6]\d"
    r"(?:[.,]\d{1,9})?\s?(?:Z|UTC|[+-]\d\d:?\d\d)?\]?\s"
    r"|(?:stdout|stderr) [FP] "
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s{1,2}\d{1,2} "
    r"[0-2]\d:[0-5]\d:[0-6]\d(?: [\w.-]{1,253}(?= ))?\s"
    r"|\d{1,6}: "
    r"|[A-Za-z][A-Za-z0-9-]{0,62}\d[\w.-]{0,62}: "
    r"|[A-Za-z][\w.-]{0,200}:\d{1,8}:\d{1,8} \[\d{1,3}\]\s"
    r")"
)


def message(line: str) -> str:
    """A line without what launchers, clocks and collectors put in front of it."""
    at = 0
    for _ in range(8):
        match = _PREFIXES.match(line, at)
        if match is None or match.end() == len(line):
            break
        at = match.end()
    return line[at:]


_NAME_RANKS = (
    re.compile(r"(?:^|[._/-])(?:rank|task)[._-]?(?P<rank>\d{1,6})(?=[._/-]|$)", re.I),
    # attempt_0/3/stderr.log of torchrun --log-dir: the folder is the local rank
    re.compile(r"(?:^|/)attempt_\d+/(?P<local_rank>\d{1,4})/(?:stdout|stderr)\.log"),
    re.compile(r"(?:^|/)(?P<local_rank>\d{1,4})/(?:stdout|stderr|error)\.(?:log|json)"),
    # slurm-1234_5.out is an array's task and not a rank; slurm-1234-3.out is what %j-%t gives
    re.compile(r"(?:^|/)[A-Za-z][\w.]*-\d{2,12}-(?P<rank>\d{1,6})\.(?:out|err|log)"),
    # NCCL_DEBUG_FILE=nccl.%h.%p
    re.compile(r"nccl\w{0,40}[._-](?P<host>[A-Za-z][A-Za-z0-9-]{0,62})[._-]\d{2,8}(?:\.(?:log|txt|out))?$"),
)


def speaker_of_log(path: str) -> Speaker:
    """What the name of a log says of who wrote it."""
    return _speaker(path, ((regex,) for regex in _NAME_RANKS))


# A Python exception as the last line of a traceback has it, behind whatever a launcher put in front.
RAISED = re.compile(
    r"(?:^|[\]:)>] ?)(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt): ?\S"
)

# [W1008 23:40:22 …; UserWarning: …; … WARNING …. NCCL's WARN is what NCCL says when something failed.
WARNS = re.compile(r"(?:^|[\[\s:])W\d{4} \d\d:|Warning: |\bWARNING\b|\bwarning: ")
# frame #12: c10::Error::Error(…) of a native trace; the line that says what happened stands above it.
FRAME = re.compile(r"\bframe #\d+: |\bException raised from \w+ at ")
