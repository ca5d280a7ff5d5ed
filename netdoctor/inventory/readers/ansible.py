"""Ansible inventories: INI, YAML, and the JSON of ``ansible-inventory --list``.

Source: ansible-core 2.19, plugins/inventory/{ini,yaml}.py, inventory/group.py and helpers.py (which variable
wins), parsing/utils/addresses.py, plugins/connection/ssh.py (ansible_ssh_host after ansible_host).
"""

from __future__ import annotations

import ast
import re
import shlex
import string
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdoctor.inventory import formats
from netdoctor.inventory.names import printable
from netdoctor.inventory.readers import documents
from netdoctor.inventory.readers.base import Source, Stop

# What is taken, the stronger name first.
VARIABLES = {
    "address": ("ansible_ssh_host", "ansible_host"),
    "port": ("ansible_ssh_port", "ansible_port"),
    "user": ("ansible_ssh_user", "ansible_user"),
}
CONNECTION, PRIORITY = "ansible_connection", "ansible_group_priority"
# What changes how a host is reached and is not taken.
UNSUPPORTED = re.compile(r"ansible_(ssh_(private_key_file|common_args|extra_args|pass)|password)")
_LOCAL = ("local", "docker", "podman", "kubectl", "winrm", "psrp")

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?")
_GROUP = re.compile(r"([^:\]\s#]+)\s*(?:#.*)?")
_HOST_PORT = re.compile(r"((?:[^:\[\]]|\[[^\]]*\])*):([0-9]+)")
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\]:([0-9]+)")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_QUOTES = re.compile(r"[\\'\"#]")
_VALUE_MAX = 200
_DEPTH_MAX = 100
_GROUPS_MAX = 5000
_BRACKETS_MAX = 4


@dataclass(slots=True)
class Group:
    """One group as it is written."""

    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    vars: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Tree:
    """All groups and hosts, in the order in which they first appear."""

    source: Source
    groups: dict[str, Group] = field(default_factory=dict)
    vars: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, int | None] = field(default_factory=dict)

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def host(self, pattern: str, group: str, variables: Mapping[str, Any], line: int | None) -> None:
        """Add the hosts that a pattern stands for. Raises Stop where they are too many."""
        names, port = _port_of(pattern)
        variables = {"ansible_port": port, **variables} if port else variables
        for name in self._expand(names, pattern, line):
            if name not in self.vars:
                self.source.take_room(1, line, pattern)
                self.lines[name] = line
            self.group(group).hosts.setdefault(name)
            self.vars.setdefault(name, {}).update(variables)

    def _expand(self, pattern: str, token: str, line: int | None) -> Iterator[str]:
        if "[" not in pattern:
            yield pattern
            return
        if pattern.count("[") > _BRACKETS_MAX:
            self.source.refuse(line, token, f"more than {_BRACKETS_MAX} ranges in one name")
            return
        found = _RANGE.search(pattern)
        inside = _numbers(found[1]) if found else "brackets do not pair"
        if found is None or isinstance(inside, str):
            self.source.refuse(line, token, str(inside), "write: gpu[01:16]")
            return
        self.source.take_room(len(inside), line, token)
        self.source.room += len(inside)
        for each in inside:
            yield from self._expand(f"{pattern[: found.start()]}{each}{pattern[found.end() :]}", token, line)

    def hand_over(self) -> None:
        """Give the source its hosts, each with what its groups and itself say of it."""
        if len(self.groups) > _GROUPS_MAX:
            self.source.refuse(None, "", f"more than {_GROUPS_MAX} groups")
            raise Stop
        parents: dict[str, set[str]] = {name: set() for name in self.groups}
        for name, group in self.groups.items():
            for child in group.children:
                parents.setdefault(child, set()).add(name)
        depth = self._depths(parents)
        above: dict[str, frozenset[str]] = {}
        for name in sorted(parents, key=lambda g: depth[g]):
            above[name] = frozenset({name}).union(*(above[p] for p in parents[name]))
        members: dict[str, list[str]] = {}
        for name, group in self.groups.items():
            for host in group.hosts:
                members.setdefault(host, []).append(name)
        self.source.room += len(self.vars)  # they were counted when they were written out
        elsewhere: list[str] = []
        unsupported: dict[str, None] = {}
        order = {name: position for position, name in enumerate(self.groups)}
        known: dict[
            tuple[str, ...], tuple[list[str], dict[str, Any]]
        ] = {}  # hosts of the same groups are many
        for host in self.vars:
            if host in self.groups or host in ("all", "ungrouped"):
                self.source.refuse(self.lines[host], host, "a host and a group of one name", "rename one")
                continue
            member_of = tuple(members.get(host, ()))
            if member_of not in known:
                groups = frozenset({"all"}).union(*(above[g] for g in member_of)) & order.keys()
                group_names = sorted(groups - {"all", "ungrouped"}, key=order.__getitem__)
                known[member_of] = group_names, self._vars(groups, depth)
            group_names, variables = known[member_of][0], {**known[member_of][1], **self.vars[host]}
            unsupported.update(dict.fromkeys(key for key in variables if UNSUPPORTED.fullmatch(key)))
            if variables.get(CONNECTION) in _LOCAL:
                elsewhere.append(host)
                continue
            self._hand_over(host, variables, group_names)
        if elsewhere:
            self.source.note(f"left out, as {CONNECTION} says that they are not reached over SSH", elsewhere)
        if unsupported:
            self.source.note(f"not taken: {', '.join(unsupported)}; say it in ssh config, or with --ssh-key")

    def _depths(self, parents: Mapping[str, set[str]]) -> dict[str, int]:
        """How far each group is below `all`, by the longest way. Raises Stop for a circle."""
        depth = dict.fromkeys(parents, 0)
        for _ in range(min(len(parents), _DEPTH_MAX) + 1):
            deeper = {g: max((depth[p] + 1 for p in above), default=depth[g]) for g, above in parents.items()}
            deeper = {g: d if parents[g] or g == "all" else 1 for g, d in deeper.items()}
            if deeper == depth:
                return depth
            depth = deeper
        self.source.refuse(None, "", "groups that are children of each other, in a circle or too deep")
        raise Stop

    def _vars(self, groups: Iterable[str], depth: Mapping[str, int]) -> dict[str, Any]:
        """What groups say together, the nearest last, by Ansible's order."""
        variables: dict[str, Any] = {}
        for name in sorted(groups, key=lambda g: (depth[g], _priority(self.groups[g]), g)):
            variables.update(self.groups[name].vars)
        return variables

    def _hand_over(self, host: str, variables: Mapping[str, Any], groups: Sequence[str]) -> None:
        line = self.lines[host]
        fields: dict[str, Any] = {}
        for name, keys in VARIABLES.items():
            key = next((k for k in keys if variables.get(k) not in (None, "")), None)
            if key is None:
                continue
            value = variables[key]
            if isinstance(value, bool | dict | list | tuple | set | bytes) or "{{" in str(value):
                hint = "write its value: netdoctor fills in no templates"
                self.source.refuse(line, host, f"{key} is {_kind(value)}", hint)
                return
            if isinstance(value, documents.Text):
                self.source.refuse(line, host, f"{key} is not text to YAML but a {value.kind}", "quote it")
                return
            fields[name] = value
        self.source.host(host, line, groups=groups, **fields)


