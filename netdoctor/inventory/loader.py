"""All arguments of a command line to one inventory, or to one error with all that is wrong."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from netdoctor.inventory import formats, reading
from netdoctor.inventory.errors import InventoryError, Problem, Problems
from netdoctor.inventory.formats import PLAIN
from netdoctor.inventory.model import COMMAND_LINE, Inventory, Target
from netdoctor.inventory.names import host_fault, host_key, node_id, printable, with_port
from netdoctor.inventory.nodeset import RANGE_MAX, SyntaxFault, evaluate, fold
from netdoctor.inventory.parsing import Entry, LineReader
from netdoctor.inventory.readers import OTHER_WORDS, READERS, Reader, Source, Stop, recognise, sets

if TYPE_CHECKING:
    from typing import TextIO

STDIN = "standard input"
# A URL, a network, a line such as 'n1 python=/usr/bin/python3', or what no file name holds.
_SURELY_NAMES = re.compile(r"://|[\0\n]|[ \t][a-z]+=|^[0-9.]+/[0-9]{1,2}$")
_JOB_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


def load(
    args: Sequence[str],
    *,
    stdin: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
    format: str = "auto",
) -> Inventory:
    """Read and join host lists: each argument is a file, ``-`` for stdin, or names and ranges.

    An argument that names an existing file is that file. `format` names the kind of the files
    ('auto' detects it); names on the command line are ``user@host:port``, node sets with ClusterShell's
    operators and groups, or what pdsh takes behind -w. `environ` is looked at for hints, and for
    the files of batch systems. Raises InventoryError with every problem found.
    """
    problems = Problems()
    forced = _reader(format, problems)
    problems.raise_any()
    known = os.environ if environ is None else environ
    loader = _Loader(sys.stdin if stdin is None else stdin, forced, problems, known)
    for arg in args:
        loader.take(arg)
    if not loader.entries and not problems:
        problems.add(COMMAND_LINE, None, "", "nothing selected: no hosts given", _job_hint(environ))
    entries = _without_repeats(loader.entries, loader.deepspeed, problems)
    ordered = _by_rank(entries, problems)
    problems.raise_any()
    return Inventory(
        targets=tuple(_targets(ordered)),
        format="+".join(dict.fromkeys(loader.formats)),
        source=", ".join(dict.fromkeys(loader.sources)),
        notes=tuple(loader.notes),
    )


def restrict(inventory: Inventory, expr: str) -> tuple[str, ...]:
    """Return the ids that a node-set expression selects, in inventory order.

    ``gpu[01-04],gpu09``, ``gpu*!gpu03``, ``@group`` of the list; a name listed on several ports stands for
    all of them. Raises InventoryError for unknown names, with a suggestion, and when nothing is left.
    """
    by_name: dict[str, list[str]] = {}
    for target in inventory.targets:
        names = {target.id, target.host, with_port(target.host, target.port), f"[{target.host}]"}
        for name in names:
            by_name.setdefault(name, []).append(target.id)
    ids = [target.id for target in inventory.targets]
    unknown: list[str] = []

    def resolve(name: str) -> list[str]:
        if name not in by_name:
            unknown.append(name)
        return by_name.get(name, [])

    source = "-n/--node"
    try:
        chosen = evaluate(expr, ids, resolve, _members(inventory))
    except SyntaxFault as error:
        raise InventoryError([Problem(source, None, error.token, *error.fault)]) from None
    problems = Problems()
    if len(unknown) > 3:
        names_text = fold(unknown, limit=60)
        problems.add(source, None, names_text, "not in the list of hosts", f"listed: {fold(ids, 60)}")
    else:
        for name in unknown:
            hint = _nearest(name, by_name)
            problems.add(source, None, name, "not in the list of hosts", hint)
    problems.raise_any()
    if not chosen:
        problems.add(source, None, expr, "nothing selected: the expression leaves no node")
    problems.raise_any()
    return tuple(name for name in ids if name in chosen)


def _members(inventory: Inventory) -> dict[str, set[str]]:
    """The groups of a list, each with the ids in it."""
    groups: dict[str, set[str]] = {}
    for target in inventory.targets:
        for name in target.groups:
            groups.setdefault(name, set()).add(target.id)
    return groups


class _Loader:
    """Takes arguments one after the other, collecting entries, notes and problems."""

    def __init__(
        self, stdin: TextIO | None, forced: Reader | None, problems: Problems, environ: Mapping[str, str]
    ) -> None:
        self.stdin = stdin
        self.forced = forced
        self.problems = problems
        self.environ = environ
        self.entries: list[Entry] = []
        self.deepspeed: set[str] = set()
        self.formats: list[str] = []
        self.sources: list[str] = []
        self.notes: list[str] = []
        self._stdin_taken = False

    def take(self, arg: str) -> None:
        """Read one argument."""
        if arg == "-":
            self._take_stdin()
        elif not arg.strip(" \t"):
            self.problems.add(COMMAND_LINE, None, "", "empty argument", "an unset variable?")
        elif reading.file_exists(arg) or self._is_missing_file(arg):
            self._take_bytes(reading.read_file(arg, self.problems), arg, arg)
        else:
            self._take_names(arg)

    def _is_missing_file(self, arg: str) -> bool:
        """Return whether an argument that names no file is to be refused as one."""
        if _SURELY_NAMES.search(arg) or not _encodable(arg) or self._set(arg):
            return False
        if "@" in arg.partition("/")[0]:
            return False
        return reading.looks_like_path(arg) or reading.is_slip_of_a_file(arg)

    def _take_stdin(self) -> None:
        if self._stdin_taken:
            self.problems.add(COMMAND_LINE, None, "-", "standard input was given twice")
            return
        self._stdin_taken = True
        if self.stdin is None:
            self.problems.add(STDIN, None, "", "is closed")
            return
        self._take_bytes(reading.read_stream(self.stdin, STDIN, self.problems), STDIN)

    def _take_bytes(self, content: bytes | str | None, source: str, path: str | None = None) -> None:
        """Read the content of a file or stream, None if it could not be had."""
        if content is None:
            return
        text = reading.decode(content, source, self.problems)
        if text is None:
            return
        before = self.problems.total
        document = reading.is_document(text)
        lines = reading.content_lines(text, source, self.problems, first_only=document)
        if not lines:
            if self.problems.total == before:
                self.problems.add(source, None, "", "nothing selected: lists no hosts")
            return
        if not document and formats.secret(text):
            hint = "name the hosts file"
            self.problems.add(source, None, "", "holds a key or certificate, none is shown", hint)
            return
        self._take(self._source(source, text, lines, path))

    def _source(self, name: str, text: str, lines: Sequence[reading.Line], path: str | None = None) -> Source:
        name_text = printable(name, 1000)
        room = RANGE_MAX - len(self.entries)
        return Source(name_text, text, lines, self.problems, room, path=path, environ=self.environ)

    def _take(self, source: Source, reader: Reader | None = None) -> None:
        """Read a list by the reader that is given, named, or found."""
        try:
            reader = reader or self.forced or recognise(source)
            if reader is None:
                return
            reader.read(source)
        except Stop:
            return
        if not source.entries and not self.problems:
            hint = "other kinds: --format"
            source.problems.add(source.display, None, "", f"this {reader.title} lists no hosts", hint)
        if reader.name == "deepspeed":
            self.deepspeed.add(source.display)
        self.entries.extend(source.entries)
        self.formats.append(reader.name)
        self.sources.append(source.display)
        self.notes += [_note(source.display, reader, source.entries), *source.notes]

    def _set(self, arg: str) -> Reader | None:
        """The reader for an argument with operators, None for one that is names only."""
        format_name = self.forced.name if self.forced else ""
        if format_name == "pdsh" or (format_name != "clustershell" and sets.is_pdsh(arg)):
            return Reader("pdsh", READERS["pdsh"].title, lambda s: sets.read_pdsh(s, self._lines_of))
        return READERS["clustershell"] if format_name == "clustershell" or sets.is_set(arg) else None

    def _lines_of(self, path: str) -> list[str] | None:
        """The lines of a file that pdsh's ``^file`` names."""
        content = reading.read_file(path, self.problems)
        text = None if content is None else reading.decode(content, path, self.problems)
        if text is None:
            return None
        return [line.text for line in reading.content_lines(text, path, self.problems)]

    def _take_names(self, arg: str) -> None:
        """Read names and ranges from one argument; a final comma says that it is no file."""
        text = arg[:-1] if arg.endswith(",") and len(arg) > 1 else arg
        if "\n" in arg or "\r" in arg:
            hint = "pipe the list instead: ... | netdoctor scan -"
            self.problems.add(COMMAND_LINE, None, arg, "line end inside an argument", hint)
            return
        if reader := self._set(arg):
            self._take(self._source(COMMAND_LINE, text, [reading.Line(0, text.strip(" \t"))]), reader)
            return
        reader_ = LineReader(COMMAND_LINE, PLAIN, self.problems, RANGE_MAX - len(self.entries))
        self.entries.extend(reader_.read(text.strip(" \t"), None))
        self.formats.append("names")
        self.sources.append(COMMAND_LINE)


