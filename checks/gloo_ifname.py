"""The address that gloo would use on each node."""

from collections import Counter
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._hosts_file import rewrite
from netdoctor.checks._majority import majority
from netdoctor.checks._nccl_advice import target_rows
from netdoctor.checks._words import is_ifname, listing, quoted
from netdoctor.checks.net_resolve import NOT_ASKED
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    skip,
    unknown,
)
from netdoctor.rules.addresses import IPNetwork, ip, network, networks_by_reach, repeated_addresses, rows_of
from netdoctor.rules.gloo import Device, choose, interface_names, is_loopback
from netdoctor.rules.variables import Environment, Setting, effective_env, values

VARIABLE = "GLOO_SOCKET_IFNAME"


@check(
    explains=("bw.*",),
    source="https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
)
def gloo_ifname(
    nets: Mapping[str, NetFacts],
    resolves: Mapping[str, ResolveFacts],
    hosts: Mapping[str, HostFacts] | None,
    envs: Mapping[str, EnvFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """Gloo picks, on every node, an address that the other nodes can reach.

    Looks at:
        GLOO_SOCKET_IFNAME, which takes exact names, and without it what the node's own name means
        on the node itself: gloo uses the first address of it that can be bound.

    Matters because:
        NCCL jobs use gloo too, for barriers, object collectives and checkpoints. Where /etc/hosts
        gives the own name 127.0.1.1, as Debian and Ubuntu do, the node tells its peers to dial
        themselves ("Gloo connectFullMesh failed"); a value copied from NCCL_SOCKET_IFNAME, a
        prefix or ``=eth0``, ends with "Unable to find address".

    Fix:
        Make the own name mean the address that peers use, or set GLOO_SOCKET_IFNAME.
    """
    if len(nets) < 2:
        yield skip("one node: gloo stays on it")
        return
    envs_of = {node: effective_env((envs or {}).get(node), job) for node in nets}
    chosen = {node: choose(net, resolves.get(node), values(envs_of[node])) for node, net in nets.items()}
    target = target_rows(nets, job.data_addresses)
    wanted = {node: row.ifname for node, row in (target or {}).items()}
    addresses = {node: row.address for node, row in (target or {}).items()} | job.data_addresses
    troubles: dict[str, Finding] = {}
    for node, devices in chosen.items():
        if any(d.rule == "fallback" for d in devices) and (resolves[node].own.error or "").startswith(
            NOT_ASKED
        ):
            troubles[node] = unknown(node, "there was no time left to look up the own name")
            continue
        setting = envs_of[node].get(VARIABLE)
        bad = next((d for d in devices if d.address is None), None)
        loop = next((d for d in devices if is_loopback(d)), None)
        if bad is not None and setting:
            troubles[node] = _no_such(node, nets[node], bad, setting, wanted)
        elif loop is not None and loop.rule == "GLOO_SOCKET_IFNAME" and setting:
            troubles[node] = _loopback_asked(node, setting, wanted)
        elif loop is not None:
            troubles[node] = _loopback(
                node, resolves[node], loop, (hosts or {}).get(node), addresses.get(node), wanted
            )
    repeated = repeated_addresses(nets)
    for node, devices in chosen.items():
        if node not in troubles and any(d.address in repeated for d in devices):
            shared = next(d for d in devices if d.address in repeated)
            troubles[node] = _trouble(
                node,
                f"gloo would use {shared.address}, an address that other nodes have too",
                key="gloo-same-address",
                title="gloo on {nodes} would use an address that other nodes have too",
                observed=_text(devices),
                evidence=_evidence(node, resolves.get(node), envs_of[node].get(VARIABLE)),
                fixes=_set_variable(wanted),
            )
    for node, finding in _lengths(envs_of, chosen, troubles, resolves, wanted):
        troubles.setdefault(node, finding)
    for node, finding in _networks(nets, chosen, troubles, resolves, envs_of, wanted):
        troubles.setdefault(node, finding)
    for node, devices in chosen.items():
        if node in troubles:
            yield troubles[node]
        elif devices:
            yield ok(node, f"gloo uses {_text(devices)}", observed=_text(devices))


def _loopback(
    node: str,
    resolve: ResolveFacts,
    device: Device,
    host: HostFacts | None,
    address: str | None,
    wanted: Mapping[str, str],
) -> Finding:
    """Keys and titles are those of net.resolve, so that both checks speak of one cause."""
    own = resolve.own
    if device.rule == "own name":
        key, title = "hosts-loopback", "The own name of {nodes} resolves to a loopback address there"
        observed = device.address or ""
        summary = f"the own name {own.name} means {observed}, so gloo tells its peers to dial themselves"
    elif own.error or not own.addresses:
        key, title = "own-name-unknown", "The own name of {nodes} does not resolve there"
        observed = own.error or "no address"
        summary = f"the own name {own.name} does not resolve ({observed}), so gloo falls back to loopback"
    else:
        key, title = "own-name-wrong", "The own name of {nodes} resolves to an address of another machine"
        observed = listing(own.addresses)
        summary = f"the own name {own.name} means {observed}, which cannot be bound: gloo uses loopback"
    return _trouble(
        node,
        summary,
        key=key,
        title=title,
        observed=observed,
        expected=address or "an address of this node",
        evidence=_evidence(node, resolve, None),
        fixes=(_own_name(node, own.name, host, address), *_set_variable(wanted)),
        verify=("net.resolve", "gloo.ifname"),
    )


def _own_name(node: str, name: str, host: HostFacts | None, address: str | None) -> Fix:
    """The fix that net.resolve proposes too; being equal, it is shown once."""
    other = [host.fqdn] if host and host.fqdn and host.fqdn != name else []
    again = "; cloud-init writes it back unless manage_etc_hosts is off" if host and host.cloud else ""
    shell = rewrite({name: address}, other) if address else None
    return Fix(
        text=f"give the own name its address in /etc/hosts{again}",
        commands=(Command(run_on=node, shell=shell),) if shell else (),
        root=True,
        effect="next launch",
    )


def _loopback_asked(node: str, setting: Setting, wanted: Mapping[str, str]) -> Finding:
    value, origin = setting.value, setting.origin
    return _trouble(
        node,
        f"{VARIABLE}={value} ({origin}) is loopback, which no other node can reach",
        key="gloo-ifname-loopback",
        title=VARIABLE + " sends gloo on {nodes} to loopback",
        observed=value,
        evidence=_evidence(node, None, setting),
        fixes=_set_variable(wanted),
    )


def _no_such(
    node: str,
    net: NetFacts,
    device: Device,
    setting: Setting,
    wanted: Mapping[str, str],
) -> Finding:
    value, origin = setting.value, setting.origin
    have = listing(dict.fromkeys(row.ifname for row in rows_of(net)))
    copied = (device.ifname or "").startswith(("=", "^")) or any(
        row.ifname.startswith(device.ifname or " ") for row in rows_of(net)
    )
    hint = "; gloo takes exact names only, not NCCL's = ^ and prefixes" if copied else ""
    return _trouble(
        node,
        f"{VARIABLE}={value} ({origin}): no interface {device.ifname!r} with an address, this node"
        f" has {have}{hint}",
        key="gloo-ifname-nomatch",
        title="{nodes} lack{s} the interface that " + VARIABLE + " asks for",
        observed=have,
        expected=f"an interface named {device.ifname}",
        expected_from=ExpectedFrom.CONFIG,
        evidence=_evidence(node, None, setting),
        fixes=_set_variable(wanted),
    )


def _lengths(
    envs_of: Mapping[str, Environment],
    chosen: Mapping[str, tuple[Device, ...]],
    troubles: Mapping[str, Finding],
    resolves: Mapping[str, ResolveFacts],
    wanted: Mapping[str, str],
) -> Iterator[tuple[str, Finding]]:
    """Every rank must make the same number of devices, each of which is a mesh of its own."""
    counts = {node: len(devices) for node, devices in chosen.items() if devices}
    spread = majority(counts)
    for node, count in spread.minority.items():
        if node in troubles:
            continue
        other = next(n for n in spread.groups if n != count)
        yield (
            node,
            _trouble(
                node,
                f"gloo makes {count} device{'s' if count > 1 else ''} here, {other} on other"
                " nodes: the group would wait for a mesh that never comes",
                key="gloo-ifname-count",
                title=VARIABLE + " lists another number of interfaces on {nodes}",
                observed=str(count),
                expected=str(other),
                expected_from=ExpectedFrom.PEERS,
                evidence=_evidence(node, resolves.get(node), envs_of[node].get(VARIABLE)),
                fixes=_set_variable(wanted),
                confidence=Confidence.LIKELY if spread.tie else Confidence.CERTAIN,
            ),
        )


def _networks(
    nets: Mapping[str, NetFacts],
    chosen: Mapping[str, tuple[Device, ...]],
    troubles: Mapping[str, Finding],
    resolves: Mapping[str, ResolveFacts],
    envs_of: Mapping[str, Environment],
    wanted: Mapping[str, str],
) -> Iterator[tuple[str, Finding]]:
    """Nodes that would use another network than most, although they are in that one too."""
    reach = networks_by_reach(nets)
    first = {
        node: devices[0].row
        for node, devices in chosen.items()
        if devices and devices[0].row and node not in troubles
    }
    picked: dict[str, IPNetwork] = {node: network(row) for node, row in first.items() if row}
    if len(set(picked.values())) < 2:
        return
    count = Counter(picked.values())
    usual = max(count, key=lambda net: (count[net], len(reach.get(net, {}))))
    certain = 2 * count[usual] > len(picked)
    for node, row in first.items():
        if row is None or picked[node] == usual:
            continue
        address = ip(row.address)
        if address.version == usual.version and address in usual:
            continue
        better = reach.get(usual, {}).get(node)
        mixed = address.version != usual.version
        if better is None and not mixed and nets[node].default_devs:
            continue  # routed networks: net.route and net.ports judge those
        reason = (
            f"this node has {better.ifname} {better.address} there"
            if better
            else "gloo does not mix IPv4 and IPv6"
            if mixed
            else "this node has no route to it"
        )
        yield (
            node,
            _trouble(
                node,
                f"gloo would use {_text(chosen[node])}, while {'most' if certain else 'other'}"
                f" nodes use {usual}: {reason}",
                key="gloo-ifname-network",
                title="gloo on {nodes} would use another network than the other nodes",
                observed=_text(chosen[node]),
                expected=f"an address in {usual}",
                expected_from=ExpectedFrom.PEERS,
                evidence=_evidence(node, resolves.get(node), envs_of[node].get(VARIABLE)),
                fixes=_set_variable(wanted),
                confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
            ),
        )


def _set_variable(wanted: Mapping[str, str]) -> tuple[Fix, ...]:
    """GLOO_SOCKET_IFNAME takes exact names, so one value fits only where the name is everywhere the
    same."""
    names = set(wanted.values())
    if not names or not all(is_ifname(name) for name in names):
        return ()
    if len(names) == 1:
        commands: tuple[Command, ...] = (
            Command(run_on="job", shell=f"export {VARIABLE}={quoted(names.pop())}"),
        )
        text = "tell gloo the interface, by a name that fits all nodes"
        return (Fix(text=text, commands=commands, effect="next launch", persistent=False),)
    commands = (
        Command(run_on="job", shell=f"unset {VARIABLE}"),
        *(
            Command(run_on=node, shell=f"echo {VARIABLE}={quoted(name)} >> /etc/environment")
            for node, name in wanted.items()
        ),
    )
    text = "no single name fits: give each node its own, and the job none"
    return (Fix(text=text, commands=commands, root=True, effect="next login"),)


def _text(devices: tuple[Device, ...]) -> str:
    return listing([f"{d.ifname or 'unknown interface'} {d.address}" for d in devices])


def _evidence(node: str, resolve: ResolveFacts | None, setting: Setting | None) -> tuple[Evidence, ...]:
    found = []
    if setting and interface_names({VARIABLE: setting.value}):
        text = f"{VARIABLE}={setting.value}"
        found.append(Evidence(kind="file", where=node, what=setting.origin, output=text))
    elif resolve is not None:
        text = listing(resolve.own.addresses) or resolve.own.error or "nothing"
        what = f"getent ahosts {resolve.own.name}"
        found.append(Evidence(kind="command", where=node, what=what, output=text))
        if resolve.hosts_lines:
            lines = "; ".join(resolve.hosts_lines[:4])
            found.append(Evidence(kind="file", where=node, what="/etc/hosts", output=lines))
    return tuple(found)


def _trouble(
    node: str,
    summary: str,
    *,
    key: str,
    title: str,
    observed: str,
    evidence: tuple[Evidence, ...],
    fixes: tuple[Fix, ...],
    expected: str = "an address that the other nodes can reach",
    expected_from: ExpectedFrom = ExpectedFrom.DERIVED,
    confidence: Confidence = Confidence.CERTAIN,
    verify: tuple[str, ...] = ("gloo.ifname",),
) -> Finding:
    return fail(
        node,
        summary,
        observed=observed,
        expected=expected,
        expected_from=expected_from,
        evidence=evidence,
        cause=CauseHint(
            key=key,
            title=title,
            culprits=(node,),
            confidence=confidence,
            fixes=fixes,
            verify=verify,
        ),
    )
