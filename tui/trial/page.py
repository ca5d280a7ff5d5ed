"""What the live page of a trial says, as lines for a given width. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass

from netdoctor.report import fmt
from netdoctor.tui.lines import Line, fit, line, width_of, wrap

# States of a row whose nodes need nobody's attention are not in here.
LOOKS = {"steps": "good", "joined": "head", "waits": "busy", "starts": "dim", "ended": "dim", "quiet": "warn"}
WIDE, DETAIL = 80, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A node, or nodes that fare alike. state: ``starts``, ``waits``, ``joined``, ``steps``, ``quiet``,
    ``ended``; ``failed`` and ``lost`` are bad. first_step_s: since the start; rate: steps/s of the slowest
    rank. last: what it printed last, or how it ended. Untrusted text is cleaned where lines are made."""

    name: str
    state: str
    ranks: int
    joined: int
    first_step_s: float | None = None
    steps: int = 0
    rate: float | None = None
    last: str = ""

    @property
    def is_bad(self) -> bool:
        return self.state in ("failed", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A trial at a moment. limit_s: when it ends. what: of a ladder, the rung. left_out: nodes in no row."""

    seconds: float = 0.0
    limit_s: float
    world: int = 0
    joined: int = 0
    steps: int = 0
    rate: float | None = None
    nodes: int = 0
    what: str = ""
    rows: tuple[Row, ...] = ()
    left_out: int = 0


def head(picture: Picture, width: int, *, ending: bool = False) -> list[Line]:
    """How far the job is, and how long it has run."""
    bad = any(row.is_bad for row in picture.rows)
    word = "ENDING" if ending else "TRYING"
    look = "open" if ending else "bad" if bad else "head"
    clock = f"{picture.seconds:.0f} of {picture.limit_s:.0f} s"
    what = f"{fmt.plain(picture.what, 30)}   " if picture.what else ""
    parts = [f"{picture.joined} of {picture.world} ranks joined"]
    parts += [f"step {picture.steps}"] if picture.steps else []
    parts += [f"{picture.rate:.3g} steps/s"] if picture.rate else []
    # Less and less of it, as long as there is no room.
    texts = [", ".join(parts[:count]) for count in range(len(parts), 0, -1)]
    room = width - len(word) - len(clock) - 8
    text = next((one for one in (f"{what}{texts[0]}", *texts) if width_of(one) <= room), texts[-1])
    gap = max(width - len(word) - 4 - width_of(text) - len(clock) - 1, 1)
    return [line((f" {word} ", f"chip.{look}"), "  ", text, " " * gap, clock, fill=f"band.{look}")]


def columns(width: int) -> Line:
    """The names of the columns."""
    return line((_cells("node", "state", "ranks", "first", "steps", "steps/s", "last line", width), "dim"))


def table(picture: Picture, width: int) -> list[Line]:
    """A line for each row, those with trouble first; then how many nodes are in none."""
    lines = [_row(row, width) for row in picture.rows]
    if picture.left_out:
        lines.append(line((f"and {fmt.number(picture.left_out, 'node')} more", "dim")))
    return lines


def detail(picture: Picture, name: Hashable, width: int) -> list[Line]:
    """The row of this name in full: always as many lines."""
    row = next((one for one in picture.rows if one.name == name), None)
    text = f"{fmt.plain(row.name, 80)}: {fmt.plain(row.last, 400)}" if row is not None and row.last else ""
    pieces = [*wrap(text, width - 2), ""][:DETAIL]
    return [line((f" {fit(piece, width - 2).rstrip()}", "dim")) for piece in pieces]


def _row(row: Row, width: int) -> Line:
    first = f"{row.first_step_s:.1f} s" if row.first_step_s is not None else ""
    rate = f"{row.rate:.3g}" if row.rate else ""
    ranks = f"{row.joined}/{row.ranks}"
    steps = str(row.steps) if row.steps else ""
    text = _cells(
        fmt.plain(row.name, 200), row.state, ranks, first, steps, rate, fmt.plain(row.last, 400), width
    )
    name = _name_width(width) + 1
    state = text[name : name + 8]
    look = LOOKS.get(row.state, "bad")
    return line(text[:name], (state, look), (text[name + 8 :], "bad" if row.is_bad else ""), key=row.name)


def _name_width(width: int) -> int:
    return 12 if width < WIDE else 20 if width < 100 else 28


def _cells(
    name: str, state: str, ranks: str, first: str, steps: str, rate: str, last: str, width: int
) -> str:
    left = f"{fit(name, _name_width(width))} {state:<8}{ranks:>9} {first:>7} "
    left += f"{steps:>7} " if width >= WIDE else ""
    left += f"{rate:>7}  "
    return left + fit(last, max(width - width_of(left), 0)).rstrip()
