"""80 mistakes, each in the six forms in which people write them: found in at least nine of ten of each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from netdoctor.lint.engine import lint
from netdoctor.lint.files import read

LAUNCH = (
    "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-id job --rdzv-backend c10d --rdzv-endpoint node0:29500 "
    "train.py"
)
STATIC = (
    "torchrun --nnodes 2 --nproc-per-node 8 --node-rank {} --master-addr node0 --master-port 29500 train.py"
)
HEAD = "#!/bin/bash\n"
BATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"


class Mistake(NamedTuple):
    """A variable that is set, or a launch, and the rule that it breaks."""

    rule: str
    name: str = ""
    value: str = ""
    launch: str = LAUNCH


def variables(rule: str, text: str) -> list[Mistake]:
    return [Mistake(rule, *word.split("=", 1)) for word in text.split()]


def launches(rule: str, *changes: tuple[str, str]) -> list[Mistake]:
    return [Mistake(rule, launch=LAUNCH.replace(*change)) for change in changes]


MISTAKES = [
    *variables(
        "env.unknown-name",
        "NCCL_SOCKET_IFNAM=eth0 NCCL_DEBG=INFO NCCL_IB_HCAS=mlx5 NCCL_IB_GID_IDX=3 NCCL_P2P_DISABLED=1 "
        "GLOO_SOCKET_IFNAMES=eth0 NCC_DEBUG=INFO NCCL_IB_TIMEOUTS=22 NCCL_NET_GDR_LVL=PHB "
        "TORCH_NCCL_BLOCKING_WAITS=1 TORCH_DISTRIBUTED_DEBG=DETAIL NCCL_SOCKET_NTHREAD=4 NCCL_ALGOS=Ring "
        "CUDA_VISIBLE_DEVICE=0,1 CUDA_LAUNCH_BLOCKNG=1 MASTER_ADRR=node0 MASTER_PROT=29500 OMP_NUM_THREAD=8 "
        "UCX_NET_DEVICE=mlx5_0:1 PYTORCH_CUDA_ALLOC_CONFIG=expandable_segments:True NCCL_CROSS_NICS=1 "
        "NCCL_SHM_DISABLED=1 NCCL_IB_DISABLED=1 NCCL_MIN_NCHANEL=4 TORCH_NCCL_TRACE_BUFFER=2000 "
        "NCCL_IB_QPS_PER_CONN=4 GLOO_SOCKET_INAME=eth0 NCCL_SOCKET_IFACE=eth0 "
        "TORCH_NCCL_ASYNC_ERROR_HANDLNG=1 NCCL_BUFSIZE=8388608",
    ),
    *variables(
        "env.word",
        "NCCL_DEBUG=DEBUG NCCL_DEBUG=YES TORCH_DISTRIBUTED_DEBUG=FULL NCCL_NET_GDR_LEVEL=NEAR "
        "NCCL_P2P_LEVEL=NVLINK NCCL_PROTO=LL256 NCCL_ALGO=Rings NCCL_SOCKET_FAMILY=ipv4",
    ),
    *variables(
        "env.number",
        "NCCL_IB_TIMEOUT=abc NCCL_BUFFSIZE=4M NCCL_IB_GID_INDEX=auto NCCL_IB_TC=high NCCL_IB_DISABLE=true "
        "NCCL_P2P_DISABLE=yes",
    ),
    *variables("env.port", "MASTER_PORT=99999 MASTER_PORT=tcp MASTER_PORT=29500.0"),
    *variables("env.port-ephemeral", "MASTER_PORT=45000"),
    *variables(
        "env.ifname",
        "NCCL_SOCKET_IFNAME=127.0.0.1 NCCL_SOCKET_IFNAME=mlx5_0 NCCL_IB_HCA=eth0 NCCL_IB_HCA=mlx5_O "
        "GLOO_SOCKET_IFNAME=10.0.0.1 GLOO_SOCKET_IFNAME=^docker0 NCCL_SOCKET_IFNAME==^eth0",
    ),
    *variables("env.address", "MASTER_ADDR=http://node0 MASTER_ADDR=node0:29500"),
    *variables("env.old-name", "NCCL_ASYNC_ERROR_HANDLING=1 NCCL_BLOCKING_WAIT=1"),
    *launches(
        "torch.endpoint",
        ("node0:29500", "localhost:29500"), ("node0:29500", "127.0.0.1:29500"),
        ("node0:29500", "0.0.0.0:29500"), ("node0:29500", "<master-ip>:29500"), ("29500", "99999"),
        (" --rdzv-endpoint node0:29500", ""),
    ),
    *launches(
        "torch.option",
        ("--nproc-per-node", "--nprocs-per-node"), ("--rdzv-id", "--rdzv-idd"),
        ("--rdzv-backend", "--rdzv-backends"), ("--rdzv-endpoint", "--rdzv-endpoints"),
        ("--nnodes", "--num-nodes"), ("--nproc-per-node", "--num-processes"),
    ),
    *launches("torch.nproc", ("node 8", "node 0"), ("node 8", "node all")),
    *launches("torch.backend", ("c10d", "nccl"), ("c10d", "gloo")),
    *launches("torch.standalone", ("--nnodes 2", "--nnodes 2 --standalone")),
    *launches("torch.python", ("train.py", "python train.py")),
    *launches("torch.rdzv-id", ("id job", "id $RANDOM")),
    Mistake("torch.node-rank", launch=STATIC.format(2)),
    Mistake("torch.behind-script", launch="torchrun train.py --nnodes 2 --rdzv-endpoint node0:29500"),
]  # fmt: skip


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def forms(one: Mistake) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(name of the form, the script, files others it)."""
    name, value, launch = one.name, one.value, one.launch
    words = f"{name}={quoted(value)} {launch}" if name else launch
    plain = HEAD + (f"export {name}={quoted(value)}\n" if name else "") + launch + "\n"
    yield "plain", plain, {}
    yield "bash -c", BATCH + f"srun bash -c {quoted(words)}\n", {}
    yield "started file", BATCH + "srun bash run.sh\n", {"run.sh": plain}
    if name:
        given = f'"{value}"' if "," in value else value
        yield "option", BATCH + f"srun --export={quoted(f'ALL,{name}={given}')} {launch}\n", {}
        yield "variable", HEAD + f"VALUE={quoted(value)}\nexport {name}=$VALUE\n{launch}\n", {}
        env = quoted(json.dumps({"env_vars": {name: value}}))
        yield "Ray", HEAD + f"ray job submit --runtime-env-json {env} -- {launch}\n", {}
    else:
        yield "option", HEAD + f"for h in node0 node1; do ssh $h {quoted(launch)} & done; wait\n", {}
        yield "variable", HEAD + f"LAUNCH={quoted(launch)}\n$LAUNCH\n", {}
        yield "Ray", HEAD + f"ray job submit --address http://node0:8265 -- bash -c {quoted(launch)}\n", {}


