"""What lint believes a script starts, held against what bash really starts: argv, environment and starters.

Random scripts with launchers in nested shells, here-documents, variables, arrays, functions and files of
their own run under bash, with recording programs called srun, mpirun, ssh and torchrun in PATH.
"""

import os
import random
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdoctor.lint.engine import lint
from netdoctor.lint.files import Shell, read
from netdoctor.lint.launches import Launch
from netdoctor.lint.model import Kind
from netdoctor.lint.nested import STARTERS

SCRIPTS = int(os.environ.get("NETDOCTOR_TEST_LINT_SCRIPTS", "100"))
NAMES = ("A", "B", "C", "E")
# Their own variables, and those that bash makes by itself, do not count as the script's.
RECORD = r"""#!/bin/sh
{ printf '%s\037' "$@"; printf '\036'; for n in A B C E CHAIN; do eval "v=\${$n-}; s=\${$n+=}"
printf '%s\037' "$n$s$v"; done; printf '\035'; } >>"$RECORD"
"""
# `srun -N 2 --label command …`: options away, the rest with the environment as it is.
START = r"""#!/bin/sh
while :; do case "$1" in -N|-np|-n) shift 2;; -*) shift;; *) break;; esac; done
CHAIN="$CHAIN $(basename "$0")"; export CHAIN; exec "$@"
"""
AWAY = r"""#!/bin/sh
shift; CHAIN="$CHAIN ssh"; [ $# = 0 ] && set -- "bash -s"
exec env -i PATH="$PATH" RECORD="$RECORD" CHAIN="$CHAIN" bash -c "$*"
"""


