"""Largest packet that passes between nodes without fragmentation."""

from netdoctor.facts.net import MtuProbe, PathMtus
from netdoctor.measure.common import Caller, Ground, over_echoes

TIMEOUT_S = 0.6


def measure(transport: Caller, ground: Ground) -> PathMtus:
    """UDP probes with the don't-fragment bit over directed pairs."""
    found = over_echoes(transport, ground, MtuProbe, "path_mtu", {"timeout_s": TIMEOUT_S}, 60.0)
    # An echo on a node that went away in the meantime answers nobody, and says nothing about the path.
    probes = tuple(p for p in found.probes if p.dst not in found.silent or p.outcome == "ok")
    return PathMtus(probes=probes, failed_nodes=found.failed)
