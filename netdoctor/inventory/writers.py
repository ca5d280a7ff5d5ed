"""Targets as the host lists of other programs, and what each cannot hold.

A writer refuses where its program would read something else than is meant, and `write` tells what goes lost.
Names, users and addresses have been through `names`; what of them means something to the other program is
said beside each. Sources: as in `formats` and `readers`; PRRTE, src/util/hostfile/hostfile_lex.l.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from netdoctor.inventory.errors import Problems
from netdoctor.inventory.model import Target
from netdoctor.inventory.names import bracketed, with_port
from netdoctor.inventory.nodeset import SyntaxFault, follows, write_out
from netdoctor.inventory.readers.clusters import HOSTS_SCHEMA
from netdoctor.inventory.readers.columns import OWN_NAMES
from netdoctor.inventory.reading import FILE_MAX

# What is told of a field that a format cannot hold.
WAY_ON = {
    "port": "say Port in ssh config",
    "user": "say User in ssh config",
    "name": "the address is written",
    "slots": "say it to the launcher",
    "python": "say --python",
}
# Beside the host.
FIELDS = ("name", "port", "user", "python", "slots", "gpus", "leaf", "rail")
_NAMED_MAX = 3


class Refused(ValueError):
    """A host that a format cannot carry, and why."""

    def __init__(self, target: Target, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.target, self.hint = target, hint


@dataclass(frozen=True, slots=True)
class Writer:
    """One format. holds: fields that it keeps, beside the host; slots: `needed`, or what stands for none."""

    name: str
    title: str
    holds: frozenset[str]
    write: Callable[[Sequence[Target]], Iterator[str]]
    ipv6: bool = True
    slots: str = ""


def write(targets: Sequence[Target], name: str, slots: int | None = None) -> tuple[str, tuple[str, ...]]:
    """(text, what is lost) of targets, in their order, as a list that another program reads.

    slots: for hosts that say neither slots nor GPUs. Raises InventoryError for hosts that the format cannot
    carry.
    """
    writer = WRITERS[name]
    problems = Problems()
    if "slots" in writer.holds:
        targets = [replace(t, slots=t.slots or t.gpus or slots) for t in targets]
    for target in targets:
        if ":" in target.host and not writer.ipv6:
            problems.add(_source(target), target.line, target.id, f"no IPv6 addresses in {writer.title}")
        if target.slots is None and writer.slots == "needed":
            hint = "say how many with --slots N"
            problems.add(
                _source(target), target.line, target.id, f"no slots, which {writer.title} needs", hint
            )
    problems.raise_any()
    lines: list[str] = []
    size = 0
    try:
        for line in writer.write(targets):
            lines.append(f"{line}\n")
            size += len(line) + 1
            if size > FILE_MAX:
                raise Refused(targets[0], f"more than {FILE_MAX // 1024 // 1024} MiB of text", "fewer slots")
    except Refused as error:
        problems.add(_source(error.target), error.target.line, error.target.id, str(error), error.hint)
    problems.raise_any()
    return "".join(lines), tuple(_lost(targets, writer))


def _source(target: Target) -> str:
    return target.source or "hosts"


def _says_gpus(target: Target, writer: Writer) -> bool:
    """Whether the number of GPUs is there as slots, which stand for them where they are the same."""
    return "slots" in writer.holds and target.slots == target.gpus


def _lost(targets: Sequence[Target], writer: Writer) -> Iterator[str]:
    for field in FIELDS:
        if field in writer.holds:
            continue
        had = [t for t in targets if _has(t, field) and not (field == "gpus" and _says_gpus(t, writer))]
        if not had:
            continue
        names = ", ".join(target.id for target in had[:_NAMED_MAX])
        more = f" and {len(had) - _NAMED_MAX} more" if len(had) > _NAMED_MAX else ""
        way = f"; {WAY_ON[field]}" if field in WAY_ON else ""
        yield f"lost in {writer.title}: {field} of {names}{more}{way}"
    if writer.slots and writer.slots != "needed" and (bare := [t for t in targets if t.slots is None]):
        yield f"{writer.title}: {len(bare)} without slots, for which it takes {writer.slots}"


def _has(target: Target, field: str) -> bool:
    if field == "name":
        return not _named_by_host(target)
    return getattr(target, field) is not None


def _named_by_host(target: Target) -> bool:
    """Whether the name is the host's, or that with its port."""
    return target.id in (target.host, with_port(target.host, target.port))


def _plain(targets: Sequence[Target]) -> Iterator[str]:
    """rank= goes: the order of the lines is that of the ranks, and without a gap."""
    for target in targets:
        fields = ((key, getattr(target, key)) for key in FIELDS[1:])
        yield " ".join([bracketed(target.host), *(f"{k}={v}" for k, v in fields if v is not None)])


