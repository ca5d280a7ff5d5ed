#!/usr/bin/env python3
"""Small changes of the product that the quick tests should notice: how many they do, and which they do not.

    python scripts/mutants.py COUNT [SEED]

A comparison is flipped, `and` and `or` exchanged, or a `not` dropped, one at a time, in a copy of the
checkout. A seed draws the same places as long as the lines there stay. Then the quick tests that run the
line, by a coverage report made first, run until the first failure; of what runs when a module is imported,
the quick tests of its folder. Exit 1: some survived.
"""

import ast
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("rules", "localise", "engine", "report", "lint", "explain")
WHERE = ("checks", *(f"netdoctor/{room}" for room in ROOMS))
FLIPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
LIMIT_S = 120.0
WORKERS = 2
FAIL_MOST = 5


@dataclass(frozen=True)
class Mutant:
    path: Path
    line: int
    statement: range  # its lines, of an `if` or a loop those of its head
    start: int  # of the text to replace, in characters from the file's begin
    end: int
    text: str

    def __str__(self) -> str:
        was, now = self._lines
        return f"{self.path}:{self.line}\n  - {was}\n  + {now}"

    def rank(self, seed: int) -> bytes:
        """Its place in the order of a seed, which other changes, before it or elsewhere, leave as it is."""
        return hashlib.sha256("\n".join((str(seed), str(self.path), *self._lines)).encode()).digest()

    @cached_property
    def _lines(self) -> tuple[str, str]:
        """The line, as it is and as it would be."""
        source = (ROOT / self.path).read_text("utf-8")
        before, after = source[: self.start], source[self.end :]
        start, end = before.rfind("\n") + 1, after.find("\n")
        was = source[start : self.end + end].strip()
        return was, (before[start:] + self.text + after[:end]).strip()


def mutants(path: Path) -> Iterator[Mutant]:
    """Every small change of one file."""
    source = (ROOT / path).read_text("utf-8")
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))

    def at(line: int, column: int) -> int:
        before = source[offsets[line - 1] : offsets[line]].encode()[:column]
        return offsets[line - 1] + len(before.decode())

    def between(left: ast.expr, right: ast.expr, new: str, lines: range) -> Mutant:
        """The operator between two operands, with what closes and opens around it."""
        start = at(left.end_lineno or 0, left.end_col_offset or 0)
        end = at(right.lineno, right.col_offset)
        old = source[start:end]
        word = next(w for w in WORDS if w in old)
        return Mutant(path, left.end_lineno or 0, lines, start, end, old.replace(word, f" {new} ", 1))

    for node, lines in _with_lines(ast.parse(source), range(0)):
        if isinstance(node, ast.Compare):
            for left, op, right in zip(
                [node.left, *node.comparators], node.ops, node.comparators, strict=False
            ):
                yield between(left, right, FLIPPED[type(op)], lines)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield between(left, right, "or" if isinstance(node.op, ast.And) else "and", lines)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start = at(node.lineno, node.col_offset)
            yield Mutant(
                path, node.lineno, lines, start, at(node.operand.lineno, node.operand.col_offset), ""
            )


def _with_lines(node: ast.AST, lines: range) -> Iterator[tuple[ast.AST, range]]:
    """Every node below one, with the lines of the statement that it is part of."""
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        lines = range(
            node.lineno, max(body[0].lineno, node.lineno + 1) if body else (node.end_lineno or 0) + 1
        )
    yield node, lines
    for child in ast.iter_child_nodes(node):
        yield from _with_lines(child, lines)


WORDS = (" is not ", " not in ", " in ", " is ", "<=", ">=", "==", "!=", "<", ">", "and ", "or ")


