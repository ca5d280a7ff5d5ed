"""What each node starts for a command: only what the launcher lacks is put in."""

import pytest

from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.launch import LaunchPlan, Options, plan
from netdoctor.launch.starting import Where, commands_of


def planned(nodes: int = 2, nproc: int = 2) -> LaunchPlan:
    targets = [Target(id=f"n{i}", host=f"n{i}", source="test") for i in range(nodes)]
    return plan(targets, None, Options(nproc=nproc, job="try", port=29501), hosts="test")


def argv(*words: str, nodes: int = 2, node: str = "n1") -> list[str]:
    (run,) = commands_of(planned(nodes), words).runs[node]
    return list(run.argv)


def test_torchrun_gets_what_it_needs_to_know() -> None:
    assert argv("torchrun", "train.py", "--nnodes", "x") == [
        "torchrun", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=try",
        "--rdzv-endpoint=n0:29501", "train.py", "--nnodes", "x",
    ]  # fmt: skip
    assert argv("python3", "-m", "torch.distributed.run", "train.py")[:4] == [
        "python3", "-m", "torch.distributed.run", "--nnodes=2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "option", ["--nnodes=2", "--nnodes", "--node_rank", "--rdzv-endpoint", "--standalone"]
)
def test_who_says_where_to_meet_means_it(option: str) -> None:
    words = argv("torchrun", option, "2", "train.py")
    assert words == ["torchrun", "--nproc-per-node=2", option, "2", "train.py"]


def test_processes_that_are_given_stay() -> None:
    assert "--nproc-per-node=2" not in argv("torchrun", "--nproc_per_node", "8", "train.py")


def test_accelerate_counts_the_processes_of_all_nodes() -> None:
    words = argv("accelerate", "launch", "train.py")
    assert words[2:6] == ["--multi_gpu", "--num_machines=2", "--num_processes=4", "--machine_rank=1"]
    assert argv("accelerate", "launch", "--machine_rank=0", "train.py") == [
        "accelerate", "launch", "--machine_rank=0", "train.py",
    ]  # fmt: skip


def test_braces_are_each_nodes_own_and_others_stay() -> None:
    words = ("sh", "-c", "{rank} {node} {master}:{port} {nnodes} {nproc} {world} ${HOME} {x} {}")
    assert argv(*words)[2] == "1 n1 n0:29501 2 2 4 ${HOME} {x} {}"


def test_a_program_is_started_once_a_process() -> None:
    found = commands_of(planned(), ["python3", "train.py"])
    assert found.where is Where.PROCESS
    ranks = [dict(run.env) for node in ("n0", "n1") for run in found.runs[node]]
    assert [(r["RANK"], r["LOCAL_RANK"], r["NODE_RANK"], r["WORLD_SIZE"]) for r in ranks] == [
        ("0", "0", "0", "4"), ("1", "1", "0", "4"), ("2", "0", "1", "4"), ("3", "1", "1", "4"),
    ]  # fmt: skip


@pytest.mark.parametrize("launcher", ["mpirun", "/opt/bin/deepspeed", "srun"])
def test_what_reaches_the_others_is_started_on_the_first_node(launcher: str) -> None:
    found = commands_of(planned(), [launcher, "train.py"])
    assert (found.where, [len(found.runs[node]) for node in ("n0", "n1")]) == (Where.FIRST, [1, 0])


def test_a_script_is_started_once_a_node_and_knows_its_number() -> None:
    found = commands_of(planned(), ["./launch.sh"])
    assert [dict(found.runs[node][0].env) for node in ("n0", "n1")] == [
        {"NODE_RANK": "0", "NNODES": "2"}, {"NODE_RANK": "1", "NNODES": "2"},
    ]  # fmt: skip
    assert commands_of(planned(), ["./launch.sh"], Where.PROCESS).runs["n0"][1].env["RANK"] == "1"


def test_guesses_stay_away_but_for_where_to_meet() -> None:
    assert commands_of(planned(), ["./x"], guessed=False).env["n1"] == {
        "MASTER_ADDR": "n0",
        "MASTER_PORT": "29501",
    }


def test_accelerate_refuses_nodes_of_different_sizes() -> None:
    targets = [Target(id=f"n{i}", host=f"n{i}", source="test", slots=i + 1) for i in range(2)]
    uneven = plan(targets, None, Options(), hosts="test")
    with pytest.raises(InputError, match="divides --num_processes evenly"):
        commands_of(uneven, ["accelerate", "launch", "train.py"])
