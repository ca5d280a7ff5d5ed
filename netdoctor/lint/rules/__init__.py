"""The rules, a module for each family; importing this package registers them."""

from netdoctor.lint.rules import (
    config,
    containers,
    env,
    groups,
    launchers,
    parallel,
    program,
    shell,
    slurm,
    torch,
)

__all__ = [
    "config", "containers", "env", "groups", "launchers", "parallel", "program", "shell", "slurm", "torch",
]  # fmt: skip
