"""The installed distributions of a search path, on any Python, without importing any."""

import os

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

METADATA_CAP = 64 * 1024


def normalise(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    name = name.replace("_", "-").replace(".", "-").lower()
    while "--" in name:
        name = name.replace("--", "-")
    return name


class Distribution(object):
    """An installed distribution. folder: the search-path entry that holds it."""

    def __init__(self, name: str, version: str, folder: str, metadata: "Optional[str]") -> None:
        self.name = name
        self.folder = folder
        self._version = version
        self._metadata = metadata

    def version(self) -> "Optional[str]":
        """Return the version that the metadata names, else the one in the folder's name."""
        for file in ("METADATA", "PKG-INFO"):
            if self._metadata is None:
                break
            path = os.path.join(self._metadata, file)
            found = _version_line(path)
            if found:
                return found
        if self._metadata is not None and os.path.isfile(self._metadata):  # an .egg-info file
            found = _version_line(self._metadata)
            if found:
                return found
        return self._version or None

    def written(self) -> str:
        """Return the version that the folder's name has, which costs nothing to read."""
        return self._version or self.version() or ""

    def requires(self) -> "Optional[list[str]]":
        """Return what stands behind ``Requires-Dist:``, None where there are no metadata."""
        text = files.text_or_none(os.path.join(self._metadata or "", "METADATA"), METADATA_CAP)
        if not self._metadata or text is None:
            return None
        head = text.replace("\r\n", "\n").partition("\n\n")[0]
        return [line[14:].strip() for line in head.split("\n") if line[:14].lower() == "requires-dist:"]


def _version_line(path: str) -> "Optional[str]":
    """Return what stands behind ``Version:``."""
    for line in (files.text_or_none(path, METADATA_CAP) or "").split("\n"):
        if line[:8].lower() == "version:":
            words = line[8:].split()
            if words:
                return words[0][:100]
    return None


def _from_entry(name: str, folder: str) -> "Optional[Distribution]":
    # nvidia_nccl_cu12-2.21.5.dist-info, PyYAML-5.1-py3.8.egg-info, foo.egg-info, bar-1.0-py3.8.egg
    stem, suffix = os.path.splitext(name)
    path = os.path.join(folder, name)
    if suffix == ".egg":
        metadata = os.path.join(path, "EGG-INFO")  # type: Optional[str]
    elif suffix in (".dist-info", ".egg-info"):
        metadata = path
    else:
        return None
    part = stem.split("-")
    return Distribution(normalise(part[0]), part[1] if len(part) > 1 else "", folder, metadata)


def installed(paths: "Sequence[str]") -> "dict[str, Distribution]":
    """Return distributions by normalised name; the first on the search path wins, as for imports."""
    found = {}  # type: dict[str, Distribution]
    for folder in paths:
        names = files.names(folder)
        if folder.endswith(".egg"):
            entry = _from_entry(os.path.basename(folder), os.path.dirname(folder))
            if entry is not None:
                found.setdefault(entry.name, entry)
        for name in names:
            entry = _from_entry(name, folder)
            if entry is not None:
                found.setdefault(entry.name, entry)
    return found
