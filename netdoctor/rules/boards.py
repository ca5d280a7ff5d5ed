"""What NVIDIA's boards can do at best, by the names that the driver gives them.

Dense products of 16-bit numbers on matrix units, and memory bandwidth, as in the boards' data sheets (which
print twice as much for sparse matrices): https://www.nvidia.com/en-us/data-center/ and the pages below it,
h100, h200, a100, l40s, l4, a10, a30, a40, v100, tesla-t4; DGX B200 and GB200 NVL72 for one of their GPUs.
"""

import re
from typing import NamedTuple


class Board(NamedTuple):
    """tflop_s: dense, of 16-bit numbers; gbyte_s: of its memory. In thousands of millions."""

    tflop_s: float
    gbyte_s: float


# The first that fits counts. What reaches a part of this only, for want of power, has its margin below.
_BOARDS: tuple[tuple[str, Board], ...] = (
    (r"GB200", Board(2500, 8000)),
    (r"B200", Board(2250, 7700)),
    (r"GH200", Board(989, 4000)),
    (r"H200 NVL", Board(835, 4800)),
    (r"H200", Board(989, 4800)),
    (r"H100 NVL", Board(835, 3900)),
    (r"H100 PCIe", Board(756, 2000)),
    (r"H100 80GB HBM3", Board(989, 3350)),
    (r"A100-SXM\S*-40GB|A100-PCIE-40GB", Board(312, 1555)),
    (r"A100 80GB PCIe", Board(312, 1935)),
    (r"A100-SXM\S*-80GB", Board(312, 2039)),
    (r"A30", Board(165, 933)),
    (r"A40", Board(149.7, 696)),
    (r"A10G?", Board(125, 600)),
    (r"L40S", Board(362, 864)),
    (r"L40", Board(181, 864)),
    (r"L4", Board(121, 300)),
    (r"V100-SXM\S*", Board(125, 900)),
    (r"V100-PCIE\S*", Board(112, 900)),
    (r"T4", Board(65, 300)),
)
_COMPILED = [(re.compile(rf"(NVIDIA |Tesla )*({pattern})( \d+GB)?"), board) for pattern, board in _BOARDS]
# Boards of 70 and 72 W fall far below what their units could do, and are none the worse for it.
_WITHOUT_POWER = re.compile(r"(NVIDIA |Tesla )*(T4|L4)")

# Less than this part of a data sheet no healthy board does. DCGM's own floors for memory are 0.46 (H200) to
# 0.57 (H100) of it (nvvs/diag-skus.yaml.in); for products, ROCm/cvs calls a board good from 0.46 on.
LEAST_PART = 0.4


def board(name: str) -> Board | None:
    """What is known of the board that the driver calls ``NVIDIA H100 80GB HBM3``."""
    return next((known for pattern, known in _COMPILED if pattern.fullmatch(name)), None)


def least(name: str) -> Board | None:
    """What a healthy board of this name does at the least; None where nothing is known."""
    known = board(name)
    if known is None:
        return None
    return Board(
        0.0 if _WITHOUT_POWER.fullmatch(name) else LEAST_PART * known.tflop_s, LEAST_PART * known.gbyte_s
    )
