"""What one shell gives to a job and another does not."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netdoctor.rules.variables import RANKS

# What starts ranks by SSH, without a terminal.
BY_SSH = ("pdsh", "deepspeed", "mpirun")
PYTHONS = ("python3", "python", "torchrun")
UNNAMED = "python3"  # what is asked where nobody names an interpreter
LISTS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
# PATH and environments of Python show in programs; no login has a place in a job; the last is read at a
# prompt alone. Of secrets a node says that they are set.
_LEFT_OUT = re.compile(r"PATH|CONDA_\w+|VIRTUAL_ENV|SLURM\w*|NNODES|MASTER_\w+|PYTHONSTARTUP")
_NONE = "unset"


class Difference(NamedTuple):
    """A variable or program: what one has, and what the other has."""

    name: str
    here: str
    elsewhere: str


def lacking(other: Mapping[str, str], session: Mapping[str, str]) -> Iterator[Difference]:
    """Variables that the other has and this one has not so; of search paths entries that it lacks."""
    for name, in_login in other.items():
        if _LEFT_OUT.fullmatch(name) or name in RANKS:
            continue
        value = session.get(name)
        if name in LISTS:
            have = (value or "").split(":")
            more = [part for part in in_login.split(":") if part and part not in have]
            if more:
                yield Difference(name, f"without {short(':'.join(more))}", short(in_login))
        elif value != in_login:
            yield Difference(name, _NONE if value is None else short(value), short(in_login))


def short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
