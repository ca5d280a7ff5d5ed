"""Ports that the kernel gives to whoever asks for any: how many ranks need, and how many are left."""

from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.job import only_gloo, ranks_on
from netdoctor.checks._shared.majority import majority
from netdoctor.checks.net._sysctl import set_to
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Node
from netdoctor.facts.net import NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import DERIVED, LIKELY, PEERS, SUSPECTED, Cause, Evidence, Finding, Fix, look, seen
from netdoctor.rules.local_ports import pool

SHORT = Cause("local-ports-short", "{nodes} {has} fewer local ports than the ranks need")
FEW = Cause("local-ports-few", "{nodes} {has} far fewer local ports than most nodes", LIKELY)
EXHAUSTED = Cause("local-ports-taken", "{nodes} {has} too few free local ports", LIKELY)
# A rank has a port to itself to listen on, as bind() gives none that any socket has, and one to the store:
# all ranks dial the same address and port there. Measured: four ranks of gloo start with 8, not with 5.
STARTS = 2
# NCCL listens on one port for each channel (32 at the most for long, MAXCHANNELS), and on some four besides:
# its ring, its root, its proxy, RAS. connect() keeps to every other port while it can, and bind() to the rest
# [Linux net/ipv4/inet_hashtables.c, inet_connection_sock.c], so that listeners have half of the range.
NCCL = 2 * (32 + 4)
DEFAULT = "32768 60999"
# A warning where a node has fewer than these, and no more than one in so many of what most nodes have.
FEW_PORTS, FAR_FEWER = 256, 10
ROOM = "net/ipv4/ip_local_port_range"
WIDEN = "set the usual range, and allow it in the firewall"
AGAIN = "let new connections reuse ports in TIME_WAIT after a second"
CONNECTED = "ss -Htan | awk '{print $1, $5}' | sort | uniq -c | sort -rn | head"


@check(required=False, source="https://docs.kernel.org/networking/ip-sysctl.html#ip-variables")
def net_local_ports(
    nodes: Mapping[str, NetFacts], listed: Mapping[str, Node], gpus: Mapping[str, GpuFacts] | None, job: Job
) -> Iterator[Finding]:
    """The kernel has enough free ports for the ranks of each node.

    Looks at:
        net.ipv4.ip_local_port_range without ip_local_reserved_ports, and how many of these ports have a
        socket, TIME_WAIT included. The free ports are compared with two per rank (slots, GPUs, or one per
        node), which every backend needs to start, with the largest number of NCCL's listeners, and with
        most nodes.

    Matters because:
        Ranks listen on ports that the kernel picks, and connect to the store from others. If the range
        was narrowed for a firewall, or a program leaves thousands of connections behind, bind() ends with
        "Address already in use" and connect() with "Cannot assign requested address".

    Fix:
        Widen the range, on all nodes and in the firewall; or find out which program opens so many
        connections.
    """
    typical = majority({node: pool(net) for node, net in nodes.items()}).value or 0
    for node, net in nodes.items():
        gpu = (gpus or {}).get(node)
        ranks = ranks_on(listed[node], gpu) if node in listed else 1
        gloo = only_gloo(job, [gpu])
        needed = ranks * (STARTS if gloo else NCCL)
        has, in_use = pool(net), net.ports_taken or 0
        if has < needed:
            yield _short(node, net, has, ranks, needed)
        elif has < FEW_PORTS and has * FAR_FEWER <= typical:
            yield FEW.warn(
                f"the kernel can assign {has} local ports, on most nodes {typical}: data loaders, "
                "checkpoints and the shell need some, too",
                at=node,
                observed=f"{has} ports",
                expected=PEERS(f"{typical} ports"),
                seen=_range(net),
                fixes=_widened(net),
            )
        elif has - in_use < needed:
            yield (EXHAUSTED if has - in_use < STARTS * ranks else EXHAUSTED.but(confidence=SUSPECTED)).warn(
                f"{in_use} of the {has} local ports are in use"
                + (f", {net.time_wait} sockets are in TIME_WAIT" if net.time_wait else ""),
                at=node,
                observed=f"{has - in_use} ports left",
                expected=DERIVED(f"{needed} for {ranks} rank{'s' * (ranks > 1)}"),
                seen=seen("/proc/net/tcp", f"{in_use} local ports of the range", "file"),
                fixes=_freed(net),
            )


def _short(node: str, net: NetFacts, has: int, ranks: int, needed: int) -> Finding:
    stops, many = has < STARTS * ranks, f"{ranks} rank{'s' * (ranks > 1)}"
    need = f"at least {STARTS * ranks}" if stops else f"up to {needed}"
    low, high = net.ephemeral_ports
    fixes = look("see which file reserves so many", "grep -rns reserved_ports /etc/sysctl.conf /etc/sysctl.d")
    return (SHORT.fail if stops else SHORT.but(confidence=SUSPECTED).warn)(
        f"the kernel can assign {has} of the ports {low}-{high}; {many} may need {need}",
        at=node,
        observed=f"{has} ports",
        expected=DERIVED(f"{need}, for {many}"),
        seen=_range(net),
        fixes=fixes if high - low + 1 >= needed else _widened(net),
    )


def _range(net: NetFacts) -> list[Evidence]:
    low, high = net.ephemeral_ports
    files = {"ip_local_port_range": f"{low} {high}", "ip_local_reserved_ports": net.reserved_ports[:200]}
    return [seen(f"/proc/sys/net/ipv4/{name}", text, "file") for name, text in files.items() if text]


def _widened(net: NetFacts) -> Sequence[Fix]:
    low, high = net.ephemeral_ports
    return set_to(WIDEN, {ROOM: (DEFAULT, f"{low} {high}")}, "ports")


def _freed(net: NetFacts) -> list[Fix]:
    who = look("see which connections they are, and end or repair the program that opens them", CONNECTED)
    if net.tw_reuse == 1 or 2 * (net.time_wait or 0) < (net.ports_taken or 0):
        return [who]
    return [who, *set_to(AGAIN, {"net/ipv4/tcp_tw_reuse": (1, net.tw_reuse or 0)}, "ports")]
