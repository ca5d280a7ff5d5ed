"""Drivers, firmware and settings of the NICs under the job's addresses."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.majority import of_most
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing, on_dev
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import DERIVED, PEERS, Cause, Finding, Fix, Status, at, look, run, seen, skip

HALF = Cause("nic-half-duplex", "a NIC of {nodes} runs at half duplex")
FALLEN = Cause("nic-speed-fallen", "a NIC of {nodes} fell back to 100 Mbit/s or less")
OFF = Cause("nic-offload-off", "{nodes} {has} NIC offloads off that most nodes have on")
FEWER = Cause("nic-queues-fewer", "{nodes} {has} smaller NIC rings or fewer queues than most nodes")
FEATURES = {
    "rx": "receive checksums", "tx": "send checksums", "sg": "scatter-gather", "tso": "TCP segmentation",
    "gso": "generic segmentation", "gro": "receive merging",
}  # fmt: skip
# What ethtool sets them with.
SIZES = {
    "ring rx": "-G {0} rx", "ring tx": "-G {0} tx", "channels rx": "-L {0} rx", "channels tx": "-L {0} tx",
    "channels combined": "-L {0} combined",
}  # fmt: skip

Nics = Mapping[str, list[Netdev]]


def carriers(net: NetFacts, used: Collection[str]) -> list[Netdev]:
    """Return the physical NICs (in a container the veth) that carry these addresses of a node."""
    names = {row.ifname.partition(":")[0] for row in net.addresses if row.address in used}
    names |= {name.partition(".")[0] for name in names}
    names |= {link for dev in net.netdevs if dev.name in names for link in dev.slaves}
    return [dev for dev in net.netdevs if dev.name in names and dev.kind in ("physical", "veth")]


def link_findings(dev: Netdev) -> Iterator[Finding]:
    """What is wrong with the link of one NIC, whatever others have."""
    most = (dev.nic and dev.nic.most_mbit_s) or 0
    if dev.duplex == "half":
        yield HALF.warn(
            f"{dev.name} runs at half duplex",
            observed="half duplex",
            expected="full duplex",
            seen=seen(f"/sys/class/net/{dev.name}/duplex", dev.duplex, "file"),
            fixes=_negotiate(dev),
        )
    # Where 1000BASE-T loses one of its four pairs, 100BASE-TX still works with two.
    if 0 < (dev.speed_mbit_s or 0) <= 100 and most >= 1000:
        yield FALLEN.warn(
            f"{dev.name} runs at {dev.speed_mbit_s} Mbit/s, and can {most}",
            observed=f"{dev.speed_mbit_s} Mbit/s",
            expected=DERIVED(f"{most} Mbit/s"),
            seen=seen(f"/sys/class/net/{dev.name}/speed", str(dev.speed_mbit_s), "file"),
            fixes=[_negotiate(dev), Fix(text="swap the cable, then try another port of the switch")],
        )


def _negotiate(dev: Netdev) -> Fix:
    return look("see what both ends offer, and let both negotiate the link", on_dev(dev.name, "ethtool {0}"))


def settings(nics: Nics, hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Nodes whose NIC has less switched on, or less room, than those of more than half of the nodes alike."""
    comparable: dict[tuple[str, int, int], dict[tuple[str, str], int]] = defaultdict(dict)
    for node, dev in ((node, dev) for node, some in nics.items() for dev in some):
        for setting, value in _set_on(dev, hosts.get(node)):
            comparable[setting][node, dev.name] = value
    low: dict[tuple[str, str, Cause], list[tuple[str, int, int]]] = defaultdict(list)
    for (key, *_), values in comparable.items():
        typical = of_most(values.values())
        for nic, value in values.items():
            if typical is not None and value < typical:
                what = (*nic, OFF if key in FEATURES else FEWER)
                low[what].append((key, value, typical))
    for (node, name, cause), rows in low.items():
        has, expected = (listing(_word(key, pair[i]) for key, *pair in rows) for i in (0, 1))
        yield cause.warn(
            f"{name} has {has}, most nodes have {expected}",
            at=node,
            observed=has,
            expected=PEERS(expected),
            seen=seen(f"ethtool {'-k' if cause is OFF else '-g and -l'} {name}", has, "command"),
            fixes=run(
                "use the setting of the others",
                _command(name, rows, 2),
                undo=_command(name, rows, 1),
                root=True,
                persistent=False,
                risk="medium",
                loses="the link, for a moment",
            ),
        )


