"""The hosts of the batch job that netdoctor runs in, as arguments for `load`.

Sources: sbatch(1) of Slurm, qsub(1) of PBS Pro and Torque, environment variables of Spectrum LSF, sge_pe(5);
for tasks mpirun(1) of Open MPI, and PMI-1 as the mpiexec of MPICH and of Intel set it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from netdoctor.inventory.errors import InventoryError, Problem

# What names the nodes of a job: a list itself, or a file. The first one that is set is taken.
LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
FILES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")
COUNTED = "LSB_MCPU_HOSTS"
REPEATED = "LSB_HOSTS"
# The lists of the parts of a heterogeneous job, whose plain one names the first part alone.
HET = re.compile(r"SLURM_JOB_NODELIST_HET_GROUP_(\d{1,3})")
# Of a task that a launcher has started, with its number and how many there are; it leaves no list of nodes.
TASKS = (
    ("mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpiexec", "PMI_RANK", "PMI_SIZE"),
)


def words(environ: Mapping[str, str]) -> list[str]:
    """Arguments that name the job's nodes. Raises InventoryError outside of a job."""
    if nodes := slurm_nodes(environ):
        return [f"{nodes},"]  # with a comma it is no file, whatever it is called
    for name in FILES:
        if environ.get(name):
            return [environ[name]]
    pairs = environ.get(COUNTED, "").split()
    if pairs and len(pairs) % 2 == 0:
        return [f"{host} slots={count}" for host, count in zip(pairs[::2], pairs[1::2], strict=True)]
    if counts := Counter(environ.get(REPEATED, "").split()):
        return [f"{host} slots={count}" for host, count in counts.items()]
    known = ", ".join((*LISTS, *FILES, COUNTED, REPEATED))
    message, hint = f"no batch job here: none of {known} is set", "mpirun leaves no list: name its hostfile"
    for launcher, rank, size in TASKS:
        if rank in environ:
            task = f"task {environ[rank]} of {environ.get(size, '?')}"
            message = f"this is {task} of {launcher}, which leaves no list"
            hint = "name its hostfile, or let each task write netdoctor facts"
    raise InventoryError([Problem("--from-env", None, "", message, hint)])


def slurm_nodes(environ: Mapping[str, str]) -> str:
    """The nodes of the Slurm allocation around, folded as Slurm has them; '' outside of one."""
    parts = {int(found[1]): environ[name] for name in environ if (found := HET.fullmatch(name))}
    if parts:
        return ",".join(parts[number] for number in sorted(parts))
    return next((environ[name] for name in LISTS if environ.get(name)), "")
