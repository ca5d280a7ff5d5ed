"""The GID that NCCL would use on each RoCE port."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.env import change
from netdoctor.checks._shared.rdma import NO_HCAS, has_any, port_evidence, ports_of, unread
from netdoctor.checks._shared.text import listing
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import Gid, Hca, RdmaFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import (
    DERIVED,
    HERE,
    PEERS,
    Cause,
    Finding,
    Fix,
    at,
    in_job,
    ok,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.addresses import rows_of
from netdoctor.rules.nccl_ib import (
    GidChoice,
    choose_gids,
    gid_ipv4,
    gid_version,
    is_link_local,
    routable_gids,
    switched_off_by,
)
from netdoctor.rules.variables import Setting, Source, effective_env, values
from netdoctor.rules.versions import nccl_version
from netdoctor.text import is_plain_name

OLD_NCCL = Cause(
    "gid-old-nccl",
    "NCCL on {nodes} is too old to find the right GID by itself",
    follows=("sw.torch", "sw.nccl"),
)
NO_IPV4 = Cause("gid-no-ipv4", "RoCE ports of {nodes} have no IPv4 address, so no routable GID")
NOT_FILLED = NO_IPV4.but(
    title="RoCE ports of {nodes} have no routable GID, though their interfaces have addresses"
)
WRONG_INDEX = Cause("gid-index-wrong", "the GID index that is set for NCCL does not fit {nodes}")
EXPECTED = "an IPv4-mapped RoCE v2 GID"
# Reloading it makes the RDMA devices anew, and their GID tables with them (rdma_roce_rescan_device in
# drivers/infiniband/core/roce_gid_mgmt.c), while mlx5_core keeps the Ethernet interfaces up.
RELOAD = run(
    "create the RDMA devices again, which fills their GID tables; Ethernet interfaces and sessions stay",
    "modprobe -r mlx5_ib; modprobe -a mlx5_ib ib_uverbs",
    root=True,
    risk="medium",
    loses="RDMA connections of programs there",
)
BY_ITSELF = Setting("NCCL_IB_GID_INDEX", "", "the job", Source.JOB)


@check(source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/transport/net_ib/connect.cc")
def rdma_gid(
    nodes: Mapping[str, RdmaFacts],
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    nets: Mapping[str, NetFacts] | None,
    hosts: Mapping[str, HostFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL uses a routable RoCE v2 GID on every RoCE port.

    Looks at:
        The GID table of each active RoCE port that NCCL_IB_HCA selects, NCCL_IB_GID_INDEX,
        NCCL_IB_ADDR_FAMILY, NCCL_IB_ADDR_RANGE and NCCL_IB_ROCE_VERSION_NUM, and the release of NCCL.
        Since 2.21 NCCL takes the first IPv4-mapped RoCE v2 GID, before that index 0.

    Matters because:
        Without such a GID NCCL silently takes index 0, a link-local RoCE v1 address that no router
        forwards. An index that is set is used unchecked, although tables differ between nodes. The job
        ends with "ibv_modify_qp failed" or "status=12".

    Fix:
        Give the interface of the port an IPv4 address, and with NCCL 2.21 or newer unset
        NCCL_IB_GID_INDEX.
    """
    if not has_any(nodes):
        yield skip(NO_HCAS)
        return
    silent = list(unread(nodes))
    roce = [port for _, _, port in ports_of(nodes) if port.is_roce]
    if not roce and not silent:
        yield skip("no RoCE port on any node; on InfiniBand the GID index does not matter")
        return
    yield from silent
    unreadable = {finding.target for finding in silent}
    chosen: dict[str, list[GidChoice]] = {}
    for node, facts in nodes.items():
        version = nccl_version((softwares or {}).get(node))
        env = effective_env((envs or {}).get(node), job, version)
        if off := switched_off_by(values(env), version):
            yield skip(f"{off} keeps NCCL from the HCAs, so it uses no GID", node)
        else:
            chosen[node] = choose_gids(facts.hcas, env, version)
    # Link-local GIDs work where all ports are in one flat Ethernet, so that is a risk where all are alike.
    nobody = not any(routable_gids(port) for port in roce)
    selected = [one for choices in chosen.values() for one in choices if one.gid]
    flat = all(one.is_link_local and (one.too_old or not one.good) for one in selected)
    for node, choices in chosen.items():
        if not choices and node not in unreadable:
            yield skip("no active RoCE port that NCCL would use", node)
        near = ((nets or {}).get(node), (hosts or {}).get(node))
        findings = [finding for one in choices for finding in _judge(one, flat, nobody, *near)]
        yield from at(node, findings)
        if choices and not findings:
            texts = [f"{one.port.name} index {one.index} ({_text(one.gid)})" for one in choices if one.gid]
            yield ok(node, f"GID {listing(texts)}", observed=listing(texts, 8))


