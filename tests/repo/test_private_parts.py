"""docs/decisions/private-parts.md lists each private part of libraries that netdoctor touches, no other."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "decisions" / "private-parts.md"
# Documented by Python in spite of their names.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_fields_", "_getframe", "_replace"}
# These run on nodes, or under Ray, with what is there.
ELSEWHERE = ("agent/", "transport/ray/ray_driver.py", "transport/ray/rayhelper.py", "__main__.py")


def sources() -> Iterator[tuple[str, Path]]:
    """(module, file) of the product."""
    for top in ("netdoctor", "checks", "tui"):
        for path in (ROOT / top).rglob("*.py"):
            inner = path.relative_to(ROOT / top).with_suffix("").parts
            if top != "netdoctor" or inner[0] not in ("checks", "tui"):
                yield ".".join(["netdoctor", *([] if top == "netdoctor" else [top]), *inner]), path


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def reached_into() -> set[str]:
    """Private attributes that are used and that the product defines nowhere: they are somebody else's."""
    used, defined = set(), set(DOCUMENTED)
    for _, path in sources():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    defined.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.alias(asname=str(name)):
                    defined.add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    defined.add(name)
                case ast.Attribute(attr=name) if is_private(name):
                    used.add(name)
    return used - defined


def inherited() -> set[str]:
    """Private methods and attributes of a library's class that a class of ours replaces or uses."""
    found = set()
    for module, path in sources():
        if path.relative_to(ROOT).as_posix().removeprefix("netdoctor/").startswith(ELSEWHERE):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = private_names(node) if isinstance(node, ast.ClassDef) and node.bases else set()
            one = getattr(import_module(module), node.name, None) if names else None
            if inspect.isclass(one):
                theirs = [base for base in one.__mro__[1:] if not base.__module__.startswith("netdoctor")]
                found |= {name for name in names if any(name in vars(base) for base in theirs)}
    return found


def private_names(of: ast.ClassDef) -> set[str]:
    """The private names that a class defines in its body, or has of itself."""
    found = set()
    for node in ast.walk(of):
        match node:
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                found.add(name)
    return set(filter(is_private, found))


@pytest.mark.thorough
def test_the_page_lists_what_is_touched_and_nothing_else() -> None:
    rows = [line.split("|")[2] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    listed = {name for row in rows for name in re.findall(r"\b_[A-Za-z]\w*", row)}
    assert listed == reached_into() | inherited()
