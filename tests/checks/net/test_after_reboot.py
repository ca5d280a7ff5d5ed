from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.net.after_reboot import net_after_reboot
from netdoctor.facts.net_setup import InterfaceSetup, NetSetupFacts
from netdoctor.model import Finding, Status

from ..build import causes, net, netdev, row, said
from ..build_hw import hca, rdma, roce_port

NM, NETWORKD = "NetworkManager", "systemd-networkd"
WELL: dict[str, Any] = {
    "by": NM, "state": "connected", "method": "manual", "addresses": ("10.1.0.1",), "mtu": 9000,
    "autoconnect": True,
}  # fmt: skip


def judged(address: str = "10.1.0.1", **changes: Any) -> list[Finding]:
    """Of a RoCE port on eth1. changes: of who sets it up; closed, mtu_elsewhere: of the node."""
    node = {name: changes.pop(name) for name in ("closed", "mtu_elsewhere") if name in changes}
    one = InterfaceSetup(ifname="eth1", **{**WELL, **changes})
    facts = net(1)
    facts = replace(
        facts,
        netdevs=(*facts.netdevs, netdev("eth1", 3, mtu=9000)),
        addresses=(*facts.addresses, row("eth1", address)),
    )
    setup = NetSetupFacts(interfaces=(one,), **node)
    return said(net_after_reboot(setup, rdma(hca(netdevs=("eth1",), ports=(roce_port(),))), facts))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"by": NETWORKD, "state": "configured"},
        {"method": "auto", "addresses": (), "mtu": 0},  # DHCP may set both
        {"files": ("/etc/rc.local",), "state": "connected (externally)"},
        {"mtu": 0, "mtu_elsewhere": True},
    ],
)
def test_what_is_written_down(changes: dict[str, Any]) -> None:
    (finding,) = judged(**changes)
    assert finding.status is Status.PASS


@pytest.mark.parametrize("changes", [{"state": "unmanaged", "closed": True}, {"state": "configured"}])
def test_what_only_root_may_read_is_not_green(changes: dict[str, Any]) -> None:
    unread = {"by": NETWORKD, "mtu": None, "autoconnect": None, "method": "", "addresses": ()}
    (finding,) = judged(**unread, **changes)
    assert (finding.status, finding.summary) == (
        Status.SKIP, "only root may read what sets the interfaces up",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "key", "fix"),
    [
        ({"state": "connected (externally)"}, "address-by-hand", "netplan"),
        ({"by": NETWORKD, "state": "unmanaged", "method": ""}, "address-by-hand", "netplan"),
        ({"addresses": ("10.9.0.1",)}, "address-by-hand", "netplan"),
        ({"autoconnect": False}, "address-by-hand", "connection.autoconnect yes"),
        ({"mtu": 0}, "mtu-by-hand", "802-3-ethernet.mtu 9000"),
        ({"by": NETWORKD, "state": "configured", "mtu": 1500}, "mtu-by-hand", "netplan"),
        ({"address": "169.254.35.62"}, "address-link-local", "netplan"),
    ],
)
def test_what_a_reboot_takes_away(changes: dict[str, Any], key: str, fix: str) -> None:
    (finding,) = judged(**changes)
    assert finding.status is Status.WARN
    assert causes([finding]) == {key: {"n1"}}
    assert finding.cause
    first = finding.cause.fixes[0]
    assert fix in " ".join([first.text, *(one.shell for one in first.commands)])


def test_says_why_it_does_not_apply() -> None:
    (finding,) = judged(by="", state="")
    assert (finding.status, finding.summary) == (
        Status.SKIP, "neither NetworkManager nor systemd-networkd runs here",
    )  # fmt: skip
    (finding,) = said(net_after_reboot(NetSetupFacts(interfaces=()), rdma(), net(1)))
    assert finding.status is Status.SKIP
