"""A shell script as commands and assignments, with the values that can be known without running it.

Parsed with tree-sitter-bash, which goes on after errors; what it could not make out is skipped. The walk
follows the text: branches are walked one beside the other and joined, what a loop or a function assigns is
unknown around it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

from netdoctor.lint.model import Place
from netdoctor.lint.values import Assignment, Command, Hole, Piece, Value, Variable, Word, join, known

DEPTH_MOST = 120
NESTED_MOST = 3  # bash -c in bash -c
SNAPSHOTS_MOST = 200
WORDS_MOST = 2000
TEXT_MOST = 8_000  # of one value
PIECES_MOST = 200
LOOPS_MOST = 8  # in each other
# tree-sitter-bash takes time that grows with the square of their number.
HEREDOCS_MOST = 1000

SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
# Programs that start what they are given somewhere else: once for each task or host.
STARTERS = frozenset(
    {
        "srun",
        "mpirun",
        "mpiexec",
        "mpiexec.hydra",
        "orterun",
        "prun",
        "jsrun",
        "ssh",
        "pdsh",
        "clush",
        "parallel-ssh",
    }
)
REMOTE = frozenset({"ssh", "pdsh", "clush", "parallel-ssh"})  # the environment stays behind
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\([\n$`"\\])')


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


@dataclass(frozen=True, slots=True)
class _Around:
    """What lies around the node that is walked."""

    depth: int = 0
    function: str = ""
    branch: bool = False
    loop: int = 0
    lost: str = ""
    background: bool = False


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(text: str, seeds: Mapping[str, Value] | None = None) -> Script:
    """Read a script. seeds: variables that its environment is known to hold."""
    script = Script(lines=text.split("\n"))
    data = text.encode("utf-8", "surrogatepass")
    if data.count(b"<<") > HEREDOCS_MOST:
        script.incomplete = True
        return script
    columns = _Columns(script.lines)
    environment = {name: Variable(value, exported=True) for name, value in (seeds or {}).items()}
    reader = _Reader(script, data, columns.place, environment)
    reader.walk()
    return script


class _Columns:
    """Bytes to characters, a line at a time."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def place(self, node: Node) -> Place:
        row, column = node.start_point
        line = self.lines[row] if row < len(self.lines) else ""
        if not line.isascii():
            column = len(line.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace"))
        return Place(row + 1, column + 1)


class _Reader:
    """One walk over one tree. `script` is what all nested ones write to."""

    def __init__(
        self,
        script: Script,
        data: bytes,
        place: Callable[[Node], Place],
        environment: dict[str, Variable],
        *,
        level: int = 0,
        around: tuple[Command, ...] = (),
        nested: int = 0,
    ) -> None:
        self.script = script
        self.data = data
        self.place = place
        self.env = environment
        self.shared = False
        self.level = level
        self.around = around
        self.nested = nested
        self.volatile: frozenset[str] = frozenset()
        self.later: list[tuple[Node, str, dict[str, Variable]]] = []

    def walk(self) -> None:
        root = _parser().parse(self.data).root_node
        self.volatile = frozenset(_assigned(root, inside_functions=True))
        self.visit(root, _Around())
        self.volatile = frozenset()
        if not self.later:
            return
        top, times = self.env, _times_set(root)
        bodies = self.later[:SNAPSHOTS_MOST]
        sets = [_assigned(body) for body, _, _ in bodies]
        for index, (body, name, before) in enumerate(bodies):
            # Nobody knows when it is called: what is set once, above it, is what it finds; and what it calls
            # may set what other functions set.
            self.env = {
                key: variable if times[key] <= 1 else replace(variable, value=_unknown(key, 0), words=None)
                for key, variable in before.items()
            }
            self.shared = False
            others = (names for at, names in enumerate(sets) if at != index)
            self.volatile = frozenset().union(_assigned(body, inside_functions=True), *others)
            self.visit(body, _Around(function=name))
        self.env, self.volatile = top, frozenset()

    # --- statements ------------------------------------------------------------------------------

    def visit(self, node: Node, around: _Around) -> None:
        if around.depth > DEPTH_MOST:
            self.script.incomplete = True
            return
        around = replace(around, depth=around.depth + 1)
        handler = _HANDLERS.get(node.type)
        if handler is not None:
            handler(self, node, around)
        else:
            self.visit_all(node.children, around)

    def visit_all(self, nodes: list[Node], around: _Around) -> None:
        for index, node in enumerate(nodes):
            if node.is_named:
                behind = index + 1 < len(nodes) and nodes[index + 1].type == "&"
                self.visit(node, replace(around, background=True) if behind else around)

    def in_copies(self, parts: list[list[Node]], around: _Around, *, may_skip: bool) -> None:
        """Walk each part from the same state, then join: what they do not agree on is unknown."""
        base = self.env
        self.shared = True
        ends = [base] if may_skip else []
        for part in parts:
            self.env, self.shared = base, True
            self.visit_all(part, around)
            ends.append(self.env)
        self.env, self.shared = (_joined(base, ends), False) if ends else (base, True)

    def if_(self, node: Node, around: _Around) -> None:
        before: list[Node] = []
        body: list[Node] = []
        clauses: list[list[Node]] = []
        has_else = False
        target = before
        for child in node.children:
            if child.type == "then":
                target = body
            elif child.type in ("elif_clause", "else_clause"):
                clauses.append(list(child.children))
                has_else = has_else or child.type == "else_clause"
            else:
                target.append(child)
        self.visit_all(before, around)
        self.in_copies([body, *clauses], replace(around, branch=True), may_skip=not has_else)

    def case(self, node: Node, around: _Around) -> None:
        items = [list(child.children) for child in node.children if child.type == "case_item"]
        self.in_copies(items, replace(around, branch=True), may_skip=True)

    def list_(self, node: Node, around: _Around) -> None:
        """``a && b``, ``a || b``: the second may be left out."""
        parts = [child for child in node.children if child.is_named]
        for index, part in enumerate(parts):
            if index == 0:
                self.visit(part, around)
            else:
                self.in_copies([[part]], replace(around, branch=True), may_skip=True)

    def loop(self, node: Node, around: _Around) -> None:
        around = replace(around, loop=around.loop + 1)
        if around.loop > LOOPS_MOST:
            self.script.incomplete = True
            return
        for name in (*_assigned(node), *_loop_variables(node)):
            self.put(name, Variable(_unknown(name, self.level)))
        self.in_copies([list(node.children)], around, may_skip=True)

    def pipeline(self, node: Node, around: _Around) -> None:
        base, found = self.env, []
        parts = [child for child in node.children if child.is_named]
        for part in parts:
            self.env, self.shared = base, True
            before = len(self.script.commands)
            self.visit(part, replace(around, lost="a pipeline"))
            found += self.script.commands[before : before + 1]
        self.env, self.shared = base, True
        self.script.pipelines.append(found)

    def subshell(self, node: Node, around: _Around) -> None:
        base = self.env
        self.shared = True
        self.visit_all(node.children, replace(around, lost="a subshell"))
        self.env, self.shared = base, True

    def compound(self, node: Node, around: _Around) -> None:
        if around.background:
            self.subshell(node, around)
        else:
            self.visit_all(node.children, around)

    def function(self, node: Node, around: _Around) -> None:
        name = next((self.text(child) for child in node.children if child.type == "word"), "")
        self.script.functions.add(name)
        self.shared = True
        bodies = [child for child in node.children if child.type.endswith(("statement", "subshell"))]
        self.later += [(body, name, self.env) for body in bodies]

    def redirected(self, node: Node, around: _Around) -> None:
        self.visit_all([child for child in node.children if not child.type.endswith("_redirect")], around)
        for child in node.children:
            if child.type == "heredoc_redirect":  # cat <<EOF | bash: the pipeline hangs on the redirection
                self.visit_all(
                    [c for c in child.children if c.type in ("pipeline", "list", "command")], around
                )

    # --- assignments -----------------------------------------------------------------------------

    def put(self, name: str, variable: Variable) -> None:
        if self.shared:
            self.env, self.shared = dict(self.env), False
        if name in self.volatile and not self.around:
            variable = replace(variable, value=_unknown(name, self.level), words=None)
        self.env[name] = variable

    def assignment(self, node: Node, around: _Around) -> None:
        how = "export" if self.script.allexport else ""
        self.assign(node, around, how)

    def assign(self, node: Node, around: _Around, how: str) -> None:
        target = node.child_by_field_name("name")
        if target is None:
            return
        if target.type != "variable_name":  # A[1]=x
            name = self.text(target).partition("[")[0]
            self.put(name, Variable(_unknown(name, self.level)))
            return
        name = self.text(target)
        before = self.env.get(name)
        value, words, literal = self.right_side(node.child_by_field_name("value"))
        if any(child.type == "+=" for child in node.children):
            if words is not None and before is not None and before.words is not None:
                words = (*before.words, *words)[:WORDS_MOST]
            elif before is not None and before.words is None and words is None:
                value = _bounded(before.value + value)
            else:
                value, words = _unknown(name, self.level), None
        exported = how == "export" or (before is not None and before.exported)
        place = self.place(node)
        self.put(name, Variable(value, exported, words, place, literal))
        self.note(name, value, node, around, exported=exported, how=how, literal=literal)

    def note(
        self,
        name: str,
        value: Value,
        node: Node,
        around: _Around,
        *,
        exported: bool,
        how: str,
        literal: bool = False,
    ) -> None:
        self.script.assignments.append(
            Assignment(
                name=name,
                value=value,
                place=self.place(node),
                exported=exported,
                lost=around.lost,
                certain=not (around.branch or around.loop or around.function),
                how=how,
                literal=literal,
                level=self.level,
                statement=len(self.script.commands),
            )
        )

    def right_side(self, node: Node | None) -> tuple[Value, tuple[Word, ...] | None, bool]:
        """The value, the items of an array, and whether it stood in single quotes."""
        if node is None:
            return known(""), None, False
        if node.type == "array":
            items = [child for child in node.children if child.is_named and child.type != "comment"]
            words = [word for child in items for word in self.words(child)]
            return _unknown("", self.level), tuple(words[:WORDS_MOST]), False
        pieces = [piece for piece, _ in self.pieces(node, 0)]
        return _bounded(join(pieces)), None, _is_literal(node)

    def declaration(self, node: Node, around: _Around) -> None:
        """export, declare, local, readonly, typeset."""
        keyword = node.children[0].type
        flags = [self.text(child) for child in node.children if child.type == "word"]
        exports = keyword == "export" or any(f.startswith("-") and "x" in f for f in flags)
        if any(f.startswith("-") and "n" in f for f in flags):
            exports = False
        how = "export" if exports else keyword if keyword == "local" else ""
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self.assign(child, around, how)
            elif child.type == "variable_name" and exports:
                self.export(self.text(child), child, around)
            elif child.type in ("string", "concatenation", "raw_string") and exports:  # export "A=$B"
                value = join(piece for piece, _ in self.pieces(child, 0))
                name, equals, rest = value.head.partition("=")
                if equals and _NAME.fullmatch(name):
                    right = join((rest, *value.pieces[1:]))
                    self.put(name, Variable(right, True, None, self.place(child)))
                    self.note(name, right, child, around, exported=True, how=how)
        words = [word for child in node.children[1:] for word in self.words(child) if child.is_named]
        self.command_of((Word(known(keyword), self.place(node)), *words), node, around, {})

    def export(self, name: str, node: Node, around: _Around) -> None:
        before = self.env.get(name)
        if before is None:
            self.put(name, Variable(_unknown(name, self.level), exported=True))
            self.note(name, _unknown(name, self.level), node, around, exported=True, how="export")
        else:
            self.put(name, replace(before, exported=True))
            self.note(name, before.value, node, around, exported=True, how="export", literal=before.literal)

    def comment(self, node: Node, around: _Around) -> None:
        if not self.nested:
            self.script.comments.add(node.start_point[0] + 1)

    def unset(self, node: Node, around: _Around) -> None:
        for child in node.children:
            if child.type in ("variable_name", "word") and self.text(child) in self.env:
                if self.shared:
                    self.env, self.shared = dict(self.env), False
                del self.env[self.text(child)]

    # --- commands --------------------------------------------------------------------------------

    def command(self, node: Node, around: _Around) -> None:
        prefix: dict[str, Variable] = {}
        words: list[Word] = []
        for child in node.children:
            if child.type == "variable_assignment":
                target = child.child_by_field_name("name")
                value, _, literal = self.right_side(child.child_by_field_name("value"))
                if target is not None:
                    name, place = self.text(target), self.place(child)
                    prefix[name] = Variable(value, True, None, place, literal)
                    self.note(name, value, child, around, exported=True, how="command", literal=literal)
            elif child.type == "command_name":
                words += [word for inner in child.children for word in self.words(inner)]
            elif child.is_named and not child.type.endswith("_redirect") and len(words) < WORDS_MOST:
                words += self.words(child)
        self.command_of(tuple(words), node, around, prefix)

    def command_of(
        self, words: tuple[Word, ...], node: Node, around: _Around, prefix: dict[str, Variable]
    ) -> None:
        if not words:
            return
        script = self.script
        snapshot: Mapping[str, Variable] = {}
        if script.snapshots < SNAPSHOTS_MOST:
            if words[0].text not in _QUIET:
                script.snapshots += 1
                snapshot, self.shared = self.env, True
        else:
            script.incomplete = True
        row = node.end_point[0] + 1 if not self.nested else words[0].place.line
        made = Command(
            words=words,
            place=self.place(node),
            end=row,
            environment=snapshot,
            prefix=prefix,
            level=self.level,
            around=self.around,
            function=around.function,
            branch=around.branch,
            loop=around.loop > 0,
            background=around.background,
            raw=self.text(node)[:4000],
        )
        script.commands.append(made)
        self.effects(made)
        if self.nested < NESTED_MOST and snapshot is self.env:
            self.inner(made)

    def effects(self, command: Command) -> None:
        """What a builtin does to variables."""
        name, texts = command.name, [word.text or "" for word in command.words[1:]]
        if name == "set" and texts:
            flags = [t for t in texts if t.startswith(("-", "+"))]
            if any(f.startswith("-") and "a" in f[1:] for f in flags) or "allexport" in texts:
                self.script.allexport = "+a" not in flags and not ("+o" in flags and "allexport" in texts)
            elif "+a" in flags:
                self.script.allexport = False
        elif name in ("source", "."):
            self.script.sources = True
        elif name in ("read", "mapfile", "readarray", "getopts") or (name == "printf" and "-v" in texts):
            for text in texts:
                if _NAME.fullmatch(text):
                    self.put(text, Variable(_unknown(text, self.level)))

    def inner(self, command: Command) -> None:
        """The script in ``bash -c '…'``, ``ssh host '…'`` or ``eval``, read as one."""
        found = _inner_text(command)
        if found is None:
            return
        words, starters = found
        remote = any(name in REMOTE for name in starters)
        level = self.level + (1 if starters else 0)
        base = {} if remote else {n: v for n, v in {**self.env, **command.prefix}.items() if v.exported}
        if command.name == "eval":
            base = dict(self.env)
        pieces: list[str] = []
        for word in words:
            for piece in word.value.pieces:
                if isinstance(piece, str):
                    pieces.append(piece)
                else:
                    name = f"__hole{len(base)}"
                    base[name] = Variable(Value((piece,)))
                    pieces.append(f"${{{name}}}")
            pieces.append(" ")
        text = "".join(pieces)
        if len(text) > TEXT_MOST or text.count("<<") > 20:
            return
        place = words[0].place
        reader = _Reader(
            self.script,
            text.encode("utf-8", "surrogatepass"),
            lambda _: place,
            base,
            level=level,
            around=(*self.around, command),
            nested=self.nested + 1,
        )
        allexport = self.script.allexport
        reader.walk()
        self.script.allexport = allexport

    # --- words -----------------------------------------------------------------------------------

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def words(self, node: Node) -> list[Word]:
        """The words that a node of a command becomes."""
        raw, place = self.text(node)[:2000], self.place(node)
        if (whole := self.array(node)) is not None:
            return list(whole) if node.type == "string" else list(_split_again(whole))
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
                many = many or not piece.names or len(words) > 1 or node.type in _BARE
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
        literal = _is_literal(node)
        made = [
            Word(
                _bounded(join(pieces)), place, many and any(isinstance(p, Hole) for p in pieces), literal, raw
            )
            for pieces in words[:WORDS_MOST]
        ]
        # A variable whose known text has several words and holes: which hole is many cannot be told.
        return made

    def array(self, node: Node) -> tuple[Word, ...] | None:
        """The items of ``"${A[@]}"``, with and without its quotes."""
        inner = node
        if node.type == "string":
            named = [child for child in node.children if child.is_named]
            if (
                len(named) != 1
                or named[0].type != "expansion"
                or len(self.text(named[0])) + 2 != len(self.text(node))
            ):
                return None
            inner = named[0]
        if inner.type != "expansion":
            return None
        match = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", self.text(inner))
        variable = self.env.get(match[1]) if match else None
        if match:
            self.script.used.add(match[1])
        return variable.words if variable is not None else None

    def pieces(self, node: Node, depth: int) -> Iterator[tuple[Piece, bool]]:
        """(piece, whether the shell splits it at spaces) of a word."""
        kind = node.type
        if depth > 20:
            yield Hole(), False
        elif kind in (
            "word",
            "number",
            "variable_name",
            "extglob_pattern",
            "regex",
            "command_name",
            "test_operator",
        ):
            text = self.text(node)
            if _BRACES.search(text):
                yield Hole(level=self.level), False
            elif kind == "command_name" and node.children:
                for child in node.children:
                    yield from self.pieces(child, depth + 1)
            else:
                yield _ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], text), False
        elif kind == "raw_string":
            yield self.text(node)[1:-1], False
        elif kind == "string":
            for piece, _ in self.quoted(node, depth):
                yield piece, False
        elif kind == "concatenation":
            text = self.text(node)
            if any(c.type == "brace_expression" for c in node.children) or (
                not any(c.type != "word" for c in node.children) and _BRACES.search(text)
            ):
                yield Hole(frozenset(self.names_in(text)), level=self.level), False
                return
            for child in node.children:
                yield from self.pieces(child, depth + 1)
        elif kind == "simple_expansion":
            yield from self.variable(self.text(node)[1:])
        elif kind == "expansion":
            yield from self.expansion(node, depth)
        elif kind == "command_substitution":
            text = self.text(node)
            self.script.used |= self.names_in(text)
            inner = text[2:-1] if text.startswith("$(") else text[1:-1]
            yield Hole(self.leaves(text), False, self.level, inner.strip()), True
        elif kind == "arithmetic_expansion":
            number = self.arithmetic(node, 0)
            names = self.leaves(self.text(node), bare=True)
            self.script.used |= self.names_in(self.text(node), bare=True)
            yield (str(number) if number is not None else Hole(names, False, self.level)), True
        elif kind == "translated_string":
            for child in node.children:
                yield from self.pieces(child, depth + 1)
        elif kind in ('"', "$"):
            if kind == "$":
                yield "$", False
        else:  # ansi_c_string, process_substitution, brace_expression, ERROR
            yield Hole(self.leaves(self.text(node)), False, self.level), False

    def quoted(self, node: Node, depth: int) -> Iterator[tuple[Piece, bool]]:
        """The inside of double quotes; blanks between its parts belong to no node."""
        at = node.start_byte + 1
        for child in node.children:
            if child.type == '"' and child.end_byte in (node.start_byte + 1, node.end_byte):
                continue
            if child.start_byte > at:
                yield _unescaped(self.data[at : child.start_byte].decode("utf-8", "replace")), False
            if child.type == "string_content":
                yield _unescaped(self.text(child)), False
            else:
                yield from self.pieces(child, depth + 1)
            at = child.end_byte
        end = node.end_byte - 1
        if end > at:
            yield _unescaped(self.data[at:end].decode("utf-8", "replace")), False

    def variable(self, name: str) -> Iterator[tuple[Piece, bool]]:
        self.script.used.add(name)
        variable = self.env.get(name)
        if not _NAME.fullmatch(name):  # $1, $@, $#
            yield Hole(frozenset({name}), name not in "@*", self.level), True
        elif variable is None:
            yield from ((piece, True) for piece in _unknown(name, self.level).pieces)
        elif variable.words is not None:  # $A is the first item
            yield from ((piece, True) for word in variable.words[:1] for piece in word.value.pieces)
        elif not variable.value.pieces:
            yield "", True
        else:
            yield from ((piece, True) for piece in variable.value.pieces)

    def expansion(self, node: Node, depth: int) -> Iterator[tuple[Piece, bool]]:
        match = re.fullmatch(r"\$\{(\w+)(?:(:?[-?=+])(.*))?\}", self.text(node), re.DOTALL)
        if match is None:
            text = self.text(node)
            self.script.used |= self.names_in(text)
            yield Hole(self.leaves(text), False, self.level, text), True
            return
        name, operator = match[1], match[2]
        variable = self.env.get(name)
        if operator is None or operator.endswith("?"):
            yield from self.variable(name)
            return
        self.script.used.add(name)
        self.script.used |= self.names_in(match[3])
        text_ = variable.value.text if variable is not None and variable.words is None else None
        if text_ and operator[-1] in "-=":  # set, and not empty
            yield text_, True
            return
        yield from ((piece, True) for piece in _unknown(name, self.level).pieces)

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
        found = set(_VARIABLE.findall(text)) | set(re.findall(r"\$\{[#!]?([A-Za-z_]\w*)", text))
        return found | set(_NAME.findall(text)) if bare else found

    def leaves(self, text: str, *, bare: bool = False) -> frozenset[str]:
        """Variables that a text depends on in the end."""
        found: set[str] = set()
        for name in self.names_in(text, bare=bare):
            variable = self.env.get(name)
            if variable is None:
                found.add(name)
            else:
                found |= variable.value.names
        return frozenset(found)


