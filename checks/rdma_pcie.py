"""The PCIe link of each HCA, against what its slot and the card can do."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._hca_pieces import ADDRESS, small_pieces
from netdoctor.checks._words import listing
from netdoctor.facts.rdma import Hca, PcieLink, RdmaFacts
from netdoctor.model import DERIVED, HERE, Action, Cause, Finding, look, seen, skip, unknown

NARROW = Cause(
    "hca-pcie-narrow",
    "the PCIe link of an HCA of {nodes} is below what slot and card can do",
    action=Action.DRAIN,
)


@check(
    after=["ssh.login", "rdma.hca"],
    required=False,
    source="https://docs.kernel.org/admin-guide/abi-testing.html#abi-file-testing-sysfs-bus-pci",
)
def rdma_pcie(rdma: RdmaFacts) -> Iterator[Finding]:
    """Every HCA has trained its PCIe link to the lanes and the speed that slot and card have.

    Looks at:
        current_link_width and current_link_speed of the card, against the lesser of its own maximum and that
        of the port above it. Unlike GPUs, HCAs do not slow their link down when idle. As root also what a
        card asks for at once (max read request: 512 bytes or more) and sends at once (max payload: 256, if
        both ends can). Cloud and software adapters are left out, and so is what a virtual machine does not
        tell.

    Matters because:
        Eight lanes instead of sixteen halve what a 400 Gbit/s port can move, while the port itself, and
        ibstat, say 400.

    Fix:
        Reseat the card or its riser, look at the slot's bifurcation in the BIOS; then it is the card or the
        slot.
    """
    cards = [hca for hca in rdma.hcas if not hca.is_virtual]
    links = {hca.pci_address or hca.name: hca for hca in cards}.values()
    told = [(hca, hca.pcie) for hca in links if hca.pcie is not None and hca.pcie.is_known]
    if not cards:
        yield skip("no HCA on this node")
    elif not told:
        yield skip("the PCIe links of the HCAs are not shown here")
    elif silent := [hca.name for hca in links if hca.pcie is None or not hca.pcie.is_known]:
        yield unknown(HERE, f"{listing(silent)}: the PCIe link is not shown, those of others here are")
    for hca, link in told:
        if link.width < link.width_most or link.gtransfers_s < link.gtransfers_s_most:
            yield _slow(hca, link)
        yield from small_pieces(hca, link)


def _slow(hca: Hca, link: PcieLink) -> Finding:
    now = f"{link.gtransfers_s:g} GT/s x{link.width}"
    most = f"{link.gtransfers_s_most:g} GT/s x{link.width_most}"
    where = hca.pci_address or ""
    return NARROW.warn(
        f"{hca.name} runs at PCIe {now}, slot and card can do {most}",
        observed=now,
        expected=DERIVED(most),
        seen=seen(f"/sys/class/infiniband/{hca.name}/device/current_link_*", now, "file"),
        fixes=look(
            "read what card and port say, and the errors of the link",
            f"lspci -vvs {where} | grep -E 'LnkCap|LnkSta'" if ADDRESS.fullmatch(where) else "",
            root=True,
        ),
    )
