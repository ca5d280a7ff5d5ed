"""Lists that a batch system, genders or the system itself writes: words in columns.

Sources: pbs_mom and qsub(1) ($PBS_NODEFILE: a line per slot); IBM Spectrum LSF, LSB_MCPU_HOSTS and
LSB_DJOB_HOSTFILE; sge_pe(5) (pe_hostfile: host, slots, queue, processors); libgenders(3); hosts(5).
"""

from __future__ import annotations

import ipaddress
import re

from netdoctor.inventory.names import host_fault
from netdoctor.inventory.nodeset import SyntaxFault, split, write_out
from netdoctor.inventory.readers.base import Source

SGE_LINE = re.compile(r"\S+[ \t]+[0-9]+[ \t]+\S*[@.]\S*[ \t]+\S+")
LSF_LINE = re.compile(r"[A-Za-z0-9._-]+[ \t]+[0-9]+(?:[ \t]+[A-Za-z0-9._-]+[ \t]+[0-9]+)+")
HOSTS_LINE = re.compile(r"(?:[0-9]+(?:\.[0-9]+){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%\w+)?)(?:[ \t]+[^\s=]+)+")
OWN_NAMES = ("localhost", "ip6-localhost", "ip6-loopback", "broadcasthost")


def words_of(text: str) -> list[str]:
    """Words between blanks; str.split also splits at characters that no editor shows."""
    return re.split(r"[ \t]+", text)


def read_repeated(source: Source) -> None:
    """One name a line, as often as it has slots (PBS, LSB_DJOB_HOSTFILE)."""
    counts: dict[str, list[int]] = {}
    for line in source.lines:
        if re.search(r"[ \t]", line.text):
            source.refuse(line.number, line.text, "more than a name", "a node file has one name a line")
            continue
        counts.setdefault(line.text, []).append(line.number)
    for name, lines in counts.items():
        source.host(name, lines[0], slots=len(lines))


def read_lsf(source: Source) -> None:
    """``a 8 b 8`` (LSB_MCPU_HOSTS), or one name a line."""
    if not any(LSF_LINE.fullmatch(line.text) or " " in line.text for line in source.lines):
        read_repeated(source)
        return
    for line in source.lines:
        words = words_of(line.text)
        if len(words) % 2:
            source.refuse(line.number, line.text, "a name without its number of slots", "write: a 8 b 8")
            continue
        for name, count in zip(words[::2], words[1::2], strict=True):
            source.host(name, line.number, slots=count, text=line.text)


def read_sge(source: Source) -> None:
    """``host slots queue processors`` (pe_hostfile). A host may be there once for each queue."""
    slots: dict[str, int] = {}
    lines: dict[str, int] = {}
    for line in source.lines:
        words = words_of(line.text)
        if len(words) not in (2, 3, 4) or not re.fullmatch(r"[1-9][0-9]{0,5}", words[1]):
            source.refuse(line.number, line.text, "not: host slots queue processors")
            continue
        slots[words[0]] = slots.get(words[0], 0) + int(words[1])
        lines.setdefault(words[0], line.number)
    for name, count in slots.items():
        source.host(name, lines[name], slots=count)


def read_genders(source: Source) -> None:
    """``node[1-4] attribute,attribute=value``; attributes become groups, and lines of one node add up."""
    groups: dict[str, dict[str, None]] = {}
    lines: dict[str, int] = {}
    for line in source.lines:
        words = words_of(line.text)
        if len(words) > 2:
            source.refuse(line.number, line.text, "not: nodes attribute,attribute=value")
            continue
        attributes = words[1].split(",") if len(words) == 2 else []
        try:
            names = [name for _, piece in split(words[0]) for name in write_out(piece, source.room)]
        except SyntaxFault as error:
            source.refuse(line.number, error.token, *error.fault)
            continue
        for name in names:
            lines.setdefault(name, line.number)
            groups.setdefault(name, {}).update(dict.fromkeys(filter(None, attributes)))
    for name, found in groups.items():
        source.host(name, lines[name], groups=tuple(found))


def _is_one_machine(found: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    special = found.is_loopback or found.is_multicast or found.is_unspecified
    return not special and str(found) != "255.255.255.255"


def read_hosts(source: Source) -> None:
    """``address name alias ...`` of /etc/hosts: each machine by its first name, dialled at its address.

    Loopback and multicast lines are no machines of a cluster; a second address of a name is passed over.
    """
    passed: list[str] = []
    second: list[str] = []
    names_before: set[str] = set()
    for line in source.lines:
        address, *names = words_of(line.text)
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            fault = host_fault(address)
            hint = fault.hint if fault else "its first column are addresses"
            source.refuse(line.number, address, "not an address", hint)
            continue
        if not names:
            source.refuse(line.number, address, "an address without a name")
        elif names[0] in OWN_NAMES or not _is_one_machine(found):
            passed.append(names[0])
        elif names[0].lower() in names_before:
            second.append(f"{names[0]} at {address}")
        else:
            names_before.add(names[0].lower())
            source.host(names[0], line.number, address=address, text=line.text)
    if passed:
        source.note("not machines of a cluster, left out", passed)
    if second:
        source.note("a second address of the same name, passed over", second)
