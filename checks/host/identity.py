"""Which machine each listed name leads to."""

from collections.abc import Callable, Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.addresses import parse, same
from netdoctor.checks._shared.text import is_host_name, listing, quoted
from netdoctor.facts.host import HostFacts, Node
from netdoctor.model import (
    CONFIG,
    CONTROL,
    LIKELY,
    PEERS,
    Cause,
    Evidence,
    Finding,
    after_reboot,
    in_job,
    look,
    run,
    seen,
    unknown,
)

TELL_NCCL = in_job(
    "or, if they are virtual machines started from one snapshot, make them different for NCCL",
    'export NCCL_HOSTID="$(cat /sys/class/net/*/address | md5sum | cut -c1-32)"',
)
NEW_ID = after_reboot(
    "make a new one; DHCP may give the same address to machines with one id",
    "rm /etc/machine-id && systemd-machine-id-setup",
    risk="low",
)

TWICE = Cause("same-machine", "{nodes} {is} a machine that is already listed under another name")
ELSEWHERE = Cause("wrong-node", "the name of {nodes} leads to another machine of the list")
ONE_NAME = Cause("hostname-duplicate", "{nodes} share one host name")
CLONED = Cause("machine-id-cloned", "{nodes} {has} the machine-id of another node")


@check(
    explains=["net.resolve", "net.interface", "rdzv.*", "bw.*"],
    source="https://github.com/NVIDIA/nccl/blob/master/src/misc/utils.cc",
)
def host_identity(hosts: Mapping[str, HostFacts], listed: Mapping[str, Node]) -> Iterator[Finding]:
    """Each listed node is a separate machine, and the one that its name means.

    Looks at:
        Host name, boot id and machine id of every node, and the name under which it is listed.

    Matters because:
        NCCL takes processes with the same host name and boot id for one node, and tries shared memory
        between them. A machine that is listed twice runs twice the ranks. Two swapped names put ranks on
        the wrong machine. One host name on two machines breaks a rendezvous by name.

    Fix:
        Correct the hosts file, the SSH configuration or DNS, or give the machine its own host name.
    """
    for node, host in hosts.items():
        if not host.hostname:
            yield unknown(node, "its host name could not be read")
    yield from _twice(hosts)
    yield from _elsewhere(hosts, listed)
    yield from _one_name(hosts)
    yield from _cloned(hosts)


def _twice(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """The same boot id and host name. Containers on one machine share the boot id and differ in name."""
    for nodes in _equal(hosts, lambda host: host.boot_id and (host.boot_id, host.hostname)):
        first = hosts[nodes[0]]
        for node in nodes[1:]:
            host = hosts[node]
            # Reached at another address it may be a copy resumed from a memory snapshot (NCCL's NCCL_HOSTID
            # is meant for those).
            one_address = same(host.ssh_server_address, first.ssh_server_address)
            cause = TWICE if one_address else TWICE.but(confidence=LIKELY)
            yield cause.fail(
                f"is the machine already listed as {nodes[0]}",
                at=node,
                observed=f"host name {host.hostname}, boot id {host.boot_id}",
                expected=PEERS("a separate machine"),
                seen=(_evidence(nodes[0], first), _evidence(node, host)),
                fixes=(
                    run(f"take {listing(nodes[1:])} out of the hosts file", effect="next launch"),
                    TELL_NCCL,
                ),
            )


def _elsewhere(hosts: Mapping[str, HostFacts], listed: Mapping[str, Node]) -> Iterator[Finding]:
    """A listed name that leads to the machine whose own name is that of another listed node."""
    names = {n: listed[n].host for n in hosts if n in listed and parse(listed[n].host) is None}
    known = {_short(name) for name in names.values()}
    for node, name in names.items():
        reached = _short(hosts[node].hostname)
        if reached == _short(name) or reached not in known:
            continue
        ask = f"getent ahosts {quoted(name)}; ssh -G {quoted(name)} | grep -iE '^(hostname|port) '"
        yield ELSEWHERE.fail(
            f"the name {name} leads to the machine with the host name {hosts[node].hostname}",
            at=node,
            observed=hosts[node].hostname,
            expected=CONFIG(name),
            seen=_evidence(node, hosts[node]),
            fixes=look(
                "correct the address of the name on this machine: in DNS, /etc/hosts, or HostName "
                "in ~/.ssh/config",
                ask if is_host_name(name) else "",
                on=CONTROL,
            ),
        )


def _one_name(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    for nodes in _equal(hosts, lambda host: host.hostname.lower()):
        boots = {hosts[node].boot_id for node in nodes}
        for node in nodes:
            others = listing(other for other in nodes if other != node)
            summary = f"has the host name {hosts[node].hostname}, like {others}"
            if not any(boots):
                yield unknown(node, f"{summary}, and no boot id to distinguish them")
            elif len(boots) > 1:  # with one boot id it is one machine, said above
                yield ONE_NAME.warn(
                    summary,
                    at=node,
                    observed=hosts[node].hostname,
                    expected=PEERS("a different host name"),
                    seen=_evidence(node, hosts[node]),
                    fixes=run(
                        "give it a different name; MPI counts local ranks by host name, and torchrun "
                        "advertises it",
                        f"hostnamectl set-hostname {node}" if is_host_name(node) and not parse(node) else "",
                        root=True,
                    ),
                )


def _cloned(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """One machine-id on machines that booted apart: an image that was copied after first boot."""
    # Container images carry one machine-id as a matter of course.
    machines = {n: host for n, host in hosts.items() if not host.container and not host.shares_machine}
    for nodes in _equal(machines, lambda host: host.boot_id and host.machine_id):
        boots = {machines[node].boot_id for node in nodes}
        for node in nodes[1:] if len(boots) > 1 else ():
            machine_id = machines[node].machine_id
            yield CLONED.warn(
                f"has the machine-id of {nodes[0]}: its image was copied after first boot",
                at=node,
                observed=machine_id,
                expected=PEERS("a different machine-id"),
                seen=seen("/etc/machine-id", machine_id or "", "file"),
                fixes=NEW_ID,
            )


def _equal(hosts: Mapping[str, HostFacts], key: Callable[[HostFacts], object]) -> list[list[str]]:
    """Nodes that have the same `key`, two and more together; those that have none are left out."""
    groups: dict[object, list[str]] = {}
    for node, host in hosts.items():
        if value := key(host):
            groups.setdefault(value, []).append(node)
    return [nodes for nodes in groups.values() if len(nodes) > 1]


def _evidence(node: str, host: HostFacts) -> Evidence:
    return seen("hostname, boot_id", f"{host.hostname} {host.boot_id or '-'}", "file", at=node)


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
