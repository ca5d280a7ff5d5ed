"""Logins from node to node, by each node's own ssh."""

from collections.abc import Sequence

from netdoctor.facts.mesh import Mesh, MeshLogin, MeshNode
from netdoctor.measure.common import ask, converted, peers, reason
from netdoctor.measure.declare import Context, experiment

# 31 logins of a node are a second or two. Beyond, what launchers need in any case: from the first node to all
# (mpirun starts a tree of logins there, pdsh one to each), and each node's neighbours in the list.
ALL_UP_TO = 32
NEIGHBOURS = 4
FROM_FIRST = 512
# sshd turns some away when more than ten are not logged in yet (MaxStartups 10:30:100): nodes begin at
# different peers, and have few logins at once.
PARALLEL, FIRST_PARALLEL = 4, 16
LOGGING_IN_S = 60.0


def plan(nodes: Sequence[str]) -> dict[str, list[str]]:
    """Whom each node logs in to, beginning with the next in the list."""
    count = len(nodes)
    if count <= ALL_UP_TO:
        return {a: [nodes[(i + o) % count] for o in range(1, count)] for i, a in enumerate(nodes)}
    found = peers(nodes, at_most=0, count=NEIGHBOURS)
    found[nodes[0]] = list(dict.fromkeys([*found[nodes[0]], *nodes[1 : FROM_FIRST + 1]]))
    return found


@experiment(bound_s=LOGGING_IN_S + 10)
def mesh(context: Context) -> Mesh:
    """Every node logs in to the others with its own ssh, and runs `true` there."""
    nodes = context.participants.nodes
    listed = context.store.present("node", nodes)
    hosts = {n: one.host for n, one in listed.items()}
    dialled = plan([n for n in nodes if n in hosts])
    args = {
        n: {
            "targets": [{"dst": dst, "host": hosts[dst]} for dst in others],
            "parallel": FIRST_PARALLEL if len(others) > ALL_UP_TO else PARALLEL,
            "seconds": LOGGING_IN_S,
        }
        for n, others in dialled.items()
        if others
    }
    logins: list[MeshLogin] = []
    keys_of: dict[str, MeshNode] = {}
    failed: dict[str, str] = {}
    for reply in ask(context.transport, "login", args, LOGGING_IN_S + 5):
        result = reply.result if isinstance(reply.result, dict) else {}
        keys = {name: result.get(name) for name in ("client", "public_keys", "host_keys")}
        node = converted(keys, reply.node, MeshNode)
        rows = result.get("rows")
        if reply.missing is not None or isinstance(node, str) or not isinstance(rows, list):
            failed[reply.node] = reason(reply) if reply.missing or not isinstance(node, str) else node
            continue
        keys_of[reply.node] = node
        waiting = {(dst, hosts[dst]) for dst in dialled[reply.node]}
        for row in rows:
            login = converted(row, reply.node, MeshLogin) if isinstance(row, dict) else "no row"
            if isinstance(login, str) or (login.dst, login.host) not in waiting:
                failed[reply.node] = login if isinstance(login, str) else "a login that was not asked for"
                continue
            waiting.discard((login.dst, login.host))
            logins.append(login)
        if waiting:
            failed.setdefault(reply.node, f"{len(waiting)} logins were not answered for")
    order = {n: i for i, n in enumerate(nodes)}
    logins.sort(key=lambda one: (order[one.src], order[one.dst]))
    possible = len(hosts) * (len(hosts) - 1)
    return Mesh(logins=tuple(logins), nodes=keys_of, possible=possible, failed_nodes=failed)
