"""The NCCL that torch would load, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._install import install_nccl
from netdoctor.checks._parity import differing
from netdoctor.checks._words import listing
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import DERIVED, PEERS, Cause, Evidence, Finding, in_job, run, seen, skip, unknown
from netdoctor.rules.versions import nccl_version

_OWN = ("wheel", "torch-bundled")

MISSING = Cause("nccl-missing", "{nodes} {has} no NCCL library for torch")
VERSION = Cause("nccl-version", "NCCL differs between {nodes}")
OVERRIDDEN = Cause("nccl-overridden", "{nodes} load{s} another NCCL than the one torch was built with")


@check(
    source="https://github.com/NVIDIA/nccl/blob/v2.23.4-1/src/init.cc",
)
def sw_nccl(nodes: Mapping[str, SoftwareFacts]) -> Iterator[Finding]:
    """Every node loads the same NCCL, and it is the one that torch came with.

    Looks at:
        Every libnccl that the job's interpreter could load, in the loader's order: LD_PRELOAD,
        the wheel's, LD_LIBRARY_PATH, the system's; the first one counts.

    Matters because:
        NCCL compares major, minor and patch since 2.23.4 ("Mismatched NCCL version detected"), but
        only after an exchange whose layout changes between releases, so the usual sight is "Message
        truncated" or a hang. The version of torch does not tell: other indexes carry other NCCLs.

    Fix:
        Install the same nvidia-nccl wheel everywhere, and take libnccl out of LD_PRELOAD and
        LD_LIBRARY_PATH.
    """
    if not any(software.nccl for software in nodes.values()):
        yield skip("no NCCL on any node: nothing to compare")
        return
    versions = {
        node: ".".join(map(str, parts[:3])) for node, s in nodes.items() if (parts := nccl_version(s))
    }
    some = next(iter(versions.values()), None)
    for node, software in nodes.items():
        torch = software.torch
        if software.nccl:
            if node not in versions:
                yield unknown(node, f"the version of {software.nccl[0].path} could not be read")
            yield from _overridden(node, software)
        elif torch and torch.cuda:
            yield MISSING.fail(
                f"torch {torch.version} finds no libnccl.so.2",
                at=node,
                observed="none",
                expected=some or "libnccl.so.2",
                expected_from=PEERS,
                fixes=install_nccl(software, some),
            )
        elif software.torch_error:
            yield unknown(node, f"torch could not be read, nor which NCCL it loads: {software.torch_error}")
        else:
            yield skip("no torch with CUDA on this node, so no NCCL", node)
    yield from differing(
        versions,
        "NCCL",
        VERSION,
        why='the job would hang or end with "Message truncated"',
        tell=True,
        seen=lambda node: _evidence(nodes[node]),
        fixes=lambda node, wanted: install_nccl(nodes[node], wanted),
    )


def _overridden(node: str, software: SoftwareFacts) -> Iterator[Finding]:
    first, *others = software.nccl
    own = next((other for other in others if other.origin in _OWN), None)
    if first.origin in _OWN or own is None or own.version == first.version:
        return
    variable = first.origin in ("LD_PRELOAD", "LD_LIBRARY_PATH")
    source = first.origin if variable else "the system"
    take_out = f"take libnccl out of {source}, so that torch loads the one it was built with"
    yield OVERRIDDEN.warn(
        f"{source} gives NCCL {first.version or '?'} in place of torch's own {own.version or '?'}",
        at=node,
        observed=f"{first.version or '?'} from {first.origin}",
        expected=f"{own.version or '?'} from the wheel",
        expected_from=DERIVED,
        seen=_evidence(software),
        fixes=in_job(take_out, f"unset {first.origin}", persistent=True)
        if variable
        else run(take_out, "ldconfig -p | grep libnccl", effect="next launch"),
    )


def _evidence(software: SoftwareFacts) -> Evidence:
    found = [f"{nccl.version or '?'} {nccl.origin} {nccl.path}" for nccl in software.nccl]
    return seen("libnccl.so.2 in load order", listing(found), "file")
