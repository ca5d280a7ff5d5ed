from typing import Any

from netdoctor.checks.net.bond import net_bond
from netdoctor.facts.net import Netdev
from netdoctor.facts.paths import Paths, Use
from netdoctor.model import Finding, Status

from ..build import address, causes, found, loopback, net, netdev, nets, row


def bond(**changes: Any) -> Netdev:
    return netdev(
        "bond0", 9, **{"kind": "bond", "bond_mode": "802.3ad", "slaves": ("eth0", "eth1"), **changes}
    )


def link(ifname: str, **changes: Any) -> Netdev:
    return netdev(ifname, int(ifname[3:]) + 2, **{"mii_status": "up", "aggregator": 1, **changes})


def judged(*devs: Netdev, ifname: str = "bond0", purpose: str = "gloo") -> list[Finding]:
    """Node n1 with these interfaces, its address on `ifname`."""
    machine = net(1, netdevs=(loopback(), *devs), addresses=(row(ifname, address(1)),))
    uses = (Use(node="n1", address=address(1), purpose=purpose, rule=""),) if purpose else ()
    return list(net_bond({**nets(2), "n1": machine}, Paths(uses=uses)))


def test_links_of_a_bond() -> None:
    down: dict[str, Any] = {"mii_status": "down", "carrier": False, "speed_mbit_s": None}
    for devs, ifname, keys in (
        ((bond(), link("eth0"), link("eth1")), "bond0", set()),
        ((bond(), link("eth0"), link("eth1", **down)), "bond0", {"bond-link-down"}),
        ((bond(), link("eth0"), link("eth1", **down)), "bond0.100", {"bond-link-down"}),
        ((bond(), link("eth0"), link("eth1", **down)), "eth7", set()),
        ((bond(bond_mode="active-backup"), link("eth0"), link("eth1", mii_status="going back")), "bond0",
         {"bond-link-down"}),
        ((bond(), link("eth0"), link("eth1", speed_mbit_s=25_000)), "bond0", {"bond-speeds"}),
        ((bond(), link("eth0"), link("eth1", aggregator=2)), "bond0", {"bond-lacp"}),
        ((bond(bond_mode="balance-xor"), link("eth0"), link("eth1", aggregator=None)), "bond0", set()),
        # As it was made; and nothing is left, which net.interface says.
        ((bond(slaves=("eth0",)), link("eth0")), "bond0", set()),
        ((bond(), link("eth0", **down), link("eth1", **down)), "bond0", set()),
        ((bond(), link("eth0", speed_mbit_s=None), link("eth1")), "bond0", set()),
    ):  # fmt: skip
        findings = judged(*devs, ifname=ifname)
        assert causes(findings) == {key: {"n1"} for key in keys}, devs
        assert {one.status for one in findings} <= {Status.WARN}
    (finding,) = judged(bond(), link("eth0", speed_mbit_s=25_000), link("eth1", **down))
    assert finding.evidence[0].output == "eth0 up 25000 Mbit/s and eth1 down ? Mbit/s"


def test_what_does_not_apply_and_what_is_not_shown() -> None:
    assert [one.status for one in judged(netdev())] == [Status.SKIP]
    assert judged(bond(), link("eth0"), link("eth1", mii_status="down"), purpose="") == []
    hidden = (link(one, mii_status=None, carrier=None) for one in ("eth0", "eth1"))
    assert found(judged(bond(), *hidden))["n1"].status is Status.UNKNOWN
    assert found(judged(bond()))["n1"].status is Status.UNKNOWN