def rules_of(folder: Path, text: str, others: dict[str, str]) -> set[str]:
    folder.mkdir()
    path = folder / ("job.sbatch" if "#SBATCH" in text else "job.sh")
    for name, content in {path.name: text, **others}.items():
        (folder / name).write_text(content)
    return {found.rule for found in lint([read(str(path), None)])}


def test_nine_of_ten_are_found_in_each_form(tmp_path: Path) -> None:
    assert len(MISTAKES) == 80
    missed: dict[str, list[Mistake]] = {}
    for number, one in enumerate(MISTAKES):
        for form, text, others in forms(one):
            rules = rules_of(tmp_path / f"{number} {form}", text, others)
            missed.setdefault(form, [])
            if one.rule not in rules:
                missed[form].append(one)
    assert len(missed) == 6
    for form, ones in missed.items():
        assert len(ones) <= 8, (form, ones)


@pytest.mark.parametrize(
    "right",
    [
        *variables("", "NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0,mlx5_1 MASTER_PORT=29501"),
        *variables("", "TORCH_DISTRIBUTED_DEBUG=detail OMP_NUM_THREADS=8 TORCH_NCCL_TRACE_CPP_STACK=1"),
        *variables("", "OUR_OWN_THREADS=8 TORCH_HOME=/data CUDA_HOME=/usr/local/cuda OMP_DISPLAY_ENV=true"),
        *variables("", "UCX_TLS=rc UCX_NET_DEVICES=mlx5_0:1 NCCL_IB_QPS_PER_CONNECTION=4"),
        Mistake(""),
    ],
)
def test_what_is_right_is_left_alone_in_each_form(right: Mistake, tmp_path: Path) -> None:
    for form, text, others in forms(right):
        assert rules_of(tmp_path / form, text, others) <= {"env.ifname-guess"}, form
