"""Logins from node to node, which pdsh, DeepSpeed and mpirun need."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdoctor import tables
from netdoctor.check import check
from netdoctor.checks._shared.addresses import parse
from netdoctor.checks._shared.edits import END_LAST_LINE, append
from netdoctor.checks._shared.matrix import decode
from netdoctor.checks._shared.text import is_host_name
from netdoctor.checks.ssh._login import more_startups
from netdoctor.facts.host import HostFacts, Login, Session
from netdoctor.facts.mesh import Mesh, MeshLogin
from netdoctor.model import (
    CLUSTER,
    CONSTANT,
    Cause,
    Finding,
    Fix,
    fail,
    look,
    ok,
    pair,
    run,
    seen,
    skip,
    unknown,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What ssh says, and how it is told."""

    messages: dict[str, Login]  # by pattern; the first that fits counts
    failure: dict[str, dict[str, str]]  # by class, the title of a fault's kind
    follows: dict[str, tuple[str, ...]]


TABLE = tables.table("netdoctor.checks.ssh", "mesh.toml", _Table)
_KEY = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]{2,60} [A-Za-z0-9+/]{20,16000}={0,2}")
_MAKE = "[ -e ~/.ssh/id_ed25519.pub ] || ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519"


def message(login: MeshLogin) -> str:
    """The line in which ssh says why it ended; else its last one."""
    lines = [line.strip("@ ") for line in login.said.splitlines()]
    found = (line for pattern in TABLE.messages for line in lines if re.search(pattern, line))
    return next(found, lines[-1] if lines else f"exit status {login.code}")


def outcome(login: MeshLogin) -> Login:
    """What became of it. A program that ends by itself was started, so somebody was logged in."""
    if login.code == 0:
        return Login.OK
    found = next((kind for pattern, kind in TABLE.messages.items() if re.search(pattern, login.said)), None)
    if login.code is None:
        return found or Login.TIMEOUT
    return (found or Login.LOST) if login.code in (255, -1) else Login.SHELL


def known_as(login: MeshLogin) -> str:
    """The name under which known_hosts has the other node; empty for what should stand in no command."""
    if not (is_host_name(login.host) or parse(login.host)):
        return ""
    return f"[{login.host}]:{login.port}" if login.port not in (None, 22) else login.host


def _on_each(nodes: Iterable[str], text: str, shell: str, **more: Any) -> list[Fix]:
    """The same fix on each of these nodes, once. more: Fix's other fields."""
    return [run(text, shell, on=node, **more) for node in dict.fromkeys(nodes)]


def _exchange_host_keys(logins: Sequence[MeshLogin], mesh: Mesh, *, forget: bool) -> list[Fix]:
    """Every node that lacks keys gets those of all that any of them meets: one command serves all."""
    names = dict.fromkeys((known_as(one), one.dst) for one in logins if known_as(one))
    keys = [
        f"{name} {key}"
        for name, dst in names
        for key in (mesh.nodes[dst].host_keys if dst in mesh.nodes else ())
        if _KEY.fullmatch(key)
    ]
    drop = "".join(f"ssh-keygen -q -R '{name}' >/dev/null 2>&1; " for name, _ in names) if forget else ""
    lines = " ".join(f"'{key}'" for key in keys)
    add = f"f=~/.ssh/known_hosts; {END_LAST_LINE}; printf '%s\\n' {lines} >> $f"
    text = "add the host keys of the other nodes, read there over netdoctor's login"
    shell = f"(umask 077; mkdir -p ~/.ssh; {drop}{add})" if keys else ""
    sources = (one.src for one in logins)
    return _on_each(sources, text, shell, effect="next login", widens="trusts these keys")


def _let_in(logins: Sequence[MeshLogin], mesh: Mesh) -> list[Fix]:
    has = {one.src: mesh.nodes[one.src].public_keys[:1] for one in logins if one.src in mesh.nodes}
    keys = dict.fromkeys(key for public in has.values() for key in public if _KEY.fullmatch(key))
    each = "; ".join(append(f"'{key}'", "~/.ssh/authorized_keys") for key in keys)
    let_in = _on_each(
        (one.dst for one in logins if keys),
        "accept the nodes' own keys",
        f"(umask 077; mkdir -p ~/.ssh; {each})",
        effect="next login",
        widens="lets the other nodes log in as this user",
    )
    without = (one.src for one in logins if not has.get(one.src))
    return let_in + _on_each(
        without, "make a key for the user, and scan again to see which nodes must accept it", _MAKE
    )


