"""MTU of the interfaces that carry the job's traffic, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.addresses import dialled
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.paths import further_devices, on_path
from netdoctor.checks._shared.text import listing, on_dev
from netdoctor.checks.net._interfaces import MTU, against_expected, nmcli_modify, unspecified
from netdoctor.facts.expected import Expectations
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, PEERS, SUSPECTED, Cause, Finding, Fix, run, seen, skip, unknown


def set_mtu(name: str, mtu: int, was: int) -> tuple[Fix, ...]:
    """The MTU of an interface: now, and from each boot on."""
    now = run(
        "set the MTU of the other nodes",
        on_dev(name, f"ip link set dev {{0}} mtu {mtu}"),
        undo=on_dev(name, f"ip link set dev {{0}} mtu {was}"),
        root=True,
        persistent=False,
        risk="medium",
    )
    lasting = run(
        "to keep it, if NetworkManager has the interface; else in its file (netplan, networkd, interfaces)",
        nmcli_modify(name, f"802-3-ethernet.mtu {mtu}"),
        root=True,
        effect="after reboot",
    )
    return now, lasting


DIFFERS = Cause("mtu-differs", "{nodes} {has} another MTU than most nodes")
NONE_USUAL = Cause(
    "mtu-differs",
    "The nodes ({nodes}) have different MTUs",
    SUSPECTED,
    settle_by="net.path-mtu shows which size passes between them",
)
NOT_READ = Cause("mtu-unread", "The MTU of {nodes} could not be compared", follows=("net.interface",))


@check(source="https://datatracker.ietf.org/doc/html/rfc4821", expects={MTU: int})
def net_mtu(
    nets: Mapping[str, NetFacts], job: Job, paths: Paths | None = None, expect: Expectations | None = None
) -> Iterator[Finding]:
    """The interfaces that carry the job's traffic have one MTU.

    Looks at:
        /sys/class/net/IF/mtu of the interfaces with the addresses at which peers dial a node, compared on
        each path of the job.

    Matters because:
        TCP works with different MTUs (each end announces its segment size), but needs more packets. RoCE
        and UDP do not: an RDMA path MTU of 4096 needs 4200 bytes at both ends, and packets larger than
        the receiver's MTU are lost without a trace.

    Fix:
        Set the others' MTU on the odd node, after checking that its switch port carries it.
    """
    yield from against_expected(nets, lambda _, dev: str(dev.mtu or "") or None, "MTU", DIFFERS, MTU, expect)
    if len(nets) < 2:
        yield skip("one node: nothing to compare with")
        return
    if not job.data_addresses:  # the scan ended before
        yield unknown(CLUSTER, "the interfaces of the job's traffic were not found")
        return
    devs: dict[str, Netdev] = {}
    for node in nets:
        dev = dialled(node, nets, job)
        if dev is None or dev.mtu <= 0:
            what = f"the MTU of {dev.name}" if dev else "which interface carries the job's traffic"
            yield NOT_READ.unknown(f"{what} is not known", at=node)
        elif dev.loopback:
            yield skip("reached over loopback: there is no MTU to compare", node)
        else:
            devs[node] = dev
    yield from _compared(unspecified(devs, MTU, expect))
    for path, further in further_devices(paths.beside if paths else (), nets, devs):
        yield from (on_path(finding, path) for finding in _compared(unspecified(further, MTU, expect)))


def _compared(devs: Mapping[str, Netdev]) -> Iterator[Finding]:
    found = majority({node: dev.mtu for node, dev in devs.items()})
    typical = found.value
    for node, mtu in found.minority.items():
        name = devs[node].name
        others = listing(str(one) for one in found.groups if one != mtu)
        target = typical or min(found.groups)
        yield (DIFFERS if typical else NONE_USUAL).warn(
            f"{name} has MTU {mtu}; {f'most nodes have {typical}' if typical else f'others have {others}'}",
            at=node,
            observed=str(mtu),
            expected=PEERS(str(typical or "the same everywhere")),
            seen=seen(f"/sys/class/net/{name}/mtu", str(mtu), "file"),
            fixes=set_mtu(name, target, mtu) if mtu != target else (),
        )
