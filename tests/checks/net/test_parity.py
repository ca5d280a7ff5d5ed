from dataclasses import replace
from typing import Any

from netdoctor.checks.net.parity import net_parity
from netdoctor.facts.net import Netdev, NetFacts, Nic
from netdoctor.facts.paths import Paths, Use
from netdoctor.facts.rdma import Hca, RdmaFacts
from netdoctor.model import Finding, Status

from ..build import address, cause, causes, host, hosts, name, names, net, netdev, row, tunings

E810, X710 = "8086:1592 8086:0002", "8086:1572 1028:1F9C"
NIC = Nic(
    version="in-kernel", firmware="4.40 0x8001c967", most_mbit_s=25000,
    features={"rx": True, "tx": True, "tso": True, "gso": True, "gro": True},
    sizes={"ring rx": (2048, 8160), "channels combined": (64, 64)},
)  # fmt: skip


def dev(nic: dict[str, Any] | None = None, **more: Any) -> Netdev:
    mine = replace(NIC, **nic) if nic is not None else NIC
    return netdev(**{"driver": "ice", "model": E810, "duplex": "full", "nic": mine, **more})


def judged(odd: Netdev | None = None, count: int = 4, **more: Any) -> list[Finding]:
    """What is said of so many nodes that have an E810 on eth0, the first of them `odd`."""
    nets: dict[str, NetFacts] = {
        name(i): net(i, netdevs=((odd or dev()) if i == 1 else dev(),)) for i in range(1, count + 1)
    }
    uses = [Use(node=name(i), address=address(i), purpose="gloo", rule="test") for i in range(1, count + 1)]
    return list(
        net_parity(
            {**nets, **more.get("nets", {})}, Paths(uses=tuple(uses)), more.get("hosts", hosts(count)),
            more.get("tunings", tunings(count)), more.get("rdma"),
        )
    )  # fmt: skip


def test_nics_of_one_model() -> None:
    guests, small = tunings(4, is_virtual=True), hosts(4) | {"n1": host(1, cpu_count=8)}
    off = {**NIC.features, "tso": False, "gro": False}
    for odd, more, keys in (
        (dev(), {}, []),
        (dev(driver="out_of_tree"), {}, ["nic-driver"]),
        (dev({"version": "1.14.9"}), {}, ["nic-driver-version"]),
        (dev({"firmware": "4.20 0x80017784"}), {}, ["nic-firmware"]),
        (dev({"firmware": "4.20 0x80017784"}), {"tunings": guests}, []),
        (dev({"firmware": "4.20 0x80017784"}), {"tunings": None}, []),
        (dev({"features": off}), {}, ["nic-offload-off"]),
        (dev({"features": off}), {"tunings": guests}, ["nic-offload-off"]),
        (dev({"features": {}}), {}, []),
        (dev({"sizes": {"ring rx": (512, 8160), "channels combined": (8, 64)}}), {}, ["nic-queues-fewer"]),
        # Not less, but more; and of a driver, or a machine, that has other limits.
        (dev({"sizes": {"ring rx": (8160, 8160)}}), {}, []),
        (dev({"sizes": {"ring rx": (512, 4096)}}), {}, []),
        (dev({"sizes": {"channels combined": (8, 64)}}), {"hosts": small}, []),
        # Another model is compared with none of these; a tie accuses nobody.
        (dev({"version": "2.8", "firmware": "9.5", "features": off}, model=X710, driver="i40e"), {}, []),
        (dev({"version": "1.14.9", "firmware": "4.20", "features": off}), {"count": 2}, []),
        (dev({"version": "1.14.9", "firmware": "4.20", "features": off}), {"count": 1}, []),
        # Of a card without ids, as virtio's, by its driver.
        (dev(model="", driver="virtio_net"), {}, []),
        (dev(duplex="half"), {}, ["nic-half-duplex"]),
        (dev(duplex="half"), {"count": 1}, ["nic-half-duplex"]),
        (dev(speed_mbit_s=100), {}, ["nic-speed-fallen"]),
        (dev({"most_mbit_s": 1000}, speed_mbit_s=100), {}, ["nic-speed-fallen"]),
        (dev({"most_mbit_s": 100}, speed_mbit_s=100), {}, []),
        (dev({"most_mbit_s": None}, speed_mbit_s=10), {}, []),
        (dev({"firmware": "1"}, duplex="half", kind="other"), {}, []),
    ):  # fmt: skip
        findings = [one for one in judged(odd, **more) if one.status is not Status.SKIP]
        assert causes(findings) == {key: {"n1"} for key in keys}, (odd, more)
        assert {one.status for one in findings} <= {Status.WARN}


def test_what_is_compared() -> None:
    """NICs in a bond, not those of HCAs, nor those that the job leaves alone."""
    old = {"firmware": "4.20"}
    apart = row("eth9", "192.168.7.1")
    spare = net(1, netdevs=(dev(), dev(old, ifname="eth9")), addresses=(row("eth0", address(1)), apart))
    assert judged(nets={"n1": spare}) == []
    bond = netdev("bond0", 9, kind="bond", slaves=("eth0", "eth1"))
    bonded = net(1, netdevs=(bond, dev(), dev(old, ifname="eth1")), addresses=(row("bond0.7", address(1)),))
    assert causes(judged(nets={"n1": bonded})) == {"nic-firmware": {"n1"}}
    rdma = {node: RdmaFacts(hcas=(Hca(name="mlx5_0", netdevs=("eth0",)),)) for node in names(4)}
    (nothing,) = judged(dev(old), rdma=rdma)
    assert nothing.status is Status.SKIP
    (nothing,) = judged(dev(nic=None, duplex=None), count=1)
    assert nothing.status is Status.SKIP


def test_the_fix_sets_what_the_others_have() -> None:
    sizes = {"ring rx": (512, 8160), "channels combined": (8, 64), "ring $(reboot)": (1, 2)}
    odd = dev({"features": {**NIC.features, "tso": False, "x; reboot": False}, "sizes": sizes})
    (fix,) = cause(judged(odd), "nic-queues-fewer").fixes
    assert fix.commands[0].shell == "ethtool -G eth0 rx 2048 && ethtool -L eth0 combined 64"
    assert fix.undo[0].shell == "ethtool -G eth0 rx 512 && ethtool -L eth0 combined 8"
    (fix,) = cause(judged(odd), "nic-offload-off").fixes
    assert (fix.commands[0].shell, fix.undo[0].shell) == ("ethtool -K eth0 tso on", "ethtool -K eth0 tso off")
