"""Commands as they are shown, ready to paste: made visible, and in a loop for many nodes."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from netdoctor.report.fmt import escaped
from netdoctor.report.model import CommandRecord, FixRecord

LOOP_ABOVE = 3
COMMAND_LIMIT = 3
# What somebody reads before it is pasted, and can type.
LONGEST = 100
# A fix in a file of netdoctor's own folder, which `report.scripts` has written.
SCRIPT = re.compile(r"\.netdoctor/fix-[a-z0-9.-]{1,60}-[0-9a-f]{8}\.sh")
_PART = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|`[^`]*`|\\.|;\ \}|;\ |&&\ |\{\ |.""", re.DOTALL)
# What goes on with the step before it.
_SAME_STEP = re.compile(r"(do|then|else|fi|done|esac)\b|\}")
_SHELL_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def display(shell: str) -> str:
    """Return a command as it may be shown: unchanged, or a comment when it holds what cannot be seen.

    As a comment it does nothing when it is pasted all the same.
    """
    visible = escaped(shell)
    return visible if visible == shell else f"# do not run, it holds control characters: {visible}"


def fix_commands(fix: FixRecord, *, every: bool = False) -> list[str]:
    """Return the lines to paste; the same command for more than three nodes becomes one loop.

    Where no loop fits, lines beyond the third are counted in a comment unless `every` is set.
    """
    return _few(to_paste(fix.commands), every)


def _few(lines: list[str], every: bool) -> list[str]:
    if every or len(lines) <= COMMAND_LIMIT:
        return lines
    return [*lines[:COMMAND_LIMIT], f"# and {len(lines) - COMMAND_LIMIT} more like these: --all"]


def to_type(fix: FixRecord, *, every: bool = False) -> list[str]:
    """The same as somebody reads it: its script where it has one.

    What is typed on a console stands there without what guards a paste, and a long one in steps.
    """
    if SCRIPT.fullmatch(fix.script):
        return [f"sh {fix.script}"]
    shells = [one.inner if one.via == "console" and one.inner else one.shell for one in fix.commands]
    bare = tuple(replace(one, shell=shell) for one, shell in zip(fix.commands, shells, strict=True))
    lines = _few(to_paste(bare), every)
    consoles = {one.inner for one in fix.commands if one.via == "console" and len(one.inner) > LONGEST}
    return [step for line in lines for step in (steps(line) if line in consoles else [line])]


def to_undo(fix: FixRecord) -> list[str]:
    """What takes a fix back, as somebody reads it."""
    if SCRIPT.fullmatch(fix.script) and fix.undo:
        return [f"sh {fix.script} --undo"]
    return to_paste(fix.undo)


def to_paste(commands: Sequence[CommandRecord]) -> list[str]:
    """Return the commands as lines; the same one for more than three nodes becomes one loop."""
    if len(commands) <= LOOP_ABOVE:
        return [display(c.shell) for c in commands]
    return list(_looped(commands))


def _looped(commands: Sequence[CommandRecord]) -> Iterator[str]:
    """Yield commands, those that differ only in the node's name as a for loop."""
    groups: dict[str, list[CommandRecord]] = {}
    for record in commands:
        groups.setdefault(_template(record) or f"\0{record.shell}", []).append(record)
    for template, records in groups.items():
        if template.startswith("\0") or len(records) <= LOOP_ABOVE:
            yield from (display(record.shell) for record in records)
        else:
            names = " ".join(record.run_on[0] for record in records)
            yield f"for node in {names}; do {template}; done"


def _template(record: CommandRecord) -> str | None:
    """Return the command with ``"$node"`` for the node's name where that is safe, else None."""
    if len(record.run_on) != 1 or escaped(record.shell) != record.shell or not record.inner:
        return None
    node = record.run_on[0]
    outer, found, rest = record.shell.partition(f" {node} ")
    if not found or not _SHELL_WORD.fullmatch(node) or not set("'\"\\#").isdisjoint(outer):
        return None
    if re.search(rf"\b{re.escape(node)}\b", rest):
        return None  # the command itself names the node: no loop over names can say that
    return f'{outer} "$node" {rest}'


def steps(shell: str) -> list[str]:
    """A command in lines, broken behind ``;`` and ``&&`` where these part commands of the shell.

    Joined by blanks they are the command as it was, but for what indents those between braces.
    """
    lines = []
    start = inside = braces = 0
    indent = ""
    # Quoted text as a whole, an escaped character, what ends a step, and every other character.
    for found in _PART.finditer(shell):
        word = found.group()
        inside += (word == "(") - (word == ")")
        braces += (word == "{ ") - (word == "; }")
        if word in ("; ", "&& ") and not inside and not _SAME_STEP.match(shell, found.end()):
            lines.append(indent + shell[start : found.end() - 1])
            start = found.end()
            indent = "    " * braces
    return [*lines, indent + shell[start:]]


def quote_path(path: str) -> str:
    """Return a path as a shell word; one that cannot be seen stays visible and harmless."""
    visible = escaped(path)
    return shlex.quote(f"./{visible}" if visible.startswith("-") else visible)
