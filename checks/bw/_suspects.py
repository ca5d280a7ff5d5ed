"""The localiser's suspects behind slow pairs, derived once for every check that asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.check import derived
from netdoctor.facts.bandwidth import PairRates, RdmaRates, TcpRates
from netdoctor.facts.host import Node
from netdoctor.facts.localisation import Decision
from netdoctor.localise import decide


@dataclass(frozen=True, slots=True)
class TcpSuspects:
    """What TCP rates say; without rates nothing is decided. further: of the job's other paths, by id."""

    decision: Decision
    further: Mapping[str, Decision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairSuspects:
    """What torch's rates of pairs say; without rates nothing is decided."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class RdmaSuspects:
    """What rates of RDMA writes say; without rates nothing is decided."""

    decision: Decision


@derived
def rdma_suspects(rates: RdmaRates, listed: Mapping[str, Node] | None) -> RdmaSuspects:
    """The localiser's reading of bw.rdma."""
    return RdmaSuspects(decide(rates, _leaves(listed)))


@derived
def tcp_suspects(tcp: TcpRates, listed: Mapping[str, Node] | None) -> TcpSuspects:
    """The localiser's reading of bw.tcp."""
    leaves = _leaves(listed)
    return TcpSuspects(decide(tcp, leaves), {name: decide(one, leaves) for name, one in tcp.further.items()})


@derived
def pair_suspects(pairs: PairRates, listed: Mapping[str, Node] | None) -> PairSuspects:
    """The localiser's reading of bw.pair."""
    return PairSuspects(decide(pairs, _leaves(listed)))


def _leaves(listed: Mapping[str, Node] | None) -> dict[str, str]:
    return {name: node.leaf for name, node in (listed or {}).items() if node.leaf is not None}
