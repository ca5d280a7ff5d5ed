#!/usr/bin/env python3
"""Run the generators of tests/fuzz with fresh seeds: hostile peers, reports, facts files, machines.

    python scripts/fuzz.py SECONDS [NAME...]     SECONDS together, names such as report; all without one
    python scripts/fuzz.py SECONDS report=7      with the seed that an earlier run named

They take turns of at most a minute, so that a short run meets each of them. The first finding ends the run
with the seed and the case that show it again: exit 1.
"""

import importlib
import itertools
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import SystemRandom

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "fuzz"
TURN_S = 60.0


def names() -> list[str]:
    """The generators that there are."""
    return [p.stem for p in sorted(FOLDER.glob("*.py")) if "\ndef run(seed" in p.read_text("utf-8")]


def main(argv: list[str]) -> int:
    try:
        seconds = float(argv[0])
        wanted = dict(word.partition("=")[::2] for word in argv[1:] or names())
        seeds = {name: int(seed) if seed else None for name, seed in wanted.items()}
    except (IndexError, ValueError):
        seeds = {}
    if not seeds or not set(seeds) <= set(names()):
        sys.stderr.write(f"usage: scripts/fuzz.py SECONDS [NAME[=SEED]...]   names: {', '.join(names())}\n")
        return 2
    sys.path.insert(0, str(ROOT))
    ends = time.monotonic() + seconds
    turn = min(TURN_S, seconds / len(seeds))
    cases: Counter[str] = Counter()
    for name in itertools.cycle(seeds):
        left = ends - time.monotonic()
        if left <= 0:
            break
        seed = seeds[name]
        seed = SystemRandom().randrange(2**32) if seed is None else seed
        print(f"{name}: seed {seed}", flush=True)
        try:
            cases[name] += importlib.import_module(f"tests.fuzz.{name}").run(seed, min(turn, left))
        except AssertionError:
            traceback.print_exc()
            print(f"found after {dict(cases)} cases; again: scripts/fuzz.py {turn:.0f} {name}={seed}")
            return 1
    print(f"no finding: {', '.join(f'{count} cases of {name}' for name, count in cases.items())}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
