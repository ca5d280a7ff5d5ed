"""How much GPU memory a rank of a training job needs, as a range, against what is free on each node.

Model states: ZeRO, section 3 and 5, https://arxiv.org/abs/1910.02054. Activations: Korthikanti et al.,
https://arxiv.org/abs/2205.05198, equations 1, 2 and table 2. Other terms are assumptions,
named below.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netdoctor.errors import InputError
from netdoctor.launch import model_files
from netdoctor.text import clean

GIB = 2**30
SOURCES = ("https://arxiv.org/abs/1910.02054", "https://arxiv.org/abs/2205.05198")
# Bytes of a weight. fp8 and fp4 keep 16-bit weights, and at most as much again in copies.
WEIGHT = {"fp32": (4, 4), "bf16": (2, 2), "fp16": (2, 2), "fp8": (2, 4), "fp4": (2, 4)}
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
NATIVE = {"bf16": (8, 0), "fp8": (8, 9), "fp4": (10, 0)}
# Assumed: CUDA context and NCCL 0.5 to 3 GiB, and up to a tenth for fragments.
OVERHEAD = (0.5 * GIB, 3.0 * GIB)
FRAGMENTS = 1.1
# DeepSpeed's defaults, in elements: stage3_max_live_parameters and reduce_bucket_size,
# https://www.deepspeed.ai/docs/config-json/
LIVE, BUCKET = 1e9, 5e8
FORMULA = (
    "weights + gradients + optimizer (2+2+12 bytes per parameter, mixed precision, Adam, sharded by stage)"
    " + layers*s*b*h*(10+24/tp+5as/(h*tp)) + logits + buffers,"
    " 0.5 to 3 GiB for CUDA and NCCL, up to 10 % for fragments"
)
Range = tuple[float, float]
_NUMBERS = ("params", "zero", "layers", "hidden", "heads", "seq", "micro", "vocab", "tp", "pp")
_WORDS = {
    "dtype": tuple(WEIGHT),
    "optimizer": ("adam", "sgd"),
    "ckpt": ("none", "selective", "full"),
    "offload": ("none", "optimizer", "all"),
    "attention": ("any", "fused"),
}
EXPECTED = (
    "write params=7e9,dtype=bf16,zero=3,layers=32,hidden=4096,heads=32,seq=4096,micro=1,vocab=32000,ckpt=none"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model and how it is trained. None: not given."""

    params: float
    dtype: str = "bf16"
    optimizer: str = "adam"
    zero: int = 0  # FSDP: FULL_SHARD is 3, SHARD_GRAD_OP 2
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    seq: int | None = None
    micro: int = 1
    vocab: int | None = None
    ckpt: str = "none"
    offload: str = "none"  # to the host: what DeepSpeed or FSDP move there
    attention: str = "any"  # fused: FlashAttention or torch's SDPA, which keep no scores
    tp: int | None = None
    pp: int | None = None
    read: str = ""  # what files said

    @property
    def is_complete(self) -> bool:
        """Whether activations and logits can be counted."""
        return None not in (self.layers, self.hidden, self.heads, self.seq, self.vocab)


def job_of(text: str) -> Job:
    """``params=7e9,dtype=bf16``, and files of a model or launcher among them.

    What is written out counts before what a file says. Raises InputError with what was expected.
    """
    given = [part.strip() for part in text.split(",")]
    files = [part for part in given if part and "=" not in part]
    from_files: dict[str, tuple[str, str]] = {}
    for path in files:
        for name, value in model_files.read(path).items():
            other, known = from_files.setdefault(name, (path, value))
            written = any(part.startswith(f"{name}=") for part in given)
            if known != value and not written:
                what = f"{other} says {name}={known}, {path} {name}={value}"
                raise InputError(f"--fit: {clean(what, 300)}; write the one that counts")
    found = _of_pairs([part for part in given if part not in files])
    others = {name: value for name, (_, value) in from_files.items() if name not in found}
    also = others.pop("also", "")
    if also and "zero" not in others and "zero" not in found:
        raise InputError(f"--fit: {files[0]} names {clean(also, 200)!r}; give that file, too")
    if others.get("zero") == model_files.HYBRID:
        raise InputError(
            "--fit: HYBRID_SHARD shards inside a node; write zero=3, and the node's GPUs as --dp"
        )
    found = _of_pairs([f"{name}={value}" for name, value in others.items()]) | found if others else found
    if "params" not in found:
        raise InputError(f"--fit: params is missing; {EXPECTED}")
    values = ", ".join(f"{name}={value}" for name, value in others.items())
    return Job(**found, read=f"{values} of {', '.join(files)}" if values else "")


