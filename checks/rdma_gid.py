"""The GID that NCCL would use on each RoCE port."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._env import change
from netdoctor.checks._rdma import NO_HCAS, has_any, is_plain_name, port_evidence, ports_of
from netdoctor.checks._words import listing
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import Gid, Hca, HcaPort, RdmaFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from netdoctor.rules.addresses import rows_of
from netdoctor.rules.nccl_ib import GID_SCAN_SINCE, choose_gid_index, gid_ipv4, gid_version, selected_ports
from netdoctor.rules.variables import Environment, Setting, Source, effective_env, param, values
from netdoctor.rules.versions import at_least, nccl_version


@check(
    source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/transport/net_ib/connect.cc",
)
def rdma_gid(
    nodes: Mapping[str, RdmaFacts],
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    nets: Mapping[str, NetFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL uses a routable RoCE v2 GID on every RoCE port.

    Looks at:
        The GID table of each active RoCE port that NCCL_IB_HCA selects, NCCL_IB_GID_INDEX,
        NCCL_IB_ADDR_FAMILY, NCCL_IB_ADDR_RANGE and NCCL_IB_ROCE_VERSION_NUM, and the release of
        NCCL: since 2.21 it takes the first IPv4-mapped RoCE v2 GID, before it took index 0.

    Matters because:
        Without such a GID NCCL takes index 0 without a word, a link-local RoCE v1 address that no
        router passes on; a forced index is used blindly, though tables differ between nodes. The
        job ends with "ibv_modify_qp failed" or "status=12".

    Fix:
        Give the interface behind the port an IPv4 address, and unset NCCL_IB_GID_INDEX with NCCL
        2.21 and newer.
    """
    if not has_any(nodes):
        yield skip(NO_HCAS)
        return
    roce = {
        node: [(hca, port) for _, hca, port in ports_of({node: facts}) if port.is_roce]
        for node, facts in nodes.items()
    }
    if not any(roce.values()):
        yield skip("no RoCE port on any node; on InfiniBand the GID index does not matter")
        return
    versions: dict[tuple[str, str], int | None] = {}
    link_local: list[tuple[str, Hca, HcaPort]] = []
    old_default: list[tuple[str, Hca, HcaPort]] = []
    judged: set[str] = set()
    reported: set[str] = set()
    for node, facts in nodes.items():
        tagged = effective_env((envs or {}).get(node), job)
        env = values(tagged)
        version = nccl_version((softwares or {}).get(node))
        forced = param(env.get("NCCL_IB_GID_INDEX"), -1)
        for hca, port in selected_ports(facts.hcas, env.get("NCCL_IB_HCA")):
            if not port.is_roce:
                continue
            judged.add(node)
            if not port.gids:
                reported.add(node)
                yield unknown(
                    node,
                    f"the GID table of {port.name} is empty or cannot be read",
                    evidence=(port_evidence(node, hca, port, gids=True),),
                )
                continue
            index = choose_gid_index(port, env, version)
            gid = next((g for g in port.gids if g.index == index), None)
            if gid is None:
                reported.add(node)
                yield _empty(node, hca, port, index, tagged)
                continue
            versions[node, port.name] = gid_version(gid)
            if gid.type is None and gid_ipv4(gid) is not None:
                reported.add(node)
                yield unknown(node, f"the RoCE version of GID {index} of {port.name} is unreadable")
            elif _is_link_local(gid):
                reported.add(node)
                if forced < 0 and not at_least(version, GID_SCAN_SINCE) and _good(port):
                    old_default.append((node, hca, port))
                elif _good(port):
                    yield _wrong_index(node, hca, port, index, _good(port)[0], tagged)
                else:
                    link_local.append((node, hca, port))
            elif forced >= 0 and gid_version(gid) == 1 and _good(port):
                reported.add(node)
                yield _wrong_index(node, hca, port, index, _good(port)[0], tagged)
    for node in nodes:
        if node not in judged:
            yield skip("no active RoCE port that NCCL would use", node)
    # Link-local GIDs work where all ports are in one flat Ethernet, so that is a risk where all are alike.
    flat = len(link_local) + len(old_default) == len(versions)
    for node, hca, port in old_default:
        yield _old_default(node, hca, port, _good(port)[0], flat)
    nobody = not any(_good(port) for ports in roce.values() for _, port in ports)
    for node, hca, port in link_local:
        yield _no_ipv4(node, hca, port, nobody, (nets or {}).get(node))
    for node in [n for n in nodes if n in judged and n not in reported]:
        picks = [
            f"{port.name} {_show(port, env_index)}"
            for _, port, env_index in _picks(node, nodes[node], envs, softwares, job)
        ]
        yield ok(node, f"GID {listing(picks)}", observed=listing(picks, 8))


def _picks(
    node: str,
    facts: RdmaFacts,
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    job: Job,
) -> Iterator[tuple[Hca, HcaPort, int]]:
    env = values(effective_env((envs or {}).get(node), job))
    version = nccl_version((softwares or {}).get(node))
    for hca, port in selected_ports(facts.hcas, env.get("NCCL_IB_HCA")):
        if port.is_roce:
            yield hca, port, choose_gid_index(port, env, version)


def _show(port: HcaPort, index: int) -> str:
    gid = next((g for g in port.gids if g.index == index), None)
    return f"index {index} ({_text(gid)})" if gid else f"index {index}"


