"""Errors of network interfaces and changes of their links, as rates while a scan measures."""

from collections.abc import Iterator, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.counters import NETDEVS, Grown, earlier_errors, grown, rate_findings, uncounted
from netdoctor.checks._shared.text import is_ifname
from netdoctor.facts.counters import Counted, CounterFacts, LaterCounters
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import HERE, LIKELY, Finding, Fix, seen, skip, unknown

FLAP = NETDEVS.outcome["flap"].cause.but(confidence=LIKELY)
# Azure's node health checks call 5 losses in 24 h flapping. A boot and its settings come to some more. Of a
# node that has been up for longer nobody knows when they were.
LOSSES, OF_BOOT, DAY_S = 5, 10, 86400


@check(
    after=["ssh.login", "net.interface"],
    profile="launch",
    required=False,
    source="https://github.com/Azure/azurehpc-health-checks/blob/main/customTests/azure_ib_link_flapping.nhc",
)
def net_errors(
    counters: CounterFacts, later: LaterCounters, net: NetFacts, rdma: RdmaFacts | None
) -> Iterator[Finding]:
    """Network interfaces count no errors, and their links stay up.

    Looks at:
        The kernel's counters of each interface that carries an address or RDMA, directly or below a bond,
        bridge or VLAN, at login and again after everything that loads the network. The difference is
        judged: more than one damaged packet in a million, more than one in ten thousand that the node
        missed, any change of the carrier. On interfaces that carry RDMA also the pauses that they send:
        more than a tenth of the time (tx_pause_us, if mlx5 reports it), and any storm that the driver
        counts. Pauses of the switch are reported but not judged. On a node that booted less than a day
        ago also fifteen losses of the carrier. rx_dropped is not judged: it counts packets that nobody
        asked for.

    Matters because:
        TCP and RoCE take a damaged packet for congestion and slow down. A link that goes down ends what
        runs over it. Both show on one node only, where nobody looks. A NIC that sends pauses slows down
        its switch, and also nodes that have nothing to do with it.

    Fix:
        Clean or swap cable and transceiver, then try another port of the switch. For missed packets use
        larger receive rings, and more cores for interrupts. If a NIC sends pauses, the reason is usually
        its PCIe link: see rdma.pcie and rdma.gpudirect.
    """
    found = [one for one in grown(counters, later, "netdevs") if _carries(one.totals, net, rdma)]
    wired = _wired(net)
    yield from uncounted(wired, counters, later, "netdevs")
    if not any(one.read and _carries(one, net, rdma) for one in counters.netdevs) and not wired:
        yield skip("no interface with counters carries an address here")
    elif not found and counters.netdevs:
        yield unknown(HERE, "the two readings of the counters do not follow each other")
    warnings: list[Finding] = []
    for one in found:
        words, folder = {"dev": one.name if is_ifname(one.name) else ""}, f"/sys/class/net/{one.name}/"
        warnings += rate_findings(one, NETDEVS, folder, words)
        warnings += _since_boot(one, later.reading, folder, NETDEVS.fixes("flap", words))
    yield from warnings or earlier_errors(found, "interfaces", NETDEVS)


def _wired(net: NetFacts) -> set[str]:
    """Interfaces with a device that carry an address, or do in a bond. Wireless ones (``wlan0``, systemd's
    ``wlp3s0``) are not counted."""
    bonds = {dev.name: dev.slaves for dev in net.netdevs}
    carrying = {row.ifname.partition(":")[0] for row in net.addresses if row.scope == "global"}
    carrying |= {slave for name in carrying for slave in bonds.get(name, ())}
    physical = {dev.name for dev in net.netdevs if dev.kind == "physical" and dev.up}
    return {name for name in carrying & physical if not name.startswith("wl")}


def _carries(one: Counted, net: NetFacts, rdma: RdmaFacts | None) -> bool:
    """Whether an address beyond the link, or RDMA, is on it or on what is on top of it."""
    addressed = {row.ifname.partition(":")[0] for row in net.addresses if row.scope == "global"}
    of_hcas = {name for hca in rdma.hcas for name in hca.netdevs} if rdma else set()
    return not (addressed | of_hcas).isdisjoint((one.name, *one.uppers))


def _since_boot(one: Grown, later: CounterFacts, folder: str, fixes: Sequence[Fix]) -> Iterator[Finding]:
    losses, hours = one.totals.values.get("carrier_changes", 0) // 2, later.uptime_s / 3600
    if losses >= OF_BOOT + LOSSES and later.uptime_s < DAY_S and not one.by["carrier_changes"]:
        yield FLAP.warn(
            f"the link of {one.name} went down {losses} times since the node booted {hours:.1f} hours ago",
            observed=f"{losses} in {hours:.1f} hours",
            expected=f"fewer than {LOSSES} a day, and {OF_BOOT} at boot",
            seen=seen(folder + "carrier_changes", str(one.totals.values["carrier_changes"]), "file"),
            fixes=fixes,
        )
