"""Files of models and launchers as `plan --fit` reads them: weights as published, keys as tools have them."""

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.launch.fit import Job, job_of, need, states

LLAMA3 = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "max_position_embeddings": 8192,
}  # fmt: skip
LLAMA2 = LLAMA3 | {"intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
MISTRAL = LLAMA3 | {"model_type": "mistral", "vocab_size": 32000}
QWEN2 = LLAMA3 | {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
}  # fmt: skip
QWEN2_SMALL = QWEN2 | {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
ZERO3 = {
    "bf16": {"enabled": True},
    "fp16": {"enabled": False},
    "zero_optimization": {"stage": 3},
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW"},
}
AUTO = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2},
    "train_micro_batch_size_per_gpu": "auto",
}
MEGATRON = """\
#!/bin/bash
# --num-layers 96
GPT_MODEL_ARGS=(
    --num-layers 32
    --hidden-size=4096
    --num-attention-heads 32
    --seq-length 4096
)
torchrun pretrain_gpt.py ${GPT_MODEL_ARGS[@]} --micro-batch-size $MBS --tensor-model-parallel-size 8 \\
    --pipeline-model-parallel-size 2 --bf16 --use-flash-attn --use-distributed-optimizer \\
    --recompute-granularity full
"""


def write(folder: Path, name: str, content: object) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        pytest.param(LLAMA2, 6_738_415_616, id="Llama 2 7B"),
        pytest.param(LLAMA3, 8_030_261_248, id="Llama 3 8B"),
        pytest.param(MISTRAL, 7_241_732_096, id="Mistral 7B"),
        pytest.param(QWEN2, 7_615_616_512, id="Qwen2 7B"),
        pytest.param(QWEN2_SMALL, 494_032_768, id="Qwen2 0.5B, one table"),
        pytest.param(GPT2, 124_439_808, id="GPT-2"),
    ],
)
def test_weights_of_published_models(tmp_path: Path, config: dict[str, object], weights: int) -> None:
    job = job_of(write(tmp_path, "config.json", config))
    assert job.params == weights
    assert not job.is_complete  # the sequence is the job's, and not the model's
    assert job.read.startswith("layers=")


READ = Job(params=8_030_261_248, layers=32, hidden=4096, heads=32, vocab=128256)


@pytest.mark.parametrize(
    ("name", "content", "changes"),
    [
        pytest.param("ds.json", ZERO3, {"zero": 3, "micro": 4}, id="DeepSpeed"),
        pytest.param("ds.json", AUTO, {"zero": 2}, id="what is auto is not said"),
        pytest.param(
            "ds.json",
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
            {"zero": 3, "offload": "all"},
            id="offload",
        ),
        pytest.param(
            "fsdp.yaml",
            "mixed_precision: bf16\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
            "  fsdp_activation_checkpointing: true\n",
            {"zero": 2, "ckpt": "full"},
            id="FSDP",
        ),
        pytest.param(
            "fsdp.yaml",
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
            "  fsdp_offload_params: true\n",
            {"zero": 3, "offload": "all"},
            id="FSDP 2",
        ),
        pytest.param(
            "acc.yaml",
            "mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 1\n  offload_optimizer_device: cpu\n",
            {"zero": 1, "offload": "optimizer"},
            id="accelerate with DeepSpeed",
        ),
        pytest.param(
            "sft.yaml",
            "cutoff_len: 2048\nper_device_train_batch_size: 2\nbf16: true\ngradient_checkpointing: true\n"
            "flash_attn: fa2\n",
            {"seq": 2048, "micro": 2, "ckpt": "full", "attention": "fused"},
            id="trainer",
        ),
    ],
)
def test_with_a_launcher_s_file(tmp_path: Path, name: str, content: object, changes: dict[str, int]) -> None:
    model = write(tmp_path, "config.json", LLAMA3)
    job = job_of(f"{model},{write(tmp_path, name, content)}")
    assert dataclasses.replace(job, read="") == dataclasses.replace(READ, **changes)


