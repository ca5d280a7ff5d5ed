"""State of HCA ports, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._rdma import NO_HCAS, has_any, is_plain_name, port_evidence, ports_of
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.model import (
    CLUSTER,
    CauseHint,
    Command,
    Confidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    warn,
)


@check(
    explains=("rdma.rate", "rdma.gid", "nccl.ib-hca"),
    source="https://docs.kernel.org/admin-guide/abi-stable.html#abi-file-stable-sysfs-class-infiniband",
)
def rdma_port(nodes: Mapping[str, RdmaFacts]) -> Iterator[Finding]:
    """Every HCA port that is up on most nodes is up on all of them.

    Looks at:
        ``state`` and ``phys_state`` of each port, link layer, and the LID of the subnet manager. A
        port that is down on every node is taken for not cabled.

    Matters because:
        NCCL uses ports in state ACTIVE only, and leaves others out without a word: the rail is
        missing on that node, and its traffic squeezes through the rest.

    Fix:
        phys_state tells where to look. Polling or Disabled: cable, transceiver or switch port.
        LinkUp with state INIT: the cable is fine and no subnet manager has configured the port.
    """
    if not has_any(nodes):
        yield skip(NO_HCAS)
        return
    ports = list(ports_of(nodes))
    active: dict[str, int] = {}
    for _, _, port in ports:
        active[port.name] = active.get(port.name, 0) + port.active
    no_manager = any(_waits_for_manager(port) for _, _, port in ports)
    stuck_everywhere = no_manager and not any(active.values())
    for node, hca, port in ports:
        if port.active or port.state == "ACTIVE_DEFER":
            continue
        if _waits_for_manager(port):
            yield _not_managed(node, hca, port, active[port.name] > 0, stuck_everywhere)
        elif active[port.name]:
            yield _down(node, hca, port, active[port.name])
    if not any(active.values()) and not no_manager:
        yield skip("no HCA port is up on any node: taken for not cabled")


def _waits_for_manager(port: HcaPort) -> bool:
    return port.state in ("INIT", "INITIALIZE", "ARMED") and not port.is_roce


def _down(node: str, hca: Hca, port: HcaPort, peers: int) -> Finding:
    where = _where(port)
    return fail(
        node,
        f"{port.name} is {port.state} ({port.phys_state}), and ACTIVE on {peers} other"
        f" node{'s' if peers > 1 else ''}: {where}",
        observed=f"{port.state}, {port.phys_state}",
        expected="ACTIVE, LinkUp",
        expected_from=ExpectedFrom.PEERS,
        evidence=(port_evidence(node, hca, port),),
        cause=CauseHint(
            key="hca-port-down",
            title="{nodes} {has} HCA ports down that are up on other nodes",
            culprits=(node,),
            fixes=_up(node, hca, port),
            verify=("rdma.port", "rdma.rate", "nccl.ib-hca"),
        ),
    )


def _where(port: HcaPort) -> str:
    return {
        "Disabled": "the port is switched off, by software or at the switch",
        "Polling": "nobody answers on the cable",
        "Sleep": "the port sleeps",
        "LinkUp": "the cable is fine, the logical link is not",
        "PortConfigurationTraining": "the link is still training",
        "LinkErrorRecovery": "the link loses its signal again and again",
    }.get(port.phys_state, "no link")


def _up(node: str, hca: Hca, port: HcaPort) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    netdevs = [name for name in hca.netdevs if is_plain_name(name)]
    if port.is_roce and netdevs and port.phys_state == "Disabled":
        fixes.append(
            Fix(
                text="bring up the network interface behind it",
                commands=(Command(run_on=node, shell=f"ip link set dev {netdevs[0]} up"),),
                root=True,
                persistent=False,
            )
        )
    device = hca.name if is_plain_name(hca.name) else ""
    link = f"mlxlink -d {device} -p {port.number} -m; " if device else ""
    fixes.append(
        Fix(
            text="read the link's own report, then reseat or swap cable and transceiver",
            commands=(Command(run_on=node, shell=f"{link}ibstat {device}".strip()),),
            root=True,
            effect="",
        )
    )
    return tuple(fixes)


def _not_managed(node: str, hca: Hca, port: HcaPort, active_elsewhere: bool, everywhere: bool) -> Finding:
    finding = fail if active_elsewhere or everywhere else warn
    if everywhere:
        hint = CauseHint(
            key="no-subnet-manager",
            title="no subnet manager runs on the InfiniBand fabric",
            culprits=(CLUSTER,),
            confidence=Confidence.CERTAIN if not port.sm_lid else Confidence.LIKELY,
            fixes=(
                Fix(
                    text="start a subnet manager on one node, or on a managed switch",
                    commands=(Command(run_on=node, shell="systemctl enable --now opensm && sminfo"),),
                    root=True,
                ),
            ),
            verify=("rdma.port",),
        )
    else:
        hint = CauseHint(
            key="hca-port-not-managed",
            title="no subnet manager has configured HCA ports of {nodes}",
            culprits=(node,),
            fixes=(
                Fix(
                    text="see whether this port's switch can reach the subnet manager, and whether"
                    " the manager knows the port's GUID",
                    commands=(Command(run_on=node, shell="sminfo; ibstat; ibnetdiscover | head"),),
                    root=True,
                    effect="",
                ),
            ),
            verify=("rdma.port",),
        )
    return finding(
        node,
        f"{port.name} is {port.state}: the cable is fine, no subnet manager has configured it",
        observed=f"{port.state}, sm_lid {port.sm_lid or 0:#x}",
        expected="ACTIVE",
        expected_from=ExpectedFrom.PEERS if active_elsewhere else ExpectedFrom.CONSTANT,
        evidence=(port_evidence(node, hca, port),),
        cause=hint,
    )