def _of_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.strip().partition("=")
        if name in found:
            raise InputError(f"--fit: {name} is given twice")
        if name in _WORDS:
            if value not in _WORDS[name]:
                raise InputError(f"--fit {name}={value}: one of {', '.join(_WORDS[name])}")
            found[name] = value
        elif name in _NUMBERS:
            if not re.fullmatch(r"\d{1,15}(\.\d{1,6})?(e\d{1,2})?", value, re.ASCII):
                raise InputError(f"--fit {name}={value}: a number, such as 32 or 7e9")
            number = float(value)
            top = 3 if name == "zero" else 1e15 if name == "params" else 1e9
            if not (name == "zero" or number >= 1) or number > top or number != int(number):
                raise InputError(f"--fit {name}={value}: whole, {int(name != 'zero')} to {top:g}")
            found[name] = int(number)
        else:
            raise InputError(f"--fit: {name!r} is not known; {EXPECTED}")
    return found


def states(job: Job, *, dp: int, shards: int) -> Range:
    """Bytes of weights, gradients and optimizer of a rank. shards: tp x pp."""
    share, full = job.params / shards, job.dtype == "fp32"
    low, high = WEIGHT[job.dtype]
    grads = (4, 4) if full else (2, 4)
    moments = (8, 8) if job.optimizer == "adam" else (0, 4)
    master = 0 if full else 4
    if job.offload != "none":  # ZeRO-Offload (https://arxiv.org/abs/2101.06840) moves gradients, too
        moments, master, grads = (0, 0), 0, (0, grads[1])
    if job.offload == "all":
        low = 0

    def bytes_of(end: int) -> float:
        weights = (low, high)[end] / (dp if job.zero == 3 else 1)
        gradients = grads[end] / (dp if job.zero >= 2 else 1)
        return share * (weights + gradients + (moments[end] + master) / (dp if job.zero else 1))

    return bytes_of(0), bytes_of(1)


def activations(job: Job, *, tp: int, pp: int) -> Range:
    """Bytes that a rank keeps for the backward pass; (0, 0) where sizes are not given."""
    if not (job.layers and job.hidden and job.heads and job.seq):
        return 0.0, 0.0
    scale = 2 if job.dtype == "fp32" else 1
    sbh = job.seq * job.micro * job.hidden * scale
    scores = 5 * job.heads * job.seq / job.hidden if job.attention == "any" else 0
    # Low: fused attention, no dropout, ReLU, sequence parallel; high: the paper's, and a quarter for casts.
    layer_low, layer_high = 24 / tp, 1.25 * (10 + 24 / tp + (scores / tp if job.ckpt == "none" else 0))
    # The first stage of a pipeline holds pp micro batches of layers/pp layers.
    low, high = job.layers / pp * layer_low, job.layers * layer_high
    if job.ckpt == "full":  # one layer at a time is computed again
        one_layer = 1.25 * (10 + 24 / tp + scores / tp)
        low, high = job.layers / pp * 2 / tp, job.layers * 2.5 + one_layer
    logits = job.seq * job.micro * (job.vocab or 0) / tp
    return sbh * low, sbh * high + 12 * logits


