"""Drivers, firmware and settings of the NICs under the job's addresses."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._nics import Nics, carriers, link_findings, of_most, settings
from netdoctor.checks._parity import differing
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.facts.wanted import Wanted
from netdoctor.model import Cause, Finding, Status, at, run, seen, skip


class Property(NamedTuple):
    """What is compared between NICs of one model. guests: whether in virtual machines, too.
    follows: as of a cause."""

    key: str
    word: str
    read: Callable[[Netdev], str | None]
    guests: bool = True
    follows: tuple[str, ...] = ()


PROPERTIES = (
    Property("net.nic-driver", "driver", lambda dev: dev.driver),
    # Drivers that had releases of their own came to have the kernel's.
    Property(
        "net.nic-version",
        "driver version",
        lambda dev: dev.nic.version if dev.nic else None,
        follows=("host.parity",),
    ),
    # A guest's is its host's.
    Property("net.nic-firmware", "firmware", lambda dev: dev.nic.firmware if dev.nic else None, guests=False),
)
INSTALL = run("install the release that the other nodes have")


@check(
    after=["ssh.login", "net.interface"],
    required=False,
    source="https://docs.kernel.org/networking/ethtool-netlink.html",
    expects={one.key: str for one in PROPERTIES},
)
def net_parity(
    nets: Mapping[str, NetFacts],
    paths: Paths,
    hosts: Mapping[str, HostFacts],
    tunings: Mapping[str, TuningFacts] | None,
    rdma: Mapping[str, RdmaFacts] | None,
    expect: Wanted | None = None,
) -> Iterator[Finding]:
    """NICs run at full duplex, and those of one model with the same driver, firmware and settings.

    Looks at:
        The NICs that carry addresses of the job, those in a bond or below a VLAN included, which are no HCAs:
        duplex from /sys/class/net, and by ethtool's calls driver, its own version, firmware, offloads, sizes
        of rings and number of queues. NICs of the same PCI ids are compared, where more than half agree;
        firmware of real machines only, as a guest's is its host's; rings and queues of machines with as many
        processors, and only those that have less.

    Matters because:
        Half duplex comes of one end that negotiates and one that does not, and loses packets under load.
        Without its offloads a fast NIC keeps cores busy with single packets. Another driver or firmware is
        where to look first when one node alone is slow.

    Fix:
        Switch the offload on, give the rings the others' size, install the others' driver or firmware.
    """
    models: dict[str, dict[str, list[Netdev]]] = defaultdict(lambda: defaultdict(list))
    seen_links = 0
    used: dict[str, set[str]] = defaultdict(set)
    for use in paths.uses:
        used[use.node].add(use.address)
    for node, net in nets.items():
        known = (rdma or {}).get(node)
        of_hcas = {name for hca in known.hcas for name in hca.netdevs} if known else set()
        for dev in carriers(net, used[node]):
            if dev.name not in of_hcas:
                models[dev.model or dev.driver or dev.kind][node].append(dev)
                seen_links += dev.duplex in ("full", "half")
                yield from at(node, link_findings(dev))
    told = [
        there for there in models.values() if sum(any(d.nic for d in devs) for devs in there.values()) > 1
    ]
    if not told and not seen_links:
        yield skip("no NIC of the job shows its duplex, nor two of one model their settings")
    for model, there in models.items():
        guests = {
            node for node in there if (tuning := (tunings or {}).get(node)) is None or tuning.is_virtual
        }
        for one in PROPERTIES:
            mine = {node: devs for node, devs in there.items() if one.guests or node not in guests}
            yield from _compared(one, model, mine, expect)
        yield from settings(there, hosts)


def _compared(one: Property, model: str, there: Nics, expect: Wanted | None) -> Iterator[Finding]:
    values = {
        node: listing(sorted({value for dev in devs if (value := one.read(dev))}))
        for node, devs in there.items()
    }
    if not of_most(values) and not (expect and expect.about(one.key, model)):
        return
    names = {node: listing(dev.name for dev in devs) for node, devs in there.items()}
    yield from differing(
        values,
        f"{one.word} of {model}",
        Cause(
            f"nic-{one.word.replace(' ', '-')}",
            f"the {one.word} of NICs differs between {{nodes}}",
            follows=one.follows,
        ),
        key=one.key,
        expect=expect,
        of=model,
        status=Status.WARN,
        seen=lambda node: seen(f"ethtool -i {names[node]}", values[node], "command"),
        fixes=lambda *_: INSTALL,
    )
