"""Frameworks' configurations: devices, parallel sizes and batches that fit together."""

import re
from collections.abc import Iterator

from netdoctor.lint.documents import Item
from netdoctor.lint.files import Config, Shell
from netdoctor.lint.model import Found, Kind, Place, Severity, rule
from netdoctor.lint.values import Word

VERL = "https://verl.readthedocs.io/en/latest/examples/config.html"
ROLL = "alibaba/ROLL roll/configs/worker_config.py, roll/distributed/scheduler/resource_manager.py"
DS = "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters"
_RANGE = re.compile(r"list\(range\((\d{1,5})(?:,\s*(\d{1,5}))?\)\)")
_LIST = re.compile(r"\[\s*\d{1,5}(?:\s*,\s*\d{1,5})*\s*,?\s*\]")
TENSOR = "rollout.tensor_model_parallel_size"


def devices(text: str) -> list[int] | None:
    """The numbers of a ROLL device_mapping: ``list(range(0,8))``, ``[0,1]``, and sums of those."""
    found: list[int] = []
    for part in text.split("+"):
        if match := _RANGE.fullmatch(part.strip()):
            low, high = (int(match[1]), int(match[2])) if match[2] else (0, int(match[1]))
            found += range(low, min(high, low + 65536))
        elif _LIST.fullmatch(part.strip()):
            found += [int(n) for n in re.findall(r"\d+", part)]
        else:
            return None
    return found


