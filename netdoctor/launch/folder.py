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

    The folder is made beside its place and renamed into it. One that is there already is replaced if it is
    empty, or holds an earlier plan that nobody has edited since. Raises InputError for any other, and where
    the file system does not let us.
    """
    made = parts(plan)
    texts = {part.name: part.text.encode("utf-8", "surrogateescape") for part in made}
    runs = {part.name for part in made if part.runs}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in texts.items()}
    texts[MANIFEST] = (json.dumps({**as_data(plan), "files": sums}, indent=2) + "\n").encode()
    place = Path(os.path.abspath(folder))
    beside = place.parent / f".{place.name[:100]}.{secrets.token_hex(8)}.tmp"
    try:
        replaces = _replaces(place)
        beside.mkdir(mode=0o755)
        try:
            for name, data in texts.items():
                _put(beside / name, data, 0o755 if name in runs else 0o644)
            _move(beside, place, replaces=replaces)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    except OSError as error:
        raise InputError(f"--write {folder}: {error.strerror or error}") from None
    return [*(part.name for part in made), MANIFEST]


def _put(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _move(made: Path, place: Path, *, replaces: bool) -> None:
    if not replaces:
        os.rename(made, place)  # an empty folder gives way, a full one does not
        return
    old = made.with_suffix(".old")
    os.rename(place, old)
    try:
        os.rename(made, place)
    except OSError:
        os.rename(old, place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _replaces(place: Path) -> bool:
    """Whether an earlier plan is there, which may go. Raises InputError for anything else, and OSError."""
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise InputError(f"--write {place}: is there and no folder; name another one")
    if not place.exists() or not any(place.iterdir()):
        return False
    there = {entry.name: entry for entry in os.scandir(place)}
    try:
        sums = _sums(place / MANIFEST)
    except (OSError, ValueError):
        raise InputError(f"--write {place}: is not empty and no plan of ours; name another folder") from None
    for name, entry in there.items():
        if name == MANIFEST:
            continue
        plain = entry.is_file(follow_symlinks=False)
        if (
            name not in sums
            or not plain
            or hashlib.sha256((place / name).read_bytes()).hexdigest() != sums[name]
        ):
            what = "was edited since" if name in sums else "is not of the plan that is there"
            raise InputError(f"--write {place}: {name!r} {what}; name another folder, or take it away")
    return True


def _sums(path: Path) -> Mapping[str, str]:
    """The files of an earlier plan, by name. Raises OSError and ValueError."""
    if path.is_symlink() or path.stat().st_size > BYTES_MAX:
        raise ValueError("no manifest")
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("files"), dict):
        raise ValueError("no manifest")
    return {str(name): str(found) for name, found in data["files"].items()}
