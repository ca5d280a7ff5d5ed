"""Containers whose only network is a bridge of their machine."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks.net._bridges import ENGINES, on_bridges
from netdoctor.facts.host import HostFacts, Session
from netdoctor.facts.net import NetFacts, PortMatrix
from netdoctor.model import DERIVED, Cause, Finding, run, seen, skip

BRIDGE = Cause(
    "container-bridge", "the container on {nodes} is on a bridge, where no other machine can reach it"
)
FIXES = (
    run(
        "start the container with --network host (and --ipc host), its sshd on a free port, and list the "
        "node with the machine's address and that port",
        effect="next launch",
    ),
    run(
        "or give it a network whose addresses the other machines reach (macvlan, overlay): published ports "
        "are not enough, because NCCL and gloo choose other ports and send peers the container's own address",
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
    """If a node is a container, other machines reach its network.

    Looks at:
        Whether a node is a Docker or Podman container that has only inner ends of bridges (veth). Whether
        the login went to an address that the container does not have, or that another machine has, too.
        Whether any other node could connect to it. Containers of one machine that reach each other are
        not a fault.

    Matters because:
        The login works because its port is published, and nothing else does. Each rank sends the others
        an address such as 172.17.0.2. On every machine that is another container, or the rank itself. It
        looks like a firewall, or like a duplicate address.

    Fix:
        Start the container with ``--network host``. Publishing ports is not enough.
    """
    if len(nets) < 2 or not any(host.container in ENGINES for host in hosts.values()):
        yield skip("one node" if len(nets) < 2 else "no node is a container of Docker or Podman")
        return
    for node, has, why in on_bridges(hosts, nets, sessions, ports):
        yield BRIDGE.fail(
            f"its only network is {has}: {why}",
            at=node,
            observed=has,
            expected=DERIVED("an address that the other machines reach"),
            seen=seen("ip address", f"{has}, in a container of {hosts[node].container}", "command"),
            fixes=FIXES,
        )
