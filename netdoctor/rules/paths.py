"""Where peers dial each node: from NCCL's choice, the login and the networks that nodes share."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.net import AddressRow, NetFacts, ResolveFacts
from netdoctor.facts.paths import BOOTSTRAP, GLOO, MAIN, RAIL, SOCKET, STORE, Path, Paths, Use
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import Job, NcclAnswer, SoftwareFacts
from netdoctor.memo import by_members
from netdoctor.rules import gloo
from netdoctor.rules.addresses import (
    IPNetwork,
    is_usable,
    network,
    networks_by_reach,
    parse,
    repeated_addresses,
    rows_by_address,
    usable_rows,
)
from netdoctor.rules.nccl import candidates, choose, corrected, is_ifname_set
from netdoctor.rules.nccl_ib import choose_gids, gid_ipv4, selected_ports, switched_off_by
from netdoctor.rules.variables import Environment, goes_by_subnet, values
from netdoctor.rules.versions import Version, nccl_version, parse_version


def data_addresses(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Mapping[str, str]],
    ssh_addresses: Mapping[str, str | None],
) -> dict[str, str]:
    """The address of each node that its peers should dial, by node id; nodes without any are left out.

    In order: what NCCL_SOCKET_IFNAME selects when it is set and selects a usable address (not one that
    stands alone where most nodes share a network with this one); the node's end of the SSH connection when it
    is one of its own addresses; NCCL's automatic choice when most nodes share its network; the first address
    in the network that most nodes share; the first global address.
    """
    repeated = repeated_addresses(nets)
    reach = networks_by_reach(nets)
    result: dict[str, str] = {}
    shared = {node for rows in reach.values() if 2 * len(rows) > len(nets) for node in rows}
    for node, net in nets.items():
        env = envs.get(node, {})
        local = {row.address: row for _, row, _ in usable_rows(net)}
        login, is_asked = ssh_addresses.get(node), is_ifname_set(env)
        # What NCCL would take by itself counts only where the login does not say.
        chosen = choose(net, env).row if is_asked or login not in local else None
        if is_asked and chosen and is_usable(chosen):
            alone = len(reach.get(network(chosen), {})) == 1 and node in shared
            if not alone or len(nets) == 1:
                result[node] = chosen.address
                continue
        if login in local:
            result[node] = local[login].address
            continue
        if (
            chosen
            and chosen.address in local
            and chosen.address not in repeated
            and 2 * len(reach.get(network(chosen), {})) > len(nets)
        ):
            result[node] = chosen.address
            continue
        rows = [row for row in local.values() if row.address not in repeated] or list(local.values())
        if rows:
            # max() keeps the first of equals, which is getifaddrs order.
            result[node] = max(rows, key=lambda row: len(reach.get(network(row), {}))).address
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of one node; None where it was not asked or did not say."""

    net: NetFacts
    env: Environment
    resolve: ResolveFacts | None = None
    gpu: GpuFacts | None = None
    rdma: RdmaFacts | None = None
    software: SoftwareFacts | None = None
    answer: NcclAnswer | None = None

    @property
    def version(self) -> Version | None:
        """Release of NCCL: what it said itself counts."""
        return release(self.software, self.answer)


def release(software: SoftwareFacts | None, answer: NcclAnswer | None) -> Version | None:
    return parse_version(answer.version) if answer else nccl_version(software)


def paths(nodes: Mapping[str, Known], job: Job) -> Paths:
    """The paths of a job whose `data_addresses` are known: the main one, and what the job dials beside it."""
    left_out: dict[str, str] = {}
    uses = [*_store(nodes, job, left_out)]
    for node, one in nodes.items():
        uses += _gloo(node, one, job, left_out)
        uses += _nccl(node, one, job, left_out)
    return Paths(
        paths=tuple(_grouped(nodes, uses, job.data_addresses)),
        rails=tuple(_rails(nodes, uses, left_out)),
        uses=tuple(uses),
        left_out={
            what: why for what, why in left_out.items() if not any(u.purpose.startswith(what) for u in uses)
        },
    )


