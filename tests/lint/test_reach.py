"""What lint once missed: each mistake with the line of its finding; and what it once called wrong."""

from pathlib import Path

import pytest

from netdoctor.lint.engine import lint
from netdoctor.lint.files import read
from netdoctor.lint.output import summary, unread

JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node={}\n#SBATCH --gres=gpu:8\n"
HEAD = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
ALONE = (
    "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint localhost:29500 train.py\n"
)
BASH = "#!/bin/bash\n"
ENDPOINT = "torch.endpoint"
ONE, EIGHT = JOB.format(1), JOB.format(8)
PYTHON = "import os, torch, torch.distributed as dist\n"

# name: (text of the file, texts of others beside it, (file, line, rule) of each finding)
CASES: dict[str, tuple[str, dict[str, str], list[tuple[str, int, str]]]] = {
    "inner.sbatch": (ONE + f"srun bash -c '{ALONE}'\n", {}, [("", 5, ENDPOINT)]),
    "document.sbatch": (ONE + f"srun bash <<'EOF'\nset -e\n{ALONE}EOF\n", {}, [("", 7, ENDPOINT)]),
    "expanded.sbatch": (ONE + f"srun bash <<EOF\n\n{ALONE}EOF\n", {}, [("", 7, ENDPOINT)]),
    "piped.sh": (BASH + f"cat <<EOF | ssh node1 bash\n{ALONE}EOF\n", {}, [("", 3, ENDPOINT)]),
    "written.sbatch": (
        ONE + f"cat > run.sh <<'EOF'\n{BASH}{ALONE}EOF\nsrun bash run.sh\n",
        {},
        [("", 7, ENDPOINT)],
    ),
    "started.sbatch": (ONE + "srun ./run.sh\n", {"run.sh": BASH + ALONE}, [("run.sh", 2, ENDPOINT)]),
    "by-ssh.sh": (
        BASH + "for h in node0 node1; do ssh $h 'bash /srv/run.sh'; done\n",
        {"run.sh": BASH + ALONE},
        [("run.sh", 2, ENDPOINT)],
    ),
    "by-mpirun.sh": (
        BASH + "mpirun -np 2 -H node0:1,node1:1 bash run.sh\n",
        {"run.sh": ALONE},
        [("run.sh", 1, ENDPOINT)],
    ),
    "by-docker.sh": (
        BASH + "docker run --gpus all --network host --ipc host image bash run.sh\n",
        {"run.sh": ALONE},
        [("run.sh", 1, ENDPOINT)],
    ),
    "by-sbatch.sh": (
        BASH + "sbatch --nodes=2 run.sbatch\n",
        {"run.sbatch": ONE + "srun " + ALONE},
        [("run.sbatch", 5, ENDPOINT)],
    ),
    "sourced.sbatch": (
        EIGHT + "source cluster.sh\nsrun python train.py\n",
        {"cluster.sh": "\nexport MASTER_ADDR=localhost\n"},
        [("cluster.sh", 2, "env.master-addr")],
    ),
    "its-own-rank.sbatch": (
        EIGHT + "export MASTER_ADDR=localhost\nsrun bash run.sh\n",
        {"run.sh": "export RANK=$SLURM_PROCID\npython train.py\n"},
        [("", 5, "env.master-addr")],
    ),
    "variable.sbatch": (ONE + f'LAUNCH="{ALONE.rstrip()}"\nsrun $LAUNCH\n', {}, [("", 6, ENDPOINT)]),
    "array.sbatch": (
        ONE + f'ARGS=({ALONE[9:].rstrip()})\nsrun torchrun "${{ARGS[@]}}"\n',
        {},
        [("", 5, ENDPOINT)],
    ),
    "hostname.sbatch": (
        ONE + "srun bash -c 'torchrun --nnodes 2 --node-rank $SLURM_NODEID --master-addr $(hostname) a.py'\n",
        {},
        [("", 5, ENDPOINT)],
    ),
    "ray-heads.sbatch": (ONE + "srun ray start --head --port=6379 --block\n", {}, [("", 5, "ray.address")]),
    "ray-worker.sh": (
        BASH + "ssh node1 'ray start --address=127.0.0.1:6379'\n",
        {},
        [("", 2, "ray.address")],
    ),
    "comment.sh": (
        BASH + "python train.py --n 8 \\ # text\n  --mm 9\n",
        {},
        [("", 2, "shell.continuation")],
    ),
    "directive.sbatch": (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBTACH --ntasks-per-node=1\nsrun hostname\n",
        {},
        [("", 3, "slurm.option")],
    ),
    "names.sbatch": (
        EIGHT + HEAD + "srun bash -c 'RANK=$SLURM_PROC_ID python train.py'\n",
        {},
        [("", 6, "slurm.option")],
    ),
    "ncc.sh": (BASH + "export NCC_DEBUG=INFO\ntorchrun train.py\n", {}, [("", 2, "env.unknown-name")]),
    "scontrol.sbatch": (
        EIGHT + "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST)\nsrun python train.py\n",
        {},
        [("", 5, "slurm.nodelist")],
    ),
    "export.sbatch": (EIGHT + HEAD + "srun --export=NONE python train.py\n", {}, [("", 6, "slurm.export")]),
    "two-jobs.sh": (
        BASH + "torchrun --master-port 29501 a.py &\ntorchrun --master-port 29501 b.py &\nwait\n",
        {},
        [("", 3, "torch.port")],
    ),
    "loopback.env": ("NCCL_SOCKET_IFNAME=eth0,lo\n", {}, [("", 1, "env.ifname")]),
    "letter.env": ("A=1\nNCCL_IB_HCA=mlx5_O\n", {}, [("", 2, "env.ifname")]),
    "foreground.sh": (
        BASH + "".join(f"torchrun --nnodes 2 --node-rank {n} --master-addr node0 a.py\n" for n in (0, 1)),
        {},
        [("", 2, "torch.node-rank")],
    ),
    "one-gpu.sbatch": (
        EIGHT + HEAD + "export CUDA_VISIBLE_DEVICES=0\nsrun python train.py\n",
        {},
        [("", 6, "env.cuda-devices")],
    ),
    "docker.sh": (
        BASH
        + "docker run --gpus all --ipc host image torchrun --nnodes 2 --node-rank 0 --master-addr n0 a\n",
        {},
        [("", 2, "container.network")],
    ),
    "unit.sh": (
        BASH + ALONE.replace("localhost", "node0").replace("train.py", "--rdzv-conf timeout=30m train.py"),
        {},
        [("", 2, "torch.nproc")],
    ),
    "contradiction.sh": (
        BASH + "export NCCL_IB_DISABLE=1\nexport NCCL_IB_HCA=mlx5_0\ntorchrun a.py\n",
        {},
        [("", 2, "env.contradiction")],
    ),
    "port.sbatch": (
        EIGHT + HEAD + "export MASTER_PORT=$((SLURM_JOBID % 16384 + 49152))\nsrun python train.py\n",
        {},
        [("", 6, "env.port-ephemeral")],
    ),
    "gid.sh": (BASH + "export NCCL_IB_GID_INDEX=3\ntorchrun train.py\n", {}, [("", 2, "env.ifname-guess")]),
    "shebang.sbatch": ("#!/bin/bsh\n#SBATCH --nodes=2\nsrun hostname\n", {}, [("", 1, "slurm.shebang")]),
    "shebang.sh": ("#!/usr/bin/bin/bash\ntorchrun train.py\n", {}, [("", 1, "slurm.shebang")]),
    "placeholder.sh": (
        BASH + 'torchrun --nnodes 2 --node-rank "$1" --master-addr YOUR_MASTER_IP train.py\n',
        {},
        [("", 2, ENDPOINT)],
    ),
    "placeholder.env": ("MASTER_ADDR=<master_ip>\n", {}, [("", 1, "env.address")]),
    "digits.sh": (BASH + "torchrun --nproc-per-node \uff18 train.py\n", {}, [("", 2, "shell.dash")]),
    "quotes.sh": (BASH + "torchrun --role \u201ctrain\u201d train.py\n", {}, [("", 2, "shell.dash")]),
    "address.py": (
        PYTHON + 'os.environ["MASTER_ADDR"] = "localhost"\ndist.init_process_group("nccl")\n',
        {},
        [("", 2, "python.rendezvous")],
    ),
    "rank.py": (
        PYTHON + 'dist.init_process_group("gloo", rank=0, world_size=2)\n',
        {},
        [("", 2, "python.rendezvous")],
    ),
    "timeout.py": (
        PYTHON + 'dist.init_process_group("gloo", timeout=1800)\n',
        {},
        [("", 2, "python.rendezvous")],
    ),
    "device.py": (
        PYTHON + 'dist.init_process_group("nccl")\nx = torch.ones(1).cuda()\n',
        {},
        [("", 3, "python.device")],
    ),
    "global.py": (
        PYTHON + 'rank = int(os.environ["RANK"])\ntorch.cuda.set_device(rank)\n',
        {},
        [("", 3, "python.device")],
    ),
    "barrier.py": (
        PYTHON + 'dist.init_process_group("nccl")\ndist.barrier()\ntorch.cuda.set_device(local_rank)\n',
        {},
        [("", 3, "python.device")],
    ),
    "nodes.sbatch": (
        ONE + "srun python train.py\n",
        {"train.py": "import torch\nmodel = torch.nn.DataParallel(model)\n"},
        [("train.py", 2, "python.nodes")],
    ),
    "spawn.sbatch": (
        ONE + "srun python train.py\n",
        {"train.py": PYTHON + 'os.environ["MASTER_ADDR"] = "localhost"\nmp.spawn(f, nprocs=8)\n'},
        [("train.py", 2, "python.nodes")],
    ),
}

