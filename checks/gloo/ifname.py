"""The address that gloo would use on each node."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from netdoctor.advice import target_rows
from netdoctor.check import check
from netdoctor.checks._shared.addresses import commonest_network
from netdoctor.checks._shared.env import each_its_own, export, unread
from netdoctor.checks._shared.hosts_file import own_name
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.text import is_ifname, listing
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import (
    CONFIG,
    DERIVED,
    LIKELY,
    PEERS,
    Cause,
    Finding,
    Fix,
    in_job,
    ok,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.addresses import ip, leads_to, networks_by_reach, repeated_addresses, rows_of
from netdoctor.rules.gloo import Device, choose, interface_names, is_loopback
from netdoctor.rules.variables import Setting, effective_env, exported, values

VARIABLE = "GLOO_SOCKET_IFNAME"
# Keys and titles of net.resolve, so that both checks speak of one cause.
BOTH = ("net.resolve", "gloo.ifname")
OWN_LOOPBACK = Cause(
    "hosts-loopback", "The host name of {nodes} resolves to a loopback address there", verify=BOTH
)
OWN_UNKNOWN = Cause("own-name-unknown", "The host name of {nodes} does not resolve there", verify=BOTH)
OWN_WRONG = Cause(
    "own-name-wrong", "The host name of {nodes} resolves to an address of another machine", verify=BOTH
)
OWN_LONG = Cause("own-name-long", "The host name of {nodes} is longer than torch reads")
OWN_NOWHERE = Cause(
    "own-name-nowhere", "The host name of {nodes} resolves to an address that no interface there has"
)
LATER = Cause(
    "gloo-ifname-later", "gloo groups of {nodes} use other addresses after NCCL has started", LIKELY
)
NO_MATCH = Cause("gloo-ifname-nomatch", "{nodes} lack{s} the interface that GLOO_SOCKET_IFNAME asks for")
LOOPBACK = Cause("gloo-ifname-loopback", "GLOO_SOCKET_IFNAME sends gloo on {nodes} to loopback")
SAME = Cause("gloo-same-address", "gloo on {nodes} would use an address that other nodes have too")
COUNT = Cause("gloo-ifname-count", "GLOO_SOCKET_IFNAME lists a different number of interfaces on {nodes}")
NETWORK = Cause("gloo-ifname-network", "gloo on {nodes} would use another network than the other nodes")


@dataclass(frozen=True, slots=True)
class Process:
    """A node as a gloo process of the job sees it."""

    node: str
    net: NetFacts
    resolve: ResolveFacts
    setting: Setting | None  # of the variable
    devices: tuple[Device, ...]  # that it makes
    fixes: tuple[Fix, ...]  # a value of the variable that would do

    def __str__(self) -> str:
        return listing([f"{one.ifname or 'unknown interface'} {one.address}" for one in self.devices])

    def details(self, **more: Any) -> dict[str, Any]:
        """What a finding about this node says, unless `more` says otherwise."""
        own_name_answer = self.resolve.own
        if self.setting and interface_names({VARIABLE: self.setting.value}):
            evidence = [seen(self.setting.origin, f"{VARIABLE}={self.setting.value}", "file")]
        else:
            output = listing(own_name_answer.addresses) or own_name_answer.error or "nothing"
            evidence = [seen(f"getent ahosts {own_name_answer.name}", output, "command")]
            if self.resolve.hosts_lines:
                evidence.append(seen("/etc/hosts", "; ".join(self.resolve.hosts_lines[:4]), "file"))
        return {
            "at": self.node,
            "observed": str(self),
            "expected": "an address that the other nodes can reach",
            "expected_from": DERIVED,
            "seen": evidence,
            "fixes": self.fixes,
            **more,
        }


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
        GLOO_SOCKET_IFNAME, which takes exact names. Without it, the addresses to which the node resolves
        its own host name: gloo uses the first one that can be bound.

    Matters because:
        NCCL jobs use gloo, too: for barriers, object collectives and checkpoints. If /etc/hosts maps the
        host name to 127.0.1.1, as Debian and Ubuntu do, the node tells its peers to connect to themselves
        ("Gloo connectFullMesh failed"). A value copied from NCCL_SOCKET_IFNAME, a prefix or ``=eth0``,
        ends with "Unable to find address".

    Fix:
        Make the host name resolve to the address that peers use, or set GLOO_SOCKET_IFNAME.
    """
    if len(nets) < 2:
        yield skip("one node: gloo stays on it")
        return
    logins = envs or {}
    target = target_rows(nets, job.data_addresses) or {}
    addresses = {node: row.address for node, row in target.items()} | job.data_addresses
    fixes = _set_variable({node: row.ifname for node, row in target.items()})
    processes: dict[str, Process] = {}
    exports: dict[str, Process] = {}
    for node, net in nets.items():
        env = effective_env(logins.get(node), job)
        devices = choose(net, resolves[node], values(env))
        processes[node] = Process(node, net, resolves[node], env.get(VARIABLE), devices, fixes)
        later = exported(logins.get(node)).get(VARIABLE)
        if later and VARIABLE not in env and job.backend != "gloo":
            exports[node] = Process(
                node, net, resolves[node], later, choose(net, None, {VARIABLE: later.value}), fixes
            )
    troubles: dict[str, Finding] = {}
    for node, one in processes.items():
        if finding := _useless(one, (hosts or {}).get(node), addresses.get(node)):
            troubles[node] = finding
    for judged in (_same_address, _lengths, _networks):
        troubles |= {finding.target: finding for finding in judged(processes, troubles.keys())}
    for node, one in processes.items():
        if node not in troubles and node in exports and exports[node].devices != one.devices:
            troubles[node] = _later(one, exports[node])
        if node in troubles:
            yield troubles[node]
        elif node not in logins and VARIABLE not in job.env:
            yield unknown(node, f"it is not known which address gloo uses: {unread(None)}")
        elif stray := next((device.address for device in one.devices if device.row is None), None):
            yield unknown(node, f"gloo uses {stray}, but no known interface of this node has that address")
        else:
            yield ok(node, f"gloo uses {one}", observed=str(one))


