"""What the interfaces of RoCE ports have now, and would not have after a reboot."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.net._interfaces import nmcli_modify
from netdoctor.facts.net import NetFacts
from netdoctor.facts.net_setup import InterfaceSetup, NetSetupFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import HERE, LIKELY, Cause, Finding, Fix, look, ok, run, seen, skip
from netdoctor.rules.addresses import rows_of

LOST = Cause(
    "address-by-hand", "interfaces of RoCE ports of {nodes} have addresses that a reboot takes away", LIKELY
)
MTU = Cause("mtu-by-hand", "interfaces of RoCE ports of {nodes} have an MTU that a reboot takes away", LIKELY)
RANDOM = Cause("address-link-local", "RoCE ports of {nodes} have addresses that they picked by themselves")
WRITE = look(
    "write address and MTU where this system keeps them: netplan, NetworkManager, systemd-networkd",
    "ls /etc/netplan /etc/NetworkManager/system-connections /etc/systemd/network 2>/dev/null",
)
USUAL_MTU = 1500


@check(
    required=False, source="https://github.com/NVIDIA/dgx-spark-playbooks/tree/main/nvidia/connect-two-sparks"
)
def net_after_reboot(setup: NetSetupFacts, rdma: RdmaFacts, net: NetFacts) -> Iterator[Finding]:
    """Addresses and MTU of RoCE ports are there after a reboot, too.

    Looks at:
        The interfaces of active RoCE ports with an IPv4 address: what NetworkManager (nmcli) or
        systemd-networkd have for them, and whether a file that is read at boot names them. Link-local
        addresses (169.254.0.0/16), which nodes pick by themselves. Where neither program runs nothing is
        judged, and nothing that DHCP may set.

    Matters because:
        An address set with "ip addr add", an MTU set with "ip link set", or a profile that is not used by
        itself is gone after the next reboot or firmware update: NCCL then finds the link-local GID, or
        packets of 9000 bytes end at a peer with 1500, for large messages alone.

    Fix:
        Write both into netplan, a NetworkManager profile or a .network file.
    """
    names = {
        name for hca in rdma.hcas if any(p.active and p.is_roce for p in hca.ports) for name in hca.netdevs
    }
    rows = [row for row in rows_of(net) if row.family == "inet"]
    known = {one.ifname: one for one in setup.interfaces}
    mtus = {dev.name: dev.mtu for dev in net.netdevs}
    used = {name: found for name in sorted(names) if (found := [r.address for r in rows if r.ifname == name])}
    if not used:
        yield skip("no RoCE port with an IPv4 address on this node")
        return
    alarms = []
    for name, addresses in used.items():
        picked = [one for one in addresses if one.startswith("169.254.")]
        if picked:
            alarms.append(_picked(name, picked))
        one = known.get(name)
        if one is not None and one.by and not picked:
            alarms += _address(one, addresses, setup.closed)
            alarms += _mtu(one, mtus.get(name, 0), setup)
    yield from alarms
    if alarms:
        return
    read = [
        name for name in used if (one := known.get(name)) and (one.files or (one.by and one.mtu is not None))
    ]
    if len(read) == len(used):
        yield ok(HERE, f"{listing(read)}: address and MTU are written down")
    elif any(one.by for one in known.values()):
        yield skip("only root may read what sets the interfaces up")
    else:
        yield skip("neither NetworkManager nor systemd-networkd runs here")


def _address(one: InterfaceSetup, addresses: list[str], closed: bool) -> Iterator[Finding]:
    if one.files or (closed and not one.is_set_up):
        return
    left = [a for a in addresses if one.method == "manual" and a not in one.addresses]
    fixes: tuple[Fix, ...] = (WRITE,)
    if not one.is_set_up:
        why = f"{one.by} says {one.state}, and no file that is read at boot names it"
    elif left:
        why = f"its profile has {listing(one.addresses) or 'no address'}"
    elif one.autoconnect is False:
        why = "its profile is not used by itself (connection.autoconnect no)"
        shell = nmcli_modify(one.ifname, "connection.autoconnect yes")
        fixes = (run("have NetworkManager use it by itself", shell, root=True), WRITE)
    else:
        return
    yield LOST.warn(
        f"{one.ifname} has {listing(left or addresses)} now, but {why}",
        observed=why,
        expected="an address that is written down",
        seen=seen("nmcli, /run/systemd/netif/links", f"{one.by}: {one.state}", "command"),
        fixes=fixes,
    )


def _mtu(one: InterfaceSetup, mtu: int, setup: NetSetupFacts) -> Iterator[Finding]:
    elsewhere = one.files or setup.closed or setup.mtu_elsewhere or one.method != "manual"
    if one.is_set_up and one.mtu is not None and not elsewhere and mtu > USUAL_MTU and one.mtu != mtu:
        has = f"an MTU of {one.mtu}" if one.mtu else "no MTU"
        shell = nmcli_modify(one.ifname, f"802-3-ethernet.mtu {mtu}")
        write = run("write it into NetworkManager's profile", shell, root=True, effect="after reboot")
        yield MTU.warn(
            f"{one.ifname} has an MTU of {mtu} now, and its profile has {has}",
            observed=f"{mtu}, {has} in its profile",
            expected=f"{mtu} in its profile, too",
            seen=seen("nmcli, /run/systemd/netif/links", f"{one.by}: {has}", "command"),
            fixes=(write, WRITE) if one.by == "NetworkManager" else WRITE,
        )


def _picked(name: str, addresses: list[str]) -> Finding:
    return RANDOM.warn(
        f"{name} has {listing(addresses)}, another one after each start, and NCCL offers it to peers",
        observed=listing(addresses),
        expected="an address of the RoCE network, or none (link-local: [] in netplan)",
        seen=seen("ip address", f"{name} {listing(addresses)}", "command"),
        fixes=WRITE,
    )
