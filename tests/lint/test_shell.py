"""What is said of a script's values, held against bash; the options that are known, against torchrun's."""

import json
import os
import random
import subprocess

import pytest

from netdoctor.lint import options
from netdoctor.lint.expansion import TEXT_MOST
from netdoctor.lint.launches import launches
from netdoctor.lint.syntax import SNAPSHOTS_MOST, parse
from netdoctor.lint.values import Script

NAMES = ("A", "B", "C", "N", "M", "L")
SCRIPTS = 60


def word(rng: random.Random) -> str:
    """A word, quoted in one way or another."""
    name = rng.choice(NAMES)
    return rng.choice(
        [
            "x", "7", "12", "a-b", "'q $A'", '"two  words"', "a\\ b", "--opt=1", "\\$A", "''", '""',
            f"${name}", f'"${name}"', f"${{{name}}}", f"--n={'$' + name}", f'"<${name}>"', f"'${name}'",
            f"${{{name}:-d}}", f"${{{name}-e}}", f'"${{{name}:-f g}}"', f"${{#{name}}}", f"${{{name}%%a*}}",
            f"$(({rng.randint(0, 9)} * {rng.randint(1, 4)} + 1))", "$((N + 1))", f"$(echo {name.lower()})",
            '"${L[@]}"', "${L[0]}", "${L[@]}", f"pre{'$' + name}post", "a'b'\"c\"", "\"a\\\"b\\$c\"",
        ]
    )  # fmt: skip


def lines(rng: random.Random, number: int, depth: int = 0, *, inside: bool = False) -> list[str]:
    """Statements of a script. ``show`` prints what its words become, behind a number that is found again."""
    made: list[str] = []

    def more() -> list[str]:
        return lines(rng, number, depth + 1, inside=inside)

    for _ in range(rng.randint(2, 6)):
        name, kind = rng.choice(NAMES[:5]), rng.randint(0, 17 if depth < 2 else 9)
        if kind <= 2:
            made.append(f"{name}={word(rng)}")
        elif kind == 3:
            made.append(f"export {name}={word(rng)}")
        elif kind == 4:
            made.append(f"{name}+={word(rng)}")
        elif kind == 5:
            made.append(f"N={rng.randint(0, 99)}; M=$((N * 2 - 1))")
        elif kind == 6:
            made.append(f"L=({word(rng)} {word(rng)}); L+=({word(rng)})")
        elif kind == 7:
            made.append(f"unset {name}")
        elif kind == 8:
            made.append(f"read -r {name} _ <<<'from outside'")
        elif kind == 10:
            made += [
                f"if {rng.choice(['true', 'false'])}; then",
                *more(),
            ]
            made += [
                *(["else", *more()] if rng.random() < 0.5 else []),
                "fi",
            ]
        elif kind == 11:
            made += [
                f"for {name} in {word(rng)} y; do",
                *more(),
                "done",
            ]
        elif kind == 12:
            made += ["(", *more(), ")"]
        elif kind == 13 and not inside:  # functions in functions are nobody's launch script
            made += [
                "f() {",
                f"  local {name}={word(rng)}",
                *lines(rng, number, depth + 1, inside=True),
                "}",
                "f",
            ]
        elif kind == 14:
            made += [
                f"echo z | while read -r {name}; do",
                *more(),
                "done",
            ]
        elif kind == 15:
            made.append(f"{rng.choice(['true', 'false'])} {rng.choice(['&&', '||'])} {name}={word(rng)}")
        elif kind == 16:
            made += [
                "case $A in",
                "x)",
                *more(),
                ";;",
                "*)",
                f"{name}={word(rng)}",
                ";;",
                "esac",
            ]
        elif kind == 17:
            made += ["set -a", f"{name}={word(rng)}", "set +a"]
        made.append(f"show {number}.{rng.getrandbits(60)} {word(rng)} \\\n  {word(rng)}")
    return made


