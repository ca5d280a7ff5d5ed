"""Several interfaces of a node in one subnet, and which of them its kernel answers on."""

from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.text import is_ifname, listing
from netdoctor.checks.net._sysctl import set_to
from netdoctor.facts.net import NetFacts, SharedAddress
from netdoctor.facts.paths import RAIL, Paths
from netdoctor.model import DERIVED, HERE, LIKELY, Cause, Evidence, Finding, Fix, at, run, seen, skip, unknown
from netdoctor.rules import arp


def settings(row: SharedAddress) -> Evidence:
    text = f"rp_filter={row.rp_filter} arp_ignore={row.arp_ignore} arp_announce={row.arp_announce}"
    text += f", sends from {row.address} over {row.dev}"
    return seen(f"/proc/sys/net/ipv4/conf/{row.ifname}", text, "file")


def each_for_itself(near: Sequence[SharedAddress]) -> tuple[Fix, ...]:
    """Sysctls of each interface; those of `all` only where an interface's own does not count beside them."""
    text = "let each interface answer for its own addresses only"
    values: dict[str, tuple[int, int | None]] = {}
    for row in near:
        if not is_ifname(row.ifname):
            return (run(f"{text}: rp_filter=2, arp_ignore=1 and arp_announce=2 on all of them", root=True),)
        for key, value, now in (
            ("rp_filter", 2, row.rp_filter if row.rp_filter == arp.STRICT else 2),
            ("arp_filter", 0, row.arp_filter),
            ("arp_ignore", 1, row.arp_ignore),
            ("arp_announce", 2, row.arp_announce),
        ):
            scopes = ("all", row.ifname) if (now or 0) > value else (row.ifname,) if now != value else ()
            for scope in scopes:
                values[f"net/ipv4/conf/{scope}/{key}"] = value, now
    return set_to(text, values, "subnet")


SILENT = Cause("subnet-no-answer", "No interface of {nodes} answers ARP for an address of the job")
OTHER = Cause(
    "rail-answered-elsewhere",
    "on {nodes} RDMA traffic goes to the wrong NIC of a subnet: the right NIC does not answer ARP",
)
SEVERAL = Cause(
    "rail-answered-twice",
    "{nodes} answer{s} ARP for a RoCE NIC on other interfaces of its subnet, too: RDMA may go to "
    "the wrong NIC",
    LIKELY,
)


@check(
    after=["ssh.login", "net.interface"],
    explains=["net.ports", "net.path-mtu", "net.loss", "rdzv.reach", "bw.*"],
    required=False,
    source="https://www.kernel.org/doc/Documentation/networking/ip-sysctl.rst",
)
def net_same_subnet(nodes: Mapping[str, NetFacts], paths: Paths) -> Iterator[Finding]:
    """If a node has several interfaces in one subnet, each answers for its own addresses only.

    Looks at:
        Addresses of the job in a subnet where the node has a second interface: rp_filter, arp_ignore,
        arp_announce and arp_filter of these interfaces, and the kernel's own answer from which of them it
        sends, including rules of policy routing.

    Matters because:
        Linux answers ARP for any of its addresses on any interface. TCP works anyway, over the interface
        that answered. RDMA does not: a RoCE NIC ignores packets for another NIC. With rp_filter=1 an
        interface drops packets that it would not answer itself, and does not answer ARP for them.

    Fix:
        Put each NIC into its own subnet; or set rp_filter=2, arp_ignore=1 and arp_announce=2 on all of
        them, as for multi-rail RoCE.
    """
    if not any(net.shared for net in nodes.values()):
        yield skip("no node has several interfaces in one subnet")
        return
    used = {(use.node, use.address) for use in paths.uses}
    rails = {(use.node, use.address) for use in paths.uses if use.purpose.startswith(RAIL)}
    for node, net in nodes.items():
        for one in net.shared:
            near = tuple(arp.together(one, net.shared)) if (node, one.address) in used else ()
            if len(near) > 1:
                yield from at(node, _judged(one, near, is_rail=(node, one.address) in rails))


def _judged(one: SharedAddress, near: Sequence[SharedAddress], *, is_rail: bool) -> Iterator[Finding]:
    names = listing(dict.fromkeys(row.ifname for row in near))
    answering = arp.answering(one, near)
    if not all(map(arp.is_known, near)):
        if is_rail:
            yield unknown(HERE, f"{names} are in one subnet; the kernel's settings there could not be read")
        return
    if not answering:
        cause, text = SILENT.fail, "no interface answers"
    elif is_rail and one.ifname not in answering:
        cause, text = OTHER.fail, f"only {listing(answering)} answers"
    elif is_rail and len(answering) > 1:
        cause, text = SEVERAL.warn, f"{listing(answering)} all answer"
    else:
        return
    yield cause(
        f"{one.ifname} ({one.address}), in one subnet with {names}: {text} ARP for it",
        observed=f"{text} ARP for {one.address}",
        expected=DERIVED(f"{one.ifname} alone"),
        seen=[settings(row) for row in near],
        fixes=each_for_itself(near),
    )
