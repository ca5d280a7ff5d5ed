"""How often the localiser names the suspect, on simulated clusters.

    localiser.py [--hosts 8,16,64,256,1024] [--noise 0,0.05,0.1] [--trials 200] [--missing 0.0] [--only TEXT]

One line per kind of trouble, size and noise: the share of seeded trials in which exactly the injected faults
were named, no more and no less; the share in which somebody healthy was blamed, or in which the truth is
listed in a tie; rounds used; time of the slowest single decode. The exit status is 1 when a bar of the
acceptance is missed.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.localiser import simulator

# Sizes above this one get fewer trials: the answer does not change, the time does.
FULL_TRIALS_UP_TO = 64
BARS = {0: 0.99, 1: 0.95, 2: 0.90}  # by the number of faults at once


@dataclass(frozen=True)
class Row:
    name: str
    hosts: int
    noise: float
    trials: int
    right: int
    wrong: int
    tied: int
    rounds: float
    most_rounds: int
    decode_s: float

    def __str__(self) -> str:
        low, high = interval(self.right, self.trials)
        return (
            f"{self.name:24} {self.hosts:5} {self.noise:5.0%} {self.trials:6} {self.right / self.trials:7.1%}"
            f"  {low:4.0%}-{high:4.0%} {self.wrong / self.trials:7.1%} {self.tied / self.trials:6.1%}"
            f" {self.rounds:7.2f} {self.most_rounds:4} {self.decode_s * 1000:9.0f}"
        )


HEAD = (
    f"{'trouble':24} {'hosts':>5} {'noise':>5} {'trials':>6} {'right':>7}  {'95 % in':>9}"
    f" {'wrong':>7} {'tied':>6} {'rounds':>7} {'most':>4} {'decode ms':>9}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--hosts", type=numbers, default=[8, 16, 64, 256, 1024])
    parser.add_argument("--noise", type=numbers, default=[0.0, 0.05, 0.10])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--missing", type=float, default=0.0, help="share of runs without a sample")
    parser.add_argument("--only", default="", help="troubles whose name contains this")
    asked = parser.parse_args()
    print(f"Runs without a sample: {asked.missing:.0%}. Slow means 0.2 to 0.7 of full speed.\n")
    print(HEAD)
    missed: list[str] = []
    for row in rows(asked):
        print(row, flush=True)
        missed += [f"{row.name}, {row.hosts} hosts, noise {row.noise:.0%}: {bar}" for bar in bars(row)]
    print()
    print("\n".join(f"MISSED {line}" for line in missed) or "Every bar of the acceptance is met.")
    return 1 if missed else 0


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    for name, trouble in simulator.TROUBLES.items():
        if asked.only not in name:
            continue
        for hosts in map(int, asked.hosts):
            trials = asked.trials if hosts <= FULL_TRIALS_UP_TO else max(asked.trials // 10, 5)
            for noise in asked.noise:
                yield measured(name, trouble, hosts, noise, trials, asked.missing)


def measured(
    name: str, trouble: simulator.Trouble, hosts: int, noise: float, trials: int, missing: float
) -> Row:
    outcomes = [simulator.trial(trouble, hosts, noise, seed, missing=missing) for seed in range(trials)]
    return Row(
        name=name,
        hosts=hosts,
        noise=noise,
        trials=trials,
        right=sum(o.right for o in outcomes),
        wrong=sum(blames_healthy(o) for o in outcomes),
        tied=sum(in_a_tie(o) for o in outcomes),
        rounds=sum(o.rounds for o in outcomes) / trials,
        most_rounds=max(o.rounds for o in outcomes),
        decode_s=max(o.slowest_decode_s for o in outcomes),
    )


def blames_healthy(outcome: simulator.Outcome) -> bool:
    """Whether something is named that was not injected; a right node with the wrong side is not healthy."""
    injected = {entity(name) for name in (f.name for f in outcome.faults)}
    return any(entity(simulator.named(c)) not in injected for c in outcome.decision.suspects)


def in_a_tie(outcome: simulator.Outcome) -> bool:
    """Whether a fault that is not named is listed in a tie."""
    named = {simulator.named(c) for c in outcome.decision.suspects}
    listed = {simulator.named(c) for tie in outcome.decision.undecided for c in tie.between}
    return any(f.name in listed - named for f in outcome.faults)


def entity(name: tuple[object, ...]) -> tuple[object, ...]:
    kind, ends, _side, rail, leaf = name
    return (kind, frozenset(ends) if isinstance(ends, tuple) else ends, rail, leaf)


def bars(row: Row) -> Iterator[str]:
    """What a row misses of what is aimed at: 64 hosts at 5 % noise; false blame anywhere; decode time."""
    together = simulator.TROUBLES[row.name].together
    if row.hosts == 64 and row.noise == 0.05 and row.right < BARS[together] * row.trials:
        yield f"{row.right} of {row.trials} right, the bar is {BARS[together]:.0%}"
    if together == 0 and row.wrong > 0.01 * row.trials:
        yield f"somebody blamed in {row.wrong} of {row.trials} trials without a fault"
    if row.most_rounds > 6:
        yield f"{row.most_rounds} rounds"
    if row.decode_s > 1.0:
        yield f"a decode took {row.decode_s:.2f} s"


def interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's interval for a share, 95 %."""
    z, p = 1.96, hits / trials
    centre = p + z * z / (2 * trials)
    spread = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    return (centre - spread) / (1 + z * z / trials), (centre + spread) / (1 + z * z / trials)


if __name__ == "__main__":
    sys.exit(main())
