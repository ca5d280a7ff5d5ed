"""Variables that are set to look for a fault, and what it costs to leave them."""

import re
from dataclasses import dataclass

# What torch takes for on where it asks getCvarBool (torch/csrc/distributed/c10d/Utils.hpp).
ON = r"(?i)1|t|true|y|yes"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A value of the variable that costs something."""

    name: str
    value: str  # pattern of the whole value
    cost: str  # what it does
    source: str  # where that is written


_CUDA = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
_TORCH = "https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications"
_NCCL = "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_CACHE = "https://docs.pytorch.org/docs/stable/cuda_environment_variables.html"
# torch compares these two with "1" alone.
_COMPILE = "https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/config.py"
_DYNAMO = "https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/eval_frame.py"
_PYTHON = "https://docs.python.org/3/using/cmdline.html#environment-variables"
# NCCL's own are nccl.env's (NCCL_DEBUG, NCCL_P2P_DISABLE, NCCL_ALGO) and nccl.ib-hca's (NCCL_IB_DISABLE);
# CUDA_VISIBLE_DEVICES is gpu.visible's.
LEFTOVERS = (
    Leftover("CUDA_LAUNCH_BLOCKING", r"0*[1-9]\d*", "makes every kernel wait for the one before it", _CUDA),
    Leftover("CUDA_DISABLE_PTX_JIT", r"0*[1-9]\d*", "ends kernels that have no code for the GPU", _CUDA),
    Leftover("CUDA_FORCE_PTX_JIT", r"0*[1-9]\d*", "compiles every kernel again at start", _CUDA),
    Leftover("TORCH_DISTRIBUTED_DEBUG", r"(?i)detail", "checks every collective with one more", _TORCH),
    Leftover("TORCH_CPP_LOG_LEVEL", r"(?i)info", "writes lines for every rank and connection", _TORCH),
    Leftover("TORCH_NCCL_BLOCKING_WAIT", ON, "makes the host wait for every collective", _NCCL),
    Leftover("TORCH_COMPILE_DISABLE", "1", "leaves torch.compile without effect", _COMPILE),
    Leftover("TORCHDYNAMO_DISABLE", "1", "leaves torch.compile without effect", _DYNAMO),
    Leftover("PYTORCH_NO_CUDA_MEMORY_CACHING", r".+", "asks the driver for each piece of memory", _CACHE),
    Leftover("PYTHONTRACEMALLOC", r"0*[1-9]\d*", "keeps a trace of every allocation", _PYTHON),
    Leftover("PYTHONDEVMODE", r".+", "turns on Python's checks of itself", _PYTHON),
    Leftover("PYTHONPROFILEIMPORTTIME", r".+", "writes a line for every import of every rank", _PYTHON),
    Leftover("PYTHONASYNCIODEBUG", r".+", "makes event loops check and log their calls", _PYTHON),
)  # fmt: skip
_BY_NAME = {one.name: one for one in LEFTOVERS}


def leftover(name: str, value: str) -> Leftover | None:
    """What this value of a variable was probably set to look for; None where it costs nothing."""
    found = _BY_NAME.get(name)
    return found if found and re.fullmatch(found.value, value.strip()) else None
