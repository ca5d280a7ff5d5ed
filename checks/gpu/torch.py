"""Whether the job's torch is built for the GPUs that the node has."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.facts.software import SoftwareFacts, Torch
from netdoctor.model import DERIVED, HERE, Cause, Finding, ok, run, seen, skip, unknown
from netdoctor.rules.cuda import BF16, build_with, code_for
from netdoctor.rules.versions import parse_version

VENDOR = Cause("torch-other-vendor", "torch on {nodes} is not built for the GPUs there")
NO_CODE = Cause("torch-no-gpu-code", "torch on {nodes} has no code for the GPUs there")


@check(
    after=["ssh.login", "gpu.visible", "sw.torch"],
    explains=("gpu.work",),
    source="https://docs.nvidia.com/cuda/ada-compatibility-guide",
)
def gpu_torch(
    software: SoftwareFacts, gpu: GpuFacts, others: AcceleratorFacts | None = None
) -> Iterator[Finding]:
    """The job's torch has code for the GPUs of the node.

    Looks at:
        The GPUs that torch was compiled for, read from its own library (as ``torch.cuda.get_arch_list()``
        prints them; nothing is imported), and the compute capability that NVML reports. CUDA or ROCm in
        the build, and the vendor of the GPUs. A binary runs on GPUs of its own major capability with the
        same or a later minor one; PTX runs on all later GPUs.

    Matters because:
        A wheel that is older than the GPU, or no longer supports it, ends with "no kernel image is
        available for execution on the device" at the first operation. A build for the other vendor finds
        no GPU at all.

    Fix:
        Install a build of torch that has code for the GPU.
    """
    torch = software.torch
    if torch is None:
        yield skip("no torch on this node")
    elif not gpu.devices and others and others.amd:
        if not torch.hip:
            yield _other_vendor(torch, "CUDA" if torch.cuda else "processors", "AMD's", "ROCm")
    elif not gpu.devices:
        yield skip("no GPU on this node")
    elif torch.hip:
        yield _other_vendor(torch, "ROCm", "NVIDIA's", "CUDA")
    elif not torch.cuda:
        yield skip("a torch without CUDA on this node")
    elif not torch.archs:
        yield skip("torch's library does not show for which GPUs it has code")
    else:
        silent = [f"GPU {d.index}" for d in gpu.devices if d.error is None and not d.compute_capability]
        if silent:
            yield unknown(HERE, f"{listing(silent, 4)}: NVML does not report the compute capability")
        yield from _code(torch, gpu.devices)


def _other_vendor(torch: Torch, built: str, vendor: str, platform: str) -> Finding:
    return VENDOR.fail(
        f"torch {torch.version} is built for {built}, and the node's GPUs are {vendor}",
        observed=torch.version,
        expected=DERIVED(f"a build with {platform}"),
        seen=seen(f"{torch.path or 'torch'}/version.py", torch.version, "file"),
        fixes=run(f"install a build with {platform} (pytorch.org/get-started)", effect="next launch"),
    )


def _code(torch: Torch, devices: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Each kind of GPU once."""
    archs, parts = listing(torch.archs, 12), []
    for name, capability in dict.fromkeys((d.name, d.compute_capability) for d in devices):
        version, arch = parse_version(capability), f"sm_{capability}".replace(".", "")
        if version is None:
            continue
        if how := code_for(torch.archs, version):
            ready = "" if how == "binary" else ", compiled from PTX when it starts"
            parts.append(f"{name} ({arch}{ready}{'' if version >= BF16 else ', without bfloat16 units'})")
            continue
        build = build_with(version) or f"a build with code for {arch}"
        yield NO_CODE.fail(
            f"torch {torch.version} has no code for {name} ({arch})",
            observed=archs,
            expected=DERIVED(f"code for {arch}"),
            seen=seen(f"{torch.path}/lib/libtorch_python.so", archs, "file"),
            fixes=run(f"install {build}", effect="next launch"),
        )
    if parts:
        yield ok(HERE, f"torch {torch.version} has code for {listing(parts)}", observed=archs)
