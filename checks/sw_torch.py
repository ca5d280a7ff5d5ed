"""torch of the job's interpreter, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._parity import differing, python_of, safe_version
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    skip,
    unknown,
)


@check(
    explains=("sw.nccl", "sw.cuda"),
    source="https://pytorch.org/docs/stable/elastic/run.html",
)
def sw_torch(nodes: Mapping[str, SoftwareFacts], gpus: Mapping[str, GpuFacts] | None) -> Iterator[Finding]:
    """Every node has the same torch, built for the hardware that the node has.

    Looks at:
        ``torch/version.py`` of the job's interpreter, without importing torch: version, CUDA or
        ROCm build; and whether the node has NVIDIA GPUs.

    Matters because:
        Ranks with different releases of torch disagree about collectives, object layouts and
        timeouts, and usually bring different NCCLs. A CPU-only build on a GPU node ends with
        "Torch not compiled with CUDA enabled".

    Fix:
        Install the majority's version, from the same index, on the nodes that differ. If the job
        runs in containers, point netdoctor at the interpreter inside them.
    """
    have = {node: software.torch for node, software in nodes.items() if software.torch}
    if not have:
        broken = {node: s.torch_error for node, s in nodes.items() if s.torch_error}
        for node, error in broken.items():
            yield unknown(node, f"torch could not be read: {error}")
        if not broken:
            yield skip("no torch on any node: nothing to compare")
        return

    versions = {node: torch.version for node, torch in have.items()}
    usual = next(iter(sorted(versions.values(), key=list(versions.values()).count, reverse=True)))

    for node, software in nodes.items():
        if software.torch:
            continue
        if software.torch_error:
            yield unknown(node, f"torch could not be read: {software.torch_error}")
            continue
        yield fail(
            node,
            f"no torch in {software.executable}, while {listing(tuple(have), 3)} {_have(have)} it",
            observed="not installed",
            expected=usual,
            expected_from=ExpectedFrom.PEERS,
            evidence=(
                Evidence(
                    kind="file",
                    where=node,
                    what="torch in the interpreter's search path",
                    output=listing(list(software.search_path), 4),
                ),
            ),
            cause=CauseHint(
                key="torch-missing",
                title="{nodes} {has} no torch in the job's interpreter",
                culprits=(node,),
                fixes=install(node, software, usual),
            ),
        )

    yield from differing(
        versions,
        "torch",
        "torch-version",
        why="ranks would disagree about collectives",
        fixes=lambda node, wanted: install(node, nodes[node], wanted),
        evidence=lambda node: _evidence(node, nodes[node]),
        verify=("sw.torch", "sw.nccl", "sw.cuda"),
    )

    for node, torch in have.items():
        facts = (gpus or {}).get(node)
        has_gpu = facts is not None and bool(facts.devices or facts.pci)
        if has_gpu and torch.cuda is None and torch.hip is None:
            peers = [t.version for t in have.values() if t.cuda]
            yield fail(
                node,
                f"torch {torch.version} is built without CUDA, and the node has GPUs",
                observed=torch.version,
                expected="a build with CUDA",
                expected_from=ExpectedFrom.DERIVED,
                evidence=_evidence(node, nodes[node]),
                cause=CauseHint(
                    key="torch-cpu-build",
                    title="{nodes} {has} GPUs but a torch built without CUDA",
                    culprits=(node,),
                    fixes=install(node, nodes[node], peers[0] if peers else None),
                ),
            )
    if len(set(versions.values())) == 1 and len(have) == len(nodes):
        for node, version in versions.items():
            yield ok(node, f"torch {version}", observed=version)


def _have(nodes: Mapping[str, object]) -> str:
    return "has" if len(nodes) == 1 else "have"


def _evidence(node: str, software: SoftwareFacts) -> tuple[Evidence, ...]:
    torch = software.torch
    if torch is None:
        return ()
    build = f"cuda {torch.cuda}" if torch.cuda else f"hip {torch.hip}" if torch.hip else "cpu"
    return (
        Evidence(
            kind="file",
            where=node,
            what=f"{torch.path or 'torch'}/version.py",
            output=f"{torch.version} ({build}) in {software.executable}",
        ),
    )


def install(node: str, software: SoftwareFacts, wanted: str | None) -> tuple[Fix, ...]:
    """How to put torch `wanted` (``2.6.0+cu124``) into the job's interpreter on `node`."""
    version = safe_version(wanted)
    package = f"torch=={version}" if version else "torch"
    # A local version such as +cu124 is in the index of that build only, whose place the site knows.
    source = ", from the same index as on the other nodes" if version and "+" in version else ""
    return (
        Fix(
            text=f"install {package} in the job's interpreter{source}",
            commands=(Command(run_on=node, shell=f"{python_of(software)} -m pip install '{package}'"),),
            effect="next launch",
            risk="medium",
        ),
    )