def _store(nodes: Mapping[str, Known], job: Job, left_out: dict[str, str]) -> Iterator[Use]:
    """Where MASTER_ADDR points, by what the nodes take it for; rank 0's data address without one."""
    given, master = job.master_addr, job.master_node
    if not given:
        if master in job.data_addresses:
            yield Use(node=master, address=job.data_addresses[master], purpose=STORE, rule="first node")
        return
    found = {given: None} if parse(given) else {}
    for one in () if found else nodes.values():
        lookups = (*one.resolve.peers, one.resolve.own) if one.resolve else ()
        found |= dict.fromkeys(a for look in lookups if look.name == given for a in look.addresses[:1])
    left_out[STORE] = f"MASTER_ADDR={given} is not an address of rank 0's node only"
    for address in found:
        # Of another machine than rank 0's, of several, or nobody's: what rdzv.addr judges.
        if [node for node, one in nodes.items() if _row(one.net, address)] == [master]:
            yield Use(node=str(master), address=address, purpose=STORE, rule="MASTER_ADDR")
    if not found:
        left_out[STORE] = f"no node could look up MASTER_ADDR={given}"


def _gloo(node: str, one: Known, job: Job, left_out: dict[str, str]) -> Iterator[Use]:
    if job.backend == "nccl":
        left_out[GLOO] = "the job uses nccl"
        return
    devices = gloo.choose(one.net, one.resolve, values(one.env))
    if not devices:
        left_out[GLOO] = "nodes did not look up their own names"
    for device in devices:
        if device.row is not None:
            yield Use(node=node, address=device.row.address, purpose=GLOO, rule=device.rule)


def _nccl(node: str, one: Known, job: Job, left_out: dict[str, str]) -> Iterator[Use]:
    reason = _without_nccl(one, job)
    if reason:
        left_out[BOOTSTRAP] = left_out[SOCKET] = reason
        return
    env, version = values(one.env), one.version
    predicted = choose(one.net, env, version, one.resolve)
    chosen = corrected(predicted, one.answer, one.net, env)
    if chosen.row is not None:
        yield Use(node=node, address=chosen.row.address, purpose=BOOTSTRAP, rule=chosen.rule)
    plugin = env.get("NCCL_NET", "")
    hcas = one.rdma.hcas if one.rdma is not None and switched_off_by(env, version) is None else ()
    ports = selected_ports(hcas, env.get("NCCL_IB_HCA"), version)
    gids = choose_gids(hcas, one.env, version)
    if ports and not any(choice.gives_up for choice in gids):
        left_out[SOCKET] = f"data goes over HCAs ({ports[0][1].name} and the like)"
    elif plugin and plugin.lower() != "socket":
        left_out[SOCKET] = f"NCCL_NET={plugin} carries the data"
    else:
        rows, rule = candidates(one.net, env, version, resolve=one.resolve)
        for i, row in enumerate(rows):
            yield Use(node=node, address=row.address, purpose=f"{SOCKET} {i}", rule=rule)
    for choice in gids:
        address = gid_ipv4(choice.gid) if choice.gid else None
        if address is not None:
            yield Use(node=node, address=address, purpose=f"{RAIL} {choice.port.name}", rule="GID table")


def _without_nccl(one: Known, job: Job) -> str:
    """Why no rank of this node would use NCCL; empty where one may."""
    if job.backend == "nccl":
        return ""
    if job.backend:
        return f"the job uses {job.backend}"
    if one.gpu is None:
        return "GPUs were not read"
    has_gpu = one.gpu.devices or one.gpu.pci or one.gpu.device_nodes
    return "" if has_gpu else "no GPU there"


def _row(net: NetFacts, address: str) -> AddressRow | None:
    return rows_by_address(net).get(parse(address))


