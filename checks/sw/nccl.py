"""The NCCL that torch would load, compared across the cluster."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from netdoctor.check import check
from netdoctor.checks._shared.install import install_nccl
from netdoctor.checks._shared.majority import of_majority
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.software import Nccl, SoftwareFacts
from netdoctor.model import DERIVED, PEERS, Cause, Evidence, Finding, Fix, in_job, look, seen, skip, unknown
from netdoctor.rules.versions import nccl_version

MISSING = Cause("nccl-missing", "{nodes} {has} no NCCL library for torch")
VERSION = Cause("nccl-version", "NCCL differs between {nodes}")
OVERRIDDEN = Cause("nccl-overridden", "{nodes} load{s} another NCCL than the one torch was built with")


@check(
    after=["sw.start"],
    source="https://github.com/NVIDIA/nccl/blob/v2.23.4-1/src/init.cc",
    expects={"sw.nccl": str},
)
def sw_nccl(nodes: Mapping[str, SoftwareFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """Every node loads the same NCCL, and it is the one that came with torch.

    Looks at:
        Every libnccl that the job's interpreter could load, in the loader's order: LD_PRELOAD, the
        wheel's, LD_LIBRARY_PATH, the system's. The first one counts.

    Matters because:
        Since 2.23.4 NCCL compares major, minor and patch ("Mismatched NCCL version detected"), but only
        after an exchange whose layout changes between releases. So the job usually ends with "Message
        truncated", or hangs. The version of torch is no proof: other package indexes build torch with
        another NCCL.

    Fix:
        Install the same nvidia-nccl wheel everywhere, and remove libnccl from LD_PRELOAD and
        LD_LIBRARY_PATH.
    """
    if not any(software.nccl for software in nodes.values()):
        yield skip("no NCCL on any node: nothing to compare")
        return

    def evidence(node: str) -> Evidence:
        found = [f"{nccl.version or '?'} {nccl.origin} {nccl.path}" for nccl in nodes[node].nccl]
        return seen("libnccl.so.2 in load order", listing(found), "file")

    def wheel(node: str, release: str) -> tuple[Fix, ...]:
        return install_nccl(nodes[node], release)

    releases = {node: nccl_version(software) for node, software in nodes.items()}
    versions = {node: ".".join(map(str, release[:3])) for node, release in releases.items() if release}
    some = next(iter(versions.values()), "")
    for node, software in nodes.items():
        torch = software.torch
        if software.nccl:
            if node not in versions:
                yield unknown(node, f"the version of {software.nccl[0].path} could not be read")
            yield from _overridden(node, software.nccl, evidence(node))
        elif torch and torch.cuda:
            summary, expected = f"torch {torch.version} finds no libnccl.so.2", PEERS(some or "libnccl.so.2")
            yield MISSING.fail(summary, at=node, observed="none", expected=expected, fixes=wheel(node, some))
        elif software.torch_error:
            yield unknown(node, f"torch and its NCCL could not be read: {software.torch_error}")
        else:
            yield skip("no torch with CUDA on this node, so no NCCL", node)
    why = 'the job would hang or end with "Message truncated"'
    options: dict[str, Any] = {"key": "sw.nccl", "expect": expect, "why": why, "report_equal": True}
    # Of nodes with another torch a difference is sw.torch's to tell: it brings its own NCCL.
    torches = {node: software.torch.version for node, software in nodes.items() if software.torch}
    options["counted"] = of_majority(torches, "torch")
    yield from differing(versions, "NCCL", VERSION, evidence_of=evidence, fixes=wheel, **options)


def _overridden(node: str, found: Sequence[Nccl], evidence: Evidence) -> Iterator[Finding]:
    first, bundled = found[0], next((nccl for nccl in found if nccl.is_torchs_own), found[0])
    if bundled.version == first.version or first.is_torchs_own:
        return
    variable = first.origin in ("LD_PRELOAD", "LD_LIBRARY_PATH")
    source = first.origin if variable else "the system"
    loaded, built = first.version or "?", bundled.version or "?"
    text = f"remove libnccl from {source}, so that torch loads the one it was built with"
    unset = in_job(text, f"unset {first.origin}", persistent=True)
    yield OVERRIDDEN.warn(
        f"{source} gives NCCL {loaded} instead of torch's own {built}",
        at=node,
        observed=f"{loaded} from {first.origin}",
        expected=DERIVED(f"{built} from the wheel"),
        seen=evidence,
        fixes=unset if variable else look(text, "ldconfig -p | grep libnccl"),
    )
