"""What the words of a script become: quotes taken off, and filled in what is known."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tree_sitter import Node

from netdoctor.lint.model import Position
from netdoctor.lint.values import (
    Hole,
    Piece,
    Script,
    Value,
    Variable,
    Word,
    is_mark,
    join,
    marked,
    text_value,
)
from netdoctor.tables import names

_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_VARIABLE = re.compile(r"\$(?:\{[#!]?)?([A-Za-z_]\w*)")
_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\([\n$`"\\])')
_DOCUMENT_ESCAPE = re.compile(r"\\([\n$`\\])")
_PLAIN = names("word number variable_name extglob_pattern regex test_operator")
_UNQUOTED = frozenset({*_PLAIN, "brace_expression"})
_QUOTES = frozenset({"string", "raw_string"})
_BARE = frozenset({"simple_expansion", "expansion", "command_substitution"})
WORDS_MOST = 2000
TEXT_MOST = 8_000  # of one value
PIECES_MOST = 200
_NAME = re.compile(r"[A-Za-z_]\w*")


class Expander:
    """Words of one tree, with the variables as they are at this point of its walk."""

    def __init__(
        self,
        script: Script,
        data: bytes,
        env: Mapping[str, Variable],
        level: int,
        fixed: Position | None,
        holes: Sequence[Piece] = (),
        path: str = "",
    ) -> None:
        self.script = script
        self.data = data
        self.env = env
        self.level = level  # how many shells were started around it
        self.fixed = fixed  # of a script that is a word of a command: where that stands in the file
        self.holes = holes  # what stands behind the marks in its text
        self.path = path  # of a file that another one starts
        self.lines = data.decode("utf-8", "replace").split("\n")

    def position(self, node: Node) -> Position:
        if self.fixed is not None:
            return self.fixed
        row, column = node.start_point
        line = self.lines[row]
        if not line.isascii():  # bytes to characters
            column = len(line.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace"))
        return Position(row + 1, column + 1, self.path)

    def readable(self, text: str) -> str:
        """A text of this script for people."""
        return str(join(marked(text, self.holes)))

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def words(self, node: Node) -> list[Word]:
        """The words that a node of a command becomes."""
        raw, position = self.readable(self.text(node)[:2000]), self.position(node)
        if (items := self.array(node)) is not None:
            return list(items) if node.type == "string" else list(_split_again(items))
        words: list[list[Piece]] = [[]]
        # Whether the last word exists, though it may be empty.
        started = node.type in _QUOTES or any(child.type in _QUOTES for child in node.children)
        many = False
        for piece, split in self.pieces(node, 0):
            if not split:
                words[-1].append(piece)
                started = True
            elif isinstance(piece, Hole):
                words[-1].append(piece)
                bare = node.type in _BARE or is_mark(self.text(node))
                many = many or not piece.names or len(words) > 1 or bare
                started = True
            else:
                first, *rest = re.split(r"\s+", piece)
                if first:
                    words[-1].append(first)
                    started = True
                for text in rest:
                    if not started:
                        words.pop()
                    words.append([text] if text else [])
                    started = bool(text)
        if not started:
            words.pop()
        literal = is_literal(node)
        # A variable whose known text has several words and holes: which hole is many is unknown.
        return [
            Word(
                bounded(join(pieces)),
                position,
                many and any(isinstance(p, Hole) for p in pieces),
                literal,
                raw,
            )
            for pieces in words[:WORDS_MOST]
        ]

    def array(self, node: Node) -> tuple[Word, ...] | None:
        """The items of ``"${A[@]}"``, with and without its quotes."""
        if node.type not in ("string", "expansion"):
            return None
        match = re.fullmatch(r"(\"?)\$\{(\w+)\[[@*]\]\}\1", self.text(node))
        if match is None:
            return None
        self.script.used.add(match[2])
        variable = self.env.get(match[2])
        return variable.words if variable is not None else None

    def pieces(self, node: Node, depth: int) -> Iterator[tuple[Piece, bool]]:
        """(piece, whether the shell splits it at spaces) of a word."""
        kind = node.type
        if depth > 20:
            yield Hole(), False
        elif kind in _PLAIN:
            text = self.text(node)
            if _BRACES.search(text):
                yield Hole(level=self.level), False
            else:
                for piece in marked(text, self.holes):
                    if isinstance(piece, str):
                        yield _ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], piece), False
                    else:
                        yield piece, True
        elif kind == "raw_string":
            yield from ((piece, False) for piece in marked(self.text(node)[1:-1], self.holes))
        elif kind == "string":
            yield from ((piece, False) for piece in self.quoted(node, depth))
        elif kind == "concatenation":
            bare = "".join(self.text(c) if c.type in _UNQUOTED else "x" for c in node.children)
            if _BRACES.search(bare):
                yield Hole(frozenset(self.names_in(self.text(node))), level=self.level), False
                return
            for child in node.children:
                yield from self.pieces(child, depth + 1)
        elif kind == "simple_expansion":
            yield from ((piece, True) for piece in self.variable(self.text(node).lstrip()[1:]))
        elif kind == "expansion":
            yield from ((piece, True) for piece in self.expansion(node))
        elif kind == "command_substitution":
            text = self.text(node).lstrip()
            self.script.used |= self.names_in(text)
            inner = text[2:-1] if text.startswith("$(") else text[1:-1]
            yield Hole(self.leaves(text), False, self.level, self.readable(inner.strip())), True
        elif kind == "arithmetic_expansion":
            number = self.arithmetic(node, 0)
            names = self.leaves(self.text(node), bare=True)
            self.script.used |= self.names_in(self.text(node), bare=True)
            yield (str(number) if number is not None else Hole(names, False, self.level)), True
        elif kind == "translated_string":
            for child in node.children:
                yield from self.pieces(child, depth + 1)
        elif kind == "$":
            yield "$", False
        elif kind == '"':
            return
        else:  # ansi_c_string, process_substitution, brace_expression, ERROR
            yield Hole(self.leaves(self.text(node)), False, self.level), False

    def quoted(self, node: Node, depth: int, escape: re.Pattern[str] = _QUOTED_ESCAPE) -> Iterator[Piece]:
        """The inside of double quotes; blanks in front of its parts belong to them or to no node."""
        at = node.start_byte
        for child in node.children:
            yield from self.unescaped(at, child.start_byte, escape)
            if child.type in ("string_content", "heredoc_content"):
                yield from self.unescaped(child.start_byte, child.end_byte, escape)
            else:
                text = self.data[child.start_byte : child.end_byte]
                bare = child.end_byte - len(text.lstrip())
                yield from self.unescaped(child.start_byte, bare, escape)
                yield from (piece for piece, _ in self.pieces(child, depth + 1))
            at = child.end_byte
        yield from self.unescaped(at, max(at, node.end_byte), escape)

    def unescaped(self, start: int, end: int, escape: re.Pattern[str]) -> Iterator[Piece]:
        text = self.data[start:end].decode("utf-8", "replace")
        for piece in marked(text, self.holes):
            if isinstance(piece, str):
                yield escape.sub(lambda match: match[1].strip("\n"), piece)
            else:
                yield piece

    def document(self, node: Node, quoted: bool) -> Iterator[Piece]:
        """What a here-document hands on. quoted: its end stood in quotes, so that nothing is filled in."""
        if quoted:
            yield from marked(self.text(node), self.holes)
        else:
            yield from self.quoted(node, 0, _DOCUMENT_ESCAPE)

    def variable(self, name: str) -> tuple[Piece, ...]:
        """What ``$NAME`` becomes."""
        self.script.used.add(name)
        variable = self.env.get(name)
        if not _NAME.fullmatch(name):  # $1, $@, $#
            return (Hole(frozenset({name}), name not in "@*", self.level),)
        if variable is None:
            return unknown(name, self.level).pieces
        if variable.words is not None:  # $A is the first item
            return variable.words[0].value.pieces if variable.words else ()
        return variable.value.pieces or ("",)

    def expansion(self, node: Node) -> tuple[Piece, ...]:
        """What ``${NAME}`` and ``${NAME:-default}`` become."""
        text = self.text(node).lstrip()
        match = re.fullmatch(r"\$\{(\w+)(?:(:?[-?=+])(.*))?\}", text, re.DOTALL)
        if match is None:
            self.script.used |= self.names_in(text)
            return (Hole(self.leaves(text), False, self.level, self.readable(text)),)
        name, operator = match[1], match[2]
        if operator is None or operator.endswith("?"):
            return self.variable(name)
        self.script.used |= {name, *self.names_in(match[3])}
        variable = self.env.get(name)
        value = variable.value.text if variable is not None and variable.words is None else None
        if value and operator[-1] in "-=":  # set, and not empty
            return (value,)
        return unknown(name, self.level).pieces

    def arithmetic(self, node: Node, depth: int) -> int | None:
        """The value of an arithmetic expression, None where it cannot be known."""
        if depth > 20:
            return None
        if node.type in ("arithmetic_expansion", "parenthesized_expression"):
            inner = [child for child in node.children if child.is_named]
            return self.arithmetic(inner[0], depth + 1) if len(inner) == 1 else None
        if node.type == "binary_expression" and len(node.children) == 3:
            left, operator, right = node.children
            a, b = self.arithmetic(left, depth + 1), self.arithmetic(right, depth + 1)
            return _calculated(a, self.text(operator), b)
        if node.type == "number":
            return _decimal(self.text(node))
        if node.type in ("variable_name", "simple_expansion", "expansion"):
            name = self.text(node).strip("${}")
            variable = self.env.get(name) if _NAME.fullmatch(name) else None
            return _decimal(variable.value.text) if variable is not None and variable.words is None else None
        return None

    def names_in(self, text: str, *, bare: bool = False) -> set[str]:
        """Variables that a text mentions."""
        return set((_NAME if bare else _VARIABLE).findall(text))

    def leaves(self, text: str, *, bare: bool = False) -> frozenset[str]:
        """Variables that a text depends on in the end."""
        found = {name for p in marked(text, self.holes) if isinstance(p, Hole) for name in p.names}
        for name in self.names_in(text, bare=bare):
            variable = self.env.get(name)
            if variable is None:
                found.add(name)
            else:
                found |= variable.value.names
        return frozenset(found)


def _split_again(words: Iterable[Word]) -> Iterator[Word]:
    """The items of an array without quotes around it: split at spaces, and empty ones gone."""
    for word in words:
        if word.text is None:
            yield replace(word, many=True)
        else:
            yield from (replace(word, value=text_value(text)) for text in word.text.split())


def unknown(name: str, level: int) -> Value:
    return Value((Hole(frozenset({name} if name else ()), bool(name), level),))


def bounded(value: Value) -> Value:
    long = sum(len(piece) for piece in value.pieces if isinstance(piece, str)) > TEXT_MOST
    return Value((Hole(),)) if long or len(value.pieces) > PIECES_MOST else value


def is_literal(node: Node) -> bool:
    return node.type == "raw_string" or (
        node.type == "concatenation" and any(child.type == "raw_string" for child in node.children)
    )


def _decimal(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"0|[1-9][0-9]{0,8}", text) else None


def _calculated(a: int | None, operator: str, b: int | None) -> int | None:
    if a is None or b is None:
        return None
    if operator in ("/", "%"):
        if b == 0 or a < 0 or b < 0:
            return None
        return a // b if operator == "/" else a % b
    result = {"+": a + b, "-": a - b, "*": a * b}.get(operator)
    return result if result is not None and 0 <= result < 10**9 else None
