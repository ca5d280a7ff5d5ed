"""Containers whose only network is a bridge of their machine."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.addresses import holders, holds, parse, usable
from netdoctor.checks._shared.ports import OPEN
from netdoctor.checks._shared.text import listing
from netdoctor.facts.host import HostFacts, Session
from netdoctor.facts.net import NetFacts, PortMatrix
from netdoctor.model import DERIVED, Cause, Finding, run, seen, skip

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
    holding = holders(nets)
    for node, net in nets.items():
        host, rows = hosts.get(node), usable(net)
        inner = {dev.kind for dev in net.netdevs if dev.up and not dev.loopback} == {"veth"}
        if host is None or host.container not in ENGINES or not inner or not rows or node in reached:
            continue
        has = listing(f"{row.ifname} {row.address}" for row in rows)
        # Containers of one machine have its boot id.
        near = (other for row in rows for other in holding[parse(row.address)][:4] if other in hosts)
        same = [other for other in near if hosts[other].boot_id != host.boot_id]
        dialled = sessions[node].address if node in sessions else None
        if same:
            yield node, has, f"{listing(same, 3)} {'has' if len(same) == 1 else 'have'} the same address"
        elif dialled is not None and not holds(net, dialled):
            yield node, has, f"it was reached at {dialled}"


BRIDGE = Cause(
    "container-bridge", "the container on {nodes} is on a bridge, where no other machine can dial it"
)
FIXES = (
    run(
        "start the container with --network host (and --ipc host), its sshd on a port of its own, and list "
        "the node by the machine's address and that port",
        effect="next launch",
    ),
    run(
        "or give it a network whose addresses the other machines reach (macvlan, overlay): to publish ports "
        "is not enough, as NCCL and gloo pick theirs and tell peers the container's own address",
        effect="next launch",
    ),
)


@check(
    explains=[
        "net.interface",
        "net.resolve",
        "net.route",
        "net.ports",
        "net.path-mtu",
        "net.loss",
        "nccl.ifname",
        "nccl.sockets",
        "gloo.ifname",
        "rdzv.*",
        "ray.*",
        "bw.*",
    ],
    profile="launch",
    cost="opens-port",
    required=False,
    source="https://docs.docker.com/engine/network/drivers/host/",
)
def net_container(
    hosts: Mapping[str, HostFacts],
    nets: Mapping[str, NetFacts],
    sessions: Mapping[str, Session],
    ports: PortMatrix | None,
) -> Iterator[Finding]:
    """A container that is a node has a network that the other machines reach.

    Looks at:
        Whether a node is a container of Docker or Podman with nothing but the inner ends of bridges (veth);
        whether the login went to an address that is none of its own, or another machine has the same one; and
        whether any other node could dial it. Containers of one machine that reach each other are no fault.

    Matters because:
        The login works, as its port is published, and nothing else does: each rank tells the others an
        address such as 172.17.0.2, which on every machine is another container or the rank itself. It looks
        like a firewall, or like one address given twice.

    Fix:
        Start the container with ``--network host``. Publishing ports is not enough.
    """
    if len(nets) < 2 or not any(host.container in ENGINES for host in hosts.values()):
        yield skip("one node" if len(nets) < 2 else "no node is a container of Docker or Podman")
        return
    for node, has, why in on_bridges(hosts, nets, sessions, ports):
        yield BRIDGE.fail(
            f"its only network is {has}; {why}",
            at=node,
            observed=has,
            expected=DERIVED("an address that the other machines reach"),
            seen=seen("ip address", f"{has}, in a container of {hosts[node].container}", "command"),
            fixes=FIXES,
        )