def _grouped(nodes: Mapping[str, Known], uses: Iterable[Use], main: Mapping[str, str]) -> Iterator[Path]:
    """The main path, then addresses beside it by the network that nodes share, or else by their order on
    each node. What peers cannot dial, or would be themselves, is on no path."""
    repeated = repeated_addresses({node: one.net for node, one in nodes.items()})
    rows: dict[tuple[str, str], AddressRow] = {}
    users: dict[tuple[str, str], dict[str, None]] = {}
    for use in uses:
        if use.purpose.startswith(RAIL) or use.address == main.get(use.node):
            continue
        row = _row(nodes[use.node].net, use.address)
        if row is None or row.address == main.get(use.node):
            continue
        if is_usable(row) and row.address not in repeated:
            rows.setdefault((use.node, row.address), row)
            user = {GLOO: "gloo", STORE: "MASTER_ADDR"}.get(use.purpose, "NCCL")
            users.setdefault((use.node, row.address), {})[user] = None
    shared = Counter(net for net, _ in dict.fromkeys((network(row), node) for (node, _), row in rows.items()))
    groups: dict[Hashable, dict[str, AddressRow]] = {}
    met: Counter[Hashable] = Counter()
    for (node, _), row in rows.items():
        net = network(row) if shared[network(row)] > 1 else None
        groups.setdefault((net, met[node, net]), {})[node] = row
        met[node, net] += 1
    reach = _reach(nodes)
    if main:
        dialled = {n: row for n, address in main.items() if (row := _row(nodes[n].net, address))}
        yield replace(_path(MAIN, reach, dialled), addresses=dict(main))
    for number, group in enumerate(groups.values(), 2):
        programs = dict.fromkeys(user for n, row in group.items() for user in users[n, row.address])
        yield replace(_path(str(number), reach, group), users=tuple(programs))


def _rails(nodes: Mapping[str, Known], uses: Iterable[Use], left_out: dict[str, str]) -> Iterator[Path]:
    """Ports of one name on different nodes, NIC i of every node; a name that one node alone has is that of
    most at its place. Ports of one network where NCCL goes by that."""
    ports: dict[str, dict[str, AddressRow]] = {}
    for use in uses:
        row = _row(nodes[use.node].net, use.address) if use.purpose.startswith(RAIL) else None
        if row is not None:
            ports.setdefault(use.node, {})[use.purpose] = row
    if ports and all(goes_by_subnet(values(nodes[node].env), nodes[node].version) for node in ports):
        ports = {
            node: {f"{RAIL} {network(row)}": row for row in node_ports.values()}
            for node, node_ports in ports.items()
        }
    common = Counter(name for node_ports in ports.values() for name in node_ports)
    by_position: dict[int, Counter[str]] = {}
    for node_ports in ports.values():
        for position, name in enumerate(node_ports):
            by_position.setdefault(position, Counter())[name] += 1
    rails: dict[str, dict[str, AddressRow]] = {}
    most_common = {at: min(names, key=lambda name: (-names[name], name)) for at, names in by_position.items()}
    for node, node_ports in ports.items():
        for position, (name, row) in enumerate(node_ports.items()):
            known = common[name] > 1 or most_common[position] in node_ports
            rails.setdefault(name if known else most_common[position], {})[node] = row
    # A packet that is meant for one of two interfaces in a network may go over the other, unless it is RDMA.
    mixed = [
        n
        for n, node_ports in ports.items()
        if len({network(row) for row in node_ports.values()}) < len(node_ports)
    ]
    if mixed:
        left_out["between rails"] = f"rails of {mixed[0]} share a network: only RDMA itself keeps them apart"
    reach = _reach(nodes) if rails else {}
    for name, rows in rails.items():
        rail = _path(name, reach, rows)
        yield replace(rail, sources=rail.addresses, users=(name,), tried=not mixed)


# By network and node, its first address there that peers could dial, behind its place among the node's own.
Reach = Mapping[IPNetwork, Mapping[str, tuple[int, AddressRow]]]


@by_members
def _reach(nodes: Mapping[str, Known]) -> Reach:
    found: dict[IPNetwork, dict[str, tuple[int, AddressRow]]] = {}
    for node, one in nodes.items():
        for position, row, where in usable_rows(one.net):
            found.setdefault(where, {}).setdefault(node, (position, row))
    return found


def _path(name: str, reach: Reach, rows: Mapping[str, AddressRow]) -> Path:
    nets = {network(row): None for row in rows.values()}
    inside: dict[str, tuple[int, AddressRow]] = {}
    for net in nets:
        for node, placed in reach.get(net, {}).items():
            if node not in inside or placed[0] < inside[node][0]:
                inside[node] = placed
    addresses = {node: row.address for node, row in rows.items()}
    return Path(
        id=name,
        addresses=addresses,
        ifnames={node: row.ifname for node, row in rows.items()},
        sources={node: row.address for node, (_, row) in inside.items()} | addresses,
        network=str(next(iter(nets))) if len(nets) == 1 else "",
    )
