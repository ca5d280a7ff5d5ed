"""What the bandwidth experiments measured: packet loss, TCP streams, pairs and all-reduces of torch."""

from dataclasses import dataclass, field

from netdoctor.compat import StrEnum
from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class LossProbe:
    """Small datagrams from `src` to an echo on `dst`."""

    src: str
    dst: str
    address: str
    sent: int  # handed to the kernel of `src`
    arrived: int  # counted by the echo
    answered: int  # answers that came back
    detail: str = ""


@fact("loss", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class LossMatrix:
    """Datagrams over directed pairs, all nodes at once."""

    probes: tuple[LossProbe, ...] = ()
    seconds: float = 0.0
    failed_nodes: dict[str, str] = field(default_factory=dict)  # whose part did not run, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpRate:
    """Parallel TCP streams from `src` to `dst`, as the receiver counted them."""

    src: str
    dst: str
    round: int
    # 10^9 bytes per second, None when nothing arrived though both ends took part (`detail` says what was
    # seen).
    gbyte_s: float | None
    seconds: float = 0.0
    spread: float = 0.0  # interquartile range of the tenths of a second over their median
    retransmits: int | None = None  # of so many segments, as the sender's kernel counted
    segments: int | None = None
    rtt_us: int | None = None
    # Share of the time that the sender's threads ran or wanted to run, or that the receiver's window held
    # them back, the larger one: near 1 a machine, not the network, set the rate.
    busy: float = 0.0
    detail: str = ""


@fact("tcp_rates", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class TcpRates:
    """Pairs in rounds, one direction at a time."""

    rates: tuple[TcpRate, ...] = ()
    nodes: tuple[str, ...] = ()  # who took part, in order
    streams: int = 0
    seconds: float = 0.0
    rounds: int = 0  # of those planned: the time budget may end them early
    planned: int = 0
    # expected_gbyte_s[node]: what a node's own interface allows, where that is known; limited_by[node] names
    # it.
    expected_gbyte_s: dict[str, float] = field(default_factory=dict)
    limited_by: dict[str, str] = field(default_factory=dict)
    failed_nodes: dict[str, str] = field(default_factory=dict)  # whose part did not run, and why
    # further[id]: the same on the job's other paths that carry data.
    further: "dict[str, TcpRates]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRate:
    """What one direction of a pair reached then, in GB/s of 10^9 bytes."""

    src: str
    dst: str
    gbyte_s: float


@fact("baseline", scope="cluster", origin="control")
@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An earlier report to compare with, as given by --baseline."""

    source: str  # its file
    finished: str  # when that scan ended (RFC 3339)
    tcp: tuple[BaselineRate, ...] = ()  # tcp, pairs: rates of bw.tcp and bw.pair between nodes of this scan
    pairs: tuple[BaselineRate, ...] = ()
    # Of bw.allreduce, by size in bytes, over so many `ranks`.
    busbw_gbyte_s: tuple[tuple[int, float], ...] = ()
    ranks: int | None = None
    backend: str = ""  # ``nccl`` or ``gloo``, of pairs and all-reduce, '' where the report does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRate:
    """Messages of torch.distributed from `src` to `dst`."""

    src: str
    dst: str
    round: int
    gbyte_s: float
    rail: str | None = None  # which local rank carried them, with several
    least_gbyte_s: float = 0.0
    most_gbyte_s: float = 0.0
    busy: float = 0.0  # as in TcpRate, for all threads of the busier end together; 0 with nccl, which spins


class RankFault(StrEnum):
    """Why a rank did not do its part."""

    IMPORT = "import"  # torch cannot be imported
    DEVICE = "device"  # the GPU, or its driver
    KILLED = "killed"
    FROZEN = "frozen"
    EXITED = "exited"
    SILENT = "silent"  # its node does not answer
    FILES = "files"  # no descriptor left for a connection
    STORE = "store"  # it cannot reach the rendezvous
    CONNECT = "connect"  # it cannot form the group
    STUCK = "stuck"  # alive, and not through in its time
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrouble:
    """A rank that did not do its part."""

    node: str
    rank: int
    what: str  # a RankFault; later releases may know more
    detail: str
    during: str
    first: bool = True  # among the first to fail, the others may only echo it


# Of Session.left_out: a node that has nothing for the backend of the others. Other reasons can be mended.
NO_GPU = "it has no GPU that torch could use"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The torch ranks of one experiment."""

    backend: str = "gloo"  # ``nccl`` or ``gloo``
    ranks: tuple[str, ...] = ()  # rank to node, in order
    # ifname[node]: interface that was given to the backend.
    ifname: dict[str, str] = field(default_factory=dict)
    given_by: str = "netdoctor"  # ``job`` or ``netdoctor``
    address: str = ""
    port: int = 0  # of the rendezvous
    port_busy: str | None = None  # why it is not the job's own
    torch: str = ""
    start_s: float = 0.0
    # Nodes that took no part, with the reason (somebody's process on the GPUs, no address…).
    left_out: dict[str, str] = field(default_factory=dict)
    trouble: tuple[RankTrouble, ...] = ()
    instead: str = ""  # why it ran on processors though the job computes on GPUs; empty otherwise


@fact("pair_rates", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class PairRates:
    """Directed pairs of torch.distributed, in rounds."""

    session: Session = field(default_factory=Session)
    rates: tuple[PairRate, ...] = ()
    rounds: int = 0
    planned: int = 0
    # expected_gbyte_s, rounds, planned: as in TcpRates, the first with gloo alone: of a node's NICs together
    # one GPU has a share that is not known.
    expected_gbyte_s: dict[str, float] = field(default_factory=dict)
    # Nodes whose ranks gave an answer that cannot be, and which.
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Who took part, in order."""
        return tuple(dict.fromkeys(self.session.ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaLatency:
    """Typical time of a write of two bytes from `src` to `dst`, over the rail (``mlx5_0:1``)."""

    src: str
    dst: str
    rail: str
    us: float


@fact("rdma_rates", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaRates:
    """RDMA writes between pairs in rounds, as perftest measures them: rail with rail of the same name, all at
    once, one direction at a time. A rate of 0: the HCAs gave up on the way.
    """

    rates: tuple[PairRate, ...] = ()
    latencies: tuple[RdmaLatency, ...] = ()
    # nodes, rounds, planned, expected_gbyte_s, limited_by, failed_nodes: as in TcpRates, of one rail.
    nodes: tuple[str, ...] = ()
    seconds: float = 0.0
    rounds: int = 0
    planned: int = 0
    expected_gbyte_s: dict[str, float] = field(default_factory=dict)
    limited_by: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # nodes that have no perftest
    failed_nodes: dict[str, str] = field(default_factory=dict)
    # What ended as no rate, by no fault of the way, by pair and rail.
    troubles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """One collective at one size. Times are those of the slowest rank, per operation, over `batches` of
    `iterations`.

    algbw = size / median time, busbw = algbw x a factor of the collective, of an all-reduce over n ranks
    2 (n - 1) / n, in 10^9 bytes per second (nccl-tests, doc/PERFORMANCE.md).
    """

    size_bytes: int
    median_s: float
    least_s: float
    most_s: float
    batches: int
    iterations: int
    algbw_gbyte_s: float
    busbw_gbyte_s: float
    wrong: dict[str, int] = field(default_factory=dict)  # values that were not the sum, by node
    first_wrong: str = ""
    # wrong_from[node]: whose values came out wrong on it, where values show it (a sum does not).
    wrong_from: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """Of the batches, as a share of their median."""
        return (self.most_s - self.least_s) / self.median_s if self.median_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclTaken:
    """What NCCL said that its ranks on a node took, in its own words."""

    networks: tuple[str, ...] = ()  # ``IB``, ``Socket``, or a plug-in's name
    # How ranks reach each other, ``NET/IB/GDRDMA``, ``NET/Socket``, ``P2P``, ``SHM``.
    via: tuple[str, ...] = ()
    links: tuple[str, ...] = ()  # between GPUs of a node, ``NVL``, ``PIX``, …


@fact("allreduce", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Sizes from small to large over all ranks."""

    session: Session = field(default_factory=Session)
    rows: tuple[SizeRow, ...] = ()
    # solo[node]: the same inside a node with several GPUs.
    solo: dict[str, tuple[SizeRow, ...]] = field(default_factory=dict)
    # Again without the nodes that the pairs blamed: who was left, and their rows.
    survivors: tuple[str, ...] = ()
    survivor_rows: tuple[SizeRow, ...] = ()
    # From the hardware of the nodes: what healthy systems reach, what they hardly fall below, what nothing
    # exceeds; None where it is not known.
    expected_busbw_gbyte_s: float | None = None
    floor_busbw_gbyte_s: float | None = None
    bound_busbw_gbyte_s: float | None = None
    limited_by: str = ""  # the term that sets them, or why nothing is known
    solo_floor_gbyte_s: dict[str, float] = field(default_factory=dict)
    taken: dict[str, NcclTaken] = field(default_factory=dict)  # what NCCL said, by node; empty with gloo
    budget_s: float = 0.0
    unread: dict[str, str] = field(default_factory=dict)  # as in PairRates


@fact("collectives", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """What else a training job runs, over all ranks, one after the other."""

    session: Session = field(default_factory=Session)
    # By name (``all-gather``), in their order, sizes from small to large. The size of an all-gather,
    # reduce-scatter and all-to-all is that of all ranks' pieces together, as in nccl-tests.
    rows: dict[str, tuple[SizeRow, ...]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # what the backend does not offer, in its words
    failed: str = ""  # the one in which a rank failed; those after it did not run
    unread: dict[str, str] = field(default_factory=dict)  # as in PairRates
    budget_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRate:
    """What one group of the job reached while all groups of its kind worked."""

    kind: str  # ``tp``, ``cp``, ``dp``, ``ep`` or ``pp``
    ranks: tuple[int, ...]
    row: SizeRow
    again_gbyte_s: float = 0.0  # busbw when its kind was measured again; 0 where it was not

    @property
    def gbyte_s(self) -> float:
        """Its busbw."""
        return self.row.busbw_gbyte_s


@fact("groups", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of --groups, all of a kind at once, one kind after the other."""

    session: Session = field(default_factory=Session)
    rates: tuple[GroupRate, ...] = ()
    operations: dict[str, str] = field(default_factory=dict)  # what was run, by kind
    misfit: str = ""  # why the ranks cannot be divided as asked
    refused: dict[str, str] = field(default_factory=dict)  # by kind, what the backend does not offer
    late: tuple[str, ...] = ()  # kinds for which no time was left
    failed: str = ""  # the kind in which a rank failed; those after it did not run
    unread: dict[str, str] = field(default_factory=dict)  # as in PairRates
    budget_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRun:
    """A small data-parallel training on some nodes, in seconds of its slowest rank.

    Rates are the bytes of its gradients by the time of a step, x 2 (n - 1) / n over n ranks as the busbw of
    an all-reduce, in 10^9 bytes per second: on equal links they do not depend on n.
    """

    nodes: tuple[str, ...]
    step_s: float  # median
    least_s: float
    gbyte_s: float
    best_gbyte_s: float  # of the fastest step
    steps: int = 0


@fact("ladder", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The same training on two nodes, four and so on, and where it gets slower on parts of them.

    runs: in their order; a run may come twice.
    """

    session: Session = field(default_factory=Session)
    gradient_bytes: int = 0
    alone_s: float = 0.0  # a step without an exchange, on the slowest rank
    runs: tuple[LadderRun, ...] = ()
    budget_s: float = 0.0
    unread: dict[str, str] = field(default_factory=dict)  # as in PairRates