# The five that were called wrong, and others like what is found above.
RIGHT: dict[str, str] = {
    "quotes.sbatch": EIGHT
    + HEAD
    + "srun bash -c \"export MASTER_ADDR='$MASTER_ADDR'; RANK=\\$SLURM_PROCID python train.py\"\n",
    "script-in-variable.sh": BASH + "torchrun --nproc_per_node 8 $SCRIPT_FILE --num_gpus 8\n",
    "two-agents.sh": BASH
    + "".join(f"torchrun --nnodes 2 --node-rank {n} --master-addr localhost a.py &\n" for n in (0, 1))
    + "wait\n",
    "elastic.sh": BASH
    + "torchrun --nnodes=1:2 --rdzv_backend c10d --rdzv_endpoint=localhost:6000 train.py\n",
    "node-rank.sbatch": ONE
    + HEAD
    + "export NODE_RANK=$SLURM_NODEID\nsrun torchrun --nnodes 2 --nproc-per-node 8 "
    "--rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:29500 train.py\n",
    "export-all.sbatch": EIGHT + HEAD + "srun --export=ALL,NCCL_DEBUG=INFO python train.py\n",
    "ports.sh": BASH + "torchrun --master-port 29501 a.py\ntorchrun --master-port 29501 b.py\n",
    "disabled.sbatch": "#!/bin/bash\n#SBATCH -N 1\n##SBATCH -N 2\n# SBATCH --mem=8G\nsrun hostname\n",
    "branches.sh": BASH
    + "if [ $1 = ib ]; then\nexport NCCL_IB_HCA=mlx5_0\nelse\nexport NCCL_IB_DISABLE=1\nfi\n"
    "torchrun train.py\n",
    "hcas.env": "NCCL_IB_HCA=mlx5_bond_0,mlx5_ib1\nNCCL_SOCKET_IFNAME=^lo,docker0\n",
    "port.sbatch": EIGHT
    + HEAD
    + "export MASTER_PORT=$((SLURM_JOB_ID % 10000 + 20000))\nsrun python train.py\n",
    "shebang.sh": "#!/usr/bin/env bash\ntorchrun train.py\n",
    "parallel.py": "import torch\nmodel = torch.nn.DataParallel(model)\n",
    "spawn.py": PYTHON + "def work(rank, size):\n    os.environ['MASTER_ADDR'] = 'localhost'\n"
    "    dist.init_process_group('nccl', rank=rank, world_size=size)\n    torch.cuda.set_device(rank)\n"
    "torch.multiprocessing.spawn(work, args=(8,), nprocs=8)\n",
    "one.py": PYTHON + "os.environ['MASTER_ADDR'] = 'localhost'\nos.environ['WORLD_SIZE'] = '1'\n"
    "dist.init_process_group('gloo')\n",
    "default.py": PYTHON
    + "if 'MASTER_ADDR' not in os.environ:\n    os.environ['MASTER_ADDR'] = 'localhost'\n"
    "dist.init_process_group('gloo')\n",
    "part.py": PYTHON + "rank = int(os.environ['RANK'])\ntorch.cuda.set_device(rank % 8)\n",
    "sampled.py": PYTHON + "model = DDP(model)\nfor x in DataLoader(data[rank::8], shuffle=True):\n"
    "    model(x).backward()\n",
    # As alibaba's, NVlabs' and THUDM's files have them, of 1,142 shell and 382 Python files read in one go.
    "fallback.sbatch": ONE + HEAD + "N=${SLURM_JOB_GPUS_PER_NODE:-8}\nsrun torchrun --nproc-per-node $N "
    "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:29500 --rdzv-id 1 a.py\n",
    "given.py": PYTHON + "def join(rank, world_size, port):\n    os.environ['MASTER_ADDR'] = '127.0.0.1'\n"
    "    dist.init_process_group('gloo', rank=rank, world_size=world_size)\n",
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_found_on_its_line(name: str, tmp_path: Path) -> None:
    text, others, expected = CASES[name]
    for other, content in {name: text, **others}.items():
        (tmp_path / other).write_text(content)
    for given in ([], [str(tmp_path / other) for other in others]):
        found = lint([read(str(tmp_path / name), None, given=given)])
        shown = [(Path(one.path).name.replace(name, ""), one.position.line, one.rule) for one in found]
        assert shown == expected
        assert "\ue000" not in "".join(one.message + one.instead for one in found)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(RIGHT[name])
    assert lint([read(str(tmp_path / name), None)]) == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.sh", BASH + "torchrun a.py\nsrun bash run.sh\n", "a.sh:3: not read: run.sh, which srun starts"),
        ("b.sh", BASH + "source setup.sh\n", "b.sh:2: not read: setup.sh, which source starts"),
        ("c.sh", BASH + "torchrun a.py <x>\n", "c.sh:2: not read: the syntax here"),
        ("d.sh", BASH + "sbatch run.sbatch\n", "d.sh:2: not read: run.sbatch, which sbatch starts"),
        ("e.py", "def (\n", "e.py:1: not read: this is no Python that can be parsed"),
        ("f.yaml", "actor_rollout_ref.rollout.n: 2\n", "f.yaml:1: not read: actor_rollout_ref.rollout.n"),
    ],
)
def test_what_was_not_read_is_said(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    files = [read(str(tmp_path / name), None)]
    assert lint(files) == []
    (line,) = unread(files)
    assert words in line
    assert summary([], files) == "no findings in what was read of 1 file"


def test_an_ignore_in_a_started_file_counts(tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(ONE + "srun bash run.sh\n")
    (tmp_path / "run.sh").write_text(f"# netdoctor: ignore[torch.endpoint] tunnelled\n{ALONE}")
    assert lint([read(str(tmp_path / "job.sbatch"), None)]) == []


def test_a_script_that_starts_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(BASH + "bash b.sh\nbash b.sh\n")
    (tmp_path / "b.sh").write_text(BASH + "bash a.sh\nbash b.sh\nbash a.sh\n")
    assert lint([read(str(tmp_path / "a.sh"), None)]) == []


def test_a_file_that_is_given_and_started_is_judged_once(tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(ONE + "srun bash run.sh\n")
    (tmp_path / "run.sh").write_text(ALONE)
    paths = [str(tmp_path / name) for name in ("job.sbatch", "run.sh")]
    found = lint([read(path, None, given=paths) for path in paths])
    assert [(Path(one.path).name, one.rule) for one in found] == [("run.sh", ENDPOINT)]
