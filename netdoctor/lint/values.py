"""What a word of a shell script is worth when nothing is run: text with holes in it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netdoctor.lint.model import Position


@dataclass(frozen=True, slots=True)
class Hole:
    """A part whose text only the running shell knows."""

    names: frozenset[str] = frozenset()  # the variables in it, down to those that the script does not set
    plain: bool = False  # it is the value of one of them and nothing else
    level: int = 0  # how many shells were started around the one that fills it in
    command: str = ""  # of a command substitution


Piece = str | Hole


@dataclass(frozen=True, slots=True)
class Value:
    """Text in pieces."""

    pieces: tuple[Piece, ...] = ()

    @property
    def text(self) -> str | None:
        """The whole text, None where a part is unknown."""
        return "".join(map(str, self.pieces)) if all(isinstance(p, str) for p in self.pieces) else None

    @property
    def number(self) -> int | None:
        """The text as a number of up to nine digits."""
        text = self.text
        return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None

    @property
    def names(self) -> frozenset[str]:
        """Variables that the value depends on and that the script does not set."""
        return frozenset(name for p in self.pieces if isinstance(p, Hole) for name in p.names)

    @property
    def holes(self) -> Iterator[Hole]:
        """The unknown parts."""
        return (piece for piece in self.pieces if isinstance(piece, Hole))

    @property
    def head(self) -> str:
        """The known text that it begins with."""
        return self.pieces[0] if self.pieces and isinstance(self.pieces[0], str) else ""

    def __add__(self, other: "Value") -> "Value":
        return join((*self.pieces, *other.pieces))

    def __str__(self) -> str:
        """The value for people."""
        return "".join(_text_of(piece) for piece in self.pieces)


def _text_of(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    if piece.command:
        return f"$({piece.command})"
    return f"${next(iter(piece.names))}" if piece.plain and piece.names else "…"


def join(pieces: Iterable[Piece]) -> Value:
    """A value of pieces, neighbouring texts made one."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece != "":
            found.append(piece)
    return Value(tuple(found))


def text_value(text: str) -> Value:
    """A value that is known."""
    return Value((text,) if text else ())


_MARK = re.compile("\ue000(\\d{1,6})\ue001")


def marked(text: str, pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces of a text in which `mark(n)` stands for the n-th of `pieces`."""
    parts = _MARK.split(text)
    for index, part in enumerate(parts):
        if index % 2 == 0:
            yield part
        else:
            yield pieces[int(part)] if int(part) < len(pieces) else Hole()


def is_mark(text: str) -> bool:
    """Whether a text is a mark and nothing else."""
    return _MARK.fullmatch(text) is not None


def mark(number: int) -> str:
    """What stands for a piece in the text of a nested script: a word to the parser, no variable."""
    return f"\ue000{number}\ue001"


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, after expansion."""

    value: Value
    position: Position
    many: bool = False  # the shell may make any number of words of it, or none
    literal: bool = False  # it stood in single quotes
    raw: str = ""  # as written

    @property
    def text(self) -> str | None:
        return self.value.text

    @property
    def program(self) -> str:
        """The file name of a program, "" where it is unknown."""
        return (self.text or "").rpartition("/")[2]

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Variable:
    """What is known of a variable at a point of the script."""

    value: Value
    exported: bool = False
    words: tuple[Word, ...] | None = None  # the items of an array
    assigned: Position | None = None  # where it got this value, None where the script did not set it
    literal: bool = False
    maybe: bool = False  # exported in one branch, and not in another


Environment = Mapping[str, Variable]


@dataclass(frozen=True, slots=True)
class Assignment:
    """``NAME=value`` where it stands."""

    name: str
    value: Value
    position: Position
    exported: bool = False
    lost: str = ""  # a subshell or pipeline, at whose end it is gone
    how: str = ""  # export, local, command (for that one alone), or nothing
    literal: bool = False
    level: int = 0
    statement: int = 0  # how many commands stand before it
    certain: bool = False  # in no branch, loop or function, and not lost


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command."""

    words: tuple[Word, ...]  # after expansion, the first one names it
    position: Position
    end: int  # line
    environment: Environment
    prefix: Environment = field(default_factory=dict)  # variables for it alone
    level: int = 0  # how many shells were started around it: ``bash -c``, ``ssh host '…'``
    outer: tuple["Command", ...] = ()  # the commands that started those
    function: str = ""
    branch: bool = False
    loop: bool = False
    background: bool = False  # ``&`` behind it
    raw: str = ""

    @property
    def name(self) -> str:
        return self.words[0].program


@dataclass(slots=True)
class Script:
    """What was read of one script."""

    lines: list[str]
    commands: list[Command] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    pipelines: list[list[Command]] = field(default_factory=list)  # the commands that begin their parts
    functions: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)  # variables
    comments: set[int] = field(default_factory=set)  # lines
    allexport: bool = False
    snapshots: int = 0  # commands whose environment is kept
    # (path, text) of a file that the script names, where it may be read.
    opener: Callable[[str], tuple[str, str] | None] = lambda name: None
    written: dict[str, tuple[str, str]] = field(default_factory=dict)  # the same of those that it writes
    started: dict[str, str] = field(default_factory=dict)  # text of the files that were entered
    unread: list[tuple[Position, str]] = field(default_factory=list)  # what was not understood, and why
