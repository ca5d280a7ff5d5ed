"""Names of variables that NCCL, gloo, torch and torchrun read: data/names.toml."""

from msgspec import Struct

from netdoctor import tables


class _Names(Struct, forbid_unknown_fields=True):
    nccl: str  # without ``NCCL_`` in front
    gloo: str
    launch: str
    torch: str  # of torch, CUDA and OpenMP
    slurm: str  # set by Slurm, without ``SLURM_``
    others: str  # of other programs
    corrections: dict[str, str]  # what people write for one


_TABLE = tables.table("netdoctor.lint", "names.toml", _Names)
NCCL = frozenset(f"NCCL_{name}" for name in tables.names(_TABLE.nccl))
GLOO = tables.names(_TABLE.gloo)
LAUNCH = tables.names(_TABLE.launch)
SLURM = frozenset(f"SLURM_{name}" for name in tables.names(_TABLE.slurm))
KNOWN = NCCL | GLOO | LAUNCH | tables.names(_TABLE.torch)
OTHERS = tables.names(_TABLE.others)
CORRECTIONS = _TABLE.corrections


def nearest(name: str) -> str | None:
    """The known name that is at most two edits away from an unknown one, None where there is none or
    several."""
    if name in KNOWN or name in OTHERS:
        return None
    if name in CORRECTIONS:
        return CORRECTIONS[name]
    near = [(d, one) for one in KNOWN if abs(len(one) - len(name)) <= 2 and (d := _edits(name, one, 2)) <= 2]
    if not near or len(name) < 8:
        return None
    best = min(near)[0]
    closest = [one for d, one in near if d == best]
    return closest[0] if len(closest) == 1 else None


def _edits(a: str, b: str, most: int) -> int:
    """Levenshtein's distance, `most` + 1 where it is larger."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, before = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
        if min(row) > most:
            return most + 1
    return row[-1]
