"""Bonds that carry the job's traffic, and the links in them."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.text import is_ifname, listing
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.model import DERIVED, HERE, Cause, Finding, at, look, seen, skip, unknown

DEAD = Cause("bond-link-down", "a bond of {nodes} has lost a link")
UNEVEN = Cause("bond-speeds", "the links in a bond of {nodes} have different speeds")
SPLIT = Cause("bond-lacp", "LACP on {nodes} does not use all links of a bond: the switch does not group them")
# Of "going back", "fail" and "down" none carries data. [drivers/net/bonding/bond_main.c]
GOOD = "up"


@check(
    after=["ssh.login", "net.interface"],
    required=False,
    source="https://docs.kernel.org/networking/bonding.html",
)
def net_bond(nodes: Mapping[str, NetFacts], paths: Paths) -> Iterator[Finding]:
    """Every link in a bond that the job uses is up, as fast as the others, and used.

    Looks at:
        Bonds below addresses that the job dials, also with VLANs on them: the state of each link in the
        bonding driver (mii_status), the speeds of the links, and with 802.3ad the group into which LACP
        put each link.

    Matters because:
        A bond hides a lost link: everything works, at half the rate, or without the spare link. Links of
        different speed, or in another LACP group, add nothing either.

    Fix:
        Reseat the cable or swap the transceiver of the link. Put the switch ports into one LACP group.
    """
    known = [dev for net in nodes.values() for dev in net.netdevs if dev.slaves]
    if not known:
        yield skip("no node has a bond")
        return
    used = {(use.node, use.address) for use in paths.uses}
    for node, net in nodes.items():
        names = {row.ifname.partition(":")[0] for row in net.addresses if (node, row.address) in used}
        devs = {dev.name: dev for dev in net.netdevs}
        for bond in net.netdevs:
            if bond.slaves and any(name == bond.name or name.startswith(f"{bond.name}.") for name in names):
                yield from at(node, _judged(bond, [devs[one] for one in bond.slaves if one in devs]))


def _judged(bond: Netdev, links: list[Netdev]) -> Iterator[Finding]:
    dead = [one for one in links if one.mii_status not in (None, GOOD) or one.carrier is False]
    groups = {one.aggregator for one in links if one not in dead}
    speeds = {one.speed_mbit_s for one in links if one not in dead and one.speed_mbit_s}
    state = listing(f"{one.name} {one.mii_status or '?'} {one.speed_mbit_s or '?'} Mbit/s" for one in links)
    if not links or all(one.mii_status is None and one.carrier is None for one in links):
        yield unknown(HERE, f"the links of {bond.name} are not shown")
    elif dead and len(dead) < len(links):
        yield _warn(DEAD, bond, state, f"{listing(one.name for one in dead)} is down", "all of its links up")
    if len(speeds) > 1:
        yield _warn(
            UNEVEN, bond, state, f"its links run at {listing(map(str, sorted(speeds)))} Mbit/s", "one speed"
        )
    if bond.bond_mode == "802.3ad" and len(groups) > 1 and None not in groups:
        yield _warn(SPLIT, bond, state, f"its links are in {len(groups)} LACP groups", "one group")


def _warn(cause: Cause, bond: Netdev, state: str, what: str, expected: str) -> Finding:
    file = f"/proc/net/bonding/{bond.name}"
    return cause.warn(
        f"{bond.name} ({bond.bond_mode}): {what}",
        observed=what,
        expected=DERIVED(expected),
        seen=seen(file, state, "file"),
        fixes=look("see the state of each link", f"cat {file}" if is_ifname(bond.name) else ""),
    )
