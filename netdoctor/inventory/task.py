"""What a launcher tells one task of a job: who it is, of how many, on which nodes. Read from its environment.

Sources: srun(1), mpirun(1) of Open MPI 4 and 5 (OMPI_*, PMIX_*), the Hydra process manager of MPICH and Intel
MPI (MPI_LOCALRANKID beside PMI_*; srun --mpi=pmi2 sets PMI_* alone), MVAPICH, torchrun, the Indexed Job of
Kubernetes, qsub(1) of PBS, bsub(1) of LSF, qsub(1) of Grid Engine.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from netdoctor.inventory import surroundings
from netdoctor.inventory.errors import InventoryError
from netdoctor.inventory.loader import load
from netdoctor.inventory.names import is_valid_host
from netdoctor.inventory.nodeset import fold

# A number of a task is far below; what is not is none.
COUNT_MAX = 100_000_000
TEXT_MAX = 255
NODES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task: rank of world tasks, local_rank of local_world on this node. None and '' where nobody says.

    launcher: a name of LAUNCHERS. job: the batch job or run, by a name that no later one has. nodes: how many
    there are; nodelist: their names, folded.
    """

    launcher: str = ""
    job: str = ""
    rank: int | None = None
    world: int | None = None
    local_rank: int | None = None
    local_world: int | None = None
    node_rank: int | None = None
    nodes: int | None = None
    nodelist: str = ""


# By launcher, the innermost first: the variable that only it sets, and where it keeps the rest.
LAUNCHERS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "torchrun": (
        "TORCHELASTIC_RUN_ID",
        {
            "rank": ("RANK",),
            "world": ("WORLD_SIZE",),
            "local_rank": ("LOCAL_RANK",),
            "local_world": ("LOCAL_WORLD_SIZE",),
            "node_rank": ("GROUP_RANK",),
            "nodes": ("GROUP_WORLD_SIZE",),
        },
    ),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        {
            "rank": ("OMPI_COMM_WORLD_RANK",),
            "world": ("OMPI_COMM_WORLD_SIZE",),
            "local_rank": ("OMPI_COMM_WORLD_LOCAL_RANK",),
            "local_world": ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        },
    ),
    "mvapich": (
        "MV2_COMM_WORLD_RANK",
        {
            "rank": ("MV2_COMM_WORLD_RANK",),
            "world": ("MV2_COMM_WORLD_SIZE",),
            "local_rank": ("MV2_COMM_WORLD_LOCAL_RANK",),
            "local_world": ("MV2_COMM_WORLD_LOCAL_SIZE",),
        },
    ),
    "hydra": (
        "MPI_LOCALRANKID",
        {
            "rank": ("PMI_RANK",),
            "world": ("PMI_SIZE",),
            "local_rank": ("MPI_LOCALRANKID",),
            "local_world": ("MPI_LOCALNRANKS",),
        },
    ),
    "slurm": (
        "SLURM_JOB_ID",
        {
            "rank": ("SLURM_PROCID",),
            "world": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
            "local_rank": ("SLURM_LOCALID",),
            "node_rank": ("SLURM_NODEID",),
            "nodes": ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
        },
    ),
    # Pods are the nodes; those of a PyTorchJob have RANK and WORLD_SIZE, which count them.
    "kubernetes": (
        "KUBERNETES_SERVICE_HOST",
        {"node_rank": ("JOB_COMPLETION_INDEX", "RANK"), "nodes": ("PET_NNODES", "WORLD_SIZE")},
    ),
    "pbs": ("PBS_JOBID", {"node_rank": ("PBS_NODENUM",)}),
    "lsf": ("LSB_JOBID", {}),
    "sge": ("PE_HOSTFILE", {"nodes": ("NHOSTS",)}),
}
# What one batch job or run has and no other. A job of Kubernetes goes by the name of its pods.
_JOBS = (
    *(("SLURM_JOB_ID", "slurm"), ("PBS_JOBID", "pbs"), ("LSB_JOBID", "lsf"), ("JOB_ID", "sge")),
    *(("PMIX_NAMESPACE", "pmix"), ("TORCHELASTIC_RUN_ID", "torchrun")),
)
# A run of torchrun that nobody has named is called so.
_NO_NAME = ("none", "")
# The node list of a Slurm step, which may have fewer nodes than the job.
_STEP = "SLURM_STEP_NODELIST"


def task(environ: Mapping[str, str]) -> Task:
    """The task whose environment this is; an empty one where nothing of a launcher is in it."""
    launcher = next((name for name, (mark, _) in LAUNCHERS.items() if environ.get(mark)), "")
    if not launcher:
        return Task()
    variables_of = LAUNCHERS[launcher][1]
    numbers = {name: _number(environ, variables) for name, variables in variables_of.items()}
    # orted and its like run in a step of their own, which lacks the node that mpirun is on.
    step = environ.get(_STEP) if launcher == "slurm" else None
    nodelist, count = _nodelist({**environ, "SLURM_JOB_NODELIST": step} if step else environ)
    if numbers.get("nodes") is None:
        numbers["nodes"] = count
    return Task(launcher=launcher, job=_job(environ, launcher), nodelist=nodelist, **numbers)


def node_name(environ: Mapping[str, str]) -> str:
    """What this node is called where the job's tasks are counted: by its launcher, else by itself.

    SLURMD_NODENAME counts for tasks of srun alone: Hydra hands the first node's on to all the others.
    """
    launcher = task(environ).launcher
    names = {"slurm": ("SLURMD_NODENAME",), "openmpi": ("PMIX_HOSTNAME",), "kubernetes": ("POD_NAME",)}
    found = (environ.get(name, "") for name in names.get(launcher, ()))
    return next((name for name in found if is_valid_host(name)), platform.node())


def is_first_of_node(one: Task) -> bool:
    """Whether this task speaks for its node: the others of the same node would say the same."""
    return not one.local_rank


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environ.get(name, "")
        if text.isascii() and text.isdecimal() and int(text[:12]) <= COUNT_MAX:
            return int(text[:12])
    return None


def _job(environ: Mapping[str, str], launcher: str) -> str:
    for name, kind in _JOBS:
        value = environ.get(name, "")
        # JOB_ID is anybody's name for a variable, but inside of Grid Engine.
        if value not in _NO_NAME and (name != "JOB_ID" or environ.get("PE_HOSTFILE")):
            return f"{kind} {value}"[:TEXT_MAX]
    index = environ.get("JOB_COMPLETION_INDEX", "")
    if launcher == "kubernetes" and index and platform.node().endswith(f"-{index}"):
        return f"kubernetes {platform.node().removesuffix(f'-{index}')}"[:TEXT_MAX]
    return ""


def _nodelist(environ: Mapping[str, str]) -> tuple[str, int | None]:
    """(the job's nodes, folded; how many), where the launcher names them and they can be read."""
    try:
        found = load(surroundings.words(environ), environ=environ)
    except InventoryError:
        return "", None
    names = [target.id for target in found.targets]
    text = fold(names)
    return (text if len(text) <= NODES_MAX else ""), len(names)
