"""What nodes have in a saved report, written as what is to be expected of them: see `expecting`."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdoctor.engine.registry import Registry
from netdoctor.engine.run import judge_facts
from netdoctor.errors import InputError
from netdoctor.facts.expected import ABSENT, RecordedExpectations
from netdoctor.inventory.nodeset import fold
from netdoctor.report import fmt, summary
from netdoctor.report.model import Report
from netdoctor.scanning.expecting import GROUP, VALUE_MAX, keys_of
from netdoctor.scanning.merging import every_check
from netdoctor.scanning.record import facts_of
from netdoctor.text import clean, did_you_mean, listing

FOLD_LIMIT = 60
Key = tuple[str, str]  # of what may be expected, and of which model or card
Spread = Mapping[str | None, Sequence[str]]
Values = Mapping[Key, Mapping[str, str | None]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Nodes that are to have the same. head: the lines that say which; none for all."""

    head: tuple[str, ...]
    nodes: tuple[str, ...]


def values(report: Report, known: Registry) -> Values:
    """What each node has, by key, as the checks compare it; None where it could not be read."""
    store = facts_of(report)
    watched = RecordedExpectations()
    store.cluster["wanted"] = watched
    judge_facts(store, every_check(report, known))
    return watched.compared


def write(report: Report, known: Registry, source: Path, by: str | None = None) -> str:
    """The file. by: a key by whose value nodes are parted; else by the groups of the hosts file.

    Raises InputError where the report cannot say what nodes have.
    """
    if not report.facts:
        raise InputError(f"{source}: holds no facts; save with --json-detail all")
    if report.run.redacted:
        raise InputError(f"{source}: is redacted, its nodes have other names; take your own")
    kinds = keys_of(known.checks.values())
    found = values(report, known)
    if by is not None and not any(key == by and not model for key, model in found):
        names = sorted({key for key, model in found if not model})
        hint = did_you_mean(by, names) or f"; there are: {', '.join(names)}"
        raise InputError(f"--by {clean(by, 60)}: no node has a value of it{hint}")
    nodes = tuple(report.matrix.nodes)
    parts = _parts(report, nodes, found.get((by, ""), {}) if by else None)
    shared: list[tuple[Key, Spread, dict[_Part, Spread]]] = []
    per_part: list[tuple[Key, Spread, dict[_Part, Spread]]] = []
    for one in sorted(found):
        had = found[one]
        if not one[1] or one[0].endswith(".*"):
            # What a node has nothing of is not to be expected of it; of models it has those that it has.
            had = dict.fromkeys(nodes, ABSENT) | dict(had)
        spread = {part: _spread(had, part.nodes) for part in parts}
        of_all = _spread(had, nodes)
        if of_all.keys() - {ABSENT}:
            (shared if len(parts) < 2 or len(of_all) < 2 else per_part).append((one, of_all, spread))
    lines = [
        f"# What nodes should have: netdoctor scan --expect FILE. Written from {clean(str(source), 200)},",
        f"# the scan of {clean(report.run.finished[:16], 40)}: {fmt.number(len(nodes), 'node')}, "
        f"{summary.verdict(report)}. Edit it: a list means that any of its values will do, * any characters.",
        f"# Where nothing stands behind a value, all {'nodes of its part' if per_part else 'nodes'} have it.",
    ]
    table = ""
    for (key, model), of_all, _ in shared:
        family, _, rest = key.partition(".")
        if family != table:
            lines += ["", f"[{family}]"]
            table = family
        lines.append(_line(rest, model, of_all, kinds[key], len(nodes)))
    for part in parts if per_part else ():
        lines += ["", f"[[{GROUP}]]", *part.head]
        of_part = ((key, model, spread[part]) for (key, model), _, spread in per_part)
        lines += [
            _line(key, model, had, kinds[key], len(part.nodes))
            for key, model, had in of_part
            if had.keys() - {ABSENT}
        ]
    return "\n".join(lines) + "\n"


def _parts(report: Report, nodes: Sequence[str], by: Mapping[str, str | None] | None) -> list[_Part]:
    """How the nodes are parted: by a value, or by their groups in the hosts file."""
    if by is not None:
        label = {node: by.get(node) or "" for node in nodes}
    else:
        listed = report.run.replay.get("targets") if isinstance(report.run.replay, dict) else None
        groups = {
            str(one.get("id")): ",".join(map(str, one.get("groups") or ()))
            for one in (listed if isinstance(listed, list | tuple) else ())
            if isinstance(one, dict)
        }
        label = {node: groups.get(node, "") for node in nodes}
    members: dict[str, list[str]] = {}
    for node in nodes:
        members.setdefault(label[node], []).append(node)
    alone = by is None and all("," not in name for name in members)
    return [
        _Part(
            (f"group = {_text(name)}",) if alone and name else (f"nodes = {_text(fold(names))}",),
            tuple(names),
        )
        for name, names in members.items()
    ]


def _spread(values: Mapping[str, str | None], nodes: Collection[str]) -> Spread:
    """Nodes by value; those that the key does not concern are in none."""
    found: dict[str | None, list[str]] = {}
    for node in nodes:
        if node in values:
            found.setdefault(values[node] or None, []).append(node)
    return found


def _line(name: str, model: str, spread: Spread, kind: type, count: int) -> str:
    """``driver = "570.86.15"``, with the number of nodes where it is not of all, or why it is left out."""
    key = f"{name.removesuffix('.*')}.{_text(model)}" if model else name
    if len(spread) == 1:
        ((value, nodes),) = spread.items()
        written = None if value is None else _value(value, kind)
        if written is not None:
            of_some = "" if len(nodes) == count else f"  # of {fmt.number(len(nodes), 'node')}"
            return f"{key} = {written}{of_some}"
    sides = (
        f"{'not readable' if value is None else clean(value, 60)} on {fold(names, FOLD_LIMIT)}"
        for value, names in sorted(spread.items(), key=lambda item: -len(item[1]))
    )
    return f"# {key} is left out: {listing(sides, 4)}"


def fits(text: str, kind: type) -> bool:
    """Whether what a check compares is a value of the type that it declares for the key."""
    return _value(text, kind) is not None


def _value(text: str, kind: type) -> str | None:
    """As TOML writes it; None for what is no value of this kind, or cannot be read again."""
    if kind is bool:
        return {"on": "true", "off": "false"}.get(text)
    if kind is str:
        return _text(text) if text == clean(text, VALUE_MAX) != ABSENT else None
    try:
        return str(int(text)) if kind is int else f"{float(text):g}"
    except ValueError:
        return None


def _text(text: str) -> str:
    """A basic string of TOML, which escapes as JSON does."""
    return json.dumps(clean(text, VALUE_MAX), ensure_ascii=False)


def listed_keys(known: Registry) -> Iterator[str]:
    """``gpu.count       whole number  gpu.count`` for each key: its value and the check that compares it."""
    kinds = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    for check in known.checks.values():
        for key, kind in check.expects.items():
            yield f"{key:<20} {kinds[kind]:<13} {check.id}"