class Tests:
    """Which quick tests run which line: made once, by running them all."""

    def __init__(self, copy: Path) -> None:
        (copy / "mutants.coveragerc").write_text("[run]\nrelative_files = true\n")
        argv = ["-q", "-n", str(WORKERS), "--cov-config=mutants.coveragerc", "--cov-context=test"]
        argv += ["--ignore=tests/fuzz/test_worlds.py"]  # makes mounts of its own
        done = pytest(copy, *argv, "--cov=checks", "--cov=netdoctor", "--cov-report=")
        out = (done.stdout + done.stderr).decode("utf-8", "replace")
        fail = {_test(one) for one in re.findall(r"^FAILED (\S+)", out, re.MULTILINE)}
        if done.returncode and not 0 < len(fail) <= FAIL_MOST:
            sys.exit(out)
        self._data = CoverageData(str(copy / ".coverage"))
        self._data.read()
        # What fails without a change, as under the load of a busy machine, says nothing about one.
        self._all = {_test(one) for one in self._data.measured_contexts()} - {""} - fail

    def of(self, mutant: Mutant) -> list[list[str]]:
        """Ids of tests, without parameters and the nearest first: those that run the line, then the others of
        their files, which may get what a fixture or a cache made of it. Both empty: no test runs it.
        """
        lines = self._data.contexts_by_lineno(str(mutant.path))
        contexts = {one for line in mutant.statement for one in lines.get(line, ())}
        room = "/".join(mutant.path.parts[:-1]).removeprefix("netdoctor/")
        near = (f"/test_{mutant.path.stem.strip('_')}.py", f"tests/{room}/")
        running = {_test(one) for one in contexts - {""}} & self._all
        files = {one.partition("::")[0] for one in running}
        others = {one for one in self._all if one.partition("::")[0] in files} - running
        if "" in contexts:  # when the module was imported
            others |= {one for one in self._all if one.startswith(near[1])} - running
        return [
            sorted(ids, key=lambda one: (*(word not in one for word in near), one))
            for ids in (running, others)
        ]


def _test(context: str) -> str:
    """tests/a/test_b.py::test_c of its context for coverage, tests/a/test_b.py::test_c[d]|run."""
    return re.split(r"[\[|]", context, maxsplit=1)[0]


def killed(copy: Path, mutant: Mutant, tests: list[list[str]]) -> bool:
    """Whether a test fails. One that never ends fails, too."""
    file = copy / mutant.path
    source = file.read_text("utf-8")
    file.write_text(source[: mutant.start] + mutant.text + source[mutant.end :], "utf-8")
    try:
        for ids in filter(None, tests):
            if pytest(copy, "-qx", "--hypothesis-profile=quick", *ids, limit_s=LIMIT_S).returncode:
                return True
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(source, "utf-8")


def pytest(copy: Path, *args: str, limit_s: float | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run tests of a copy. As root, who can do anything, they may write to the copy and their /tmp alone.

    What a changed line does, nobody has looked at: one put a file in the place of /dev/null.
    """
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    where = copy
    if not os.geteuid():
        where = Path("/tmp/copy")  # noqa: S108 - the folder of the copy alone is seen there
        closed = 'mount --bind "$0" /tmp && mount -o remount,bind,ro / && mount -o remount,bind,ro /dev'
        shell = f'{closed} && cd {where} && exec "$@"'
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv = [*alone, "sh", "-c", shell, str(copy.parent), *argv]
    env = {**os.environ, "PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(  # noqa: S603 - our own tests
        argv, cwd=copy, capture_output=True, timeout=limit_s, check=False, env=env
    )


def main(argv: list[str]) -> int:
    try:
        count, seed = int(argv[0]), int(argv[1]) if len(argv) > 1 else random.SystemRandom().randrange(2**32)
    except (IndexError, ValueError):
        sys.stderr.write("usage: scripts/mutants.py COUNT [SEED]\n")
        return 2
    files = sorted(path.relative_to(ROOT) for where in WHERE for path in (ROOT / where).rglob("*.py"))
    every = [one for path in files for one in mutants(path)]
    some = sorted(every, key=lambda one: one.rank(seed))[:count]
    print(f"seed {seed}: {len(some)} of {len(every)} changes", flush=True)
    left = []
    with tempfile.TemporaryDirectory(prefix="netdoctor-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copy = Path(folder) / str(number) / "copy"
            left_out = shutil.ignore_patterns(".git", ".venv", ".*_cache")
            shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
            copies.put(copy)
        tests = Tests(copy)

        def tried(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return killed(copy, mutant, tests.of(mutant))
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(WORKERS) as workers:
            for number, (mutant, noticed) in enumerate(zip(some, workers.map(tried, some), strict=True), 1):
                if not noticed:
                    left.append(mutant)
                    print(f"survived {mutant}", flush=True)
                print(f"{number} tried, {len(left)} survived", flush=True)
    print(f"{len(some) - len(left)} of {len(some)} noticed; again: scripts/mutants.py {count} {seed}")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