_SETTERS = (b"read", b"mapfile", b"getopts", b"printf -v")  # readarray among them
_QUOTES = frozenset({"string", "raw_string"})
_BARE = frozenset({"simple_expansion", "expansion", "command_substitution"})
# Commands whose environment nobody asks for.
_QUIET = frozenset(
    """
    echo printf cd mkdir set module source . date export declare local readonly typeset ulimit sleep cat
    rm cp mv ln ls exit return shift trap wait true false test [ : pwd hostname nvidia-smi which conda read
    unset shopt
    """.split()  # noqa: SIM905  as in rules/variables.py
)
_HANDLERS: dict[str, Callable[[_Reader, Node, _Around], None]] = {
    "if_statement": _Reader.if_,
    "case_statement": _Reader.case,
    "list": _Reader.list_,
    "while_statement": _Reader.loop,
    "for_statement": _Reader.loop,
    "c_style_for_statement": _Reader.loop,
    "pipeline": _Reader.pipeline,
    "subshell": _Reader.subshell,
    "compound_statement": _Reader.compound,
    "function_definition": _Reader.function,
    "redirected_statement": _Reader.redirected,
    "variable_assignment": _Reader.assignment,
    "declaration_command": _Reader.declaration,
    "unset_command": _Reader.unset,
    "command": _Reader.command,
    "comment": _Reader.comment,
    "heredoc_body": lambda *_: None,
}


