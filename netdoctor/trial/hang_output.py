"""Who holds a job up, as text for people and as JSON. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from netdoctor.inventory.nodeset import fold
from netdoctor.text import age, listing, ranges
from netdoctor.trial.hanging import Hang, Position
from netdoctor.trial.rendering import LABEL, cause_lines, cause_rows, wrapped

SCHEMA = "netdoctor.hang/1"
GROUPS_MAX = 8


def groups(positions: Sequence[Position]) -> list[list[Position]]:
    """Ranks by where they are: the fewest first, as the others wait for them."""
    by_position: dict[str, list[Position]] = {}
    for one in positions:
        by_position.setdefault(one.where, []).append(one)
    return sorted(by_position.values(), key=lambda same: (len(same), same[0].rank))


def text(hang: Hang, width: int) -> str:
    """For people, at most `width` columns but for what is pasted."""
    return "".join(f"{line}\n" for line in _lines(hang, width))


def _lines(hang: Hang, width: int) -> Iterator[str]:
    state = str(hang.confidence).upper() if hang.confidence else "MOVES" if hang.moves else "OPEN"
    yield from wrapped(hang.headline, f"{state:<{LABEL}}", width)
    for one in hang.found:
        yield from wrapped(one, f"{'found':<{LABEL}}", width)
    by_position = groups(hang.positions)
    for number, same in enumerate(by_position[:GROUPS_MAX]):
        label = "" if number else "ranks"
        yield from wrapped(f"{_who(same)}: {_where(same)}", f"{label:<{LABEL}}", width)
    if by_position[GROUPS_MAX:]:
        yield f"{'':<{LABEL}}and {len(by_position) - GROUPS_MAX} places more: -o json"
    yield from cause_lines(hang.causes, width)
    for note in hang.notes:
        yield from wrapped(note, f"{'note':<{LABEL}}", width)


def _who(same: Sequence[Position]) -> str:
    return f"{listing(ranges(p.rank for p in same), 8)} on {fold(sorted({p.node for p in same}), 40)}"


def _where(same: Sequence[Position]) -> str:
    """The place of a group, what all of them do there, and for how long at the least."""
    position, does = same[0].where or "not known", {p.does for p in same}
    words = [*(does - {"", position})] if len(does) == 1 else []
    asleep = [p.asleep_s for p in same if p.asleep_s is not None and not p.works]
    if len(asleep) == len(same) and min(asleep) >= 1:
        words.append(f"for {age(min(asleep))}")
    return f"{position} ({', '.join(words)})" if words else position


def json_text(hang: Hang) -> str:
    """The object of schema netdoctor.hang/1."""
    found = {
        "schema": SCHEMA,
        "moves": hang.moves,
        "confidence": str(hang.confidence) if hang.confidence else None,
        "headline": hang.headline,
        "ranks_at_fault": hang.suspects,
        "nodes_at_fault": hang.nodes,
        "found": hang.found,
        "ranks": [asdict(one) for one in hang.positions],
        "causes": cause_rows(hang.causes),
        "notes": hang.notes,
    }
    return json.dumps(found, indent=1) + "\n"