class Generator:
    """One random script with the files that it starts."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.count = 0

    def launch(self) -> str:
        self.count += 1
        words = " ".join(self.word() for _ in range(self.rng.randint(1, 3)))
        return f"torchrun --id{self.count} {words} train.py"

    def word(self) -> str:
        name = self.rng.choice(NAMES)
        return self.rng.choice(
            [
                f'--a "${name}"',
                f"--b=${{{name}}}",
                "--c 'x y'",
                f"--d '${name}'",
                f'"${{{name}:-e f}}"',
                "--n 2",
            ]
        )

    def assign(self) -> str:
        name, value = self.rng.choice(NAMES), self.rng.choice(["1", "node0", "'a b'", '"$A-x"', "$((2 * 4))"])
        return f"{self.rng.choice(['', 'export '])}{name}={value}"

    def starter(self) -> str:
        return self.rng.choice(["", "", "srun -N 2 ", "mpirun -np 2 ", "srun --label "])

    def lines(self, depth: int) -> list[str]:
        kinds: list[Callable[[int], list[str]]] = [
            self.plain, self.nested, self.document, self.file, self.array, self.branch, self.function,
            self.evaluated, self.away, self.written, self.sourced, self.prefixed,
        ]  # fmt: skip
        made: list[str] = []
        for _ in range(self.rng.randint(2, 4)):
            made.append(self.assign())
            made += self.rng.choice(kinds if depth < 2 else kinds[:1])(depth + 1)
        return made

    def plain(self, depth: int) -> list[str]:
        return [self.starter() + self.launch()]

    def prefixed(self, depth: int) -> list[str]:
        return [f"{self.rng.choice(NAMES)}=p {self.starter()}{self.launch()}"]

    def nested(self, depth: int) -> list[str]:
        inner = "; ".join([self.assign(), self.launch()])
        if self.rng.random() < 0.5:
            return [f"{self.starter()}bash -c {shlex.quote(inner)}"]
        quoted = inner.replace("\\", "\\\\").replace('"', '\\"')
        return [f'{self.starter()}bash -c "{quoted}"']

    def document(self, depth: int) -> list[str]:
        end = self.rng.choice(["EOF", "'EOF'"])
        return [f"{self.starter()}bash <<{end}", *self.lines(3), "EOF"]

    def away(self, depth: int) -> list[str]:
        if self.rng.random() < 0.5:
            return [f"ssh host <<'EOF'\n{self.assign()}\n{self.launch()}\nEOF"]
        return [f"ssh host {shlex.quote(self.launch())}"]

    def file(self, depth: int) -> list[str]:
        self.count += 1
        name = f"part{self.count}.sh"
        (self.folder / name).write_text("\n".join(["#!/bin/bash", *self.lines(depth)]) + "\n")
        (self.folder / name).chmod(0o755)
        return [f"{self.starter()}{self.rng.choice(['bash ', './', 'bash ./'])}{name}"]

    def written(self, depth: int) -> list[str]:
        self.count += 1
        name = f"made{self.count}.sh"
        return [f"cat > {name} <<'EOF'", *self.lines(3), "EOF", f"{self.starter()}bash {name}"]

    def sourced(self, depth: int) -> list[str]:
        self.count += 1
        name = f"env{self.count}.sh"
        (self.folder / name).write_text(f"{self.assign()}\n{self.assign()}\n")
        return [f"{self.rng.choice(['source', '.'])} ./{name}", *self.plain(depth)]

    def array(self, depth: int) -> list[str]:
        self.count += 1
        words = f"ARGS=(--id{self.count} {self.word()})"
        return [words, f'LAUNCH="{self.starter()}torchrun"', '$LAUNCH "${ARGS[@]}" train.py']

    def branch(self, depth: int) -> list[str]:
        return [
            f"if {self.rng.choice(['true', 'false'])}; then",
            *self.lines(depth),
            "else",
            self.launch(),
            "fi",
        ]

    def function(self, depth: int) -> list[str]:
        self.count += 1
        return [f"f{self.count}() {{", *self.lines(3), "}", f"f{self.count}"]

    def evaluated(self, depth: int) -> list[str]:
        return [
            f"CMD={shlex.quote(self.launch())}",
            "eval $CMD" if self.rng.random() < 0.5 else 'eval "$CMD"',
        ]


def really_started(script: Path, folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """(argv, environment) of each torchrun that bash started."""
    record = folder / "record"
    record.write_text("")
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "RECORD": str(record)}
    subprocess.run(
        ["bash", "--norc", script.name], cwd=script.parent, env=environment, capture_output=True, check=False,
        timeout=60,
    )  # fmt: skip
    for one in record.read_text().split("\035")[:-1]:
        argv, variables = one.split("\036")
        pairs = (text.partition("=") for text in variables.split("\037")[:-1])
        yield argv.split("\037")[:-1], {name: value for name, equals, value in pairs if equals}


def words_of(launch: Launch) -> list[str] | None:
    """The argv that lint believes in, None where a part of it is unknown."""
    words = launch.command.words
    start = next(index for index, word in enumerate(words) if word is launch.word)
    behind = words[start + 1 :]
    return None if any(w.many or w.text is None for w in behind) else [w.text or "" for w in behind]


def identity(launch: Launch) -> str:
    words = launch.command.words
    return next((w.text or "" for w in words if (w.text or "").startswith("--id")), "")


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "bin").mkdir()
    for name, text in {"torchrun": RECORD, "srun": START, "mpirun": START, "ssh": AWAY}.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.mark.process
def test_lint_believes_what_bash_starts(stubs: Path, tmp_path: Path) -> None:
    started = found = argv_known = variables_known = 0
    for seed in range(SCRIPTS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        script = folder / "job.sh"
        script.write_text("\n".join(["#!/bin/bash", *Generator(seed, folder).lines(0)]) + "\n")
        every = "\n".join(path.read_text() for path in folder.glob("*.sh"))
        files = [read(str(script), Kind.SHELL)]
        (shell,) = (view for view in files[0].views if isinstance(view, Shell))
        believed: dict[str, list[Launch]] = {}
        for launch in shell.launches_of("torchrun"):
            believed.setdefault(identity(launch), []).append(launch)
        shown = " ".join(f"{one.message} {one.instead}" for one in lint(files))
        assert "\ue000" not in shown, script
        for argv, environment in really_started(script, stubs):
            started += 1
            options = believed.get(argv[0], [])
            assert options, f"{argv} is started, and lint does not see it: {script}"
            found += 1
            chain = environment.pop("CHAIN", "").split()
            for launch in options if len(options) == 1 else ():
                assert [s.program for s in launch.starters if s.program in STARTERS] == chain, (script, argv)
                words = words_of(launch)
                if words is not None:
                    argv_known += 1
                    assert words == argv, script
                for name in NAMES:
                    variable = launch.variable(name)
                    text = variable.value.text if variable is not None and variable.words is None else None
                    if variable is not None and text is not None and variable.exported:
                        variables_known += 1
                        # What one branch of two exports counts as exported behind them.
                        absent = text if "\nif " in every else None
                        assert environment.get(name, absent) == text, (script, argv, name)
    assert started > 4 * SCRIPTS, "nothing was compared"
    assert argv_known > started * 0.45, "so much is unknown that nothing would be found"
    assert variables_known > started / 2
    print(
        f"{SCRIPTS} scripts, {started} launches, {argv_known} argv and {variables_known} variables compared"
    )
