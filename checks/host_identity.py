"""Which machine each listed name leads to."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._addresses import parse, same
from netdoctor.checks._words import is_host_name, listing, quoted
from netdoctor.facts.host import HostFacts, Node
from netdoctor.model import (
    CONTROL,
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    warn,
)

HOST_ID = 'export NCCL_HOSTID="$(cat /sys/class/net/*/address | md5sum | cut -c1-32)"'


@check(
    explains=["net.resolve", "net.interface", "rdzv.*", "bw.*"],
    source="https://github.com/NVIDIA/nccl/blob/master/src/misc/utils.cc",
)
def host_identity(hosts: Mapping[str, HostFacts], listed: Mapping[str, Node]) -> Iterator[Finding]:
    """Each listed node is a machine of its own, and the one its name says.

    Looks at:
        Host name, boot id and machine id of every node, and the name under which it is listed.

    Matters because:
        NCCL takes processes with the same host name and boot id for one node and tries shared memory between
        them. A machine listed twice runs twice the ranks; two names swapped put ranks where nobody expects
        them; one host name on two machines breaks rendezvous by name.

    Fix:
        Correct the hosts file, the SSH configuration or DNS, or give the machine a host name of its own.
    """
    yield from _twice(hosts)
    yield from _elsewhere(hosts, listed)
    yield from _names(hosts)
    yield from _cloned(hosts)


def _twice(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """The same boot id and host name. Containers on one machine share the boot id and differ in name."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node, host in hosts.items():
        if host.boot_id:
            groups.setdefault((host.boot_id, host.hostname), []).append(node)
    for (boot_id, hostname), nodes in groups.items():
        first = hosts[nodes[0]]
        for node in nodes[1:]:
            one_address = same(hosts[node].ssh_server_address, first.ssh_server_address)
            yield fail(
                node,
                f"is the machine already listed as {nodes[0]}",
                observed=f"host name {hostname}, boot id {boot_id}",
                expected="a machine of its own",
                expected_from=ExpectedFrom.PEERS,
                evidence=(_evidence(nodes[0], first), _evidence(node, hosts[node])),
                cause=CauseHint(
                    key="same-machine",
                    title="{nodes} {is} a machine that is already listed under another name",
                    culprits=(node,),
                    # Reached at another address it may be a copy resumed from a memory snapshot (NCCL's
                    # NCCL_HOSTID is meant for those).
                    confidence=Confidence.CERTAIN if one_address else Confidence.LIKELY,
                    fixes=(
                        Fix(text=f"take {listing(nodes[1:])} out of the hosts file", effect="next launch"),
                        Fix(
                            text="or, if they are virtual machines resumed from one snapshot, "
                            "tell NCCL that they differ",
                            commands=(Command(run_on="job", shell=HOST_ID),),
                            effect="next launch",
                            persistent=False,
                        ),
                    ),
                ),
            )


def _elsewhere(hosts: Mapping[str, HostFacts], listed: Mapping[str, Node]) -> Iterator[Finding]:
    """A listed name that leads to the machine whose own name is that of another listed node."""
    by_name: dict[str, list[str]] = {}
    for node in hosts:
        if node in listed and _is_name(listed[node].host):
            by_name.setdefault(_short(listed[node].host), []).append(node)
    for node, host in hosts.items():
        if node not in listed or not _is_name(listed[node].host):
            continue
        asked, reached = _short(listed[node].host), _short(host.hostname)
        others = [other for other in by_name.get(reached, ()) if other != node]
        if asked == reached or not others:
            continue
        name = listed[node].host
        ask = f"getent ahosts {quoted(name)}; ssh -G {quoted(name)} | grep -iE '^(hostname|port) '"
        yield fail(
            node,
            f"the name {name} leads to the machine that calls itself {host.hostname}",
            observed=host.hostname,
            expected=name,
            expected_from=ExpectedFrom.CONFIG,
            evidence=(_evidence(node, host),),
            cause=CauseHint(
                key="wrong-node",
                title="{nodes} lead{s} to another machine of the list",
                culprits=(node,),
                fixes=(
                    Fix(
                        text="correct where the name leads from here: DNS, /etc/hosts, or HostName in "
                        "~/.ssh/config",
                        commands=(Command(run_on=CONTROL, shell=ask),) if is_host_name(name) else (),
                    ),
                ),
            ),
        )


def _names(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    groups: dict[str, list[str]] = {}
    for node, host in hosts.items():
        groups.setdefault(host.hostname.lower(), []).append(node)
    for nodes in groups.values():
        # The same boot id too: that is one machine, said above.
        if len(nodes) < 2 or len({hosts[node].boot_id for node in nodes}) < 2:
            continue
        for node in nodes:
            new = f"hostnamectl set-hostname {quoted(node)}" if is_host_name(node) else ""
            yield warn(
                node,
                f"has the host name {hosts[node].hostname}, like "
                f"{listing(other for other in nodes if other != node)}",
                observed=hosts[node].hostname,
                expected="a host name of its own",
                expected_from=ExpectedFrom.PEERS,
                evidence=(_evidence(node, hosts[node]),),
                cause=CauseHint(
                    key="hostname-duplicate",
                    title="{nodes} share one host name",
                    culprits=(node,),
                    fixes=(
                        Fix(
                            text="give it a name of its own; MPI counts local ranks by host name, and "
                            "torchrun advertises it",
                            commands=(Command(run_on=node, shell=new),) if new and not parse(node) else (),
                            root=True,
                        ),
                    ),
                ),
            )


def _cloned(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """One machine-id on machines that booted apart: an image that was copied after first boot."""
    groups: dict[str, list[str]] = {}
    for node, host in hosts.items():
        # Container images carry one machine-id as a matter of course.
        if host.machine_id and host.boot_id and not host.container and not host.in_lab:
            groups.setdefault(host.machine_id, []).append(node)
    for machine_id, nodes in groups.items():
        if len({hosts[node].boot_id for node in nodes}) < 2:
            continue
        for node in nodes[1:]:
            yield warn(
                node,
                f"has the machine-id of {nodes[0]}: its image was copied after first boot",
                observed=machine_id,
                expected="a machine-id of its own",
                expected_from=ExpectedFrom.PEERS,
                evidence=(Evidence(kind="file", where=node, what="/etc/machine-id", output=machine_id),),
                cause=CauseHint(
                    key="machine-id-cloned",
                    title="{nodes} {has} the machine-id of another node",
                    culprits=(node,),
                    fixes=(
                        Fix(
                            text="make a new one; DHCP may give machines with one id the same address",
                            commands=(
                                Command(
                                    run_on=node,
                                    shell="rm /etc/machine-id && systemd-machine-id-setup",
                                ),
                            ),
                            root=True,
                            reboot=True,
                            effect="after reboot",
                        ),
                    ),
                ),
            )


def _evidence(node: str, host: HostFacts) -> Evidence:
    return Evidence(
        kind="file",
        where=node,
        what="hostname, boot_id",
        output=f"{host.hostname} {host.boot_id or '-'}",
    )


def _is_name(host: str) -> bool:
    return parse(host) is None


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
