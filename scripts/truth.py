#!/usr/bin/env python3
"""Hold verdicts against real jobs: break the lab, scan it, then really start torchrun on its nodes.

    NETDOCTOR_TEST_TORCH_PYTHON=/opt/torch/bin/python python scripts/truth.py [--seed N] [--most N] [NAME...]

NAME: situations whose names contain it; all without one. With --seed they come in another order, so that
--most N is a sample. As root: the lab needs namespaces. A false READY makes the exit status 1.
"""

import argparse
import random
import signal
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from tests.truth.job import LIMIT_S, python
    from tests.truth.play import BAD, Stage, held
    from tests.truth.situations import SITUATIONS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seed", type=int, help="shuffle")
    parser.add_argument("--most", type=int, help="no more than so many")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a job (%(default)g)")
    parser.add_argument("--subnet", default="10.78.0", help="of the labs (%(default)s, and the next two)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the labs go with it
    chosen = [s for s in SITUATIONS if not args.names or any(word in s.name for word in args.names)]
    if args.seed is not None:
        random.Random(args.seed).shuffle(chosen)  # noqa: S311  an order, and no secret
    counts: Counter[str] = Counter()
    with Stage(python(), args.subnet, args.limit) as stage:
        print(f"torch {stage.launcher.torch}, {len(chosen[: args.most])} situations", flush=True)
        print(f"{'situation':45} {'verdict':10} {'gate':6} {'job':8} {'':14} what was said", flush=True)
        for situation in chosen[: args.most]:
            played = stage.play(situation)
            word = held(situation, played)
            counts[word] += 1
            job = "started" if played.outcome.started else "failed"
            gate = "starts" if played.gated else "holds"
            said = played.outcome.why or ", ".join(played.keys)
            print(
                f"{situation.name:45} {played.state:10} {gate:6} {job:8} {word:14} {said[:150]}", flush=True
            )
            if word != "agrees":
                print(f"{'':45} {', '.join(played.keys)}; {situation.why}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    return 1 if counts[BAD] else 0


if __name__ == "__main__":
    sys.exit(main())