def _port(logins: Sequence[MeshLogin], sessions: Mapping[str, Session]) -> list[Fix]:
    ports = {
        one.host: sessions[one.dst].port
        for one in logins
        if one.dst in sessions and sessions[one.dst].port != one.port and known_as(one)
    }
    if not ports:
        start = "systemctl enable --now ssh 2>/dev/null || systemctl enable --now sshd"
        text = "start the SSH server, and let the other nodes reach its port"
        return _on_each((one.dst for one in logins), text, start, root=True)
    fixes = []
    for port in dict.fromkeys(ports.values()):
        hosts = " ".join(host for host, listening in ports.items() if listening == port)
        new = f"printf 'Host {hosts}\\n  Port {port}\\n' | cat - ~/.ssh/config > ~/.ssh/config.netdoctor"
        keep = "cat ~/.ssh/config.netdoctor > ~/.ssh/config && rm ~/.ssh/config.netdoctor"
        text = f"set in its ssh the port on which netdoctor reached them, {port}"
        shell = f"(umask 077; mkdir -p ~/.ssh; touch ~/.ssh/config; {new} && {keep})"
        fixes += _on_each((one.src for one in logins), text, shell, effect="next login")
    return fixes


def fixes(kind: Login, logins: Sequence[MeshLogin], mesh: Mesh, sessions: Mapping[str, Session]) -> list[Fix]:
    """How those that failed in this way get through."""
    if kind in (Login.HOST_KEY_UNKNOWN, Login.HOST_KEY_CHANGED):
        return _exchange_host_keys(logins, mesh, forget=kind is Login.HOST_KEY_CHANGED)
    if kind is Login.AUTH:
        return _let_in(logins, mesh)
    if kind is Login.REFUSED:
        return _port(logins, sessions)
    if kind is Login.TOO_MANY:
        more, back = more_startups()
        text = "let sshd accept more logins at once; launchers will need it, too"
        return _on_each((one.dst for one in logins), text, more, undo=back, root=True)
    first = logins[0]
    ask = f"ssh -v -o BatchMode=yes {first.host} true" if known_as(first) else ""
    return [look("see its last message", ask, on=first.src)]


NO_CLIENT = Cause("mesh-no-client", "{nodes} {has} no SSH client, so no login from there is possible")
INSTALL = run(
    "install the SSH client", "apt-get install -y openssh-client || dnf install -y openssh-clients", root=True
)


@check(profile="asked", required=False, source="https://docs.open-mpi.org/en/main/launching-apps/ssh.html")
def ssh_mesh(
    mesh: Mesh, hosts: Mapping[str, HostFacts], sessions: Mapping[str, Session]
) -> Iterator[Finding]:
    """Every node logs in to every other node without any question.

    Looks at:
        Each node's own ``ssh -o BatchMode=yes HOST true`` to the others, by the names of the hosts file,
        with the user's keys, known hosts and settings on that node. Up to 32 nodes all pairs are tried;
        beyond that the first node logs in to up to 512 others, and each node to some neighbours. It runs
        only with ``--also ssh.mesh``.

    Matters because:
        pdsh, DeepSpeed's launcher and mpirun start ranks by such logins, from the first node or from node
        to node in a tree. torchrun, srun and Ray do not need them. A login from this machine to every
        node proves nothing here: keys, known hosts and ports are those of the nodes.

    Fix:
        Give the nodes each other's keys, as printed: the user's into authorized_keys, the hosts' into
        known_hosts. Compare a changed host key first.
    """
    if len(hosts) < 2:
        yield skip("one node: there is no other node to log in to")
        return
    for node, why in mesh.failed_nodes.items():
        yield unknown(node, f"its logins were not tried: {why}")
    without = [node for node, one in mesh.nodes.items() if not one.client]
    for node in without:
        yield NO_CLIENT.fail("there is no ssh", at=node, expected="OpenSSH's client", fixes=INSTALL)
    logins = {(one.src, one.dst): one for one in mesh.logins if one.src not in without}
    for login in (one for one in logins.values() if not one.tried):
        yield unknown(pair(login.src, login.dst), "there was no time left for this login")
    tried = {cell: outcome(one) for cell, one in logins.items() if one.tried}
    for kind in dict.fromkeys(found for found in tried.values() if found is not Login.OK):
        titles = TABLE.failure.get(kind, TABLE.failure["other"])
        for fault in decode({c: found is kind for c, found in tried.items() if found in (kind, Login.OK)}):
            key, title = (
                f"mesh-{kind.replace('_', '-')}-{fault.kind}",
                titles.get(fault.kind, titles["between"]),
            )
            some = [logins[cell] for cell in sorted(fault.cells)]
            cause = Cause(key, title, follows=TABLE.follows.get(kind, ()))
            hint = cause.hint(fault.culprits, fixes(kind, some, mesh, sessions))
            yield from (_failed(one, hint) for one in some)
    if tried and set(tried.values()) == {Login.OK}:
        yield ok(CLUSTER, f"{len(tried)} of {mesh.possible} directed pairs tried, all logins work")


def _failed(login: MeshLogin, hint: Cause) -> Finding:
    return fail(
        pair(login.src, login.dst),
        f"ssh {login.host}: {message(login)}",
        observed=message(login),
        expected="a login without questions",
        expected_from=CONSTANT,
        evidence=(seen(f"ssh -o BatchMode=yes {login.host} true", login.said, "command", at=login.src),),
        cause=hint,
    )
