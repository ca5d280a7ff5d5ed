"""Each rule speaks on its wrong example and is silent on its right one; fixtures say the same at length."""

import re
from pathlib import Path

import pytest

from netdoctor.lint.engine import lint, rules
from netdoctor.lint.files import Read, read
from netdoctor.lint.model import Kind, Rule

HERE = Path(__file__).parent
JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"
RUN = "torchrun --standalone train.py\n"


def sample(rule: Rule, text: str) -> list[Read]:
    """The files of an example."""
    parts = text.replace("<CR>", "\r").split("--- second file\n")
    return [read(f"node{number}", rule.example, part.encode()) for number, part in enumerate(parts)]


def told(text: str, kind: Kind = Kind.SHELL) -> list[str]:
    """The rules that speak on a file."""
    return [one.rule for one in lint([read("x", kind, text.encode())])]


def test_a_rule_tells_wrong_from_right() -> None:
    for rule in rules().values():
        wrong = lint(sample(rule, rule.wrong))
        assert rule.id in {finding.rule for finding in wrong}, rule.id
        assert all(finding.message and len(finding.message) < 400 for finding in wrong), rule.id
        assert lint(sample(rule, rule.right)) == [], rule.id


def test_every_rule_has_a_title_a_source_and_words_for_people() -> None:
    for rule in rules().values():
        assert rule.title.endswith("."), rule.id
        assert rule.source, rule.id
        assert rule.happens, rule.id
        assert rule.instead, rule.id
        assert re.fullmatch(r"[a-z0-9]+\.[a-z0-9-]+", rule.id)


def test_a_port_at_its_bounds() -> None:
    def said(port: str) -> list[str]:
        return [one.rule for one in lint(sample(rules()["env.port"], f"MASTER_PORT={port}\n"))]

    assert not any(map(said, ("0", "1024", "65535")))
    assert said("1") == said("1023") == said("65536") == said("-1") == said("x") == ["env.port"]


@pytest.mark.parametrize(
    "script",
    [
        f"(export MY_SWITCH=1)\n{RUN}",
        f"(export NCCL_DEBUG=INFO)\nexport NCCL_DEBUG=INFO\n{RUN}",
        f"{RUN}(export NCCL_DEBUG=INFO)\n",
        f"(NUM_GPUS=8)\n{RUN}",
    ],
    ids=["of another program", "set outside as well", "behind the job", "not read"],
)
def test_a_variable_that_is_lost_where_nobody_misses_it(script: str) -> None:
    assert told(script) == []


def test_one_node_needs_no_hostfile() -> None:
    assert told("deepspeed --num_nodes 1 train.py\n") == []
    assert told("deepspeed --num_nodes 2 train.py\n") == ["deepspeed.no-hostfile"]


def test_a_script_below_a_variable_folder_hides_no_option() -> None:
    assert told("torchrun --nnodes 2 $CODE/train.py\n") == ["torch.endpoint", "torch.node-rank"]
    assert told("torchrun --nnodes 2 $OPTIONS train.py\n") == []


def test_parallel_sizes_are_held_against_what_srun_starts() -> None:
    text = JOB + "srun python train.py --tensor-model-parallel-size {}\n"
    assert told(text.format(3), Kind.SBATCH) == ["cfg.parallel"]
    assert told(text.format(4), Kind.SBATCH) == []


def test_the_folded_node_list_is_no_address() -> None:
    text = f"{JOB}export MASTER_ADDR=$SLURM_JOB_NODELIST\nsrun python train.py\n"
    assert told(text, Kind.SBATCH) == ["slurm.nodelist"]


def test_words_of_a_guide_in_place_of_an_address_are_a_placeholder() -> None:
    (one,) = lint([read("x", Kind.ENV, b'MASTER_ADDR="ip of master node"\n')])
    assert (one.rule, one.instead) == ("env.address", "MASTER_ADDR=node0")
    assert "a placeholder" in one.message


def test_a_hostname_is_the_masters_where_the_batch_body_fills_it_in() -> None:
    text = JOB + "srun bash -c {0}MASTER_ADDR=$(hostname) python train.py{0}\n"
    assert told(text.format("'"), Kind.SBATCH) == ["env.master-addr"]
    assert told(text.format('"'), Kind.SBATCH) == []


def test_a_name_that_is_like_no_other_or_too_short_to_tell_is_left_alone() -> None:
    assert told("NCCL_NO_SUCH_SWITCH_OF_OURS=1\nNCCL_NT=1\n", Kind.ENV) == []
    assert told("NCCL_ALG=Ring\n", Kind.ENV) == ["env.unknown-name"]


def test_a_comment_behind_a_value_is_no_part_of_it() -> None:
    assert told("NCCL_DEBUG=INFO # for now\n", Kind.ENV) == []
    assert told("NCCL_DEBUG='INFO # for now'\n", Kind.ENV) == ["env.word"]