def _encodable(text: str) -> bool:
    """Return whether the text can be a file name here."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _reader(name: str, problems: Problems) -> Reader | None:
    """Return the reader that --format names, None for 'auto'."""
    if name == "auto":
        return None
    name = OTHER_WORDS.get(name, name)
    if name not in READERS:
        known = ["auto", *READERS]
        problems.add("--format", None, name, "no such format", f"one of: {', '.join(known)}")
        return None
    return READERS[name]


def _job_hint(environ: Mapping[str, str] | None) -> str:
    """Point to the node list of the surrounding job, if there is one."""
    for name in _JOB_LISTS:
        if (os.environ if environ is None else environ).get(name):
            return f'in this job: netdoctor scan "${name}"'
    return "write: netdoctor scan hosts.txt, or: netdoctor scan gpu[01-16]"


def _note(source: str, reader: Reader, entries: Sequence[Entry]) -> str:
    """Return the line that says how a list was understood."""
    hosts = len({host_key(entry.host) for entry in entries})
    note = f"{source}: {reader.title}, {hosts} {'host' if hosts == 1 else 'hosts'}"
    slots = sum(entry.slots or 0 for entry in entries)
    if slots:
        note += f", {slots} {'slot' if slots == 1 else 'slots'}"
    without = [entry for entry in entries if entry.slots is None]
    if without and reader.name in _WITHOUT_SLOTS and (slots or reader.name == "openmpi"):
        first = without[0]
        at = f" (line {first.line})" if first.line else ""
        note += f"; {len(without)} without slots=, {_WITHOUT_SLOTS[reader.name]}{at}"
    return note


# What becomes of a line without slots, in lists where some have them.
_WITHOUT_SLOTS = {
    "plain": "which DeepSpeed would refuse",
    "openmpi": "for which Open MPI takes the number of cores",
}


def _position(entry: Entry, reader: Entry) -> str:
    """Return where `entry` stands, for somebody who reads a message about `reader`."""
    if entry.source == reader.source and entry.line is not None:
        return f"line {entry.line}"
    return entry.source if entry.line is None else f"{entry.source}:{entry.line}"


def _without_repeats(entries: Iterable[Entry], deepspeed: set[str], problems: Problems) -> list[Entry]:
    """Refuse hosts listed twice; add up the slots of repeated Open MPI lines."""
    first: dict[tuple[str, int | None], Entry] = {}
    names: dict[str, Entry] = {}
    for entry in entries:
        key = host_key(entry.host), entry.port
        called = names.setdefault((entry.name or entry.host).lower(), entry)
        old = first.setdefault(key, entry)
        if old is entry:
            if called is not entry and (called.name or entry.name):
                message = f"same name as {_position(called, entry)}, for another host"
                problems.add(entry.source, entry.line, entry.text, message, "name every host once")
            continue
        if entry.repeats_add and old.repeats_add and entry.source == old.source:
            if entry.user != old.user:
                message = f"same host as {_position(old, entry)} with another user"
                problems.add(entry.source, entry.line, entry.text, message)
            # PRRTE, detail-hostfiles.rst: a line without slots= counts one.
            old.slots = (old.slots or 1) + (entry.slots or 1)
            continue
        is_typed = entry.line is None and old.source == entry.source
        message = "the same host is named twice" if is_typed else f"same host as {_position(old, entry)}"
        hint = "name every host once"
        if entry.source in deepspeed and old.source == entry.source:
            message += " (DeepSpeed refuses duplicates)"
            hint = "if Open MPI's sum of slots is meant, say --format openmpi"
        elif {entry.slots, old.slots, entry.name, old.name} == {None} and entry.line and old.line:
            hint = "if every line is one slot more, say --format openmpi or --format pbs"
        problems.add(entry.source, entry.line, entry.text, message, hint)
    return list(first.values())


def _by_rank(entries: list[Entry], problems: Problems) -> list[Entry]:
    """Return entries ordered by rank= if they have it: all of them, from 0, without a gap."""
    ranked: dict[int, Entry] = {}
    for entry in entries:
        if entry.rank is None:
            continue
        old = ranked.setdefault(entry.rank, entry)
        if old is not entry:
            same = old.line == entry.line and old.source == entry.source
            message = f"rank={entry.rank} for several hosts"
            message = message if same else f"{message}, also {_position(old, entry)}"
            problems.add(entry.source, entry.line, entry.text, message, "number hosts from 0")
    if not ranked:
        return entries
    for entry in entries:
        if entry.rank is None:
            message = "no rank=, but other hosts have one"
            hint = "give it to all hosts or to none"
            problems.add(entry.source, entry.line, entry.text, message, hint)
    gap = next((rank for rank in range(len(ranked)) if rank not in ranked), None)
    if gap is not None and not problems:
        entry = ranked[max(ranked)]
        message = f"rank={entry.rank}, but no host has rank={gap}"
        hint = f"number {len(entries)} hosts from 0 to {len(entries) - 1}"
        problems.add(entry.source, entry.line, entry.text, message, hint)
    return sorted(entries, key=lambda entry: -1 if entry.rank is None else entry.rank)


# What a target has of its entry as it is.
_FIELDS = [field.name for field in fields(Target) if field.name not in ("id", "order")]


def _targets(entries: Sequence[Entry]) -> Iterable[Target]:
    """Yield targets with ids that are unique: the port is added where a name has several, or is no node's."""
    ports: dict[str, int] = {}
    for entry in entries:
        ports[host_key(entry.host)] = ports.get(host_key(entry.host), 0) + 1
    for order, entry in enumerate(entries):
        several = ports[host_key(entry.host)] > 1
        called = entry.name or (with_port(entry.host, entry.port) if several else entry.host)
        yield Target(
            id=node_id(called, entry.port), order=order, **{name: getattr(entry, name) for name in _FIELDS}
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name that is nearest, '' when none is."""
    from difflib import get_close_matches

    if host_fault(name) and ":" not in name:
        return ""
    close = get_close_matches(name, list(known)[:RANGE_MAX], n=1)
    return f"did you mean {close[0]}?" if close else ""
