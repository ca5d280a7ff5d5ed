"""NCCL's own choice of interfaces, HCAs and GIDs, as pure functions over facts.

Written after NCCL 2.30.7 (src/os/linux.cc, src/misc/socket.cc, src/misc/utils.cc,
src/misc/param.cc, src/transport/net_ib); behaviour that differs by release takes the release as an
argument. Where the release is unknown the newest rules are used.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.facts.rdma import Gid, Hca, HcaPort
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Version = tuple[int, ...]

MAX_IFS = 16  # src/transport/net_socket.cc, src/os/linux.cc
MAX_IB_DEVS = 32  # src/transport/net_ib/common.h
RUNNING_SINCE = (2, 28, 3)  # IFF_RUNNING and virbr: tags v2.27.7-1 against v2.28.3-1
GID_SCAN_SINCE = (2, 21)  # before, GID index 0 unless NCCL_IB_GID_INDEX said otherwise
LLONG_MAX = 2**63 - 1


def parse_version(text: str | None) -> Version | None:
    """``2.21.5`` or ``2.21.5+cuda12.4`` as (2, 21, 5); None where there are no numbers."""
    match = re.match(r"\d+(?:\.\d+)*", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else None


def nccl_version(software: SoftwareFacts | None) -> Version | None:
    """Release of the library that torch would load on a node."""
    return parse_version(software.nccl[0].version) if software and software.nccl else None


def at_least(version: Version | None, least: Version) -> bool:
    """Whether the newer behaviour applies; an unknown release counts as the newest."""
    return version is None or version >= least


# --- environment ---------------------------------------------------------------------------------


def effective_env(login: EnvFacts | None, job: Job) -> dict[str, tuple[str, str]]:
    """Value and origin of every variable as a process of the job sees it on one node.

    The job's own environment wins over the login session's, and both over NCCL's files, which never
    overwrite (src/misc/param.cc setEnvFile). Of the files only NCCL_* counts: torch and gloo do not
    read them.
    """
    env: dict[str, tuple[str, str]] = {}
    for name, value in job.env.items():
        env[name] = (value, job.env_from.get(name, "job environment"))
    if login is None:
        return env
    for name, value in login.variables.items():
        env.setdefault(name, (value, "login session"))
    for conf in login.nccl_conf:
        for name, value in conf.values.items():
            if name.startswith("NCCL_"):
                env.setdefault(name, (value, conf.path))
    return env


def values(env: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """`env` without the origins."""
    return {name: value for name, (value, _) in env.items()}


def param(text: str | None, default: int) -> int:
    """An integer variable as ncclLoadParam reads it: strtoll with base 0; text that is no number is
    0.

    An unset or empty variable, or a number out of range, gives `default`.
    """
    if not text:
        return default
    match = re.match(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text)
    if match is None:
        return 0
    digits = match[2]
    if digits[:2] in ("0x", "0X"):
        number = int(digits, 16)
    elif digits.startswith("0"):
        number = int(digits, 8)
    else:
        number = int(digits)
    if number > LLONG_MAX:
        return default
    return -number if match[1] == "-" else number


def is_plain_number(text: str) -> bool:
    """Whether strtoll(base 0) reads the whole of `text`, as decimal or hexadecimal and not as
    octal."""
    return re.fullmatch(r"[+-]?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)", text) is not None


# --- lists ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a list: a name or prefix, and a port (-1 for any)."""

    name: str
    port: int = -1


@dataclass(frozen=True, slots=True)
class Filter:
    """NCCL_SOCKET_IFNAME or NCCL_IB_HCA, taken apart."""

    exclude: bool
    exact: bool
    entries: tuple[Entry, ...]

    def accepts(self, name: str, port: int = -1) -> bool:
        """Whether NCCL keeps the interface or HCA port `name`. An empty list matches everything."""
        return self._listed(name, port) != self.exclude

    def _listed(self, name: str, port: int) -> bool:
        if not self.entries:
            return True
        return any(
            (name == entry.name if self.exact else name.startswith(entry.name))
            and (port == -1 or entry.port in (-1, port))
            for entry in self.entries
        )


@lru_cache(maxsize=1024)
def parse_filter(text: str, most: int = MAX_IFS) -> Filter:
    """`text` as NCCL takes it apart: ``^`` and then ``=`` count only at the very start of the list.

    ``^lo,^docker`` excludes ``lo*`` and names that begin with ``^docker``; nothing is trimmed, so
    ``eth0, eth1`` looks for `` eth1``; what follows ``:`` is a port; entries after `most` are
    dropped.
    """
    exclude = text.startswith("^")
    text = text[1:] if exclude else text
    exact = text.startswith("=")
    text = text[1:] if exact else text
    entries: list[Entry] = []
    for item in text.split(","):
        name, colon, port = item.partition(":")
        if name:
            entries.append(Entry(name, _atoi(port) if colon else -1))
    return Filter(exclude, exact, tuple(entries[:most]))


