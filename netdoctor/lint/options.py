"""What the programs that start a job take on their command lines: data/options.toml."""

from dataclasses import dataclass, field

from msgspec import Struct

from netdoctor import tables


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one program, without dashes, ``_`` as ``-``.

    valued: those that take a value; flags: those that do not; short: single letters, with what they stand
    for. single: long options have one dash only.
    """

    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    short: dict[str, str] = field(default_factory=dict)
    single: bool = False

    @property
    def all(self) -> frozenset[str]:
        return self.valued | self.flags


class _Program(Struct, forbid_unknown_fields=True):
    valued: str = ""
    flags: str = ""
    short: dict[str, str] = {}
    single: bool = False


class _Table(Struct, forbid_unknown_fields=True):
    program: dict[str, _Program]
    wrapper: dict[str, _Program]


def _options(one: _Program) -> Options:
    return Options(tables.names(one.valued), tables.names(one.flags), one.short, one.single)


_TABLE = tables.table("netdoctor.lint", "options.toml", _Table)
_PROGRAMS = {name: _options(one) for name, one in _TABLE.program.items()}
TORCHRUN = _PROGRAMS["torchrun"]
TORCH_LAUNCH = _PROGRAMS["torch-launch"]
SLURM = _PROGRAMS["slurm"]
DEEPSPEED = _PROGRAMS["deepspeed"]
ACCELERATE = _PROGRAMS["accelerate"]
RAY_START = _PROGRAMS["ray-start"]
MPIRUN = _PROGRAMS["mpirun"]
DOCKER_RUN = _PROGRAMS["docker-run"]
MPI_PAIRS = frozenset({"mca", "gmca", "genv", "env", "prtemca", "pmixmca"})
# Programs that only start another one, with their options that take a value.
WRAPPERS = {name: _options(one) for name, one in _TABLE.wrapper.items()}
POSITIONAL = {"timeout": 1, "taskset": 0}  # words of its own before the program
