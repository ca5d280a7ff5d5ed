#!/usr/bin/env python3
"""Hold `explain log` against reports whose cause is known, and against each report as if nobody had seen it.

    python scripts/explain_score.py tests/explain/failures-dev.jsonl [-v] [--only D012,D037]

A report counts as top-1 when its cause comes first, as top-3 when it is among the first three, and as
confidently wrong when another cause is given as certain. Left out: patterns whose only example is the report
itself are switched off.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdoctor.explain.engine import explain_text
from netdoctor.explain.knowledge import Knowledge, load
from netdoctor.explain.model import Confidence


@dataclass(frozen=True)
class Answer:
    """What was said of one report: labels with confidences, the likeliest first. place: of the true one, from
    0; None where it is not named."""

    record: Mapping[str, Any]
    said: tuple[tuple[str, Confidence], ...]

    @property
    def place(self) -> int | None:
        labels = [label for label, _ in self.said]
        return labels.index(self.record["root_cause"]) if self.record["root_cause"] in labels else None

    @property
    def confidently_wrong(self) -> bool:
        return any(c is Confidence.CERTAIN and label != self.record["root_cause"] for label, c in self.said)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def answers(
    reports: Iterable[Mapping[str, Any]], knowledge: Knowledge, leave_out: bool = False
) -> list[Answer]:
    """What is said of each; leave_out: without what is only known from the report itself."""
    found = []
    for record in reports:
        known = knowledge.without(record["id"]) if leave_out else knowledge
        said = explain_text({record["id"]: "\n".join(record["log"])}, known)
        found.append(Answer(record, tuple((one.known.label, one.confidence) for one in said.reasons)))
    return found


def share(found: Iterable[Answer], within: int) -> float:
    """How many of the causes are among the first so many."""
    places = [one.place for one in found]
    return sum(place is not None and place < within for place in places) / max(len(places), 1)


def show(title: str, found: list[Answer], all_records: bool) -> None:
    for one in found:
        if all_records or one.place != 0 or one.confidently_wrong:
            said = ", ".join(f"{label} ({confidence})" for label, confidence in one.said[:4]) or "nothing"
            mark = "WRONG" if one.confidently_wrong else "-" if one.place is None else f"#{one.place + 1}"
            print(f"  {one.record['id']} {mark:<6}{one.record['root_cause']}: {said}")
    wrong = sum(one.confidently_wrong for one in found)
    print(
        f"{title}: {len(found)} reports, top-1 {share(found, 1):.1%}, top-3 {share(found, 3):.1%}, "
        f"confidently wrong {wrong}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", metavar="ID,...")
    parser.add_argument("-v", "--verbose", action="store_true", help="those that are right, too")
    args = parser.parse_args()
    wanted = {name for name in args.only.split(",") if name}
    reports = [record for record in records(args.file) if not wanted or record["id"] in wanted]
    knowledge = load()
    show("as known", answers(reports, knowledge), args.verbose or bool(wanted))
    show("left out", answers(reports, knowledge, leave_out=True), args.verbose or bool(wanted))


if __name__ == "__main__":
    main()
