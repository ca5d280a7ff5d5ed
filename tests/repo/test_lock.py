"""requirements.lock, which the image and the one file install from, is what pyproject.toml allows."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from netdoctor.compat import tomllib

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def applies(requirement: Requirement, python: str) -> bool:
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def locked(python: str) -> dict[str, str]:
    """Version by name, as pip reads the lock under this Python."""
    entries = re.findall(r"^([a-z].*?) \\$", LOCK, re.MULTILINE)
    pins = [pin for entry in entries if applies(pin := Requirement(entry), python)]
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(versions) == len(pins)
    return versions


@pytest.mark.parametrize("python", PYTHONS)
def test_has_one_allowed_version_of_every_dependency(python: str) -> None:
    versions = locked(python)
    for text in DEPENDENCIES:
        requirement = Requirement(text)
        if applies(requirement, python):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), text


def test_holds_what_dependencies_need_in_turn() -> None:
    versions = locked(PYTHONS[1])
    missing = {}
    for name in versions:
        for text in importlib.metadata.requires(name) or ():
            requirement = Requirement(text)
            if applies(requirement, PYTHONS[1]) and canonicalize_name(requirement.name) not in versions:
                missing[name] = text
    assert missing == {}


def test_every_entry_has_a_hash_and_none_names_an_index() -> None:
    entries = re.split(r"^(?=[a-z])", LOCK, flags=re.MULTILINE)[1:]
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\n", entry)] == []
    assert not re.search(r"://|index-url|find-links", LOCK)
