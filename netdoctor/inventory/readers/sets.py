"""Names by operators: ClusterShell's node sets with groups, and what pdsh takes behind -w.

The operators are applied here, in the order of the text, as ClusterShell sorts; a group is looked up by
ClusterShell's own resolver. Sources: ClusterShell 1.9, NodeSet.py and NodeUtils.py; pdsh(1) of 2.34, -w.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from netdoctor.inventory.names import Fault, printable
from netdoctor.inventory.nodeset import OPERATORS, RANGE_MAX, TOO_MANY, SyntaxFault, combine, split, write_out
from netdoctor.inventory.readers.base import Source

NESTED_MAX = 8
_GROUP = re.compile(r"@(?:([\w.-]+):)?([\w.+\[\],/-]+|\*)")
# Of the regular expressions those that no name of 253 characters can keep busy.
_FILTER = re.compile(r"[\w.^$\[\]?-]*(?:[*+][\w.^$\[\]?-]*){0,3}")
_NOTHING = Fault("name missing beside an operator", "write: gpu[01-16]!gpu03")


def is_set(text: str) -> bool:
    """Whether a word has groups or operators: ``@gpu``, ``n[1-8]!n3``; not ``user@host``."""
    return bool(re.search(r"(?:^|[,!&^])@|[\w\].][!&^](?=[@\w])", text))


def has_group(text: str) -> bool:
    """Whether a word has a group, which only ClusterShell's sets have. In a file nothing else asks for
    operators: ``a&b`` may be anything."""
    return bool(re.search(r"(?:^|[,!&^])@", text))


def is_pdsh(text: str) -> bool:
    """Whether a word has what only pdsh takes: ``^file``, ``,-name``, ``,/regex/``."""
    return bool(
        re.match(r"\^\S", text) or re.search(r",(?:-|/|\^|-\^|-/)[^\s,]", re.sub(r"\[[^\]]*\]", "", text))
    )


def read_set(source: Source) -> None:
    """Lines of node sets, which add up."""
    for line in source.lines:
        try:
            names = evaluate(re.sub(r"[ \t]+", "", line.text), source.room, may_run=not line.number)
        except SyntaxFault as error:
            source.refuse(line.number or None, error.token, *error.fault)
            continue
        if not names:
            source.refuse(line.number or None, line.text, "gives no host", "see its operators: ! & ^")
        for name in names:
            source.host(name, line.number or None, text=line.text)


def evaluate(
    text: str, room: int = RANGE_MAX, depth: int = 0, inside: str | None = None, *, may_run: bool = False
) -> list[str]:
    """The names of an expression, each once, in its order. Raises SyntaxFault.

    inside: the source of groups that an unqualified ``@group`` is of. typed: the user said it, and no file.
    """
    chosen: dict[str, None] = {}
    for operator, piece in split(text, OPERATORS):
        if not piece:
            raise SyntaxFault(text, _NOTHING)
        names = _group(piece, depth, inside, may_run) if piece[0] == "@" else write_out(piece, room)
        chosen = combine(chosen, operator, names)
        if len(chosen) > room:
            raise SyntaxFault(text, Fault(TOO_MANY))
    return list(chosen)


def _group(piece: str, depth: int, inside: str | None, may_run: bool) -> Iterable[str]:
    """The nodes of ``@group``, ``@source:group`` or ``@*``, groups in groups written out."""
    found = _GROUP.fullmatch(piece)
    if found is None:
        raise SyntaxFault(piece, Fault("not a group", "write: @group, or @source:group"))
    if depth >= NESTED_MAX:
        raise SyntaxFault(piece, Fault(f"groups of groups, more than {NESTED_MAX} deep or in a circle"))
    where = found[1] or inside
    for name in write_out(found[2]):
        for text in _nodes(piece, name, where, may_run):
            yield from evaluate(str(text), RANGE_MAX, depth + 1, where, may_run=may_run)


def _nodes(piece: str, group: str, where: str | None, may_run: bool) -> list[str]:
    """What ClusterShell's configuration says of a group. Raises SyntaxFault.

    Many of its sources are commands of the site. They run for a group that the user types, as for clush -w,
    and never because a file says so.
    """
    from ClusterShell.NodeSet import std_group_resolver
    from ClusterShell.NodeUtils import (
        GroupResolverConfigError,
        GroupResolverError,
        GroupSourceError,
        UpcallGroupSource,
    )

    try:
        resolver = std_group_resolver()
        source: Any = resolver._source(where)  # there is no public way to ask whether it runs a command
        if isinstance(source, UpcallGroupSource) and not may_run:
            hint = f"run it yourself: nodeset -f '{piece}' | netdoctor hosts show -"
            name = printable(str(source.name), 40)
            fault = Fault(f"groups of {name} come from a command, which no file makes us run", hint)
            raise SyntaxFault(piece, fault)
        nodes = resolver.all_nodes(where) if group == "*" else resolver.group_nodes(group, where)
    except GroupResolverConfigError as error:
        raise SyntaxFault(piece, Fault(f"ClusterShell's groups: {printable(str(error), 200)}")) from None
    except (GroupResolverError, GroupSourceError, OSError, AttributeError, TypeError):
        nodes = []
    if not nodes:
        hint = "known: nodeset -LL, of /etc/clustershell or ~/.config/clustershell"
        raise SyntaxFault(piece, Fault("no such group of ClusterShell's, or an empty one", hint))
    return [str(node) for node in nodes]


def read_pdsh(source: Source, file: Callable[[str], list[str] | None] | None = None) -> None:
    """What stands behind -w, one such text a line: names, ``-name``, ``^file``, ``/regex/``, ``user@name``.

    file: the lines of a file that is named, None after noting why there are none. Exclusions and filters hold
    for everything, wherever they stand.
    """
    chosen: dict[tuple[str | None, str], int | None] = {}
    without: set[str] = set()
    filters: list[tuple[bool, re.Pattern[str]]] = []
    for line in source.lines:
        number = line.number or None
        try:
            for _, raw in split(line.text):
                minus, piece = raw.startswith("-"), raw.removeprefix("-")
                if piece.startswith("/"):
                    filters.append((minus, _filter(piece)))
                    continue
                lines: list[str] | None = [piece]
                if piece.startswith("^"):
                    if file is None:
                        raise SyntaxFault(piece, Fault("a file is not named in a file", "name both"))
                    lines = file(piece[1:])
                for user, name in (one for text in lines or () for one in _pdsh_names(text, source.room)):
                    if minus:
                        without.add(name)
                    else:
                        chosen.setdefault((user, name), number)
        except SyntaxFault as error:
            source.refuse(number, error.token, *error.fault)
    for (user, name), number in chosen.items():
        if name not in without and all(bool(form.search(name)) is not minus for minus, form in filters):
            source.host(name, number, user=user)


def _pdsh_names(text: str, room: int) -> Iterable[tuple[str | None, str]]:
    """(user, name) of ``rcmd:user@n[1-4],n7``."""
    if re.search(r"\s", text):
        raise SyntaxFault(text, Fault("a space among names", "write: n[1-8],-n3"))
    for _, piece in split(text):
        kind, colon, rest = piece.partition(":")
        if colon and kind.isalnum() and kind != "ssh":
            raise SyntaxFault(piece, Fault(f"reached by {kind}", "netdoctor logs in over SSH"))
        user, at, hosts = (rest if colon and kind == "ssh" else piece).rpartition("@")
        if not hosts:
            raise SyntaxFault(text, Fault("name missing beside a comma", "write: n[1-8],-n3"))
        for name in write_out(hosts, room):
            yield (user if at else None), name


def _filter(text: str) -> re.Pattern[str]:
    body = text.removeprefix("/").removesuffix("/")
    if len(body) > 200 or not _FILTER.fullmatch(body):
        raise SyntaxFault(text, Fault("a pattern beyond letters, '.', '[...]', '^', '$' and three of '*+'"))
    try:
        return re.compile(body)
    except re.error as error:
        raise SyntaxFault(text, Fault(f"not a regular expression: {error}")) from None
