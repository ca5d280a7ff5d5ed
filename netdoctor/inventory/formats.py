"""The host lists people already have: which one a text is, and what each allows.

Sources of the formats: DeepSpeed, deepspeed/launcher/runner.py `_parse_hostfile`; Open MPI and
PRRTE, src/util/hostfile/hostfile.c and detail-hostfiles.rst; MPICH, Hydra process manager wiki
("host:N"); Slurm, `scontrol show hostnames` in scontrol(1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from netdoctor.inventory.errors import Problems
from netdoctor.inventory.names import PORT_MAX, SSH_PORT
from netdoctor.inventory.reading import Line

FIRST_FREE_PORT = 1024


class Suffix(Enum):
    """What the number in ``host:N`` is."""

    PORT = "port"
    SLOTS = "slots"
    NONE = "not allowed"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one kind of host list allows."""

    name: str
    title: str
    keys: frozenset[str]
    suffix: Suffix = Suffix.NONE
    user: bool = False
    ranges: bool = False
    slots_required: bool = False
    repeats_add: bool = False


PLAIN = Dialect(
    name="plain",
    title="plain hosts file",
    keys=frozenset({"port", "user", "python", "slots", "gpus", "rank", "leaf", "rail"}),
    suffix=Suffix.PORT,
    user=True,
    ranges=True,
)
PLAIN_SLOTS = Dialect(
    name="plain", title=PLAIN.title, keys=PLAIN.keys, suffix=Suffix.SLOTS, user=True, ranges=True
)
DEEPSPEED = Dialect(
    name="deepspeed", title="DeepSpeed hostfile", keys=frozenset({"slots"}), slots_required=True
)
OPENMPI = Dialect(
    name="openmpi",
    title="Open MPI hostfile",
    keys=frozenset({"slots", "max_slots", "max-slots"}),
    user=True,
    repeats_add=True,
)
MPICH = Dialect(name="mpich", title="MPICH hostfile", keys=frozenset(), suffix=Suffix.SLOTS, ranges=True)
INTELMPI = Dialect(
    name="intelmpi", title="Intel MPI machine file", keys=frozenset(), suffix=Suffix.SLOTS, ranges=True
)
SLURM = Dialect(name="slurm", title="Slurm node list", keys=frozenset(), ranges=True)

DIALECTS = {dialect.name: dialect for dialect in (PLAIN, DEEPSPEED, OPENMPI, MPICH, INTELMPI, SLURM)}

_BARE = re.compile(r"[A-Za-z0-9._-]+")
_SLOTS_LINE = re.compile(r"([A-Za-z0-9._-]+)[ \t]+slots=[0-9]*")
_COUNTED = re.compile(r"([A-Za-z0-9._\[\],-]+):([0-9]+)")
_WITH_PORT = re.compile(r"[^\s@]+@\S+:[0-9]+|\[[0-9A-Fa-f:.%A-Za-z]*:[^]]*\]:[0-9]+")
_OPENMPI = re.compile(r"(?:^|[ \t])max[_-]slots[ \t]*=|[ \t]slots(?:[ \t]+=|=[ \t]+[0-9])")
_SLURM = re.compile(r"[A-Za-z0-9._\[\],/-]*[\[,][A-Za-z0-9._\[\],/-]*")

_SECTION = re.compile(r"\[[A-Za-z_][A-Za-z0-9_.: -]*\]")
_ANSIBLE_KEY = re.compile(r"(?:^|[ \t])ansible_[a-z_]+=")
_YAML = re.compile(r"- +\S.*|-$|[\"']?[A-Za-z_][\w.-]*[\"']?:[ \t]+\S.*")
_YAML_KEY = re.compile(r"[\"']?[A-Za-z_][\w.-]*[\"']?:")


def secret(text: str) -> bool:
    """Return whether a text is a key or certificate, of which no message may show a line."""
    return "-----BEGIN" in text


def foreign(text: str, lines: Sequence[Line]) -> tuple[int, str, str] | None:
    """Return (line, what it looks like, how to go on) for a text that is no list of hosts at all."""
    if text.startswith("#!"):
        return 1, "a script, and netdoctor runs none", "run it yourself: ... | netdoctor scan -"
    if re.match(r"<[A-Za-z!?/]", lines[0].text):
        return lines[0].number, "XML or HTML", "write one host per line"
    return None


def is_ini(lines: Sequence[Line]) -> bool:
    """Return whether a section or an Ansible variable says that it is an INI inventory."""
    return any(_SECTION.fullmatch(line.text) or _ANSIBLE_KEY.search(line.text) for line in lines)


def yaml_line(lines: Sequence[Line]) -> int | None:
    """Return the first line that only YAML has, None where there is none."""
    if re.match(r"---(?:$|[ \t])|%YAML", lines[0].text):
        return lines[0].number
    for line in lines:
        if _YAML.fullmatch(line.text):
            return line.number
    return lines[0].number if len(lines) > 1 and _YAML_KEY.fullmatch(lines[0].text) else None


def detect(lines: Sequence[Line], source: str, problems: Problems) -> Dialect | None:
    """Return the one way to read these lines; None after noting why there are two."""
    texts = [line.text for line in lines]
    if any(_OPENMPI.search(text) for text in texts):
        return OPENMPI
    if all(_SLOTS_LINE.fullmatch(text) for text in texts):
        return DEEPSPEED
    counted = _counted(lines, source, problems)
    if counted is None:
        return None
    if counted is Suffix.SLOTS:
        bare = all(_COUNTED.fullmatch(text) or _BARE.fullmatch(text) for text in texts)
        return MPICH if bare else PLAIN_SLOTS
    if len(texts) == 1 and _SLURM.fullmatch(texts[0]):
        return SLURM
    return PLAIN


def _counted(lines: Sequence[Line], source: str, problems: Problems) -> Suffix | None:
    """Decide what the numbers in ``host:N`` are; None after noting that it cannot be told.

    Below 22 they are MPICH's process counts; 22 and everything from 1024 on are ports; between, and
    when a list has both, either reading is possible.
    """
    slots: list[tuple[Line, str]] = []
    ports: list[tuple[Line, str]] = []
    unclear = False
    for line in lines:
        match = _COUNTED.fullmatch(line.text)
        if match is None:
            if _WITH_PORT.match(line.text):
                ports.append((line, line.text))
            continue
        host, digits = match[1], match[2]
        number = int(digits) if len(digits) <= 5 else PORT_MAX + 1
        if number < SSH_PORT:
            slots.append((line, digits))
        elif number == SSH_PORT or number >= FIRST_FREE_PORT:
            ports.append((line, digits))
        else:
            unclear = True
            problems.add(
                source,
                line.number,
                line.text,
                f"reads two ways: {number} slots (MPICH) or port {number}",
                f"write: {host} slots={number}, or: {host} port={number}",
            )
    if slots and ports:
        unclear = True
        (line, digits), (other, text) = slots[0], ports[0]
        what = f"port {text}" if text.isdigit() else "a port"
        problems.add(
            source,
            line.number,
            line.text,
            f"reads as {digits} slots (MPICH), but line {other.number} as {what}",
            "write slots= or port=, or say --format mpich or --format plain",
        )
    if unclear:
        return None
    return Suffix.SLOTS if slots else Suffix.PORT
