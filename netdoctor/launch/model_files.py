"""What a model's and a launcher's own files say of memory: names and values as `plan --fit` takes them.

Keys: https://huggingface.co/docs/transformers/main_classes/configuration,
https://www.deepspeed.ai/docs/config-json/, https://huggingface.co/docs/accelerate/usage_guides/fsdp,
https://huggingface.co/docs/transformers/main_classes/trainer (also of TRL, LLaMA-Factory and axolotl, which
write it as YAML), and Megatron-LM's arguments.py.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from netdoctor.errors import InputError
from netdoctor.files import read_regular, reason
from netdoctor.text import clean

MOST_BYTES = 1024**2
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "no": "fp32"}
_DTYPES |= {name: name for name in ("fp32", "bf16", "fp16", "fp8")}
_HALVES = ("fp16", "bf16")
# By sharding strategy, as a word or as FSDP 1 counts them.
_FSDP = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "1": 3, "2": 2, "3": 0}
HYBRID = "shards inside a node"
_HYBRID = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5")
_SIZES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "vocab": ("vocab_size",),
}
_TRAINING = {
    "micro": ("train_micro_batch_size_per_gpu", "per_device_train_batch_size", "micro_batch_size"),
    "seq": ("cutoff_len", "sequence_len", "max_seq_length", "max_length"),
}
_MEGATRON = {
    "layers": "num-layers", "hidden": "hidden-size", "heads": "num-attention-heads", "seq": "seq-length",
    "micro": "micro-batch-size", "tp": "tensor-model-parallel-size", "pp": "pipeline-model-parallel-size",
}  # fmt: skip
_FUSED = ("flash_attention_2", "flash_attention_3", "sdpa", "fa2", "fa3")
# Models whose weights are counted here: attention with or without biases, a gated MLP.
_LLAMA = {"llama": 0, "mistral": 0, "qwen2": 1}


def read(path: str) -> dict[str, str]:
    """``{"layers": "32", "dtype": "bf16"}`` of a file; ``also`` is a file that it names, and ``zero`` may be
    HYBRID. Raises InputError where nothing in it is about memory."""
    try:
        content = read_regular(path, MOST_BYTES)
        if len(content) > MOST_BYTES:
            raise ValueError("larger than 1 MiB")
        text = content.decode()
    except (OSError, ValueError) as error:
        raise InputError(f"--fit {clean(path, 200)}: {reason(error)}") from None
    found = _megatron(text) if Path(path).suffix in (".sh", ".slurm", ".sbatch") else _of_keys(path, text)
    if not found:
        what = "a model's config.json, a DeepSpeed, accelerate or trainer configuration, or Megatron's script"
        raise InputError(f"--fit {clean(path, 200)}: nothing in it is about memory; expected {what}")
    return {name: str(value) for name, value in found.items()}


def _of_keys(path: str, text: str) -> dict[str, Any]:
    import yaml

    is_yaml = Path(path).suffix in (".yaml", ".yml")
    try:
        data = yaml.safe_load(text) if is_yaml else json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"--fit {clean(path, 200)}: line {error.lineno}: not JSON: {error.msg}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"--fit {clean(path, 200)}: {where}not YAML") from None
    except (ValueError, RecursionError):
        raise InputError(f"--fit {clean(path, 200)}: cannot be read") from None
    if not isinstance(data, dict):
        return {}
    readers: tuple[Callable[[Mapping[str, Any]], dict[str, Any]], ...] = (_model, _trainer, _deepspeed, _fsdp)
    found: dict[str, Any] = {}
    for reader in readers:
        found |= reader(data)
    return found


def _number(data: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these that is a whole number above 0; ``auto`` is none."""
    for name in names:
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _numbers(data: Mapping[str, Any], table: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    values = {name: _number(data, names) for name, names in table.items()}
    return {name: value for name, value in values.items() if value is not None}


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _dtype(chosen: Iterable[bool]) -> dict[str, Any]:
    """The dtype of those that are chosen, of _HALVES."""
    return next(({"dtype": name} for name, one in zip(_HALVES, chosen, strict=True) if one), {})


def _model(data: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a model; one that holds text and pictures has its text's in a part."""
    text = _part(data, "text_config") or data
    found: dict[str, Any] = _numbers(text, _SIZES)
    if len(found) < len(_SIZES):
        return {}
    dtype = _DTYPES.get(str(text.get("torch_dtype", text.get("dtype"))))
    if text is data and (params := parameters(data, found)):
        found["params"] = params
    return found | ({"dtype": dtype} if dtype else {})


def parameters(data: Mapping[str, Any], sizes: Mapping[str, int]) -> int | None:
    """Weights of a model of a known kind, None for others and for experts."""
    kind, layers, hidden, heads, vocab = data.get("model_type"), *(sizes[name] for name in _SIZES)
    if kind == "gpt2":
        positions = _number(data, ("n_positions",)) or 1024
        inner = _number(data, ("n_inner",)) or 4 * hidden
        layer = 4 * hidden * hidden + 2 * hidden * inner + inner + 9 * hidden
        return (vocab + positions) * hidden + layers * layer + 2 * hidden
    inner = _number(data, ("intermediate_size",)) or 0
    if kind not in _LLAMA or not inner:
        return None
    one_head = _number(data, ("head_dim",)) or hidden // heads
    query = heads * one_head
    others = 2 * (_number(data, ("num_key_value_heads",)) or heads) * one_head
    biases = (query + others) * _LLAMA[str(kind)] + (query + others + hidden) * bool(
        data.get("attention_bias")
    )
    layer = 2 * hidden * query + hidden * others + biases + 3 * hidden * inner + 2 * hidden
    tables = 1 if data.get("tie_word_embeddings") is True else 2
    return tables * vocab * hidden + layers * layer + hidden


def _trainer(data: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of Hugging Face's TrainingArguments, and of tools that hand them on."""
    found: dict[str, Any] = _numbers(data, _TRAINING)
    found |= _dtype(data.get(name) is True for name in _HALVES)
    if data.get("gradient_checkpointing") is True:
        found["ckpt"] = "full"
    how = (data.get("attn_implementation"), data.get("flash_attn"))
    if data.get("flash_attention") is True or any(one in _FUSED for one in how if isinstance(one, str)):
        found["attention"] = "fused"
    return found


def _deepspeed(data: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSpeed's JSON, and what accelerate says of it."""
    zero, part = _part(data, "zero_optimization"), _part(data, "deepspeed_config")
    found = _dtype(_part(data, name).get("enabled") is True for name in _HALVES)
    stage = zero.get("stage", part.get("zero_stage"))
    if stage in (0, 1, 2, 3) and not isinstance(stage, bool):
        found["zero"] = int(stage)
    if isinstance(other := part.get("deepspeed_config_file"), str):
        found["also"] = other
    for what, key in (("optimizer", "offload_optimizer"), ("all", "offload_param")):
        if _part(zero, key).get("device", part.get(f"{key}_device")) in ("cpu", "nvme"):
            found["offload"] = what
    kind = _part(data, "optimizer").get("type")
    if isinstance(kind, str) and kind.lower() in ("adam", "adamw", "sgd"):
        found["optimizer"] = "sgd" if kind.lower() == "sgd" else "adam"
    return found


def _fsdp(data: Mapping[str, Any]) -> dict[str, Any]:
    """accelerate's YAML."""
    found: dict[str, Any] = {}
    dtype = data.get("mixed_precision")
    word = "no" if dtype is False else str(dtype)  # YAML reads `no` as false
    if dtype is not None and word in _DTYPES:
        found["dtype"] = _DTYPES[word]
    part = _part(data, "fsdp_config")
    if not part:
        return found
    strategy = part.get("fsdp_sharding_strategy", part.get("fsdp_reshard_after_forward", True))
    if isinstance(strategy, bool):  # FSDP 2
        found["zero"] = 3 if strategy else 2
    elif str(strategy) in _HYBRID:
        found["zero"] = HYBRID
    elif str(strategy) in _FSDP:
        found["zero"] = _FSDP[str(strategy)]
    if part.get("fsdp_offload_params") is True:
        found["offload"] = "all"
    if part.get("fsdp_activation_checkpointing") is True:
        found["ckpt"] = "full"
    return found


def _megatron(text: str) -> dict[str, Any]:
    """Options of a script of Megatron-LM; those whose value is a variable are not read."""
    found: dict[str, Any] = {}
    text = re.sub(r"(?m)^[ \t]*#.*$", "", text)
    for name, option in _MEGATRON.items():
        values = {int(value) for value in re.findall(rf"--{option}(?:=|[ \t]+)(\d{{1,9}})\b", text)}
        if len(values) == 1:
            found[name] = values.pop()
    found |= _dtype(bool(re.search(rf"--{name}\b(?!-)", text)) for name in _HALVES)
    if re.search(r"--use-flash-attn\b|--attention-backend[= \t]+(flash|fused)\b", text):
        found["attention"] = "fused"
    if re.search(r"--use-distributed-optimizer\b", text):
        found["zero"] = 1
    if re.search(r"--recompute-activations\b|--recompute-granularity[= \t]+selective\b", text):
        found["ckpt"] = "selective"
    if re.search(r"--recompute-granularity[= \t]+full\b", text):
        found["ckpt"] = "full"
    return found
