"""What is written: shell text that a shell takes as it is meant, whatever stands in names and scripts."""

import subprocess
from dataclasses import replace
from pathlib import Path

from netdoctor import launch
from netdoctor.cli.plan import LAUNCHERS
from netdoctor.launch.shell import comment
from tests.hostile import HOSTILE
from tests.launch.build import evidence, planned, targets

# What a shell, a comment, a batch file or YAML could trip over.
WORDS = (
    "a b", "it's", '"', "$(touch pwned)", "`touch pwned`", "; touch pwned", "\n touch pwned\n", "#", "*", "~",
    "\\", "--x=$HOME", "!!", "é", "=eth0", "{a,b}", "'\n'", "%s", "${x:?}", "<(id)", "- a: b", "|", ": ",
)  # fmt: skip


def test_the_parser_knows_the_launchers() -> None:
    assert set(LAUNCHERS) == set(launch.LAUNCHERS)


def run(text: str, folder: Path, shell: str = "bash", **env: str) -> list[str]:
    """The arguments that programs of the text got, as stand-ins on PATH write them down."""
    for name in ("torchrun", "srun", "hostname", "scontrol"):
        stub = folder / name
        body = {"hostname": "echo n1", "scontrol": "echo n1", "srun": 'shift $(($# - 3)); exec "$@"'}.get(
            name, 'for word in "$@"; do printf "%s\\0" "$word"; done >>args'
        )
        stub.write_text(f"#!/bin/bash\n{body}\n", "utf-8")
        stub.chmod(0o755)
    (folder / "args").write_bytes(b"")
    done = subprocess.run(
        [shell, "-c", text], cwd=folder, env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/x", **env},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (folder / "pwned").exists()
    return (folder / "args").read_bytes().decode().split("\0")[:-1]


def test_the_words_of_the_program_arrive_as_they_were_said(tmp_path: Path) -> None:
    script = ("train.py", *WORDS)
    uneven = [replace(one, slots=one.order + 1) for one in targets(2)]
    plans = [
        planned(targets(2, slots=2), script=script, job=WORDS[3], env={"X": WORDS[6].replace("\n", "")}),
        planned(targets(2), evidence(2), script=script),
        planned(uneven, evidence(2), script=script, rdzv="static"),
        planned(targets(2), evidence(2), "sbatch", script=script, job=WORDS[3]),
        planned(uneven, None, "sbatch", script=script),
    ]
    for made in plans:
        text = launch.text(made)
        got = run(text, tmp_path, SLURM_JOB_NODELIST="n[1-2]", SLURM_NODEID="0", SLURMD_NODENAME="n1")
        assert tuple(got[got.index("train.py") :]) == script, text


def test_comments_are_one_line_whatever_a_node_or_a_report_says() -> None:
    lines = {}
    for said in ("fine", HOSTILE["newline"], HOSTILE["ansi-clear"] + "$(id)\u2028rm -rf"):
        made = planned(targets(2), evidence(2, state="not_ready", causes=(said,), source=said))
        for launcher in launch.LAUNCHERS:
            text = launch.text(replace(made, options=replace(made.options, launcher=launcher)))
            assert all(line.isprintable() for line in text.split("\n")), (launcher, said)
            assert lines.setdefault(launcher, text.count("\n")) == text.count("\n"), (launcher, said)
    for said in HOSTILE.values():
        assert comment(said).isprintable()
