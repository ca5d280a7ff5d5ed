"""A rule, what it finds, and where."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from netdoctor.compat import StrEnum
from netdoctor.text import clean

MESSAGE_MOST = 600


class Kind(StrEnum):
    """What a file is read as."""

    SBATCH = "sbatch"
    SHELL = "shell"
    HOSTFILE = "hostfile"
    ENV = "env"
    DEEPSPEED_ENV = "deepspeed-env"
    DOCKERFILE = "dockerfile"
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"
    RAY = "ray"
    VERL = "verl"
    ROLL = "roll"
    NEMO = "nemo"
    AXOLOTL = "axolotl"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    PYTHON = "python"


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"  # cannot work
    WARNING = "warning"  # will hurt
    NOTE = "note"  # worth knowing, and right in some places


SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in a file, both from 1. col counts characters."""

    line: int
    col: int = 1
    path: str = ""  # of a file that the one that is read starts


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule says about one position."""

    position: Position
    message: str  # what will happen
    instead: str = ""  # what to write
    path: str = ""  # of the file where it is not the one that was given to the rule

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path or self.position.path)
        object.__setattr__(self, "message", clean(self.message, MESSAGE_MOST))
        object.__setattr__(self, "instead", clean(self.instead, MESSAGE_MOST))


@dataclass(frozen=True, slots=True)
class Finding:
    """A `Found` with its rule and file."""

    path: str
    position: Position
    rule: str
    severity: Severity
    message: str
    instead: str = ""


Judge = Callable[[Any], Iterable[Found]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; title and sections come from the docstring of its function."""

    id: str
    severity: Severity
    reads: type  # what its function takes
    judge: Judge
    title: str
    happens: str
    instead: str
    wrong: str
    right: str
    example: Kind
    source: str


RULES: dict[str, Rule] = {}

_SECTION = re.compile(r"^(What happens|Write instead|Wrong|Right):\n", re.MULTILINE)


def rule(severity: Severity, reads: type, example: Kind, source: str = "") -> Callable[[Judge], Judge]:
    """Register a rule. ``slurm_rank_in_batch`` is ``slurm.rank-in-batch``; the docstring is the manual page.

    Its sections are *What happens*, *Write instead*, *Wrong* and *Right*; the last two are a file of the kind
    `example`, which tests feed to the rule.
    """

    def register(judge: Judge) -> Judge:
        family, _, name = judge.__name__.partition("_")
        id_ = f"{family}.{name.replace('_', '-')}"
        title, *parts = _SECTION.split(inspect.cleandoc(judge.__doc__ or ""))
        texts = {
            head: textwrap.dedent(body).strip("\n")
            for head, body in zip(parts[::2], parts[1::2], strict=True)
        }
        RULES[id_] = Rule(
            id=id_,
            severity=severity,
            reads=reads,
            judge=judge,
            title=title.strip(),
            happens=texts["What happens"],
            instead=texts["Write instead"],
            wrong=texts["Wrong"] + "\n",
            right=texts["Right"] + "\n",
            example=example,
            source=source,
        )
        return judge

    return register
