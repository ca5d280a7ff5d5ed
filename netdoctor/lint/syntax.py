"""A shell script as commands and assignments, with the values that can be known without running it.

Parsed with tree-sitter-bash, which goes on after errors; what it could not make out is skipped. The walk
follows the text: branches are walked one beside the other and joined, what a loop or a function assigns is
unknown around it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, takewhile

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

from netdoctor.lint.expansion import WORDS_MOST, Expander, bounded, is_literal, unknown
from netdoctor.lint.launches import started_file
from netdoctor.lint.model import Position
from netdoctor.lint.nested import REMOTE, inner_script, reads_input
from netdoctor.lint.values import (
    Assignment,
    Command,
    Piece,
    Script,
    Value,
    Variable,
    Word,
    join,
    mark,
    text_value,
)
from netdoctor.tables import names

DEPTH_MOST = 120
NESTED_MOST = 3  # bash -c in bash -c
NESTED_TEXT_MOST = 8_000
SNAPSHOTS_MOST = 200
LOOPS_MOST = 8  # in each other
STARTED_MOST = 50  # files that a script starts
ERRORS_MOST = 3
# tree-sitter-bash takes time that grows with the square of their number.
HEREDOCS_MOST = 1000

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _Context:
    """What lies around the node that is walked."""

    depth: int = 0
    function: str = ""
    branch: bool = False
    loop: int = 0
    lost: str = ""  # where assignments are gone at the end: a subshell, a pipeline
    background: bool = False


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(
    text: str,
    seeds: Mapping[str, Value] | None = None,
    opener: Callable[[str], tuple[str, str] | None] = lambda name: None,
) -> Script:
    """Read a script. seeds: variables that its environment is known to hold. opener: as that of a Script."""
    script = Script(lines=text.split("\n"), opener=opener)
    data = text.encode("utf-8", "surrogatepass")
    if data.count(b"<<") <= HEREDOCS_MOST:
        environment = {name: Variable(value, exported=True) for name, value in (seeds or {}).items()}
        _Reader(script, data, environment).walk()
        if script.snapshots >= SNAPSHOTS_MOST:
            script.unread.append((Position(1), f"the variables of more than {SNAPSHOTS_MOST} commands"))
    else:
        script.unread.append((Position(1), f"more than {HEREDOCS_MOST} here-documents"))
    return script


class _Reader(Expander):
    """One walk over one tree. `script` is what all nested ones write to."""

    def __init__(
        self,
        script: Script,
        data: bytes,
        environment: Mapping[str, Variable],
        *,
        level: int = 0,
        outer: tuple[Command, ...] = (),
        position: Position | None = None,
        holes: Sequence[Piece] = (),
        path: str = "",
    ) -> None:
        super().__init__(script, data, environment, level, position, holes, path)
        self.outer = outer
        # Variables that functions may set: nobody knows when those are called.
        self.volatile: frozenset[str] = frozenset()
        # Bodies of functions with their names and the variables where they are defined.
        self.functions: list[tuple[Node, str, Mapping[str, Variable]]] = []

    def walk(self) -> None:
        root = _parser().parse(self.data).root_node
        for node in _errors(root):
            self.script.unread.append((self.position(node), "the syntax here"))
        self.volatile = frozenset(_assigned(root, inside_functions=True))
        self.visit(root, _Context())
        times = _times_set(root) if self.functions else Counter()
        bodies = self.functions[:SNAPSHOTS_MOST]
        sets = [_assigned(body) for body, _, _ in bodies]
        for index, (body, name, before) in enumerate(bodies):
            # What is set once, above a function, is what it finds; what it calls may set what others set.
            self.env = {
                key: variable if times[key] <= 1 else replace(variable, value=unknown(key, 0), words=None)
                for key, variable in before.items()
            }
            others = (names for at, names in enumerate(sets) if at != index)
            self.volatile = frozenset().union(_assigned(body, inside_functions=True), *others)
            self.visit(body, _Context(function=name))

    # --- statements ------------------------------------------------------------------------------

    def visit(self, node: Node, context: _Context) -> None:
        if context.depth > DEPTH_MOST:
            self.script.unread.append((self.position(node), "what is nested so deeply"))
            return
        context = replace(context, depth=context.depth + 1)
        handler = _HANDLERS.get(node.type)
        if handler is not None:
            handler(self, node, context)
        else:
            self.visit_all(node.children, context)

    def visit_all(self, nodes: list[Node], context: _Context) -> None:
        for index, node in enumerate(nodes):
            if node.is_named:
                behind = index + 1 < len(nodes) and nodes[index + 1].type == "&"
                self.visit(node, replace(context, background=True) if behind else context)

    def in_copies(self, parts: list[list[Node]], context: _Context, *, may_skip: bool) -> None:
        """Walk each part from the same state, then join: what they do not agree on is unknown."""
        before = self.env
        ends = [before] if may_skip else []
        for part in parts:
            self.env = before
            self.visit_all(part, context)
            ends.append(self.env)
        self.env = _joined(ends)

    def if_(self, node: Node, context: _Context) -> None:
        types = [child.type for child in node.children]
        clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        then = types.index("then") if "then" in types else len(types)
        before, body = (
            [child for child in part if child not in clauses]
            for part in (node.children[:then], node.children[then:])
        )
        self.visit_all(before, context)
        parts = [body, *(list(clause.children) for clause in clauses)]
        self.in_copies(parts, replace(context, branch=True), may_skip="else_clause" not in types)

    def case(self, node: Node, context: _Context) -> None:
        items = [list(child.children) for child in node.children if child.type == "case_item"]
        self.in_copies(items, replace(context, branch=True), may_skip=True)

    def list_(self, node: Node, context: _Context) -> None:
        """``a && b``, ``a || b``: the second may be left out."""
        parts = [child for child in node.children if child.is_named]
        self.visit_all(parts[:1], context)
        for part in parts[1:]:
            self.in_copies([[part]], replace(context, branch=True), may_skip=True)

    def loop(self, node: Node, context: _Context) -> None:
        context = replace(context, loop=context.loop + 1)
        if context.loop > LOOPS_MOST:
            self.script.unread.append((self.position(node), "loops so deep in each other"))
            return
        for name in (*_assigned(node), *_loop_variables(node)):
            self.put(name, Variable(unknown(name, self.level)))
        self.in_copies([list(node.children)], context, may_skip=True)

    def pipeline(self, node: Node, context: _Context) -> None:
        before, heads = self.env, []
        for part in (child for child in node.children if child.is_named):
            count = len(self.script.commands)
            self.visit(part, replace(context, lost="a pipeline"))
            heads += self.script.commands[count : count + 1]
            self.env = before
        self.script.pipelines.append(heads)

    def subshell(self, node: Node, context: _Context) -> None:
        before = self.env
        self.visit_all(node.children, replace(context, lost="a subshell"))
        self.env = before

    def compound(self, node: Node, context: _Context) -> None:
        if context.background:
            self.subshell(node, context)
        else:
            self.visit_all(node.children, context)

    def function(self, node: Node, context: _Context) -> None:
        name = next((self.text(child) for child in node.children if child.type == "word"), "")
        self.script.functions.add(name)
        bodies = [child for child in node.children if child.type.endswith(("statement", "subshell"))]
        self.functions += [(body, name, self.env) for body in bodies]

    def redirected(self, node: Node, context: _Context) -> None:
        count = len(self.script.commands)
        self.visit_all([child for child in node.children if not child.type.endswith("_redirect")], context)
        outputs = [child for child in node.children if child.type == "file_redirect"]
        for child in node.children:
            if child.type == "heredoc_redirect":  # cat <<EOF | bash: the pipeline hangs on the redirection
                self.visit_all(
                    [c for c in child.children if c.type in ("pipeline", "list", "command")], context
                )
                if node.children[0].type != "command":
                    continue  # the input of a loop
                outputs += [c for c in child.children if c.type == "file_redirect"]
                self.here_document(child, self.script.commands[count:], outputs)

    def here_document(self, node: Node, commands: list[Command], outputs: list[Node]) -> None:
        """The text behind ``<<EOF``: a script for a shell that reads its input, or a file that is written."""
        parts = {child.type: child for child in node.children}
        body = parts.get("heredoc_body")
        if body is None or not commands:
            return
        quoted = self.text(parts["heredoc_start"])[:1] in "'\"\\"
        # At its own lines of the file, so that positions are right.
        pieces = ("\n" * body.start_point[0], *self.document(body, quoted))
        shell = next((c for c in (commands[0], commands[-1]) if reads_input(c) is not None), None)
        if shell is not None:
            self.nested(shell, pieces, reads_input(shell) or [], self.fixed)
        elif commands[0].name in ("cat", "tee"):
            targets = [self.words(o.children[-1]) for o in outputs if o.children[0].type in (">", ">|")]
            names = [word.text for words in targets for word in words] or [
                word.text for word in commands[0].words[1:2] if commands[0].name == "tee"
            ]
            text = join(pieces).text
            for name in names if text is not None else ():
                self.script.written[(name or "").rpartition("/")[2]] = (self.path, text or "")

    # --- assignments -----------------------------------------------------------------------------

    def put(self, name: str, variable: Variable) -> None:
        self.env = {**self.env, name: self.masked(name, variable)}

    def masked(self, name: str, variable: Variable) -> Variable:
        """A variable, without its value where a function may set it."""
        if name in self.volatile and not self.outer:
            return replace(variable, value=unknown(name, self.level), words=None)
        return variable

    def note(self, name: str, variable: Variable, node: Node, context: _Context, how: str) -> None:
        self.script.assignments.append(
            Assignment(
                name=name,
                value=variable.value,
                position=self.position(node),
                exported=variable.exported,
                lost=context.lost,
                how=how,
                literal=variable.literal,
                level=self.level,
                statement=len(self.script.commands),
                certain=not (context.branch or context.loop or context.function or context.lost),
            )
        )

    def assignment(self, node: Node, context: _Context) -> None:
        self.assign(node, context, "export" if self.script.allexport else "")

    def assign(self, node: Node, context: _Context, how: str) -> None:
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
        maybe = how != "export" and before is not None and before.maybe
        variable = Variable(value, exported, words, self.position(node), literal, maybe)
        self.put(name, variable)
        self.note(name, variable, node, context, how)

    def right_side(self, node: Node | None) -> tuple[Value, tuple[Word, ...] | None, bool]:
        """The value, the items of an array, and whether it stood in single quotes."""
        if node is None:
            return text_value(""), None, False
        if node.type == "array":
            items = [child for child in node.children if child.is_named and child.type != "comment"]
            words = [word for child in items for word in self.words(child)]
            return unknown("", self.level), tuple(words[:WORDS_MOST]), False
        pieces = [piece for piece, _ in self.pieces(node, 0)]
        return bounded(join(pieces)), None, is_literal(node)

    def declaration(self, node: Node, context: _Context) -> None:
        """export, declare, local, readonly, typeset."""
        keyword = node.children[0].type
        flags = [self.text(child) for child in node.children if child.type == "word"]
        exports = keyword == "export" or any(f.startswith("-") and "x" in f for f in flags)
        if any(f.startswith("-") and "n" in f for f in flags):
            exports = False
        how = "export" if exports else keyword if keyword == "local" else ""
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self.assign(child, context, how)
            elif child.type == "variable_name" and exports:
                self.export(self.text(child), child, context)
            elif child.type in ("string", "concatenation", "raw_string") and exports:  # export "A=$B"
                value = join(piece for piece, _ in self.pieces(child, 0))
                name, equals, rest = value.head.partition("=")
                if equals and _NAME.fullmatch(name):
                    right = join((rest, *value.pieces[1:]))
                    variable = Variable(right, True, None, self.position(child))
                    self.put(name, variable)
                    self.note(name, variable, child, context, how)
        words = [word for child in node.children[1:] for word in self.words(child) if child.is_named]
        self.command_of((Word(text_value(keyword), self.position(node)), *words), node, context, {})

    def export(self, name: str, node: Node, context: _Context) -> None:
        before = self.env.get(name) or Variable(unknown(name, self.level))
        variable = replace(before, exported=True, maybe=False)
        self.put(name, variable)
        self.note(name, variable, node, context, "export")

    def comment(self, node: Node, context: _Context) -> None:
        if not self.outer:
            self.script.comments.add(node.start_point[0] + 1)

    def unset(self, node: Node, context: _Context) -> None:
        names = {self.text(child) for child in node.children if child.type in ("variable_name", "word")}
        self.env = {name: variable for name, variable in self.env.items() if name not in names}

    # --- commands --------------------------------------------------------------------------------

    def command(self, node: Node, context: _Context) -> None:
        prefix: dict[str, Variable] = {}
        words: list[Word] = []
        for child in node.children:
            if child.type == "variable_assignment":
                target = child.child_by_field_name("name")
                value, _, literal = self.right_side(child.child_by_field_name("value"))
                if target is not None:
                    name = self.text(target)
                    prefix[name] = Variable(value, True, None, self.position(child), literal)
                    self.note(name, prefix[name], child, context, "command")
            elif child.type == "command_name":
                words += [word for inner in child.children for word in self.words(inner)]
            elif child.is_named and not child.type.endswith("_redirect") and len(words) < WORDS_MOST:
                words += self.words(child)
        self.command_of(tuple(words), node, context, prefix)

    def command_of(
        self, words: tuple[Word, ...], node: Node, context: _Context, prefix: dict[str, Variable]
    ) -> None:
        if not words:
            return
        script = self.script
        has_environment = script.snapshots < SNAPSHOTS_MOST and words[0].text not in _QUIET
        script.snapshots += has_environment
        command = Command(
            words=words,
            position=self.position(node),
            end=words[0].position.line if self.outer else node.end_point[0] + 1,
            environment=self.env if has_environment else {},
            prefix=prefix,
            level=self.level,
            outer=self.outer,
            function=context.function,
            branch=context.branch,
            loop=context.loop > 0,
            background=context.background,
            raw=self.readable(self.text(node)[:4000]),
        )
        script.commands.append(command)
        self.effects(command)
        if has_environment or words[0].text in ("source", "."):
            self.inner(command)

    def effects(self, command: Command) -> None:
        """What a builtin does to variables."""
        name, texts = command.name, [word.text or "" for word in command.words[1:]]
        if name == "set":
            for text, following in pairwise([*takewhile(lambda text: text != "--", texts), ""]):
                if re.match(r"[-+]\w*(a|o allexport\b)", f"{text} {following}"):
                    self.script.allexport = text[0] == "-"
        elif name in ("read", "mapfile", "readarray", "getopts") or (name == "printf" and "-v" in texts):
            for text in texts:
                if _NAME.fullmatch(text):
                    self.put(text, Variable(unknown(text, self.level)))

    def inner(self, command: Command) -> None:
        """The script in ``bash -c '…'``, ``ssh host '…'`` or ``eval``, or the file that is started."""
        words, starters = inner_script(command)
        pieces = [piece for word in words for piece in (*word.value.pieces, " ")]
        if words:
            self.nested(command, pieces, starters, words[0].position)
        elif found := started_file(command):
            self.file(command, *found)

    def file(self, command: Command, word: Word, starters: list[str]) -> None:
        """A script of a file of its own."""
        name = word.value.pieces[-1] if word.value.pieces else ""
        if not isinstance(name, str) or not name.rpartition("/")[2]:
            return
        script, base = self.script, name.rpartition("/")[2]
        found = script.written.get(base) or script.opener(name)
        if found is None and base in _ENVIRONMENTS:
            return
        if found is None or len(script.started) >= STARTED_MOST:
            script.unread.append((command.position, f"{base}, which {command.name} starts"))
            return
        path, text = found
        if base not in script.written and path in {self.path, *(one.position.path for one in self.outer)}:
            return  # it starts itself
        if path:
            script.started[path] = text
        self.nested(command, (text,), starters, None, path)

    def nested(
        self,
        command: Command,
        pieces: Sequence[Piece],
        starters: list[str],
        position: Position | None,
        path: str | None = None,
    ) -> None:
        """A script within this one. position: that of all of it, None where its text has lines of its own."""
        same = command.name in ("eval", "source", ".")
        variables = {} if REMOTE.intersection(starters) else {**self.env, **command.prefix}
        environment = {
            name: variable
            if same or not variable.maybe
            else replace(variable, value=unknown(name, 0), words=None)
            for name, variable in variables.items()
            if variable.exported or same
        }
        holes = [piece for piece in pieces if not isinstance(piece, str)]
        numbers = iter(range(len(holes)))
        text = "".join(piece if isinstance(piece, str) else mark(next(numbers)) for piece in pieces)
        is_long = path is None and len(text.lstrip("\n")) > NESTED_TEXT_MOST
        if is_long or text.count("<<") > 20 or len(self.outer) >= NESTED_MOST:
            self.script.unread.append((command.position, f"the script that {command.name} starts"))
            return
        allexport = self.script.allexport
        self.script.allexport = allexport and same
        reader = _Reader(
            self.script,
            text.encode("utf-8", "surrogatepass"),
            environment,
            level=self.level + bool(starters),
            outer=(*self.outer, command),
            position=position,
            holes=holes,
            path=self.path if path is None else path,
        )
        reader.walk()
        if same:
            self.env = {name: self.masked(name, variable) for name, variable in reader.env.items()}
        else:
            self.script.allexport = allexport


def _errors(root: Node) -> list[Node]:
    """The first nodes that the parser made nothing of."""
    found: list[Node] = []
    stack = [root] if root.has_error else []
    while stack and len(found) < ERRORS_MOST:
        node = stack.pop()
        if node.type == "ERROR" or node.is_missing:
            found.append(node)
        else:
            stack += [child for child in reversed(node.children) if child.has_error]
    return found


_SETTERS = (b"read", b"mapfile", b"getopts", b"printf -v")  # readarray among them
# Commands whose environment nobody asks for.
_QUIET = frozenset(
    """
    echo printf cd mkdir set module source . date export declare local readonly typeset ulimit sleep cat
    rm cp mv ln ls exit return shift trap wait true false test [ : pwd hostname nvidia-smi which conda read
    unset shopt
    """.split()  # noqa: SIM905  as in rules/variables.py
)
# What activates an environment, and starts no job.
_ENVIRONMENTS = names(
    "activate .bashrc .bash_profile .profile .zshrc bashrc profile conda.sh setvars.sh bash modules.sh"
)
_HANDLERS: dict[str, Callable[[_Reader, Node, _Context], None]] = {
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


def _target(node: Node) -> str:
    """The variable that an assignment sets, "" for any other node."""
    target = node.child_by_field_name("name") if node.type == "variable_assignment" else None
    return (target.text or b"").decode("utf-8", "replace").partition("[")[0] if target is not None else ""


def _assigned(root: Node, *, inside_functions: bool = False) -> set[str]:
    """Names that are assigned below a node; or only those inside of its functions, local ones left out."""
    found: set[str] = set()
    stack = [(root, not inside_functions)]
    while stack:
        node, counts = stack.pop()
        counts = counts or node.type == "function_definition"
        if counts and (name := _target(node)) and (parent := node.parent) is not None:
            is_local = parent.type == "declaration_command" and parent.children[0].type == "local"
            if parent.type != "command" and not (is_local and inside_functions):
                found.add(name)
        stack += [(child, counts) for child in node.children]
    return found


def _times_set(root: Node) -> Counter[str]:
    """How often each name is set, in whatever way, below a node."""
    found: Counter[str] = Counter()
    stack = [root]
    while stack:
        node = stack.pop()
        if name := _target(node):
            found[name] += 1
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


def _joined(ends: Sequence[Mapping[str, Variable]]) -> dict[str, Variable]:
    """One state of several: what differs is unknown."""
    found: dict[str, Variable] = {}
    for name in dict.fromkeys(name for end in ends for name in end):
        versions = [end.get(name) for end in ends]
        first = versions[0]
        if first is not None and versions.count(first) == len(versions):
            found[name] = first
        else:
            exports = {version is not None and version.exported for version in versions}
            maybe = len(exports) > 1 or any(version is not None and version.maybe for version in versions)
            found[name] = Variable(unknown(name, 0), True in exports, maybe=maybe)
    return found
