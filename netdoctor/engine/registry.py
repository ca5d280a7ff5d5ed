"""Where checks come from, and which of them run in which order."""

import contextlib
import fnmatch
import graphlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import netdoctor.engine.experiments  # noqa: F401  registers ours before those of plug-ins
from netdoctor.check import LOGINS, REGISTERED, Check, Profile
from netdoctor.errors import InputError
from netdoctor.facts.base import FACT_TYPES, FactInfo
from netdoctor.facts.host import FILED, MEET
from netdoctor.files import require_own
from netdoctor.measure.declare import EXPERIMENTS
from netdoctor.measure.declare import ordered as ordered_experiments
from netdoctor.text import clean, did_you_mean

ENTRY_POINTS = "netdoctor.checks"
# What modules of --checks-dir are called.
OF_FOLDERS = "netdoctor_checks_dir_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A package or file that brought checks."""

    name: str
    version: str = ""
    checks: tuple[str, ...] = ()
    error: str | None = None  # why it brought none; it costs only its own checks


@dataclass(slots=True)
class Registry:
    """All known checks by id, and the plug-ins that were looked at."""

    checks: dict[str, Check] = field(default_factory=dict)
    plugins: list[Plugin] = field(default_factory=list)


def load_builtin() -> dict[str, Check]:
    """Import every `checks/<family>/<property>.py` and return what they registered, by id."""
    package = importlib.import_module("netdoctor.checks")
    for family in pkgutil.iter_modules(package.__path__, "netdoctor.checks."):
        for module in pkgutil.iter_modules(importlib.import_module(family.name).__path__, f"{family.name}."):
            if not module.name.rpartition(".")[2].startswith("_"):
                importlib.import_module(module.name)
    return {
        name: spec for name, spec in sorted(REGISTERED.items()) if spec.origin.startswith("netdoctor.checks.")
    }


def load(*, plugins: bool = True, folders: Sequence[Path] = ()) -> Registry:
    """Built-in checks, those of installed plug-ins, and the loose files of each folder.

    Raises InputError when a folder cannot be read. A plug-in that fails to import is recorded, not raised.
    """
    registry = Registry(checks=load_builtin())
    if plugins:
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            version = entry.dist.version if entry.dist else ""
            registry.plugins.append(_adopt(registry, entry.name, version, entry.load))
    for folder in folders:
        for path in _files_of(folder):
            if not path.name.startswith("_"):
                registry.plugins.append(_adopt(registry, str(path), "", partial(_load_file, path)))
    _drop_circles(registry)
    registry.checks = dict(sorted(registry.checks.items()))
    return registry


def _files_of(folder: Path) -> list[Path]:
    """The Python files of a folder. Raises InputError where somebody else may have written one."""
    if not folder.is_dir():
        raise InputError(f"--checks-dir {folder}: no such folder")
    files = sorted(folder.glob("*.py"))
    for path in (folder, *folder.glob("__pycache__"), *files):
        try:
            require_own(path)
        except OSError as error:
            raise InputError(f"--checks-dir {path}: {error.strerror}") from None
    return files


