"""Whether HCAs can read and write the memory of GPUs."""

import re
from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.env import change
from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import HERE, LIKELY, Cause, Finding, after_reboot, look, ok, run, seen, skip, unknown
from netdoctor.rules.variables import Environment, effective_env
from netdoctor.rules.versions import at_least, parse_version

NEITHER = Cause("gpudirect-none", "{nodes} {has} no direct path between HCAs and GPU memory")
TRANSLATED = Cause("gpudirect-iommu", "the IOMMU of {nodes} translates traffic from HCAs to GPUs", LIKELY)
REDIRECTED = Cause("gpudirect-acs", "PCIe switches of {nodes} redirect traffic from HCAs to GPUs")
PASS = after_reboot("add iommu=pt to the kernel's command line in the boot loader")
OFF = look(
    "see the switch ports, then switch ACS off in the BIOS",
    "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'",
    root=True,
)
# The kernel that registers a DMA-BUF with an HCA; NVIDIA's open modules export one, the closed ones do not.
DMABUF_KERNEL = (5, 12)
# Boards that cannot do it.
CONSUMER = re.compile(r"\b(GeForce|TITAN|GB10)\b", re.IGNORECASE)
# Memory of the processor and the GPU in one, which PCIe devices do not see coherently: NVIDIA's word in
# https://forums.developer.nvidia.com/t/dgx-spark-gpudirect-rdma/348787
FORCED = Cause("gpudirect-forced", "variables on {nodes} ask NCCL for GPUDirect, which GB10 does not have")
ONE_MEMORY = re.compile(r"\bGB10\b")
LOAD = run(
    "load the driver's module, now and at every start",
    "modprobe nvidia-peermem && echo nvidia-peermem > /etc/modules-load.d/netdoctor-peermem.conf",
    root=True,
    risk="low",
    undo="modprobe -r nvidia-peermem; rm -f /etc/modules-load.d/netdoctor-peermem.conf",
)


@check(
    after=["ssh.login", "gpu.visible", "rdma.hca"],
    required=False,
    source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html",
)
def rdma_gpudirect(
    gpu: GpuFacts, rdma: RdmaFacts, host: HostFacts, login: EnvFacts | None, job: Job
) -> Iterator[Finding]:
    """HCAs reach GPU memory directly: by DMA-BUF, or by nvidia-peermem.

    Looks at:
        Whether nvidia-peermem (or nv_peer_mem) is loaded; else whether DMA-BUF can be used: kernel 5.12
        or newer and the open NVIDIA driver. On x86 machines that are not virtual also whether the IOMMU
        translates for HCAs and, as root, whether PCIe switches above them redirect (ACS). Cloud and
        software adapters, which have other ways, and boards without GPUDirect are left out; on GB10, which
        has none, whether NCCL_NET_GDR_LEVEL or NCCL_DMABUF_ENABLE asks for it.

    Matters because:
        Without either, NCCL copies all network data through host memory, and only NCCL_DEBUG=INFO shows
        it ("GDR 0"). On fast networks that costs more than half of the bandwidth. GPUDirect RDMA needs
        addresses without translation. If ACS redirects, all data goes through the processor, which halves
        the rate or hangs.

    Fix:
        Load nvidia-peermem, which comes with the driver, or install the driver's open kernel modules.
        Boot with iommu=pt, and switch ACS off.
    """
    if not any(hca for hca in rdma.hcas if not hca.is_virtual):
        yield skip("no HCA on this node")
        return
    if any(ONE_MEMORY.search(device.name) for device in gpu.devices):
        yield from _forced(effective_env(login, job))
    if not gpu.devices or all(CONSUMER.search(device.name) for device in gpu.devices):
        yield skip("no GPU with GPUDirect on this node")
    elif gpu.peermem is None or (gpu.open_module is None and not gpu.peermem):
        yield unknown(HERE, "the loaded modules of the NVIDIA driver were not read")
    elif not gpu.peermem and not (gpu.open_module and at_least(parse_version(host.kernel), DMABUF_KERNEL)):
        kind = "open" if gpu.open_module else "closed"
        text = f"no nvidia-peermem; kernel {host.kernel}, driver {gpu.kernel_driver} ({kind} modules)"
        yield NEITHER.warn(
            "HCAs cannot reach the memory of the GPUs: no nvidia-peermem, and no DMA-BUF",
            observed="neither",
            expected="nvidia-peermem, or a kernel from 5.12 on with the open driver",
            seen=seen("/sys/module, /proc/driver/nvidia/version", text, "file"),
            fixes=LOAD,
        )
    else:
        yield from _way(rdma, host)


def _forced(env: Environment) -> Iterator[Finding]:
    for name, off in (("NCCL_NET_GDR_LEVEL", ("", "0", "LOC")), ("NCCL_DMABUF_ENABLE", ("", "0"))):
        setting = env.get(name)
        if setting and setting.value.upper() not in off:
            yield FORCED.warn(
                f"{setting} asks for GPUDirect",
                observed=str(setting),
                expected=f"{name} unset: the GPU's memory is the processor's",
                seen=seen("environment", str(setting), "file"),
                fixes=change(setting),
            )


# https://docs.nvidia.com/cuda/gpudirect-rdma/ ("Supported Systems") on the IOMMU, and on ACS
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html. ARM has it on.
def _way(rdma: RdmaFacts, host: HostFacts) -> Iterator[Finding]:
    """What lies between HCAs and GPUs."""
    cards = [hca for hca in rdma.hcas if not hca.is_virtual and host.arch == "x86_64"]
    if translated := [hca.name for hca in cards if (hca.iommu or "").startswith("DMA")]:
        yield TRANSLATED.warn(
            f"the IOMMU translates for {listing(translated)}",
            observed="DMA",
            expected="identity (iommu=pt), or no IOMMU",
            seen=seen(f"/sys/class/infiniband/{translated[0]}/device/iommu_group/type", "DMA", "file"),
            fixes=PASS,
        )
    if ports := sorted({port for hca in cards for port in hca.acs or ()}):
        yield REDIRECTED.warn(
            f"ACS of {listing(ports)} redirects traffic from device to device",
            observed="on",
            expected="off on the switch ports above HCAs and GPUs",
            seen=seen("ACSCtl in the PCI configuration", listing(ports), "file"),
            fixes=OFF,
        )
    elif any(hca.acs is None for hca in cards):
        yield ok(HERE, "only root can see whether PCIe switches redirect (ACS)")
