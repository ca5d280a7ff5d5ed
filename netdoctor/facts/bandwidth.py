"""What the bandwidth experiments measured: packet loss, TCP streams, pairs and all-reduces of torch."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class LossProbe:
    """Small datagrams from `src` to an echo on `dst`.

    sent: handed to the kernel of `src`; arrived: counted by the echo; answered: answers that came back.
    """

    src: str
    dst: str
    address: str
    sent: int
    arrived: int
    answered: int
    detail: str = ""


@fact("loss", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class LossMatrix:
    """Datagrams over directed pairs, all nodes at once. failed_nodes: whose part did not run, and why."""

    probes: tuple[LossProbe, ...] = ()
    seconds: float = 0.0
    failed_nodes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpRate:
    """Parallel TCP streams from `src` to `dst`, as the receiver counted them.

    gbyte_s: 10^9 bytes per second, None when nothing arrived though both ends took part (`detail` says what
    was seen). spread: interquartile range of the tenths of a second over their median. retransmits of
    segments: as the sender's kernel counted. busy: share of the time that the sender's threads ran or
    wanted to run, or that the receiver's window held them back, the larger one: near 1 a machine, not the
    network, set the rate.
    """

    src: str
    dst: str
    round: int
    gbyte_s: float | None
    seconds: float = 0.0
    spread: float = 0.0
    retransmits: int | None = None
    segments: int | None = None
    rtt_us: int | None = None
    busy: float = 0.0
    detail: str = ""


@fact("tcp_rates", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class TcpRates:
    """Pairs in rounds, one direction at a time.

    nodes: who took part, in order. expected_gbyte_s[node]: what a node's own interface allows, where that is
    known; limited_by[node] names it. rounds of planned: the time budget may end them early. failed_nodes:
    whose part did not run, and why. further[id]: the same on the job's other paths that carry data.
    """

    rates: tuple[TcpRate, ...] = ()
    nodes: tuple[str, ...] = ()
    streams: int = 0
    seconds: float = 0.0
    rounds: int = 0
    planned: int = 0
    expected_gbyte_s: dict[str, float] = field(default_factory=dict)
    limited_by: dict[str, str] = field(default_factory=dict)
    failed_nodes: dict[str, str] = field(default_factory=dict)
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
    """An earlier report to compare with, as given by --baseline.

    source: its file; finished: when that scan ended (RFC 3339). tcp, pairs: rates of bw.tcp and bw.pair
    between nodes of this scan. busbw_gbyte_s: of bw.allreduce, by size in bytes, over so many `ranks`.
    backend: ``nccl`` or ``gloo``, of pairs and all-reduce, '' where the report does not say.
    """

    source: str
    finished: str
    tcp: tuple[BaselineRate, ...] = ()
    pairs: tuple[BaselineRate, ...] = ()
    busbw_gbyte_s: tuple[tuple[int, float], ...] = ()
    ranks: int | None = None
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRate:
    """Messages of torch.distributed from `src` to `dst`; rail: which local rank carried them, with several.

    busy: as in TcpRate, for all threads of the busier end together; 0 with nccl, which spins.
    """

    src: str
    dst: str
    round: int
    gbyte_s: float
    rail: str | None = None
    least_gbyte_s: float = 0.0
    most_gbyte_s: float = 0.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrouble:
    """A rank that did not do its part.

    what: ``import`` (torch cannot be imported), ``device``, ``killed``, ``frozen``, ``exited``, ``silent``
    (its node does not answer), ``files`` (no descriptor left for a connection), ``store`` (cannot reach the
    rendezvous), ``connect`` (cannot form the group), ``stuck`` (alive, and not through in its time),
    ``error``. first: among the first to fail, the others may only echo it.
    """

    node: str
    rank: int
    what: str
    detail: str
    during: str
    first: bool = True


# Of Session.left_out: a node that has nothing for the backend of the others. Other reasons can be mended.
NO_GPU = "it has no GPU that torch could use"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The torch ranks of one experiment.

    backend: ``nccl`` or ``gloo``. ranks: rank to node, in order. ifname[node]: interface that was given to
    the backend; given_by: ``job`` or ``netdoctor``. port: of the rendezvous; port_busy: why it is not the
    job's own.
    left_out: nodes that took no part, with the reason (somebody's process on the GPUs, no address…).
    instead: why it ran on processors though the job computes on GPUs; empty otherwise.
    """

    backend: str = "gloo"
    ranks: tuple[str, ...] = ()
    ifname: dict[str, str] = field(default_factory=dict)
    given_by: str = "netdoctor"
    address: str = ""
    port: int = 0
    port_busy: str | None = None
    torch: str = ""
    start_s: float = 0.0
    left_out: dict[str, str] = field(default_factory=dict)
    trouble: tuple[RankTrouble, ...] = ()
    instead: str = ""


