"""NCCL's own choice of HCA ports and GIDs, as pure functions over facts.

Written after NCCL 2.30.7 (src/transport/net_ib); behaviour that differs by release takes the release as an
argument. Where the release is unknown the newest rules are used.
"""

import ipaddress
import re
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from netdoctor.facts.rdma import Gid, Hca, HcaPort
from netdoctor.memo import by_identity
from netdoctor.rules.addresses import CACHED, IPNetwork, bits_of, dotted
from netdoctor.rules.variables import Environment, Setting, param, parse_filter, values
from netdoctor.rules.versions import Version, at_least

MAX_IB_DEVS = 32  # src/transport/net_ib/common.h
FLID_SINCE = (2, 22)  # NCCL_IB_ROUTABLE_FLID_GID_INDEX: tags v2.21.5-1 against v2.22.3-1
GID_SCAN_SINCE = (2, 21)  # before, GID index 0 unless NCCL_IB_GID_INDEX said otherwise


@by_identity
def selected_ports(
    hcas: Sequence[Hca], value: str | None, version: Version | None = None
) -> list[tuple[Hca, HcaPort]]:
    """Ports that NCCL would use under NCCL_IB_HCA=`value` (None when unset): ACTIVE, InfiniBand or Ethernet,
    accepted by the list, and with a device that the process may open."""
    keep = parse_filter(value or "", MAX_IB_DEVS, version)
    return [
        (hca, port)
        for hca in hcas
        for port in hca.ports
        if hca.can_be_opened
        and port.active
        and port.link_layer in ("InfiniBand", "Ethernet")
        and keep.accepts(hca.name, port.number)
    ]


def halves(hcas: Sequence[Hca]) -> list[tuple[Hca, ...]]:
    """HCAs that are one network port: of a card that sits on several PCIe links (socket direct, GB10), each
    link has a device for the same socket. Known by the card's GUID and the socket's name, which no two
    functions of one link share."""
    found: dict[tuple[str, str], list[Hca]] = {}
    for hca in hcas:
        if hca.sys_image_guid and hca.port_label:
            found.setdefault((hca.sys_image_guid, hca.port_label), []).append(hca)
    return [tuple(group) for group in found.values() if len(group) > 1]


def prefix_surprises(hcas: Sequence[Hca], value: str | None) -> dict[str, list[str]]:
    """Per entry that is a whole device name, the further devices which it selects because it is a prefix."""
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


def switched_off_by(env: Mapping[str, str], version: Version | None = None) -> str | None:
    """The variable that keeps NCCL from its HCAs altogether, or None (src/plugin/net.cc, net_ib/init.cc)."""
    if param(env.get("NCCL_IB_DISABLE"), 0, version) != 0:
        return "NCCL_IB_DISABLE"
    return "NCCL_NET" if env.get("NCCL_NET", "").lower() == "socket" else None


_LINK_LOCAL = 0xFE80 << 48  # the first 64 bits. linkLocalGid: not the whole of fe80::/10
_MAPPED = (0xFFFF, 0xFF0E << 80 | 0xFFFF)  # the first 96 bits: ::ffff:0:0 and ff0e::ffff:0:0


class _Bits(NamedTuple):
    """The 128 bits of a GID, as NCCL looks at them; 0 where the text is no address."""

    number: int
    is_v4: bool  # getGidAddrFamily: mapped addresses, and the groups of mapped multicast
    is_valid: bool


@lru_cache(maxsize=CACHED)
def _bits(gid: str) -> _Bits:
    try:
        number = bits_of(gid) if ":" in gid else 0
    except ValueError:
        number = 0
    return _Bits(number, number >> 32 in _MAPPED, number != 0 and number >> 64 != _LINK_LOCAL)


def gid_ipv4(gid: Gid) -> str | None:
    """The IPv4 address of an IPv4-mapped GID, ``::ffff:10.0.0.1``."""
    number = _bits(gid.gid).number
    return dotted(number & 0xFFFFFFFF) if number >> 32 == _MAPPED[0] else None


_ROCE = {"RoCE v2": 2, "IB/RoCE v1": 1, "RoCE v1": 1}


def gid_version(gid: Gid | None) -> int | None:
    """RoCE version as ncclIbRoceGetVersionNum reads it: 1, 2, or None."""
    return _ROCE.get(gid.type or "") if gid else None


def is_link_local(gid: Gid) -> bool:
    return gid.gid[:4].lower() == "fe80"


def routable_gids(port: HcaPort) -> list[Gid]:
    """The rows that NCCL 2.21 and newer look for: IPv4-mapped, RoCE v2."""
    return [gid for gid in port.gids if gid_version(gid) == 2 and _bits(gid.gid).number >> 32 == _MAPPED[0]]


