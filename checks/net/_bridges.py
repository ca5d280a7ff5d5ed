"""Which nodes are containers that only their own machine can dial."""

from collections.abc import Iterator, Mapping
from functools import cache, partial

from netdoctor.checks._shared.addresses import holders, holds, parse, usable
from netdoctor.checks._shared.ports import OPEN
from netdoctor.checks._shared.text import listing
from netdoctor.facts.host import HostFacts, Session
from netdoctor.facts.net import NetFacts, PortMatrix

# A pod has an address that its peers reach; what lxc calls a bridge is mostly one of the machine's network.
ENGINES = ("docker", "podman")


def on_bridges(
    hosts: Mapping[str, HostFacts],
    nets: Mapping[str, NetFacts],
    sessions: Mapping[str, Session],
    ports: PortMatrix | None,
) -> Iterator[tuple[str, str, str]]:
    """Node, its addresses in words, and how it shows that they are of a bridge.

    Whom another node reached is none, whatever its network is called.
    """
    reached = {
        probe.dst
        for probe in (ports.probes if ports else ())
        # At an address of its own a node reaches itself.
        if probe.outcome in OPEN and probe.src in nets and not holds(nets[probe.src], probe.address)
    }
    holding = cache(partial(holders, nets))  # of containers only, which most clusters have none of
    for node, net in nets.items():
        host, rows = hosts.get(node), usable(net)
        inner = {dev.kind for dev in net.netdevs if dev.up and not dev.loopback} == {"veth"}
        if host is None or host.container not in ENGINES or not inner or not rows or node in reached:
            continue
        has = listing(f"{row.ifname} {row.address}" for row in rows)
        # Containers of one machine have its boot id.
        near = (other for row in rows for other in holding()[parse(row.address)][:4] if other in hosts)
        same = [other for other in near if hosts[other].boot_id != host.boot_id]
        dialled = sessions[node].address if node in sessions else None
        if same:
            yield node, has, f"{listing(same, 3)} {'has' if len(same) == 1 else 'have'} the same address"
        elif dialled is not None and not holds(net, dialled):
            yield node, has, f"the login went to {dialled}"
