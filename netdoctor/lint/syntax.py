"""A shell script as commands and assignments, with the values that can be known without running it.

Parsed with tree-sitter-bash, which goes on after errors; what it could not make out is skipped. The walk
follows the text: branches are walked one beside the other and joined, what a loop or a function assigns is
unknown around it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

from netdoctor.lint.model import Place
from netdoctor.lint.values import Assignment, Command, Script, Value, Variable, Word, join, known
from netdoctor.lint.words import WORDS_MOST, Expander, bounded, is_literal, unknown

DEPTH_MOST = 120
NESTED_MOST = 3  # bash -c in bash -c
NESTED_TEXT_MOST = 8_000
SNAPSHOTS_MOST = 200
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


class _Reader(Expander):
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
        super().__init__(script, data, place, environment, level)
        self.shared = False
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
                key: variable if times[key] <= 1 else replace(variable, value=unknown(key, 0), words=None)
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
            self.put(name, Variable(unknown(name, self.level)))
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
            variable = replace(variable, value=unknown(name, self.level), words=None)
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
            self.put(name, Variable(unknown(name, self.level)))
            return
        name = self.text(target)
        before = self.env.get(name)
        value, words, literal = self.right_side(node.child_by_field_name("value"))
        if any(child.type == "+=" for child in node.children):
            if words is not None and before is not None and before.words is not None:
                words = (*before.words, *words)[:WORDS_MOST]
            elif before is not None and before.words is None and words is None:
                value = bounded(before.value + value)
            else:
                value, words = unknown(name, self.level), None
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
            return unknown("", self.level), tuple(words[:WORDS_MOST]), False
        pieces = [piece for piece, _ in self.pieces(node, 0)]
        return bounded(join(pieces)), None, is_literal(node)

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
            self.put(name, Variable(unknown(name, self.level), exported=True))
            self.note(name, unknown(name, self.level), node, around, exported=True, how="export")
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
                    self.put(text, Variable(unknown(text, self.level)))

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
        if len(text) > NESTED_TEXT_MOST or text.count("<<") > 20:
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


_SETTERS = (b"read", b"mapfile", b"getopts", b"printf -v")  # readarray among them
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
            for name in _NAME.findall((node.text or b"").decode("utf-8", "replace")):
                found[name] += 2  # as a loop's variable: the value is not in the text
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
            found[name] = Variable(unknown(name, 0), exported)
    return {name: v for name, v in found.items() if any(name in end for end in every)}
