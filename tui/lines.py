"""Lines of styled text, without knowing what draws them. Styles are names; the widgets give them looks."""

import textwrap
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from netdoctor.report import fmt, summary

Span = tuple[str, str]

TWO_COLUMNS = 96  # from this width on, what belongs together may stand side by side

# Letters of statuses to styles. What a letter means never depends on them.
STYLES = {
    ".": "pass",
    "!": "warn",
    "X": "fail",
    "b": "blocked",
    "-": "skip",
    "?": "unknown",
    "~": "busy",
    " ": "",
}
LETTER_OF = {word: letter for letter, word in summary.LETTERS.items()}
STATUS_STYLES = {word: STYLES[letter] for letter, word in summary.LETTERS.items()}
VERDICT_STYLES = {"READY": "good", "NOT READY": "bad", "UNDECIDED": "open", "SCANNING": "head"}
CELLS = {letter: f"cell.{name}" if name not in ("", "skip") else name for letter, name in STYLES.items()}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of styled text."""

    spans: tuple[Span, ...] = ()
    key: Hashable = None  # what Enter opens there; None where the cursor does not stop
    fill: str = ""  # the style of all of its width

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


def line(*parts: str | Span, key: Hashable = None, fill: str = "") -> Line:
    """A line of plain strings and (text, style) pairs."""
    return Line(tuple((part, "") if isinstance(part, str) else part for part in parts), key, fill)


@lru_cache(4096)
def _visible(char: str) -> str:
    return char if fmt.is_inert(char) else "?"


def inert(text: str) -> str:
    """`text` with every character that steers a terminal, or is drawn as nothing, made visible.

    The last wall: whatever a widget draws went through it, however it came there.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def width_of(text: str) -> int:
    """How many columns `text` takes."""
    if text.isascii():
        return len(text)
    return cell_len(text)


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` columns, what is cut ending in two dots."""
    if width_of(text) <= width or width <= 3:
        return _sized(text, max(width, 0))
    return _sized(text, width - 2) + ".."


def _sized(text: str, width: int) -> str:
    return text[:width].ljust(width) if text.isascii() else set_cell_size(text, width)


def wrap(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """`text` in lines of at most `width` columns."""
    return textwrap.wrap(
        text,
        max(width, 10),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    ) or [indent if first is None else first]


def labelled(label: str, pieces: Iterable[str], style: str = "") -> list[Line]:
    """A label once, and pieces of text under each other beside it."""
    blank = " " * len(label)
    return [line((label if n == 0 else blank, "label"), (piece, style)) for n, piece in enumerate(pieces)]


def cell_span(letter: str) -> Span:
    """A letter of the matrix as its cells are drawn."""
    return f" {letter} ", CELLS.get(letter, "")


def status_span(status: str, text: str = "") -> Span:
    """A text, the word for a status if there is none, in the look of the status."""
    return text or summary.word(status), STATUS_STYLES.get(status, "unknown")


def narrowed(lines: Sequence[Line], text: str) -> list[Line]:
    """The lines that hold every word of `text`, a word behind ``!`` not; with those that belong to them.

    What stands above the first line that can be opened stays; so does what is no part of a list.
    """
    terms = text.lower().split()
    first = next((n for n, one in enumerate(lines) if one.key is not None), len(lines))
    blocks: list[list[Line]] = []
    for one in lines[first:]:
        if one.key is not None or not blocks or (one.text.strip() and not blocks[-1][-1].text.strip()):
            blocks.append([])
        blocks[-1].append(one)

    def fits(block: Sequence[Line]) -> bool:
        text_ = " ".join(one.text.strip() for one in block).lower()
        return all((word.removeprefix("!") in text_) != (word[0] == "!") for word in terms if word != "!")

    found = [one for block in blocks if fits(block) for one in block]
    nothing = line(("   nothing fits; Esc clears the filter", "dim"))
    return [*lines[:first], *(found or ([nothing] if blocks else []))]


def side_by_side(
    left: Sequence[Line], right: Sequence[Line], left_width: int, between: str = "|"
) -> list[Line]:
    """Two columns of lines; each key stays with the line it came from, the left one first."""
    lines = []
    for n in range(max(len(left), len(right))):
        a = left[n] if n < len(left) else Line()
        b = right[n] if n < len(right) else Line()
        lines.append(
            Line(
                (*cut(a, left_width), (f" {between} ", "rule"), *b.spans),
                a.key if a.key is not None else b.key,
            )
        )
    return lines


def cut(source: Line, width: int) -> tuple[Span, ...]:
    """The spans of a line in exactly `width` columns."""
    spans: list[Span] = []
    left = width
    for text, style in source.spans:
        size = width_of(text)
        if size > left:
            spans.append((fit(text, left), style))
            left = 0
            break
        spans.append((text, style))
        left -= size
    if left:
        spans.append((" " * left, ""))
    return tuple(spans)
