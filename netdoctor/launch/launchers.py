"""The launchers that a plan can be written for."""

from collections.abc import Callable
from dataclasses import dataclass

from netdoctor.launch import (
    emit_accelerate,
    emit_deepspeed,
    emit_k8s,
    emit_mpirun,
    emit_ray,
    emit_slurm,
    emit_torchrun,
    shell,
)
from netdoctor.launch.model import LaunchPlan, Parts
from netdoctor.launch.values import PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """parts: the files of a plan. shown: what is printed, where that is not the files one after another.

    port: its usual one. script: the program where none is named. about: for help.
    """

    parts: Callable[[LaunchPlan], Parts]
    about: str
    shown: Callable[[LaunchPlan], str] | None = None
    port: int = PORT
    script: tuple[str, ...] = ("train.py",)


LAUNCHERS = {
    "torchrun": Launcher(
        parts=emit_torchrun.scripts,
        shown=emit_torchrun.shown,
        about="one text for all nodes, or a script each",
    ),
    "sbatch": Launcher(parts=emit_slurm.sbatch, about="a batch file: srun starts one torchrun a node"),
    "srun": Launcher(parts=emit_slurm.srun, about="one task a process, ranks set inside srun"),
    "deepspeed": Launcher(parts=emit_deepspeed.parts, about="hostfile, environment file and command"),
    "accelerate": Launcher(parts=emit_accelerate.parts, about="a script for each node"),
    "ray": Launcher(parts=emit_ray.ray, port=emit_ray.PORT, about="head, workers and their ports"),
    "mpirun": Launcher(parts=emit_mpirun.parts, about="Open MPI's hostfile and command"),
    "k8s": Launcher(parts=emit_k8s.parts, about="a service and an Indexed Job"),
    "verl": Launcher(
        parts=emit_ray.verl,
        port=emit_ray.PORT,
        script=("-m", "verl.trainer.main_ppo"),
        about="Ray, and verl's own numbers",
    ),
    "roll": Launcher(parts=emit_ray.roll, port=emit_ray.PORT, about="a script for each node, and values"),
}


def parts(plan: LaunchPlan) -> Parts:
    """The files of a plan. Raises InputError for one that the launcher cannot run."""
    return LAUNCHERS[plan.options.launcher].parts(plan)


def text(plan: LaunchPlan) -> str:
    """What is printed. Raises InputError for a plan that the launcher cannot run."""
    launcher = LAUNCHERS[plan.options.launcher]
    if launcher.shown is not None:
        return launcher.shown(plan)
    made = launcher.parts(plan)
    if len(made) == 1:
        return made[0].text
    titled = (f"{shell.comment(f'---- {part.name}: {part.about}')}\n{part.text}" for part in made)
    return "\n".join([f"{shell.comment('several files; --write DIR makes them')}\n", *titled])
