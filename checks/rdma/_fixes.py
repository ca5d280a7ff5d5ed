"""What to do about a port of an HCA, without cutting off whoever does it."""

from collections.abc import Iterator

from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import Hca, HcaPort
from netdoctor.model import Fix, look, run
from netdoctor.rules.addresses import rows_of
from netdoctor.text import is_plain_name

# Reloading it makes the RDMA devices anew, and their GID tables with them (rdma_roce_rescan_device in
# drivers/infiniband/core/roce_gid_mgmt.c), while mlx5_core keeps the Ethernet interfaces up.
RELOAD = run(
    "make the RDMA devices anew, which fills their GID tables; Ethernet interfaces and sessions stay",
    "modprobe -r mlx5_ib; modprobe -a mlx5_ib ib_uverbs",
    root=True,
    risk="medium",
    loses="RDMA of whatever runs there",
)


def carries(netdev: str, net: NetFacts | None, host: HostFacts | None) -> str:
    """What would go with an interface: the session, the default route; "perhaps" where nobody knows."""
    if net is None or host is None or not host.ssh_server_address:
        return "perhaps this session and the default route"
    local = {row.address for row in rows_of(net) if row.ifname == netdev}
    parts = ["this session"] if host.ssh_server_address in local else []
    return " and ".join([*parts, *(["the default route"] if netdev in net.default_devs else [])])


def fill_gids(hca: Hca, netdev: str, net: NetFacts | None, host: HostFacts | None) -> tuple[Fix, ...]:
    """Have the driver fill the GID table of a port whose interface has an address already."""
    if hca.name.startswith("mlx5_"):
        return (RELOAD,)
    # Link down takes the routes along, IPv4 addresses stay. A unit of its own puts them back, and goes on
    # where the session hangs meanwhile.
    steps = (
        f"ip -4 route save table all dev {netdev} > /run/{netdev}.routes; ip link set dev {netdev} down; "
        f"ip link set dev {netdev} up; sleep 3; ip route restore < /run/{netdev}.routes"
    )
    lost = carries(netdev, net, host)
    return (
        run(
            "take the interface down and up, so that the GID table is filled anew; its routes come back",
            f'systemd-run --collect --wait sh -c "{steps}"',
            root=True,
            risk="high" if lost else "medium",
            loses=f"for some seconds {lost or 'what goes over it'}, for good IPv6 addresses set by hand",
        ),
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
            "switch the port on; where it stays off, its switch port is disabled",
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
        text = "the cable is fine: see what the driver says of the port, and the switch of its VLAN and state"
        yield look(text, f"{show}rdma link show; dmesg | grep -E '{name or 'mlx5'}|roce' | tail", root=True)
    else:
        text = "the cable is fine: see whether a subnet manager answers, and which partitions (pkeys) it gave"
        keys = f"; cat /sys/class/infiniband/{name}/ports/{port.number}/pkeys/*" if name else ""
        yield look(text, f"sminfo; ibstat {name}{keys} | sort -u", root=True)
