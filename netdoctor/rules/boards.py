"""What NVIDIA's boards can do at best, by the names that the driver gives them.

Dense products of 16-bit numbers on matrix units, and memory bandwidth, as in the boards' data sheets (which
print twice as much for sparse matrices). A board whose figures could not be looked up (A10G, GH200, H200 NVL)
is left to comparison with its peers.
"""

import re
from typing import NamedTuple


class Board(NamedTuple):
    """tflop_s: dense, of 16-bit numbers; gbyte_s: of its memory. In thousands of millions. source: where
    both are written."""

    tflop_s: float
    gbyte_s: float
    source: str = ""


_SITE = "https://www.nvidia.com/en-us/data-center/"
_BLACKWELL = "https://resources.nvidia.com/en-us-blackwell-architecture"
_CONTENT = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/"
_A100 = f"{_CONTENT}a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_V100 = (
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)

# The first that fits counts. What reaches a part of this only, for want of power, has its margin below.
_BOARDS: tuple[tuple[str, Board], ...] = (
    (r"GB200", Board(2500, 8000, _BLACKWELL)),
    (r"B200", Board(2250, 7700, _BLACKWELL)),
    (r"H200", Board(989, 4800, f"{_SITE}h200/")),
    (r"H100 NVL", Board(835, 3900, f"{_SITE}h100/")),
    (r"H100 PCIe", Board(756, 2000, f"{_SITE}h100/")),
    (r"H100 80GB HBM3", Board(989, 3350, f"{_SITE}h100/")),
    (r"A100-SXM\S*-40GB|A100-PCIE-40GB", Board(312, 1555, _A100)),
    (r"A100 80GB PCIe", Board(312, 1935, _A100)),
    (r"A100-SXM\S*-80GB", Board(312, 2039, _A100)),
    (r"A30", Board(165, 933, f"{_SITE}products/a30-gpu/")),
    (
        r"A40",
        Board(
            149.7, 696, "https://images.nvidia.com/content/Solutions/data-center/a40/nvidia-a40-datasheet.pdf"
        ),
    ),
    (r"A10", Board(125, 600, f"{_CONTENT}a10/pdf/a10-datasheet.pdf")),
    (r"L40S", Board(362, 864, f"{_SITE}l40s/")),
    (r"L40", Board(181, 864, f"{_SITE}l40/")),
    (r"L4", Board(121, 300, "https://resources.nvidia.com/en-us-gpu-resources/l4-tensor-datasheet")),
    (r"V100-SXM\S*", Board(125, 900, _V100)),
    (r"V100-PCIE\S*", Board(112, 900, _V100)),
    (r"T4", Board(65, 300, f"{_CONTENT}tesla-t4/t4-tensor-core-datasheet-951643.pdf")),
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
