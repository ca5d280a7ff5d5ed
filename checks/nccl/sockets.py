"""The interfaces that NCCL's socket transport would use together."""

from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.env import export
from netdoctor.checks._shared.paths import SocketRow, socket_rows
from netdoctor.checks._shared.text import is_ifname, listing
from netdoctor.checks.nccl._bootstrap import VARIABLE
from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.facts.paths import SOCKET, Paths
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import CLUSTER, DERIVED, Cause, Finding, Fix, in_job, ok, seen, skip
from netdoctor.rules.addresses import rows_of
from netdoctor.rules.nccl import candidates
from netdoctor.rules.variables import MAX_IFS, Environment, effective_env, values
from netdoctor.rules.versions import Version, nccl_version

SAME = Cause("nccl-sockets-same-address", "NCCL on {nodes} would also use an address that other nodes have")
OLDER = SAME.but(title="NCCL before 2.28.3 on {nodes} would also use an address that other nodes have")
LOCAL = Cause("nccl-sockets-link-local", "NCCL on {nodes} would also use link-local addresses")
UNEVEN = Cause("nccl-sockets-uneven", "NCCL on {nodes} would use a slow interface together with a fast one")


@check(explains=("bw.*",), source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/transport/net_socket.cc")
def nccl_sockets(
    paths: Paths,
    nets: Mapping[str, NetFacts],
    job: Job,
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
) -> Iterator[Finding]:
    """All peers reach every interface over which NCCL would send, and each is as fast as the others.

    Looks at:
        The interfaces that NCCL's socket transport would use by its own rules, if its data goes over
        sockets: up to 16 at once, each of them sent to every peer. Whether another node has the same
        address, whether it is link-local, the speed of the link, and whether it is an overlay although
        there is a direct network.

    Matters because:
        A bridge of a container engine has one address on every node: peers would connect to themselves,
        and the job hangs or ends with "Connection refused" as soon as a channel uses it. A slow
        management network next to a fast one gets an equal share of the data, and all ranks wait for it.

    Fix:
        Set NCCL_SOCKET_IFNAME to the right interfaces, with the printed value: it was tried with NCCL's
        rules.
    """
    versions = {node: nccl_version((softwares or {}).get(node)) for node in nets}
    settings = {node: effective_env((envs or {}).get(node), job) for node in nets}
    selected = socket_rows(paths, nets, settings, versions)
    if len(nets) < 2 or not selected:
        yield skip("one node" if len(nets) < 2 else paths.left_out.get(SOCKET, "NCCL finds no interface"))
        return
    bad = {
        node: {one.row.ifname: flaw for one in rows if (flaw := _flaw(one, rows))}
        for node, rows in selected.items()
    }
    good = {n: [one.row for one in rows if one.row.ifname not in bad[n]] for n, rows in selected.items()}
    if not any(bad.values()):
        names = dict.fromkeys(row.ifname for rows in good.values() for row in rows)
        yield ok(CLUSTER, f"NCCL sends over {listing(names)}")
        return
    fixes = _keep_ifnames(nets, settings, versions, good)
    for node, cause, what in ((node, *flaw) for node, flaws in bad.items() for flaw in flaws.values()):
        yield (cause.fail if cause is SAME else cause.warn)(
            f"NCCL would use {what}",
            at=node,
            observed=what,
            expected=DERIVED(listing(row.ifname for row in good[node]) or "interfaces that all peers reach"),
            seen=seen("ip address", listing(map(str, selected[node])), "command"),
            fixes=fixes,
        )


def _flaw(one: SocketRow, rows: Sequence[SocketRow]) -> tuple[Cause, str] | None:
    """What is wrong with an interface among those of its node."""
    if one.is_repeated:
        text = f"{one}, an address that other nodes also have: peers would connect to themselves"
        return OLDER if one.is_older else SAME, text
    if one.is_link_local:
        return LOCAL, f"{one}, which peers reach on the same link only"
    behind = one.behind(rows)
    return (UNEVEN, f"{one}, {behind}") if behind else None


def _keep_ifnames(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Environment],
    versions: Mapping[str, Version | None],
    selected: Mapping[str, Sequence[AddressRow]],
) -> tuple[Fix, ...]:
    """A value that leaves NCCL's socket transport exactly these interfaces of each node, where one does."""
    names = list(dict.fromkeys(row.ifname for rows in selected.values() for row in rows))
    others = {row.ifname for net in nets.values() for row in rows_of(net)} - set(names)
    if not all(selected.values()) or not all(map(is_ifname, (*names, *others))):
        return ()
    for value in (f"={','.join(names)}", f"^={','.join(sorted(others))}"):
        fits = (
            candidates(nets[node], {**values(envs[node]), VARIABLE: value}, versions[node])[0] == list(rows)
            for node, rows in selected.items()
        )
        if value.count(",") < MAX_IFS and all(fits):
            text = f"one value with which NCCL uses {listing(names)}"
            return (in_job(text, export(VARIABLE, value), persistent=True),)
    return ()
