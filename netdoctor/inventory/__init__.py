"""Host lists to targets. Touches files and the environment, never the network.

Everything that a user can get wrong is told at once, as `InventoryError`, before any contact. Names
that pass here are safe to hand to ssh_config, DNS and argument lists: see `names`.
"""

from typing import TYPE_CHECKING, Any

from netdoctor.inventory.errors import InventoryError, Problem
from netdoctor.inventory.model import Inventory, Target
from netdoctor.inventory.nodeset import expand, fold

if TYPE_CHECKING:
    from netdoctor.inventory.loader import load, restrict

__all__ = ["Inventory", "InventoryError", "Problem", "Target", "expand", "fold", "load", "restrict"]


def __getattr__(name: str) -> Any:
    """The readers of every format are imported for whoever reads a list: workers and `facts` do not."""
    if name not in ("load", "restrict"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from netdoctor.inventory import loader

    return getattr(loader, name)
