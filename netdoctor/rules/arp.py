"""What Linux answers where several of its interfaces are in one IPv4 subnet, as pure functions over facts.

Written after Linux 6.6: net/ipv4/arp.c (arp_process, arp_ignore, arp_filter), net/ipv4/fib_frontend.c
(__fib_validate_source), Documentation/networking/ip-sysctl.rst. tests/oracle asks the kernel itself.
"""

from collections.abc import Iterable, Iterator

from netdoctor.facts.net import SharedAddress
from netdoctor.rules.addresses import network_of

STRICT = 1
# From here on arp_ignore keeps an interface silent about addresses of others; 3 goes by the scope, 4 to 7 are
# reserved and do nothing. 8 is for all addresses.
OWN_ONLY, NOTHING = (1, 2), 8


def together(one: SharedAddress, rows: Iterable[SharedAddress]) -> Iterator[SharedAddress]:
    """Those of `rows` whose subnet overlaps with that of `one`, itself included."""
    here = network_of(one.address, one.prefix_len)
    for row in rows:
        subnet = network_of(row.address, row.prefix_len)
        if here is not None and subnet is not None and here.overlaps(subnet):
            yield row


def is_known(row: SharedAddress) -> bool:
    """Whether the node said all that the kernel goes by."""
    return None not in (row.dev, row.rp_filter, row.arp_ignore, row.arp_announce, row.arp_filter)


def lets_in(one: SharedAddress, at: SharedAddress) -> bool:
    """Whether a neighbour's packet to the address `one` passes the reverse path filter of the interface of
    `at`. The way back is looked up from that address: rules (``ip rule from``) count."""
    return at.rp_filter != STRICT or one.dev == at.ifname


def answers(one: SharedAddress, at: SharedAddress) -> bool:
    """Whether the interface of `at` answers when a neighbour asks who has the address `one`."""
    is_its_own = one.ifname == at.ifname
    if at.arp_ignore == NOTHING or (at.arp_ignore in OWN_ONLY and not is_its_own):
        return False
    if at.arp_filter and one.dev != at.ifname:
        return False
    return lets_in(one, at)


def answering(one: SharedAddress, rows: Iterable[SharedAddress]) -> tuple[str, ...]:
    """The interfaces that answer for the address `one`, in the order of `rows`."""
    return tuple(dict.fromkeys(row.ifname for row in together(one, rows) if answers(one, row)))
