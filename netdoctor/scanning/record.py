"""A report says how it was made; the same is asked for again, with what is said now put in its place."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from netdoctor.check import Profile
from netdoctor.errors import InputError
from netdoctor.facts.host import Node, Session, Via
from netdoctor.facts.software import Backend, Launcher
from netdoctor.inventory import Target
from netdoctor.inventory.names import (
    host_fault,
    is_valid_host,
    is_valid_port,
    is_valid_user,
    leaf_fault,
    python_fault,
    user_fault,
)
from netdoctor.report.kept import of
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.scanning.hosts import recorded
from netdoctor.scanning.request import PARTITION, PATHS, PLACE, URL, URL_LENGTH, URLS, ScanRequest, Selection
from netdoctor.store import Store
from netdoctor.text import clean

_Text = Annotated[str, Meta(pattern=r"\A[^\0]*\Z", max_length=1 << 16)] | UnsetType
# Without users, passwords and queries: as the command line takes them.
_Url = Annotated[str, Meta(pattern=URL, max_length=URL_LENGTH)]
_Urls = Annotated[tuple[_Url, ...], Meta(max_length=URLS)] | UnsetType
_Globs = Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=1000)] | UnsetType
# What is in it reaches a shell by way of ssh, which runs another ssh for each hop.
_Jump = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.@:%,/\[\] -]*\Z", max_length=4096)] | UnsetType
_Port = Annotated[int, Meta(ge=1, le=65535)] | UnsetType
_Seconds = Annotated[float, Meta(gt=0, le=86400)] | UnsetType
_Flag = bool | UnsetType
_File = Annotated[str, Meta(pattern=r"\A[^\0]+\Z", max_length=4096)]
# Words behind --facts. Of more than these a part would be another cluster, and none is kept.
FACTS_MAX = 10_000
_Places = Annotated[tuple[Annotated[str, Meta(pattern=PLACE)], ...], Meta(max_length=32)] | UnsetType
_Files = Annotated[tuple[_File, ...], Meta(max_length=FACTS_MAX)] | UnsetType

_IN_BRACKETS = re.compile(r"\[([^\]]*)\]:[0-9]+")


class _Options(Struct, kw_only=True):
    """The fields of a request that a report keeps, and the rules of the command line for them.

    Not checks_dir: code is loaded only from places that are named now; verify commands name it again. Not
    accept_new and facts_uid: who may be trusted is said each time.
    """

    ssh_config: _Text = UNSET
    ssh_key: _Text = UNSET
    known_hosts: _Text = UNSET
    env_file: _Text = UNSET
    baseline: _Text = UNSET
    suppress: _Text = UNSET
    expect: _Text = UNSET
    ssh_user: _Text = UNSET
    ssh_port: _Port = UNSET
    jump: _Jump = UNSET
    python: _Text = UNSET
    profile: Profile | UnsetType = UNSET
    only: _Globs = UNSET
    skip: _Globs = UNSET
    also: _Globs = UNSET
    reach: _Urls = UNSET
    write_test: _Places = UNSET
    node: _Text = UNSET
    master_port: _Port = UNSET
    packages: _Text = UNSET
    requirements: _Text = UNSET
    path: _Places = UNSET
    launcher: Launcher | UnsetType = UNSET
    backend: Backend | UnsetType = UNSET
    image: _Text = UNSET
    parallel: Annotated[int, Meta(ge=1, le=4096)] | UnsetType = UNSET
    timeout: _Seconds = UNSET
    deadline: _Seconds = UNSET
    budget: _Seconds = UNSET
    local: _Flag = UNSET
    via: Via | Literal["facts", "meet"] | UnsetType = UNSET
    meet: _Text = UNSET
    secret_file: _Text = UNSET
    tasks: Annotated[int, Meta(ge=1, le=100_000)] | UnsetType = UNSET
    ray_address: _Text = UNSET
    ray_python: _Text = UNSET
    partition: Annotated[str, Meta(pattern=PARTITION)] | UnsetType = UNSET
    facts: _Files = UNSET
    facts_age: _Seconds = UNSET
    facts_nodes: Annotated[int, Meta(ge=1, le=100_000)] | UnsetType = UNSET
    facts_job: _Text = UNSET
    strict: _Flag = UNSET
    require: _Globs = UNSET
    fail_on: Literal["fail", "warn", "never"] | UnsetType = UNSET


def record(request: ScanRequest, targets: Sequence[Target]) -> dict[str, Any]:
    """What a report keeps of its request: enough to ask again, and no secrets.

    targets: all that were listed, also those that this scan left alone.
    """
    said = {name: getattr(request, name) for name in _Options.__struct_fields__}
    if request.usual is not None:
        said |= request.usual._asdict()
    return {
        **recorded(request),
        "targets": [_builtins(_as_listed(target, request)) for target in targets],
        "options": {name: _plain(name, value) for name, value in said.items() if value is not None},
    }


def _builtins(target: Target) -> dict[str, Any]:
    """As JSON gives it back, which knows no tuples."""
    return {**msgspec.to_builtins(target), "groups": list(target.groups)}


def _as_listed(target: Target, request: ScanRequest) -> Target:
    """The target without the interpreter that an option gave it: another option may give it another."""
    given = target.python is not None and target.python == request.python
    return replace(target, python=None) if given else target


def _plain(name: str, value: Any) -> Any:
    """An option as the report keeps it: paths absolute, so that `--last` works from elsewhere."""
    if name in PATHS:
        return str(Path(value).absolute())
    if name == "facts":
        return [os.path.abspath(word) for word in value] if len(value) <= FACTS_MAX else []
    return list(value) if isinstance(value, tuple) else value


def load_own(path: Path) -> Report:
    """A saved report that may be taken at its word. Raises InputError for one that is somebody else's."""
    report = load(path)
    _refuse_foreign(report, path)
    return report


