"""A report says how it was made; the same is asked for again, with what is said now put in its place."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from netdoctor.check import Profile
from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.inventory.names import host_fault, is_valid_port, leaf_fault, python_fault, user_fault
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.scanning.request import ScanRequest, Selection
from netdoctor.text import clean

_Text = Annotated[str, Meta(pattern=r"\A[^\0]*\Z", max_length=1 << 16)] | UnsetType
_Globs = Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=1000)] | UnsetType
_Port = Annotated[int, Meta(ge=1, le=65535)] | UnsetType
_Seconds = Annotated[float, Meta(gt=0, le=86400)] | UnsetType
_Flag = bool | UnsetType

PATHS = ("ssh_config", "ssh_key", "known_hosts", "env_file", "baseline")


class _Options(Struct, kw_only=True):
    """The fields of a request that a report keeps, and the rules of the command line for them.

    Not checks_dir: code is loaded only from places that are named now; verify commands name it again. Not
    accept_new: who may be trusted is said each time.
    """

    ssh_config: _Text = UNSET
    ssh_key: _Text = UNSET
    known_hosts: _Text = UNSET
    env_file: _Text = UNSET
    baseline: _Text = UNSET
    ssh_user: _Text = UNSET
    ssh_port: _Port = UNSET
    jump: _Text = UNSET
    python: _Text = UNSET
    profile: Profile | UnsetType = UNSET
    only: _Globs = UNSET
    skip: _Globs = UNSET
    node: _Text = UNSET
    master_port: _Port = UNSET
    packages: _Text = UNSET
    parallel: Annotated[int, Meta(ge=1, le=4096)] | UnsetType = UNSET
    timeout: _Seconds = UNSET
    deadline: _Seconds = UNSET
    budget: _Seconds = UNSET
    local: _Flag = UNSET
    strict: _Flag = UNSET
    fail_on: Literal["fail", "warn", "never"] | UnsetType = UNSET


def record(request: ScanRequest, targets: Sequence[Target]) -> dict[str, Any]:
    """What a report keeps of its request: enough to ask again, and no secrets.

    targets: all that were listed, also those that this scan left alone.
    """
    said = {name: getattr(request, name) for name in _Options.__struct_fields__}
    if request.usual is not None:
        said |= request.usual._asdict()
    return {
        "targets": [msgspec.to_builtins(target) for target in targets],
        "options": {name: _plain(name, value) for name, value in said.items() if value is not None},
    }


def _plain(name: str, value: Any) -> Any:
    """An option as the report keeps it: paths absolute, so that `--last` works from elsewhere."""
    if name in PATHS:
        return str(Path(value).absolute())
    return list(value) if isinstance(value, tuple) else value


def load_own(path: Path) -> Report:
    """A saved report that may be taken at its word. Raises InputError for one that is somebody else's."""
    report = load(path)
    if path.stat().st_uid not in (os.geteuid(), 0):
        # It names an ssh config, and with that programs to run.
        raise InputError(f"--last: {path} belongs to somebody else; name the hosts instead")
    return report


def replay(report: Report, given: Mapping[str, Any], source: Path | None = None) -> ScanRequest:
    """The request that a report was made by, with the fields in `given` as they are there.

    Where only, skip or node are given they hold for this run alone: what they were before is asked for again
    the next time. source: the report's file. Raises InputError when the report does not say, or not what it
    may say.
    """
    shown = source or Path("the report")
    try:
        targets = msgspec.convert(report.run.replay["targets"], type=tuple[Target, ...])
        options = {"fail_on": report.verdict.fail_on, **report.run.replay["options"]}
    except (KeyError, msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{shown}: does not say how it was made ({error}); name the hosts instead") from None
    taken = _taken(targets, options, shown)
    usual = Selection(**{name: taken[name] for name in Selection._fields if name in taken})
    if "only" in given:
        taken.pop("skip", None)  # who names a check asks for it
    return ScanRequest(**{**taken, **given, "targets": targets, "source": source, "usual": usual})


def _taken(targets: Sequence[Target], options: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The options, where they keep the rules for hosts files and command lines. Raises InputError."""

    def refuse(what: str, why: object) -> None:
        raise InputError(f"{source}: its {what} cannot be used ({why}); name the hosts instead")

    for target in targets:
        if fault := host_fault(target.host):
            refuse(f"host {clean(target.host, 60)!r}", fault.message)
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
    if (python := found.get("python")) and (fault := python_fault(python)):
        refuse("option python", fault.message)
    if found.get("jump", "").startswith("-"):
        refuse("option jump", "it begins with '-'")
    return {name: Path(value) if name in PATHS and value else value for name, value in found.items()}
