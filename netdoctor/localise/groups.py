"""The groups that a job divides its ranks into, and what makes some of them slower than their peers. Pure."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import NamedTuple

from netdoctor.compat import StrEnum
from netdoctor.facts.bandwidth import GroupRate
from netdoctor.localise.storage import lower_bound

# Ways to divide a job, as Megatron-LM's options of these names; etp divides the experts' tensors.
NAMES = ("tp", "cp", "pp", "dp", "ep", "etp")
MOST_RANKS = 65_536
_PART = re.compile(r"\s*([a-z]+)\s*=\s*([0-9]{1,5})\s*")


def parse(text: str) -> dict[str, int]:
    """``tp=8,pp=2`` as numbers. ValueError says what is wrong with it."""
    found: dict[str, int] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or match[1] not in NAMES or not 1 <= int(match[2]) <= MOST_RANKS:
            raise ValueError(f"{part.strip()[:40]!r} is not one of {'=N, '.join(NAMES)}=N")
        if match[1] in found:
            raise ValueError(f"{match[1]} is given twice")
        found[match[1]] = int(match[2])
    return found


class Division(NamedTuple):
    """Ranks in groups of `size`, which are `stride` apart."""

    stride: int
    size: int

    def groups(self, world: int) -> list[tuple[int, ...]]:
        """All of them: together the `world` ranks."""
        block = self.stride * self.size
        return [
            tuple(range(first + at, first + block, self.stride))
            for first in range(0, world, block)
            for at in range(self.stride)
        ]


def layout(world: int, sizes: Mapping[str, int]) -> dict[str, Division]:
    """How `world` ranks are divided, by kind, groups of one rank left out.

    Tensor parallel ranks are neighbours, then context, then data; stages of the pipeline are furthest apart:
    Megatron-LM's default order (tp-cp-ep-dp-pp), DeepSpeed's and torchtitan's. A dp group has all ranks that
    share gradients, those of cp among them. Experts are divided by their own etp (default: tp), then ep.
    ValueError where the ranks cannot be divided so.
    """
    tp, cp, pp, ep = (sizes.get(name, 1) for name in ("tp", "cp", "pp", "ep"))
    etp = sizes.get("etp", tp)
    for product, names in ((tp * cp * pp, ("tp", "cp", "pp")), (etp * ep * pp, ("etp", "ep", "pp"))):
        if world % product:
            given = " x ".join(f"{name}={sizes[name]}" for name in names if name in sizes)
            raise ValueError(f"{given or f'tp={tp}'} does not divide {world} ranks")
    dp = world // (tp * cp * pp)
    if sizes.get("dp", dp) != dp:
        raise ValueError(f"dp={sizes['dp']} does not fit: {world} ranks leave dp={dp}")
    found = {
        "tp": Division(1, tp),
        "cp": Division(tp, cp),
        "dp": Division(tp, cp * dp),
        "ep": Division(etp, ep),
        "pp": Division(world // pp, pp),
    }
    return {kind: division for kind, division in found.items() if division.size > 1}


class Blame(StrEnum):
    """What the slow groups have in common."""

    NODE = "node"  # a node that is in each of them, and in no other that leaves its node
    RAIL = "rail"  # one rank of each node, always of the same number
    GROUP = "group"  # nothing else: what lies between the nodes of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Groups that are slow, worst first, each time they were measured.

    nodes: who is to blame with NODE, else the nodes of the slowest. rail: its number, with RAIL. peers: the
    typical rate of the worst group's peers, in GB/s.
    """

    blame: Blame
    groups: tuple[GroupRate, ...]
    nodes: tuple[str, ...]
    peers: float
    rail: int = -1


def behind(rates: Sequence[GroupRate], world: Sequence[str], *, again: bool = False) -> list[GroupRate]:
    """Groups that are slower than others of their kind that lie over nodes as they do.

    world: the node of each rank. again: by their second measurement, too, without which none is slow.
    """
    found = []
    for same in peer_groups(rates, world).values():
        bound = lower_bound([one.gbyte_s for one in same])
        bound_again = lower_bound([one.again_gbyte_s for one in same if one.again_gbyte_s])
        for one in same:
            if one.gbyte_s < bound and (not again or 0 < one.again_gbyte_s < bound_again):
                found.append(one)
    return found


def peer_groups(
    rates: Sequence[GroupRate], world: Sequence[str]
) -> dict[tuple[str, tuple[int, ...]], list[GroupRate]]:
    """Groups that can be compared: of one kind, with as many ranks on as many nodes."""
    found: dict[tuple[str, tuple[int, ...]], list[GroupRate]] = {}
    for one in rates:
        counts = Counter(world[rank] for rank in one.ranks)
        found.setdefault((one.kind, tuple(sorted(counts.values()))), []).append(one)
    return found


def judge(rates: Sequence[GroupRate], world: Sequence[str]) -> Slow | None:
    """What makes groups slow, None where none is."""
    slow = behind(rates, world, again=True)
    if not slow:
        return None
    shares = _shares(rates, world)
    slow.sort(key=lambda one: shares[one.kind, one.ranks])
    nodes = [frozenset(world[rank] for rank in one.ranks) for one in slow]
    slow_ranks = {(one.kind, one.ranks) for one in slow}
    # Ranks of groups that leave their node and are fine.
    fine = {
        rank
        for one in rates
        if (one.kind, one.ranks) not in slow_ranks and len({world[rank] for rank in one.ranks}) > 1
        for rank in one.ranks
    }
    well = {world[rank] for rank in fine}
    peers = slow[0].gbyte_s / max(shares[slow[0].kind, slow[0].ranks], 1e-9)
    common = frozenset.intersection(*nodes)
    # Groups within a node are that node's; of those that leave it, one alone names nobody.
    blamed = common if all(len(one) == 1 for one in nodes) else common - well
    if len(blamed) == 1 and (len(slow) > 1 or len(nodes[0]) == 1):
        return Slow(blame=Blame.NODE, groups=tuple(slow), nodes=tuple(blamed), peers=peers)
    local = local_numbers(world)
    numbers = {local[rank] for one in slow for rank in one.ranks}
    others = {local[rank] for rank in fine}
    names = tuple(dict.fromkeys(world[rank] for rank in slow[0].ranks))
    if len(numbers) == 1 and max(local) > 0 and not numbers & others and len(names) > 1:
        return Slow(blame=Blame.RAIL, groups=tuple(slow), nodes=names, peers=peers, rail=numbers.pop())
    return Slow(blame=Blame.GROUP, groups=tuple(slow), nodes=names, peers=peers)


def local_numbers(world: Sequence[str]) -> list[int]:
    """The number of each rank on its node."""
    counts: Counter[str] = Counter()
    found = []
    for node in world:
        found.append(counts[node])
        counts[node] += 1
    return found


def _shares(rates: Sequence[GroupRate], world: Sequence[str]) -> dict[tuple[str, tuple[int, ...]], float]:
    """The rate of each group, of the typical rate of its peers: of two the faster, as of `lower_bound`."""
    found = {}
    for same in peer_groups(rates, world).values():
        typical = median_high([one.gbyte_s for one in same]) or math.inf
        found.update({(one.kind, one.ranks): one.gbyte_s / typical for one in same})
    return found