def _inner_text(command: Command) -> tuple[list[Word], list[str]] | None:
    """(the words that are a script together, the starters before it)."""
    words, starters = command.words, []
    name = command.name
    if name == "eval":
        return (list(words[1:]), []) if len(words) > 1 else None
    if name in STARTERS:
        starters.append(name)
    if name == "ssh":
        rest = _behind_ssh(words)
        return (rest, starters) if rest else None
    if name in ("pdsh", "clush"):
        last = words[-1]
        return ([last], starters) if len(words) > 2 and " " in str(last) else None
    for index, word in enumerate(words[:-2]):
        program = (word.text or "").rpartition("/")[2]
        if program in SHELLS and (index == 0 or name in STARTERS or name in _WRAPPERS):
            for at in range(index + 1, min(index + 4, len(words) - 1)):
                flag = words[at].text or ""
                if not flag.startswith("-"):
                    break
                if re.fullmatch(r"-[a-z]*c", flag):
                    return [words[at + 1]], starters
            return None
    return None


_WRAPPERS = frozenset(
    {
        "sudo",
        "nohup",
        "timeout",
        "env",
        "exec",
        "time",
        "numactl",
        "docker",
        "podman",
        "singularity",
        "apptainer",
        "kubectl",
    }
)
_SSH_WITH_VALUE = frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOopQRSWw")


