"""Logins from node to node, which pdsh, DeepSpeed and mpirun need."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._matrix import Fault, Kind, decode
from netdoctor.checks._mesh import FOLLOWS, OTHER, TITLES, fixes, no_client, outcome, said
from netdoctor.facts.host import HostFacts, Login, Session
from netdoctor.facts.mesh import Mesh, MeshLogin
from netdoctor.model import CLUSTER, CONSTANT, Cause, CauseHint, Finding, fail, ok, pair, seen, skip, unknown

NO_CLIENT = Cause("mesh-no-client", "{nodes} {has} no SSH client, and so logs in nowhere")


@check(
    profile="asked",
    required=False,
    source="https://docs.open-mpi.org/en/main/launching-apps/ssh.html",
)
def ssh_mesh(
    mesh: Mesh, hosts: Mapping[str, HostFacts], sessions: Mapping[str, Session]
) -> Iterator[Finding]:
    """Every node logs in to every other by itself, without being asked anything.

    Looks at:
        Each node's own ``ssh -o BatchMode=yes HOST true`` to the others, by the names of the hosts file, with
        the user's own keys, known hosts and settings there: all pairs up to 32 nodes; beyond, the first node
        to up to 512 others, and of each node some neighbours. Runs where ``--also ssh.mesh`` asks for it.

    Matters because:
        pdsh, DeepSpeed's launcher and mpirun start ranks by such logins, from the first node or from node to
        node in a tree. torchrun, srun and Ray need none of them. That this machine logs in to every node says
        nothing about it: keys, known hosts and ports are those of the nodes.

    Fix:
        Give the nodes each other's keys, as printed: the user's into authorized_keys, the hosts' into
        known_hosts. A changed host key is compared first.
    """
    if len(hosts) < 2:
        yield skip("one node: there is nobody to log in to")
        return
    for node, why in mesh.failed_nodes.items():
        yield unknown(node, f"its logins were not tried: {why}")
    without = [node for node, one in mesh.nodes.items() if not one.client]
    for node in without:
        wanted = "OpenSSH's client"
        yield NO_CLIENT.fail("there is no ssh", at=node, expected=wanted, fixes=no_client())
    logins = {(one.src, one.dst): one for one in mesh.logins if one.src not in without}
    for login in (one for one in logins.values() if not one.tried):
        yield unknown(pair(login.src, login.dst), "there was no time left for this login")
    tried = {cell: outcome(one) for cell, one in logins.items() if one.tried}
    for kind in dict.fromkeys(tried.values()):
        of_kind = {cell: found is kind for cell, found in tried.items() if found in (kind, Login.OK)}
        for fault in decode(of_kind) if kind is not Login.OK else ():
            some = [logins[cell] for cell in sorted(fault.cells)]
            hint = _cause(kind, fault).hint(fault.culprits, fixes(kind, some, mesh, sessions))
            yield from (_failed(one, hint) for one in some)
    if tried and set(tried.values()) == {Login.OK}:
        yield ok(CLUSTER, f"{len(tried)} of {mesh.possible} directed pairs tried, all let in")


def _cause(kind: Login, fault: Fault) -> Cause:
    logs_in, lets_in, between = TITLES.get(kind, OTHER)
    title = {Kind.OUT: logs_in, Kind.IN: lets_in}.get(fault.kind, between)
    name = f"mesh-{kind.replace('_', '-')}-{fault.kind}"
    return Cause(name, title, follows=FOLLOWS.get(kind, ()))


def _failed(login: MeshLogin, hint: CauseHint) -> Finding:
    return fail(
        pair(login.src, login.dst),
        f"ssh {login.host}: {said(login)}",
        observed=said(login),
        expected="a login that asks for nothing",
        expected_from=CONSTANT,
        evidence=(seen(f"ssh -o BatchMode=yes {login.host} true", login.said, "command", at=login.src),),
        cause=hint,
    )
