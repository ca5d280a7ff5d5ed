"""What the engine says of logs; every text in it is made inert and holds no secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from netdoctor.explain.knowledge import Known, Pattern, Role
from netdoctor.explain.lines import Moment, Speaker

SCHEMA = "netdoctor.explain/1"


class Confidence(StrEnum):
    """certain: the lines admit nothing else. likely: more for than against. possible: worth a measurement."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One recognised line. text: whole, as it stands. value: of a pattern that compares. number: from 1."""

    pattern: Pattern
    file: str
    number: int
    text: str
    speaker: Speaker
    when: Moment | None = None
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A line as it is shown."""

    file: str
    line: int
    rank: int | None
    text: str
    when: float | None = None
    host: str = ""
    local_rank: int | None = None
    pattern: str = ""
    role: Role = Role.CONTEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One cause of the trouble. weight: 0 to 1, how much speaks for it; proof, fixes: what a scan
    found for it, and how that is put right on this cluster."""

    known: Known
    confidence: Confidence
    weight: float
    lines: tuple[Quote, ...]
    proof: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Who is in the logs. silent: ranks below the world size that no line is of. quiet: those whose logs have
    nothing of a failure, where others' have.
    """

    world_size: int | None = None
    seen: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    quiet: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    first: Quote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One log that was read. remarks: what was cut or could not be read."""

    name: str
    lines: int = 0
    size_bytes: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclInfo:
    """Values with how many say so, the commonest first. ranks_done: that finished setting up; transports:
    connections by kind. unexpected: sentences."""

    versions: Mapping[str, int]
    drivers: Mapping[str, int]
    hosts: int
    ranks: int
    ranks_done: int
    world: int
    bootstrap: Mapping[str, int]
    networks: Mapping[str, int]
    hcas: Mapping[str, int]
    transports: Mapping[str, int]
    gdr: str
    channels: Mapping[str, int]
    nvls: bool | None
    plugins: Mapping[str, int]
    environment: Mapping[str, Mapping[str, int]]
    unexpected: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer. echoes: quotes of later lines by others, each kind once. refuted: what a scan took out.
    nccl: what NCCL says of itself."""

    reasons: tuple[Reason, ...]
    ranks: Ranks
    echoes: tuple[Quote, ...] = ()
    echo_count: int = 0
    echo_ranks: tuple[int, ...] = ()
    unknown: tuple[Quote, ...] = ()
    sources: tuple[Source, ...] = ()
    refuted: Mapping[str, str] = field(default_factory=dict)
    nccl: NcclInfo | None = None