def _atoi(text: str) -> int:
    match = re.match(r"\s*[+-]?\d+", text)
    return int(match[0]) if match else 0


# --- interfaces ----------------------------------------------------------------------------------


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
    """IFF_RUNNING of an interface; one that is listed with an address but without flags counts as
    running."""
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
    """Rows that ncclOsFindInterfaces takes for the list `wanted`: getifaddrs order, one row per
    interface."""
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
    """Whether NCCL_SOCKET_IFNAME counts; a value under two characters does not
    (ncclFindInterfaces)."""
    return len(env.get("NCCL_SOCKET_IFNAME", "")) > 1


def candidates(
    net: NetFacts, env: Mapping[str, str], version: Version | None = None, most: int = MAX_IFS
) -> tuple[list[AddressRow], str]:
    """Rows that ncclFindInterfaces returns, and the rule that found them. A set variable is
    find-or-fail."""
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
    """First row in whose network `address` lies (ncclFindInterfaceMatchSubnet; RUNNING is not
    asked)."""
    for row in rows_of(net):
        if ip(row.address).version == address.version and address in network(row):
            return row
    return None


@lru_cache(maxsize=1 << 16)
def ip(text: str) -> IPAddress:
    """An address, with or without a scope (``fe80::1%eth0``). Raises ValueError for anything
    else."""
    return ipaddress.ip_address(text.partition("%")[0])


def rows_of(net: NetFacts) -> list[AddressRow]:
    """Rows in getifaddrs order, without those that are no IP address and so cannot be judged."""
    return [row for row in net.addresses if _network(row.address, row.prefix_len) is not None]


def network(row: AddressRow) -> IPNetwork:
    """The network of a row. Raises ValueError for a row that `rows_of` leaves out."""
    found = _network(row.address, row.prefix_len)
    if found is None:
        raise ValueError(f"no network: {row.address}/{row.prefix_len}")
    return found


@lru_cache(maxsize=1 << 16)
def _network(address: str, prefix_len: int) -> IPNetwork | None:
    try:
        return ipaddress.ip_network((address.partition("%")[0], prefix_len), strict=False)
    except ValueError:
        return None


def is_usable(row: AddressRow) -> bool:
    """Whether peers could dial this address at all: neither loopback nor link-local nor
    unspecified."""
    address = ip(row.address)
    return not (
        address.is_loopback
        or address.is_unspecified
        or (address.version == 6 and address.is_link_local)
        or row.scope == "host"
    )


# --- what peers should dial ----------------------------------------------------------------------


def repeated_addresses(nets: Mapping[str, NetFacts]) -> set[str]:
    """Addresses that more than one node has, such as every docker0's 172.17.0.1."""
    count: Counter[str] = Counter()
    for net in nets.values():
        count.update({row.address for row in rows_of(net)})
    return {address for address, nodes in count.items() if nodes > 1}


def networks_by_reach(nets: Mapping[str, NetFacts]) -> dict[IPNetwork, dict[str, AddressRow]]:
    """Per network, the first address that each node has in it; addresses seen on several nodes do
    not count."""
    repeated = repeated_addresses(nets)
    reach: dict[IPNetwork, dict[str, AddressRow]] = {}
    for node, net in nets.items():
        for row in rows_of(net):
            if is_usable(row) and row.address not in repeated:
                reach.setdefault(network(row), {}).setdefault(node, row)
    return reach


def data_addresses(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Mapping[str, str]],
    ssh_addresses: Mapping[str, str | None],
) -> dict[str, str]:
    """The address of each node that its peers should dial, by node id; nodes without any are left
    out.

    In order: what NCCL_SOCKET_IFNAME selects when it is set and selects a usable address (not one
    that stands alone where most nodes share a network with this one); the
    node's end of the SSH connection when it is one of its own addresses; NCCL's automatic choice
    when most nodes share its network; the first address in the network that most nodes share; the
    first global address.
    """
    repeated = repeated_addresses(nets)
    reach = networks_by_reach(nets)
    result: dict[str, str] = {}
    shared = {node for rows in reach.values() if 2 * len(rows) > len(nets) for node in rows}
    for node, net in nets.items():
        env = envs.get(node, {})
        own = {row.address: row for row in rows_of(net) if is_usable(row)}
        chosen = choose(net, env).row
        if is_ifname_set(env) and chosen and is_usable(chosen):
            alone = len(reach.get(network(chosen), {})) == 1 and node in shared
            if not alone or len(nets) == 1:
                result[node] = chosen.address
                continue
        login = ssh_addresses.get(node)
        if login in own:
            result[node] = own[login].address
            continue
        if (
            chosen
            and chosen.address in own
            and chosen.address not in repeated
            and 2 * len(reach.get(network(chosen), {})) > len(nets)
        ):
            result[node] = chosen.address
            continue
        rows = [row for row in own.values() if row.address not in repeated] or list(own.values())
        if rows:
            # max() keeps the first of equals, which is getifaddrs order.
            result[node] = max(rows, key=lambda row: len(reach.get(network(row), {}))).address
    return result


