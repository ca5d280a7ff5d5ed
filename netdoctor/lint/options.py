"""What the programs that start a job take on their command lines: data/options.toml."""

from dataclasses import dataclass

from msgspec import Struct

from netdoctor import tables


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one program, without dashes, ``_`` as ``-``."""

    valued: frozenset[str]  # those that take a value
    flags: frozenset[str]
    short: dict[str, str]  # single letters, with what they stand for
    single: bool  # long options have one dash only

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


def _options(rows: dict[str, _Program]) -> dict[str, Options]:
    return {
        name: Options(tables.names(row.valued), tables.names(row.flags), row.short, row.single)
        for name, row in rows.items()
    }


_TABLE = tables.table("netdoctor.lint", "options.toml", _Table)
PROGRAMS = _options(_TABLE.program)
PROGRAMS |= dict.fromkeys(("sbatch", "salloc"), PROGRAMS["srun"])
MPI_PAIRS = frozenset({"mca", "gmca", "genv", "env", "prtemca", "pmixmca"})
# Programs that only start another one, with their options that take a value.
WRAPPERS = _options(_TABLE.wrapper)
POSITIONAL = {"timeout": 1, "taskset": 0}  # words of its own before the program