def shown_by_bash(scripts: list[str]) -> dict[str, list[list[str]]]:
    """(number: all the words that ``show`` got, each time) of each script, all run by one bash."""
    show = r"""show() { printf '%s' "$1"; shift; for w; do printf '\x1f%s' "$w"; done; printf '\x1e'; }"""
    whole = "\n".join([show, *(f"(\n{script}\n)" for script in scripts)])
    done = subprocess.run(
        ["bash", "--norc"],
        input=whole,
        text=True,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    found: dict[str, list[list[str]]] = {}
    for record in done.stdout.split("\x1e")[:-1]:
        number, *words = record.split("\x1f")
        found.setdefault(number, []).append(words)
    return found


def claimed(script: Script) -> dict[str, list[str]]:
    """(number: words) of each ``show`` of which everything is known."""
    found = {}
    for command in script.commands:
        if command.name == "show" and not any(w.many or w.text is None for w in command.words):
            number, *words = [w.text or "" for w in command.words[1:]]
            found[number] = words
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_values_are_what_bash_says(seed: int) -> None:
    rng = random.Random(seed)
    scripts = ["\n".join(lines(rng, number)) for number in range(SCRIPTS)]
    truth = shown_by_bash(scripts)
    said = checked = 0
    for script in scripts:
        for number, words in claimed(parse(script)).items():
            said += 1
            for real in truth.get(number, []):
                checked += 1
                assert words == real, f"{number} in:\n{script}"
    assert checked > 100, "nothing was compared"
    assert said > len(truth) / 4, "so much is unknown that nothing would be found"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A=x; show 1 ${A:-d}", ["x"]),
        ("A='--n 2'; A+=' --m 8'; show 1 $A", ["--n", "2", "--m", "8"]),
        ("show 1 $((8 / 2)) $((8 % 3))", ["4", "2"]),
        ("show 1 $((8 / 0))", None),
        ("A=x; read -r A; show 1 $A", None),
        ("A=x; printf -v A %s y; show 1 $A", None),
        ("A=(a); A+=b; show 1 $A", None),
        ("A+=x; show 1 $A", None),
        ("A+=(x); show 1 $A", None),
        ('A=a; A+=(b); show 1 "${A[@]}"', None),
        ("A=x; if true; then B=y; fi; show 1 $A", ["x"]),
        ("A=x; if true; then A=y; fi; show 1 $A", None),
        ("A=0; { A=1; }; show 1 $A", ["1"]),
        ("A=0; { A=1; } & show 1 $A", ["0"]),
        ("A=0; { A=1; } > log; show 1 $A 2>&1", ["1"]),
        ("A=0; for A in 1 2; do show 1 $A; done", None),
        ("N=3; show 1 $((N + 1)) $(($N * 2)) $((${N}))", ["4", "6", "3"]),
        ("show 1 $((999999998 + 1))", ["999999999"]),
        ("show 1 $((999999999 + 1))", None),
        ("show 1 a{1,2}", None),
        ("show 1 a{1..2}", None),
        ("A=x; show 1 {a,b}$A", None),
        ('A=x; show 1 " $A ${A}" "$A  $((1 + 2))"', [" x x", "x  3"]),
        ("N=3; show 1 $(( $N + 1 )) $((1 + $N))", ["4", "4"]),
        ('show 1 "a"{b,c}', None),
        ('A=x; show 1 ${A}y "{a,b}"c', ["xy", "{a,b}c"]),
        ('A=x; show 1 "$A " "a \\" $A" "" " "', ["x ", 'a " x', "", " "]),
        (f"A={'x' * TEXT_MOST}; show 1 ${{A}}", ["x" * TEXT_MOST]),
        (f"A={'x' * TEXT_MOST}; show 1 ${{A}}x", None),
        ("A=x; f() { local A=y; }; f; show 1 $A", ["x"]),
        ("A=x; f() { export A=y; }; f; show 1 $A", None),
    ],
)
def test_a_value_is_known_where_the_script_settles_it(line: str, words: list[str] | None) -> None:
    assert claimed(parse(line)).get("1") == words


@pytest.mark.parametrize(
    ("before", "exported"),
    [
        ("set -a", True),
        ("set -o nounset -o allexport", True),
        ("set -a; set +o allexport", False),
        ("set -a; set +ax", False),
        ("set -euo pipefail", False),
        ("set -- --batch 8 -a", False),
    ],
)
def test_set_exports_what_is_assigned_behind_it(before: str, exported: bool) -> None:
    assert parse(f"{before}; A=x").assignments[0].exported is exported


def test_few_copies_of_a_long_scripts_variables_are_kept() -> None:
    script = parse("export A=1\n" + "echo\nrun\n" * (SNAPSHOTS_MOST + 1))
    assert [one.name for one in script.commands if one.environment] == ["run"] * SNAPSHOTS_MOST


@pytest.mark.parametrize(
    ("line", "exported"),
    [("export A=x", True), ("declare -x A=x", True), ("declare A=x", False), ("export -n A=x", False)],
)
def test_a_declaration_exports_as_its_flags_say(line: str, exported: bool) -> None:
    assert parse(line).assignments[0].exported is exported


def test_a_column_counts_characters() -> None:
    (command,) = parse('show "é" $A').commands
    assert [word.position.col for word in command.words] == [1, 6, 10]


def test_a_command_behind_a_blank_in_quotes_is_read_whole() -> None:
    (command,) = parse('show "$A $(date)"').commands
    assert str(command.words[1]) == "$A $(date)"


def test_what_srun_starts_is_told_from_what_the_batch_body_fills_in() -> None:
    script = parse("""
N=3
export E=kept
srun bash -c "torchrun --a $N --b \\$SLURM_PROCID --c $SLURM_PROCID"
srun bash -c 'torchrun --a $N --b $E'
ssh host "cd /x && torchrun --a $N"
ssh -p 22 -t host 'torchrun --a $E'
""")
    found = [launch for launch in launches(script) if launch.program == "torchrun"]
    shown = [[(str(w), [h.level for h in w.value.holes]) for w in one.command.words[2::2]] for one in found]
    assert shown == [
        [("3", []), ("$SLURM_PROCID", [1]), ("$SLURM_PROCID", [0])],
        [("$N", [1]), ("kept", [])],
        [("3", [])],
        [("$E", [1])],
    ]
    assert all(launch.level == 1 for launch in found)


@pytest.mark.process
def test_options_of_torchrun_are_its_own() -> None:
    python = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("NETDOCTOR_TEST_TORCH_PYTHON names no Python with torch")
    program = (
        "import json; from torch.distributed.run import get_args_parser as p; "
        "print(json.dumps([[a.option_strings, a.nargs == 0] for a in p()._actions if a.option_strings]))"
    )
    done = subprocess.run([python, "-c", program], text=True, capture_output=True, check=True)
    flags, valued = set(), set()
    for strings, is_flag in json.loads(done.stdout):
        names = {s.lstrip("-").replace("_", "-") for s in strings if s.startswith("--")}
        (flags if is_flag else valued).update(names)
    assert valued == options.PROGRAMS["torchrun"].valued
    assert flags == options.PROGRAMS["torchrun"].flags
