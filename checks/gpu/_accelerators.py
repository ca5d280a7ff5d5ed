"""GPUs that are not NVIDIA's, for checks that know NVIDIA's."""

from netdoctor.checks._shared.text import listing
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.model import Finding, skip


def of_others(found: AcceleratorFacts) -> Finding:
    """A node whose GPUs are not NVIDIA's: those that nothing here knows are a gap."""
    unknown_kinds = listing([f"{count} x {kind}" for kind, count in found.others.items()])
    if found.amd:
        return skip(f"no NVIDIA GPU on this node, but {len(found.amd)} of AMD (amd.visible)")
    return skip(
        f"no NVIDIA GPU on this node; {unknown_kinds} is hardware that netdoctor does not know",
        gap=f"accelerators that are not known here ({unknown_kinds})",
    )
