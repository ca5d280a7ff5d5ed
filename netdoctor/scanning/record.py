"""A report says how it was made; the same is asked for again, with what is said now put in its place."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from netdoctor.errors import InputError
from netdoctor.facts.host import Node, Session
from netdoctor.inventory import Target
from netdoctor.inventory.names import (
    host_fault,
    is_valid_host,
    is_valid_port,
    is_valid_user,
    leaf_fault,
    python_fault,
    rail_fault,
    user_fault,
)
from netdoctor.options import OPTIONS, ScanRequest, Selection
from netdoctor.report.kept import as_facts
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.scanning.hosts import recorded
from netdoctor.store import Store
from netdoctor.text import clean

_IN_BRACKETS = re.compile(r"\[([^\]]*)\]:[0-9]+")


def keep_request(request: ScanRequest, targets: Sequence[Target]) -> dict[str, Any]:
    """What a report keeps of its request: enough to ask again, and no secrets.

    targets: all that were listed, also those that this scan left alone.
    """
    values = {name: getattr(request, name) for name, option in OPTIONS.items() if not option.not_kept}
    if request.default_selection is not None:
        values |= request.default_selection._asdict()
    options = {n: OPTIONS[n].to_report(value) for n, value in values.items() if value is not None}
    return {
        **recorded(request),
        "targets": [_builtins(_as_listed(target, request)) for target in targets],
        "options": options,
    }


def _builtins(target: Target) -> dict[str, Any]:
    """As JSON gives it back, which knows no tuples."""
    return {**msgspec.to_builtins(target), "groups": list(target.groups)}


def _as_listed(target: Target, request: ScanRequest) -> Target:
    """The target without the interpreter that an option gave it: another option may give it another."""
    given = target.python is not None and target.python == request.python
    return replace(target, python=None) if given else target


def load_own(path: Path) -> Report:
    """A saved report that may be taken at its word. Raises InputError for one that is somebody else's."""
    report = load(path)
    _refuse_foreign(report, path)
    return report


def _refuse_foreign(report: Report, source: Path) -> None:
    if report.run.foreign is not None:
        # It may name an ssh config, and with that programs to run.
        owner = clean(report.run.foreign, 80)
        raise InputError(f"{source}: belongs to somebody else, {owner}; name the hosts instead")


def kept_request(report: Report, given: Mapping[str, Any], source: Path | None = None) -> ScanRequest:
    """The request that a report was made by, with the fields in `given` as they are there.

    Where only, skip or node are given they hold for this run alone: what they were before is asked for again
    the next time. source: the report's file. Raises InputError when the report does not say, or not what it
    may say.
    """
    file = source or Path("the report")
    _refuse_foreign(report, file)
    try:
        targets = msgspec.convert(report.run.replay["targets"], type=tuple[Target, ...])
        options = {"fail_on": report.verdict.fail_on, **report.run.replay["options"]}
    except (KeyError, msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{file}: does not say how it was made ({error}); name the hosts instead") from None
    checked = _check_options(targets, options, file)
    selection = Selection(**{name: checked[name] for name in Selection._fields if name in checked})
    if "only" in given:
        checked.pop("skip", None)  # who names a check asks for it
    remarks: tuple[str, ...] = ()
    if "suppress" not in given and "suppress" in checked and not checked["suppress"].is_file():
        missing = clean(str(checked.pop("suppress")), 200)
        remarks = (f"{missing} cannot be found any more: what it accepted counts again",)
    fixed = {"targets": targets, "source": source, "default_selection": selection}
    return ScanRequest(**{"remarks": remarks, **checked, **given, **fixed})


def _check_options(targets: Sequence[Target], options: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The options, where they keep the rules for hosts files and command lines. Raises InputError."""

    def refuse(what: str, why: object) -> NoReturn:
        raise InputError(f"{source}: its {what} cannot be used ({why}); name the hosts instead")

    for target in targets:
        if fault := host_fault(target.host):
            refuse(f"host {clean(target.host, 60)!r}", fault.message)
        if not _is_id(target.id):
            refuse(f"node {clean(target.id, 60)!r}", "not a host name, nor one with a port")
        if target.user is not None and (fault := user_fault(target.user)):
            refuse(f"user {clean(target.user, 60)!r}", fault.message)
        if target.python is not None and (fault := python_fault(target.python)):
            refuse(f"interpreter {clean(target.python, 60)!r}", fault.message)
        if target.leaf is not None and (fault := leaf_fault(target.leaf)):
            refuse(f"leaf {clean(target.leaf, 60)!r}", fault.message)
        if target.rail is not None and (fault := rail_fault(target.rail)):
            refuse(f"rail {clean(target.rail, 60)!r}", fault.message)
        if target.port is not None and not is_valid_port(target.port):
            refuse("port", target.port)
    found = {}
    for name, option in OPTIONS.items():
        value = options.get(name)
        if option.not_kept or value is None:
            continue
        try:
            found[name] = option.from_report(value)
        except InputError as error:
            refuse(f"option {name}", error)
    return found


def _is_id(text: str) -> bool:
    """Whether an inventory could call a node so: as a host, or with the port where a host is listed twice."""
    host, _, port = text.rpartition(":")
    return is_valid_host(text) or (port.isdecimal() and is_valid_host(host.strip("[]")))


def facts_of(report: Report) -> Store:
    """The facts of a report. What they say of nodes and logins keeps the rules for hosts files, or goes.

    Checks put these words into commands; those of a scan have been through `inventory.names` on their way in.
    """
    facts = as_facts(report.facts).store()
    listed = {name: node for name, node in facts.node.get("node", {}).items() if _is_id(name)}
    for name, node in listed.items():
        if isinstance(node, Node):
            listed[name] = replace(node, id=name, host=_valid_host(node.host) or _bare(name) or name)
    facts.node["node"] = listed
    sessions = facts.node.get("session", {})
    for node, session in sessions.items():
        if isinstance(session, Session):
            sessions[node] = replace(
                session,
                user=session.user if is_valid_user(session.user) else "",
                address=_valid_host(session.address),
                known_as=session.known_as if _valid_host(_bare(session.known_as)) else None,
                port=session.port if is_valid_port(session.port) else 22,
            )
    return facts


def _valid_host(host: str | None) -> str | None:
    return host if host is not None and is_valid_host(host) else None


def _bare(known_as: str | None) -> str | None:
    """The host of ``[host]:port``, as known_hosts writes it where the port is not 22."""
    found = _IN_BRACKETS.fullmatch(known_as or "")
    return found[1] if found else known_as