def _kind(value: object) -> str:
    return "a template" if "{{" in str(value) else f"a {type(value).__name__}"


def _priority(group: Group) -> int:
    text = str(group.vars.get(PRIORITY, 1))
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else 1


def _port_of(pattern: str) -> tuple[str, str | None]:
    """``gpu[1:4]:2222`` and ``[::1]:22`` taken apart."""
    for form in (_BRACKETED, _HOST_PORT):
        found = form.fullmatch(pattern)
        if found:
            return found[1], found[2]
    return pattern, None


def _numbers(text: str) -> Sequence[str] | str:
    """What a range stands for, begin and end included, or what is wrong with it."""
    first, colon, rest = text.partition(":")
    last, _, step = rest.partition(":")
    first = first or "0"
    if not colon or not last or not re.fullmatch(r"[1-9][0-9]{0,8}|", step):
        return f"'{printable(text, 40)}' is not Ansible's range, begin:end or begin:end:step"
    by = int(step or 1)
    letters = string.ascii_letters
    if len(first) == len(last) == 1 and first in letters and last in letters:
        found = letters[letters.index(first) : letters.index(last) + 1 : by]
        return list(found) or "a range that runs backwards"
    if not all(re.fullmatch(r"[0-9]{1,18}", end) for end in (first, last)):
        return f"'{printable(text, 40)}' is not a range of numbers or letters"
    width = len(first) if len(first) > 1 and first[0] == "0" else 0
    if width and len(last) != width:
        return "begin and end of a padded range are not equally long"
    span = range(int(first), int(last) + 1, by)
    if not span:
        return "a range that runs backwards"
    if len(span) > 10**6:
        return f"a range of {len(span)} names"
    return [str(number).zfill(width) for number in span]


def read(source: Source) -> None:
    """Read an inventory in whichever of its forms."""
    found = formats.yaml_line(source.lines) and not formats.is_ini(source.lines)
    document = documents.is_json(source.lines[0].text) or bool(found)
    (read_document if document else read_ini)(source)
    if source.path and not document:
        _note_variable_folders(source)


def _note_variable_folders(source: Source) -> None:
    """Say so where variables stand in folders that only Ansible itself reads."""
    import os

    folder = os.path.dirname(source.path or "")
    found = [name for name in ("group_vars", "host_vars") if os.path.isdir(os.path.join(folder, name))]
    if found:
        source.note(f"{' and '.join(found)} beside it are not read; ansible-inventory --list has them all")


