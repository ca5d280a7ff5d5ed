"""Every kind of host list: how it is read, and by what it is recognised.

A list is what the first rule of `recognise` that knows it says. Where two readings are possible there is
none, and both are told.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable

from netdoctor.inventory import formats
from netdoctor.inventory.errors import KEPT_MAX
from netdoctor.inventory.formats import DIALECTS, PLAIN, Dialect
from netdoctor.inventory.names import host_key
from netdoctor.inventory.parsing import LineReader
from netdoctor.inventory.readers import ansible, clusters, columns, documents, sets, sshconfig
from netdoctor.inventory.readers.base import Reader, Source, Stop

__all__ = ["OTHER_WORDS", "READERS", "Reader", "Source", "Stop", "line_reader", "recognise"]


def line_reader(dialect: Dialect) -> Reader:
    """The reader of one of the kinds that are a host and its settings a line."""

    def read(source: Source) -> None:
        reader = LineReader(source.display, dialect, source.problems, source.room)
        for line in source.lines:
            source.entries.extend(reader.read(line.text, line.number))
            if reader.full:
                break
            if source.problems.total >= KEPT_MAX:
                message = f"reading stopped here, after {source.problems.total} problems"
                source.problems.add(source.display, line.number, "", message)
                break
        if dialect.repeats_add:
            slots = Counter(host_key(entry.host) for entry in source.entries if entry.slots is not None)
            if twice := [name for name, lines in slots.items() if lines > 1]:
                source.note("slots= on several lines, which Open MPI 4 refuses and later ones add up", twice)

    return Reader(dialect.name, dialect.title, read)


READERS: dict[str, Reader] = {
    **{name: line_reader(dialect) for name, dialect in DIALECTS.items()},
    **{
        reader.name: reader
        for reader in (
            Reader("pdsh", "pdsh list", sets.read_pdsh),
            Reader("genders", "genders file", columns.read_genders),
            Reader("clustershell", "ClusterShell node set", sets.read_set),
            Reader("ansible", "Ansible inventory", ansible.read),
            Reader("ssh", "ssh config", sshconfig.read),
            Reader("hosts", "/etc/hosts table", columns.read_hosts),
            Reader("ray", "Ray cluster file", clusters.read_ray),
            Reader("kubernetes", "Kubernetes list", clusters.read_kubernetes),
            Reader("pbs", "PBS node file", columns.read_repeated),
            Reader("lsf", "LSF host list", columns.read_lsf),
            Reader("sge", "Grid Engine host file", columns.read_sge),
            Reader("json", "netdoctor's JSON", clusters.read_ours),
        )
    },
}
# What people may call them.
OTHER_WORDS = {
    "k8s": "kubernetes",
    "prrte": "openmpi",
    "hydra": "mpich",
    "ssh_config": "ssh",
    "report": "json",
}

# Variables of batch systems that name a file of theirs.
_NAMED_BY = {"PBS_NODEFILE": "pbs", "LSB_DJOB_HOSTFILE": "lsf", "PE_HOSTFILE": "sge"}
# How an ssh config begins, or what tells one that begins with what holds for all hosts.
_SSH_LINE = re.compile(r"(?:host|hostname|match)[ \t]+[^=]+", re.IGNORECASE)
_SSH_HOST = re.compile(r"^[ \t]*host(?:[ \t]+|[ \t]*=[ \t]*)\S", re.IGNORECASE | re.MULTILINE)
_SSH_KEY = re.compile(
    r"(?:hostname|user|port|identityfile|proxyjump|proxycommand|stricthostkeychecking|include|forwardagent)"
    r"(?:[ \t]+|[ \t]*=[ \t]*)\S.*",
    re.IGNORECASE,
)
_GROUP_KEYS = {"hosts", "children", "vars"}


def recognise(source: Source) -> Reader | None:
    """The one way to read a list; None after noting why there is none."""
    for rule in (_by_name, _by_text, _by_lines):
        found = rule(source)
        if found is not None:
            return READERS[found] if found else None
    dialect = formats.detect(source.lines, source.display, source.problems)
    # Without a reading the lines are still looked at, so that other faults are told at once.
    return line_reader(dialect or PLAIN)


def _by_name(source: Source) -> str | None:
    """By where it lies: a file that a batch system's variable names, and genders'."""
    if source.path is None:
        return None
    for variable, name in _NAMED_BY.items():
        if source.environ.get(variable) and _same(source.environ[variable], source.path):
            return name
    return "genders" if os.path.basename(source.path) == "genders" else None


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _by_text(source: Source) -> str | None:
    """By what the whole of it is: a document, INI, or nothing that lists hosts ('')."""
    if refused := formats.foreign(source.text, source.lines):
        at, what, hint = refused
        source.refuse(at, "", f"looks like {what}", hint)
        return ""
    if documents.is_json(source.lines[0].text):
        return _document(source, "JSON")
    if ("[" in source.text or "ansible_" in source.text) and formats.is_ini(source.lines):
        return "ansible"
    if line := formats.yaml_line(source.lines):
        return _document(source, "YAML", line)
    return None


def _document(source: Source, what: str, line: int | None = None) -> str:
    found = documents.read(source)
    if isinstance(found, dict):
        for name, fits in _DOCUMENTS:
            if fits(found):
                return name
        if what == "YAML" and "plugin" in found:
            return "ansible"  # which says how to go on
    hint = "jq can write one name per line: jq -r ... FILE | netdoctor scan -"
    number = line if line is not None else source.lines[0].number
    source.refuse(
        number,
        "",
        f"looks like {what}, of no kind that is known",
        hint if what == "JSON" else "write one host per line",
    )
    return ""


def _is_inventory(found: dict[str, object]) -> bool:
    """Whether a document has groups: of the things in it one at least has hosts, children or vars."""
    if "_meta" in found:
        return True
    groups = [value for value in found.values() if isinstance(value, dict)]
    return any(_GROUP_KEYS & value.keys() for value in groups)


_DOCUMENTS: tuple[tuple[str, Callable[[dict[str, object]], bool]], ...] = (
    ("json", lambda found: str(found.get("schema", "")).startswith("netdoctor.")),
    ("kubernetes", lambda found: "kind" in found and ("items" in found or "apiVersion" in found)),
    ("ray", lambda found: isinstance(found.get("provider"), dict)),
    ("ansible", _is_inventory),
)


def _by_lines(source: Source) -> str | None:
    """By the form of every line, or of the first."""
    texts = [line.text for line in source.lines]
    if _SSH_LINE.fullmatch(texts[0]) or (
        _SSH_HOST.search(source.text) and any(map(_SSH_KEY.fullmatch, texts))
    ):
        return "ssh"
    for name, form in (("hosts", columns.HOSTS_LINE), ("sge", columns.SGE_LINE), ("lsf", columns.LSF_LINE)):
        if all(form.fullmatch(text) for text in texts):
            return name
    if any(mark in source.text for mark in (",-", ",/", ",^")) and any(map(sets.is_pdsh, texts)):
        return "pdsh"
    if "@" in source.text and any(map(sets.has_group, texts)):
        return "clustershell"
    return None