def _split_again(words: Iterable[Word]) -> Iterator[Word]:
    """The items of an array without quotes around it: split at spaces, and empty ones gone."""
    for word in words:
        if word.text is None:
            yield replace(word, many=True)
        else:
            yield from (replace(word, value=known(text)) for text in word.text.split())


def _behind_ssh(words: tuple[Word, ...]) -> list[Word]:
    at = 1
    while at < len(words):
        text = words[at].text or ""
        if not text.startswith("-"):
            return list(words[at + 1 :])
        at += 2 if text in _SSH_WITH_VALUE else 1
    return []


def _assigned(root: Node, *, inside_functions: bool = False) -> set[str]:
    """Names that are assigned below a node; or only those inside of its functions, local ones left out."""
    found: set[str] = set()
    stack = [(root, False)]
    while stack:
        node, inside = stack.pop()
        inside = inside or node.type == "function_definition"
        if node.type == "variable_assignment" and (inside or not inside_functions):
            parent, target = node.parent, node.child_by_field_name("name")
            local = (
                parent is not None
                and parent.type == "declaration_command"
                and parent.children[0].type == "local"
            )
            of_command = parent is not None and parent.type == "command"
            hidden = of_command or (local and inside_functions)
            if target is not None and target.text is not None and not hidden:
                found.add(target.text.decode("utf-8", "replace").partition("[")[0])
        stack += [(child, inside) for child in node.children]
    return found