def _refuse_foreign(report: Report, shown: Path) -> None:
    if report.run.foreign is not None:
        # It may name an ssh config, and with that programs to run.
        whose = clean(report.run.foreign, 80)
        raise InputError(f"{shown}: belongs to somebody else, {whose}; name the hosts instead")


def replay(report: Report, given: Mapping[str, Any], source: Path | None = None) -> ScanRequest:
    """The request that a report was made by, with the fields in `given` as they are there.

    Where only, skip or node are given they hold for this run alone: what they were before is asked for again
    the next time. source: the report's file. Raises InputError when the report does not say, or not what it
    may say.
    """
    shown = source or Path("the report")
    _refuse_foreign(report, shown)
    try:
        targets = msgspec.convert(report.run.replay["targets"], type=tuple[Target, ...])
        options = {"fail_on": report.verdict.fail_on, **report.run.replay["options"]}
    except (KeyError, msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{shown}: does not say how it was made ({error}); name the hosts instead") from None
    taken = _taken(targets, options, shown)
    usual = Selection(**{name: taken[name] for name in Selection._fields if name in taken})
    if "only" in given:
        taken.pop("skip", None)  # who names a check asks for it
    remarks: tuple[str, ...] = ()
    if "suppress" not in given and "suppress" in taken and not taken["suppress"].is_file():
        gone = clean(str(taken.pop("suppress")), 200)
        remarks = (f"{gone} cannot be found any more: what it accepted counts again",)
    return ScanRequest(
        **{"remarks": remarks, **taken, **given, "targets": targets, "source": source, "usual": usual}
    )


def _taken(targets: Sequence[Target], options: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The options, where they keep the rules for hosts files and command lines. Raises InputError."""

    def refuse(what: str, why: object) -> None:
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
        if target.port is not None and not is_valid_port(target.port):
            refuse("port", target.port)
    said = {name: value for name, value in options.items() if value is not None}
    try:
        checked = msgspec.convert(said, type=_Options)
    except msgspec.ValidationError as error:
        refuse("options", clean(str(error), 200))
    found = {name: getattr(checked, name) for name in _Options.__struct_fields__}
    found = {name: value for name, value in found.items() if value is not UNSET}
    if (user := found.get("ssh_user")) and (fault := user_fault(user)):
        refuse("option ssh_user", fault.message)
    for name in ("python", "ray_python"):
        if (python := found.get(name)) and (fault := python_fault(python)):
            refuse(f"option {name}", fault.message)
    if any(hop.strip().startswith("-") for hop in found.get("jump", "").split(",")):
        refuse("option jump", "it begins with '-'")
    return {name: Path(value) if name in PATHS and value else value for name, value in found.items()}


def _is_id(text: str) -> bool:
    """Whether an inventory could call a node so: as a host, or with the port where a host is listed twice."""
    host, _, port = text.rpartition(":")
    return is_valid_host(text) or (port.isdecimal() and is_valid_host(host.strip("[]")))


def facts_of(report: Report) -> Store:
    """The facts of a report. What they say of nodes and logins keeps the rules for hosts files, or goes.

    Checks put these words into commands; those of a scan have been through `inventory.names` on their way in.
    """
    facts = of(report.facts).store()
    listed = {name: node for name, node in facts.node.get("node", {}).items() if _is_id(name)}
    for name, node in listed.items():
        if isinstance(node, Node):
            listed[name] = replace(node, id=name, host=_kept(node.host) or _bare(name) or name)
    facts.node["node"] = listed
    sessions = facts.node.get("session", {})
    for node, session in sessions.items():
        if isinstance(session, Session):
            sessions[node] = replace(
                session,
                user=session.user if is_valid_user(session.user) else "",
                address=_kept(session.address),
                known_as=session.known_as if _kept(_bare(session.known_as)) else None,
                port=session.port if is_valid_port(session.port) else 22,
            )
    return facts


def _kept(host: str | None) -> str | None:
    return host if host is not None and is_valid_host(host) else None


def _bare(known_as: str | None) -> str | None:
    """The host of ``[host]:port``, as known_hosts writes it where the port is not 22."""
    found = _IN_BRACKETS.fullmatch(known_as or "")
    return found[1] if found else known_as
