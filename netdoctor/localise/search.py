"""The search for the cheapest set of suspects: state, costs and moves."""

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from netdoctor.facts.localisation import Kind
from netdoctor.localise.hypotheses import LOCAL, Hypothesis, hypotheses, rarity
from netdoctor.localise.noise import USUAL_NOISE, edge, mode, scale, spread
from netdoctor.localise.samples import DEAD, Class, Data, framed

CASUAL = -math.log(0.02)
WONDER = 12.0
# Alternatives that are e^-7 as likely change no confidence that is printed.
FAR = 7.0


@dataclass(slots=True)
class Solution:
    """A set of suspects with what follows from it."""

    mu: list[float]  # mu[sample]: how far the slowest of them holds it back, 0 or less
    cost: list[float]  # cost[run]: in nats
    # chosen[hypothesis]: its factor, as a logarithm, and the price of having it.
    chosen: dict[Hypothesis, tuple[float, float]] = field(default_factory=dict)

    def copy(self) -> "Solution":
        return Solution(self.mu.copy(), self.cost.copy(), self.chosen.copy())


class Search:
    """Hypotheses over the samples, and the solution that is being improved."""

    def __init__(self, data: Data, noise: tuple[float, float], casual: float, least_effect: float) -> None:
        self.data = data
        self.above, self.sigma = noise
        self.spread = spread(data.by_node(), self.sigma)
        self.casual = casual
        # How far what suspects hold back wavers: a link at its limit does so more than one that is idle.
        self.waver = 0.0
        # A moment slows the samples of a run together. While suspects are looked for it is priced per sample,
        # or one moment would hide that the same two NICs are slow in every run of a node: either alone saves
        # nothing.
        self.together = False
        self.most = math.log(least_effect)
        self.cover = hypotheses(data, min(-2.0 * self.sigma, self.most))
        self.at_run: dict[int, list[Hypothesis]] = {}
        self.wide = [hypothesis for hypothesis in self.cover if hypothesis.kind not in LOCAL]
        for hypothesis, runs in self.cover.items():
            for run in runs if hypothesis.kind in LOCAL else ():
                self.at_run.setdefault(run, []).append(hypothesis)
        self.now = Solution(mu=[0.0] * len(data.y), cost=[])
        self._price_runs()

    # -- costs ---------------------------------------------------------------------------------------------

    def _price_runs(self) -> None:
        self.now.cost = [self._run_cost(run) for run in range(len(self.data.runs))]

    def _run_cost(self, run: int, covered: Collection[int] = (), f: float = 0.0) -> float:
        """The cost of one run, were the samples in `covered` held back to `f` as well."""
        data, mu, sigma, above = self.data, self.now.mu, self.sigma, self.above
        floor = data.at_least
        total = 0.0
        low: list[float] = []
        for s in data.runs[run]:
            m = mu[s]
            if f < m and s in covered:
                m = f
            z = data.d[s] - m
            if z > 0.0:
                # What a suspect holds back wavers about its own level both ways.
                width = above if m == 0.0 else sigma
                total += min(z * z / (2.0 * width * width), WONDER)
                continue
            if floor[s]:
                continue
            z /= sigma
            if z < -2.0:
                low.append(z)
            else:
                total += z * z / 2.0
        return total + self._low_cost(low) if low else total

    def _low_cost(self, low: list[float]) -> float:
        """Slow samples of one run: noise, or a bad moment that slowed some of them down by one factor."""
        plain = sum(z * z for z in low) / 2.0
        centre = sorted(low)[len(low) // 2]
        if not self.together:
            price = self.casual + self._factor_price(1)
            return math.fsum(min(z * z / 2.0, price) for z in low)
        moment = sum(min(z * z, (z - centre) ** 2) for z in low) / 2.0
        return min(plain, self.casual + self._factor_price(len(low)) + moment)

    def is_moment(self, run: int) -> bool:
        """Whether a bad moment explains this run better than noise does."""
        data = self.data
        zs = [(data.d[s] - self.now.mu[s]) / self.sigma for s in data.runs[run] if not data.at_least[s]]
        low = [z for z in zs if z < -2.0]
        return bool(low) and self._low_cost(low) < sum(z * z for z in low) / 2.0 - 1e-9

    def bad_moments(self) -> float:
        """-log of the share of runs that were bad moments, drawn to CASUAL while there are few runs.

        A pair counts once: that it is slow again is what tells a fault from moments, not a sign of more of
        them.
        """
        runs = len(self.data.runs)
        first = (self.data.runs[run][0] for run in range(runs) if self.is_moment(run))
        count = len({frozenset((self.data.u[s], self.data.v[s])) for s in first})
        return min(-math.log((count + 1.0) / (runs + 50.0)), CASUAL)

    def _factor_price(self, count: int) -> float:
        """log(range / width) of a factor that `count` samples estimate."""
        return max(math.log(-DEAD * math.sqrt(count) / (2.5 * self.sigma)), 0.5)

    def total(self) -> float:
        """Cost in nats, up to a constant of the samples; narrower noise is denser."""
        # Samples at DEAD were cut there, and their fit says nothing about noise; nor do floors.
        count = sum(d > DEAD and not f for d, f in zip(self.data.d, self.data.at_least, strict=True))
        density = count * math.log((self.above + self.sigma) / 2.0)
        # A run that is no bad moment costs the surprise that it is none, the dearer the more there are.
        quiet = -len(self.data.runs) * math.log1p(-math.exp(-self.casual))
        # Noise far wider than usual, or far wider below than above, is a bold claim as well.
        bold = math.log(self.sigma / USUAL_NOISE) ** 2 / 4.5 + math.log(self.sigma / self.above) ** 2 / 2.0
        prices = math.fsum(price for _, price in self.now.chosen.values())
        return math.fsum(self.now.cost) + prices + density + quiet + bold

    # -- moves ---------------------------------------------------------------------------------------------

    def fit(self, hypothesis: Hypothesis) -> tuple[float, int] | None:
        """The factor that suits the samples which nobody else explains, and how many those are."""
        d, mu, margin = self.data.d, self.now.mu, 3.0 * self.sigma
        clear_of = max(margin, 3.0 * self.waver)
        open_ = sorted(
            d[s]
            for covered in self.cover[hypothesis].values()
            for s in covered
            if (mu[s] == 0.0 or d[s] < mu[s] - clear_of) and not self.data.at_least[s]
        )
        if not open_:
            return None
        middle = open_[len(open_) // 2]
        if middle > self.most:
            return None
        near = [x for x in open_ if abs(x - middle) <= 1.5 * margin]
        f = math.fsum(near) / len(near)
        return (f, len(near)) if f <= self.most else None

    def _wavering(self) -> float:
        """Width of what suspects hold back, about their own level."""
        samples = zip(self.data.d, self.now.mu, self.data.at_least, strict=True)
        distances = [abs(d - m) for d, m, floor in samples if m < 0.0 and not floor and d > DEAD]
        return scale(distances) if len(distances) > 3 else 0.0

    def gain(self, hypothesis: Hypothesis) -> tuple[float, float, float]:
        """How much the cost falls, the factor, and the price included."""
        fitted = self.fit(hypothesis)
        if fitted is None:
            return -math.inf, 0.0, 0.0
        f, count = fitted
        price = rarity(hypothesis, len(self.data.names)) + self._factor_price(count)
        saved = 0.0
        for run, covered in self.cover[hypothesis].items():
            saved += self.now.cost[run] - self._run_cost(run, covered, f)
        return round(min(saved, self._ordinary(hypothesis, f)) - price, 9), f, price

    def _ordinary(self, hypothesis: Hypothesis, f: float) -> float:
        """What it costs to call a node that runs at `f` an ordinary one, given how much nodes differ here."""
        if hypothesis.kind not in (Kind.NODE, Kind.NIC) or self.spread == 0.0:
            return math.inf
        return f * f / (2.0 * self.spread**2)

    def add(self, hypothesis: Hypothesis, f: float, price: float) -> None:
        now = self.now
        now.chosen[hypothesis] = (f, price)
        for run, covered in self.cover[hypothesis].items():
            for s in covered:
                now.mu[s] = min(now.mu[s], f)
            now.cost[run] = self._run_cost(run)

    def remove(self, hypothesis: Hypothesis) -> None:
        now = self.now
        del now.chosen[hypothesis]
        for run, covered in self.cover[hypothesis].items():
            others = [
                (f, samples)
                for other, (f, _) in now.chosen.items()
                if (samples := self.cover[other].get(run)) is not None
            ]
            for s in covered:
                now.mu[s] = min((f for f, samples in others if s in samples), default=0.0)
            now.cost[run] = self._run_cost(run)

    def near(self, hypothesis: Hypothesis) -> dict[Hypothesis, None]:
        """Every hypothesis that shares a run with this one, itself included."""
        runs = self.cover[hypothesis]
        found: dict[Hypothesis, None] = {}
        if hypothesis.kind in LOCAL:
            for run in runs:
                found.update(dict.fromkeys(self.at_run.get(run, ())))
            found.update(dict.fromkeys(w for w in self.wide if not self.cover[w].keys().isdisjoint(runs)))
            return found
        # A wide one is weighed against other wide ones, and against the local ones that explain most of it.
        found.update(dict.fromkeys(self.wide))
        for run in list(runs)[:200]:
            found.update(dict.fromkeys(self.at_run.get(run, ())))
        return found

    def greedy(self, pool: Iterable[Hypothesis], at_most: int) -> int:
        """Add the best of `pool` until none helps; how many were added."""
        allowed = dict.fromkeys(pool)
        order = {hypothesis: i for i, hypothesis in enumerate(allowed)}
        version = dict.fromkeys(allowed, 0)
        heap: list[tuple[float, int, int, Hypothesis]] = []

        def push(hypothesis: Hypothesis) -> None:
            saved = self.gain(hypothesis)[0]
            if saved > 0.0:
                heapq.heappush(heap, (-saved, order[hypothesis], version[hypothesis], hypothesis))

        for hypothesis in allowed:
            if hypothesis not in self.now.chosen:
                push(hypothesis)
        added = 0
        stale: set[Hypothesis] = set()
        while heap and added < at_most:
            _, _, pushed, hypothesis = heapq.heappop(heap)
            if pushed != version[hypothesis]:
                continue
            if hypothesis in stale:
                stale.discard(hypothesis)
                version[hypothesis] += 1
                push(hypothesis)
                continue
            saved, f, price = self.gain(hypothesis)
            if saved <= 0.0:
                continue
            self.add(hypothesis, f, price)
            added += 1
            for other in self.near(hypothesis):
                if other in self.now.chosen or other not in allowed:
                    continue
                if other.kind in LOCAL:
                    version[other] += 1
                    push(other)
                else:
                    stale.add(other)  # weighed again when its turn comes
        return added

    def solve(self) -> None:
        most = len(self.data.names) + 8
        self.greedy(self.cover, most)
        self.together = True
        self.waver = self._wavering()
        self._price_runs()
        for _ in range(4):
            if not self._polish():
                break
        self.greedy(self.cover, most)

    def _polish(self) -> bool:
        """Refit each suspect, and put something better or nothing in its place; whether that changed
        anything."""
        changed = False
        for hypothesis in list(self.now.chosen):
            if hypothesis not in self.now.chosen:
                continue
            self.remove(hypothesis)
            best: tuple[float, Hypothesis, float, float] | None = None
            for other in self.near(hypothesis):
                if other in self.now.chosen:
                    continue
                saved, f, price = self.gain(other)
                if saved > 0.0 and (
                    best is None or saved > best[0] + 1e-6 or (saved > best[0] - 1e-6 and other == hypothesis)
                ):
                    best = (saved, other, f, price)
            if best is None:
                changed = True
            else:
                changed |= best[1] != hypothesis
                self.add(*best[1:])
        return changed

    def alternatives(self, hypothesis: Hypothesis) -> list[tuple[float, Hypothesis | None]]:
        """What else could stand in its place: (cost above the present one, substitute or None for
        nothing)."""
        now, before = self.total(), self.now.copy()
        f, price = before.chosen[hypothesis]
        self.remove(hypothesis)
        without = self.total()
        ordinary = self._ordinary(hypothesis, f) - price
        found: list[tuple[float, Hypothesis | None]] = [(min(without - now, ordinary), None)]
        for other in self.near(hypothesis):
            if other != hypothesis and other not in self.now.chosen:
                saved = self.gain(other)[0]
                if without - saved - now < FAR:
                    found.append((without - saved - now, other))
        # Several smaller ones together.
        smaller = (o for o in self.near(hypothesis) if o != hypothesis and o.kind in LOCAL)
        if self.greedy(smaller, 8) > 1:
            first = next(o for o in self.now.chosen if o not in before.chosen)
            found.append((self.total() - now, first))
        self.now = before
        return sorted(found, key=lambda pair: pair[0])


def searches(data: Data, least_effect: float) -> list[Search]:
    """A few solutions that differ in what they take for healthy, the cheapest first.

    First the crowd below the nodes' best samples; then what the suspects of that leave uncovered; then the
    middle of everything, with a noise that covers it (on a noisy network a handful of suspects explains any
    few samples); then what lies above the widest gap, with the noise seen there.
    """

    def solved(bases: Mapping[Class, float], casual: float, healthy: Sequence[int] | None = None) -> Search:
        """`healthy`: the samples whose deviations below the base are noise; None: as much as above it."""
        measured, above = framed(data, bases)
        below = scale([-measured.d[s] for s in healthy or () if DEAD < measured.d[s] < 0.0])
        search = Search(measured, (above, max(above, below)), casual, least_effect)
        search.solve()
        return search

    members: dict[Class, list[int]] = {}
    for s, cls in enumerate(data.cls):
        if data.y[s] > -math.inf and not data.at_least[s]:
            members.setdefault(cls, []).append(s)
    crowd = {
        c: mode(sorted(data.y[s] for s in samples), start(data, samples)) for c, samples in members.items()
    }
    best = solved(crowd, CASUAL)
    casual = best.bad_moments()
    if not best.now.chosen and casual == CASUAL:
        return [best]
    everything = [s for samples in members.values() for s in samples]
    middle = {c: median(data.y[s] for s in samples) for c, samples in members.items()}
    found = [best, *(solved(bases, casual, everything) for bases in (crowd, middle))]
    edges = {c: edge(sorted(data.y[s] for s in samples)) for c, samples in members.items()}
    upper = [s for s in everything if data.y[s] >= edges[data.cls[s]]]
    above = {c: median(data.y[s] for s in upper if data.cls[s] == c) for c in members}
    found.append(solved(above, casual, upper))
    found.sort(key=Search.total)
    best = found[0]
    for _ in range(2):
        free = [s for s in everything if best.now.mu[s] == 0.0]
        bases = {
            c: median([data.y[s] for s in free if data.cls[s] == c] or [best.data.base[c]]) for c in members
        }
        again = solved(bases, best.bad_moments(), free)
        if again.total() >= best.total() - 1.0:
            break
        best = again
        found.insert(0, again)
    return found


def start(data: Data, members: Sequence[int]) -> float:
    """Upper third of the nodes' best samples: healthy, unless more than two thirds of the nodes are slow."""
    best: dict[int, float] = {}
    for s in members:
        y = data.y[s]
        for node in (data.u[s], data.v[s]):
            if y > best.get(node, -math.inf):
                best[node] = y
    return sorted(best.values())[int(0.7 * (len(best) - 1))]