def _judge(
    one: GidChoice, flat: bool, nobody: bool, net: NetFacts | None, host: HostFacts | None
) -> Iterator[Finding]:
    port, gid = one.port, one.gid
    if gid_version(gid) == 2 and not one.is_link_local:
        return
    table = port_evidence(one.hca, one.port, gids=True)
    silent = [row for row in port.gids if not row.type and not is_link_local(row)]
    if not port.gids:
        yield unknown(HERE, f"the GID table of {port.name} is empty or cannot be read", evidence=(table,))
    elif gid is None:
        where = f"points at an empty row of the GID table of {port.name}"
        if one.gives_up:
            where = f"is beyond the GID table of {port.name}: NCCL then uses no HCA at all, but TCP"
        yield WRONG_INDEX.fail(
            f"{_setting(one) or 'NCCL'} {where}",
            observed=f"index {one.index} is empty",
            expected=EXPECTED,
            seen=table,
            fixes=change(one.setting or BY_ITSELF),
        )
    elif gid in silent or (silent and not one.good and gid_version(gid) != 2):
        row = gid if gid in silent else silent[0]
        yield unknown(HERE, f"the RoCE version of GID {row.index} of {port.name} is unreadable")
    elif one.is_link_local and not one.good:
        yield _no_ipv4(one, nobody, net, host)
    elif one.is_link_local and one.too_old:
        good = one.good[0]
        summary = f"NCCL before 2.21 uses GID 0 of {port.name}, a link-local one"
        yield (OLD_NCCL.warn if flat else OLD_NCCL.fail)(
            f"{summary}; index {good.index} is {_text(good)}",
            observed="index 0",
            expected=DERIVED(f"index {good.index}: {_text(good)}"),
            seen=(table, seen("libnccl.so.2", "older than 2.21", "file")),
            fixes=in_job(
                "set the index, if it is the same on every node, or use a newer NCCL",
                f"export NCCL_IB_GID_INDEX={good.index}",
            ),
        )
    elif one.good and (one.is_link_local or (one.forced and gid_version(gid) == 1)):
        good = one.good[0]
        selects = f"{_setting(one)} selects" if one.setting else "NCCL's rules select"
        yield WRONG_INDEX.fail(
            f"{selects} {_text(gid)} on {port.name}, while index {good.index} is {_text(good)}",
            observed=f"index {one.index}: {_text(gid)}",
            expected=DERIVED(f"index {good.index}: {_text(good)}"),
            seen=table,
            fixes=change(one.setting or BY_ITSELF),
        )


def _setting(one: GidChoice) -> str:
    return f"NCCL_IB_GID_INDEX={one.index} ({one.setting.origin})" if one.setting else ""


def _text(gid: Gid) -> str:
    return f"{gid_ipv4(gid) or gid.gid!s}, {gid.type or 'RoCE version unknown'}"


def _no_ipv4(one: GidChoice, nobody: bool, net: NetFacts | None, host: HostFacts | None) -> Finding:
    names = [gid.netdev for gid in one.port.gids if gid.netdev] + list(one.hca.netdevs)
    netdev = next(filter(is_plain_name, names), None)
    rows = rows_of(net) if net else []
    addresses = [row.address for row in rows if row.ifname == netdev and ":" not in row.address]
    if addresses:
        cause, has = NOT_FILLED, f", though its interface {netdev} has {addresses[0]}"
        fixes = fill_gids(one.hca, netdev or "", net, host)
    else:
        behind = f"its interface {netdev}" if netdev else "the interface behind it"
        cause, has = NO_IPV4, f": {behind} has no IPv4 address" if net and netdev else ""
        fixes = (run(f"give {behind} an address of the RoCE network in the network configuration"),)
    return (cause.warn if nobody else cause.fail)(
        f"{one.port.name} has no IPv4 RoCE v2 GID{has}",
        observed="only link-local GIDs",
        expected=EXPECTED if nobody else PEERS(EXPECTED),
        seen=port_evidence(one.hca, one.port, gids=True),
        fixes=fixes,
    )


def carries(netdev: str, net: NetFacts | None, host: HostFacts | None) -> str:
    """Return what is lost with an interface: session, default route; "perhaps" where it is not known."""
    if net is None or host is None or not host.ssh_server_address:
        return "maybe this session and the default route"
    local = {row.address for row in rows_of(net) if row.ifname == netdev}
    parts = ["this session"] if host.ssh_server_address in local else []
    return " and ".join([*parts, *(["the default route"] if netdev in net.default_devs else [])])


def fill_gids(hca: Hca, netdev: str, net: NetFacts | None, host: HostFacts | None) -> tuple[Fix, ...]:
    """Have the driver fill the GID table of a port whose interface has an address already."""
    if hca.name.startswith("mlx5_"):
        return (RELOAD,)
    # Link down takes the routes along, IPv4 addresses stay. A unit of its own puts them back, and goes on
    # where the session hangs meanwhile.
    steps = (
        f"ip -4 route save table all dev {netdev} > /run/{netdev}.routes; ip link set dev {netdev} down; "
        f"ip link set dev {netdev} up; sleep 3; ip route restore < /run/{netdev}.routes"
    )
    lost = carries(netdev, net, host)
    return (
        run(
            "switch the interface off and on, so that the GID table is filled again; its routes are restored",
            f'systemd-run --collect --wait sh -c "{steps}"',
            root=True,
            risk="high" if lost else "medium",
            loses=f"for some seconds {lost or 'its traffic'}, permanently IPv6 addresses set by hand",
        ),
    )
