"""The packages that a job asks for: what --packages says, and pip's requirement files.

https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.facts.software import BY_HAND, Requested
from netdoctor.files import read_regular
from netdoctor.rules.packages import MOST
from netdoctor.text import clean

MAX_BYTES = 1024 * 1024  # of all files together
MAX_FILES = 50
MAX_DEPTH = 10
MAX_PACKAGES = 500  # that an agent looks for
MAX_TOLD = 20
WRITE = "write: name, name==1.2, name>=1,<2 or name==1.2; python_version<'3.12'"
# pip reads these and they say nothing of versions; of those in the first line a value follows.
_WITH_VALUE = "-i --index-url --pypi-url --extra-index-url -f --find-links --no-binary --only-binary"
_VALUES = frozenset(f"{_WITH_VALUE} --trusted-host --use-feature --all-releases --only-final".split())
_FLAGS = frozenset(("--no-index", "--prefer-binary", "--require-hashes", "--no-require-hashes", "--pre"))
_INCLUDES = re.compile(r"(-r|-c|-e|--requirement|--constraint|--editable)(?:\s*=\s*|\s+|(?<=^..))(.+)")
_COMMENT = re.compile(r"(^|\s+)#.*$")
_LOCATION = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|\.{0,2}/|~|[^@]*\.(whl|zip|tar\.\w+|tgz)\Z|\.\Z")


@dataclass(slots=True)
class Requirements:
    """names: to look for, in the order given. requested: what is said of them. notes: not compared."""

    names: dict[str, str] = field(default_factory=dict)
    requested: list[Requested] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(self.names.values())

    def take(self, text: str, origin: str, *, constraint: bool = False) -> str | None:
        """One requirement, and why it is none."""
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.utils import canonicalize_name

        try:
            found = Requirement(text) if len(text) <= MOST else None
        except (InvalidRequirement, RecursionError):
            found = None
        if found is None:
            # Not the line itself: what is no requirement may be anything, also a password.
            return f"{origin}: not a requirement ({WRITE})"
        if found.url:
            self.notes.append(f"{origin}: {found.name} comes from an address: its version is not compared")
        extras = tuple(sorted(canonicalize_name(extra) for extra in found.extras))
        if extras and found.marker and not constraint:
            self.notes.append(f"{origin}: extras of {found.name} behind a marker are not checked")
        name = self.names.setdefault(canonicalize_name(found.name), found.name)
        self.requested.append(
            Requested(
                name=name,
                specifier=str(found.specifier),
                marker=str(found.marker or ""),
                origin=origin,
                only_if_there=constraint,
                extras=extras,
            )
        )
        return None


def read_requirements(packages: str, requirements: Path | None = None) -> Requirements:
    """What the two options ask for. Raises InputError, with file and line of each mistake."""
    found = Requirements()
    problems = []
    for text in split(packages):
        if re.search(r"[<>=!~;@\[( ]", text):
            problems.append(found.take(text, BY_HAND))
        else:  # a name alone, of whatever form: it is only looked for, and compared
            from packaging.utils import canonicalize_name

            found.names.setdefault(canonicalize_name(text), text)
    if requirements is not None:
        problems += _Reader(found).read(requirements, ())
    mistakes = [one for one in problems if one]
    if len(found.names) > MAX_PACKAGES:
        mistakes.append(f"{len(found.names)} packages are asked for, {MAX_PACKAGES} are allowed")
    if mistakes:
        more = [f"{len(mistakes) - MAX_TOLD} more such lines"] if len(mistakes) > MAX_TOLD else []
        raise InputError("\n".join([*mistakes[:MAX_TOLD], *more]))
    return found


def split(packages: str) -> list[str]:
    """``torch>=2.4,<2.7,vllm[a,b]`` at the commas between packages: a version, or more extras, belong to what
    stands before them."""
    found: list[str] = []
    for part in packages.split(","):
        opened = bool(found) and found[-1].count("[") > found[-1].count("]")
        if opened or (found and part.lstrip()[:1] in ("<", ">", "=", "!", "~")):
            found[-1] += f",{part}"
        elif part.strip():
            found.append(part.strip())
    return found


@dataclass(slots=True)
class _Reader:
    found: Requirements
    files: int = 0
    left: int = MAX_BYTES

    def read(self, path: Path, above: tuple[Path, ...], *, constraint: bool = False) -> list[str | None]:
        """The mistakes of a file and of those that it includes. Raises InputError for what cannot be read."""
        name = clean(str(path), 200)
        where = f"{name}, included by {clean(str(above[-1]), 200)}" if above else f"--requirements {name}"
        self.files += 1
        if path.absolute() in (one.absolute() for one in above):
            raise InputError(f"{where}: includes itself; take one of the two lines out")
        if self.files > MAX_FILES or len(above) >= MAX_DEPTH:
            raise InputError(f"{where}: more than {MAX_FILES} files, or {MAX_DEPTH} deep, are not read")
        try:
            data = read_regular(path, self.left)
            text = data.decode("utf-8-sig")
        except OSError as error:
            raise InputError(f"{where}: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: byte {error.start} is not UTF-8") from None
        if len(data) > self.left:
            raise InputError(f"{where}: more than {MAX_BYTES} bytes in all; is this a requirements file?")
        self.left -= len(data)
        problems: list[str | None] = []
        for number, line in lines(text):
            problems += self._line(line, f"{path.name}:{number}", path, (*above, path), constraint)
        return problems

    def _line(
        self, line: str, origin: str, path: Path, above: tuple[Path, ...], constraint: bool
    ) -> Sequence[str | None]:
        origin = clean(origin, 120)
        if not line.startswith("-"):
            requirement = re.split(r"\s-", line, maxsplit=1)[
                0
            ].rstrip()  # behind it: --hash, --config-settings
            if requirement != line and "--hash" in line:
                self._tell(f"{origin.partition(':')[0]}: hashes are not compared")
            if _LOCATION.match(requirement):
                self._tell(f"{origin}: a file or an address: it is not compared")
                return ()
            return [self.found.take(requirement, origin, constraint=constraint)]
        include = _INCLUDES.fullmatch(line)
        if include is None:
            option = re.split(r"[\s=]", line, maxsplit=1)[0]
            if option in _FLAGS or option in _VALUES:
                return ()
            return [f"{origin}: {clean(option, 40)}: no option of a requirements file ({WRITE}, -r FILE)"]
        option, value = include[1], include[2].strip().strip("'\"")
        if option in ("-e", "--editable"):
            self._tell(f"{origin}: an editable folder or address: it is not compared")
            return ()
        if _LOCATION.match(value) and "://" in value:
            self._tell(f"{origin}: includes an address, which is not read")
            return ()
        return self.read(path.parent / value, above, constraint=option in ("-c", "--constraint"))

    def _tell(self, note: str) -> None:
        if note not in self.found.notes:
            self.found.notes.append(note)


def lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) without comments and blank ones; lines that end in a backslash go on, as pip has it."""
    first, parts = 0, list[str]()
    for number, raw in enumerate(text.splitlines(), start=1):
        comment = _COMMENT.match(raw) is not None
        if raw.endswith("\\") and not comment:
            first = first if parts else number
            parts.append(raw.strip("\\"))
            continue
        joined = "".join([*parts, f" {raw}" if comment else raw])
        start, parts = (first if parts else number), []
        if stripped := _COMMENT.sub("", joined).strip():
            yield start, stripped
    if stripped := _COMMENT.sub("", "".join(parts)).strip():
        yield first, stripped
