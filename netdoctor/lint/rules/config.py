"""Frameworks' configurations: devices, parallel sizes and batches that fit together."""

import re
from collections.abc import Iterable, Iterator
from math import prod

from netdoctor.lint.documents import Item
from netdoctor.lint.files import Config, Shell
from netdoctor.lint.launches import Launch
from netdoctor.lint.model import Found, Kind, Position, Severity, rule

VERL = "https://verl.readthedocs.io/en/latest/examples/config.html"
ROLL = "alibaba/ROLL roll/configs/worker_config.py, roll/distributed/scheduler/resource_manager.py"
NEMO = "NVIDIA/NeMo nemo/lightning/megatron_init.py, world_size % total_model_size"
NEMO_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
AXOLOTL = "axolotl-ai-cloud/axolotl src/axolotl/utils/schemas/validation.py, utils/distributed.py"
OPENRLHF = "OpenRLHF/OpenRLHF openrlhf/cli/train_ppo_ray.py train"
DS = "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters"
_RANGE = re.compile(r"list\(range\((\d{1,5})(?:,\s*(\d{1,5}))?\)\)")
_LIST = re.compile(r"\[\s*\d{1,5}\s*(?:,\s*\d{1,5}\s*)*(?:,\s*)?\]")
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
        ROLL makes len(device_mapping) / num_gpus_per_worker workers, and Megatron groups of tensor x
        pipeline x context of them. Numbers that do not divide end with an assertion.
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
                mapping.position,
                f"{name}: {len(found)} devices are not divided by {each} for each worker",
                "a multiple",
            )
        yield from _strategy(name, worker, mapping, len(found) // (each or 1))


@rule(Severity.NOTE, Config, Kind.ROLL, "alibaba/ROLL roll/configs/base_config.py, the required num nodes")
def cfg_nodes(config: Config) -> Iterator[Found]:
    """num_nodes says how many nodes the device mappings name.

    What happens:
        ROLL takes the number of nodes from the highest device and ignores num_nodes: the job waits for
        nodes that the file does not list.
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
            needed = max(found) // per_node + 1
            yield Found(
                mapping.position,
                f"{name}: device {max(found)} lies on node {needed} of {nodes}: ROLL waits for {needed} "
                "nodes, whatever num_nodes says",
                f"num_nodes: {needed}",
            )
            return


def _mappings(config: Config) -> Iterator[tuple[Item, str, Item, Item, list[int]]]:
    """(document, worker's name, worker, its mapping, the devices) of a ROLL configuration."""
    for document in config.documents_of(Kind.ROLL):
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
            mapping.position,
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
    for document in config.documents_of(Kind.VERL):
        nodes = document.number_at("trainer", "nnodes")
        gpus = document.number_at("trainer", "n_gpus_per_node")
        tensor = document.get("actor_rollout_ref", *TENSOR.split("."))
        if tensor is not None:
            yield from _tensor(tensor.number, nodes, gpus, tensor.position)


def _tensor(tensor: int | None, nodes: int | None, gpus: int | None, position: Position) -> Iterator[Found]:
    if tensor and nodes and gpus and nodes * gpus % tensor:
        yield Found(
            position,
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
    for launch in shell.launches_of("python"):
        numbers, positions = _dotted(launch)
        nodes, gpus = numbers.get("trainer.nnodes"), numbers.get("trainer.n_gpus_per_node")
        if (tensor := f"actor_rollout_ref.{TENSOR}") in numbers:
            yield from _tensor(numbers[tensor], nodes, gpus, positions[tensor])


def _dotted(launch: Launch) -> tuple[dict[str, int], dict[str, Position]]:
    """Numbers that are given as ``trainer.nnodes=2``, and where."""
    numbers: dict[str, int] = {}
    positions: dict[str, Position] = {}
    for word in launch.rest:
        name, _, text = (word.text or "").lstrip("+").partition("=")
        if text.isdecimal() and len(text) < 7:
            numbers[name], positions[name] = int(text), word.position
    return numbers, positions


@rule(Severity.ERROR, Config, Kind.NEMO, NEMO)
def cfg_nemo(config: Config) -> Iterator[Found]:
    """Tensor, pipeline and context parallel sizes of NeMo divide its devices.

    What happens:
        Every rank ends with an assertion: the world size is no multiple of their product.
    Write instead:
        Sizes whose product divides trainer.devices times trainer.num_nodes.
    Wrong:
        trainer:
          devices: 8
          num_nodes: 2
        model:
          tensor_model_parallel_size: 4
          pipeline_model_parallel_size: 3
    Right:
        trainer:
          devices: 8
          num_nodes: 2
        model:
          tensor_model_parallel_size: 4
          pipeline_model_parallel_size: 2
    """
    for document in config.documents_of(Kind.NEMO):
        sizes = {name: document.get("model", name) for name in NEMO_SIZES}
        known = {name: item.number for name, item in sizes.items() if item is not None and item.number}
        last = next((sizes[name] for name in reversed(known)), None)
        world = (document.number_at("trainer", "devices"), document.number_at("trainer", "num_nodes"))
        if last is not None:
            yield from _divided(known.values(), world, last.position)


@rule(Severity.ERROR, Shell, Kind.SHELL, NEMO)
def cfg_nemo_line(shell: Shell) -> Iterator[Found]:
    r"""NeMo's sizes on the command line fit together.

    What happens:
        As in cfg.nemo: every rank ends with an assertion.
    Write instead:
        Sizes whose product divides trainer.devices times trainer.num_nodes.
    Wrong:
        srun python megatron_gpt_pretraining.py trainer.devices=8 trainer.num_nodes=2 \
            model.tensor_model_parallel_size=8 model.pipeline_model_parallel_size=4
    Right:
        srun python megatron_gpt_pretraining.py trainer.devices=8 trainer.num_nodes=2 \
            model.tensor_model_parallel_size=8 model.pipeline_model_parallel_size=2
    """
    for launch in shell.launches_of("python"):
        numbers, positions = _dotted(launch)
        names = [f"model.{name}" for name in NEMO_SIZES if f"model.{name}" in numbers]
        if names:
            world = (numbers.get("trainer.devices"), numbers.get("trainer.num_nodes"))
            yield from _divided([numbers[name] for name in names], world, positions[names[-1]])


def _divided(
    sizes: Iterable[int], world: tuple[int | None, int | None], position: Position
) -> Iterator[Found]:
    devices, nodes = world
    product = prod(sizes)
    # One device is what files have whose devices are given on the command line.
    if devices and nodes and devices * nodes > 1 and product and devices * nodes % product:
        yield Found(
            position,
            f"{devices} x {nodes} = {devices * nodes} devices are not divided by {product}: every rank ends",
            f"sizes whose product divides {devices * nodes}",
        )


@rule(Severity.ERROR, Shell, Kind.SHELL, OPENRLHF)
def cfg_openrlhf(shell: Shell) -> Iterator[Found]:
    r"""OpenRLHF's engines take as many GPUs as the actor they share them with.

    What happens:
        With --train.colocate_all (once --colocate_all_models) and without async training the job ends with
        an assertion: actor nodes x GPUs has to be engines x tensor parallel size.
    Write instead:
        As many engines as the actor has GPUs, divided by the tensor parallel size.
    Wrong:
        python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
            --vllm.num_engines 8 --vllm.tensor_parallel_size 2 --train.colocate_all
    Right:
        python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
            --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.colocate_all
    """
    for launch in shell.launches_of("python"):
        texts = [word.text or "" for word in launch.rest]
        if not any(text.startswith("openrlhf.") for text in texts[:2]):
            continue
        # Once ``--actor_num_nodes``, now ``--actor.num_nodes``.
        names = [text.lstrip("-").replace("_", ".", 0 if "." in text else 1) for text in texts]
        if not {"train.colocate_all", "colocate.all_models"} & {*names} or any("async" in n for n in names):
            continue
        found = {name: word.value.number for name, word in zip(names, launch.rest[1:], strict=False)}
        nodes, gpus = found.get("actor.num_nodes", 1), found.get("actor.num_gpus_per_node", 8)
        engines, tensor = found.get("vllm.num_engines"), found.get("vllm.tensor_parallel_size", 1)
        if nodes and gpus and engines and tensor and nodes * gpus != engines * tensor:
            yield Found(
                launch.rest[names.index("vllm.num_engines")].position,
                f"{engines} engines x {tensor} GPUs, and the actor they share has {nodes} x {gpus}: the job "
                "ends with an assertion",
                "engines x tensor parallel size = nodes x GPUs of the actor",
            )


@rule(Severity.ERROR, Config, Kind.AXOLOTL, AXOLOTL)
def cfg_axolotl(config: Config) -> Iterator[Found]:
    """Batch sizes and ways of sharding in a configuration of axolotl go together.

    What happens:
        axolotl ends when it reads the file, on every rank: deepspeed does not go with fsdp, batch_size
        stands for gradient_accumulation_steps, dp_shard_size needs fsdp_config, and packed samples
        over a context_parallel_size come one at a time.
    Write instead:
        One of the two; with context_parallel_size and sample_packing a micro_batch_size of 1.
    Wrong:
        base_model: meta-llama/Llama-3.1-8B
        sequence_len: 8192
        micro_batch_size: 2
        gradient_accumulation_steps: 4
        batch_size: 64
    Right:
        base_model: meta-llama/Llama-3.1-8B
        sequence_len: 8192
        micro_batch_size: 2
        gradient_accumulation_steps: 4
    """
    for document in config.documents_of(Kind.AXOLOTL):
        for one, other in (("deepspeed", "fsdp"), ("batch_size", "gradient_accumulation_steps")):
            first, second = document.get(one), document.get(other)
            if first is not None and _is_set(first) and _is_set(second):
                yield Found(first.position, f"{one} and {other}: axolotl ends", f"one of {one} and {other}")
        shard = document.get("dp_shard_size")
        is_fsdp = _is_set(document.get("fsdp")) or _is_set(document.get("fsdp_config"))
        if shard is not None and (shard.number or 0) > 1 and not is_fsdp:
            text = f"dp_shard_size: {shard.number} without fsdp_config: axolotl ends"
            yield Found(shard.position, text, "an fsdp_config")
        context = max(
            document.number_at(n) or 1 for n in ("context_parallel_size", "sequence_parallel_degree")
        )
        micro = document.get("micro_batch_size")
        is_packed = _is_set(document.get("sample_packing"))
        if micro is not None and context > 1 and is_packed and (micro.number or 0) > 1:
            text = f"{micro.number} packed samples at once over {context} ranks of a sequence: axolotl ends"
            yield Found(micro.position, text, "micro_batch_size: 1")


def _is_set(item: Item | None) -> bool:
    """Whether Python takes a value for true."""
    if item is None:
        return False
    if item.text is None:
        return bool(item.pairs() or item.list())
    if item.tag in ("null", "bool"):
        return item.text.lower() in ("true", "yes", "on")
    return item.text not in ("", "0")


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
    for document in config.documents_of(Kind.DEEPSPEED):
        total = document.get("train_batch_size")
        micro = document.number_at("train_micro_batch_size_per_gpu")
        steps = document.number_at("gradient_accumulation_steps")
        if total is not None and total.number and micro and steps and total.number % (micro * steps):
            yield Found(
                total.position,
                f"{total.number} is not a multiple of {micro} x {steps}: it fits no number of ranks, and "
                "DeepSpeed ends",
                "leave one of the three out",
            )