def read_ini(source: Source) -> None:
    """INI. Begins as if its first line were ``[ungrouped]``."""
    tree = Tree(source)
    group, kind = "ungrouped", "hosts"
    declared: dict[str, None] = {"all": None, "ungrouped": None}
    referenced: list[tuple[str, str, int]] = []
    for number, raw in source.raw():
        line = raw.strip()
        if not line or line[0] in ";#":
            continue
        section = _SECTION.fullmatch(line)
        if section:
            group, kind = _safe(section[1]), section[2] or "hosts"
            tree.group(group)
            if kind == "vars":
                referenced.append((group, f"[{group}:vars]", number))
            elif kind in ("hosts", "children"):
                declared[group] = None
            else:
                source.refuse(number, line, "a section is of hosts, children or vars")
        elif line.startswith("[") and line.endswith("]"):
            source.refuse(number, line, "not a section", "write: [name], [name:children] or [name:vars]")
        elif kind == "hosts":
            _ini_host(tree, group, line, number)
        elif kind == "vars":
            key, equals, value = (part.strip() for part in line.partition("="))
            if not equals:
                source.refuse(number, line, "no key=value")
            elif _matters(key):
                tree.group(group).vars[key] = _value(value)
        elif child := _GROUP.fullmatch(line):
            tree.group(group).children[_safe(child[1])] = None
            tree.group(_safe(child[1]))
            referenced.append((_safe(child[1]), line, number))
        else:
            source.refuse(number, line, "not the name of a group")
    for name, line, number in referenced:
        if name not in declared:
            source.refuse(
                number, line, f"no section [{name}] or [{name}:children]", "Ansible refuses it, too"
            )
    tree.hand_over()


def _ini_host(tree: Tree, group: str, line: str, number: int) -> None:
    try:
        first, *words = shlex.split(line, comments=True) if _QUOTES.search(line) else line.split()
    except ValueError as error:
        tree.source.refuse(number, line, f"cannot be taken apart: {error}")
        return
    if first.endswith(":"):
        tree.source.refuse(number, line, "ends in ':'", "is this YAML? give it a name that ends in .yml")
        return
    variables = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            tree.source.refuse(number, line, f"'{printable(word, 40)}' is not key=value")
            return
        if _matters(key):
            variables[key] = _value(value)
    tree.host(first, group, variables, number)


def _matters(key: str) -> bool:
    every = [name for names in VARIABLES.values() for name in names]
    return key in (*every, CONNECTION, PRIORITY) or bool(UNSUPPORTED.fullmatch(key))


def _value(text: str) -> Any:
    """A value as Ansible reads it: a Python literal where it is one, else a text."""
    if len(text) > _VALUE_MAX:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def _safe(name: str) -> str:
    """A group's name as Ansible keeps it."""
    return re.sub(r"^[\d\W]|[^\w]", "_", name)


def read_document(source: Source) -> None:
    """YAML, or what ``ansible-inventory --list`` prints."""
    document = documents.read(source)
    if not isinstance(document, dict):
        source.refuse(None, "", "an inventory is a mapping of groups")
        raise Stop
    if "plugin" in document:
        hint = "ansible-inventory -i FILE --list | netdoctor hosts show -"
        source.refuse(documents.line_of(document, "plugin"), "", "a plugin's settings and no list", hint)
        raise Stop
    tree = Tree(source)
    meta = documents.mapping(documents.mapping(document.get("_meta")).get("hostvars"))
    for name, group in document.items():
        if name != "_meta":
            _group(tree, str(name), group, meta, 1)
    for name in meta:
        # --list does not name the hosts of `all` once more that are in no group.
        tree.host(
            name, "ungrouped", {k: v for k, v in documents.mapping(meta[name]).items() if _matters(k)}, None
        )
    tree.hand_over()


def _group(tree: Tree, name: str, group: Any, meta: Mapping[str, Any], depth: int) -> None:
    """Take a group and all below it, each written in it (YAML) or named there (JSON)."""
    if depth > _DEPTH_MAX:
        tree.source.refuse(None, name, "groups that are nested too deep")
        raise Stop
    safe = _safe(name)
    node = tree.group(safe)
    if isinstance(group, list):
        group = {"hosts": group}
    if not isinstance(group, dict):
        if group is not None:
            tree.source.refuse(None, name, "not a group: hosts, children and vars are what one has")
        return
    for section in ("hosts", "children", "vars"):
        if isinstance(group.get(section), int | float | bool):
            tree.source.refuse(documents.line_of(group, section), name, f"its {section} are not a list")
            return
    node.vars.update({k: v for k, v in documents.mapping(group.get("vars")).items() if _matters(k)})
    for host, variables, line in _each(group, "hosts"):
        known = {**documents.mapping(meta.get(host)), **documents.mapping(variables)}
        tree.host(host, safe, {k: v for k, v in known.items() if _matters(k)}, line)
    for child, inner, _ in _each(group, "children"):
        node.children[_safe(child)] = None
        _group(tree, child, inner, meta, depth + 1)


def _each(group: dict[str, Any], section: str) -> Iterator[tuple[str, Any, int | None]]:
    """(name, what it holds, line) of a section: a mapping, a list of names, or one name."""
    found = group.get(section)
    if isinstance(found, dict):
        for name, inner in found.items():
            yield str(name), inner, documents.line_of(found, name)
    else:
        names = [found] if isinstance(found, str) else documents.items(found)
        yield from ((str(name), None, documents.line_of(group, section)) for name in names)