@fact("pair_rates", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class PairRates:
    """Directed pairs of torch.distributed, in rounds.

    expected_gbyte_s, rounds, planned: as in TcpRates, the first with gloo alone: of a node's NICs together
    one GPU has a share that is not known. unread: nodes whose ranks gave an answer that cannot be, and which.
    """

    session: Session = field(default_factory=Session)
    rates: tuple[PairRate, ...] = ()
    rounds: int = 0
    planned: int = 0
    expected_gbyte_s: dict[str, float] = field(default_factory=dict)
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

    nodes, rounds, planned, expected_gbyte_s, limited_by, failed_nodes: as in TcpRates, of one rail. without:
    nodes that have no perftest. troubles: what ended as no rate, by no fault of the way, by pair and rail.
    """

    rates: tuple[PairRate, ...] = ()
    latencies: tuple[RdmaLatency, ...] = ()
    nodes: tuple[str, ...] = ()
    seconds: float = 0.0
    rounds: int = 0
    planned: int = 0
    expected_gbyte_s: dict[str, float] = field(default_factory=dict)
    limited_by: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    failed_nodes: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """All-reduces of one size. Times are those of the slowest rank, per operation, over `batches` of
    `iterations`.

    algbw = size / median time, busbw = algbw x 2 (n - 1) / n, in 10^9 bytes per second (nccl-tests,
    doc/PERFORMANCE.md). spread: (most - least) / median of the batches. wrong: values that were not the
    sum, by node.
    """

    size_bytes: int
    median_s: float
    least_s: float
    most_s: float
    batches: int
    iterations: int
    algbw_gbyte_s: float
    busbw_gbyte_s: float
    wrong: dict[str, int] = field(default_factory=dict)
    first_wrong: str = ""

    @property
    def spread(self) -> float:
        return (self.most_s - self.least_s) / self.median_s if self.median_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclTaken:
    """What NCCL said that its ranks on a node took, in its own words.

    networks: ``IB``, ``Socket``, or a plug-in's name. via: how ranks reach each other, ``NET/IB/GDRDMA``,
    ``NET/Socket``, ``P2P``, ``SHM``. links: between GPUs of a node, ``NVL``, ``PIX``, …
    """

    networks: tuple[str, ...] = ()
    via: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@fact("allreduce", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Sizes from small to large over all ranks.

    solo[node]: the same inside a node with several GPUs. survivors and survivor_rows: once more without the
    nodes that the pairs blamed. expected, floor and bound are derived from the hardware of the nodes: what
    healthy systems reach, what they hardly fall below, what nothing exceeds; limited_by names the term
    that sets them, or says why nothing is known (they are None then). unread: as in PairRates. taken: what
    NCCL said, by node; empty with gloo.
    """

    session: Session = field(default_factory=Session)
    rows: tuple[SizeRow, ...] = ()
    solo: dict[str, tuple[SizeRow, ...]] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()
    survivor_rows: tuple[SizeRow, ...] = ()
    expected_busbw_gbyte_s: float | None = None
    floor_busbw_gbyte_s: float | None = None
    bound_busbw_gbyte_s: float | None = None
    limited_by: str = ""
    solo_floor_gbyte_s: dict[str, float] = field(default_factory=dict)
    taken: dict[str, NcclTaken] = field(default_factory=dict)
    budget_s: float = 0.0
    unread: dict[str, str] = field(default_factory=dict)
