"""The hosts of the batch job that netdoctor runs in, as arguments for `load`.

Sources: sbatch(1) of Slurm, qsub(1) of PBS Pro and Torque, environment variables of Spectrum LSF, sge_pe(5).
"""

from __future__ import annotations

from collections.abc import Mapping

from netdoctor.inventory.errors import InventoryError, Problem

# What names the nodes of a job: a list itself, or a file. The first one that is set is taken.
LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
FILES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")
COUNTED = "LSB_MCPU_HOSTS"


def words(environ: Mapping[str, str]) -> list[str]:
    """Arguments that name the job's nodes. Raises InventoryError outside of a job."""
    for name in LISTS:
        if environ.get(name):
            return [f"{environ[name]},"]  # with a comma it is no file, whatever it is called
    for name in FILES:
        if environ.get(name):
            return [environ[name]]
    pairs = environ.get(COUNTED, "").split()
    if pairs and len(pairs) % 2 == 0:
        return [f"{host} slots={count}" for host, count in zip(pairs[::2], pairs[1::2], strict=True)]
    known = ", ".join((*LISTS, *FILES, COUNTED))
    hint = "mpirun leaves no list: name its hostfile"
    raise InventoryError(
        [Problem("--from-env", None, "", f"no batch job here: none of {known} is set", hint)]
    )


def slurm_nodes(environ: Mapping[str, str]) -> str:
    """The nodes of the Slurm allocation around, folded as Slurm has them; '' outside of one."""
    return next((environ[name] for name in LISTS if environ.get(name)), "")
