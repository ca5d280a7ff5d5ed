"""Named baselines: runs of a cluster in the state that later ones are compared with.

A baseline is a folder of saved reports without their facts, `.netdoctor/baselines/NAME/`. Several runs say
how much values scatter (`report.bands`), and what was known then is not new now.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.report import LAST, history
from netdoctor.report.diff import is_healed
from netdoctor.report.model import Against, Cause, Healed, Report
from netdoctor.report.save import keep, load
from netdoctor.text import did_you_mean

FOLDER = LAST.parent / "baselines"
RUNS_MAX = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class NamedBaseline:
    """A baseline and the files of its runs, the newest first."""

    name: str
    files: tuple[Path, ...]


def all_baselines() -> list[NamedBaseline]:
    """All baselines of this folder, by name. No file is opened."""
    try:
        found = sorted(path for path in FOLDER.iterdir() if path.is_dir() and _NAME.fullmatch(path.name))
    except OSError:
        return []
    return [NamedBaseline(path.name, files) for path in found if (files := _files(path))]


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted((p for p in folder.glob("*.json") if not p.name.startswith(".")), reverse=True))


def checked(name: str) -> str:
    """The name, where a baseline can be called so. Raises InputError."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name[:80]!r} is not a name for a baseline: letters, digits, - and _, at most 64")
    return name


def find(name: str) -> NamedBaseline:
    """The baseline of this name. Raises InputError that names those there are."""
    known = {one.name: one for one in all_baselines()}
    if name in known:
        return known[name]
    existing = (
        f"there {'is' if len(known) == 1 else 'are'}: {', '.join(known)}" if known else "there is none yet"
    )
    hint = did_you_mean(name, known, 0.5) or f"; {existing}"
    raise InputError(
        f"no baseline is called {name[:80]!r}, and no file{hint}; netdoctor baseline save NAME makes one"
    )


def resolve(argument: Path) -> Path:
    """Where the runs of --baseline are: a report, or the folder of a named baseline. Raises InputError.

    A file wins: a name is what is no path and no file.
    """
    text = str(argument)
    if argument.exists() or "/" in text or "." in text:
        return argument
    return FOLDER / find(text).name


def runs(path: Path) -> list[Report]:
    """The reports of a baseline, or the one of a file, the newest first. Raises InputError."""
    files = _files(path) if path.is_dir() else (path,)
    if not files:
        raise InputError(f"{path}: holds no report")
    return [load(file) for file in files]


def save(name: str, report: Report) -> int:
    """Add a run to a baseline, which is made where there is none: how many it has then.

    The oldest goes where there would be more than RUNS_MAX. Raises InputError, OSError.
    """
    folder = FOLDER / checked(name)
    file = history.name_of(report)
    if file is None:
        raise InputError(
            "the report does not say when its scan ended; only scans of netdoctor make a baseline"
        )
    keep(report, folder, file)
    files = _files(folder)
    for old in files[RUNS_MAX:]:
        old.unlink()
    return min(len(files), RUNS_MAX)


def remove(name: str) -> int:
    """Remove a baseline: how many runs it had. Raises InputError, OSError."""
    found = find(name)
    shutil.rmtree(FOLDER / found.name)
    return len(found.files)


def marked(report: Report, name: str, known: Sequence[Report]) -> Report:
    """The report, its causes marked as new or known to these runs, and with what is healed since the newest.

    Verdict and exit code stay what they are: what is known stops a job as well.
    """
    before = frozenset().union(*(run.fingerprints for run in known))

    def mark(cause: Cause) -> Cause:
        return replace(cause, baseline="known" if cause.fingerprint in before else "new")

    healed = [c for c in known[0].causes if c.fingerprint not in report.fingerprints and is_healed(c, report)]
    against = Against(
        name=name,
        runs=len(known),
        finished=known[0].run.finished,
        healed=tuple(Healed(key=c.key, status=c.status, title=c.title, checks=c.checks) for c in healed),
    )
    return replace(report, causes=tuple(map(mark, report.causes)), baseline=against)