def _load_file(path: Path) -> object:
    # The folder is in the name: files of two folders may be called the same, and do not replace each other.
    folder = hashlib.sha256(str(path.resolve().parent).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{OF_FOLDERS}{folder}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# What each entry point brought when its modules were first imported in this process: they are imported once.
_BROUGHT: dict[str, tuple[str, ...]] = {}


def _adopt(registry: Registry, name: str, version: str, import_it: Callable[[], object]) -> Plugin:
    """Import a plug-in and take in its checks; one that fails, or takes what is another's, brings none."""
    checks, facts, experiments = dict(REGISTERED), dict(FACT_TYPES), dict(EXPERIMENTS)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the report
            import_it()
        new = [i for i, spec in REGISTERED.items() if checks.get(i) is not spec] or _BROUGHT.get(name, ())
        _take_facts({cls: info for cls, info in FACT_TYPES.items() if cls not in facts}, facts)
        collectors({parameter.info.group for i in new for parameter in REGISTERED[i].needs})
        ordered_experiments(EXPERIMENTS.values())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        REGISTERED.clear()
        REGISTERED.update(checks)
        EXPERIMENTS.clear()
        EXPERIMENTS.update(experiments)
        for cls in [c for c in FACT_TYPES if c not in facts and not c.__module__.startswith("netdoctor.")]:
            del FACT_TYPES[cls]
        return Plugin(name=name, version=version, error=f"{type(error).__name__}: {error}")
    _BROUGHT[name] = tuple(sorted(new))
    registry.checks.update({check_id: REGISTERED[check_id] for check_id in new})
    return Plugin(name=name, version=version, checks=_BROUGHT[name])


def _take_facts(fresh: Mapping[type, FactInfo], before: Mapping[type, FactInfo]) -> None:
    """Raise TypeError for a new fact type that takes another's group, or that nothing measures."""
    _drop_replaced(fresh)
    groups = {info.group: cls.__module__ for cls, info in before.items() if cls in FACT_TYPES}
    measured = {group for one in EXPERIMENTS.values() for group in one.groups}
    for cls, info in fresh.items():
        what = f"fact group {info.group!r} of {cls.__module__}"
        if info.group in groups:
            raise TypeError(f"{what} is that of {groups[info.group]} already")
        if info.origin == "measure" and info.group not in measured:
            raise TypeError(f"{what} is measured, and no experiment makes it")


def _drop_replaced(fresh: Iterable[type]) -> None:
    """Forget fact types of an earlier run of the same file."""
    names = {(cls.__module__, cls.__qualname__) for cls in fresh}
    for cls in [c for c in FACT_TYPES if c not in set(fresh) and (c.__module__, c.__qualname__) in names]:
        del FACT_TYPES[cls]


def _drop_circles(registry: Registry) -> None:
    """Leave out plug-ins' checks that wait for each other in a circle; without them the rest has an order."""
    while True:
        try:
            ordered(registry.checks.values())
        except CircleError as error:
            foreign = {i for i in error.ids if not registry.checks[i].origin.startswith("netdoctor.checks.")}
            if not foreign:
                raise
            for check_id in foreign:
                del registry.checks[check_id]
            registry.plugins = [
                replace(
                    plugin,
                    checks=tuple(i for i in plugin.checks if i not in foreign),
                    error=f"checks wait for each other: {' -> '.join(error.ids)}",
                )
                if foreign & set(plugin.checks)
                else plugin
                for plugin in registry.plugins
            ]
        else:
            return


class CircleError(InputError):
    """Checks wait for each other. ids: the circle, first and last the same."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        super().__init__(f"checks wait for each other: {' -> '.join(ids)}")


def need_families(checks: Mapping[str, Check], families: Iterable[str]) -> None:
    """Raise InputError where one of `families` is of no check."""
    known = {check.family for check in checks.values()}
    for family in families:
        if family not in known:
            hint = did_you_mean(family, known) or f"; take of: {', '.join(sorted(known))}"
            raise InputError(f"--require {clean(family, 40)}: no checks are called so{hint}")


def select(
    checks: Mapping[str, Check],
    profile: Profile,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    via: str = "ssh",
    also: Sequence[str] = (),
) -> list[Check]:
    """The checks to run, prerequisites first. via: what reaches the nodes.

    `only`, `skip` and `also` (what runs beside the profile) are globs on ids; a check that has to be asked
    for is named in full, or by `also`. `ssh.login`, or what stands for it, always runs, because everything
    stands on it. With `only`, a check of a larger profile runs too: naming it asks for it.
    Raises InputError for a glob that matches nothing, or when nothing is left.
    """
    for pattern in [*only, *skip, *also]:
        if not fnmatch.filter(checks, pattern):
            family = [f"{pattern}.*"] if fnmatch.filter(checks, f"{pattern}.*") else []
            hint = did_you_mean(pattern, family or checks, 0.5) or "; see: netdoctor checks list"
            raise InputError(f"no check is called {pattern!r}{hint}")
    chosen = []
    for check in ordered(checks.values()):
        selected = matches(check.id, only) if only else profile.includes(check.profile)
        if check.profile is Profile.ON_REQUEST:
            selected = check.id in only
        selected = selected or matches(check.id, also)
        if check.via not in (None, via):
            continue
        if check.id in LOGINS or (selected and not matches(check.id, skip)):
            chosen.append(check)
    if (only or skip) and not any(check.id not in LOGINS or matches(check.id, only) for check in chosen):
        raise InputError(f"nothing is left to run: {_why_nothing(checks, profile, only, skip, via)}")
    return chosen


# What is typed so that nodes are reached by a way, where that is not --via.
WAYS = {FILED: "--facts", MEET: "--meet"}


def _why_nothing(
    checks: Mapping[str, Check], profile: Profile, only: Sequence[str], skip: Sequence[str], via: str
) -> str:
    """What keeps the checks that `only` or the profile asks for from running, as of `select`."""
    requested = [check for check in checks.values() if matches(check.id, only or ["*"])]
    here = [check for check in requested if check.via in (None, via)]
    if not here:
        needs = sorted({WAYS.get(check.via, f"--via {check.via}") for check in requested if check.via})
        return f"{_ids(requested)}: only with {' or '.join(needs)}"
    by_name = [check for check in here if check.profile is Profile.ON_REQUEST and check.id not in only]
    if only and len(by_name) == len(here):
        return f"{_ids(here)}: only where named in full, without *"
    if not skip:
        return f"{_ids(here)} is part of every scan, and checks nothing by itself"
    return f"--skip removes everything that {'--only asks for' if only else f'profile {profile.value} has'}"


def _ids(checks: Sequence[Check]) -> str:
    ids = sorted(check.id for check in checks)
    return ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")


def ordered(checks: Iterable[Check]) -> list[Check]:
    """Checks with prerequisites before what stands on them; ids break ties.

    Raises CircleError when checks wait for each other.
    """
    by_id = {check.id: check for check in checks}
    graph = {name: sorted(a for a in by_id[name].after if a in by_id) for name in sorted(by_id)}
    try:
        return [by_id[check_id] for check_id in graphlib.TopologicalSorter(graph).static_order()]
    except graphlib.CycleError as error:
        raise CircleError(error.args[1]) from None


def matches(check_id: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(check_id, pattern) for pattern in patterns)


def collectors(groups: Collection[str]) -> dict[str, str]:
    """Source text of the agent-side collectors that plug-in facts of these groups bring."""
    texts: dict[str, str] = {}
    for cls, info in FACT_TYPES.items():
        if info.group in groups and info.collector is not None:
            path = Path(str(sys.modules[cls.__module__].__file__)).parent / info.collector
            if cls.__module__.startswith(OF_FOLDERS):
                require_own(path)
            texts[info.group] = path.read_text("utf-8")
    return texts