def test_megatron_s_script(tmp_path: Path) -> None:
    job = job_of(f"params=7e9,vocab=32000,{write(tmp_path, 'train.sh', MEGATRON)}")
    assert dataclasses.replace(job, read="") == Job(
        params=7_000_000_000, layers=32, hidden=4096, heads=32, seq=4096, vocab=32000, tp=8, pp=2, zero=1,
        ckpt="full", attention="fused",
    )  # fmt: skip


def test_what_is_written_out_counts_and_two_files_that_differ_do_not(tmp_path: Path) -> None:
    one, two = write(tmp_path, "config.json", LLAMA3), write(tmp_path, "a.yaml", "mixed_precision: fp16")
    with pytest.raises(InputError, match=r"config.json says dtype=bf16, .*a.yaml dtype=fp16; write the one"):
        job_of(f"{one},{two}")
    job = job_of(f"{one},{two},dtype=fp32,params=1e9")
    assert (job.dtype, job.params, job.layers) == ("fp32", 1e9, 32)


def test_experts_are_not_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "config.json", LLAMA3 | {"model_type": "mixtral", "num_local_experts": 8})
    with pytest.raises(InputError, match="params is missing"):
        job_of(path)


def test_what_is_offloaded_is_not_needed() -> None:
    def least(offload: str) -> float:
        return states(Job(params=1e9, zero=0, offload=offload), dp=1, shards=1)[0]

    assert (least("none"), least("optimizer"), least("all")) == (16e9, 2e9, 0)
    assert need(Job(params=1e9, offload="optimizer"), dp=1, tp=1, pp=1)[1] < 16e9


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("config.json", "{", "line 1: not JSON"),
        ("a.yaml", "a: [", "line 1: not YAML"),
        ("a.yaml", "- x", "nothing in it is about memory"),
        ("config.json", {"hidden_size": -3, "num_hidden_layers": "many"}, "nothing in it is about memory"),
        ("train.sh", "echo hello", "nothing in it is about memory"),
        ("a.json", "[" * 100_000, "cannot be read"),
        ("a.yaml", "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}", "shards inside a node"),
        ("a.yaml", "deepspeed_config: {deepspeed_config_file: ds.json}", "names 'ds.json'; give that file"),
        ("a.yaml", "x" * 2_000_000, "larger than 1 MiB"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        job_of(f"params=1e9,{write(tmp_path, name, content)}")
    with pytest.raises(InputError, match="no such file"):
        job_of("nothing.json")


WEIGHTS = """
import json, random, torch, transformers
draw = random.Random(3)
for _ in range(40):
    kind = draw.choice(["llama", "mistral", "qwen2", "gpt2"])
    heads, layers, vocab = draw.choice([4, 8, 12]), draw.randint(1, 5), draw.randint(100, 900)
    hidden = heads * draw.choice([8, 16])
    if kind == "gpt2":
        config = transformers.GPT2Config(n_embd=hidden, n_head=heads, n_layer=layers, vocab_size=vocab,
            n_positions=draw.choice([64, 128]), n_inner=draw.choice([None, 3 * hidden]))
    else:
        more = {} if kind == "qwen2" or draw.random() < 0.5 else {"head_dim": draw.choice([8, 32])}
        if kind == "llama":
            more["attention_bias"] = draw.choice([True, False])
        config = transformers.AutoConfig.for_model(kind, hidden_size=hidden, num_attention_heads=heads,
            num_hidden_layers=layers, vocab_size=vocab, intermediate_size=draw.randint(8, 200),
            num_key_value_heads=draw.choice([1, 2, heads]), tie_word_embeddings=draw.choice([True, False]),
            **more)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    print(json.dumps([json.loads(config.to_json_string(use_diff=False)), model.num_parameters()]))
"""


@pytest.mark.process
def test_weights_are_those_that_transformers_makes(tmp_path: Path) -> None:
    """Random models: the file that transformers writes, and what it then allocates."""
    python = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("NETDOCTOR_TEST_TORCH_PYTHON names no interpreter")
    if subprocess.run([python, "-c", "import transformers"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no transformers")
    done = subprocess.run([python, "-c", WEIGHTS], capture_output=True, text=True, check=True, timeout=300)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 40
    for config, count in rows:
        assert job_of(write(tmp_path, "config.json", config)).params == count, config
