"""Group `env`: environment of the login session by allow-list, and NCCL's configuration files."""

import os

from .. import runtime
from ..system import files, private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

VALUE_CAP = 4096
MAX_VARIABLES = 1000
_PREFIXES = (
    "NCCL_", "GLOO_", "UCX_", "FI_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "HF_", "OMP_",
    "MKL_", "KMP_", "PYTHON", "TRITON_", "PET_",
)  # fmt: skip
_NAMES = frozenset((
    "TP_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK",
    "NODE_RANK", "NNODES", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "SLURM_JOB_ID", "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS",
    "SLURM_GPUS_ON_NODE", "SLURM_STEP_NODELIST", "SLURMD_NODENAME",
))  # fmt: skip
_PROXIES = frozenset(("http_proxy", "https_proxy", "all_proxy", "no_proxy"))
# Whether they are set is worth knowing; they are secrets by their names.
_PRESENCE = frozenset(("HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY"))


def reported_value(name: str, value: str) -> "Optional[str]":
    """Return what is reported of a variable, None for one that matters to no job."""
    listed = name in _NAMES or name in _PRESENCE or name.lower() in _PROXIES
    if not listed and not name.startswith(_PREFIXES):
        return None
    # Cut last: half a URL hides where its password ends.
    return private.masked_variable(name, value)[:VALUE_CAP]


def variables(environ: "Mapping[bytes, bytes]") -> "dict[str, str]":
    """Return the variables that matter to a job; undecodable bytes replaced."""
    found = {}  # type: dict[str, str]
    for key, raw in environ.items():
        name = key.decode("utf-8", "replace")
        value = reported_value(name, raw.decode("utf-8", "replace"))
        if value is not None and len(found) < MAX_VARIABLES:
            found[name] = value
    return dict(sorted(found.items()))


def parse_nccl_conf(text: str) -> "dict[str, str]":
    """Return the settings that NCCL would take from a file: first one wins, nothing is trimmed.

    A carriage return stays at the end of a value: releases differ in whether they drop it.
    ``#`` is a comment only in column 0, a line without ``=`` is ignored. [NCCL src/misc/param.cc setEnvFile]
    Keys that are not NCCL's business are left out: the file may set any variable.
    """
    found = {}  # type: dict[str, str]
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        if line.startswith("#") or not equals or not key or key in found:
            continue
        reported = reported_value(key.strip(), value)
        if reported is not None:
            found[key[:1023]] = reported[:1023]
    return found


def conf_file(path: str, origin: str, root: str) -> "Optional[dict[str, Any]]":
    """Return facts.software.ConfFile, or None where there is no such file."""
    # A relative name counts from where the job is started, which the login directory stands for.
    real = files.under(root, path) if path.startswith("/") else os.path.join(runtime.login_directory, path)
    entry = {"path": path[:VALUE_CAP], "place": origin, "values": {}}  # type: dict[str, Any]
    try:
        entry["values"] = parse_nccl_conf(files.read_text(real, 65536))
    except FileNotFoundError:
        if origin != "named":
            return None
        entry["error"] = "ENOENT"
    except (OSError, ValueError) as e:
        entry["error"] = files.errno_name(e)
    return entry


def nccl_conf(
    explicit: "Optional[str]", home: "Optional[str]", passwd_home: "Optional[str]", root: str
) -> "list[Any]":
    """Return NCCL's configuration files in reading order; the first to set a variable wins.

    explicit: NCCL_CONF_FILE; home: $HOME; passwd_home: of the passwd entry. Which counts depends on the
    release.
    """
    found = []  # type: list[Optional[dict[str, Any]]]
    if explicit:
        found.append(conf_file(explicit, "named", root))
    if home is not None and home == passwd_home:
        found.append(conf_file(home + "/.nccl.conf", "home", root))
    else:
        for folder, origin in ((home, "home-variable"), (passwd_home, "home-passwd")):
            if folder is not None:
                found.append(conf_file(folder + "/.nccl.conf", origin, root))
    found.append(conf_file("/etc/nccl.conf", "system", root))
    return [entry for entry in found if entry is not None]


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.software.EnvFacts. args: {"conf_file": NCCL_CONF_FILE of the job, where it sets it}."""
    import pwd

    try:
        passwd_home = pwd.getpwuid(os.getuid()).pw_dir  # type: Optional[str]
    except (KeyError, OSError):
        passwd_home = None
    explicit = args.get("conf_file")
    if not isinstance(explicit, str) or "\0" in explicit:
        explicit = os.environ.get("NCCL_CONF_FILE")
    return {
        "variables": variables(os.environb),
        "nccl_conf": nccl_conf(explicit, os.environ.get("HOME"), passwd_home, root),
    }
