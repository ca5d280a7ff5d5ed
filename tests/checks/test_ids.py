"""Ids that checks and causes name: one that means no check explains, verifies and holds up nothing."""

import dataclasses
import fnmatch
import importlib
import pkgutil
from collections.abc import Iterator, Mapping

import pytest

import netdoctor.checks
from netdoctor.engine.assemble.scope import BETWEEN_NODES, TESTED
from netdoctor.engine.registry import load_builtin
from netdoctor.model import Cause

KNOWN = load_builtin()
MODULES = [
    module.name
    for module in pkgutil.walk_packages(netdoctor.checks.__path__, "netdoctor.checks.")
    if not module.ispkg
]


def strangers(patterns: object) -> list[str]:
    assert isinstance(patterns, tuple)
    return [pattern for pattern in patterns if not fnmatch.filter(KNOWN, pattern)]


def causes(value: object) -> Iterator[Cause]:
    """Causes in a module's attribute: a constant, a table of them, or what a constant holds."""
    if isinstance(value, Cause):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from causes(one)
    elif isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from causes(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from causes(getattr(value, field.name))


@pytest.mark.parametrize("check_id", sorted(KNOWN))
def test_what_a_check_names_is_there(check_id: str) -> None:
    check = KNOWN[check_id]
    assert strangers(check.after) == []
    assert strangers(check.explains) == []


@pytest.mark.parametrize("check_id", sorted(KNOWN))
def test_a_checks_id_says_which_file_it_is_in(check_id: str) -> None:
    family, _, property_ = check_id.partition(".")
    _, _, folder, file = KNOWN[check_id].origin.split(".")
    # import.py could not be imported by its name
    assert (folder, file.rstrip("_")) == (family, property_.replace("-", "_"))


@pytest.mark.parametrize("module", MODULES)
def test_what_a_cause_names_is_there(module: str) -> None:
    attributes = vars(importlib.import_module(module))
    for name, value in attributes.items():
        for cause in causes(value):
            assert strangers(cause.verify) == [], name
            assert strangers(cause.follows) == [], name


def test_causes_are_found_at_all() -> None:
    found = [
        cause
        for module in MODULES
        for value in vars(importlib.import_module(module)).values()
        for cause in causes(value)
    ]
    assert len(found) > 50


def test_what_a_profile_leaves_out_is_named_by_checks_that_exist() -> None:
    """A check that is called otherwise would stand in the verdict under its id, and count with one node."""
    assert {check for checks in TESTED.values() for check in checks} <= KNOWN.keys()
    assert set(BETWEEN_NODES) <= TESTED.keys()
