"""The PCIe link of each HCA, against what its slot and the card can do."""

import re
from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.facts.rdma import Hca, PcieLink, RdmaFacts
from netdoctor.model import DERIVED, HERE, Action, Cause, Finding, look, seen, skip, unknown

# What may stand in a command: 0000:81:00.0.
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PIECES = Cause("hca-pcie-pieces", "HCAs of {nodes} move data over PCIe in small pieces")
# What rdma.parity says of the same setting, where it is not the same on all nodes, is one cause with it.
READS = PIECES.but(key="rdma-read-request", title="HCAs of {nodes} request data over PCIe in small pieces")
# Bytes. Read requests of 512 are what the PCI Express specification begins with, and drivers leave them;
# NVIDIA sets 4096 on its own systems. A payload of 128, the least, is a sixth header.
READ_LEAST, PAYLOAD_LEAST = 512, 256


def small_pieces(hca: Hca, link: PcieLink) -> Iterator[Finding]:
    """A warning where a card asks for, or sends, less at once than need be."""
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
                    "read it, then set it in the BIOS, or with the kernel parameter pci=pcie_bus_perf",
                    _lspci(hca, "MaxPayload|MaxReadReq"),
                    root=True,
                ),
            )


def _lspci(hca: Hca, lines: str) -> str:
    """Shows these lines of a card; empty where its address should stand in no command."""
    where = hca.pci_address or ""
    return f"lspci -vvs {where} | grep -E '{lines}'" if ADDRESS.fullmatch(where) else ""


NARROW = Cause(
    "hca-pcie-narrow",
    "the PCIe link of an HCA of {nodes} is slower than slot and card allow",
    action=Action.DRAIN,
)


@check(
    after=["ssh.login", "rdma.hca"],
    required=False,
    source="https://docs.kernel.org/admin-guide/abi-testing.html#abi-file-testing-sysfs-bus-pci",
)
def rdma_pcie(rdma: RdmaFacts) -> Iterator[Finding]:
    """Every HCA's PCIe link has the lanes and the speed that slot and card can do.

    Looks at:
        current_link_width and current_link_speed of the card, compared with the smaller of its own
        maximum and that of the port above it. Unlike GPUs, HCAs do not slow their link down when idle. As
        root also how much a card requests at once (max read request: 512 bytes or more) and sends at once
        (max payload: 256, if both ends can). Cloud and software adapters, and values that a virtual
        machine does not show, are left out.

    Matters because:
        Eight lanes instead of sixteen halve the rate of a 400 Gbit/s port, while the port itself, and
        ibstat, show 400.

    Fix:
        Reseat the card or its riser, and check the slot's bifurcation in the BIOS. If it stays, it is the
        card or the slot.
    """
    cards = [hca for hca in rdma.hcas if not hca.is_virtual]
    links = {hca.pci_address or hca.name: hca for hca in cards}.values()
    readable = [(hca, hca.pcie) for hca in links if hca.pcie is not None and hca.pcie.is_known]
    if not cards:
        yield skip("no HCA on this node")
    elif not readable:
        yield skip("the PCIe links of the HCAs are not shown here")
    elif silent := [hca.name for hca in links if hca.pcie is None or not hca.pcie.is_known]:
        yield unknown(HERE, f"{listing(silent)}: the PCIe link is not shown, those of others here are")
    for hca, link in readable:
        if link.width < link.width_most or link.gtransfers_s < link.gtransfers_s_most:
            yield _slow(hca, link)
        yield from small_pieces(hca, link)


def _slow(hca: Hca, link: PcieLink) -> Finding:
    now = f"{link.gtransfers_s:g} GT/s x{link.width}"
    most = f"{link.gtransfers_s_most:g} GT/s x{link.width_most}"
    return NARROW.warn(
        f"{hca.name} runs at PCIe {now}, slot and card can do {most}",
        observed=now,
        expected=DERIVED(most),
        seen=seen(f"/sys/class/infiniband/{hca.name}/device/current_link_*", now, "file"),
        fixes=look(
            "read the state of card and port, and the errors of the link",
            _lspci(hca, "LnkCap|LnkSta"),
            root=True,
        ),
    )
