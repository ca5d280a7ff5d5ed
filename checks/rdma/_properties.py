"""What is compared between HCA ports of one name."""

from collections.abc import Callable
from typing import NamedTuple

from netdoctor.checks._shared.text import listing
from netdoctor.facts.rdma import Hca, HcaPort
from netdoctor.model import Fix, look, run


class Property(NamedTuple):
    """What is compared."""

    key: str
    word: str
    layer: str  # link layer of the ports that have it; empty for all
    read: Callable[[Hca, HcaPort], str | None]  # None where it could not be read
    file: str  # below the port's folder, or a key of PROBES
    why: str
    fix: Fix
    of_peers: bool = True  # nodes are compared where the user expects nothing


def _pcie(hca: Hca, _: HcaPort) -> str | None:
    link = hca.pcie
    return f"{link.gtransfers_s:g} GT/s x{link.width}" if link is not None and link.is_known else None


SLOT = look("see which slot it is in", "lspci -vv -d 15b3: | grep -E '^[0-9a-f]|LnkSta:'", root=True)
FABRIC = look(
    "see which subnet manager answers, and ask its owner to which fabric the port belongs",
    "sminfo; ibstat",
    root=True,
)
PACKETS = look(
    "see the MTU of the ports, and in the subnet manager that of their partition; the other end of a cable "
    "may have a smaller one",
    "ibv_devinfo | grep -E 'hca_id|port:|_mtu'",
)
ALLOW = run("ask the subnet manager's owner to give the ports the same partitions")
CLASS = run("set the traffic class of the other nodes, and set it again at each boot")
DRIVER = run("install the driver release of the other nodes")
LOSSLESS = look(
    "see the settings of the NIC and its switch port, and give the odd one those of the others",
    "for i in /sys/class/infiniband/*/device/net/*; do dcb pfc show dev ${i##*/}; "
    "dcb app show dev ${i##*/}; ethtool -a ${i##*/}; done",
    root=True,
)
# What is not below the port's folder.
PROBES = {"DCB": "the kernel's DCB and pause settings", "ibv_query_port": "ibv_query_port, active_mtu"}
IB, ROCE = "InfiniBand", "Ethernet"


def flow_control(port: HcaPort) -> str | None:
    """``PFC of priority 3``, or the pauses that take its place where there is none."""
    flow = port.flow
    if flow is None or flow.pfc is None:
        return None
    if flow.pfc:
        return f"PFC {','.join(map(str, flow.pfc))}"
    return "none" if flow.pauses in (None, "off") else f"pauses {flow.pauses}"


def sorting(port: HcaPort) -> str | None:
    """Return by what a NIC sorts packets into priorities: ``VLAN``, or ``DSCP`` with its own rows."""
    flow = port.flow
    if flow is None or flow.pfc is None:
        return None
    # 8 DSCPs a priority is what drivers begin with.
    changed = [f"{i} to {to}" for i, to in enumerate(flow.dscp) if to != str(i >> 3)]
    return "VLAN" if not flow.dscp else f"DSCP ({listing(changed, 6)})" if changed else "DSCP"


PROPERTIES = (
    Property(
        "rdma.sm-lid", "subnet manager's LID", IB,
        lambda _, port: f"{port.sm_lid:#x}" if port.sm_lid else None, "sm_lid",
        "they are on different fabrics", FABRIC,
    ),
    Property(
        "rdma.subnet", "InfiniBand subnet", IB, lambda _, port: port.subnet or None,
        "gids/0", "nothing passes between subnets without a router", FABRIC,
    ),
    Property(
        "rdma.pkeys", "partitions", IB, lambda _, port: listing(port.pkeys, 8) or None,
        "pkeys/*", "ports without a common one cannot communicate", ALLOW,
    ),
    Property(
        "rdma.mtu", "active MTU", IB, lambda _, port: str(port.mtu_bytes) if port.mtu_bytes else None,
        "ibv_query_port", "the peers of that port use its smaller packets", PACKETS,
    ),
    Property(
        "rdma.traffic-class", "RoCE traffic class", ROCE,
        lambda _, port: "not set" if port.traffic_class is None else str(port.traffic_class),
        "../../tc/*/traffic_class", "switches put the packets into another queue", CLASS,
    ),
    Property(
        "rdma.pfc", "flow control", ROCE, lambda _, port: flow_control(port), "DCB",
        "that port does not stop when the switch asks, and its packets are dropped", LOSSLESS,
    ),
    Property(
        "rdma.trust", "sorting into priorities", ROCE, lambda _, port: sorting(port), "DCB",
        "the same packet gets another priority there", LOSSLESS,
    ),
    Property(
        "rdma.ecn", "congestion control (ECN)", ROCE, lambda _, port: port.flow.ecn if port.flow else None,
        "../../device/net/*/ecn/roce_*/enable/*", "a port that does not slow down takes the others' share",
        LOSSLESS,
    ),
    Property(
        "rdma.read-request", "max read request (PCIe)", "",
        lambda hca, _: str(hca.pcie.read_request) if hca.pcie and hca.pcie.read_request else None,
        "../../device/config", "it reads memory in smaller or larger pieces",
        run("set the same value in the BIOS, or with setpci at each boot"),
    ),
    Property("rdma.driver", "driver", "", lambda hca, _: hca.driver, "../../device/driver", "", DRIVER),
    # rdma.pcie holds a card to what its slot can do; in which slots cards are is the builder's choice.
    Property("rdma.pcie", "PCIe link", "", _pcie, "../../device/current_link_*", "", SLOT, of_peers=False),
)  # fmt: skip
