"""Whether HCAs can read and write the memory of GPUs."""

import re
from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import HERE, Cause, Finding, run, seen, skip, unknown
from netdoctor.rules.versions import at_least, parse_version

NEITHER = Cause("gpudirect-none", "{nodes} {has} no way between HCAs and GPU memory")
# The kernel that registers a DMA-BUF with an HCA; NVIDIA's open modules export one, the closed ones do not.
DMABUF_KERNEL = (5, 12)
# Boards that cannot do it.
CONSUMER = re.compile(r"\b(GeForce|TITAN)\b", re.IGNORECASE)
LOAD = run(
    "load the driver's module, now and at every start",
    "modprobe nvidia-peermem && echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf",
    root=True,
    risk="low",
    undo="modprobe -r nvidia-peermem; rm -f /etc/modules-load.d/nvidia-peermem.conf",
)


@check(
    after=["ssh.login", "gpu.visible", "rdma.hca"],
    required=False,
    source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html",
)
def rdma_gpudirect(gpu: GpuFacts, rdma: RdmaFacts, host: HostFacts) -> Iterator[Finding]:
    """HCAs reach the memory of GPUs themselves: by DMA-BUF, or by nvidia-peermem.

    Looks at:
        Whether nvidia-peermem (or nv_peer_mem) is loaded; else whether the kernel is 5.12 or newer and the
        NVIDIA driver is of the open kind, which is what DMA-BUF takes. Cloud and software adapters, with ways
        of their own, and boards without GPUDirect are left out.

    Matters because:
        Without either, NCCL copies all that goes over the network through the memory of the host and says so
        only with NCCL_DEBUG=INFO ("GDR 0"). On fast networks that costs more than half of the bandwidth.

    Fix:
        Load nvidia-peermem, which comes with the driver, or install the driver's open kernel modules.
    """
    if not any(hca for hca in rdma.hcas if not hca.is_virtual):
        yield skip("no HCA on this node")
    elif not gpu.devices or all(CONSUMER.search(device.name) for device in gpu.devices):
        yield skip("no GPU with GPUDirect on this node")
    elif gpu.peermem is None or (gpu.open_module is None and not gpu.peermem):
        yield unknown(HERE, "which modules of the NVIDIA driver are loaded was not read")
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
