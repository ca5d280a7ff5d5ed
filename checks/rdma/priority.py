"""The priority that NCCL's packets get on each RoCE port, against what is protected from loss."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.env import change
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.rdma import NO_HCAS, has_any
from netdoctor.checks._shared.text import listing
from netdoctor.checks.rdma._properties import LOSSLESS, PROBES
from netdoctor.facts.rdma import FlowControl, RdmaFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import DERIVED, LIKELY, PEERS, Cause, Expected, Finding, Fix, seen, skip
from netdoctor.rules.nccl_ib import selected_ports, switched_off_by
from netdoctor.rules.variables import Environment, Setting, effective_env, param, values
from netdoctor.rules.versions import Version, nccl_version

TC = "NCCL_IB_TC"
OPEN = Cause("nccl-class-open", "NCCL's packets on {nodes} have a priority without flow control")
# As rdma.parity says it of the table or of flow control, where one node has another than the rest: one cause.
MAPPED = Cause("rdma-trust", "packets of NCCL get another priority on {nodes} than on most nodes")
UNEQUAL = "packets of NCCL get different priorities on {nodes}, and no majority has one"
UNCONTROLLED = Cause("rdma-pfc", "{nodes} {has} no flow control for NCCL's packets, most nodes have it")


class Sorted(NamedTuple):
    """What becomes of NCCL's packets on a port."""

    traffic_class: int
    priority: int
    flow: FlowControl
    setting: Setting | None  # None where the driver's own traffic class rules

    @property
    def pfc(self) -> tuple[int, ...]:
        return self.flow.pfc or ()

    @property
    def is_open(self) -> bool:
        return self.priority not in self.pfc

    @property
    def way(self) -> str:
        """``NCCL_IB_TC=106 (train.env:4): DSCP 26, priority 3``."""
        name = str(self.setting) if self.setting else f"the driver's traffic class {self.traffic_class}"
        return f"{name}: DSCP {self.traffic_class >> 2}, priority {self.priority}"


@check(
    after=["ssh.login", "rdma.port"],
    required=False,
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-tc",
)
def rdma_priority(
    nodes: Mapping[str, RdmaFacts],
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL's traffic class gets the same priority on all RoCE ports, with flow control.

    Looks at:
        NCCL_IB_TC if it is set, or the traffic class that the driver (MLNX_OFED) sets for all of RoCE,
        which wins. Its upper six bits are the DSCP (RFC 2474). The table of the port's interface (dcb
        app) gives the priority of that DSCP, and ``dcb pfc`` the priorities with flow control. Ports that
        sort by VLAN tag, drivers that do not report it, and fabrics without PFC are left out.

    Matters because:
        If PFC protects priority 3 and the packets have priority 0, they are dropped under load. For one
        lost packet RoCE sends a whole window again: low rates, or "status=12".

    Fix:
        Set NCCL_IB_TC to four times a DSCP of the protected priority (106 is DSCP 26, and ECN), or
        correct the table of the node that differs.
    """
    if not has_any(nodes):
        yield skip(NO_HCAS)
        return
    sorted_ports: dict[tuple[str, str], Sorted] = {}
    for node, facts in nodes.items():
        version = nccl_version((softwares or {}).get(node))
        of_node = _sorted(facts, effective_env((envs or {}).get(node), job, version), version)
        sorted_ports |= {(node, name): one for name, one in of_node.items()}
        if not of_node:
            yield skip("no RoCE port that sorts by DSCP and whose traffic class is set", node)
    typical = _typical(sorted_ports)
    having = Counter(one.priority for one in sorted_ports.values())
    protected = Counter(one.priority for one in sorted_ports.values() if not one.is_open)
    groups: dict[tuple[str, Sorted], list[str]] = defaultdict(list)
    for (node, name), one in sorted_ports.items():
        groups[node, one].append(name)
    for (node, one), names in groups.items():
        most = typical[one.traffic_class]
        if most != one.priority:
            cause = MAPPED if most is not None else MAPPED.but(title=UNEQUAL, confidence=LIKELY)
            expected = PEERS("the same on all nodes" if most is None else f"priority {most}")
            yield _warning(cause, node, one, names, expected, (LOSSLESS,))
        elif one.is_open and 2 * protected[one.priority] > having[one.priority]:
            yield _warning(UNCONTROLLED, node, one, names, PEERS(f"PFC of priority {most}"), (LOSSLESS,))
        elif one.is_open and one.pfc:
            expected = DERIVED(f"priority {listing(map(str, one.pfc))}, which has flow control")
            yield _warning(OPEN, node, one, names, expected, _move(one))


def _sorted(facts: RdmaFacts, env: Environment, version: Version | None) -> dict[str, Sorted]:
    """By port that NCCL takes, where its packets are sorted by DSCP and their traffic class is known."""
    if switched_off_by(values(env), version):
        return {}
    setting = env.get(TC)
    found: dict[str, Sorted] = {}
    class_set = param(setting.value, -1, version) if setting else -1
    for _, port in selected_ports(facts.hcas, values(env).get("NCCL_IB_HCA"), version):
        number = class_set if port.traffic_class is None else port.traffic_class
        flow = port.flow
        if flow is None or flow.pfc is None or not 0 <= number < 256:
            continue
        if (priority := flow.priority(number)) is not None:
            by = setting if port.traffic_class is None else None
            found[port.name] = Sorted(number, priority, flow, by)
    return found


def _typical(sorted_ports: Mapping[tuple[str, str], Sorted]) -> dict[int, int | None]:
    """The priority of a traffic class on most ports; None where there is no such. Of ports that are told
    another class nothing follows: that is for nccl.env and rdma.parity to say."""
    by_class: dict[int, dict[str, int]] = defaultdict(dict)
    for (node, name), one in sorted_ports.items():
        by_class[one.traffic_class][f"{node} {name}"] = one.priority
    return {number: majority(priorities).value for number, priorities in by_class.items()}


def _warning(
    cause: Cause, node: str, one: Sorted, names: Sequence[str], expected: Expected, fixes: Sequence[Fix]
) -> Finding:
    have = f"PFC {','.join(map(str, one.pfc))}" if one.pfc else "no PFC"
    return cause.warn(
        f"{listing(names, 3)}: {one.way}; the port has {have}",
        at=node,
        observed=f"priority {one.priority}, {have}",
        expected=expected,
        seen=seen(PROBES["DCB"], f"{have}; {one.way}"),
        fixes=fixes,
    )


def _move(one: Sorted) -> tuple[Fix, ...]:
    """Another value for the variable, where it is plain which: of the one priority that is protected."""
    dscps = [number for number in range(64) if (one.flow.priority(number << 2),) == one.pfc]
    if one.setting is None or not dscps:
        return (LOSSLESS,)
    # 26 is what vendors' guides and their switches' defaults take.
    dscp = 26 if 26 in dscps else dscps[0]
    return (LOSSLESS, *change(one.setting, str(dscp << 2 | one.traffic_class & 3)))
