#!/usr/bin/env python3
"""Small changes of the product that the quick tests should notice: how many they do, and which they do not.

    python scripts/mutants.py COUNT [SEED]

A comparison is flipped, `and` and `or` exchanged, or a `not` dropped, one at a time, at places drawn by seed,
in a copy of the checkout. Then the quick tests that cover the file run until the first failure. Exit 1: some
survived.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("rules", "localise", "engine", "report", "lint", "explain")
WHERE = ("checks", *(f"netdoctor/{room}" for room in ROOMS))
# Tests of a room beside those that are called like it.
BESIDE = {
    "checks": ["tests/checks", "tests/fuzz/test_metamorphic.py"],
    "engine": ["tests/engine", "tests/scanning", "tests/report", "tests/checks/test_together.py"],
    "report": ["tests/report", "tests/scanning", "tests/core", "tests/engine"],
    "localise": ["tests/localiser", "tests/checks/bw", "tests/checks/net"],
    "rules": ["tests/rules", "tests/checks", "tests/launch", "tests/lint", "tests/core"],
}
FLIPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
LIMIT_S = 300.0


@dataclass(frozen=True)
class Mutant:
    path: Path
    line: int
    start: int  # of the text to replace, in characters from the file's begin
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Every small change of one file."""
    source = (ROOT / path).read_text("utf-8")
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))

    def at(line: int, column: int) -> int:
        before = source[offsets[line - 1] : offsets[line]].encode()[:column]
        return offsets[line - 1] + len(before.decode())

    def between(left: ast.expr, right: ast.expr, new: str) -> Mutant:
        """The operator between two operands, with what closes and opens around it."""
        start = at(left.end_lineno or 0, left.end_col_offset or 0)
        end = at(right.lineno, right.col_offset)
        old = source[start:end]
        word = next(w for w in WORDS if w in old)
        return Mutant(path, left.end_lineno or 0, start, end, old.replace(word, f" {new} ", 1))

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for left, op, right in zip(
                [node.left, *node.comparators], node.ops, node.comparators, strict=False
            ):
                yield between(left, right, FLIPPED[type(op)])
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield between(left, right, "or" if isinstance(node.op, ast.And) else "and")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start = at(node.lineno, node.col_offset)
            yield Mutant(path, node.lineno, start, at(node.operand.lineno, node.operand.col_offset), "")


WORDS = (" is not ", " not in ", " in ", " is ", "<=", ">=", "==", "!=", "<", ">", "and ", "or ")


def tests_of(path: Path) -> list[str]:
    """Quick tests that cover a file, the nearest first."""
    room = path.parts[0] if path.parts[0] == "checks" else path.parts[1]
    near = [str(one.relative_to(ROOT)) for one in (ROOT / "tests").rglob(f"test_{path.stem.strip('_')}.py")]
    folder = f"tests/checks/{path.parts[1]}" if room == "checks" else f"tests/{room}"
    known = [*near, folder, *BESIDE.get(room, [])]
    return [one for one in dict.fromkeys(known) if (ROOT / one).exists()]


def killed(copy: Path, mutant: Mutant) -> bool:
    """Whether a test fails. One that never ends fails, too."""
    file = copy / mutant.path
    source = file.read_text("utf-8")
    file.write_text(source[: mutant.start] + mutant.text + source[mutant.end :], "utf-8")
    try:
        for tests in tests_of(mutant.path):
            argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
            done = subprocess.run(  # noqa: S603 - our own tests
                argv, cwd=copy, capture_output=True, timeout=LIMIT_S, check=False, env=environment(copy)
            )
            if done.returncode not in (0, 5):  # 5: no quick test there
                return True
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(source, "utf-8")


def environment(copy: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def main(argv: list[str]) -> int:
    try:
        count, seed = int(argv[0]), int(argv[1]) if len(argv) > 1 else random.SystemRandom().randrange(2**32)
    except (IndexError, ValueError):
        sys.stderr.write("usage: scripts/mutants.py COUNT [SEED]\n")
        return 2
    files = sorted(path.relative_to(ROOT) for where in WHERE for path in (ROOT / where).rglob("*.py"))
    every = [one for path in files for one in mutants(path)]
    some = random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311 - to be drawn again
    print(f"seed {seed}: {len(some)} of {len(every)} changes", flush=True)
    left = []
    with tempfile.TemporaryDirectory(prefix="netdoctor-mutants-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache"))
        for number, mutant in enumerate(some, 1):
            if not killed(copy, mutant):
                left.append(mutant)
                line = (ROOT / mutant.path).read_text("utf-8").splitlines()[mutant.line - 1].strip()
                print(f"survived {mutant}\n    {line}", flush=True)
            print(f"{number} tried, {len(left)} survived", flush=True)
    print(f"{len(some) - len(left)} of {len(some)} noticed; again: scripts/mutants.py {count} {seed}")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