def test_variables_of_a_manifests_containers_are_read() -> None:
    manifest = "spec: {containers: [{env: [{name: NCCL_IB_DISABLE, value: 'yes'}]}]}\n"
    assert told(manifest, Kind.KUBERNETES) == ["env.number"]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("mlx5_0,^mlx5_1", "mlx5_0,mlx5_1"),
        ("^mlx5_0,^mlx5_1", "^mlx5_0,mlx5_1"),
        ("=mlx5_0,=mlx5_1", "=mlx5_0,mlx5_1"),
        ("^=mlx5_0,^=mlx5_1", "^=mlx5_0,mlx5_1"),
    ],
)
def test_how_a_list_of_adapters_begins_counts_for_all_of_it(written: str, instead: str) -> None:
    (found,) = lint([read("x", Kind.ENV, f"NCCL_IB_HCA={written}\n".encode())])
    assert (found.rule, found.instead) == ("env.ifname", f"NCCL_IB_HCA={instead}")


@pytest.mark.parametrize("network", ["bridge", "default", "none"])
def test_ports_are_published_in_vain_on_dockers_own_networks_only(network: str) -> None:
    text = "docker run --gpus all --network {} -p 29500:29500 --ipc=host image sleep infinity\n"
    assert told(text.format(network)) == ["container.network"]
    assert told(text.format("host")) == told(text.format("of-mine")) == []


def test_gpus_that_cannot_be_counted_are_not_held_against_processes() -> None:
    text = "CUDA_VISIBLE_DEVICES={} torchrun --nproc-per-node 8 train.py\n"
    assert told(text.format("0,1")) == told(f"env A=1 {text.format('0,1')}") == ["env.cuda-devices"]
    assert told(text.format("$GPUS")) == told(text.format("all")) == []


def test_only_infiniband_as_the_one_network_contradicts_that_it_is_off() -> None:
    assert told("NCCL_IB_DISABLE=1\nNCCL_NET=ib\n", Kind.ENV) == ["env.contradiction"]
    assert told("NCCL_IB_DISABLE=1\nNCCL_NET=Socket\n", Kind.ENV) == []


@pytest.mark.parametrize(("adapters", "rules"), [("mlx5_0", ["env.contradiction"]), ("", []), ("$HCAS", [])])
def test_adapters_that_are_not_named_contradict_nothing(adapters: str, rules: list[str]) -> None:
    assert told(f"NCCL_IB_DISABLE=1\nNCCL_IB_HCA={adapters}\n", Kind.ENV) == rules


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("ntasks_per_node", ["--ntasks-per-node"]),
        ("ntask_per_node", ["--ntasks-per-node"]),
        ("no_such_option", []),
    ],
)
def test_an_option_that_slurm_has_is_told_instead(written: str, instead: list[str]) -> None:
    text = f"#!/bin/bash\n#SBATCH --{written}=8\nsrun hostname\n"
    assert [one.instead for one in lint([read("x", Kind.SBATCH, text.encode())])] == instead


def test_the_number_of_a_node_is_filled_in_early_for_other_things_than_ranks() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1\nsrun torchrun --nnodes 2 --nproc-per-node 8 "
        "--master-addr node0 --{} $SLURM_NODEID train.py\n"
    )
    assert told(text.format("node-rank"), Kind.SBATCH) == ["slurm.rank-in-batch"]
    assert told(text.format("node-rank $MINE --log-dir"), Kind.SBATCH) == []


@pytest.mark.parametrize(
    ("nodes", "rules"),
    [
        ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node0:29500", ["torch.rdzv-id"]),
        ("--nnodes 2 --node-rank 1 --master-addr node0", ["torch.rdzv-id"]),
        ("--nnodes 1 --rdzv-backend c10d --rdzv-endpoint localhost:0", []),
    ],
)
def test_nodes_that_meet_by_id_need_the_same(nodes: str, rules: list[str]) -> None:
    assert told(f"torchrun {nodes} --rdzv-id $RANDOM train.py\n") == rules


def test_variables_stay_behind_with_deepspeeds_pdsh_alone() -> None:
    text = "export GLOO_SOCKET_IFNAME=bond0\ndeepspeed --hostfile hostfile --launcher {} train.py\n"
    assert told(text.format("PDSH")) == ["deepspeed.env-forward"]
    assert told(text.format("openmpi")) == told(text.format("$HOW")) == []


def test_ports_of_ray_that_are_not_known_are_not_the_same() -> None:
    assert told("ray start --head --port=$PORT --ray-client-server-port=$CLIENTS\n") == []


def test_accelerate_without_a_list_of_hosts_needs_srun() -> None:
    text = JOB + "accelerate launch --num_machines 2 {} train.py\n"
    assert told(text.format(""), Kind.SBATCH) == ["slurm.no-srun"]
    assert told(text.format("--deepspeed_hostfile hosts"), Kind.SBATCH) == []
    assert told(text.format("--config_file all.yaml"), Kind.SBATCH) == []


