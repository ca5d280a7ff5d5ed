"""What pair measurements say and who can be behind a slow one: data, decided on in netdoctor/localise/."""

from dataclasses import dataclass, field

from netdoctor.compat import StrEnum


class Kind(StrEnum):
    """The level at which something is slow."""

    NODE = "node"
    NIC = "nic"  # one rail of one node
    PATH = "path"  # between two nodes that are both fast with others
    RAIL = "rail"  # rail i on all nodes of a leaf, or of the cluster when `leaf` is None
    LEAF = "leaf"  # everything that touches a leaf, traffic inside it included
    UPLINK = "uplink"  # everything that enters or leaves a leaf; traffic inside it is fast
    SPINE = "spine"  # everything between leaves; traffic inside each is fast
    UNIFORM = "uniform"  # everything, against an expectation


class Side(StrEnum):
    """Which direction is slow, seen from the suspect. Of a path, OUT is first node to second."""

    OUT = "out"
    IN = "in"
    BOTH = "both"
    EITHER = "either"  # no sample told the directions apart


class Certainty(StrEnum):
    """In words: 0.99 and above, 0.9 and above, below."""

    CERTAIN = "certain"
    LIKELY = "likely"
    SUSPECTED = "suspected"


@dataclass(frozen=True, slots=True)
class PairSample:
    """One rate between two nodes."""

    src: str
    dst: str
    # None when the pair ran and moved nothing (a dead path). A pair that did not run, or failed by
    # netdoctor's own fault, has no sample at all.
    value_gbyte_s: float | None
    # ``out`` from src to dst, ``in`` from dst to src, ``both`` when the two were timed as one (an all-reduce,
    # or the slower of both).
    direction: str = "both"
    # Name of the NIC that carried it, the same name on all nodes; None when all rails together did.
    rail: str | None = None
    # Samples of the same pair in the same round share the moment, and count as one observation of it.
    round: int = 0
    # Something else than the network set the rate (a machine's CPU): the way is no slower than this, and may
    # be faster. Such a sample clears, and never accuses.
    at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Somebody that a slow measurement can be blamed on."""

    kind: Kind
    # One for a node or NIC, the two ends of a path, the members that were measured otherwise.
    nodes: tuple[str, ...] = ()
    side: Side = Side.BOTH
    rail: str | None = None
    leaf: str | None = None
    # Its speed as a share of what is healthy; 0.0 when nothing passed. value_gbyte_s and healthy_gbyte_s are
    # medians over the runs that it holds back (None: nothing passed).
    factor: float = 1.0
    value_gbyte_s: float | None = None
    healthy_gbyte_s: float | None = None
    confidence: float = 0.0  # probability against the alternatives that explain the same runs, 0 to 1
    runs: int = 0  # how many runs it holds back
    partners: int = 0  # how many nodes it was met with in them
    groups: tuple[tuple[str, ...], ...] = ()  # of a spine, the nodes of each leaf

    @property
    def certainty(self) -> Certainty:
        if self.confidence >= 0.99:
            return Certainty.CERTAIN
        return Certainty.LIKELY if self.confidence >= 0.9 else Certainty.SUSPECTED

    def holds_back(self, src: str, dst: str) -> bool:
        """Whether what goes from src to dst is slow because of it."""
        if self.kind in (Kind.NODE, Kind.NIC):
            node = self.nodes[0]
            return (src == node and self.side is not Side.IN) or (dst == node and self.side is not Side.OUT)
        if self.kind is Kind.PATH:
            a, b = self.nodes[:2]
            forth, back = (src, dst) == (a, b), (src, dst) == (b, a)
            return (forth and self.side is not Side.IN) or (back and self.side is not Side.OUT)
        if self.kind is Kind.UNIFORM:
            return True
        out, into = src in self.nodes, dst in self.nodes
        if self.kind is Kind.UPLINK:
            return (out and not into and self.side is not Side.IN) or (
                into and not out and self.side is not Side.OUT
            )
        if self.kind is Kind.SPINE:
            leaf = {node: i for i, members in enumerate(self.groups) for node in members}
            return src in leaf and dst in leaf and leaf[src] != leaf[dst]
        if self.kind is Kind.LEAF or self.leaf is not None:
            return out or into
        return out and into

    @property
    def dead(self) -> bool:
        return self.factor == 0.0

    @property
    def target(self) -> str:
        """``n3``, ``n3 rail mlx5_1``, ``n1->n2``, ``n1<->n2``, ``rail mlx5_1 of leaf A``, …"""
        rail = f" rail {self.rail}" if self.rail is not None else ""
        match self.kind:
            case Kind.NODE | Kind.NIC:
                return f"{self.nodes[0]}{rail}"
            case Kind.PATH:
                return f"{self.nodes[0]}{'->' if self.side is Side.OUT else '<->'}{self.nodes[1]}{rail}"
            case Kind.RAIL:
                return f"rail {self.rail}" + (f" of leaf {self.leaf}" if self.leaf is not None else "")
            case Kind.LEAF:
                return f"leaf {self.leaf}"
            case Kind.UPLINK:
                return f"uplink of leaf {self.leaf}"
            case Kind.SPINE:
                return "paths between leaves"
            case Kind.UNIFORM:
                return "every pair"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Several explanations of the same slow runs, none of them far ahead."""

    between: tuple[Suspect, ...]  # best first
    # That nothing is wrong and the moment was bad is one of them, so `between` may hold a single one.
    maybe_passing: bool = False
    # Measuring this pair next tells the first two apart; None when no pair of these nodes can, and `reason`
    # then says why.
    pair: tuple[str, str] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the samples decide."""

    # Worst first; empty together with `undecided` means that nothing measured was slow.
    suspects: tuple[Suspect, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    # Nodes with at least one run at full speed in every direction and rail that it was measured in.
    exonerated: tuple[str, ...] = ()
    # Nodes measured, but only where somebody else was slow; neither cleared nor accused.
    unclear: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()  # nodes asked for that have no sample
    # What pairs without a suspect reach, the peers' figure (None: nothing was measured).
    healthy_gbyte_s: float | None = None
    # Median of measured over expected among those pairs; None without an expectation.
    expected_ratio: float | None = None
    noise: float = 0.0  # scatter of healthy runs, as a share (0.05 is 5 %)
    # pairs_measured of pairs_possible: how many of the undirected pairs were seen; a path that nobody
    # measured cannot be found.
    pairs_measured: int = 0
    pairs_possible: int = 0

    @property
    def clean(self) -> bool:
        return not self.suspects and not self.undecided


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Pairs that share no node and can run at the same time."""

    number: int
    pairs: tuple[tuple[str, str], ...]
    # ``cover``, ``same_leaf``, ``cross_leaf`` for the first rounds, ``settle`` for a follow-up.
    purpose: str = "cover"
    idle: tuple[str, ...] = field(default=())  # nodes that sit this one out
