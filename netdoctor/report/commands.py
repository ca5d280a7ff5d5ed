"""Commands as they are shown, ready to paste: made visible, and in a loop for many nodes."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from netdoctor.report.fmt import escaped
from netdoctor.report.model import CommandRecord, FixRecord

LOOP_ABOVE = 3
COMMAND_LIMIT = 3
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
    lines = to_paste(fix.commands)
    if every or len(lines) <= COMMAND_LIMIT:
        return lines
    return [*lines[:COMMAND_LIMIT], f"# and {len(lines) - COMMAND_LIMIT} more like these: --all"]


def to_type(fix: FixRecord, *, every: bool = False) -> list[str]:
    """The same as somebody reads it: what is typed on a console stands there without what guards a paste."""
    shells = [one.inner if one.via == "console" and one.inner else one.shell for one in fix.commands]
    bare = tuple(replace(one, shell=shell) for one, shell in zip(fix.commands, shells, strict=True))
    return fix_commands(replace(fix, commands=bare), every=every)


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


def quote_path(path: str) -> str:
    """Return a path as a shell word; one that cannot be seen stays visible and harmless."""
    visible = escaped(path)
    return shlex.quote(f"./{visible}" if visible.startswith("-") else visible)
