"""A plan's files in a folder: all of them or none, and nothing of anybody else's replaced."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.launch.launchers import parts
from netdoctor.launch.model import LaunchPlan
from netdoctor.launch.output import SCHEMA, as_data

MANIFEST = "plan.json"
# Of a manifest that is read back; ours is smaller by far.
BYTES_MAX = 64 * 1024 * 1024


def write(plan: LaunchPlan, folder: Path) -> list[str]:
    """Write the plan's files and plan.json; returns their names, in the order of use.

    The folder is made beside its final path and renamed into it. One that is there is replaced if it is
    empty, or holds an earlier plan that nobody has edited since. Raises InputError for any other, and where
    the file system does not let us.
    """
    files = parts(plan)
    texts = {part.name: part.text.encode("utf-8", "surrogateescape") for part in files}
    runs = {part.name for part in files if part.runs}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in texts.items()}
    texts[MANIFEST] = (json.dumps({**as_data(plan), "files": sums}, indent=2) + "\n").encode()
    target = Path(os.path.abspath(folder))
    temporary = target.parent / f".{target.name[:100]}.{secrets.token_hex(8)}.tmp"
    try:
        replaces = _replaces(target)
        temporary.mkdir(mode=0o755)
        try:
            for name, data in texts.items():
                _put(temporary / name, data, 0o755 if name in runs else 0o644)
            _move(temporary, target, replaces=replaces)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise InputError(f"--write {folder}: {error.strerror or error}") from None
    return [*(part.name for part in files), MANIFEST]


def _put(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _move(temporary: Path, target: Path, *, replaces: bool) -> None:
    if not replaces:
        os.rename(temporary, target)  # an empty folder gives way, a full one does not
        return
    old = temporary.with_suffix(".old")
    os.rename(target, old)
    try:
        os.rename(temporary, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _replaces(target: Path) -> bool:
    """Whether an earlier plan is there, which may go. Raises InputError for anything else, and OSError."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(f"--write {target}: is there and no folder; name another one")
    if not target.exists() or not any(target.iterdir()):
        return False
    entries = {entry.name: entry for entry in os.scandir(target)}
    try:
        sums = _sums(target / MANIFEST)
    except (OSError, ValueError):
        raise InputError(f"--write {target}: is not empty and no plan of ours; name another folder") from None
    for name, entry in entries.items():
        if name == MANIFEST:
            continue
        plain = entry.is_file(follow_symlinks=False)
        if (
            name not in sums
            or not plain
            or hashlib.sha256((target / name).read_bytes()).hexdigest() != sums[name]
        ):
            what = "was edited since" if name in sums else "is not of the plan that is there"
            raise InputError(f"--write {target}: {name!r} {what}; name another folder, or take it away")
    return True


def _sums(path: Path) -> Mapping[str, str]:
    """The files of an earlier plan, by name. Raises OSError and ValueError."""
    if path.is_symlink() or path.stat().st_size > BYTES_MAX:
        raise ValueError("no manifest")
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("files"), dict):
        raise ValueError("no manifest")
    return {str(name): str(found) for name, found in data["files"].items()}
