"""Real throw-away nodes on one machine: namespaces, links, OpenSSH servers, and ways to break them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netdoctor.lab.api import FAULTS, Fault, Lab, LabError, NodeStatus, load, missing_requirements, up

__all__ = ["FAULTS", "Fault", "Lab", "LabError", "NodeStatus", "load", "missing_requirements", "up"]


def __getattr__(name: str) -> object:
    """Load the working parts on first use: `netdoctor --help` only passes by."""
    if name in __all__:
        from netdoctor.lab import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
