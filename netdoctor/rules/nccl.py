"""NCCL's own choice of interfaces, as pure functions over facts.

Written after NCCL 2.30.7 (src/os/linux.cc, src/misc/socket.cc); behaviour that differs by release takes the
release as an argument. Where the release is unknown the newest rules are used.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.rules.addresses import IPAddress, ip, network, rows_of
from netdoctor.rules.variables import MAX_IFS, parse_filter
from netdoctor.rules.versions import Version, at_least

RUNNING_SINCE = (2, 28, 3)  # IFF_RUNNING and virbr: tags v2.27.7-1 against v2.28.3-1


@dataclass(frozen=True, slots=True)
class Choice:
    """The address that NCCL would advertise, and the rule that led to it.

    row: None when NCCL finds nothing and gives up. rule: ``NCCL_SOCKET_IFNAME``, ``NCCL_COMM_ID``,
    ``ib*``, ``not docker*, lo*, virbr*``, ``docker*``, ``lo*``, ``virbr*`` or ``nothing left``.
    """

    row: AddressRow | None
    rule: str

    @property
    def ifname(self) -> str | None:
        return self.row.ifname if self.row else None

    @property
    def address(self) -> str | None:
        return self.row.address if self.row else None


def device_of(ifname: str) -> str:
    """The interface behind an address label: ``eth0`` for ``eth0:1``."""
    return ifname.split(":", 1)[0]


def is_running(net: NetFacts, ifname: str) -> bool:
    """IFF_RUNNING of an interface; one that is listed with an address but without flags counts as running."""
    for dev in net.netdevs:
        if dev.name == device_of(ifname):
            return dev.running
    return True


def find_interfaces(
    net: NetFacts,
    wanted: str,
    version: Version | None,
    family: str | None = None,
    most: int = MAX_IFS,
) -> list[AddressRow]:
    """Rows that ncclOsFindInterfaces takes for the list `wanted`: getifaddrs order, one row per interface."""
    keep = parse_filter(wanted)
    found: list[AddressRow] = []
    names: set[str] = set()
    for row in rows_of(net):
        if len(found) == most:
            break
        if row.ifname in names or (family and row.family != family):
            continue
        if row.family == "inet6" and ip(row.address).is_loopback:
            continue
        if at_least(version, RUNNING_SINCE) and not is_running(net, row.ifname):
            continue
        if keep.accepts(row.ifname):
            names.add(row.ifname)
            found.append(row)
    return found


def socket_family(env: Mapping[str, str]) -> str | None:
    """NCCL_SOCKET_FAMILY: only the exact words count, anything else is no restriction."""
    return {"AF_INET": "inet", "AF_INET6": "inet6"}.get(env.get("NCCL_SOCKET_FAMILY", ""))


def is_ifname_set(env: Mapping[str, str]) -> bool:
    """Whether NCCL_SOCKET_IFNAME counts; a value under two characters does not (ncclFindInterfaces)."""
    return len(env.get("NCCL_SOCKET_IFNAME", "")) > 1


def candidates(
    net: NetFacts, env: Mapping[str, str], version: Version | None = None, most: int = MAX_IFS
) -> tuple[list[AddressRow], str]:
    """Rows that ncclFindInterfaces returns, and the rule that found them. A set variable is find-or-fail."""
    family = socket_family(env)
    if is_ifname_set(env):
        rows = find_interfaces(net, env["NCCL_SOCKET_IFNAME"], version, family, most)
        return rows, "NCCL_SOCKET_IFNAME"
    rows = find_interfaces(net, "ib", version, family, most)
    if rows:
        return rows, "ib*"
    comm_id = comm_id_address(env)
    if comm_id is not None:
        row = match_subnet(net, comm_id)
        if row:
            return [row], "NCCL_COMM_ID"
    virbr = at_least(version, RUNNING_SINCE)
    steps = ["^docker,lo", "docker", "lo"]
    if virbr:
        steps = ["^docker,lo,virbr", "docker", "lo", "virbr"]
    for step in steps:
        rows = find_interfaces(net, step, version, family, most)
        if rows:
            return rows, f"not {step[1:].replace(',', '*, ')}*" if step[0] == "^" else f"{step}*"
    return [], "nothing left"


def choose(net: NetFacts, env: Mapping[str, str], version: Version | None = None) -> Choice:
    """The address that NCCL's bootstrap would advertise (bootstrapNetInit, one interface).

    NCCL_COMM_ID overrides NCCL_SOCKET_IFNAME here, and finds or fails; a host name in it cannot be
    looked up from facts and is ignored.
    """
    comm_id = comm_id_address(env)
    if comm_id is not None:
        return Choice(match_subnet(net, comm_id), "NCCL_COMM_ID")
    rows, rule = candidates(net, env, version, most=1)
    return Choice(rows[0] if rows else None, rule)


def comm_id_address(env: Mapping[str, str]) -> IPAddress | None:
    """The numeric address of NCCL_COMM_ID, ``a.b.c.d:port`` or ``[v6]:port``."""
    text = env.get("NCCL_COMM_ID", "")
    host = text[1:].partition("]")[0] if text.startswith("[") else text.rpartition(":")[0]
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def match_subnet(net: NetFacts, address: IPAddress) -> AddressRow | None:
    """First row in whose network `address` lies (ncclFindInterfaceMatchSubnet; RUNNING is not asked)."""
    for row in rows_of(net):
        if ip(row.address).version == address.version and address in network(row):
            return row
    return None
