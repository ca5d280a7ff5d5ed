"""Parallel sizes on a command line against the processes that it starts."""

from collections.abc import Iterator

from netdoctor.lint.files import Shell
from netdoctor.lint.launches import TORCH, Launch
from netdoctor.lint.model import Found, Kind, Severity, rule
from netdoctor.lint.rules.torch import nodes_of
from netdoctor.lint.values import Word

MEGATRON = "NVIDIA/Megatron-LM megatron/core/parallel_state.py initialize_model_parallel"
SIZES = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")


def _sizes(launch: Launch) -> dict[str, tuple[int, Word]] | None:
    """Megatron's sizes among the script's options; None where one cannot be known."""
    found: dict[str, tuple[int, Word]] = {}
    for index, word in enumerate(launch.rest):
        name, equals, text = word.value.head.partition("=")
        bare = name.lstrip("-").replace("_", "-")
        if not name.startswith("--") or bare not in SIZES:
            continue
        number = (int(text) if text.isdecimal() and word.text else None) if equals else None
        if not equals and index + 1 < len(launch.rest):
            number = launch.rest[index + 1].value.number
        if number is None:
            return None
        found[bare] = (number, word)
    return found


def _world(launch: Launch, shell: Shell) -> tuple[int, int] | None:
    """(nodes, processes on each) of a launch."""
    if launch.program in TORCH:
        nodes, each = nodes_of(launch), launch.number("nproc-per-node")
        return (nodes, each) if nodes and each and ":" not in str(launch.get("nnodes") or "") else None
    here = shell.step_of(launch) if launch.program == "python" else None
    return (here.nodes, here.per_node) if here is not None and here.nodes and here.per_node else None


@rule(Severity.ERROR, Shell, Kind.SHELL, MEGATRON)
def cfg_parallel(shell: Shell) -> Iterator[Found]:
    r"""Tensor, pipeline and context parallel sizes divide the processes.

    What happens:
        Megatron ends on every rank: "world size is not divisible by" their product.
    Write instead:
        Sizes whose product divides nodes times processes on each.
    Wrong:
        torchrun --nnodes 1 --nproc-per-node 8 pretrain.py \
            --tensor-model-parallel-size 4 --pipeline-model-parallel-size 3
    Right:
        torchrun --nnodes 1 --nproc-per-node 8 pretrain.py \
            --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2
    """
    for launch in shell.launches:
        sizes, world = _sizes(launch), _world(launch, shell)
        if not sizes or world is None:
            continue
        nodes, each = world
        product = 1
        for number, _ in sizes.values():
            product *= number
        last = list(sizes.values())[-1][1]
        if product and nodes * each % product:
            terms = " x ".join(str(number) for number, _ in sizes.values())
            terms += f" = {product}" if len(sizes) > 1 else ""
            yield Found(
                last.position,
                f"{nodes} x {each} = {nodes * each} processes are not divided by {terms}: every rank ends",
                f"sizes whose product divides {nodes * each}",
            )


@rule(Severity.NOTE, Shell, Kind.SHELL, MEGATRON)
def cfg_tensor_nodes(shell: Shell) -> Iterator[Found]:
    r"""A tensor parallel group stays on one node.

    What happens:
        Each layer sums over the group, twice a pass. Beyond a node those sums go over the network, which is
        ten times slower than NVLink.
    Write instead:
        --tensor-model-parallel-size no larger than --nproc-per-node, and pipeline parallel across nodes.
    Wrong:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29500 pretrain.py \
            --tensor-model-parallel-size 16
    Right:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29500 pretrain.py \
            --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2
    """
    for launch in shell.launches:
        sizes, world = _sizes(launch), _world(launch, shell)
        tensor = sizes.get(SIZES[0]) if sizes else None
        if (
            tensor is not None
            and world is not None
            and world[0] * world[1] % tensor[0] == 0 < world[1] < tensor[0]
        ):
            yield Found(
                tensor[1].position,
                f"tensor parallel {tensor[0]} is more than the {world[1]} processes of a node: each layer's "
                "sums cross the network",
                f"at most {world[1]}",
            )
