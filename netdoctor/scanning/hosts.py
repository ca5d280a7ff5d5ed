"""The hosts file of a report, read again when somebody has edited it since: several fixes ask for that."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from netdoctor.facts.host import MEET
from netdoctor.inventory import Inventory, Target, load
from netdoctor.inventory.nodeset import fold
from netdoctor.inventory.reading import file_exists
from netdoctor.options import ScanRequest
from netdoctor.text import clean

_Word = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"\A[^\0\n\r]*\Z")]


class _Listed(Struct, kw_only=True):
    """Where hosts were listed: files by absolute names, and names with a comma behind, which are no files."""

    words: Annotated[tuple[_Word, ...], Meta(max_length=1000)] = ()
    format: Annotated[str, Meta(max_length=40)] = "auto"


def recorded(request: ScanRequest) -> dict[str, Any]:
    """What a report keeps of where its hosts were listed; nothing where no file can be read again."""
    if "-" in request.hosts or not any(file_exists(word) for word in request.hosts):
        return {}
    words = [os.path.abspath(w) if file_exists(w) else f"{w.removesuffix(',')}," for w in request.hosts]
    return {"listed": {"words": words, "format": request.format}}


def reread(request: ScanRequest, replay: Mapping[str, Any]) -> ScanRequest:
    """The request with the nodes that its report's hosts files list now, and a remark where those are others.

    replay: Run.replay of a report that may be taken at its word. Raises InputError for a file that is broken.
    """
    if request.via == MEET and request.tasks:
        return replace(request, targets=None)  # whoever calls this time
    try:
        listed = msgspec.convert(replay.get("listed", {}), type=_Listed)
    except msgspec.ValidationError:
        return request
    files = [word for word in listed.words if os.path.isabs(word)]
    if request.targets is None or not files:
        return request
    names = ", ".join(clean(_near(name), 200) for name in files)
    if not all(file_exists(name) for name in files):
        text = f"{names} cannot be found any more: these are the nodes that the last scan found there"
        return replace(request, remarks=(*request.remarks, text))
    words = tuple(_near(w) if w in files else w for w in listed.words)
    found = load(words, environ=request.environ, format=listed.format)
    remarks = _changed(request.targets, found, names)
    return replace(
        request,
        hosts=words,
        format=listed.format,
        targets=found.targets,
        remarks=(*request.remarks, *remarks),
    )


def _near(name: str) -> str:
    """A file as one would type it here."""
    here = Path.cwd()
    return os.path.relpath(name, here) if Path(name).is_relative_to(here) else name


def _changed(before: Sequence[Target], now: Inventory, files: str) -> list[str]:
    old, new = ({t.id: _what(t) for t in targets} for targets in (before, now.targets))
    parts = [
        (fold(sorted(new.keys() - old.keys()), 60), "new"),
        (fold(sorted(old.keys() - new.keys()), 60), "gone"),
        (fold(sorted(n for n in new.keys() & old.keys() if new[n] != old[n]), 60), "changed"),
    ]
    changes = ", ".join(f"{names} {word}" for names, word in parts if names)
    if not changes and [t.id for t in before] != [t.id for t in now.targets]:
        changes = "another order"
    return [f"{files} has changed since the last scan and was read again: {changes}"] if changes else []


def _what(target: Target) -> Target:
    """The target without where it stands in its file, which says nothing of the node."""
    return replace(target, source="", line=None, order=0)