# --- a value that works --------------------------------------------------------------------------

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A setting that was tried on every node by the same rules. value: one for all, or None;
    per_node: the value of each node when no single one fits; addresses: what each node would
    advertise with it."""

    value: str | None
    per_node: Mapping[str, str]
    addresses: Mapping[str, AddressRow]


def propose_ifname(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Mapping[str, str]],
    versions: Mapping[str, Version | None],
    preferred: Mapping[str, str],
) -> Proposal | None:
    """A NCCL_SOCKET_IFNAME that gives every node an address which its peers share a network with.

    `preferred` (node to address, such as Job.data_addresses) breaks ties, and stands in where no
    network holds every node. None when there is nothing to propose.
    """
    target = target_rows(nets, preferred)
    if target is None or not all(_SAFE_NAME.fullmatch(row.ifname) for row in target.values()):
        return None
    names = list(dict.fromkeys(row.ifname for row in target.values()))

    def works(value: str, nodes: Sequence[str]) -> bool:
        for node in nodes:
            env = {**envs.get(node, {}), "NCCL_SOCKET_IFNAME": value}
            if choose(nets[node], env, versions.get(node)).address != target[node].address:
                return False
        return True

    everyone = list(nets)
    for value in _spellings(nets, target, names):
        if works(value, everyone):
            return Proposal(value, {}, target)
    per_node = {node: f"={row.ifname}" for node, row in target.items()}
    if all(works(value, [node]) for node, value in per_node.items()):
        return Proposal(None, per_node, target)
    return None


def _spellings(
    nets: Mapping[str, NetFacts], target: Mapping[str, AddressRow], names: Sequence[str]
) -> Iterator[str]:
    if len(names) <= MAX_IFS:
        yield "=" + ",".join(names)
    # A list of names fails where a node has two of them and the wrong one comes first: exclude
    # instead.
    others = sorted(
        {
            row.ifname
            for node, net in nets.items()
            for row in rows_of(net)
            if row.ifname != target[node].ifname
        }
        - set(names)
    )
    if others and len(others) <= MAX_IFS and all(_SAFE_NAME.fullmatch(name) for name in others):
        yield "^=" + ",".join(others)


def target_rows(nets: Mapping[str, NetFacts], preferred: Mapping[str, str]) -> dict[str, AddressRow] | None:
    """Per node the address to advertise: in one network that holds every node, else the preferred
    ones."""
    whole = {net: rows for net, rows in networks_by_reach(nets).items() if len(rows) == len(nets)}
    first = min(whole, key=lambda net: _liking(whole[net], preferred), default=None)
    if first is not None:
        return whole[first]
    repeated = repeated_addresses(nets)
    target: dict[str, AddressRow] = {}
    for node, net in nets.items():
        for row in rows_of(net):
            wanted = row.address == preferred.get(node)
            if wanted and is_usable(row) and row.address not in repeated:
                target[node] = row
                break
        else:
            return None
    return target


def _liking(rows: Mapping[str, AddressRow], preferred: Mapping[str, str]) -> tuple[int, int, int]:
    """Smaller is better: holds the preferred addresses, is no tunnel or bridge, is IPv4."""
    return (
        -sum(row.address == preferred.get(node) for node, row in rows.items()),
        sum(is_tunnel_name(row.ifname) or is_bridge_name(row.ifname) for row in rows.values()),
        sum(row.family == "inet6" for row in rows.values()),
    )


# Interfaces that NCCL does not exclude by itself although peers rarely reach them (reference 1.1).
_BRIDGES = ("docker", "br-", "virbr", "cni", "podman", "lxdbr", "lxcbr", "kube-ipvs")
_TUNNELS = ("tailscale", "wg", "tun", "tap", "zt", "flannel", "vxlan", "cali", "tunl", "utun")


def is_bridge_name(name: str) -> bool:
    """Names that container engines and hypervisors give to bridges which exist on one machine
    only."""
    return name.startswith(_BRIDGES)


def is_tunnel_name(name: str) -> bool:
    """Names of overlay and VPN interfaces, which carry a job slowly where they carry it at all."""
    return name.startswith(_TUNNELS)


# --- HCAs and GIDs -------------------------------------------------------------------------------


def selected_ports(hcas: Sequence[Hca], value: str | None) -> list[tuple[Hca, HcaPort]]:
    """Ports that NCCL would use under NCCL_IB_HCA=`value` (None when unset): ACTIVE, InfiniBand or
    Ethernet, accepted by the list, and with a device that the process may open."""
    keep = parse_filter(value or "", MAX_IB_DEVS)
    return [
        (hca, port)
        for hca in hcas
        for port in hca.ports
        if hca.uverbs_ok is not False
        and port.active
        and port.link_layer in ("InfiniBand", "Ethernet")
        and keep.accepts(hca.name, port.number)
    ]


def prefix_surprises(hcas: Sequence[Hca], value: str | None) -> dict[str, list[str]]:
    """Per entry that is a whole device name, the further devices which it selects because it is a
    prefix."""
    spec = parse_filter(value or "", MAX_IB_DEVS)
    names = [hca.name for hca in hcas]
    if spec.exact:
        return {}
    listed = {entry.name for entry in spec.entries}
    surprises = {
        entry.name: [name for name in names if name.startswith(entry.name) and name not in listed]
        for entry in spec.entries
        if entry.name in names
    }
    return {name: more for name, more in surprises.items() if more}


def gid_bytes(gid: Gid) -> ipaddress.IPv6Address | None:
    """The 128 bits of a GID, None where the text is no address."""
    try:
        return ipaddress.IPv6Address(gid.gid)
    except ValueError:
        return None


def gid_ipv4(gid: Gid) -> ipaddress.IPv4Address | None:
    """The IPv4 address of an IPv4-mapped GID, ``::ffff:10.0.0.1``."""
    address = gid_bytes(gid)
    return address.ipv4_mapped if address else None


def gid_version(gid: Gid | None) -> int | None:
    """RoCE version as ncclIbRoceGetVersionNum reads it: 1, 2, or None."""
    return {"RoCE v2": 2, "IB/RoCE v1": 1, "RoCE v1": 1}.get((gid.type or "") if gid else "")


def choose_gid_index(port: HcaPort, env: Mapping[str, str], version: Version | None = None) -> int:
    """GID index that NCCL would use on a RoCE port (ncclIbGetGidIndex, ncclUpdateGidIndex).

    A forced NCCL_IB_GID_INDEX is taken blindly. Else index 0, replaced along the table by
    candidates of the wanted family (IPv4-mapped unless NCCL_IB_ADDR_FAMILY=AF_INET6), inside
    NCCL_IB_ADDR_RANGE, of the wanted RoCE version.
    """
    if port.link_layer != "Ethernet":
        return 0
    forced = param(env.get("NCCL_IB_GID_INDEX"), -1)
    if forced >= 0:
        return forced
    if not at_least(version, GID_SCAN_SINCE):
        return 0
    v4 = env.get("NCCL_IB_ADDR_FAMILY", "AF_INET") != "AF_INET6"
    wanted_version = param(env.get("NCCL_IB_ROCE_VERSION_NUM"), 2)
    table = {gid.index: gid for gid in port.gids}
    index = 0
    for candidate_index in sorted(table):
        if candidate_index == 0:
            continue
        current, candidate = table.get(index), table[candidate_index]
        family_fits = (gid_ipv4(candidate) is not None) == v4
        if not family_fits or not _in_range(candidate, env.get("NCCL_IB_ADDR_RANGE")):
            continue
        current_is_v4 = current is not None and gid_ipv4(current) is not None
        newer = gid_version(candidate) == wanted_version and (
            gid_version(current) != wanted_version or not _is_valid_gid(current)
        )
        if current_is_v4 != v4 or (_is_valid_gid(candidate) and newer):
            index = candidate_index
    return index


def _is_valid_gid(gid: Gid | None) -> bool:
    address = gid_bytes(gid) if gid else None
    return address is not None and not address.is_link_local and not address.is_unspecified


def _in_range(gid: Gid, text: str | None) -> bool:
    if not text:
        return True
    try:
        cidr = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return True
    address: IPAddress | None = gid_ipv4(gid) if cidr.version == 4 else gid_bytes(gid)
    return address is not None and address in cidr
