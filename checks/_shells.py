"""What differs between a login at a terminal and a session without one, as far as a job meets it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from netdoctor.facts.host import Session
from netdoctor.facts.launching import ShellFacts
from netdoctor.rules.variables import RANKS, Environment

# What starts ranks by SSH, without a terminal.
BY_SSH = ("pdsh", "deepspeed", "mpirun")
SHELLS = ("bash", "zsh", "ksh", "dash", "sh")
PYTHONS = ("python3", "python", "torchrun")
UNNAMED = "python3"  # what is asked where nobody names an interpreter
LISTS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
# PATH and environments of Python show in programs; no login has a place in a job; the last is read at a
# prompt alone. Of secrets a node says that they are set.
_LEFT_OUT = re.compile(r"PATH|CONDA_\w+|VIRTUAL_ENV|SLURM\w*|NNODES|MASTER_\w+|PYTHONSTARTUP")
_NONE = "unset"


class Apart(NamedTuple):
    """A variable or program: what the job's session has, and what a login at a terminal has."""

    name: str
    here: str
    there: str


def lacking(shell: ShellFacts, env: Environment) -> Iterator[Apart]:
    """Variables that a login sets and the job's session has not so; of search paths entries that it lacks."""
    for name, there in shell.variables.items():
        if _LEFT_OUT.fullmatch(name) or name in RANKS:
            continue
        here = env[name].value if name in env else None
        if name in LISTS:
            have = (here or "").split(":")
            more = [part for part in there.split(":") if part and part not in have]
            if more:
                yield Apart(name, f"without {_short(':'.join(more))}", _short(there))
        elif here != there:
            yield Apart(name, _NONE if here is None else _short(here), _short(there))


def programs(shell: ShellFacts, session: Session | None) -> Iterator[Apart]:
    """Programs that PATH has elsewhere, or only in a login; not the interpreter where one is named."""
    is_named = session is not None and session.interpreter != UNNAMED
    for name, there in shell.tools.items():
        here = shell.own_tools.get(name)
        if here != there and not (is_named and name in PYTHONS):
            yield Apart(name, here or "not on PATH", there)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