def need(job: Job, *, dp: int, tp: int, pp: int) -> Range:
    """Bytes that the fullest rank needs, low and high."""
    share = job.params / (tp * pp)
    low, high = states(job, dp=dp, shards=tp * pp)
    activation_bytes = activations(job, tp=tp, pp=pp)
    # Adam's foreach form copies once more what it updates, when activations are gone again:
    # https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
    step = 4 * share / (dp if job.zero else 1)
    buffers = 0.0
    if dp > 1:
        width = 4 if job.zero == 0 or job.dtype == "fp32" else 2
        buffers = width * (share if job.zero == 0 else 2 * min(share, BUCKET))
        buffers += width * min(share, LIVE) if job.zero == 3 else 0
    most = (high + max(activation_bytes[1], step) + buffers) * FRAGMENTS + OVERHEAD[1]
    return low + activation_bytes[0] + OVERHEAD[0], most


def help_of(job: Job, *, dp: int, tp: int, pp: int) -> list[str]:
    """What would need less, each with its range."""
    found = []
    if job.zero < 3 and dp > 1:
        found.append((f"zero={job.zero + 1}", replace(job, zero=job.zero + 1)))
    if job.micro > 1:
        found.append((f"micro={job.micro // 2}", replace(job, micro=job.micro // 2)))
    if job.attention == "any" and job.layers:
        found.append(("attention=fused", replace(job, attention="fused")))
    if job.ckpt != "full" and job.layers:
        found.append(("ckpt=full", replace(job, ckpt="full")))
    return [f"{name}: {gib(need(other, dp=dp, tp=tp, pp=pp))}" for name, other in found]


def gib(both: Range) -> str:
    return f"{both[0] / GIB:.1f} to {both[1] / GIB:.1f} GiB"


def fit_of(
    job: Job, gpus: Mapping[str, Any], nodes: list[str], sizes: tuple[int, int, int]
) -> dict[str, Any]:
    """The plan's ``fit``. gpus: facts by node; sizes: dp, tp, pp."""
    dp, tp, pp = sizes
    both = need(job, dp=dp, tp=tp, pp=pp)
    rows = []
    for node in nodes:
        devices = gpus[node].devices if node in gpus else ()
        free = [
            None if one.memory_total_bytes is None or one.memory_used_bytes is None
            else one.memory_total_bytes - one.memory_used_bytes
            for one in devices
        ]  # fmt: skip
        least = min((one for one in free if one is not None), default=None)
        if least is not None and both[0] > least:
            state = "does not fit"
        elif least is None or None in free:
            state = "unknown"
        else:
            state = "fits" if both[1] <= least and job.is_complete else "may not fit"
        rows.append({"node": node, "state": state, "free_bytes": least, "dtype": _dtype(job.dtype, devices)})
    helps = help_of(job, dp=dp, tp=tp, pp=pp) if any(row["state"] != "fits" for row in rows) else []
    return {
        "need_bytes": [int(end) for end in both], "complete": job.is_complete, "formula": FORMULA,
        "sources": list(SOURCES), "nodes": rows, "would_help": helps,
    }  # fmt: skip


def _dtype(dtype: str, devices: Any) -> str:
    """``native``, ``not native`` or ``unknown``, by compute capability."""
    if dtype not in NATIVE:
        return "native"
    known = [re.fullmatch(r"(\d+)\.(\d+)", one.compute_capability or "") for one in devices]
    if any(one and (int(one[1]), int(one[2])) < NATIVE[dtype] for one in known):
        return "not native"
    return "native" if known and all(known) else "unknown"


def lines(fit: Mapping[str, Any], job: Job) -> list[str]:
    low, high = fit["need_bytes"]
    found = [f"read: {job.read}"] if job.read else []
    found += [f"memory of a rank: {gib((low, high))}, an estimate: {FORMULA}; {', '.join(SOURCES)}"]
    if not fit["complete"]:
        found.append("not all was counted: give layers, hidden, heads, seq and vocab")
    for row in fit["nodes"]:
        free = row["free_bytes"]
        free_text = "free memory is unknown" if free is None else f"{free / GIB:.1f} GiB free"
        found.append(f"{row['state']} on {row['node']}: needs {gib((low, high))} a rank, {free_text}")
        if row["dtype"] != "native":
            found.append(f"{job.dtype} on {row['node']}: {row['dtype']}")
    return [*found, *(f"would need: {one}" for one in fit["would_help"])]
