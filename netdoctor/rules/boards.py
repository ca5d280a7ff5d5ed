"""What NVIDIA's boards can do at best, by the names that the driver gives them: data/boards.toml."""

import re
from typing import NamedTuple

from msgspec import Struct

from netdoctor import tables


class Board(NamedTuple):
    """In thousands of millions."""

    tflop_s: float  # dense, of 16-bit numbers; 0 where nobody publishes it
    gbyte_s: float  # of its memory
    source: str = ""  # where both are written


class _Row(Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    tflop_s: float = 0.0
    gbyte_s: float
    source: str


class _Boards(Struct, forbid_unknown_fields=True):
    board: tuple[_Row, ...]


_ROWS = tables.table("netdoctor.rules", "boards.toml", _Boards).board
_COMPILED = [
    (re.compile(rf"(NVIDIA |Tesla )*({one.name})( \d+GB)?"), Board(one.tflop_s, one.gbyte_s, one.source))
    for one in _ROWS
]
# Boards of 70 and 72 W fall far below what their units could do, and are none the worse for it.
_WITHOUT_POWER = re.compile(r"(NVIDIA |Tesla )*(T4|L4)")

# Less than this part of a data sheet no healthy board does. DCGM's own floors for memory are 0.46 (H200) to
# 0.57 (H100) of it (nvvs/diag-skus.yaml.in); for products, ROCm/cvs calls a board good from 0.46 on.
LEAST_PART = 0.4


def board(name: str) -> Board | None:
    """What is known of the board that the driver calls ``NVIDIA H100 80GB HBM3``."""
    return next((known for pattern, known in _COMPILED if pattern.fullmatch(name)), None)


def least(name: str, known: Board) -> Board:
    """What a healthy board of this name, and with this data sheet, does at the least."""
    return Board(
        0.0 if _WITHOUT_POWER.fullmatch(name) else LEAST_PART * known.tflop_s, LEAST_PART * known.gbyte_s
    )