@rule(Severity.ERROR, Config, Kind.ROLL, ROLL)
def cfg_devices(config: Config) -> Iterator[Found]:
    """Workers and parallel sizes divide the devices that they are mapped to.

    What happens:
        ROLL makes len(device_mapping) / num_gpus_per_worker workers, and Megatron groups of tensor x pipeline
        x context of them. What does not divide ends with an assertion.
    Write instead:
        A mapping whose length is a multiple of both.
    Wrong:
        num_gpus_per_node: 8
        actor_infer:
          device_mapping: list(range(0,6))
          num_gpus_per_worker: 4
    Right:
        num_gpus_per_node: 8
        actor_infer:
          device_mapping: list(range(0,8))
          num_gpus_per_worker: 4
    """
    for _, name, worker, mapping, found in _mappings(config):
        each = worker.number_at("num_gpus_per_worker")
        if each and len(found) % each:
            yield Found(
                mapping.place,
                f"{name}: {len(found)} devices are not divided by {each} for each worker",
                "a multiple",
            )
        yield from _strategy(name, worker, mapping, len(found) // (each or 1))


@rule(Severity.NOTE, Config, Kind.ROLL, "alibaba/ROLL roll/configs/base_config.py, the required num nodes")
def cfg_nodes(config: Config) -> Iterator[Found]:
    """num_nodes says how many nodes the device mappings name.

    What happens:
        ROLL works the number of nodes out of the highest device, and does not heed num_nodes: the job waits
        for nodes that the file does not speak of.
    Write instead:
        num_nodes as the mappings have it, or mappings that end earlier.
    Wrong:
        num_gpus_per_node: 8
        num_nodes: 1
        actor_train:
          device_mapping: list(range(0,16))
    Right:
        num_gpus_per_node: 8
        num_nodes: 2
        actor_train:
          device_mapping: list(range(0,16))
    """
    for document, name, _, mapping, found in _mappings(config):
        per_node, nodes = document.number_at("num_gpus_per_node"), document.number_at("num_nodes")
        if per_node and nodes and max(found) >= per_node * nodes:
            wanted = max(found) // per_node + 1
            yield Found(
                mapping.place,
                f"{name}: device {max(found)} lies on node {wanted} of {nodes}: ROLL waits for {wanted} "
                "nodes, whatever num_nodes says",
                f"num_nodes: {wanted}",
            )
            return


def _mappings(config: Config) -> Iterator[tuple[Item, str, Item, Item, list[int]]]:
    """(document, worker's name, worker, its mapping, the devices) of a ROLL configuration."""
    for document in config.documents if config.kind is Kind.ROLL else ():
        for name, worker in document.pairs():
            mapping = worker.get("device_mapping")
            found = devices(mapping.text) if mapping is not None and mapping.text else None
            if mapping is not None and found:
                yield document, name, worker, mapping, found


def _strategy(name: str, worker: Item, mapping: Item, ranks: int) -> Iterator[Found]:
    sizes = worker.get("strategy_args", "strategy_config")
    if sizes is None or worker.text_at("strategy_args", "strategy_name") != "megatron_train":
        return
    product = 1
    for key in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
        product *= sizes.number_at(key) or 1
    if ranks % product:
        yield Found(
            mapping.place,
            f"{name}: {ranks} ranks are not divided by tensor x pipeline x context = {product}",
            "a multiple",
        )


@rule(Severity.ERROR, Config, Kind.VERL, VERL)
def cfg_verl(config: Config) -> Iterator[Found]:
    """The rollout's tensor parallel size divides the GPUs of the job.

    What happens:
        verl makes groups of that many GPUs for the rollout; what does not divide ends with an assertion after
        the models have been loaded.
    Write instead:
        A divisor of nnodes times n_gpus_per_node.
    Wrong:
        trainer:
          nnodes: 2
          n_gpus_per_node: 8
        actor_rollout_ref:
          rollout:
            tensor_model_parallel_size: 3
    Right:
        trainer:
          nnodes: 2
          n_gpus_per_node: 8
        actor_rollout_ref:
          rollout:
            tensor_model_parallel_size: 4
    """
    if config.kind is not Kind.VERL:
        return
    for document in config.documents:
        nodes, gpus = (
            document.number_at("trainer", "nnodes"),
            document.number_at("trainer", "n_gpus_per_node"),
        )
        tensor = document.get("actor_rollout_ref", "rollout", "tensor_model_parallel_size")
        if tensor is not None and tensor.number and nodes and gpus:
            yield from _tensor(tensor.number, nodes, gpus, tensor.place)


def _tensor(tensor: int, nodes: int, gpus: int, place: Place) -> Iterator[Found]:
    if nodes * gpus % tensor:
        yield Found(
            place,
            f"tensor parallel {tensor} does not divide {nodes} x {gpus} = {nodes * gpus} GPUs: the job ends "
            "with an assertion",
            f"a divisor of {nodes * gpus}",
        )


@rule(Severity.ERROR, Shell, Kind.SHELL, VERL)
def cfg_verl_line(shell: Shell) -> Iterator[Found]:
    r"""verl's options on the command line fit together.

    What happens:
        As in cfg.verl: what does not divide ends with an assertion after the models have been loaded.
    Write instead:
        A divisor of trainer.nnodes times trainer.n_gpus_per_node.
    Wrong:
        python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 \
            actor_rollout_ref.rollout.tensor_model_parallel_size=3
    Right:
        python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 \
            actor_rollout_ref.rollout.tensor_model_parallel_size=2
    """
    for launch in shell.launches:
        if launch.program != "python":
            continue
        given: dict[str, tuple[int, Word]] = {}
        for word in launch.rest:
            name, equals, text = (word.text or "").partition("=")
            if equals and text.isdecimal() and len(text) < 7:
                given[name.lstrip("+")] = (int(text), word)
        nodes, gpus = given.get("trainer.nnodes"), given.get("trainer.n_gpus_per_node")
        tensor = given.get(f"actor_rollout_ref.{TENSOR}")
        if nodes and gpus and tensor and nodes[0] and gpus[0] and tensor[0]:
            yield from _tensor(tensor[0], nodes[0], gpus[0], tensor[1].place)


@rule(Severity.ERROR, Config, Kind.DEEPSPEED, DS)
def cfg_batch(config: Config) -> Iterator[Found]:
    """DeepSpeed's batch sizes multiply out.

    What happens:
        train_batch_size has to be the micro batch times the accumulation steps times the ranks. Where it is
        no multiple of the first two no number of ranks fits: "Check batch related parameters".
    Write instead:
        Two of the three; DeepSpeed works the third out.
    Wrong:
        {"train_batch_size": 100, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}
    Right:
        {"train_batch_size": 128, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}
    """
    if config.kind is not Kind.DEEPSPEED:
        return
    for document in config.documents:
        whole = document.get("train_batch_size")
        micro = document.number_at("train_micro_batch_size_per_gpu")
        steps = document.number_at("gradient_accumulation_steps")
        if whole is not None and whole.number and micro and steps and whole.number % (micro * steps):
            yield Found(
                whole.place,
                f"{whole.number} is no multiple of {micro} x {steps}: it fits no number of ranks, and "
                "DeepSpeed ends",
                "leave one of the three out",
            )
