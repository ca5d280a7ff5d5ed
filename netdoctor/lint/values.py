"""What a word of a shell script is worth when nothing is run: text with holes in it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from netdoctor.lint.model import Place


@dataclass(frozen=True, slots=True)
class Hole:
    """A part whose text only the running shell knows.

    names: the variables that it is made of, down to those that the script does not set; plain: it is the
    value of one of them and nothing else; level: how many shells were started around the one that fills it
    in; command: the text of a command substitution.
    """

    names: frozenset[str] = frozenset()
    plain: bool = False
    level: int = 0
    command: str = ""


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
        return "".join(_shown(piece) for piece in self.pieces)


def _shown(piece: Piece) -> str:
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


def known(text: str) -> Value:
    """A value that is known."""
    return Value((text,) if text else ())


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, after expansion.

    many: it may become any number of words, or none, when the shell expands it; literal: it stood in single
    quotes; raw: as written.
    """

    value: Value
    place: Place
    many: bool = False
    literal: bool = False
    raw: str = ""

    @property
    def text(self) -> str | None:
        return self.value.text

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Variable:
    """What is known of a variable at a point of the script. words: the items of an array, None for a plain
    one.

    assigned: where it got this value, None where the script did not set it.
    """

    value: Value
    exported: bool = False
    words: tuple[Word, ...] | None = None
    assigned: Place | None = None
    literal: bool = False


Environment = Mapping[str, Variable]


@dataclass(frozen=True, slots=True)
class Assignment:
    """``NAME=value`` where it stands. lost: it is gone at the end of its subshell or pipeline; certain: no
    branch, loop or function lies around it; how: export, local, the command's own, or nothing."""

    name: str
    value: Value
    place: Place
    exported: bool = False
    lost: str = ""
    certain: bool = True
    how: str = ""
    literal: bool = False
    level: int = 0
    statement: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command. words: after expansion, the first one names it.

    level: how many shells were started around it (``bash -c``, ``ssh host '…'``); around: names of the
    programs that started those; prefix: variables for it alone.
    """

    words: tuple[Word, ...]
    place: Place
    end: int
    environment: Environment
    prefix: Mapping[str, Variable] = field(default_factory=dict)
    level: int = 0
    around: tuple["Command", ...] = ()
    function: str = ""
    branch: bool = False
    loop: bool = False
    background: bool = False
    raw: str = ""
    piped_to: str = ""

    @property
    def name(self) -> str:
        """The program's file name, "" where it is unknown."""
        text = self.words[0].text if self.words else None
        return (text or "").rpartition("/")[2]


@dataclass(slots=True)
class Script:
    """What was read of one script.

    pipelines: for each the commands that begin its parts; functions: names; redefines: variables that
    functions assign; sources: it reads in another file; incomplete: a bound was met.
    """

    lines: list[str]
    commands: list[Command] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    pipelines: list[list[Command]] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    comments: set[int] = field(default_factory=set)
    sources: bool = False
    allexport: bool = False
    incomplete: bool = False
    snapshots: int = 0