def _set_on(dev: Netdev, host: HostFacts | None) -> Iterator[tuple[tuple[str, int, int], int]]:
    """Yield each setting of a NIC and its value.

    Sizes are compared between NICs of equal maximum, on machines with as many processors.
    """
    if dev.nic is not None:
        for key, on in dev.nic.features.items():
            if key in FEATURES:
                yield (key, 0, 0), on
        for key, (now, most) in dev.nic.sizes.items():
            if key in SIZES and host is not None:
                yield (key, most, host.cpu_count), now


def _word(key: str, value: int) -> str:
    return f"{FEATURES[key]} {'on' if value else 'off'}" if key in FEATURES else f"{key} {value}"


def _command(name: str, rows: Sequence[tuple[str, int, int]], column: int) -> str:
    """Keys are ours, values numbers."""
    parts = (
        f"ethtool {SIZES[row[0]]} {row[column]}"
        if row[0] in SIZES
        else f"ethtool -K {{0}} {row[0]} {'on' if row[column] else 'off'}"
        for row in rows
    )
    return on_dev(name, " && ".join(parts))


class Property(NamedTuple):
    """What is compared between NICs of one model."""

    key: str
    word: str
    read: Callable[[Netdev], str | None]
    guests: bool = True  # in virtual machines, too
    follows: tuple[str, ...] = ()  # as of a cause


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
    expect: Expectations | None = None,
) -> Iterator[Finding]:
    """NICs run at full duplex, and those of one model have the same driver, firmware and settings.

    Looks at:
        NICs that carry addresses of the job, also below a bond or VLAN, but not HCAs: duplex from
        /sys/class/net; driver and its version, firmware, offloads, ring sizes and number of queues from
        ethtool. NICs with the same PCI ids are compared, if more than half agree. Firmware is compared on
        real machines only, because a guest has its host's. Rings and queues are compared between machines
        with as many processors, and only smaller ones are reported.

    Matters because:
        Half duplex means that one end negotiates and the other does not; it loses packets under load.
        Without its offloads a fast NIC keeps cores busy with single packets. If one node alone is slow,
        check another driver or firmware first.

    Fix:
        Switch the offload on, set the rings of the others, install the driver or firmware of the others.
    """
    models: dict[str, dict[str, list[Netdev]]] = defaultdict(lambda: defaultdict(list))
    links = 0
    used: dict[str, set[str]] = defaultdict(set)
    for use in paths.uses:
        used[use.node].add(use.address)
    for node, net in nets.items():
        known = (rdma or {}).get(node)
        of_hcas = {name for hca in known.hcas for name in hca.netdevs} if known else set()
        for dev in carriers(net, used[node]):
            if dev.name not in of_hcas:
                models[dev.model or dev.driver or dev.kind][node].append(dev)
                links += dev.duplex in ("full", "half")
                yield from at(node, link_findings(dev))
    readable = [
        nics for nics in models.values() if sum(any(d.nic for d in devs) for devs in nics.values()) > 1
    ]
    if not readable and not links:
        yield skip("no NIC of the job shows its duplex, and no two of one model show their settings")
    for model, nics in models.items():
        guests = {node for node in nics if (tuning := (tunings or {}).get(node)) is None or tuning.is_virtual}
        for one in PROPERTIES:
            compared = {node: devs for node, devs in nics.items() if one.guests or node not in guests}
            yield from _compared(one, model, compared, expect)
        yield from settings(nics, hosts)


def _compared(one: Property, model: str, nics: Nics, expect: Expectations | None) -> Iterator[Finding]:
    values = {
        node: listing(sorted({value for dev in devs if (value := one.read(dev))}))
        for node, devs in nics.items()
    }
    if not of_most(values.values()) and not (expect and expect.has(one.key, model)):
        return
    names = {node: listing(dev.name for dev in devs) for node, devs in nics.items()}
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
        item=model,
        status=Status.WARN,
        evidence_of=lambda node: seen(f"ethtool -i {names[node]}", values[node], "command"),
        fixes=lambda *_: INSTALL,
    )
