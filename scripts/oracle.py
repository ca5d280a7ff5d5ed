#!/usr/bin/env python3
"""Ask NCCL or gloo what it chooses on random machines, and hold netdoctor's rules against it. Needs root.

    python scripts/oracle.py nccl DIR...     where releases of nvidia-nccl-cu12 are installed
    python scripts/oracle.py hcas DIR...     of 2.30 and newer; needs gcc
    python scripts/oracle.py gloo PYTHON     an interpreter with torch
    options: --seed N (default: another one each time), --cases N (200)

A directory is made by `pip install --no-deps --target DIR nvidia-nccl-cu12==2.21.5`. Machines are namespaces
of their own, and are gone with the run. Prints the counts of each release and every difference; exit 1 where
there is one.
"""

import argparse
import importlib
import sys
from pathlib import Path
from random import SystemRandom
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("nccl", "hcas", "gloo"))
    parser.add_argument("where", nargs="+", help="directories; for gloo an interpreter")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--show", type=int, default=20, help="differences that are printed of each release")
    args = parser.parse_args(argv)
    sys.path.insert(0, str(ROOT))
    if why := importlib.import_module("tests.oracle.spaces").refused():
        sys.stderr.write(f"oracle: {why}\n")
        return 2
    seed = SystemRandom().randrange(2**32) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    oracle: Any = importlib.import_module(f"tests.oracle.{args.what}")
    tallies = oracle.run([oracle.library(one) for one in args.where], seed, args.cases)
    for name, tally in tallies.items():
        for difference in tally.differences[: args.show]:
            print(f"{name}: {difference}")
    for name, tally in tallies.items():
        differ = len(tally.differences)
        print(f"{name}: {tally.cases} cases, {tally.agree} agree, {differ} differ, {tally.asked} by asking")
        print("   " + ", ".join(f"{rule} {count}" for rule, count in tally.rules.most_common()))
    return 1 if any(tally.differences for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