def _text(gid: Gid) -> str:
    address = gid_ipv4(gid)
    return f"{address or gid.gid}, {gid.type or 'RoCE version unknown'}"


def _is_link_local(gid: Gid) -> bool:
    return gid.gid.lower().startswith("fe80")


def _good(port: HcaPort) -> list[Gid]:
    return [gid for gid in port.gids if gid_ipv4(gid) is not None and gid_version(gid) == 2]


def _netdev(hca: Hca, port: HcaPort) -> str | None:
    names = [gid.netdev for gid in port.gids if gid.netdev] + list(hca.netdevs)
    return next((name for name in names if is_plain_name(name)), None)


def _no_ipv4(node: str, hca: Hca, port: HcaPort, flat: bool, net: NetFacts | None) -> Finding:
    netdev = _netdev(hca, port)
    own = [row for row in rows_of(net) if row.ifname == netdev and ":" not in row.address] if net else []
    if own:
        has = f", though its interface {netdev} has {own[0].address}"
        title = "RoCE ports of {nodes} have no routable GID, though their interfaces have addresses"
        fix = Fix(
            text="take the interface down and up, so that the driver fills the GID table anew",
            commands=(
                Command(run_on=node, shell=f"ip link set dev {netdev} down && ip link set dev {netdev} up"),
            ),
            root=True,
            risk="medium",
        )
    else:
        behind = f"its interface {netdev}" if netdev else "the interface behind it"
        has = "" if net is None or netdev is None else f": {behind} has no IPv4 address"
        title = "RoCE ports of {nodes} have no IPv4 address, and so no routable GID"
        fix = Fix(
            text=f"give {behind} an address of the RoCE network, also in the network configuration",
            commands=(
                Command(run_on=node, shell=f"ip address add ADDRESS/PREFIX dev {netdev or 'INTERFACE'}"),
            ),
            root=True,
            persistent=False,
        )
    finding = warn if flat else fail
    return finding(
        node,
        f"{port.name} has no IPv4 RoCE v2 GID{has}",
        observed="only link-local GIDs",
        expected="an IPv4-mapped RoCE v2 GID",
        expected_from=ExpectedFrom.CONSTANT if flat else ExpectedFrom.PEERS,
        evidence=(port_evidence(node, hca, port, gids=True),),
        cause=CauseHint(
            key="gid-no-ipv4",
            title=title,
            culprits=(node,),
            fixes=(fix,),
        ),
    )


def _empty(node: str, hca: Hca, port: HcaPort, index: int, env: Environment) -> Finding:
    forced = env.get("NCCL_IB_GID_INDEX")
    said = f"NCCL_IB_GID_INDEX={index} ({forced.origin})" if forced else "NCCL"
    return fail(
        node,
        f"{said} points at an empty row of the GID table of {port.name}",
        observed=f"index {index} is empty",
        expected="an IPv4-mapped RoCE v2 GID",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(port_evidence(node, hca, port, gids=True),),
        cause=CauseHint(
            key="gid-index-wrong",
            title="the GID index that NCCL is told to use does not fit {nodes}",
            culprits=(node,),
            fixes=(_unset(env),),
        ),
    )


def _wrong_index(
    node: str,
    hca: Hca,
    port: HcaPort,
    index: int,
    good: Gid,
    env: Environment,
) -> Finding:
    forced = env.get("NCCL_IB_GID_INDEX")
    said = f"NCCL_IB_GID_INDEX={index} ({forced.origin})" if forced else "NCCL's rules"
    chosen = next(gid for gid in port.gids if gid.index == index)
    return fail(
        node,
        f"{said} select{'s' if forced else ''} {_text(chosen)} on {port.name}, while index"
        f" {good.index} is {_text(good)}",
        observed=f"index {index}: {_text(chosen)}",
        expected=f"index {good.index}: {_text(good)}",
        expected_from=ExpectedFrom.DERIVED,
        evidence=(port_evidence(node, hca, port, gids=True),),
        cause=CauseHint(
            key="gid-index-wrong",
            title="the GID index that NCCL is told to use does not fit {nodes}",
            culprits=(node,),
            fixes=(_unset(env),),
        ),
    )


def _old_default(node: str, hca: Hca, port: HcaPort, good: Gid, flat: bool) -> Finding:
    finding = warn if flat else fail
    return finding(
        node,
        f"NCCL before 2.21 uses GID 0 of {port.name}, a link-local one; index {good.index} is {_text(good)}",
        observed="index 0",
        expected=f"index {good.index}: {_text(good)}",
        expected_from=ExpectedFrom.DERIVED,
        evidence=(
            port_evidence(node, hca, port, gids=True),
            Evidence(kind="file", where=node, what="libnccl.so.2", output="older than 2.21"),
        ),
        cause=CauseHint(
            key="gid-old-nccl",
            title="NCCL on {nodes} is too old to find the right GID by itself",
            culprits=(node,),
            fixes=(
                Fix(
                    text="tell it the index, if it is the same on every node, or use a newer NCCL",
                    commands=(Command(run_on="job", shell=f"export NCCL_IB_GID_INDEX={good.index}"),),
                    effect="next launch",
                    persistent=False,
                ),
            ),
            follows=("sw.torch", "sw.nccl"),
        ),
    )


def _unset(env: Environment) -> Fix:
    """NCCL 2.21 and newer find the index by themselves, on each node."""
    return change(env.get("NCCL_IB_GID_INDEX") or Setting("NCCL_IB_GID_INDEX", "", "the job", Source.JOB))
