"""The Pairs screen: a square whose heads stay in sight, with the pair under the cursor spelled out below it.

Lines for a given width. The cursor is a row and a column, each a node's name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netdoctor.report import fmt
from netdoctor.report.model import PairRecord, Report
from netdoctor.tui import pairs
from netdoctor.tui.lines import CELLS, LETTER_OF, Line, fit, labelled, line, status_span, width_of, wrap
from netdoctor.tui.pairs import Scale, Table

NAMES_MAX = 30
HEADS_MAX = 3  # letters of a name above a narrow column
VALUE_MAX = 6
WORST = 8  # columns of the worst of each row


@dataclass(frozen=True, slots=True)
class Picture:
    """The screen, and what stands under it."""

    lines: list[Line]
    below: list[Line]  # what the letters mean, the pair under the cursor, what the square says

    @property
    def heads(self) -> int:
        """How many of the lines stand above the first that the cursor can be on."""
        return next((n for n, one in enumerate(self.lines) if one.key is not None), 0)


def page(
    report: Report,
    kind: str,
    width: int,
    *,
    transpose: bool = False,
    values: bool = False,
    path: str = "",
    row: str | None = None,
    column: str = "",
) -> Picture:
    """A square, or bars for a measure. path: as of pairs.pairs_on(). row: a node in it, None for none."""
    every = pairs.kinds(report)
    if not every:
        text = "  profile launch tries ports and path MTU between nodes"
        return Picture([Line(), line("   no pairs were measured.", (text, "dim"))], [])
    position = f"   {every.index(kind) + 1} of {len(every)} (tab)" if kind in every and len(every) > 1 else ""
    if kind.startswith("measure "):
        title = line(f" {fmt.plain(kind, 60)}", (position, "dim"))
        return Picture([title, Line(), *pairs.bars(pairs.curves(report).get(kind[8:], []), width)], [])
    if why := pairs.damage(report, kind):
        return Picture([Line(), *(line(piece) for piece in wrap(why, width - 4, "   "))], [])
    found = pairs.table_of(report, kind, path)
    scale = Scale.of_values((p.value, p.unit) for line_ in found.worst for p in line_ if p is not None)
    square = _Square(found, scale if values else None, transpose, width)
    a, b = square.cursor(row, column)
    way = f"   {'column connects to row' if transpose else 'row connects to column'}"
    unit = f" in {fmt.plain(square.unit, 12)}" if values and square.unit else ""
    title = line(f" {fmt.plain(kind, 60)}{unit}", (f"{position}{way}{square.beyond(b)}", "dim"))
    readings = _readings(found, transpose, width)
    long = len(readings) > 2
    lines = [title, *pairs.way(report, kind, path, width), *square.heads(b), *square.rows(a, b)]
    if any(len(group) > 1 for group in found.groups):
        others = ", and so do all that have less trouble" if found.rest else ""
        lines += [Line(), line((f" nodes with equal results share a row and a column{others}", "dim"))]
    below = [line((f" {_legend(found, scale if values else None)}", "dim"))]
    if a is not None and b is not None:
        below.append(square.pair(a, b))
    more = line((f"           and {fmt.number(len(readings) - 1, 'more line')} below the square", "dim"))
    return Picture(
        [*lines, Line(), *readings] if long else lines, [*below, *([readings[0], more] if long else readings)]
    )


def moved(report: Report, kind: str, path: str, row: str | None, column: str, by: int, **how: bool) -> str:
    """The column that many to the right of the one under the cursor."""
    if kind.startswith("measure ") or kind not in pairs.kinds(report):
        return column
    found = pairs.table_of(report, kind, path)
    _, b = _Square(found, None, how.get("transpose", False), 80).cursor(row, column)
    return found.groups[min(max((b or 0) + by, 0), len(found.groups) - 1)][0]


class _Square:
    """How a table is drawn: what its columns are called, how wide they are, and which of them fit."""

    def __init__(self, found: Table, scale: Scale | None, transpose: bool, width: int) -> None:
        """scale: of the values to show, None for statuses."""
        self.found, self.scale, self.transpose, self.width = found, scale, transpose, width
        self.names = [fmt.fold(g, 24) if len(g) > 1 else fmt.plain(g[0], 60) for g in found.groups]
        if found.rest:
            self.names[-1] = fmt.number(len(found.groups[-1]), "other node")
        common = _common(self.names)
        self.tails = [name[common:] or name for name in self.names]
        if any(len(group) > 1 for group in found.groups):  # names of groups say nothing when they are cut
            self.tails = [str(n) for n in range(1, len(self.names) + 1)]
            self.names = [f"{n} {name}" for n, name in zip(self.tails, self.names, strict=True)]
        self.left = min(max((len(name) for name in self.names), default=0), NAMES_MAX) + 3
        longest = max((len(tail) for tail in self.tails), default=1)
        self.digits = 0
        known = [pair for line_ in found.worst for pair in line_ if pair is not None]
        self.unit = next((pair.unit for pair in known if pair.unit), "") or ""
        room = width - self.left
        self.step = min(longest, VALUE_MAX) + 1
        if scale is not None:
            values = [pair.value for pair in known if pair.value is not None]
            self.digits = 0 if all(value == round(value) for value in values) else 2
            texts = [_value(value, VALUE_MAX, self.digits) for value in values]
            self.step = max(max(map(len, texts), default=1) + 1, min(self.step, 4))
        elif len(self.names) * max(self.step, 3) > room:
            self.step = 2 if 2 * len(self.names) <= room else 1
        else:
            self.step = max(self.step, 3)
        self._spell(width)
        # The worst of each row has a column where there is room for it, or else where some stay out of sight.
        every, self.last = self.step * len(self.names), self.step if self.spelled else WORST
        self.margin = len(self.names) > 2 and (every + self.last <= room or every > room)
        self.fits = max((room - self.last * self.margin) // self.step, 1)

    def _spell(self, width: int) -> None:
        """Whole names and what is not good in words, where there is room for them."""
        known = [pair for line_ in self.found.worst for pair in line_ if pair is not None]
        words = [width_of(self._word(pair)) for pair in known]
        step = max(*words, *(width_of(name) for name in self.names), len("worst"), 0) + 3
        every = self.left + step * (len(self.names) + 1)
        groups = any(len(group) > 1 for group in self.found.groups)
        self.spelled = self.scale is None and not groups and bool(known) and every <= width
        if self.spelled:
            self.tails, self.step = self.names, step

    @staticmethod
    def _word(pair: PairRecord) -> str:
        letter = pairs.letter(pair)
        return letter if letter == "." else f"{LETTER_OF.get(pair.status, '?')} {pairs.class_text(pair)}"

    def _put(self, text: str, style: str, width: int, *, at: bool = False) -> list[str | tuple[str, str]]:
        """A cell. at: whether the cursor is on it."""
        if self.spelled:
            return [" ", (text.center(width - 1), f"{style}+cursor" if at else style)]
        if at:
            return [" " * (width - len(text)), (text, f"{style}+cursor")]
        return [(text.rjust(width), style)]

    def at(self, a: int, b: int) -> PairRecord | None:
        """The pair in a row and a column."""
        return self.found.worst[b][a] if self.transpose else self.found.worst[a][b]

    def cursor(self, row: str | None, column: str) -> tuple[int | None, int | None]:
        """The row and the column under the cursor; without a column that of the row's worst pair."""
        index = {name: n for n, group in enumerate(self.found.groups) for name in group}
        a = index.get(row) if row is not None else None
        if a is None or column in index:
            return a, index.get(column) if a is not None else None
        tried = [(b, pair) for b in range(len(self.names)) if (pair := self.at(a, b)) is not None]
        return a, max(tried, key=lambda one: pairs.rank(one[1]))[0] if tried else a

    def columns(self, b: int | None) -> range:
        """The columns that fit, that of the cursor among them."""
        first = min(max((b or 0) - self.fits // 2, 0), max(len(self.names) - self.fits, 0))
        return range(first, min(first + self.fits, len(self.names)))

    def beyond(self, b: int | None) -> str:
        """How many columns there are on either side of those that fit."""
        columns = self.columns(b)
        before, after = columns.start, len(self.names) - columns.stop
        return (f"   <{before} more" if before else "") + (f"   {after} more>" if after else "")

    def heads(self, b: int | None) -> list[Line]:
        """The names of the columns, across where they fit, else downwards."""
        columns = self.columns(b)
        down = self.step <= 2
        height = min(max((len(self.tails[n]) for n in columns), default=1), HEADS_MAX) if down else 1
        lines = []
        for y in range(height):
            parts: list[str | tuple[str, str]] = [" " * self.left]
            for n in columns:
                tail = self.tails[n]
                text = tail[-height:].rjust(height)[y] if down else tail[-(self.step - 1) :]
                parts += self._put(text, "head" if b in (None, n) else "dim", self.step)
            parts += self._put("worst", "dim", self.last) if self.margin and y == height - 1 else []
            lines.append(line(*parts))
        return lines

    def rows(self, at: int | None, b: int | None) -> list[Line]:
        lines = []
        every = range(len(self.names))
        for a, name in enumerate(self.names):
            parts: list[str | tuple[str, str]] = [f"  {fit(name, self.left - 3)} "]
            for n in self.columns(b):
                parts += self._put(*self.cell(a, n), self.step, at=(a, n) == (at, b))
            if self.margin:
                text, style = self._drawn(self._worst(self.at(a, n) for n in every))
                parts += [" " * (0 if self.spelled else self.last - self.step)]
                parts += self._put(text, style, self.step)
            lines.append(line(*parts, key=("pairs", self.found.groups[a])))
        if len(every) > 2:
            parts = [(fit("  worst", self.left), "dim")]
            for n in self.columns(b):
                parts += self._put(*self._drawn(self._worst(self.at(a, n) for a in every)), self.step)
            lines.append(line(*parts))
        return lines

    def _worst(self, found: Iterable[PairRecord | None]) -> PairRecord | None:
        known = [pair for pair in found if pair is not None]
        if self.scale is not None and (valued := [pair for pair in known if pair.value is not None]):
            return max(valued, key=lambda pair: pairs.alarm(pair.value or 0.0, pair.unit))
        return max(known, key=pairs.rank, default=None)

    def cell(self, a: int, b: int) -> tuple[str, str]:
        """What stands there, and its style."""
        pair = self.at(a, b)
        if a == b and len(self.found.groups[a]) == 1:
            return "=", "dim"
        return self._drawn(pair)

    def _drawn(self, pair: PairRecord | None) -> tuple[str, str]:
        if pair is None:
            return " ", ""
        if self.scale is not None and pair.value is not None:
            return _value(pair.value, self.step - 1, self.digits), self.scale.heat(pair.value, pair.unit)
        text = self._word(pair) if self.spelled else pairs.letter(pair)
        return text, CELLS.get(LETTER_OF.get(pair.status, "?"), "")

    def pair(self, a: int, b: int) -> Line:
        """The pair under the cursor, spelled out; of groups the worst of theirs."""
        pair, (one, other) = self.at(a, b), (self.found.groups[a], self.found.groups[b])
        if pair is None:
            itself = a == b and len(one) == 1
            from_, to = (self.names[b], self.names[a]) if self.transpose else (self.names[a], self.names[b])
            text = (
                f"{fmt.plain(one[0], 60)} is the node itself" if itself else f"{from_} -> {to}: not measured"
            )
            return line((" pair     ", "label"), fit(text, self.width - 10))
        groups = "   the worst of these groups" if len(one) * len(other) > 1 else ""
        text = f"{fmt.plain(pair.from_, 60)} -> {fmt.plain(pair.to, 60)}   "
        class_ = pairs.class_text(pair)
        return line(
            (" pair     ", "label"),
            text,
            status_span(pair.status, class_),
            fit(
                pairs.figures(pair, pair.path, "   ") + groups,
                max(self.width - 10 - len(text) - len(class_), 0),
            ),
        )


def _readings(found: Table, transpose: bool, width: int) -> list[Line]:
    """What the square says, the label once."""
    texts = pairs.reading(found, transpose)
    return labelled(" reading  ", (piece for text in texts for piece in wrap(text, width - 12)))


def _value(value: float, room: int, most: int) -> str:
    for digits in range(most, -1, -1):
        text = f"{value:.{digits}f}"
        if len(text) <= room:
            return text
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")[:room]


def _legend(found: Table, scale: Scale | None) -> str:
    every = [p for row in found.worst for p in row if p is not None]
    if scale is not None:
        unit = next((p.unit for p in every if p.unit), "")
        least, most = fmt.figure(scale.low), fmt.figure(scale.high)
        return f"least {least}, most {most} {fmt.plain(unit, 20)}   v status   = itself"
    classes = dict.fromkeys((pairs.letter(p), pairs.class_text(p)) for p in every)
    more = "   v values" if any(p.value is not None for p in every) else ""
    return (
        "   ".join([f"{mark} {word}" for mark, word in classes] + ["= itself", "blank not measured"]) + more
    )


def _common(names: Sequence[str]) -> int:
    """How many letters all names begin with; the digits that tell them apart stay whole."""
    if len(names) < 2:
        return 0
    first, last = min(names), max(names)
    size = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    while size and first[size - 1].isdigit():
        size -= 1
    return size
