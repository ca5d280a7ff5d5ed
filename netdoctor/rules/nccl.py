"""NCCL's own choice of interfaces, as pure functions over facts.

Written after NCCL 2.30.7 (src/os/linux.cc, src/misc/socket.cc); behaviour that differs by release takes the
release as an argument. Where the release is unknown the newest rules are used.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from netdoctor.facts.net import AddressRow, Lookup, NetFacts, ResolveFacts
from netdoctor.facts.software import NcclAnswer
from netdoctor.memo import by_identity
from netdoctor.rules.addresses import IPAddress, ip, network, parse, rows_of
from netdoctor.rules.variables import MAX_IFS, parse_filter
from netdoctor.rules.versions import Version, at_least

RUNNING_SINCE = (2, 28, 3)  # IFF_RUNNING and virbr: tags v2.27.7-1 against v2.28.3-1


@dataclass(frozen=True, slots=True)
class Choice:
    """The address that NCCL would advertise, and the rule that led to it."""

    row: AddressRow | None  # None when NCCL finds nothing and gives up
    # ``NCCL_SOCKET_IFNAME``, ``NCCL_COMM_ID``, ``ib*``, ``not docker*, lo*, virbr*``, ``docker*``, ``lo*``,
    # ``virbr*`` or ``nothing left``.
    rule: str
    untold: str = ""  # what the choice hangs on and the facts do not say; empty where it is certain
    by_nccl: bool = False  # NCCL itself said so

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
    return _running(net).get(device_of(ifname), True)


def _running(net: NetFacts) -> dict[str, bool]:
    return {dev.name: dev.running for dev in reversed(net.netdevs)}


def find_interfaces(
    net: NetFacts, names: str, version: Version | None, family: str | None = None, most: int = MAX_IFS
) -> list[AddressRow]:
    """Rows that ncclOsFindInterfaces takes for the list `wanted`: getifaddrs order, one row per interface."""
    rows = rows_of(net)
    return [rows[position] for position in _found(_kinds(net), names, version, family, most)]


# Of a row: its interface, its family, whether it is ::1, whether its interface is running. Nodes of a cluster
# are alike in these, whatever their addresses.
_Kind = tuple[str, str, bool, bool]


@by_identity
def _kinds(net: NetFacts) -> tuple[_Kind, ...]:
    running = _running(net)
    return tuple(
        (
            row.ifname,
            row.family,
            row.family == "inet6" and ip(row.address).is_loopback,
            running.get(device_of(row.ifname), True) if row.running is None else row.running,
        )
        for row in rows_of(net)
    )


@lru_cache(maxsize=1 << 14)
def _found(
    rows: tuple[_Kind, ...], listed: str, version: Version | None, family: str | None, most: int
) -> tuple[int, ...]:
    keep = parse_filter(listed)
    found: list[int] = []
    names: set[str] = set()
    for position, (ifname, its_family, is_loopback, running) in enumerate(rows):
        if len(found) == most:
            break
        if ifname in names or (family and its_family != family):
            continue
        if is_loopback or (at_least(version, RUNNING_SINCE) and not running):
            continue
        if keep.accepts(ifname):
            names.add(ifname)
            found.append(position)
    return tuple(found)


def socket_family(env: Mapping[str, str]) -> str | None:
    """NCCL_SOCKET_FAMILY: only the exact words count, anything else is no restriction."""
    return {"AF_INET": "inet", "AF_INET6": "inet6"}.get(env.get("NCCL_SOCKET_FAMILY", ""))


def is_ifname_set(env: Mapping[str, str]) -> bool:
    """Whether NCCL_SOCKET_IFNAME counts; a value under two characters does not (ncclFindInterfaces)."""
    return len(env.get("NCCL_SOCKET_IFNAME", "")) > 1


def candidates(
    net: NetFacts,
    env: Mapping[str, str],
    version: Version | None = None,
    most: int = MAX_IFS,
    resolve: ResolveFacts | None = None,
) -> tuple[list[AddressRow], str]:
    """Rows that ncclFindInterfaces returns, and the rule that found them. A set variable is find-or-fail."""
    family = socket_family(env)
    if is_ifname_set(env):
        rows = find_interfaces(net, env["NCCL_SOCKET_IFNAME"], version, family, most)
        return rows, "NCCL_SOCKET_IFNAME"
    rows = find_interfaces(net, "ib", version, family, most)
    if rows:
        return rows, "ib*"
    comm_id = read_comm_id(net, env, resolve)
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


def choose(
    net: NetFacts, env: Mapping[str, str], version: Version | None = None, resolve: ResolveFacts | None = None
) -> Choice:
    """The address that NCCL's bootstrap would advertise (bootstrapNetInit, one interface).

    NCCL_COMM_ID overrides NCCL_SOCKET_IFNAME here, and finds or fails. resolve: what names mean on the node;
    a name in it that was not looked up leaves the choice untold.
    """
    comm_id = read_comm_id(net, env, resolve)
    if comm_id is not None:
        return Choice(match_subnet(net, comm_id), "NCCL_COMM_ID", comm_id.untold)
    rows, rule = candidates(net, env, version, most=1)
    return Choice(rows[0] if rows else None, rule)


# What NCCL says where nothing fits: bootstrapNetInit. Other errors are of the attempt, not of the choice.
_NOTHING_FITS = ("no socket interface found", "No usable listening interface found", "NCCL_COMM_ID")


def corrected(predicted: Choice, answer: NcclAnswer | None, net: NetFacts, env: Mapping[str, str]) -> Choice:
    """The choice after NCCL itself was asked: its answer counts, whatever was predicted.

    With NCCL_COMM_ID the answer says that there is an interface, and what the variable means: not which.
    """
    if answer is None:
        return predicted
    if answer.error:
        if any(words in answer.error for words in _NOTHING_FITS):
            return Choice(None, predicted.rule, by_nccl=True)
        return replace(predicted, untold=f"NCCL itself failed there: {answer.error}")
    if "NCCL_COMM_ID" in env:
        zone = next((dev.ifindex for dev in net.netdevs if dev.name == answer.zone), 0)
        row = match_subnet(net, CommId(parse(answer.address), zone))
        ours = "" if row else "NCCL itself finds an interface, netdoctor's rules do not"
        return Choice(row, "NCCL_COMM_ID", untold=ours)
    rows = [
        row
        for row in rows_of(net)
        if row.address == answer.address and answer.zone in (None, device_of(row.ifname))
    ]
    if predicted.row in rows:
        return replace(predicted, untold="", by_nccl=True)
    if rows:
        return Choice(rows[0], "asked", by_nccl=True)
    text = f"NCCL itself chose {answer.address}, but no known interface has that address"
    return replace(predicted, untold=text)


# --- NCCL_COMM_ID --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommId:
    """NCCL_COMM_ID as ncclSocketGetAddrFromString takes it."""

    address: IPAddress | None = None  # None where that ends the job, or is untold
    zone: int = 0  # index of the interface behind ``%``, 0 for none
    untold: str = ""


def read_comm_id(net: NetFacts, env: Mapping[str, str], resolve: ResolveFacts | None = None) -> CommId | None:
    """What NCCL_COMM_ID means on a node; None where it is unset."""
    text = env.get("NCCL_COMM_ID")
    if text is None:
        return None
    if text.startswith("["):
        return _bracketed(net, text)
    host = _first_name(text)
    if len(text) < 2 or not host:
        return CommId()
    try:
        return CommId(ipaddress.IPv4Address(host))
    except ValueError:
        return _looked_up(host, resolve)


def comm_id_host(text: str) -> str | None:
    """The name in a NCCL_COMM_ID that NCCL looks up, None where there is none to look up."""
    host = "" if text.startswith("[") or len(text) < 2 else _first_name(text)
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return host or None
    return None


def _first_name(text: str) -> str:
    """The first item of a list up to its ``:``; items without a name are passed over (parseStringList)."""
    return next((name for item in text.split(",") if (name := item.partition(":")[0])), "")


def _bracketed(net: NetFacts, text: str) -> CommId:
    inner, closed, _ = text[1:].partition("]")
    bare, percent, zone = inner.rpartition("%")
    try:
        address = ipaddress.IPv6Address(bare if percent else inner)
    except ValueError:
        return CommId()
    index = next((dev.ifindex for dev in net.netdevs if dev.name == zone), 0) if percent else 0
    return CommId(address, index) if closed else CommId()


def _looked_up(host: str, resolve: ResolveFacts | None) -> CommId:
    known: dict[str, Lookup] = {}
    if resolve is not None:
        known = {lookup.name: lookup for lookup in (resolve.own, *resolve.peers)}
    lookup = known.get(host)
    if lookup is None or (lookup.error or "").startswith("timed out"):
        return CommId(untold=f"what {host} in NCCL_COMM_ID was not looked up there")
    address = None if lookup.failed else parse(lookup.addresses[0])
    return CommId(address)  # a zone that the name service gives is dropped


def match_subnet(net: NetFacts, comm_id: CommId) -> AddressRow | None:
    """First row in whose network the address lies, in the same zone (ncclFindInterfaceMatchSubnet; RUNNING
    is not asked)."""
    if comm_id.address is None:
        return None
    zones = {dev.name: dev.ifindex for dev in net.netdevs}
    for row in rows_of(net):
        local = ip(row.address)
        zone = zones.get(row.ifname, 0) if local.version == 6 and local.is_link_local else 0
        same = local.version == 4 or zone == comm_id.zone
        if local.version == comm_id.address.version and same and comm_id.address in network(row):
            return row
    return None
