"""What an inventory is."""

from __future__ import annotations

from dataclasses import dataclass

from netdoctor.inventory.nodeset import fold

# Target.source of what was named there.
COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One machine to examine, as listed. Every string has passed the rules in `names`."""

    id: str
    """The name as listed; with its port where the same name is listed on two ports."""
    host: str
    """What ssh config and DNS are asked for: bare, without brackets; an address where the list has one."""
    port: int | None = None
    user: str | None = None
    python: str | None = None
    slots: int | None = None
    gpus: int | None = None
    rank: int | None = None
    leaf: str | None = None
    """The switch it hangs on, by any name; nodes of one leaf share it."""
    rail: str | None = None
    """The switch of each port, where each has its own: ``mlx5_0:sw1,mlx5_1:sw2``."""
    groups: tuple[str, ...] = ()
    """Groups of the list that it is in, such as Ansible's."""
    order: int = 0
    """Position in the list from 0: the order of ranks."""
    source: str = ""
    """File as named by the user (escaped for display), 'standard input' or 'command line'."""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Targets in rank order, and how the list was understood."""

    targets: tuple[Target, ...]
    format: str
    """A name of `readers.READERS`, or 'names'; several joined by '+'."""
    source: str
    notes: tuple[str, ...] = ()

    def fold(self) -> str:
        """Return all target ids, folded: ``gpu-a[01-04]``."""
        return fold([target.id for target in self.targets])
