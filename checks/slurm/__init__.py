"""Checks of Slurm: one file each, `checks/slurm/<property>.py` is `slurm.<property>`."""
