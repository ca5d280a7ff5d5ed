"""torch's CUDA build against the driver and against the other nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.install import install_driver, install_torch
from netdoctor.checks._shared.parity import differing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.software import SoftwareFacts, Torch
from netdoctor.model import (
    DERIVED,
    HERE,
    LIKELY,
    Cause,
    Evidence,
    Finding,
    Fix,
    at,
    look,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.cuda import dotted, has_compat, major, minimum_driver, needed_by_gpus, suits_every_gpu
from netdoctor.rules.versions import Version, parse_version

MAJOR = Cause("cuda-major", "a torch built for CUDA differs between {nodes}")
OLD = Cause(
    "driver-too-old",
    "{nodes} {has} a driver too old for the CUDA that torch is built for",
    verify=("sw.cuda", "gpu.driver"),
)
OLD_FOR_GPU = Cause("driver-too-old-for-gpu", "{nodes} {has} a driver older than the GPUs need")
LIBRARY_OLD = Cause(
    "cuda-library-old", "{nodes} {has} a libcuda older than the CUDA that torch is built for", LIKELY
)

FIND_LIBCUDA = look(
    "find the libcuda.so.1 that is loaded in place of the driver's own",
    "ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH",
)


@check(
    after=["sw.start", "gpu.visible"],
    source="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
)
def sw_cuda(nodes: Mapping[str, SoftwareFacts], gpus: Mapping[str, GpuFacts]) -> Iterator[Finding]:
    """Each node's driver runs the CUDA release for which torch was built.

    Looks at:
        ``torch.version.cuda`` (the build, not a toolkit in /usr/local), the loaded driver and the
        highest CUDA it supports, and the CUDA major release of the other nodes' torch.

    Matters because:
        With a driver that is too old the job ends with "The NVIDIA driver on your system is too old".
        Within one major release older drivers work (minor version compatibility), but without features
        and PTX of newer ones. A newer driver runs every older build.

    Fix:
        Install a newer driver, or a torch for an older CUDA. On data-centre GPUs the package
        ``cuda-compat`` works without a new driver.
    """
    built = {node: s.torch for node, s in nodes.items() if s.torch and s.torch.cuda}
    if not built and not any(software.torch_error for software in nodes.values()):
        yield skip("no torch with CUDA on any node")
        return
    majors = {node: f"{cuda}.x" for node, torch in built.items() if (cuda := major(torch.cuda)) is not None}
    like = {major: built[node].version for node, major in reversed(majors.items())}
    yield from differing(
        majors,
        "a torch built for CUDA",
        MAJOR,
        why="such builds bring different NCCLs and libraries",
        evidence_of=lambda node: _evidence(built[node], gpus[node]),
        fixes=lambda node, version: install_torch(nodes[node], like[version]),
    )
    for node, software in nodes.items():
        if node in built and (gpus[node].devices or gpus[node].pci):
            yield from at(node, _against_driver(built[node], gpus[node]))
        elif node in built:
            yield skip("no GPU on this node", node)
        elif software.torch_error:
            yield unknown(node, f"the CUDA of torch could not be read: {software.torch_error}")
        else:
            yield skip(f"{'a torch without CUDA' if software.torch else 'no torch'} on this node", node)


def _against_driver(torch: Torch, gpu: GpuFacts) -> Iterator[Finding]:
    release = gpu.driver_version or gpu.kernel_driver
    cuda, driver, offered = parse_version(torch.cuda), parse_version(release), parse_version(gpu.cuda_driver)
    if cuda is None or driver is None:
        yield unknown(HERE, f"cannot compare CUDA {torch.cuda} with driver {release or 'unknown'}")
        return
    loaded, least, evidence = f"driver {release}", minimum_driver(cuda), _evidence(torch, gpu)
    capabilities = [device.compute_capability for device in gpu.devices]
    if least and driver < least:
        summary = f"{loaded} is too old for torch {torch.version}, which needs {dotted(least)}"
        expected = f"driver {dotted(least)} or newer for CUDA {torch.cuda}"
        fixes = (_newer_driver(least), *_older_torch(offered))
        if not has_compat(cuda, offered):
            yield OLD.fail(summary, observed=loaded, expected=expected, seen=evidence, fixes=fixes)
    elif needs := needed_by_gpus(driver, capabilities):
        name, least = needs
        summary = f"{loaded} is older than {name} GPUs need ({dotted(least)})"
        expected, fix = f"driver {dotted(least)} or newer for {name} GPUs", _newer_driver(least)
        yield OLD_FOR_GPU.fail(summary, observed=loaded, expected=expected, seen=evidence, fixes=fix)
    else:
        if not all(capabilities) and not suits_every_gpu(driver):
            yield unknown(HERE, f"whether {loaded} is new enough for every GPU could not be read")
        if offered is None:
            yield unknown(HERE, "the CUDA release that the driver's library offers could not be read")
        elif offered[0] < cuda[0]:
            yield LIBRARY_OLD.warn(
                f"the driver library offers CUDA {gpu.cuda_driver}, torch is built for {torch.cuda}",
                observed=f"CUDA {gpu.cuda_driver}",
                expected=DERIVED(f"CUDA {cuda[0]}.0 or newer"),
                seen=evidence,
                fixes=FIND_LIBCUDA,
            )


def _newer_driver(least: Version) -> Fix:
    return install_driver(max(least[0], 525), " or newer")


def _older_torch(offered: Version | None) -> tuple[Fix, ...]:
    if offered is None or len(offered) < 2:
        return ()
    text = f"on all nodes, a torch built for CUDA {offered[0]}.{offered[1]} or older"
    return (run(text, effect="next launch", risk="medium"),)


def _evidence(torch: Torch, gpu: GpuFacts) -> tuple[Evidence, ...]:
    driver = f"driver {gpu.driver_version or gpu.kernel_driver}, CUDA {gpu.cuda_driver}"
    build = f"torch {torch.version}, cuda {torch.cuda}"
    return (seen(f"{torch.path or 'torch'}/version.py", build, "file"), seen("NVML", driver))
