"""State of HCA ports, compared across the cluster."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.rdma import NO_HCAS, has_any, port_evidence, ports_of, unread
from netdoctor.checks._shared.text import listing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.model import (
    CERTAIN,
    CLUSTER,
    LIKELY,
    PEERS,
    Action,
    Cause,
    Confidence,
    Finding,
    Fix,
    look,
    placed,
    run,
    skip,
)
from netdoctor.text import is_plain_name

DOWN = Cause(
    "hca-port-down",
    "{nodes} {has} HCA ports down that are up on other nodes",
    verify=("rdma.port", "rdma.rate", "nccl.ib-hca"),
    action=Action.DRAIN,
)
MOVED = Cause(
    "hca-port-elsewhere", "{nodes} {has} cables in other sockets than other nodes", verify=("rdma.port",)
)
MOVE = run("use the same sockets on every node, or name the HCAs of each node in its own NCCL_IB_HCA")
NO_MANAGER = Cause("no-subnet-manager", "no subnet manager runs on the InfiniBand fabric")
NOT_MANAGED = Cause("hca-port-not-managed", "no subnet manager has configured HCA ports of {nodes}")
START_ONE = run(
    "start a subnet manager on one node, or on a managed switch",
    "systemctl enable --now opensm && sminfo",
    root=True,
)
ASK_IT = look(
    "the cable is fine: see whether the subnet manager answers here, and whether it knows the port's GUID, "
    "gave it a partition (pkey) and can use its switch port",
    "sminfo; ibstat; cat /sys/class/infiniband/*/ports/*/pkeys/0; ibnetdiscover | head",
    root=True,
)
# What phys_state says about a port that is not up.
WHERE = {
    "Disabled": "the port is switched off, by software or at the switch",
    "Polling": "no answer on the cable",
    "Sleep": "the port is in sleep mode",
    "LinkUp": "the cable is fine, but the logical link is not up",
    "PortConfigurationTraining": "the link is still training",
    "LinkErrorRecovery": "the link loses its signal again and again",
}


@check(
    explains=("rdma.rate", "rdma.gid", "nccl.ib-hca"),
    source="https://docs.kernel.org/admin-guide/abi-stable.html#abi-file-stable-sysfs-class-infiniband",
    expects={"rdma.active": int},
)
def rdma_port(
    nodes: Mapping[str, RdmaFacts], nets: Mapping[str, NetFacts] | None, expect: Expectations | None = None
) -> Iterator[Finding]:
    """Every HCA port that is up on most nodes is up on all of them.

    Looks at:
        ``state`` and ``phys_state`` of each port, link layer, and the LID of the subnet manager. A port
        that is down on every node counts as not cabled.

    Matters because:
        NCCL uses only ports in state ACTIVE, and leaves the others out without any message. That node
        then lacks the rail, and its traffic shares the remaining ports.

    Fix:
        phys_state shows where to look. Polling or Disabled: cable, transceiver or switch port. LinkUp
        with state INIT: the cable is fine, but no subnet manager has configured the port.
    """
    up = {
        node: str(sum(port.active for hca in facts.hcas for port in hca.ports))
        for node, facts in nodes.items()
    }
    yield from differing(
        up, "number of active HCA ports", DOWN, key="rdma.active", expect=expect, peers=False, at_least=True
    )
    if not has_any(nodes):
        yield skip(NO_HCAS)
        return
    yield from unread(nodes)
    for node, facts in nodes.items():
        if not facts.hcas:
            yield skip("no HCA on this node", node)
    ports = [one for one in ports_of(nodes) if one[2].state]
    sockets = Sockets(nodes)
    active = Counter(port.name for _, _, port in ports if port.active)
    having = Counter(port.name for _, _, port in ports)
    waiting = any(_waits_for_manager(port) for _, _, port in ports)
    if not active and not waiting:
        yield skip("no HCA port is up on any node: they count as not cabled")
    for node, hca, port in ports:
        if _waits_for_manager(port):
            peers = Peers(active[port.name], having[port.name])
            yield placed(_not_managed(hca, port, peers, everywhere=not active), node)
        elif active[port.name] and not port.active and port.state != "ACTIVE_DEFER":
            peers = Peers(active[port.name], having[port.name])
            if instead := sockets.instead(node, hca, port):
                yield placed(_moved(hca, port, instead), node)
            else:
                yield placed(_down(hca, port, peers, (nets or {}).get(node)), node)


class Peers(NamedTuple):
    """The same port on all nodes that have it."""

    active: int
    having: int

    @property
    def confidence(self) -> Confidence:
        """How sure it is that where the port is down it should be up."""
        return CERTAIN if 2 * self.active > self.having else LIKELY


def _waits_for_manager(port: HcaPort) -> bool:
    return port.state in ("INIT", "INITIALIZE", "ARMED") and not port.is_roce


def _down(hca: Hca, port: HcaPort, peers: Peers, net: NetFacts | None) -> Finding:
    others = f"{peers.active} other node{'s' if peers.active > 1 else ''}"
    others += f" of {peers.having - 1}" if peers.confidence is LIKELY and peers.having > 2 else ""
    where = WHERE.get(port.phys_state, "no link")
    cause = DOWN.but(confidence=peers.confidence)
    # Where it is up on few, it may be theirs that is a spare one.
    return (cause.warn if 2 * peers.active < peers.having else cause.fail)(
        f"{port.name} is {port.state} ({port.phys_state}), and ACTIVE on {others}: {where}",
        observed=f"{port.state}, {port.phys_state}",
        expected=PEERS("ACTIVE, LinkUp"),
        seen=port_evidence(hca, port),
        fixes=tuple(link_fixes(hca, port, net)),
    )


class Sockets:
    """Which ports are up on which nodes, asked port by port."""

    def __init__(self, nodes: Mapping[str, RdmaFacts]) -> None:
        self._up = {
            node: {port.name: hca for hca in facts.hcas for port in hca.ports if port.active}
            for node, facts in nodes.items()
        }
        # By name of a port, of the nodes on which it is up: how many ports each has up, and their names.
        self._others: dict[str, tuple[set[int], set[str]]] = {}

    def instead(self, node: str, hca: Hca, port: HcaPort) -> list[str]:
        """The ports of the same card that are up here and on none of the nodes on which `port` is, where each
        of these has as many ports up: the cable is in another socket."""
        if port.name not in self._others:
            others = [ports for ports in self._up.values() if port.name in ports]
            self._others[port.name] = {len(ports) for ports in others}, {n for ports in others for n in ports}
        counts, names = self._others[port.name]
        here = self._up[node]
        if counts != {len(here)} or not hca.sys_image_guid:
            return []
        return [
            name
            for name, one in here.items()
            if one.sys_image_guid == hca.sys_image_guid and name not in names
        ]


def _moved(hca: Hca, port: HcaPort, instead: list[str]) -> Finding:
    return MOVED.warn(
        f"{port.name} is down and {listing(instead)} up here, the other way round elsewhere: NCCL pairs them,"
        " but one NCCL_IB_HCA or NCCL_SOCKET_IFNAME for all nodes fits none",
        observed=listing(instead),
        expected=PEERS(port.name),
        seen=port_evidence(hca, port),
        fixes=MOVE,
    )


def _not_managed(hca: Hca, port: HcaPort, peers: Peers, everywhere: bool) -> Finding:
    if everywhere:
        say = (NO_MANAGER.but(confidence=LIKELY) if port.sm_lid else NO_MANAGER).fail
    else:
        # Where it waits on every node, while others are up, it may be a spare one.
        cause = NOT_MANAGED.but(confidence=peers.confidence)
        say = cause.fail if peers.active else cause.warn
    return say(
        f"{port.name} is {port.state}: the cable is fine, no subnet manager has configured it",
        culprits=(CLUSTER,) if everywhere else (),
        observed=f"{port.state}, sm_lid {port.sm_lid or 0:#x}",
        expected=PEERS("ACTIVE") if peers.active else "ACTIVE",
        seen=port_evidence(hca, port),
        fixes=START_ONE if everywhere else ASK_IT,
    )


def link_fixes(hca: Hca, port: HcaPort, net: NetFacts | None) -> Iterator[Fix]:
    """A port that is down on this node alone: by what its physical state says."""
    netdev = next(filter(is_plain_name, hca.netdevs), None)
    name = hca.name if is_plain_name(hca.name) else ""
    up = {dev.name: dev.up for dev in net.netdevs} if net else {}
    if port.is_roce and netdev and port.phys_state == "Disabled" and not up.get(netdev):
        shell = f"ip link set dev {netdev} up"
        yield run("bring up the network interface behind it", shell, root=True, persistent=False)
    elif not port.is_roce and port.phys_state == "Disabled" and name:
        yield run(
            "switch the port on; if it stays off, its switch port is disabled",
            f"mlxlink -d {name} -p {port.number} --port_state UP",
            root=True,
            persistent=False,
        )
    if port.phys_state != "LinkUp":
        shell = f"mlxlink -d {name} -p {port.number} -m; ibstat {name}" if name else "ibstat"
        text = "read the link's own report, then reseat or swap cable and transceiver, or enable the port"
        yield look(text, shell, root=True)
    elif port.is_roce:
        show = f"ip -d link show dev {netdev}; " if netdev else ""
        text = (
            "the cable is fine: read the driver's messages about the port, and the switch's "
            "VLAN and state for it"
        )
        yield look(text, f"{show}rdma link show; dmesg | grep -E '{name or 'mlx5'}|roce' | tail", root=True)
    else:
        text = (
            "the cable is fine: see whether a subnet manager answers, and which partitions "
            "(pkeys) it assigned"
        )
        keys = f"; cat /sys/class/infiniband/{name}/ports/{port.number}/pkeys/*" if name else ""
        yield look(text, f"sminfo; ibstat {name}{keys} | sort -u", root=True)
