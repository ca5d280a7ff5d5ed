"""What is written: shell text that a shell takes as it is meant, whatever stands in names and scripts."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from netdoctor import launch
from netdoctor.cli.plan import LAUNCHERS
from netdoctor.errors import InputError
from netdoctor.launch.shell import comment
from tests.checks import build as healthy
from tests.hostile import HOSTILE
from tests.launch.build import evidence, planned, targets

# What a shell, a comment, a batch file or YAML could trip over.
WORDS = (
    "a b", "it's", '"', "$(touch pwned)", "`touch pwned`", "; touch pwned", "\n touch pwned\n", "#", "*", "~",
    "\\", "--x=$HOME", "!!", "é", "=eth0", "{a,b}", "'\n'", "%s", "${x:?}", "<(id)", "- a: b", "|", ": ",
)  # fmt: skip


def test_the_parser_knows_the_launchers() -> None:
    assert set(LAUNCHERS) == set(launch.LAUNCHERS)


# Programs of the plans, which write down what they are given; those that start others start them.
STARTS = {
    "srun": 'shift $(($# - 3)); exec "$@"',
    "mpirun": 'while [ "$1" != sh ]; do shift; done; exec "$@"',
    "hostname": "echo n1",
    "scontrol": "echo n1",
}
WRITES = ("torchrun", "accelerate", "ray", "python3")
MPI = {f"OMPI_COMM_WORLD_{name}": "0" for name in ("RANK", "SIZE", "LOCAL_RANK")}
INSIDE = dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "JOB_COMPLETION_INDEX"), "0")
SLURM = dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), "n[1-2]")
LAUNCHED = {**MPI, **INSIDE, **SLURM, "SLURM_NTASKS": "2", "SLURMD_NODENAME": "n1"}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    write = 'for word in "$@"; do printf "%s\\0" "$word"; done >>args'
    for name, body in {**STARTS, **dict.fromkeys(WRITES, write)}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(argv: list[str], folder: Path) -> list[str]:
    """The arguments that programs got which were started by this command."""
    (folder / "args").write_bytes(b"")
    done = subprocess.run(
        argv, cwd=folder, env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/x", **LAUNCHED},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (folder / "pwned").exists()
    return (folder / "args").read_bytes().decode().split("\0")[:-1]


@pytest.mark.process
def test_the_words_of_the_program_arrive_as_they_were_said(programs: Path) -> None:
    script = ("train.py", *WORDS)
    bad = {"X": WORDS[6].replace("\n", "")}
    uneven = [replace(one, slots=one.order + 1) for one in targets(2)]
    plans = [
        planned(targets(2, slots=2), script=script, job=WORDS[3], env=bad),
        planned(uneven, evidence(2), script=script, rdzv="static", env=bad),
        planned(uneven, None, "sbatch", script=script, job=WORDS[3]),
    ]
    for made in plans:
        got = run(["bash", "-c", launch.text(made)], programs)
        assert tuple(got[got.index("train.py") :]) == script, launch.text(made)
    for launcher in set(LAUNCHERS) - {"deepspeed", "k8s"}:
        made = planned(targets(2), evidence(2), launcher, script=script, env=bad)
        first, last = launch.parts(made)[0], [part for part in launch.parts(made) if part.runs][-1]
        shell = "bash" if "srun" in last.text else "sh"
        got = run([shell, "-c", (first if launcher == "torchrun" else last).text], programs)
        at = got.index("train.py")
        assert tuple(got[at : at + len(script)]) == script, (launcher, last.text)


@pytest.mark.process
def test_yaml_is_what_was_meant(programs: Path) -> None:
    script = ("train.py", *WORDS)
    made = planned(targets(2), evidence(2), "k8s", script=script, env={"X": "$(Y) $$"}, image="a: b\n# c")
    service, job = yaml.safe_load_all(launch.text(made))
    assert service["metadata"]["name"] == job["metadata"]["name"] == "job1"
    assert (job["spec"]["completions"], job["spec"]["completionMode"]) == (2, "Indexed")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "a: b\n# c"
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env["NCCL_SOCKET_IFNAME"] == "=eth0"
    # Kubernetes makes one dollar of two, and a variable of $(NAME): third_party/forked/golang/expansion.
    assert env["X"].replace("$$", "$") == "$(Y) $$"
    got = run([word.replace("$$", "$") for word in container["command"]], programs)
    assert tuple(got[got.index("train.py") :]) == script
    assert "--node-rank=0" in got


def test_values_for_roll_and_verl() -> None:
    values = launch.parts(planned(targets(2), evidence(2), "roll"))[-1].text
    assert yaml.safe_load(values)["actor_train"]["device_mapping"] == "list(range(0,16))"
    verl = launch.parts(planned(targets(2), evidence(2), "verl", tp=8))[-1].text
    assert "trainer.nnodes=2 trainer.n_gpus_per_node=8" in verl
    assert "rollout.tensor_model_parallel_size=8" in verl


def test_every_launcher_says_where_its_numbers_come_from() -> None:
    """Without a report nothing is called measured, with one MASTER_ADDR is; the verdict is in every text."""
    bad = evidence(2, state="not_ready", causes=("n2 lets nobody in",))
    for launcher in LAUNCHERS:
        assert "measured:" not in launch.text(planned(targets(2, slots=2), None, launcher)), launcher
        text = launch.text(planned(targets(2), bad, launcher))
        assert "NOT READY: n2 lets nobody in" in text, launcher
        assert launcher == "k8s" or "10.0.0.1" in text, launcher


def test_who_accepts_different_numbers_of_processes() -> None:
    uneven = [replace(one, slots=one.order + 1) for one in targets(2)]
    for launcher in LAUNCHERS:
        made = planned(uneven, None, launcher)
        if launcher in ("torchrun", "sbatch", "deepspeed", "mpirun", "ray"):
            assert launch.text(made), launcher
        else:
            with pytest.raises(InputError, match="different numbers of processes"):
                launch.text(made)


def test_what_deepspeed_would_garble_is_refused() -> None:
    for word in ("$(id)", "a;b", "%h", "'", "~", "*"):
        with pytest.raises(InputError, match="would not arrive"):
            launch.text(planned(targets(2), None, "deepspeed", script=("train.py", word)))
        if word not in ("a;b", "'", "~", "*"):
            with pytest.raises(InputError, match="would not arrive"):
                launch.text(planned(targets(2), None, "deepspeed", env={"X": word}))
    twice = [replace(one, host="n1") for one in targets(2)]
    with pytest.raises(InputError, match="listed twice"):
        launch.text(planned(twice, None, "deepspeed"))


def test_values_of_one_node_alone_reach_it_or_are_named() -> None:
    seen = evidence(2)
    other = healthy.net(2, netdevs=(healthy.netdev("ens9"),), addresses=(healthy.row("ens9", "10.0.0.2"),))
    seen.facts.put("net", "n2", other)
    for launcher in LAUNCHERS:
        text = launch.text(planned(targets(2), seen, launcher))
        assert "ens9" in text, launcher


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


@pytest.mark.process
def test_another_machine_starts_nothing(programs: Path) -> None:
    """Pasted into a shell that goes on after an error, on a host that is not of the plan."""
    (programs / "hostname").write_text("#!/bin/bash\necho n9\n")
    for options in ({}, {"rdzv": "static"}):
        text = launch.text(planned(targets(2), evidence(2), **options))
        (programs / "args").write_bytes(b"")
        done = subprocess.run(
            ["bash", "-i"], input=text, cwd=programs, env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/x"},
            capture_output=True, text=True, timeout=30, check=False, start_new_session=True,
        )  # fmt: skip
        assert "n9 is not a node of this plan" in done.stderr
        assert (programs / "args").read_bytes() == b""
