"""What is compared between HCA ports of one name."""

from collections.abc import Callable
from typing import NamedTuple

from netdoctor.checks._words import listing
from netdoctor.facts.rdma import Hca, HcaPort
from netdoctor.model import Fix, look, run


class Property(NamedTuple):
    """What is compared. read: None where it could not be read. layer: of the ports that have it, or empty.
    file: below the port's folder."""

    key: str
    word: str
    layer: str
    read: Callable[[Hca, HcaPort], str | None]
    file: str
    why: str
    fix: Fix


FABRIC = look(
    "see which subnet manager answers, and ask its owner where the port belongs", "sminfo; ibstat", root=True
)
ALLOW = run("have the subnet manager's owner give the ports the same partitions")
CLASS = run("set the traffic class that the other nodes have, and again at each boot")
DRIVER = run("install the release of the driver that the other nodes have")
IB, ROCE = "InfiniBand", "Ethernet"
PROPERTIES = (
    Property(
        "rdma.sm-lid", "subnet manager's LID", IB,
        lambda _, port: f"{port.sm_lid:#x}" if port.sm_lid else None, "sm_lid",
        "they are on fabrics of their own", FABRIC,
    ),
    Property(
        "rdma.subnet", "InfiniBand subnet", IB, lambda _, port: port.subnet or None,
        "gids/0", "nothing passes between subnets without a router", FABRIC,
    ),
    Property(
        "rdma.pkeys", "partitions", IB, lambda _, port: listing(port.pkeys, 8) or None,
        "pkeys/*", "ports without one in common cannot talk", ALLOW,
    ),
    Property(
        "rdma.traffic-class", "RoCE traffic class", ROCE,
        lambda _, port: "not set" if port.traffic_class is None else str(port.traffic_class),
        "../../tc/*/traffic_class", "switches put the packets into another queue", CLASS,
    ),
    Property("rdma.driver", "driver", "", lambda hca, _: hca.driver, "../../device/driver", "", DRIVER),
)  # fmt: skip
