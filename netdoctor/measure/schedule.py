"""Who measures with whom, and when: rounds of pairs that share no node.

The first rounds follow the circle method: fix one node, turn the others by one seat per round, and after
n - 1 rounds everybody has met everybody once (https://en.wikipedia.org/wiki/Round-robin_tournament). A few of
those rounds already put every node in front of several partners, and that is what tells a slow node from a
slow path. With a topology hint (node to leaf), rounds inside leaves alternate with rounds across them, so
that a leaf's uplink is told from its nodes.

    rounds = list(first_rounds(nodes, leaves, seed=7))
    decision = decode(samples_of(rounds), nodes=nodes, leaves=leaves)
    while (more := follow_up(decision, nodes, rounds, leaves=leaves)) is not None:
        rounds.append(more)
        decision = decode(samples_of(rounds), nodes=nodes, leaves=leaves)

Follow-ups measure only what is still tied, each suspect with a partner that is known to be good.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from netdoctor.facts.localisation import Certainty, Decision, Kind, Round, Suspect

FIRST_ROUNDS = 3
MOST_ROUNDS = 6
# Repairs of a round across leaves give up after so many passes; what is left stays inside its leaf.
REPAIRS = 4

Pair = tuple[str, str]


def first_rounds(
    nodes: Sequence[str],
    leaves: Mapping[str, str] | None = None,
    *,
    seed: int = 0,
    rounds: int = FIRST_ROUNDS,
) -> tuple[Round, ...]:
    """Up to `rounds` rounds in which no pair comes twice; fewer when the nodes have no more pairs.

    With `leaves`, the first, third, … round crosses leaves, the others stay inside, as far as the leaves'
    sizes allow. An odd number of nodes leaves a different one idle each time. The same arguments give the
    same rounds.
    """
    nodes = list(dict.fromkeys(nodes))
    rng = random.Random(seed)  # noqa: S311  a schedule, not a secret
    if len(nodes) < 2:
        return ()
    rounds = min(rounds, len(nodes) - 1 + len(nodes) % 2)
    # A hint that misses a node, or that knows one leaf only, cannot arrange anything.
    if leaves is None or len({leaves.get(n, n) for n in nodes}) in (1, len(nodes)):
        seats = nodes[:]
        rng.shuffle(seats)
        turns = rng.sample(range(len(nodes) - 1 + len(nodes) % 2), rounds)
        return tuple(_round(i, circle(seats, turn), nodes, "cover") for i, turn in enumerate(turns))
    leaf_of = {n: leaves.get(n, f"\0{n}") for n in nodes}
    used: set[frozenset[str]] = set()
    scheduled: list[Round] = []
    for number in range(rounds):
        across = number % 2 == 0
        pairs = (_across if across else _inside)(nodes, leaf_of, used, rng)
        if not pairs:
            break
        used.update(frozenset(pair) for pair in pairs)
        scheduled.append(_round(number, pairs, nodes, "cross_leaf" if across else "same_leaf"))
    return tuple(scheduled)


def circle(seats: Sequence[str], turn: int) -> list[Pair]:
    """Round `turn` of the circle method; with an odd number of seats one node has nobody opposite."""
    ring: list[str | None] = list(seats)
    if len(ring) % 2:
        ring.append(None)
    rest = ring[1:]
    turn %= max(len(rest), 1)
    table = [ring[0], *rest[turn:], *rest[:turn]]
    opposite = zip(table[: len(table) // 2], reversed(table[len(table) // 2 :]), strict=True)
    return [(a, b) for a, b in opposite if a is not None and b is not None]


def follow_up(
    decision: Decision,
    nodes: Sequence[str],
    done: Sequence[Round],
    *,
    at_most: int = MOST_ROUNDS,
    leaves: Mapping[str, str] | None = None,
    doubtful: Sequence[Pair] = (),
) -> Round | None:
    """The next round, or None when all is decided, nothing can be decided, or `at_most` rounds are done.

    In order: what is undecided, suspects that are not yet certain, nodes that nothing clears or accuses.
    Suspects meet partners that are exonerated and new to them; a path is measured again as it is. Everybody
    else rests. doubtful: pairs of rounds done that one moment is not enough for (slower than in a baseline,
    or without a sample through no fault of theirs); they are measured once more.
    """
    if len(done) >= at_most:
        return None
    number = max((r.number for r in done), default=-1) + 1
    plan = _FollowUp(decision, nodes, done, leaves or {})
    for tie in decision.undecided:
        if tie.pair is None:
            continue  # no pair of these nodes would tell
        for suspect in tie.between:
            plan.examine(suspect)
        plan.add(*tie.pair)
    for suspect in decision.suspects:
        if suspect.certainty is not Certainty.CERTAIN:
            plan.examine(suspect)
    # What would not be measured twice stays as it is.
    tries = Counter(frozenset(pair) for one in done for pair in one.pairs)
    for pair in doubtful:
        if tries[frozenset(pair)] < 2:
            plan.add(*pair)
    settled = Counter(n for one in done if one.purpose == "settle" for pair in one.pairs for n in pair)
    for node in (*decision.unclear, *decision.unmeasured):
        if settled[node] < 2:
            plan.meet(node, plan.free)
    if not plan.pairs:
        return None
    return _round(number, plan.pairs, list(nodes), "settle")


class _FollowUp:
    """A round under construction: who is taken, who may serve as partner."""

    def __init__(
        self, decision: Decision, nodes: Sequence[str], done: Sequence[Round], leaves: Mapping[str, str]
    ) -> None:
        self.pairs: list[Pair] = []
        self.leaves = leaves
        self.met = {frozenset(pair) for one in done for pair in one.pairs}
        accused = [c for tie in decision.undecided for c in tie.between] + list(decision.suspects)
        suspects = {n for c in accused if c.kind in (Kind.NODE, Kind.NIC, Kind.PATH) for n in c.nodes}
        doubtful = {c.leaf for c in accused if c.leaf is not None}
        good = set(decision.exonerated)
        # Good and in nobody's case, then good, then whoever is left.
        order = sorted(nodes, key=lambda n: (n not in good, n in suspects))
        # Who is still free: of all, of leaves that nobody suspects, and by leaf.
        self.free = dict.fromkeys(order)
        self.beyond = dict.fromkeys(n for n in order if leaves.get(n) not in doubtful)
        self.inside: dict[str | None, dict[str, None]] = {}
        for node in order:
            self.inside.setdefault(leaves.get(node), {})[node] = None

    def add(self, a: str, b: str) -> None:
        if a != b and a in self.free and b in self.free:
            for node in (a, b):
                del self.free[node], self.inside[self.leaves.get(node)][node]
                self.beyond.pop(node, None)
            self.pairs.append((a, b))

    def meet(self, node: str, partners: Iterable[str]) -> None:
        """Pair `node` with the best partner among those free that is new to it, or with the best."""
        if node not in self.free:
            return
        best = None
        for partner in partners:
            if partner == node:
                continue
            if frozenset((node, partner)) not in self.met:
                self.add(node, partner)
                return
            best = best or partner
        if best is not None:
            self.add(node, best)

    def examine(self, suspect: Suspect) -> None:
        if suspect.kind is Kind.PATH:
            self.add(*suspect.nodes)
        elif suspect.kind in (Kind.NODE, Kind.NIC):
            self.meet(suspect.nodes[0], self.free)
        elif suspect.kind in (Kind.LEAF, Kind.UPLINK, Kind.RAIL) and suspect.leaf is not None:
            # Half of its members with each other, half with leaves that nobody suspects.
            inside = self.inside.get(suspect.leaf, {})
            for i, node in enumerate(suspect.nodes[:8]):
                self.meet(node, self.beyond if i % 2 == 0 else inside)


def _round(number: int, pairs: Sequence[Pair], nodes: Sequence[str], purpose: str) -> Round:
    busy = {n for pair in pairs for n in pair}
    return Round(
        number=number, pairs=tuple(pairs), purpose=purpose, idle=tuple(n for n in nodes if n not in busy)
    )


def _inside(
    nodes: Sequence[str], leaf_of: Mapping[str, str], used: set[frozenset[str]], rng: random.Random
) -> list[Pair]:
    """The circle method within each leaf; those left over meet each other."""
    leaves: dict[str, list[str]] = {}
    for node in nodes:
        leaves.setdefault(leaf_of[node], []).append(node)
    pairs: list[Pair] = []
    left: list[str] = []
    for members in leaves.values():
        turns = list(range(len(members) - 1 + len(members) % 2))
        rng.shuffle(turns)
        best: list[Pair] = []
        for turn in turns:
            fresh = [p for p in circle(members, turn) if frozenset(p) not in used]
            if len(fresh) > len(best):
                best = fresh
            if len(best) == len(members) // 2:
                break
        pairs += best
        busy = {n for pair in best for n in pair}
        left += [n for n in members if n not in busy]
    rng.shuffle(left)
    return pairs + _pair_up(left, used)


def _across(
    nodes: Sequence[str], leaf_of: Mapping[str, str], used: set[frozenset[str]], rng: random.Random
) -> list[Pair]:
    """Leaf after leaf in a row, its first half against its second, then repaired by swaps."""
    leaves: dict[str, list[str]] = {}
    for node in rng.sample(nodes, len(nodes)):
        leaves.setdefault(leaf_of[node], []).append(node)
    row = [n for members in sorted(leaves.values(), key=len, reverse=True) for n in members]
    half = len(row) // 2
    # Half a row apart nobody shares a leaf that holds less than half of them. The second half is shuffled, or
    # one leaf would meet one other only, and no round could tell their uplinks apart.
    pairs = list(zip(row[:half], rng.sample(row[half : 2 * half], half), strict=True))

    def bad(a: str, b: str) -> bool:
        return leaf_of[a] == leaf_of[b] or frozenset((a, b)) in used

    for _ in range(REPAIRS):
        wrong = [i for i, pair in enumerate(pairs) if bad(*pair)]
        if not wrong:
            break
        for i in wrong:
            a, b = pairs[i]
            for j in rng.sample(range(half), min(half, 32)):
                c, d = pairs[j]
                if i != j and not bad(a, d) and not bad(c, b):
                    pairs[i], pairs[j] = (a, d), (c, b)
                    break
    fresh = [pair for pair in pairs if frozenset(pair) not in used]
    busy = {n for pair in fresh for n in pair}
    return fresh + _pair_up([n for n in nodes if n not in busy], used)


def _pair_up(left: Sequence[str], used: set[frozenset[str]]) -> list[Pair]:
    """Pairs among those left over that did not meet before."""
    waiting = dict.fromkeys(left)
    pairs: list[Pair] = []
    while waiting:
        a, _ = waiting.popitem()
        b = next((b for b in waiting if frozenset((a, b)) not in used), None)
        if b is not None:
            del waiting[b]
            pairs.append((a, b))
    return pairs
