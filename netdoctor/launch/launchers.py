"""The launchers that a plan can be written for."""

from collections.abc import Callable
from dataclasses import dataclass

from netdoctor.launch import emit_slurm, emit_torchrun, shell
from netdoctor.launch.model import LaunchPlan, Parts
from netdoctor.launch.values import PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """parts: the files of a plan. shown: what is printed, where that is not the files one after another.

    port: its usual one. about: for help.
    """

    parts: Callable[[LaunchPlan], Parts]
    about: str
    shown: Callable[[LaunchPlan], str] | None = None
    port: int = PORT


LAUNCHERS = {
    "torchrun": Launcher(
        parts=emit_torchrun.scripts,
        shown=emit_torchrun.shown,
        about="one text for all nodes, or a script each",
    ),
    "sbatch": Launcher(parts=emit_slurm.sbatch, about="a batch file: srun starts one torchrun a node"),
    "srun": Launcher(parts=emit_slurm.srun, about="one task a process, ranks set inside srun"),
}


def text(plan: LaunchPlan) -> str:
    """What is printed. Raises InputError for a plan that the launcher cannot run."""
    launcher = LAUNCHERS[plan.options.launcher]
    if launcher.shown is not None:
        return launcher.shown(plan)
    parts = launcher.parts(plan)
    if len(parts) == 1:
        return parts[0].text
    titled = (f"{shell.comment(f'---- {part.name}: {part.about}')}\n{part.text}" for part in parts)
    return "\n".join(titled)
