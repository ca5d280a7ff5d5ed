"""How far apart two PCI functions are, in the words of ``nvidia-smi topo``."""

from enum import IntEnum
from functools import lru_cache
from itertools import takewhile


class Distance(IntEnum):
    """What lies between them, the nearest first. [nvidia-smi topo -m, its legend]"""

    PIX = 1  # one switch
    PXB = 2  # several switches
    PHB = 3  # a host bridge
    NODE = 4  # host bridges of one NUMA node
    SYS = 5  # what joins NUMA nodes


@lru_cache(maxsize=1 << 14)  # nodes of one model have the same paths
def distance(a: tuple[str, ...], b: tuple[str, ...], numa_a: int | None, numa_b: int | None) -> Distance:
    """Between functions with these paths from their host bridges, ``pci0000:10``, ``0000:10:01.0`` ….

    Where the kernel knows no NUMA node of one of them (-1, None), both are taken to be on the same.
    """
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))
    if shared == 0:
        known = {numa for numa in (numa_a, numa_b) if numa is not None and numa >= 0}
        return Distance.SYS if len(known) > 1 else Distance.NODE
    if shared == 1:
        return Distance.PHB
    # Below what they share, a switch has one port on the way to each of them.
    return Distance.PIX if max(len(a), len(b)) - shared <= 2 else Distance.PXB
