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
    parts: Callable[[LaunchPlan], Parts]  # the files of a plan
    printed: Callable[[LaunchPlan], str] | None = None  # what is, where not the files one after another
    port: int = PORT  # the default one
    script: tuple[str, ...] = ("train.py",)  # the program where none is named


LAUNCHERS = {
    "torchrun": Launcher(parts=emit_torchrun.scripts, printed=emit_torchrun.printed),
    "sbatch": Launcher(parts=emit_slurm.sbatch),
    "srun": Launcher(parts=emit_slurm.srun),
    "deepspeed": Launcher(parts=emit_deepspeed.parts),
    "accelerate": Launcher(parts=emit_accelerate.parts),
    "ray": Launcher(parts=emit_ray.ray, port=emit_ray.PORT),
    "mpirun": Launcher(parts=emit_mpirun.parts),
    "k8s": Launcher(parts=emit_k8s.parts),
    "verl": Launcher(parts=emit_ray.verl, port=emit_ray.PORT, script=("-m", "verl.trainer.main_ppo")),
    "roll": Launcher(parts=emit_ray.roll, port=emit_ray.PORT),
}


def parts(plan: LaunchPlan) -> Parts:
    """The files of a plan. Raises InputError for one that the launcher cannot run."""
    return LAUNCHERS[plan.options.launcher].parts(plan)


def text(plan: LaunchPlan) -> str:
    """What is printed. Raises InputError for a plan that the launcher cannot run."""
    launcher = LAUNCHERS[plan.options.launcher]
    if launcher.printed is not None:
        return launcher.printed(plan)
    files = launcher.parts(plan)
    if len(files) == 1:
        return files[0].text
    titled = (f"{shell.comment(f'---- {part.name}: {part.purpose}')}\n{part.text}" for part in files)
    return "\n".join([f"{shell.comment('several files; --write DIR makes them')}\n", *titled])