def _times_set(root: Node) -> Counter[str]:
    """How often each name is set, in whatever way, below a node."""
    found: Counter[str] = Counter()
    stack = [root]
    while stack:
        node = stack.pop()
        target = node.child_by_field_name("name") if node.type == "variable_assignment" else None
        if target is not None and target.text is not None:
            found[target.text.decode("utf-8", "replace").partition("[")[0]] += 1
        elif node.type == "unset_command" or (
            node.type == "command" and (node.text or b"").startswith(_SETTERS)
        ):
            found.update(_NAME.findall((node.text or b"").decode("utf-8", "replace")))
            found.update(_NAME.findall((node.text or b"").decode("utf-8", "replace")))
        for name in _loop_variables(node) if node.type == "for_statement" else ():
            found[name] += 2
        stack += node.children
    return found


def _loop_variables(node: Node) -> Iterator[str]:
    for child in node.children:
        if child.type == "variable_name" and child.text is not None:
            yield child.text.decode("utf-8", "replace")


def _joined(base: Mapping[str, Variable], ends: Iterable[Mapping[str, Variable]]) -> dict[str, Variable]:
    """One state of several: what differs is unknown."""
    every = list(ends)
    found = dict(base)
    for name in {name for end in every for name in end}:
        versions = [end.get(name) for end in every]
        one = versions[0]
        if all(version is one or version == one for version in versions) and one is not None:
            found[name] = one
        else:
            exported = any(v is not None and v.exported for v in versions)
            found[name] = Variable(_unknown(name, 0), exported)
    return {name: v for name, v in found.items() if any(name in end for end in every)}


def _unknown(name: str, level: int) -> Value:
    return Value((Hole(frozenset({name} if name else ()), bool(name), level),))


def _bounded(value: Value) -> Value:
    long = sum(len(piece) for piece in value.pieces if isinstance(piece, str)) > TEXT_MOST
    return Value((Hole(),)) if long or len(value.pieces) > PIECES_MOST else value


def _is_literal(node: Node) -> bool:
    return node.type == "raw_string" or (
        node.type == "concatenation" and any(child.type == "raw_string" for child in node.children)
    )


def _unescaped(text: str) -> str:
    return _QUOTED_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], text)


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