def test_more_tasks_than_nodes_have_room_for() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=4 --ntasks={}\nsrun hostname\n"
    assert told(text.format(9), Kind.SBATCH) == ["slurm.shape"]
    assert told(text.format(8), Kind.SBATCH) == []


def test_tasks_are_spread_over_nodes_where_they_divide_evenly() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes={0} --ntasks=16\nsrun torchrun --nnodes {0} --nproc-per-node 8 "
        "--rdzv-backend c10d --rdzv-endpoint node0:29500 train.py\n"
    )
    assert told(text.format(2), Kind.SBATCH) == ["slurm.srun-launcher"]
    assert told(text.format(3), Kind.SBATCH) == []


def test_ranks_of_nodes_end_below_their_number() -> None:
    text = "torchrun --nnodes 2 --node-rank {} --master-addr node0 train.py\n"
    assert told(text.format(2)) == ["torch.node-rank"]
    assert told(text.format(1)) == []


def test_what_replaces_the_old_launcher_keeps_its_options() -> None:
    text = "python -m torch.distributed.launch --nproc_per_node=8 --use_env train.py\n"
    (found,) = lint([read("x", Kind.SHELL, text.encode())])
    assert found.instead.startswith("torchrun --nproc_per_node=8 …, and")


@pytest.mark.parametrize(
    ("program", "rules"),
    [
        ("d.init_process_group('nccl')", ["torch.init-alone"]),
        ("d.init_process_group('nccl', init_method='file:///tmp/x')", []),
        ("d.init_process_group('nccl', store=s)", []),
        ("os.environ['RANK'] = '0'; d.init_process_group('nccl')", []),
        ("d.init_process_group('nccl', rank=0, world_size=1)", []),
    ],
)
def test_a_program_that_says_its_rank_may_start_alone(program: str, rules: list[str]) -> None:
    assert told(f'python -c "import os, torch.distributed as d; {program}"\n') == rules


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ("--rdzv-backend c10d", ["torch.endpoint"]),
        ("--rdzv-backend c10d $OPTIONS", []),
        ("--rdzv-backend $BACKEND", []),
    ],
)
def test_a_rendezvous_that_may_have_an_address_is_left_alone(options: str, rules: list[str]) -> None:
    assert told(f"torchrun --nnodes 2 {options} train.py\n") == rules
    assert told(f"export PET_RDZV_ENDPOINT=node0:29500\ntorchrun --nnodes 2 {options} train.py\n") == []


def test_a_variable_is_not_blamed_beside_the_option_of_its_name() -> None:
    def said(option: str) -> str:
        text = f"export MASTER_ADDR=a\ntorchrun --nnodes 2 --rdzv-backend c10d {option} train.py\n"
        (found,) = lint([read("x", Kind.SHELL, text.encode())])
        return found.message

    assert "MASTER_ADDR of the environment is not read" in said("")
    assert "MASTER_ADDR" not in said("--master-addr node0")


@pytest.mark.parametrize(("processes", "rules"), [("1", []), ("2", ["docker.shm"]), ("gpu", ["docker.shm"])])
def test_one_process_needs_no_more_shared_memory(processes: str, rules: list[str]) -> None:
    text = f"docker run --gpus all --network host image torchrun --nproc-per-node {processes} train.py\n"
    assert told(text) == rules


def test_a_text_in_single_quotes_is_blamed_where_it_stands() -> None:
    text = (
        "export MASTER_ADDR='$HOST'\n"
        'torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR":29500 train.py\n'
    )
    found = lint([read("x", Kind.SHELL, text.encode())])
    assert [(one.rule, one.position.line) for one in found] == [("shell.single-quotes", 1)]


def test_a_wrong_name_that_the_script_uses_itself_is_its_own() -> None:
    text = "export MASTER_PROT=29500\n{}torchrun --standalone train.py\n"
    assert told(text.format("")) == ["env.unknown-name"]
    assert told(text.format("echo $MASTER_PROT\n")) == []


@pytest.mark.parametrize(
    ("machines", "rank", "rules"), [("2", "0", ["env.rank-unique"]), ("1", "0", []), ("2", "auto", [])]
)
def test_machines_of_one_accelerate_job_have_ranks_of_their_own(
    machines: str, rank: str, rules: list[str]
) -> None:
    text = f"compute_environment: LOCAL_MACHINE\nnum_machines: {machines}\nmachine_rank: {rank}\n"
    text += "num_processes: 16\nmain_process_ip: node0\nmain_process_port: 29500\n"
    found = lint([read(name, Kind.ACCELERATE, text.encode()) for name in ("a.yaml", "b.yaml")])
    assert [one.rule for one in found] == rules


def test_gpus_of_a_task_are_held_against_its_processes() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun --ntasks-per-node=1 --gpus-per-task={} "
        "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29500 train.py\n"
    )
    assert told(text.format(4), Kind.SBATCH) == ["slurm.shape"]
    assert told(text.format(8), Kind.SBATCH) == []
