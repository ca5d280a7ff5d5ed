"""What the engine says of logs; every text in it is made inert and holds no secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.compat import StrEnum
from netdoctor.explain.knowledge import Known, Pattern, Role
from netdoctor.explain.lines import Moment, Speaker

SCHEMA = "netdoctor.explain/1"


class Confidence(StrEnum):
    """How sure a cause is."""

    CERTAIN = "certain"  # the lines admit nothing else
    LIKELY = "likely"  # more speaks for it than against
    POSSIBLE = "possible"  # worth a measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One recognised line."""

    pattern: Pattern
    file: str
    number: int  # from 1
    text: str  # as it stands
    speaker: Speaker
    when: Moment | None = None
    value: str = ""  # of a pattern that compares


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
    """One cause of the failure."""

    known: Known
    confidence: Confidence
    weight: float  # 0 to 1, how much speaks for it
    lines: tuple[Quote, ...]
    proof: tuple[str, ...] = ()  # what a scan found for it
    fixes: tuple[str, ...] = ()  # how that is put right on this cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Who is in the logs."""

    world_size: int | None = None
    present: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()  # ranks below the world size that no line is of
    quiet: tuple[int, ...] = ()  # whose logs have nothing of a failure, where others' have
    hosts: tuple[str, ...] = ()
    first: Quote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One log that was read."""

    name: str
    lines: int = 0
    size_bytes: int = 0
    remarks: tuple[str, ...] = ()  # what was cut or could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclInfo:
    """What NCCL says of itself: values with how many say so, the commonest first."""

    versions: Mapping[str, int]
    drivers: Mapping[str, int]
    hosts: int
    ranks: int
    ranks_done: int  # that finished setting up
    world: int
    bootstrap: Mapping[str, int]
    networks: Mapping[str, int]
    hcas: Mapping[str, int]
    transports: Mapping[str, int]  # connections by kind
    gdr: str
    channels: Mapping[str, int]
    nvls: bool | None
    plugins: Mapping[str, int]
    environment: Mapping[str, Mapping[str, int]]
    unexpected: tuple[str, ...]  # sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer."""

    reasons: tuple[Reason, ...]
    ranks: Ranks
    echoes: tuple[Quote, ...] = ()  # later lines by others, each kind once
    echo_count: int = 0
    echo_ranks: tuple[int, ...] = ()
    unknown: tuple[Quote, ...] = ()
    sources: tuple[Source, ...] = ()
    refuted: Mapping[str, str] = field(default_factory=dict)  # what a scan took out, and why
    nccl: NcclInfo | None = None
    is_guess: bool = False  # no line is known; the causes are those that the last lines may be about
    again: str = ""  # where an error that program and board can both make came again