def choose_gid_index(port: HcaPort, env: Mapping[str, str], version: Version | None = None) -> int:
    """GID index that NCCL would use on a RoCE port (ncclIbGetGidIndex, ncclUpdateGidIndex).

    A forced NCCL_IB_GID_INDEX is taken blindly. Else index 0, replaced along the table by
    candidates of the wanted family (IPv4-mapped unless NCCL_IB_ADDR_FAMILY=AF_INET6), inside
    NCCL_IB_ADDR_RANGE, of the wanted RoCE version. An empty row counts as IPv6.
    """
    if port.link_layer != "Ethernet":
        return _flid_index(port, env, version)
    forced = param(env.get("NCCL_IB_GID_INDEX"), -1, version)
    if forced >= 0:
        return forced
    if not at_least(version, GID_SCAN_SINCE):
        return 0
    v4 = env.get("NCCL_IB_ADDR_FAMILY", "AF_INET") != "AF_INET6"
    wanted_version = param(env.get("NCCL_IB_ROCE_VERSION_NUM"), 2, version)
    wanted_range = _range(env.get("NCCL_IB_ADDR_RANGE", ""), v4)
    table = {gid.index: (_ROCE.get(gid.type or ""), _bits(gid.gid)) for gid in port.gids}
    empty_row = None, _bits("")
    filled = sorted(index for index in table if index > 0)
    # Tables are long, and empty rows alike: only the first may be a candidate, and among IPv4 none is.
    if not v4:
        empty = next(row for row in count(1) if row not in table)
        if empty < max([port.gid_table_len or 0, *filled]):
            insort(filled, empty)
    index, (version_there, bits) = 0, table.get(0, empty_row)
    for candidate in filled:
        its_version, its_bits = table.get(candidate, empty_row)
        if its_bits.is_v4 != v4 or (wanted_range and not _in_range(its_bits.number, wanted_range)):
            continue
        newer = its_version == wanted_version and (version_there != wanted_version or not bits.is_valid)
        if bits.is_v4 != v4 or (its_bits.is_valid and newer):
            index, version_there, bits = candidate, its_version, its_bits
    return index


def _flid_index(port: HcaPort, env: Mapping[str, str], version: Version | None) -> int:
    """The index on InfiniBand: that of a GID with a routable FLID (bytes 4 and 5), else 0."""
    index = param(env.get("NCCL_IB_ROUTABLE_FLID_GID_INDEX"), 1, version)
    gid = next((gid for gid in port.gids if gid.index == index), None)
    number = _bits(gid.gid).number if gid else 0
    routable = at_least(version, FLID_SINCE) and number >> 80 & 0xFFFF
    return index if routable else 0


GID_CHECKED_SINCE = (2, 31, 2)  # seen in the libraries of 2.31.2 and 2.30.7


def gives_up_over_index(port: HcaPort, index: int, version: Version | None) -> bool:
    """Whether this index, beyond the port's table, ends NCCL's whole InfiniBand transport: TCP is next."""
    beyond = port.gid_table_len is not None and index >= port.gid_table_len
    return beyond and port.is_roce and at_least(version, GID_CHECKED_SINCE)


@dataclass(frozen=True, slots=True)
class GidChoice:
    """The row of a port's GID table that NCCL takes, and why."""

    hca: Hca
    port: HcaPort
    index: int
    gid: Gid | None  # None where that row is empty
    good: tuple[Gid, ...]  # rows that a job wants
    setting: Setting | None  # NCCL_IB_GID_INDEX, if it is set
    forced: bool  # whether it names an index
    too_old: bool  # this NCCL takes row 0 without a look at the others
    gives_up: bool = False  # as of gives_up_over_index

    @property
    def is_link_local(self) -> bool:
        return self.gid is not None and is_link_local(self.gid)


@by_identity
def choose_gids(hcas: Sequence[Hca], env: Environment, version: Version | None) -> list[GidChoice]:
    """NCCL's choice on each RoCE port that it would use."""
    plain = values(env)
    forced = param(plain.get("NCCL_IB_GID_INDEX"), -1, version) >= 0
    return [
        GidChoice(
            hca=hca,
            port=port,
            index=(index := choose_gid_index(port, plain, version)),
            gid=next((gid for gid in port.gids if gid.index == index), None),
            good=tuple(routable_gids(port)),
            setting=env.get("NCCL_IB_GID_INDEX"),
            forced=forced,
            too_old=not forced and not at_least(version, GID_SCAN_SINCE),
            gives_up=gives_up_over_index(port, index, version),
        )
        for hca, port in selected_ports(hcas, plain.get("NCCL_IB_HCA"), version)
        if port.is_roce
    ]


def _in_range(bits: int, allowed: IPNetwork) -> bool:
    address = (
        ipaddress.IPv4Address(bits & 0xFFFFFFFF) if allowed.version == 4 else ipaddress.IPv6Address(bits)
    )
    return address in allowed


@lru_cache(maxsize=256)
def _range(text: str, v4: bool) -> IPNetwork | None:
    """NCCL_IB_ADDR_RANGE; None where it is ignored: no ``/n``, another family, or too long
    (envIbAddrRange)."""
    address, slash, mask = text.partition("/")
    number = re.match(r"\s*\+?(\d{1,4})", mask)  # strtol: no digits are 0
    try:
        if not slash:
            return None
        if v4:
            return ipaddress.IPv4Network((address, int(number[1]) if number else 0), strict=False)
        return ipaddress.IPv6Network((address, int(number[1]) if number else 0), strict=False)
    except ValueError:
        return None
