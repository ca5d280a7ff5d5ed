"""MTU of the interfaces that carry the job's traffic, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._addresses import data_device
from netdoctor.checks._majority import majority
from netdoctor.checks._words import is_ifname, listing
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    skip,
    warn,
)


@check(source="https://datatracker.ietf.org/doc/html/rfc4821")
def net_mtu(nets: Mapping[str, NetFacts], job: Job) -> Iterator[Finding]:
    """The interfaces that carry the job's traffic have one MTU.

    Looks at:
        /sys/class/net/IF/mtu of the interface that holds each node's data address.

    Matters because:
        TCP survives a difference (each end announces its segment size), at the price of more packets. RoCE
        and UDP do not: an RDMA path MTU of 4096 needs 4200 bytes at both ends, and packets that are larger
        than the receiver's MTU are lost without a trace.

    Fix:
        Give the odd node the others' MTU, after checking that its switch port carries it.
    """
    if len(nets) < 2:
        yield skip("one node: nothing to compare with")
        return
    devs: dict[str, Netdev] = {}
    for node, net in nets.items():
        dev = data_device(net, job.data_addresses.get(node))
        if dev is not None and not dev.loopback and dev.mtu > 0:
            devs[node] = dev
    found = majority({node: dev.mtu for node, dev in devs.items()})
    if found.equal:
        return
    usual = found.value
    for node, mtu in found.minority.items():
        name = devs[node].name
        other = usual if usual is not None else min(one for one in found.groups)
        shell = f"ip link set dev {name} mtu {other}"
        wanted = is_ifname(name) and mtu != other
        yield warn(
            node,
            f"{name} has MTU {mtu}; "
            + (
                f"most nodes have {usual}"
                if usual is not None
                else f"others have {listing(str(one) for one in found.groups if one != mtu)}"
            ),
            observed=str(mtu),
            expected=str(usual) if usual is not None else "the same everywhere",
            expected_from=ExpectedFrom.PEERS,
            evidence=(Evidence(kind="file", where=node, what=f"/sys/class/net/{name}/mtu", output=str(mtu)),),
            cause=CauseHint(
                key="mtu-differs",
                title="{nodes} {has} another MTU than most nodes"
                if usual is not None
                else "The nodes ({nodes}) do not have one MTU",
                culprits=(node,),
                confidence=Confidence.CERTAIN if usual is not None else Confidence.SUSPECTED,
                fixes=(
                    Fix(
                        text="set the MTU of the others (also in the file that configures the interface)",
                        commands=(Command(run_on=node, shell=shell),) if wanted else (),
                        root=True,
                        persistent=False,
                        risk="medium",
                    ),
                ),
                settle_by=None if usual is not None else "net.path-mtu shows which size passes between them",
            ),
        )
