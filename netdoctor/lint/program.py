"""A file as text, and a Python program as its syntax tree."""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from netdoctor.lint.model import Kind, Position


@dataclass(frozen=True, slots=True)
class Text:
    """A file as text."""

    path: str  # as it was given
    kind: Kind
    text: str
    crlf: bool = False  # its lines ended in carriage return and line feed

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


@dataclass(frozen=True, slots=True, eq=False)
class Python:
    """A Python program, which is parsed and never run."""

    file: Text
    tree: ast.Module | None  # None where it is none
    words: frozenset[str]  # every identifier in the text, also in strings and comments
    parents: dict[ast.AST, ast.AST]

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of functions of these last names: ``init_process_group`` of whatever module."""
        for node in ast.walk(self.tree) if self.tree is not None else ():
            if isinstance(node, ast.Call) and last_name(node.func) in names:
                yield node

    def inputs(self) -> Iterator[ast.AST]:
        """What a program may take its data by: slices, and calls of functions that are named so."""
        for node in ast.walk(self.tree) if self.tree is not None else ():
            is_call = isinstance(node, ast.Call) and re.search(r"(?i)data|load|read", last_name(node.func))
            if is_call or isinstance(node, ast.Slice):
                yield node

    def enclosing(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, innermost first."""
        while (outer := self.parents.get(node)) is not None:
            yield outer
            node = outer

    def mentions(self, pattern: str) -> bool:
        """Whether an identifier holds the expression."""
        return any(re.search(pattern, word) for word in self.words)

    def assigned_variables(self) -> set[object]:
        """Names that are set in os.environ."""
        nodes = ast.walk(self.tree) if self.tree is not None else ()
        targets = (target for node in nodes if isinstance(node, ast.Assign) for target in node.targets)
        subscripts = (t for t in targets if isinstance(t, ast.Subscript) and last_name(t.value) == "environ")
        return {one.slice.value for one in subscripts if isinstance(one.slice, ast.Constant)}

    def is_global_rank(self, node: ast.expr) -> bool:
        """Whether an expression is certainly RANK or get_rank(), and no part of it."""
        if isinstance(node, ast.Name) and self.tree is not None:
            stored = [
                one
                for one in ast.walk(self.tree)
                if (isinstance(one, ast.Name) and one.id == node.id and isinstance(one.ctx, ast.Store))
                or (isinstance(one, ast.arg) and one.arg == node.id)
            ]
            assign = self.parents.get(stored[0]) if len(stored) == 1 else None
            return isinstance(assign, ast.Assign) and self.is_global_rank(assign.value)
        if isinstance(node, ast.Call) and last_name(node.func) == "int" and len(node.args) == 1:
            return not isinstance(node.args[0], ast.Name) and self.is_global_rank(node.args[0])
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return last_name(node.value) == "environ" and key == "RANK"
        return isinstance(node, ast.Call) and last_name(node.func) == "get_rank" and not node.args

    def position(self, node: ast.AST) -> Position:
        return Position(getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)


def last_name(node: ast.AST) -> str:
    """``DataLoader`` of ``torch.utils.data.DataLoader``, "" where it is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def parse_python(path: str, text: str) -> Python:
    """Read a program; its tree is None where it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in somebody's string
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    nodes = ast.walk(tree) if tree is not None else ()
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    words = frozenset(re.findall(r"[^\W\d]\w*", text))
    return Python(Text(path, Kind.PYTHON, text), tree, words, parents)
