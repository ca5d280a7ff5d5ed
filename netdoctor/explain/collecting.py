"""The recognised lines of many logs, in bounded number; the first ones of each kind and rank are kept."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from netdoctor.explain.knowledge import UNKNOWN, Pattern, Role
from netdoctor.explain.lines import FRAME, RAISED, Moment, Speaker, moment, speaker, speaker_of_log
from netdoctor.explain.literals import fold
from netdoctor.explain.matching import Found
from netdoctor.explain.model import Hit, Source
from netdoctor.explain.quoting import QUOTE_MAX

RANK_HITS_MAX = 4  # of one pattern and rank
PATTERN_HITS_MAX = 600
UNKNOWN_MAX = 200
RANKS_MAX = 200_000
RANK_HOSTS_MAX = 100
TEXT_MAX = 4000  # kept of a line
NOWHERE = {"localhost", "localhost.localdomain", "127.0.0.1", "::1"}  # any node may be it


class RankHost(NamedTuple):
    """A line that says where a rank runs. world: the size of the rank's group, 0 where it does not say."""

    number: int
    world: int
    host: str


@dataclass(slots=True)
class Gathered:
    """What judging needs of the logs."""

    hits: list[Hit] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # lines by pattern, also of those not stored
    last: dict[tuple[str, str], int] = field(default_factory=dict)  # the last line of a pattern in a file
    unknown: list[Hit] = field(default_factory=list)  # that look like errors, one of each kind
    ranks: set[int] = field(default_factory=set)
    ranks_named: bool = True  # the name of every log tells its rank, so that silent ranks are known
    logs: dict[int, bool] = field(default_factory=dict)  # by such ranks: whether a line looks like an error
    hosts: dict[str, None] = field(default_factory=dict)
    # By log and rank, in order.
    rank_hosts: dict[tuple[str, int], list[RankHost]] = field(default_factory=dict)
    world_size: int | None = None
    sources: list[Source] = field(default_factory=list)

    def host_of(self, hit: Hit) -> str:
        """Where who wrote the line ran; "" where nothing says so.

        torchrun tells below the failure (and gives no world), NCCL above it; groups of a part of the job
        count their ranks from 0, too.
        """
        if hit.speaker.host or hit.speaker.rank is None:
            return "" if hit.speaker.host in NOWHERE else hit.speaker.host
        lines = self.rank_hosts.get((hit.file, hit.speaker.rank), [])
        below = [line.host for line in lines if not line.world and line.number >= hit.number]
        largest = max((line.world for line in lines), default=0)
        above = [line.host for line in lines if line.world == largest and line.number < hit.number]
        return below[0] if below else above[-1] if above else ""


class Collector:
    """Takes in what is found, log by log."""

    def __init__(self) -> None:
        self.gathered = Gathered()
        self._stored: dict[tuple[str, int | None, str], int] = {}
        self._values: dict[str, set[str]] = {}
        self._kinds: set[str] = set()
        self._by: Speaker = Speaker()
        self._file = ""
        self._when: Moment | None = None
        self._host = ""  # that torchrun's summary named last

    def begin(self, file: str) -> None:
        """Another log begins."""
        self._file, self._by, self._when, self._host = file, speaker_of_log(file), None, ""
        self.gathered.ranks_named &= self._by.rank is not None
        self._note(self._by)
        if self._by.rank is not None and len(self.gathered.logs) < RANKS_MAX:
            self.gathered.logs.setdefault(self._by.rank, False)

    def take(self, found: Found) -> None:
        """One line that was found in the log."""
        by = self._placed(speaker(found.text), found)
        log = self._by
        by = Speaker(
            rank=log.rank if by.rank is None else by.rank,
            local_rank=log.local_rank if by.local_rank is None else by.local_rank,
            host=by.host or log.host,
            world_size=by.world_size,
        )
        self._note(by)
        # A line without a time was written after the last one that has one.
        self._when = moment(found.text) or self._when
        failing = any(p.role is not Role.CONTEXT and not (p.retried or p.differs) for p, _ in found.patterns)
        if log.rank in self.gathered.logs and (failing or (not found.patterns and RAISED.search(found.text))):
            self.gathered.logs[log.rank] = True
        is_known = any(not (p.otherwise or p.role is Role.CONTEXT) for p, _ in found.patterns)
        for pattern, value in found.patterns:
            if not (is_known and pattern.otherwise):
                self._keep(pattern, value, found, by)
        if not found.patterns:
            self._note_unknown(found, by)

    def _note(self, by: Speaker) -> None:
        gathered = self.gathered
        if by.rank is not None and len(gathered.ranks) < RANKS_MAX:
            gathered.ranks.add(by.rank)
        if by.host and len(gathered.hosts) < RANKS_MAX:
            gathered.hosts.setdefault(by.host)
        if by.world_size:
            gathered.world_size = max(by.world_size, gathered.world_size or 0)

    def _placed(self, by: Speaker, found: Found) -> Speaker:
        """Notes where a rank runs. torchrun's summary has the host of a rank two lines above it."""
        ids = {pattern.id for pattern, _ in found.patterns}
        if "torchrun-host" in ids:
            self._host = by.host
        elif "torchrun-rank" in ids:
            by = replace(by, host=self._host)
        if by.rank is not None and by.host and len(self.gathered.rank_hosts) < RANKS_MAX:
            lines = self.gathered.rank_hosts.setdefault((self._file, by.rank), [])
            if by.host not in NOWHERE and len(lines) < RANK_HOSTS_MAX:
                lines.append(RankHost(found.number, by.world_size or 0, by.host))
        return by

    def _keep(self, pattern: Pattern, value: str, found: Found, by: Speaker) -> None:
        counts = self.gathered.counts
        counts[pattern.id] = counts.get(pattern.id, 0) + 1
        self.gathered.last[pattern.id, self._file] = found.number
        if pattern.differs:
            values = self._values.setdefault(pattern.id, set())
            if value in values or len(values) > 8:
                return
            values.add(value)
        key = (pattern.id, by.rank, self._file if by.rank is None else "")
        stored = self._stored.get(key, 0)
        if stored >= RANK_HITS_MAX or counts[pattern.id] > PATTERN_HITS_MAX:
            return
        self._stored[key] = stored + 1
        text = found.text
        if len(text) > QUOTE_MAX and (match := pattern.search(text)):
            # So much in front that who quotes it sees that it does not begin here.
            text = text[max(0, match.start() - QUOTE_MAX) : match.start() + TEXT_MAX]
        self.gathered.hits.append(self._hit(pattern, found.number, text, by, value))

    def _note_unknown(self, found: Found, by: Speaker) -> None:
        if FRAME.search(found.text):
            return
        kind = fold(found.text[:400])
        if kind in self._kinds or len(self.gathered.unknown) >= UNKNOWN_MAX:
            return
        self._kinds.add(kind)
        self.gathered.unknown.append(self._hit(UNKNOWN, found.number, found.text[:2000], by))

    def _hit(self, pattern: Pattern, number: int, text: str, by: Speaker, value: str = "") -> Hit:
        return Hit(
            pattern=pattern,
            file=self._file,
            number=number,
            text=text,
            speaker=by,
            when=self._when,
            value=value,
        )
