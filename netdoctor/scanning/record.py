"""A report says how it was made; the same is asked for again, with what is said now put in its place."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.inventory.names import host_fault, is_valid_port, leaf_fault, python_fault, user_fault
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.scanning.request import ScanRequest
from netdoctor.text import clean

# Not checks_dir: code is loaded only from places that are named now; verify commands name it again.
PATHS = ("ssh_config", "ssh_key", "known_hosts", "env_file", "baseline")
_REPLAYED = (
    *PATHS, "ssh_user", "ssh_port", "jump", "python", "profile", "master_port", "packages", "parallel",
    "timeout", "budget", "local",
)  # fmt: skip


def record(request: ScanRequest, targets: Sequence[Target]) -> dict[str, Any]:
    """What a report keeps of its request: enough to ask again, and no secrets."""
    said = {name: getattr(request, name) for name in _REPLAYED}
    return {
        "targets": [msgspec.to_builtins(target) for target in targets],
        "options": {name: _plain(name, value) for name, value in said.items() if value is not None},
    }


def _plain(name: str, value: Any) -> Any:
    """An option as the report keeps it: paths absolute, so that `--last` works from elsewhere."""
    return str(Path(value).absolute()) if name in PATHS else value


def load_own(path: Path) -> Report:
    """A saved report that may be taken at its word. Raises InputError for one that is somebody else's."""
    report = load(path)
    if path.stat().st_uid not in (os.geteuid(), 0):
        # It names an ssh config, and with that programs to run.
        raise InputError(f"--last: {path} belongs to somebody else; name the hosts instead")
    return report


def replay(report: Report, given: Mapping[str, Any], source: Path | None = None) -> ScanRequest:
    """The request that a report was made by, with the fields in `given` as they are there.

    source: the report's file. Raises InputError when the report does not say, or not what it may say.
    """
    kept = report.run.replay
    shown = source or Path("the report")
    try:
        targets = msgspec.convert(kept["targets"], type=tuple[Target, ...])
        options: dict[str, Any] = dict(kept["options"])
    except (KeyError, msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{shown}: does not say how it was made ({error}); name the hosts instead") from None
    _check(targets, options, shown)
    taken = {
        name: Path(value) if name in PATHS and value else value
        for name, value in options.items()
        if name in _REPLAYED
    }
    return ScanRequest(**{**taken, **given, "targets": targets, "source": source})


def _check(targets: Sequence[Target], options: Mapping[str, Any], source: Path) -> None:
    """Hold a report to the rules that a hosts file and the command line are held to. Raises InputError."""

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
    for name, value in options.items():
        numbers = {"timeout", "budget", "ssh_port", "master_port", "parallel"}
        wanted: type | tuple[type, ...] = str
        if name in numbers:
            wanted = (int, float)
        elif name == "local":
            wanted = bool
        if name in _REPLAYED and value is not None and not isinstance(value, wanted):
            refuse(f"option {clean(name, 40)}", "of the wrong type")
    if (user := options.get("ssh_user")) and (fault := user_fault(user)):
        refuse("option ssh_user", fault.message)
    if str(options.get("jump") or "").startswith("-"):
        refuse("option jump", "it begins with '-'")
