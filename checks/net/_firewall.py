"""Commands that let peers through the firewall that a node really runs, or say where else to look."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netdoctor.checks._shared.addresses import cover, parse, spans
from netdoctor.checks._shared.edits import append
from netdoctor.checks._shared.matrix import Kind
from netdoctor.checks._shared.paths import addresses
from netdoctor.checks._shared.ports import RENDEZVOUS, PortCause
from netdoctor.checks._shared.text import listing, quoted
from netdoctor.checks.net._clouds import let_in, of_nodes
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import FirewallFacts, Ruleset
from netdoctor.facts.software import Job
from netdoctor.memo import by_identity
from netdoctor.model import Fix, look, run

# A rule as the agent reports it: "inet site_firewall gate (hook input): tcp dport 29500 counter drop". The
# braces and the words of `nft list ruleset` are tolerated too.
_CHAIN = re.compile(
    r"^\s*(?:table\s+)?(?P<family>ip6?|inet)\s+(?P<table>[\w.-]+)\s+(?:chain\s+)?(?P<chain>[\w.-]+)"
)
_HOOK = re.compile(r"\(hook ([a-z,]+)\)")
# How many runs of addresses a rule may list, and the word in the comment of a rule of ours.
MOST_SPANS, MARK = 32, "netdoctor"
# Where packets to the node itself, and from it, pass. What it forwards is somebody else's.
_WAYS = {"input": True, "prerouting": True, "ingress": True, "output": False, "postrouting": False}


def inbound(node: str, cause: PortCause) -> bool:
    """Whether connections end on their way into `node` (rather than out of it)."""
    if cause.fault.kind is Kind.PATH:
        return node == cause.fault.nodes[1]
    return cause.fault.kind is not Kind.OUT


def remedies(
    node: str,
    cause: PortCause,
    firewalls: Mapping[str, FirewallFacts],
    job: Job,
    hosts: Mapping[str, HostFacts] | None = None,
) -> tuple[Fix, ...]:
    """Return how to heal the part of `node` in `cause`: its rules, what lies between, or where to look."""
    ends = sorted(cause.peers.get(node, set()) - {node})
    peers = [one for end in ends for one in addresses(end, cause.paths, job.data_addresses)]
    if cause.outcome == "no_route":
        text = "see which route the kernel takes, and add the missing route or address"
        return tuple(look(text, f"ip route get {peer}", on=node) for peer in peers[:1] if parse(peer))
    facts = firewalls.get(node)
    incoming = inbound(node, cause)
    rules = look(
        "find the rule that stops them, and accept the other nodes before it",
        "nft list ruleset || iptables-save",
        on=node,
        root=True,
    )
    if facts is not None and any(relevant(one, incoming) for one in active(facts)):
        fixes = allow(node, facts, peers, inbound=incoming)
        if cause.fault.kind in (Kind.NODE, Kind.ALL):
            fixes = _joined(fixes, allow(node, facts, peers, inbound=False))
        return fixes or (rules,)
    between = (*let_in(of_nodes([node], hosts)), _ask(cause, job))
    return between if cause.fabric else (rules, *between)


def _joined(inward: tuple[Fix, ...], outward: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """One fix for both directions of each front end that filters; one direction alone heals nothing."""
    if len(inward) != len(outward):
        return (*inward, *outward)
    return tuple(
        replace(
            one,
            commands=(*one.commands, *other.commands),
            undo=(*one.undo, *other.undo),
            widens=f"{one.widens}; {other.widens}",
        )
        for one, other in zip(inward, outward, strict=True)
    )


@by_identity
def _ask(cause: PortCause, job: Job) -> Fix:
    """What to ask of whoever runs the network, with the addresses they need."""
    sources, targets = (
        listing(
            cover(
                one
                for n in {cell[end] for cell in cause.fault.cells}
                for one in addresses(n, cause.paths, job.data_addresses)
            )
        )
        for end in (0, 1)
    )
    ports = f"TCP {job.master_port}" if cause.ports == RENDEZVOUS else "all TCP ports"
    pairs = f"from {sources} to {targets}" if sources != targets else f"between {sources}"
    where = "the ACL of the switch ports and any firewall between them, or in a cloud the security group"
    return Fix(text=f"ask the owner of the network to let {ports} through {pairs}: {where}")


def active(facts: FirewallFacts | None) -> list[Ruleset]:
    return [one for one in facts.rulesets if one.active] if facts else []


def relevant(ruleset: Ruleset, inbound: bool) -> list[str]:
    """Return the rules that act on this direction; where none is known to, those that could."""
    ways = [(rule, _ways(rule)) for rule in ruleset.rules]
    return [rule for rule, way in ways if inbound in way] or [rule for rule, way in ways if None in way]


def _ways(rule: str) -> set[bool | None]:
    """Return whether a rule acts inbound, by the hook or the name of its chain; None where neither tells."""
    head = rule.partition(": ")[0]
    if match := _HOOK.search(head):
        return {_WAYS[hook] for hook in match[1].split(",") if hook in _WAYS}
    by_name: set[bool | None] = {way for hook, way in _WAYS.items() if hook in head.lower()}
    return by_name if by_name or "forward" in head.lower() else {None}


def chains(ruleset: Ruleset, inbound: bool) -> list[tuple[str, str, str]]:
    """(family, table, chain) of the rules that act on this direction, once each."""
    matches = filter(None, map(_CHAIN.match, relevant(ruleset, inbound)))
    return list(dict.fromkeys((match["family"], match["table"], match["chain"]) for match in matches))


def allow(node: str, facts: FirewallFacts, peers: Iterable[str], *, inbound: bool) -> tuple[Fix, ...]:
    """Fixes that let `peers` in (or out to them) on `node`, one for each front end that filters there."""
    peers = list(peers)
    who = cover(peers)
    kinds = {one.kind: one for one in active(facts)}
    if not who or not kinds:
        return ()
    verb = "trusts" if inbound else "lets out to"

    def fix(text: str, rules: Sequence[str], undo: Sequence[str], trusted: Sequence[str], **more: Any) -> Fix:
        widens = f"{verb} {', '.join(trusted)}, all ports"
        shell, back = " && ".join(rules), " && ".join(undo)
        return run(text, shell, undo=back, on=node, root=True, widens=widens, **more)

    fixes = [_by_firewalld(fix, who, inbound)] if "firewalld" in kinds else []
    fixes += [_by_ufw(fix, who, inbound)] if "ufw" in kinds else ()
    fixes += _by_nftables(fix, kinds, peers, who, inbound) if "nftables" in kinds else ()
    fixes = [one for one in fixes if one.commands] or [*_by_iptables(fix, kinds, who, inbound)]
    return tuple(one for one in fixes if one.commands)


_BEFORE = "accept the other nodes before the rule that stops them"
# A fix of a front end: text, rules, what takes them back, the addresses that they let through.
MakeFix = Callable[..., Fix]


def _families(who: Sequence[str]) -> tuple[list[str], list[str]]:
    """Addresses of IPv4, and those of IPv6."""
    return [a for a in who if ":" not in a], [a for a in who if ":" in a]


def _by_firewalld(fix: MakeFix, who: Sequence[str], inbound: bool) -> Fix:
    if inbound:
        sources = " ".join(f"--add-source={quoted(a)}" for a in who)
        rules = [f"firewall-cmd --permanent --zone=trusted {sources}"]
    else:
        rules = [
            f"firewall-cmd --permanent --direct --add-rule {family} filter OUTPUT 0 -d {a} -j ACCEPT"
            for family, group in zip(("ipv4", "ipv6"), _families(who), strict=True)
            for a in group
        ]
    rules.append("firewall-cmd --reload")
    undo = [rule.replace("--add-", "--remove-") for rule in rules]
    return fix("put the other nodes into firewalld's trusted zone", rules, undo, who)


def _by_ufw(fix: MakeFix, who: Sequence[str], inbound: bool) -> Fix:
    rules = [f"allow {'from' if inbound else 'out to'} {quoted(a)}" for a in who]
    now, undo = ([f"ufw {word}{rule}" for rule in rules] for word in ("", "delete "))
    return fix("let the other nodes through ufw", now, undo, who)


def _by_nftables(
    fix: MakeFix, kinds: Mapping[str, Ruleset], peers: list[str], who: Sequence[str], inbound: bool
) -> Iterator[Fix]:
    exact = spans(peers)
    trusted = exact if len(exact) <= MOST_SPANS else who
    found = [
        (family, table, chain)
        for family, table, chain in chains(kinds["nftables"], inbound)
        # What firewalld and ufw wrote is theirs to change.
        if not (table == "firewalld" and "firewalld" in kinds) and not ("ufw" in kinds and "ufw" in chain)
    ]
    lines = [(where, line) for where in found for line in _nft(where, trusted, inbound)]
    now = [f"nft {line.replace('{', _OPEN).replace('}', _CLOSE)}" for _, line in lines]
    undo = [_NFT_BACK.format(chain=" ".join(where)) for where in dict.fromkeys(where for where, _ in lines)]
    yield fix(_BEFORE, now, undo, trusted, persistent=False)
    later = [_NFT_FILE.format(table=" ".join(where[:2]), append=append(f'"{line}"')) for where, line in lines]
    text = "the same after each boot, if nftables.service loads these rules"
    yield fix(text, later, [_NFT_FILE_BACK], trusted, effect="after reboot")


def _by_iptables(
    fix: MakeFix, kinds: Mapping[str, Ruleset], who: Sequence[str], inbound: bool
) -> Iterator[Fix]:
    chain, side = ("INPUT", "-s") if inbound else ("OUTPUT", "-d")
    rules = [
        f"{kind} -I {chain} {side} {','.join(group)} -j ACCEPT"
        for kind, group in zip(("iptables", "ip6tables"), _families(who), strict=True)
        if kind in kinds and group and relevant(kinds[kind], inbound)
    ]
    yield fix(_BEFORE, rules, [rule.replace(" -I ", " -D ") for rule in rules], who, persistent=False)
    text = "to keep it, if iptables-persistent or iptables-services restores the rules"
    yield fix(text, [_SAVE] if rules else [], (), who, effect="after reboot")


_OPEN, _CLOSE = "'{", "}'"
# Debian's and Red Hat's file; a line for a table that no file makes would stop the whole of it from loading.
_NFT_FILE = (
    'f=$(grep -lsF "table {table} " /etc/nftables.conf /etc/sysconfig/nftables.conf | head -n 1) && '
    '[ "$f" ] && {append}'
)
# Whatever of ours is in a chain, once or pasted more often: " # handle 7" ends its line.
_NFT_BACK = (
    'nft -a list chain {chain} | sed -n "s/.* comment .'
    f"{MARK}"
    '. # handle /delete rule {chain} handle /p" | nft -f -'
)
_NFT_FILE_BACK = (
    f'sed -i "/^insert rule .* accept comment {MARK}$/d" '
    "$(ls /etc/nftables.conf /etc/sysconfig/nftables.conf 2>/dev/null)"
)
_SAVE = "netfilter-persistent save || service iptables save"


def _nft(path: tuple[str, str, str], trusted: Sequence[str], inbound: bool) -> list[str]:
    """Return the rule in nft syntax for each family that the table can hold, with a comment to find it by."""
    family, table, chain = path
    side = "saddr" if inbound else "daddr"
    groups = {proto: [a for a in trusted if (":" in a) == (proto == "ip6")] for proto in ("ip", "ip6")}
    return [
        f"insert rule {family} {table} {chain} {proto} {side} {{ {', '.join(group)} }} accept comment {MARK}"
        for proto, group in groups.items()
        if group and family in ("inet", proto)
    ]
