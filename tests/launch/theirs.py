"""Functions of other programs, taken out of their installed packages without importing those."""

import ast
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest


def package(variable: str, name: str) -> Path:
    """Where a package is installed; skips where the variable names no folder that has it."""
    place = os.environ.get(variable, "")
    found = Path(place, name)
    if not place or not found.is_dir():
        pytest.skip(f"{variable} names no folder with {name} (pip install --no-deps --target)")
    return found


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def run(nodes: Collection[ast.stmt], names: dict[str, Any]) -> dict[str, Any]:
    """Execute statements of a module with these names, and return all names."""
    module = ast.Module(body=list(nodes), type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), "theirs", "exec"), names)
    return names


def named(module: ast.AST, *wanted: str) -> list[ast.stmt]:
    """Functions, classes and assignments of a module with these names, in their order."""
    found: list[ast.stmt] = []
    for node in ast.iter_child_nodes(module):
        name = getattr(node, "name", None)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        if name in wanted and isinstance(node, ast.stmt):
            found.append(node)
    assert len(found) == len(wanted), [getattr(node, "name", node) for node in found]
    return found


def loops_over(module: ast.AST, name: str) -> list[ast.For]:
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Name) and node.iter.id == name
    ]