def _useless(one: Process, host: HostFacts | None, address: str | None) -> Finding | None:
    """What is wrong with a device by itself: there is none, or it is loopback."""
    answer, setting = one.resolve.own, one.setting
    missing = next((device for device in one.devices if device.address is None), None)
    loop = next((device for device in one.devices if is_loopback(device)), None)
    if missing and missing.rule != VARIABLE:
        return _ends(one, missing)
    if missing and setting:
        return _no_such(one, missing.ifname or "", setting)
    if loop is None:
        return None
    if loop.rule == "GLOO_SOCKET_IFNAME" and setting:
        summary = f"{setting} is loopback, which no other node can reach"
        return LOOPBACK.fail(summary, **one.details(observed=setting.value))
    if loop.rule == "own name":
        cause, what = OWN_LOOPBACK, loop.address or ""
        summary = (
            f"the host name {answer.name} resolves to {what}, so gloo tells its peers to "
            "connect to themselves"
        )
    elif not answer.asked:
        return unknown(one.node, "there was no time left to look up the host name")
    elif answer.failed:
        cause, what = OWN_UNKNOWN, answer.error or "no address"
        summary = f"the host name {answer.name} does not resolve ({what}), so gloo falls back to loopback"
    else:
        cause, what = OWN_WRONG, listing(answer.addresses)
        summary = f"the host name {answer.name} resolves to {what}, which cannot be bound: gloo uses loopback"
    fixes = (own_name(answer.name, host, address), *one.fixes)
    expected = address or "an address of this node"
    return cause.fail(summary, **one.details(observed=what, expected=expected, fixes=fixes))


def _later(now: Process, later: Process) -> Finding:
    """NCCL's file names an interface for gloo: torch does not read it, but NCCL exports it when it starts."""
    summary = f"{later.setting} applies to gloo groups made after NCCL started, which would use {later}"
    fix = in_job("set it for all groups", export(VARIABLE, later.setting.value if later.setting else ""))
    return LATER.warn(f"{summary}, and those before {now}", **now.details(observed=str(later), fixes=fix))