def _deepspeed(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    yield from (f"{target.host} slots={target.slots}" for target in targets)


def _once(targets: Sequence[Target]) -> None:
    """Refuse a host that is listed on several ports, which would be one host there."""
    first: dict[str, Target] = {}
    for target in targets:
        if first.setdefault(target.host.lower(), target) is not target:
            raise Refused(target, f"the same host as {first[target.host.lower()].id} without their ports")


# Words of PRRTE's scanner, and what it takes for a host and for a user.
_PRRTE_WORDS = re.compile(
    r"cpu|count|slots|slot|rank|username|user[-_]name|port|boards|sockets|cores|(slots|cpu|count)[-_]max"
    r"|max[-_](slots|cpu|count)|sockets[-_]per[-_]board|cores[-_]per[-_]socket|[0-9]+"
)
_PRRTE_HOST = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]*|([A-Fa-f0-9]{0,4}:)+:*([A-Fa-f0-9]{0,4}:)+[A-Fa-f0-9]{1,4}"
)
_PRRTE_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def _openmpi(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    for target in targets:
        if not _PRRTE_HOST.fullmatch(target.host) or _PRRTE_WORDS.fullmatch(target.host):
            raise Refused(target, "Open MPI would not read this name as a host")
        if target.user is not None and not _PRRTE_USER.fullmatch(target.user):
            raise Refused(target, "Open MPI would not read this user", "say User in ssh config")
        host = f"{target.user}@{target.host}" if target.user is not None else target.host
        yield f"{host} slots={target.slots}" if target.slots is not None else host


def _counted(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    yield from (f"{t.host}:{t.slots}" if t.slots is not None else t.host for t in targets)


def _folded(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    yield in_order([target.host if _named_by_host(target) else target.id for target in targets])


def _names(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    yield from (target.host for target in targets)


_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)")


def in_order(names: Sequence[str]) -> str:
    """Names folded where they follow each other: their order, which is that of ranks, stays."""
    runs: list[tuple[str, str, str, list[str]]] = []
    for name in names:
        found = _LAST_NUMBER.fullmatch(name)
        before, digits, after = found.groups() if found else (name, "", "")
        last = runs[-1] if runs else None
        if digits and last and (before, after) == (last[0], last[2]) and follows(last[3][-1], digits):
            last[3].append(digits)
        else:
            runs.append((before, digits, after, [digits]))
    pieces = []
    for before, _, after, numbers in runs:
        several = len(numbers) > 1
        pieces.append(
            f"{before}[{numbers[0]}-{numbers[-1]}]{after}" if several else f"{before}{numbers[0]}{after}"
        )
    try:
        written = [name for piece in pieces for name in write_out(piece)]
    except SyntaxFault:
        written = []
    return ",".join(pieces if written == list(names) else names)


def _alias(target: Target) -> str:
    """A name that no program takes apart: an id with a port becomes ``a-2222``."""
    return target.id if _is_plain(target.id) else re.sub(r"[^A-Za-z0-9._-]+", "-", target.id).strip("-")


def _is_plain(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9._-]+", text))


def _aliases(targets: Sequence[Target]) -> Iterator[tuple[str, Target]]:
    first: dict[str, Target] = {}
    for target in targets:
        alias = _alias(target)
        if first.setdefault(alias, target) is not target:
            raise Refused(target, f"the same name as {first[alias].id}, once it has no port in it")
        yield alias, target


def _ansible_vars(alias: str, target: Target) -> dict[str, Any]:
    variables = {
        "ansible_host": target.host if alias != target.host else None,
        "ansible_port": target.port,
        "ansible_user": target.user,
    }
    return {key: value for key, value in variables.items() if value is not None}


_TEXT_TO_PYTHON = re.compile(r"(?!(?:None|True|False)$)[A-Za-z_][A-Za-z0-9._@+-]*|[0-9]+(\.[0-9]+){3}")


def _ini(value: object) -> str:
    """A value for INI, where Ansible takes ``1_000`` for a number: in quotes twice, then."""
    text = str(value)
    if isinstance(value, int) or _TEXT_TO_PYTHON.fullmatch(text):
        return text
    return shlex.quote(repr(text))


_OWN_GROUPS = ("all", "ungrouped")


def _groups(targets: Sequence[Target]) -> dict[str, list[str]]:
    """Groups with names that Ansible keeps as they are, and their hosts; a host's name is no group's."""
    found: dict[str, list[str]] = {}
    aliases = dict(_aliases(targets))
    for alias, target in aliases.items():
        if alias in _OWN_GROUPS:
            raise Refused(target, "Ansible keeps this name for a group")
        for group in target.groups:
            if re.fullmatch(r"[A-Za-z_]\w*", group, re.ASCII) and group not in (*aliases, *_OWN_GROUPS):
                found.setdefault(group, []).append(alias)
    return found


def _ansible(targets: Sequence[Target]) -> Iterator[str]:
    groups = _groups(targets)
    for alias, target in _aliases(targets):
        variables = _ansible_vars(alias, target)
        yield " ".join([alias, *(f"{key}={_ini(value)}" for key, value in variables.items())])
    for group, members in groups.items():
        yield ""
        yield f"[{group}]"
        yield from members


def _ansible_yaml(targets: Sequence[Target]) -> Iterator[str]:
    groups = _groups(targets)
    yield "all:"
    yield "  hosts:"
    for alias, target in _aliases(targets):
        variables = _ansible_vars(alias, target)
        yield f"    {_yaml(alias)}:"
        yield from (f"      {key}: {_yaml(value)}" for key, value in variables.items())
    if groups:
        yield "  children:"
    for group, members in groups.items():
        yield f"    {_yaml(group)}:"
        yield "      hosts:"
        yield from (f"        {_yaml(member)}:" for member in members)


def _yaml(value: object) -> str:
    """A value in quotes, in which YAML reads no numbers, dates or truths; JSON's are YAML's."""
    import json

    return str(value) if isinstance(value, int) else json.dumps(str(value))


def _ssh(targets: Sequence[Target]) -> Iterator[str]:
    for alias, target in _aliases(targets):
        yield f"Host {alias}"
        if alias != target.host:
            yield f"    HostName {target.host.replace('%', '%%')}"
        if target.port is not None:
            yield f"    Port {target.port}"
        if target.user is not None:
            escaped = target.user.replace("\\", "\\\\")
            yield f"    User {escaped}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _etc_hosts(targets: Sequence[Target]) -> Iterator[str]:
    for alias, target in _aliases(targets):
        if not _is_address(target.host):
            raise Refused(target, "no address is known of it", "a list with addresses is needed")
        if "%" in target.host:
            raise Refused(target, "an address with a zone, which the C library passes over there")
        if alias in OWN_NAMES or ipaddress.ip_address(target.host).is_loopback:
            raise Refused(target, "this name or address is that of every machine itself")
        if _is_address(alias) or ":" in target.id:
            raise Refused(target, "no name is known of this address", "a list with names is needed")
        yield f"{target.host} {alias}"


def _ray(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    users = {target.user for target in targets}
    if len(users) > 1:
        odd = next(target for target in targets if target.user != targets[0].user)
        raise Refused(odd, "another user than that of the first host, and Ray has one for all")
    first, *rest = (_yaml(target.host) for target in targets)
    yield "cluster_name: default"
    yield "provider:"
    yield "  type: local"
    yield f"  head_ip: {first}"
    yield f"  worker_ips: [{', '.join(rest)}]"
    if targets[0].user is not None:
        yield "auth:"
        yield f"  ssh_user: {_yaml(targets[0].user)}"


def _repeated(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    for target in targets:
        yield from [target.host] * (target.slots or 1)


def _lsf(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    yield " ".join(f"{target.host} {target.slots or 1}" for target in targets)


def _sge(targets: Sequence[Target]) -> Iterator[str]:
    _once(targets)
    yield from (f"{t.host} {t.slots or 1} all.q@{t.host} UNDEFINED" for t in targets)


def as_dicts(targets: Sequence[Target]) -> list[dict[str, Any]]:
    """What is known of each target, by the names of the hosts document; what says nothing is left out."""
    keys = [field.name for field in fields(Target) if field.name != "order"]
    return [
        {key: value for key in keys if (value := getattr(target, key)) not in (None, (), "")}
        for target in targets
    ]


def _json(targets: Sequence[Target]) -> Iterator[str]:
    import json

    yield json.dumps({"schema": HOSTS_SCHEMA, "hosts": as_dicts(targets)}, indent=1)


_SLOTS = frozenset({"slots"})
_LOGIN = frozenset({"name", "port", "user"})
_ALL = frozenset({*FIELDS})
WRITERS: dict[str, Writer] = {
    writer.name: writer
    for writer in (
        Writer("plain", "a plain hosts file", _ALL - {"name"}, _plain),
        # DeepSpeed hands its names to pdsh, where a colon ends the kind of login.
        Writer("deepspeed", "a DeepSpeed hostfile", _SLOTS, _deepspeed, ipv6=False, slots="needed"),
        Writer("openmpi", "an Open MPI hostfile", frozenset({"slots", "user"}), _openmpi, slots="the cores"),
        Writer("mpich", "an MPICH hostfile", _SLOTS, _counted, ipv6=False, slots="1"),
        Writer("intelmpi", "an Intel MPI machine file", _SLOTS, _counted, ipv6=False, slots="1"),
        # Node names and no addresses are what these two know.
        Writer("slurm", "a Slurm node list", frozenset({"name"}), _folded, ipv6=False),
        Writer("pdsh", "a pdsh list", frozenset(), _names, ipv6=False),
        Writer("clustershell", "a ClusterShell node set", frozenset({"name"}), _folded, ipv6=False),
        Writer("ansible", "an Ansible inventory", _LOGIN, _ansible),
        Writer("ansible-yaml", "an Ansible inventory", _LOGIN, _ansible_yaml),
        Writer("ssh", "an ssh config", _LOGIN, _ssh),
        Writer("hosts", "an /etc/hosts table", frozenset({"name"}), _etc_hosts),
        Writer("ray", "a Ray cluster file", frozenset({"user"}), _ray),
        Writer("pbs", "a PBS node file", _SLOTS, _repeated, slots="1"),
        Writer("lsf", "an LSF host list", _SLOTS, _lsf, slots="1"),
        Writer("sge", "a Grid Engine host file", _SLOTS, _sge, slots="1"),
        Writer("json", "netdoctor's JSON", _ALL, _json),
    )
}
