#!/usr/bin/env python3
"""Hold `explain log` against reports whose cause is known, and against each report as if nobody had seen it.

    python scripts/explain_score.py tests/explain/failures-dev.jsonl [-v] [--only D012,D037]

A report counts as top-1 when its cause comes first, as top-3 when it is among the first three, and as
confidently wrong when another cause is given as certain. Where its lines fit several causes (`also`), each of
them is right; where its thread never settled the cause (`open`), nothing may be certain. Left out: patterns
whose only example is the report itself are switched off.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdoctor.explain.engine import explain_text
from netdoctor.explain.knowledge import Knowledge, load
from netdoctor.explain.model import Confidence


@dataclass(frozen=True)
class Answer:
    """What was said of one report: labels with confidences, the likeliest first. place: of the first true
    one, from 0; None where none is named."""

    record: Mapping[str, Any]
    said: tuple[tuple[str, Confidence], ...]
    is_guess: bool = False  # by what its lines are about alone

    @property
    def open(self) -> bool:
        return bool(self.record["root_cause"] == "open")

    @property
    def true(self) -> set[str]:
        return {self.record["root_cause"], *self.record.get("also", ())}

    @property
    def place(self) -> int | None:
        return next((at for at, (label, _) in enumerate(self.said) if label in self.true), None)

    @property
    def confidently_wrong(self) -> bool:
        certain = {label for label, confidence in self.said if confidence is Confidence.CERTAIN}
        return bool(certain if self.open else certain - self.true)


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
        labels = tuple((one.known.label, one.confidence) for one in said.reasons)
        found.append(Answer(record, labels, said.is_guess))
    return found


def share(found: Iterable[Answer], within: int) -> float:
    """How many of the causes are among the first so many."""
    places = [one.place for one in found]
    return sum(place is not None and place < within for place in places) / max(len(places), 1)


def figures(found: list[Answer]) -> str:
    """In one line; what is open is in the count of certain ones alone."""
    settled = [one for one in found if not one.open]
    return (
        f"{len(settled)} reports, top-1 {share(settled, 1):.1%}, top-3 {share(settled, 3):.1%}, "
        f"confidently wrong {sum(one.confidently_wrong for one in found)}, "
        f"silent {sum(not one.said for one in settled)}, guessed {sum(one.is_guess for one in settled)}"
        + (f", open {len(found) - len(settled)}" if len(found) > len(settled) else "")
    )


def show(title: str, found: list[Answer], all_records: bool) -> None:
    for one in found:
        if all_records or (one.place != 0 and not one.open) or one.confidently_wrong:
            said = ", ".join(f"{label} ({confidence})" for label, confidence in one.said[:4]) or "nothing"
            mark = "WRONG" if one.confidently_wrong else "-" if one.place is None else f"#{one.place + 1}"
            wanted = ", ".join((one.record["root_cause"], *one.record.get("also", ())))
            print(f"  {one.record['id']} {mark:<6}{wanted}: {said}")
    families: dict[str, list[Answer]] = defaultdict(list)
    for one in found:
        families[one.record.get("family", "")].append(one)
    for family, of_it in sorted(families.items()) if len(families) > 1 else ():
        print(f"    {family}: {figures(of_it)}")
    print(f"{title}: {figures(found)}")


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
