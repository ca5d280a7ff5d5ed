"""Fixtures at full length: bad ones are caught with what would have happened, right ones stay silent."""

import subprocess
from pathlib import Path

import pytest

from netdoctor.lint.engine import lint, rules
from netdoctor.lint.files import kind_of, read
from netdoctor.lint.model import Kind, Severity

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").iterdir())
LAUNCHERS = (
    "torchrun-c10d",
    "torchrun-static",
    "slurm-torchrun",
    "srun-direct",
    "deepspeed",
    "accelerate",
    "ray",
    "mpirun",
)

# file (or files that are given together): (line, rule, words of the message). First what guides say.
BAD: dict[str, list[tuple[int, str, str]]] = {
    "guide-a-rank.sbatch": [(9, "slurm.rank-in-batch", "has RANK=0, and the group never forms")],
    "guide-a-world.sh": [
        (3, "env.shadowed", "WORLD_SIZE=8 is overwritten"),
        (4, "env.shadowed", "RANK=0 is overwritten"),
    ],
    "guide-a-oneliner.sh": [(2, "torch.init-alone", "environment variable RANK expected")],
    "guide-a-eth0.sh": [(2, "env.ifname-guess", "the job ends at its start")],
    "guide-ce-world.sbatch": [(7, "env.world-size", "WORLD_SIZE is 4, and srun starts 32 processes")],
    "guide-e-installer.sh": [(3, "pipe.html", "the shell is given HTML")],
    "guide-e-docker.sh": [
        (2, "container.rdma", "falls back to TCP"),
        (2, "container.network", "172.17.0.x"),
        (2, "docker.shm", "--shm-size=10gb is ignored"),
    ],
    "node-rank-early.sbatch": [(8, "slurm.rank-in-batch", "--node-rank 0, and the job hangs")],
    "double-quotes.sbatch": [(5, "slurm.rank-in-batch", "has RANK=0")],
    "no-srun.sbatch": [(6, "slurm.no-srun", "on the first of 4 nodes only")],
    "eight-launchers.sbatch": [(7, "slurm.srun-launcher", "starts 8 of these on each node")],
    "late.sbatch": [
        (5, "slurm.late-directive", "--nodes=4 is not asked for"),
        (6, "slurm.late-directive", "--gres=gpu:8 is not asked for"),
    ],
    "nodelist.sbatch": [(4, "slurm.nodelist", "nobody finds rank 0")],
    "shape.sbatch": [
        (7, "slurm.shape", "starts this on 4 nodes, and --nnodes says 2"),
        (7, "slurm.shape", "local rank 4 ends with 'invalid device ordinal'"),
    ],
    "directives.sbatch": [
        (2, "slurm.variable", "is the text $NODES itself"),
        (3, "slurm.option", "no option --ntasks_per_node"),
    ],
    "localhost.sh": [(6, "torch.endpoint", "another machine on each of 2 nodes")],
    "master-addr-env.sh": [(4, "torch.endpoint", "MASTER_ADDR of the environment is not read")],
    "same-rank.sbatch": [(5, "torch.node-rank", "takes itself for number 0")],
    "backslash.sh": [
        (2, "torch.endpoint", "never find each other"),
        (2, "torch.node-rank", "number 0"),
        (2, "shell.continuation", "looks for a program called --nproc-per-node"),
    ],
    "comment.sh": [(3, "shell.continuation", "a comment inside of the command")],
    "spaces.sh": [
        (2, "shell.assign-spaces", "export refuses the ="),
        (3, "shell.assign-spaces", "a program called NCCL_DEBUG"),
        (4, "shell.assign-spaces", "a program called WORLD_SIZE"),
    ],
    "pipeline.sh": [
        (3, "shell.export-lost", "gone at its end: torchrun in line 6"),
        (5, "shell.export-lost", "set in a subshell"),
    ],
    "quotes.sh": [
        (2, "shell.single-quotes", "the text $(hostname) itself"),
        (3, "shell.single-quotes", "the text $MASTER_ADDR itself"),
    ],
    "not-exported.sh": [(2, "env.not-exported", "do not see it")],
    "torchrun.sh": [
        (2, "torch.python", "can't open file 'python'"),
        (3, "torch.behind-script", "starts 1 process"),
        (4, "torch.nproc", "not all"),
        (5, "torch.option", "unrecognized arguments"),
        (6, "torch.backend", "ends at once"),
        (7, "torch.rdzv-id", "another text on each of 2 nodes"),
        (8, "torch.standalone", "never find each other"),
        (9, "env.cuda-devices", "local rank 2 ends"),
        (10, "torch.launch", "deprecated"),
        (11, "cfg.parallel", "every rank ends"),
    ],
    "deepspeed.sh": [
        (2, "deepspeed.env-forward", "takes GLOO_SOCKET_IFNAME to no other node"),
        (3, "deepspeed.env-forward", "takes HF_HOME to no other node"),
        (5, "deepspeed.include", "refuses --include"),
    ],
    "deepspeed-alone.sbatch": [(4, "deepspeed.no-hostfile", "trains on the first of 2 nodes")],
    "hostfile": [
        (2, "deepspeed.hostfile", "refuses this line: gpu02:8"),
        (3, "deepspeed.hostfile", "refuses this line: gpu03 slots = 8"),
        (4, "deepspeed.hostfile", "is already in line 1"),
    ],
    ".deepspeed_env": [
        (1, "deepspeed.env-file", "not enough values to unpack"),
        (3, "deepspeed.env-file", "a blank line"),
        (4, "deepspeed.env-file", "becomes a part of the variable's name"),
    ],
    "accelerate.yaml": [
        (4, "accelerate.config", "wait for each other"),
        (7, "accelerate.config", "one is dropped without a message"),
    ],
    "accelerate.sbatch": [(6, "accelerate.num-processes", "4 start on each of 2, with 8 GPUs")],
    "mpirun.sh": [
        (2, "mpi.env-forward", "to no other node"),
        (3, "mpi.slots", "not enough slots"),
        (3, "mpi.rank-outside", "gets an empty value"),
    ],
    "ray.sh": [(2, "ray.master-port", "finds it taken"), (3, "ray.port", "ends with a ValueError")],
    "ray.yaml": [
        (3, "ray.yaml", "Ray refuses the file"),
        (7, "ray.yaml", "started twice"),
        (9, "ray.yaml", "a separate cluster"),
    ],
    "train.env": [
        (1, "env.unknown-name", "nothing reads NCCL_SOCKET_IFACE"),
        (2, "env.ifname", "10.0.0.5 is an address"),
        (3, "env.number", "it counts as 0, not as 1"),
        (4, "env.ifname", "falls back to TCP"),
        (5, "env.word", "nothing is printed"),
        (6, "env.ifname", "an interface called ^docker0"),
        (7, "env.address", "a name has no scheme"),
        (8, "env.port", "99999 is not a port"),
        (9, "env.old-name", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    ],
    "Dockerfile": [
        (2, "docker.run-export", "gone at the end of this RUN"),
        (3, "docker.env-spaces", "'= 29500'"),
        (4, "env.unknown-name", "nothing reads NCCL_SOCKET_IFNAMES"),
        (5, "docker.exec-form", "the text $NODE_RANK itself"),
    ],
    "compose.yaml": [
        (6, "compose.shm", "shm_size is ignored"),
        (7, "compose.network", "peers on other machines do not reach"),
        (9, "env.number", "only by accident"),
    ],
    "manifest.yaml": [
        (7, "k8s.pytorchjob", "2 masters"),
        (10, "k8s.dns", "do not resolve"),
        (12, "k8s.pytorchjob", "no container is called pytorch"),
        (16, "k8s.env-type", "the API server refuses"),
        (17, "k8s.shm", "may run out of it"),
    ],
    "roll.yaml": [
        (4, "cfg.nodes", "waits for 2 nodes"),
        (7, "cfg.devices", "6 devices are not divided by 4"),
    ],
    "axolotl.yaml": [
        (4, "cfg.axolotl", "4 packed samples at once over 2 ranks"),
        (6, "cfg.axolotl", "batch_size and gradient_accumulation_steps"),
        (8, "cfg.axolotl", "without fsdp_config"),
    ],
    "axolotl-both.yaml": [(4, "cfg.axolotl", "deepspeed and fsdp")],
    "verl.sh": [(4, "cfg.verl-line", "ends with an assertion")],
    "ds_config.json": [(1, "cfg.batch", "fits no number of ranks")],
    "crlf.sbatch": [(1, "shell.crlf", "sbatch refuses the file")],
    "node0.sh node1.sh": [(2, "env.rank-unique", "a rank that nobody has")],
    "part0.sh part1.sh": [
        (1, "env.differs", "--nnodes is 3 here and 2"),
        (1, "env.differs", "--master-port is 29501 here and 29500"),
    ],
}  # fmt: skip


def test_what_cannot_work_is_caught() -> None:
    for files, expected in BAD.items():
        found = lint([read(str(HERE / "bad" / name), None) for name in files.split()])
        assert [(one.position.line, one.rule) for one in found] == [(n, rule) for n, rule, _ in expected], (
            files
        )
        for one, (_, _, words) in zip(found, expected, strict=True):
            assert words in one.message, files


def test_every_bad_file_is_in_the_table() -> None:
    assert {name for files in BAD for name in files.split()} == {
        path.name for path in (HERE / "bad").iterdir()
    }
    assert len(BAD) > 30


def test_what_is_right_gives_no_finding() -> None:
    assert [one for path in GOOD for one in lint([read(str(path), None)])] == []


def test_five_right_ones_for_each_launcher() -> None:
    for launcher in LAUNCHERS:
        assert sum(path.name.startswith(f"{launcher}-") for path in GOOD) == 5
    assert lint([read(str(path), None) for path in GOOD]) == []  # together, too


@pytest.mark.process
def test_right_scripts_are_scripts() -> None:
    """A fixture that bash cannot read would prove nothing."""
    for path in GOOD:
        if path.suffix in (".sh", ".sbatch"):
            subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.parametrize("name", ["Dockerfile.cuda", "Containerfile", "gpu.dockerfile", "gpu.containerfile"])
def test_an_image_is_told_by_the_name_of_its_file(name: str) -> None:
    assert kind_of(f"images/{name}", "FROM base\nCOPY . .\n") is Kind.DOCKERFILE


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("job.sh", "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n", Kind.SBATCH),
        ("job.slurm", "srun hostname\n", Kind.SBATCH),
        ("job.sh", "srun hostname\n", Kind.SHELL),
        ("prod.env", "export A=1\nsource other\n", Kind.ENV),
        (".env.prod", "export A=1\nsource other\n", Kind.ENV),
        ("my_hostfile", "gpu01\n", Kind.HOSTFILE),
        ("machinefile.txt", "gpu01\n", Kind.HOSTFILE),
        ("all.hosts", "gpu01\n", Kind.HOSTFILE),
        ("settings", "# of the job\nNCCL_DEBUG=INFO\n", Kind.ENV),
        ("image", "FROM base\nRUN make\n", Kind.DOCKERFILE),
        ("start", "cd /job\ntorchrun --nnodes 2 train.py\n", Kind.SHELL),
        ("notes", "gpu01 is slow\n", None),
    ],
)
def test_the_kind_of_a_file_is_told_by_its_name_or_by_its_text(
    name: str, text: str, kind: Kind | None
) -> None:
    assert kind_of(f"jobs/{name}", text) is kind


def test_notes_alone_are_for_what_is_right_in_places() -> None:
    assert {rule.id for rule in rules().values() if rule.severity is Severity.NOTE} == {
        "cfg.nodes", "cfg.tensor-nodes", "env.ifname-guess", "env.old-name", "env.port-ephemeral", "k8s.shm",
        "ray.master-port",
    }  # fmt: skip
