"""Host lists to targets. Touches files and the environment, never the network.

Everything that a user can get wrong is told at once, as `InventoryError`, before any contact. Names
that pass here are safe to hand to ssh_config, DNS and argument lists: see `names`.
"""

from netdoctor.inventory.errors import InventoryError, Problem
from netdoctor.inventory.loader import load, restrict
from netdoctor.inventory.model import Inventory, Target
from netdoctor.inventory.nodeset import expand, fold

__all__ = [
    "Inventory",
    "InventoryError",
    "Problem",
    "Target",
    "expand",
    "fold",
    "load",
    "restrict",
]
