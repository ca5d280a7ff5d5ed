"""Where peers dial each node: from NCCL's choice, the login and the networks that nodes share."""

from collections.abc import Mapping

from netdoctor.facts.net import NetFacts
from netdoctor.rules.addresses import is_usable, network, networks_by_reach, repeated_addresses, rows_of
from netdoctor.rules.nccl import choose, is_ifname_set


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
        own = {row.address: row for row in rows_of(net) if is_usable(row)}
        chosen = choose(net, env).row
        if is_ifname_set(env) and chosen and is_usable(chosen):
            alone = len(reach.get(network(chosen), {})) == 1 and node in shared
            if not alone or len(nets) == 1:
                result[node] = chosen.address
                continue
        login = ssh_addresses.get(node)
        if login in own:
            result[node] = own[login].address
            continue
        if (
            chosen
            and chosen.address in own
            and chosen.address not in repeated
            and 2 * len(reach.get(network(chosen), {})) > len(nets)
        ):
            result[node] = chosen.address
            continue
        rows = [row for row in own.values() if row.address not in repeated] or list(own.values())
        if rows:
            # max() keeps the first of equals, which is getifaddrs order.
            result[node] = max(rows, key=lambda row: len(reach.get(network(row), {}))).address
    return result
