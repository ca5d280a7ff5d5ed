"""What HCAs ask for and send at once over PCIe."""

import re
from collections.abc import Iterator

from netdoctor.facts.rdma import Hca, PcieLink
from netdoctor.model import Cause, Finding, look, seen

# What may stand in a command: 0000:81:00.0.
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PIECES = Cause("hca-pcie-pieces", "HCAs of {nodes} move data over PCIe in small pieces")
# What rdma.parity says of the same setting, where it is not the same on all nodes, is one cause with it.
READS = PIECES.but(key="rdma-read-request", title="HCAs of {nodes} ask for data over PCIe in small pieces")
# Bytes. Read requests of 512 are what the PCI Express specification begins with, and drivers leave them;
# NVIDIA sets 4096 on its own systems. A payload of 128, the least, is a sixth header.
READ_LEAST, PAYLOAD_LEAST = 512, 256


def small_pieces(hca: Hca, link: PcieLink) -> Iterator[Finding]:
    """A warning where a card asks for, or sends, less at once than need be."""
    where = hca.pci_address or ""
    command = f"lspci -vvs {where} | grep -E 'MaxPayload|MaxReadReq'" if ADDRESS.fullmatch(where) else ""
    most = min(PAYLOAD_LEAST, link.payload_most)
    for cause, what, size, least in (
        (READS, "max read request", link.read_request, READ_LEAST),
        (PIECES, "max payload", link.payload, most),
    ):
        if 0 < size < least:
            yield cause.warn(
                f"{hca.name} has a {what} of {size} bytes",
                observed=f"{what} {size}",
                expected=f"{least} bytes or more",
                seen=seen(f"/sys/class/infiniband/{hca.name}/device/config", f"{what} {size} bytes", "file"),
                fixes=look(
                    "read it, then set it in the BIOS, or by the kernel's parameter pci=pcie_bus_perf",
                    command,
                    root=True,
                ),
            )
