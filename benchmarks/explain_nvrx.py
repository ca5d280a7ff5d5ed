#!/usr/bin/env python3
"""What nvidia-resiliency-ext's restart agent says of logs whose cause is known, beside `explain log`.

    python benchmarks/explain_nvrx.py --nvrx FOLDERS [--reports FILE.jsonl] [--logs FOLDER] [-v]

FOLDERS goes into PYTHONPATH and holds nvidia_resiliency_ext (later than 0.7: releases before have no such
agent) with httpx and pydantic. It runs without a model (`--disable-l1`), as it decides whether to start a job
again: RESTART or STOP, with the line that it takes for the first failure and its class. It names no cause in
the cluster, so that only the line can be held against ours.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from netdoctor.compat import tomllib
from netdoctor.explain.engine import explain

AGENT = "nvidia_resiliency_ext.attribution.restart_agent.cli"


def reports(path: Path, folder: Path) -> Iterator[tuple[str, str, list[Path]]]:
    """(name, label, logs) of each report."""
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        log = folder / f"{record['id']}.log"
        log.write_text("\n".join(record["log"]) + "\n")
        yield record["id"], record["root_cause"], [log]


def recorded(folder: Path) -> Iterator[tuple[str, str, list[Path]]]:
    """The same of what was recorded in the lab."""
    for expected in sorted(folder.glob("*/expected.toml")):
        label = tomllib.loads(expected.read_text("utf-8"))["label"]
        yield expected.parent.name, label, sorted(expected.parent.glob("*.log"))


def asked(log: Path, folders: str) -> dict[str, Any]:
    """The agent's answer; it reads one log that a launcher wrote all ranks into."""
    command = [sys.executable, "-m", AGENT, str(log), "--job-id", "job", "--cycle-id", "1", "--disable-l1"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": folders},
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.stdout.strip() else {"decision": "error"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nvrx", required=True, metavar="FOLDERS")
    parser.add_argument("--reports", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="explain-nvrx-") as name:
        folder = Path(name)
        cases = list(reports(args.reports, folder)) if args.reports else []
        cases += recorded(args.logs) if args.logs else []
        decisions: Counter[str] = Counter()
        classes: Counter[str] = Counter()
        ours = Counter[str]()
        for case, label, logs in cases:
            whole = folder / "whole.log"
            whole.write_bytes(b"".join(log.read_bytes() for log in logs))
            answer = asked(whole, args.nvrx)
            first = answer.get("primary_failure") or {}
            decisions[answer["decision"]] += 1
            classes[str(first.get("failure_class"))] += 1
            said = [reason.known.label for reason in explain([str(log) for log in logs]).reasons]
            ours["first" if said[:1] == [label] else "among three" if label in said[:3] else "not"] += 1
            if args.verbose:
                print(
                    f"{case:<40}{answer['decision']:<9}{first.get('failure_class')!s:<28}{label}: {said[:3]}"
                )
    print(f"{len(cases)} logs whose cause is known")
    print(f"restart agent: {dict(decisions)}; classes of the first failure: {dict(classes.most_common())}")
    print(f"explain log: the cause comes {dict(ours)}")


if __name__ == "__main__":
    main()