def _ends(one: Process, device: Device) -> Finding:
    """The own name ends every gloo process that starts on the node."""
    name, tried = one.resolve.own.name, device.tried
    if device.rule == "fallback":
        summary = f"the host name {name} cannot be used, and there is no loopback address instead"
        return OWN_UNKNOWN.fail(f'{summary}: gloo ends with "Cannot resolve {tried}"', **one.details())
    if tried is None:
        summary = f'the host name has {len(name)} characters: gloo ends with "File name too long"'
        return OWN_LONG.fail(summary, **one.details(observed=name, expected="at most 63 characters"))
    summary = f"the host name {name} resolves to {tried}, which can be bound, but no interface has it"
    return OWN_NOWHERE.fail(
        f'{summary}: gloo ends with "Unable to find interface"', **one.details(observed=tried)
    )


def _no_such(one: Process, name: str, setting: Setting) -> Finding:
    names = dict.fromkeys(row.ifname for row in rows_of(one.net))
    copied = name.startswith(("=", "^")) or any(known.startswith(name or " ") for known in names)
    hint = "; gloo takes exact names only, not NCCL's = ^ and prefixes" if copied else ""
    have = listing(names)
    return NO_MATCH.fail(
        f"{setting}: no interface {name!r} with an address, this node has {have}{hint}",
        **one.details(observed=have, expected=f"an interface named {name}", expected_from=CONFIG),
    )


def _same_address(processes: Mapping[str, Process], spoken: Set[str]) -> Iterator[Finding]:
    repeated = repeated_addresses({node: one.net for node, one in processes.items()})
    for node, one in processes.items():
        shared = next((device.address for device in one.devices if device.address in repeated), None)
        if shared and node not in spoken:
            yield SAME.fail(f"gloo would use {shared}, an address that other nodes have too", **one.details())


def _lengths(processes: Mapping[str, Process], spoken: Set[str]) -> Iterator[Finding]:
    """Every rank must make the same number of devices, each of which is a mesh of its own."""
    spread = majority({node: len(one.devices) for node, one in processes.items()})
    for node, count in spread.minority.items():
        if node in spoken:
            continue
        other = next(n for n in spread.groups if n != count)
        yield COUNT.but(confidence=spread.confidence).fail(
            f"gloo makes {count} device{'s' if count > 1 else ''} here, {other} on other nodes:"
            " the group would wait for ever for its connections",
            **processes[node].details(observed=str(count), expected=str(other), expected_from=PEERS),
        )


def _networks(processes: Mapping[str, Process], spoken: Set[str]) -> Iterator[Finding]:
    """Nodes that would use another network than most, although they are in that one too."""
    reach = networks_by_reach({node: one.net for node, one in processes.items()})
    rows = {
        node: row for node, one in processes.items() if node not in spoken and (row := one.devices[0].row)
    }
    if not rows:
        return
    typical, certain = commonest_network(rows.values(), reach)
    for node, row in rows.items():
        one, mixed = processes[node], ip(row.address).version != typical.version
        if ip(row.address) in typical:
            continue
        if better := reach.get(typical, {}).get(node):
            reason = f"this node has {better.ifname} {better.address} there"
        elif mixed:
            reason = "gloo does not mix IPv4 and IPv6"
        elif leads_to(one.net, typical):
            continue  # routed networks: net.route and net.ports judge those
        else:
            reason = "this node has no route to it"
        cause = NETWORK if certain else NETWORK.but(confidence=LIKELY)
        yield cause.fail(
            f"gloo would use {one}, while {'most' if certain else 'other'} nodes use {typical}: {reason}",
            **one.details(expected=f"an address in {typical}", expected_from=PEERS),
        )


def _set_variable(names: Mapping[str, str]) -> tuple[Fix, ...]:
    """GLOO_SOCKET_IFNAME takes exact names, so one value fits only where the name is everywhere the same."""
    if not names or not all(map(is_ifname, names.values())):
        return ()
    if len(set(names.values())) == 1:
        text = "set gloo's interface, by a name that fits all nodes"
        return (in_job(text, export(VARIABLE, next(iter(names.values())))),)
    text = "no single name fits: set it on each node, and not in the job"
    return (each_its_own(names, VARIABLE, "/etc/environment", text=text, effect="next login"),)
