"""What settles who answers for an address, where several interfaces of a node are in one subnet."""

from collections.abc import Sequence

from netdoctor.checks._sysctl import set_to
from netdoctor.checks._words import is_ifname
from netdoctor.facts.net import SharedAddress
from netdoctor.model import Evidence, Fix, run, seen
from netdoctor.rules import arp


def settings(row: SharedAddress) -> Evidence:
    told = f"rp_filter={row.rp_filter} arp_ignore={row.arp_ignore} arp_announce={row.arp_announce}"
    told += f", sends from {row.address} over {row.dev}"
    return seen(f"/proc/sys/net/ipv4/conf/{row.ifname}", told, "file")


def each_for_itself(near: Sequence[SharedAddress]) -> tuple[Fix, ...]:
    """Sysctls of each interface; those of `all` only where an interface's own does not count beside them."""
    text = "let each interface answer for its own addresses alone"
    wanted: dict[str, tuple[int, int | None]] = {}
    for row in near:
        if not is_ifname(row.ifname):
            return (run(f"{text}: rp_filter=2, arp_ignore=1 and arp_announce=2 on all of them", root=True),)
        for key, value, now in (
            ("rp_filter", 2, row.rp_filter if row.rp_filter == arp.STRICT else 2),
            ("arp_filter", 0, row.arp_filter),
            ("arp_ignore", 1, row.arp_ignore),
            ("arp_announce", 2, row.arp_announce),
        ):
            above = ("all",) if now is not None and now > value else ()
            for scope in (*above, row.ifname) if now != value else ():
                wanted[f"net/ipv4/conf/{scope}/{key}"] = value, now
    return set_to(text, wanted, "subnet")
