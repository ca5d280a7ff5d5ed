"""torch's CUDA build against the driver and against the other nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._parity import differing
from netdoctor.checks.sw_torch import install
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.software import SoftwareFacts, Torch
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    unknown,
    warn,
)
from netdoctor.rules.cuda import FAMILIES, dotted, minimum_driver
from netdoctor.rules.versions import Version, parse_version


@check(
    after=["ssh.login", "gpu.visible"],
    source="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
)
def sw_cuda(nodes: Mapping[str, SoftwareFacts], gpus: Mapping[str, GpuFacts]) -> Iterator[Finding]:
    """Each node's driver runs the CUDA release that torch was built for.

    Looks at:
        ``torch.version.cuda`` (the build, not a toolkit in /usr/local), the loaded driver and the
        highest CUDA it supports, and the CUDA major release of the other nodes' torch.

    Matters because:
        A driver older than the release's minimum ends with "The NVIDIA driver on your system is
        too old". Within one major release older drivers work (minor version compatibility), though
        without features and PTX of the newer ones; a newer driver runs every older build.

    Fix:
        Install a newer driver, or a torch built for an older CUDA. On data-centre GPUs the
        ``cuda-compat`` package does it without a new driver.
    """
    built = {node: s.torch for node, s in nodes.items() if s.torch and s.torch.cuda}
    if not built:
        yield skip("no torch with CUDA on any node")
        return
    majors = {
        node: f"{version[0]}.x" for node, torch in built.items() if (version := parse_version(torch.cuda))
    }
    yield from differing(
        majors,
        "a torch built for CUDA",
        "cuda-major",
        why="such builds bring different NCCLs and libraries",
        fixes=lambda node, _: install(
            node,
            nodes[node],
            next((t.version for n, t in built.items() if majors.get(n) == _), None),
        ),
        evidence=lambda node: _evidence(node, built[node], gpus[node]),
    )
    for node, software in nodes.items():
        if node not in built:
            reason = "a torch without CUDA" if software.torch else "no torch"
            yield skip(f"{reason} on this node", node)
            continue
        if not (gpus[node].devices or gpus[node].pci):
            yield skip("no GPU on this node", node)
            continue
        yield from _against_driver(node, built[node], gpus[node])


def _against_driver(node: str, torch: Torch, gpu: GpuFacts) -> Iterator[Finding]:
    cuda = parse_version(torch.cuda)
    loaded = gpu.driver_version or gpu.kernel_driver
    driver = parse_version(loaded)
    if cuda is None or driver is None:
        yield unknown(node, f"cannot compare CUDA {torch.cuda} with driver {loaded or 'unknown'}")
        return
    least = minimum_driver(cuda)
    if least and driver < least:
        newest = parse_version(gpu.cuda_driver)
        if newest and len(newest) > 1 and newest[:2] >= cuda[:2]:
            # libcuda reports a CUDA this kernel driver cannot have by itself: cuda-compat is in.
            return
        yield fail(
            node,
            f"driver {loaded} is too old for torch {torch.version}, which needs {dotted(least)}",
            observed=f"driver {loaded}",
            expected=f"driver {dotted(least)} or newer for CUDA {torch.cuda}",
            expected_from=ExpectedFrom.CONSTANT,
            evidence=_evidence(node, torch, gpu),
            cause=CauseHint(
                key="driver-too-old",
                title="{nodes} {has} a driver too old for the CUDA that torch is built for",
                culprits=(node,),
                fixes=(_driver_fix(node, least), *_older_torch(gpu)),
                verify=("sw.cuda", "gpu.driver"),
            ),
        )
        return
    for family, name, needed in FAMILIES:
        if driver < needed and any(_family(g.compute_capability) == family for g in gpu.devices):
            yield fail(
                node,
                f"driver {loaded} is older than {name} GPUs need ({dotted(needed)})",
                observed=f"driver {loaded}",
                expected=f"driver {dotted(needed)} or newer for {name} GPUs",
                expected_from=ExpectedFrom.CONSTANT,
                evidence=_evidence(node, torch, gpu),
                cause=CauseHint(
                    key="driver-too-old-for-gpu",
                    title="{nodes} {has} a driver older than the GPUs need",
                    culprits=(node,),
                    fixes=(_driver_fix(node, needed),),
                ),
            )
            return
    compat = parse_version(gpu.cuda_driver)
    if compat and len(compat) > 1 and compat[0] < cuda[0]:
        yield warn(
            node,
            f"the driver library offers CUDA {gpu.cuda_driver}, torch is built for {torch.cuda}",
            observed=f"CUDA {gpu.cuda_driver}",
            expected=f"CUDA {cuda[0]}.0 or newer",
            expected_from=ExpectedFrom.DERIVED,
            evidence=_evidence(node, torch, gpu),
            cause=CauseHint(
                key="cuda-library-old",
                title="{nodes} {has} a libcuda older than the CUDA that torch is built for",
                culprits=(node,),
                confidence=Confidence.LIKELY,
                fixes=(
                    Fix(
                        text="find the libcuda.so.1 that is loaded in place of the driver's own",
                        commands=(
                            Command(
                                run_on=node,
                                shell="ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH",
                            ),
                        ),
                    ),
                ),
            ),
        )


def _family(capability: str | None) -> int | None:
    version = parse_version(capability)
    return version[0] if version else None


def _driver_fix(node: str, least: Version) -> Fix:
    branch = max(least[0], 525)
    return Fix(
        text=f"install a driver of branch {branch} or newer, by the means that installed this one",
        commands=(
            Command(
                run_on=node,
                shell=f"apt-get install --yes nvidia-driver-{branch}-server  # Ubuntu's name",
            ),
        ),
        root=True,
        reboot=True,
        effect="after reboot",
        risk="medium",
    )


def _older_torch(gpu: GpuFacts) -> tuple[Fix, ...]:
    newest = parse_version(gpu.cuda_driver)
    if not newest or len(newest) < 2:
        return ()
    return (
        Fix(
            text=f"on all nodes, a torch built for CUDA {newest[0]}.{newest[1]} or older",
            effect="next launch",
            risk="medium",
        ),
    )


def _evidence(node: str, torch: Torch, gpu: GpuFacts) -> tuple[Evidence, ...]:
    return (
        Evidence(
            kind="file",
            where=node,
            what=f"{torch.path or 'torch'}/version.py",
            output=f"torch {torch.version}, cuda {torch.cuda}",
        ),
        Evidence(
            kind="probe",
            where=node,
            what="NVML",
            output=f"driver {gpu.driver_version or gpu.kernel_driver}, CUDA {gpu.cuda_driver}",
        ),
    )
